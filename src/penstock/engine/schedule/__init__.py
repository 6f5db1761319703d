"""Who computes how many tokens in the next step.

Pure Python: it is given events and the time, and returns a plan. No torch, no clock,
no threads; the live engine and the simulations run the same object.
"""
