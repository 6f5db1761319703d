"""One formula: what a model takes and how much context it gets, as the engine has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.doctor.fit import PROCESS_BYTES, WELL_KNOWN, Budget, ModelSize, fit
from penstock.doctor.kernels import look_at_kernels
from penstock.doctor.models import read_header
from penstock.engine.run.defaults import ACTIVATION_BYTES, CPU_KV_TOKENS
from penstock.hub.files import ModelFiles
from tests.doctor.machines import GIB

SIZE = ModelSize(parameters=1_000_000_000, embedding=100_000_000, tied=True, kv_per_token=8192, context=16384)


def cpu(available: int, **more: int) -> Budget:
    return Budget(device="cpu", total=available, available=available, **more)


def test_the_weights_take_their_precision_and_a_tied_embedding_is_kept_twice_in_float32_on_the_cpu() -> None:
    assert fit(SIZE, "float32", cpu(64 * GIB)).weights == 4_400_000_000
    assert fit(replace(SIZE, tied=False), "float32", cpu(64 * GIB)).weights == 4_000_000_000
    assert fit(SIZE, "bfloat16", cpu(64 * GIB)).weights == 2_000_000_000
    gpu = Budget(device="cuda", total=80 * GIB, available=80 * GIB)
    assert fit(SIZE, "float32", gpu).weights == 4_000_000_000


def test_in_fp8_the_embedding_stays_in_16_bits_and_the_cache_may_be_half() -> None:
    gpu = Budget(device="cuda", total=80 * GIB, available=80 * GIB)
    assert fit(SIZE, "fp8", gpu).weights == 1_100_000_000
    assert fit(replace(SIZE, tied=False), "fp8", gpu).weights == 1_200_000_000
    assert fit(SIZE, "fp8", gpu).kv_per_token == 2 * 8192
    assert fit(SIZE, "bfloat16", replace(gpu, kv_precision="fp8")).kv_per_token == 8192 + 512


def test_what_is_needed_is_weights_cache_and_process() -> None:
    found = fit(SIZE, "float32", cpu(64 * GIB))
    assert found.kv_per_token == 4 * 8192
    assert found.needed == 4_400_000_000 + 4096 * 4 * 8192 + PROCESS_BYTES
    assert found.needed_for(8192) == found.needed + 4096 * 4 * 8192


def test_with_room_enough_the_whole_context_is_offered() -> None:
    found = fit(SIZE, "float32", cpu(64 * GIB))
    assert (found.verdict, found.context) == ("fits", SIZE.context)
    assert found.kv_bytes == max(SIZE.context, CPU_KV_TOKENS) * found.kv_per_token


def test_with_less_room_the_context_is_shortened_and_with_none_it_does_not_fit() -> None:
    weights = fit(SIZE, "float32", cpu(64 * GIB)).weights
    short = fit(SIZE, "float32", cpu(weights + PROCESS_BYTES + 100 * 2**20))
    assert short.verdict == "short"
    assert short.context == int(0.4 * 100 * 2**20) // (4 * 8192)
    none = fit(SIZE, "float32", cpu(weights))
    assert (none.verdict, none.context, none.kv_bytes) == ("no", 0, 0)


def test_a_cache_that_was_asked_for_must_fit_as_it_is() -> None:
    weights = fit(SIZE, "float32", cpu(64 * GIB)).weights
    room = weights + PROCESS_BYTES + GIB
    assert fit(SIZE, "float32", cpu(room, kv_bytes=GIB)).kv_bytes == GIB
    assert fit(SIZE, "float32", cpu(room, kv_bytes=2 * GIB)).verdict == "no"


def test_a_gpu_gives_its_fraction_less_what_is_used_and_the_activations() -> None:
    gpu = Budget(device="cuda", total=10 * GIB, available=9 * GIB, fraction=0.9)
    found = fit(SIZE, "bfloat16", gpu)
    assert found.kv_bytes == 9 * GIB - GIB - 2_000_000_000 - ACTIVATION_BYTES
    assert found.needed == 2_000_000_000 + 4096 * 2 * 8192 + ACTIVATION_BYTES


def test_a_model_without_a_cache_needs_none() -> None:
    encoder = ModelSize(parameters=22_000_000, embedding=0, tied=False, kv_per_token=0, context=512)
    assert fit(encoder, "float32", cpu(GIB)).context == 512


@pytest.mark.parametrize(
    ("like", "parameters"),
    [
        ("SmolLM2-135M", 134_515_008),
        ("SmolLM2-360M", 361_821_120),
        ("Llama-3.2-1B", 1_235_814_400),
        ("SmolLM2-1.7B", 1_711_376_384),
        ("Llama-3.2-3B", 3_212_749_824),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Llama-3.3-70B", 70_553_706_496),
    ],
)
def test_well_known_models_have_the_parameters_their_authors_count(like: str, parameters: int) -> None:
    (shape,) = [shape for shape in WELL_KNOWN if shape.like == like]
    assert shape.size.parameters == parameters


def test_the_well_known_shape_of_the_default_model_is_its_own(default_model: Path) -> None:
    size = read_header(ModelFiles("x", default_model, "gguf")).size
    assert replace(size, four_bits=0) == WELL_KNOWN[0].size
    assert 0.5 < size.four_bits / size.parameters < 1


def test_int8_keeps_weights_small_and_those_of_four_bits_smaller() -> None:
    found = fit(SIZE, "int8", cpu(64 * GIB))
    assert found.weights == 1_125_000_000
    assert found.kv_per_token == SIZE.kv_per_token * 2
    assert fit(replace(SIZE, four_bits=1_000_000_000), "int8", cpu(64 * GIB)).weights == 625_000_000


@pytest.mark.skipif(look_at_kernels().usable is None, reason="there are no native kernels for this machine")
def test_the_engine_takes_what_was_foretold_in_int8(default_model: Path) -> None:
    from penstock.engine.config import EngineConfig
    from penstock.engine.core import EngineCore

    cache = 32 << 20
    options = {"precision": "int8", "kv_cache_memory": cache, "max_model_len": 512}
    info = EngineCore(EngineConfig(model=str(default_model), **options)).info
    size = read_header(ModelFiles("x", default_model, "gguf")).size
    foretold = fit(size, "int8", cpu(64 * GIB, kv_bytes=cache))
    assert foretold.weights == pytest.approx(info.weight_bytes, rel=0.02), "but for norms and padding"
    assert foretold.kv_bytes // (foretold.kv_per_token * info.block_size) == info.num_blocks


def test_the_engine_takes_what_was_foretold(default_model: Path) -> None:
    from penstock.engine.config import EngineConfig
    from penstock.engine.core import EngineCore

    cache = 32 << 20
    options = {"precision": "float32", "kv_cache_memory": cache, "max_model_len": 512}
    info = EngineCore(EngineConfig(model=str(default_model), **options)).info
    size = WELL_KNOWN[0].size
    foretold = fit(size, "float32", cpu(64 * GIB, kv_bytes=cache))
    vectors = (2 * 30 + 1) * 576 * 4  # norms, which the engine does not count among its matrices
    assert foretold.weights - size.embedding * 4 - vectors == info.weight_bytes
    assert foretold.kv_bytes // (foretold.kv_per_token * info.block_size) == info.num_blocks
