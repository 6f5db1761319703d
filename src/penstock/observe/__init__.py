"""What operators see: metrics, records of requests, traces, alerts, dashboards, the console.

`catalogue.py` declares every metric. Names under `vllm:` mean what vLLM means by them, so that existing
dashboards work; ours are under `penstock_`. Knows plain engine data and records of requests, never HTTP
serving or the engine itself.
"""
