"""The building blocks of a decoder: linear, rotary, norm, sampler.

Torch on any device; device-specific speed lives in `kernels/`. No layer knows of
requests or blocks.
"""
