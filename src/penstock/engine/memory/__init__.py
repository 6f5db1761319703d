"""Who owns which KV block: pool, reference counts, prefix tree, eviction, forks.

Pure Python over integers and token ids: no torch, no clock, no device. The device
side holds the actual keys and values and is told block numbers and copies.
"""
