"""Encoders: models that read a whole text at once and give a vector for it, or a score for two texts.

The queue (`queue.py`, pure) says who is read in the next step, the model computes them packed one
after another, and the core is to encoders what `engine.core` is to decoders. No KV blocks here, and
no text: token ids in, numbers out.
"""
