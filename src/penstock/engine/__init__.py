"""One model on one accelerator group: schedule, remember, run, emit.

Knows token ids, never text; knows nothing of HTTP, tenants or prices.
`schedule/` and `memory/` are pure Python; only `run/`, `layers/`, `kernels/` and
`models/` import torch. Plain data crosses every border (`request.py`, `config.py`).
"""
