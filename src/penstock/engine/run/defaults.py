"""How much the engine takes unless told otherwise. No torch: the doctor says it in advance."""

from __future__ import annotations

GIB = 1 << 30
# The CPU's defaults: a step should stay well under a second, and the cache within a laptop's memory. What the
# prefix tree keeps fills all of it in time, so it has what many requests need, and not whatever is free.
CPU_MAX_RUNNING, CPU_STEP_TOKENS, CPU_KV_TOKENS, CPU_KV_BYTES, CPU_KV_SHARE = 64, 256, 20_480, 4 * GIB, 0.4
GPU_MAX_RUNNING, GPU_STEP_TOKENS = 256, 8192
# Tokens in a KV block. Prefixes are shared block by block; a GPU reads them best in longer runs.
CPU_BLOCK_SIZE, GPU_BLOCK_SIZE = 16, 64
ACTIVATION_BYTES = GIB  # beside weights and cache on a GPU, where it was not measured


def cpu_kv_bytes(available: int, per_token: int, context: int) -> int:
    """The KV cache's share of the memory that is available once the weights are in: room for a whole context
    at least, if that is to be had."""
    return int(min(max(context, CPU_KV_TOKENS) * per_token, CPU_KV_BYTES, CPU_KV_SHARE * available))


def gpu_kv_bytes(total: int, free: int, fraction: float, activations: int = ACTIVATION_BYTES) -> int:
    """What is left of the allowed `fraction` of a GPU's memory, `free` counted with the weights in."""
    return int(total * fraction) - (total - free) - activations
