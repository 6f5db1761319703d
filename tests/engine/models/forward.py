"""Run a decoder over whole token lists, in chunks and batches of the test's choosing."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from penstock.engine.kernels.attention import allocate_cache, plan_attention
from penstock.engine.models.decoder import Decoder, StepInputs

BLOCK_SIZE = 4


def all_logits(
    model: Decoder, prompts: list[list[int]], chunk: int | tuple[int, ...], positions: int | None = None
) -> list[Tensor]:
    """Logits of every position of every prompt, all prompts advancing together by `chunk` tokens a step;
    of several chunks, by each in its turn, over and over.

    `positions`: tokens of the longest sequence there may be, if not the model's context.
    """
    config = model.config
    model.prepare(positions or config.context_length)
    blocks_each = -(-max(map(len, prompts)) // BLOCK_SIZE)
    total = blocks_each * len(prompts)
    # Scattered blocks, so that an attention that ignores the table cannot pass.
    order = torch.randperm(total, generator=torch.Generator().manual_seed(0)).tolist()
    tables = [order[i * blocks_each : (i + 1) * blocks_each] for i in range(len(prompts))]
    cache = allocate_cache(
        config.num_layers,
        config.num_kv_heads,
        total + 1,
        BLOCK_SIZE,
        config.head_dim,
        model.dtype,
        model.device,
    )
    found: list[list[Tensor]] = [[] for _ in prompts]
    sizes = itertools.cycle((chunk,) if isinstance(chunk, int) else chunk)
    longest, end = max(map(len, prompts)), 0
    while end < longest:
        start, end = end, end + next(sizes)
        parts = [(i, p[start:end]) for i, p in enumerate(prompts) if len(p) > start]
        spans = [(start, len(tokens), tables[i]) for i, tokens in parts]
        rows = [start + offset for _, tokens in parts for offset in range(len(tokens))]
        owners = [i for i, tokens in parts for _ in tokens]
        places = [
            tables[i][p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE
            for i, p in zip(owners, rows, strict=True)
        ]
        hidden = model.forward(
            StepInputs(
                tokens=torch.tensor([t for _, tokens in parts for t in tokens], device=model.device),
                positions=torch.tensor(rows, device=model.device),
                places=torch.tensor(places, device=model.device),
                groups=plan_attention(spans, cache[0], config.windows),
            ),
            cache,
        )
        logits = model.logits(hidden)
        for owner, row in zip(owners, logits, strict=True):
            found[owner].append(row)
    return [torch.stack(rows) for rows in found]
