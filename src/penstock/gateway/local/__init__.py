"""Answering with engines of our own: a body becomes token ids, token events become an answer.

Text and wire formats live here; processes and their health in `engines`, the queue and the choice of
an engine around both. Knows nothing of tenants or prices.
"""
