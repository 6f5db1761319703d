"""The parts of `benchmarks/peers.py`: other engines installed, started and measured beside Penstock.

They know every engine from outside only: by its package on PyPI, by HTTP, and by what the kernel says of its
processes. A file named `*_program.py` runs inside a peer's environment and imports nothing of its neighbours.
"""
