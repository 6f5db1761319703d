"""The CPU's fast path: a whole decoder step in C, with weights and activations in small integers.

`source/` is compiled at install where there is a compiler; where there is none, or the processor lacks the
instructions, the torch path serves. Knows weights, slots and blocks; nothing of requests.
"""
