"""Architectures and how their weights get in: one dense decoder, a short file for each family.

Knows model files (through `penstock.hub`) and torch; knows nothing of requests, blocks
or scheduling. `loader` is the door of the torch path; `run/loading.py` chooses between that and the native.
"""
