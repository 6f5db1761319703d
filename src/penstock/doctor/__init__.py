"""`penstock doctor`: what this machine can run, which models fit, what is missing and what to type.

Looks and reports; changes nothing, fetches nothing, opens no connection. Runs without torch: whatever
needs it is asked of a process of its own (`probe.py`), so that a broken torch is a finding too.
"""
