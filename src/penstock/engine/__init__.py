"""One model on one accelerator group: schedule, remember, run, emit.

Knows token ids, never text; knows nothing of HTTP, tenants or prices.
`schedule/` and `memory/` are pure Python, as is the plain data that crosses every border
(`request.py`, `config.py`); what imports torch is the loop (`core.py`) and all below it.
"""
