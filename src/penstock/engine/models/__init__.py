"""Architectures and how their weights get in: one dense decoder, a short file for each family.

Knows model files (through `penstock.hub`) and torch; knows nothing of requests, blocks
or scheduling. `loader.load_decoder` is the door.
"""
