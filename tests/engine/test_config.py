"""Options of the engine that are words, and what they need of the device."""

from __future__ import annotations

import msgspec
import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.run.defaults import CPU_BLOCK_SIZE, GPU_BLOCK_SIZE
from penstock.engine.run.sizing import block_size
from penstock.errors import ConfigError


def test_options_reach_the_engine_s_process_as_they_were_given() -> None:
    config = EngineConfig(
        model="m", precision="fp8", kv_precision="fp8", load_format="random", without=("graphs", "overlap")
    )
    assert msgspec.json.decode(msgspec.json.encode(config), type=EngineConfig) == config


def test_other_engines_words_mean_the_same() -> None:
    config = EngineConfig(model="m", kv_precision="fp8_e4m3", load_format="dummy", without=["graphs"])  # type: ignore[arg-type]
    assert config == EngineConfig(model="m", kv_precision="fp8", load_format="random", without=("graphs",))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "fp4"}, "precision must be one of auto, int8, .*, fp8, got 'fp4'"),
        ({"kv_precision": "int8"}, "kv_precision must be one of auto, fp8, got 'int8'"),
        ({"load_format": "pt"}, "load_format must be one of auto, random, got 'pt'"),
        ({"without": ("graphs", "cache")}, "without must be some of graphs, .*, got 'cache'"),
        ({"kv_precision": ["fp8"]}, r"kv_precision must be one of auto, fp8, got \['fp8'\]"),
        ({"load_format": ["random"]}, "load_format must be one of auto, random, got"),
        ({"without": None}, "without must be some of graphs, .*, got None"),
        ({"without": 3}, "without must be some of graphs, .*, got 3"),
        ({"without": ("graphs", [])}, r"without must be some of graphs, .*, got \[\]"),
        ({"memory_fraction": "x"}, "memory_fraction must be a number, got 'x'"),
        ({"memory_fraction": None}, "memory_fraction must be a number, got None"),
        ({"memory_fraction": True}, "memory_fraction must be a number, got True"),
        ({"arrival_window": "1"}, "arrival_window must be a number, got '1'"),
        ({"ageing_seconds": []}, "ageing_seconds must be a number"),
        ({"device": 3}, "device must be auto, cpu, cuda or cuda:N, got 3"),
        ({"device": None}, "device must be auto, cpu, cuda or cuda:N, got None"),
        ({"device": "meta"}, "device must be auto, cpu, cuda or cuda:N, got 'meta'"),
        (
            {"block_size": 8, "device": "cuda"},
            "block_size is 8, but on a GPU it must be one of 16, 32, 64, 128",
        ),
        ({"precision": "fp8", "device": "cpu"}, "precision is fp8, which needs a GPU"),
        ({"kv_precision": "fp8", "device": "cpu"}, "kv_precision is fp8, which needs a GPU"),
        ({"precision": "int8", "device": "cuda:1"}, "precision is int8, which is for the CPU"),
    ],
)
def test_a_mistake_is_one_sentence(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        EngineConfig(model="m", **options)  # type: ignore[arg-type]


def test_a_part_to_leave_out_may_be_a_name_alone() -> None:
    assert EngineConfig(model="m", without="graphs").without == ("graphs",)  # type: ignore[arg-type]


def test_fp8_without_a_gpu_is_refused_before_anything_is_loaded() -> None:
    config = EngineConfig(model="m", precision="fp8")
    config.check_device("cuda")
    with pytest.raises(ConfigError, match="needs a GPU"):
        config.check_device("cpu")


def test_blocks_are_larger_on_a_gpu_unless_somebody_chose() -> None:
    undecided, chosen = EngineConfig(model="m"), EngineConfig(model="m", block_size=32)
    assert block_size(undecided, torch.device("cpu")) == CPU_BLOCK_SIZE
    assert block_size(undecided, torch.device("cuda")) == GPU_BLOCK_SIZE
    assert block_size(chosen, torch.device("cpu")) == block_size(chosen, torch.device("cuda")) == 32
