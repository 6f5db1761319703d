"""What a decoder is built of beside matmuls and attention: rotary embedding, noise, sampler.

Torch on any device; device-specific speed lives in `kernels/`. No layer knows of
requests or blocks.
"""
