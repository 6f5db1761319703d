"""How much the engine takes unless told otherwise. No torch: the doctor says it in advance."""

from __future__ import annotations

GIB = 1 << 30
# The CPU's defaults: a step should stay well under a second, and the cache within a laptop's memory.
CPU_MAX_RUNNING, CPU_STEP_TOKENS, CPU_KV_BYTES, CPU_KV_SHARE = 64, 256, 4 * GIB, 0.4
GPU_MAX_RUNNING, GPU_STEP_TOKENS = 256, 8192
ACTIVATION_BYTES = GIB  # kept free on a GPU beside weights and cache


def cpu_kv_bytes(available: int) -> int:
    """The KV cache's share of the memory that is available once the weights are in."""
    return int(min(CPU_KV_BYTES, CPU_KV_SHARE * available))


def gpu_kv_bytes(total: int, free: int, fraction: float) -> int:
    """What is left of the allowed `fraction` of a GPU's memory, `free` counted with the weights in."""
    return int(total * fraction) - (total - free) - ACTIVATION_BYTES
