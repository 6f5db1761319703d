"""`model: auto`: the orchestrator's decisions carried out. A request is rated, gets a way through the tiers,
and some of what they answer is checked against the expert.

What is good enough, and what it is worth, `aio` decides; this room must not know coefficients or thresholds,
nor how an answer gets from a backend to the client.
"""
