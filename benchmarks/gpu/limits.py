"""How fast a workload could be: matrix products, KV reads and prefill at the measured rates, no more.

Prefill is counted by its operations at the rate of a large matrix product: those of the layers for every
prompt token, those of attention, and the output matrix for each prompt's last token. Then every request that
has tokens left decodes in each step, which takes what the step's matrix products take in a CUDA graph and
the reading of all keys and values there are.
"""

from __future__ import annotations

from .ceilings import Ceilings
from .subjects import Subject
from .workloads import Workload


def limit(workload: Workload, subject: Subject, ceilings: Ceilings, *, share: bool = True) -> float | None:
    """In the workload's unit. `share`: a shared prefix is read once a step for all."""
    prefill, decode, steps = _prefill(workload, subject, ceilings), 0.0, 0
    shape = subject.shape
    itemsize = 4 if subject.precision == "float32" else 2
    kv_bytes = shape.kv_bytes(subject.kv_precision, itemsize)
    for step in range(1, max(job.output for job in workload.jobs)):
        alive = [job for job in workload.jobs if job.output > step]
        matmuls = ceilings.matmuls(subject.model, subject.precision, len(alive))
        if matmuls is None or not ceilings.read_tb_per_second:
            return None
        tokens = sum(job.prompt + step - (job.shared if share else 0) for job in alive)
        tokens += max(job.shared for job in alive) if share else 0
        decode += matmuls / 1000 + tokens * kv_bytes / (ceilings.read_tb_per_second * 1e12)
        steps += 1
    if workload.unit == "ms a token":
        return 1000 * decode / steps
    if prefill is None:
        return None
    counted = workload.prompt_tokens if workload.unit == "prompt tok/s" else workload.output_tokens
    return counted / (prefill + decode)


def _prefill(workload: Workload, subject: Subject, ceilings: Ceilings) -> float | None:
    """Seconds."""
    if not ceilings.tflops(subject.precision) or not ceilings.bf16_tflop_per_second:
        return None
    shape = subject.shape
    common = max(job.shared for job in workload.jobs)  # computed once
    tokens = common + sum(job.prompt - job.shared for job in workload.jobs)
    seconds = 2 * shape.layer_weights * tokens / ceilings.tflops(subject.precision)
    # A token is compared with half of its prompt, and with all of what is shared: scores, then values.
    pairs = common**2 / 2 + sum((job.prompt**2 - job.shared**2) / 2 for job in workload.jobs)
    attention = 4 * shape.layers * shape.heads * shape.head_dim * pairs
    head = 2 * shape.head_weights * len(workload.jobs)
    return (seconds + (attention + head) / ceilings.bf16_tflop_per_second) / 1e12
