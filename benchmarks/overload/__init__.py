"""The parts of `benchmarks/overload.py`: a server with real engines, its clients, and what is asked of it.

They know the server from outside only, by HTTP and by its configuration file.
"""
