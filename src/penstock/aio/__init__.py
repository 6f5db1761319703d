"""The Adaptive Inference Orchestrator's brain: rates a query, names a tier, keeps books, learns.

Decides purely, from numbers and text that it is given; must not know HTTP, the configuration, clocks, threads
or torch. The gateway acts on what it says.
"""
