"""Alert rules for Prometheus, made from what is promised: who is called, when, and what they should look at.

`thresholds.py` has the figures, one file for each group the expressions. Knows the catalogue's names
and the configured objectives, never a running server.
"""
