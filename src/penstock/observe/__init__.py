"""What operators see: the catalogue of metrics, in one file.

Names under `vllm:` mean what vLLM means by them, so that existing dashboards work;
ours are under `penstock_`. Knows plain engine data, never HTTP or the engine itself.
"""
