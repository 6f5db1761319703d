"""The decoder on a GPU computes what the one in plain torch does, whatever a step looks like.

Without a GPU its kernels are interpreted, so models are small and steps few.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.gpu.loading import load_gpu
from penstock.engine.gpu.model import GpuModel
from penstock.engine.models.loader import build_decoder
from penstock.engine.models.weights import open_weights
from penstock.engine.request import Request, SamplingParams
from penstock.engine.run.slots import Slots
from penstock.engine.run.step import Room, Step, StepModel
from penstock.engine.run.torch_model import TorchModel
from tests.engine.gpu.generated import tokens_of
from tests.engine.models.families import TYPICAL, make
from tests.engine.tiny import save_tiny_llama

BLOCK_SIZE = 16
CPU = torch.device("cpu")
# What a decoder can be made of: norms before, around and after, of heads and of projections; windows, caps,
# biases, multipliers, half of a head rotated.
FAMILIES = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "granite", "olmo2", "phi3", "smollm3")
SMALL_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "hidden_size": 64}


def on_gpu(
    path: Path, device: torch.device, *, kv_fp8: bool = False, without: tuple[str, ...] = ()
) -> GpuModel:
    graphs = () if device.type == "cuda" else ("graphs",)
    return load_gpu(
        open_weights(path), device, torch.float32, fp8=False, kv_fp8=kv_fp8, without=(*without, *graphs)
    )


def in_torch(path: Path) -> TorchModel:
    return TorchModel(build_decoder(open_weights(path), CPU, "float32"))


def computed(
    model: StepModel, prompts: list[list[int]], steps: list[list[int]], wanted: list[int] | None = None
) -> list[Tensor]:
    """Logits of every wanted row of every step; a step says how many tokens each prompt advances by."""
    blocks_each = -(-max(map(len, prompts)) // BLOCK_SIZE)
    model.open(Room(blocks_each * len(prompts), BLOCK_SIZE, 64, 128))
    slots = Slots(len(prompts) + 1, 128, 128 // BLOCK_SIZE, model.device)
    order = torch.randperm(blocks_each * len(prompts), generator=torch.Generator().manual_seed(0)).tolist()
    tables = [order[i * blocks_each : (i + 1) * blocks_each] for i in range(len(prompts))]
    for slot, (prompt, table) in enumerate(zip(prompts, tables, strict=True)):
        slots.tokens[slot, : len(prompt)] = torch.tensor(prompt, dtype=torch.int32)
        slots.blocks[slot, : len(table)] = torch.tensor(table, dtype=torch.int32)
    done = [0] * len(prompts)
    found = []
    with torch.inference_mode():
        for counts in steps:
            active = [i for i, count in enumerate(counts) if count]
            step = Step(
                active,
                [done[i] for i in active],
                [counts[i] for i in active],
                [tables[i] for i in active],
                wanted,
            )
            hidden = model.forward(step, slots)
            found.append(model.logits(hidden).cpu().clone() if len(hidden) else hidden)
            done = [a + b for a, b in zip(done, counts, strict=True)]
    return found


# Chunks, one token beside a chunk, one token each; a window is outgrown on the way.
STEPS = [[9, 4], [1, 3], [1, 1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_plain_torch(family: str, device: torch.device, tmp_path: Path) -> None:
    make(family, TYPICAL[family], tmp_path, num_hidden_layers=2, **SMALL_HEADS)
    prompts = [list(range(5, 16)), list(range(40, 48))]
    expected = computed(in_torch(tmp_path), prompts, STEPS)
    # Matmuls of the library, which serve many rows; others are for few.
    found = computed(on_gpu(tmp_path, device, without=("skinny",)), prompts, STEPS)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("family", ["qwen2", "granite"])
def test_few_rows_are_computed_alike(family: str, device: torch.device, tmp_path: Path) -> None:
    make(family, TYPICAL[family], tmp_path, num_hidden_layers=2, **SMALL_HEADS)
    prompts = [list(range(5, 16)), list(range(40, 48))]
    expected = computed(in_torch(tmp_path), prompts, STEPS)
    found = computed(on_gpu(tmp_path, device), prompts, STEPS)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-4, atol=2e-4)


def test_only_rows_that_are_wanted_come_out(device: torch.device, tmp_path: Path) -> None:
    make("llama", TYPICAL["llama"], tmp_path, num_hidden_layers=2, **SMALL_HEADS)
    prompts = [list(range(5, 16)), list(range(40, 48))]
    model = on_gpu(tmp_path, device, without=("skinny",))
    (every,) = computed(model, prompts, [[9, 4]])
    (some,) = computed(model, prompts, [[9, 4]], wanted=[8, 12])
    torch.testing.assert_close(some, every[[8, 12]])
    (none,) = computed(model, prompts, [[9, 4]], wanted=[])
    assert none.shape[0] == 0


@pytest.mark.parametrize("params", [{"temperature": 0.8, "top_k": 20, "seed": 3}])
def test_an_engine_on_it_generates_what_the_cpu_does(
    params: dict[str, float], device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny_llama(tmp_path, hidden_size=64, head_dim=16, num_hidden_layers=1)
    # Some share their first block.
    prompts = [[*range(BLOCK_SIZE), 100 + number] for number in range(4)] + [[9, 8, 7]]
    sampling = SamplingParams(max_tokens=3, ignore_eos=True, **params)
    requests = [
        Request(id=str(number), prompt=prompt, params=sampling) for number, prompt in enumerate(prompts)
    ]
    config = EngineConfig(
        model=str(tmp_path), device="cpu", precision="float32", block_size=BLOCK_SIZE, max_running=8
    )
    expected = tokens_of(EngineCore(config), requests)
    model = on_gpu(tmp_path, device)
    monkeypatch.setattr("penstock.engine.core.load_model", lambda *_, **__: (model, "none"))
    monkeypatch.setattr("penstock.engine.gpu.prefixes.LEAST_TOKENS", BLOCK_SIZE)
    assert tokens_of(EngineCore(config), requests) == expected
