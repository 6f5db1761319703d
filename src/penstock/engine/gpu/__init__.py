"""A decoder on a GPU: Triton kernels, steps captured as CUDA graphs, eight-bit floating point.

Knows of slots, blocks and rows; not of requests, the scheduler or the host's clock. Every kernel has a plain
torch form in one of the `reference` files, which says what it must compute.
"""
