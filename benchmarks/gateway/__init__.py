"""The parts of `benchmarks/gateway.py`: what drives, answers, starts and weighs a gateway under test.

They know gateways from outside only: by HTTP, and by what the kernel says of their processes.
`mock.py` and `load.py` are programs of their own, and import nothing of their neighbours.
"""
