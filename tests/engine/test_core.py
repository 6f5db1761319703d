"""The loop's body: a bad request, a broken output or a failing device harms nobody else."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.core import EngineCore
from penstock.engine.failures import MAX_FAILED_STEPS
from penstock.engine.request import Request, SamplingParams, TokenEvent
from penstock.engine.run import sizing
from penstock.errors import ConfigError, InvalidRequestError, QueueFullError
from tests.engine import engines
from tests.engine.engines import request_of
from tests.engine.tiny import save_tiny_llama

config_of = partial(engines.config_of, precision="auto")

POISON = 7  # a token whose embedding is not a number


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def poisoned_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("poisoned")
    (path / "config.json").write_bytes((model / "config.json").read_bytes())
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"][POISON] = torch.nan
    save_file(weights, path / "model.safetensors")
    return path


def run(core: EngineCore) -> dict[str, list[TokenEvent]]:
    """Everything the engine says until it has nothing left to do, by request."""
    found: dict[str, list[TokenEvent]] = {}
    while core.has_work:
        for event in core.step():
            found.setdefault(event.request_id, []).append(event)
    core.check()
    return found


def tokens(events: list[TokenEvent]) -> list[int]:
    return [token for event in events for token in event.token_ids]


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_an_output_that_is_not_a_number_ends_that_request_alone(
    model: Path, poisoned_model: Path, prefix_caching: bool
) -> None:
    def requests() -> list[Request]:
        # Its bans keep the others from generating the poison themselves.
        return [
            request_of(
                f"good {at}", [at + 20, 30, 40] * (1 + 9 * at), max_tokens=20, logit_bias={POISON: -100.0}
            )
            for at in range(3)
        ]

    healthy, poisoned = (
        EngineCore(config_of(path, prefix_caching=prefix_caching)) for path in (model, poisoned_model)
    )
    for core in (healthy, poisoned):
        for request in requests():
            core.submit(request)
    poisoned.submit(request_of("bad", [1, POISON, 3] * 15))
    expected, found = run(healthy), run(poisoned)
    (error,) = found.pop("bad")
    assert error.finish_reason == "error"
    assert error.token_ids == []
    assert "not a number" in (error.error or "")
    assert {name: tokens(events) for name, events in found.items()} == {
        name: tokens(events) for name, events in expected.items()
    }


def test_what_a_broken_request_left_in_its_blocks_harms_no_later_owner(
    model: Path, poisoned_model: Path
) -> None:
    per_token = {"float32": 256, "int8": 128}[EngineCore(config_of(model)).info.precision]
    # Two blocks of context: everybody gets the same ones.
    options = {
        "kv_cache_memory": 2 * 16 * per_token,
        "max_model_len": 32,
        "max_running": 1,
        "prefix_caching": False,
    }
    request = request_of("good", [20], max_tokens=31, logit_bias={POISON: -100.0})
    healthy, poisoned = (
        EngineCore(config_of(model, **options)),
        EngineCore(config_of(poisoned_model, **options)),
    )
    assert poisoned.info.num_blocks == 2
    for length in (1, 15, 16, 17, 30):
        poisoned.submit(request_of("bad", [POISON] * length))
        assert run(poisoned)["bad"][0].finish_reason == "error"
        for core in (healthy, poisoned):
            core.submit(request)
        assert tokens(run(poisoned)["good"]) == tokens(run(healthy)["good"])


def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = EngineCore(config_of(model, max_running=2))
    expected = EngineCore(config_of(model))
    for engine in (core, expected):
        for name in ("a", "b", "c"):
            engine.submit(request_of(name, [ord(name)], n=1, max_tokens=5))
    core.step()
    with monkeypatch.context() as broken:
        broken.setattr(core._runner, "launch", _fail)
        events = core.step()
    assert [(event.request_id, event.finish_reason) for event in events] == [("a", "error"), ("b", "error")]
    assert all("RuntimeError" in (event.error or "") for event in events)
    found = run(core)
    assert list(found) == ["c"]
    assert tokens(found["c"]) == tokens(run(expected)["c"])
    stats = core.stats()
    assert stats.blocks_free + stats.blocks_cached == stats.blocks_total
    assert stats.failed_steps == 1


def test_a_device_that_keeps_failing_is_given_up(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = EngineCore(config_of(model, max_running=1))
    for at in range(MAX_FAILED_STEPS):
        core.submit(request_of(str(at)))
    monkeypatch.setattr(core._runner, "launch", _fail)
    for _ in range(MAX_FAILED_STEPS - 1):
        core.step()
    with pytest.raises(RuntimeError, match="the device is gone"):
        core.step()


def _fail(_: object) -> None:
    raise RuntimeError("the device is gone")


def test_an_end_token_that_the_model_does_not_have_harms_nobody(model: Path) -> None:
    core = EngineCore(config_of(model))
    params = SamplingParams(temperature=0.0, min_tokens=3, max_tokens=6)
    core.submit(Request(id="a", prompt=[1, 2], params=params, eos_token_ids=(255, 256, 10**6, -1)))
    core.submit(request_of("b"))
    found = run(core)
    assert len(tokens(found["a"])) == 6
    assert len(tokens(found["b"])) == 8


def test_an_id_in_use_is_refused(model: Path) -> None:
    core = EngineCore(config_of(model))
    core.submit(request_of("a"))
    with pytest.raises(InvalidRequestError, match="'a' is already being served"):
        core.submit(request_of("a"))
    assert len(tokens(run(core)["a"])) == 8
    core.submit(request_of("a"))
    assert len(tokens(run(core)["a"])) == 8


def test_without_a_seed_every_request_draws_its_own(model: Path) -> None:
    core = EngineCore(config_of(model))
    drawn = set()
    for at in range(6):
        core.submit(request_of(str(at), temperature=1.0, max_tokens=12))
        drawn.add(tuple(tokens(run(core)[str(at)])))
    assert len(drawn) == 6


def test_cancelled_and_refused_requests_leave_nothing_behind(model: Path) -> None:
    core = EngineCore(config_of(model, prefix_caching=False))
    for at in range(8):
        core.submit(request_of(str(at), n=1, max_tokens=100))
    with pytest.raises(QueueFullError):
        core.submit(request_of("late"))
    core.step()
    for at in range(8):
        (event,) = core.cancel(str(at))
        assert event.finish_reason == "cancelled"
        assert core.cancel(str(at)) == []
    assert not core.has_work
    assert core.stats().blocks_free == core.stats().blocks_total


def test_more_alternatives_than_the_vocabulary_has_do_not_fail_the_step(tmp_path: Path) -> None:
    core = EngineCore(config_of(save_tiny_llama(tmp_path, vocab_size=12)))
    core.submit(request_of("a", logprobs=20, max_tokens=1))
    (event,) = run(core)["a"]
    assert sorted(event.logprobs[0].top_ids) == list(range(12))


def test_computed_positions_are_not_counted_as_waste(model: Path) -> None:
    core = EngineCore(config_of(model, block_size=4))
    core.submit(request_of("a", [5] * 31, max_tokens=50))
    run(core)
    assert core.stats().kv_waste < 0.04, "at most three of the last four positions are empty"


@pytest.mark.parametrize("penalty", [1e-300, 1e300])
def test_an_extreme_repetition_penalty_is_only_extreme(penalty: float, model: Path) -> None:
    core = EngineCore(config_of(model))
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True, repetition_penalty=penalty)
    core.submit(Request(id="x", prompt=[1, 2, 3], params=params))
    drawn = tokens(run(core)["x"])
    assert len(drawn) == 8
    if penalty > 1:
        assert len({1, 2, 3, *drawn}) == 11, "something was repeated"


def test_an_engine_starts_no_more_threads_than_a_quota_leaves_cpus_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        monkeypatch.setattr(sizing, "usable_cpus", lambda: 1)
        sizing.set_threads(None)
        assert torch.get_num_threads() == 1
        sizing.set_threads(2)
        assert torch.get_num_threads() == 2, "who asks for more gets them"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (
            "load_model",
            r"no memory for the weights \(0\.0 GiB as stored\): .* were free .* smaller model",
        ),
        ("size_engine", r"no memory for a step .* beside 0\.0 GiB of weights: .* Lower max_step_tokens"),
    ],
)
def test_want_of_memory_at_the_start_is_a_sentence(
    where: str, says: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(f"penstock.engine.core.{where}", fail)
    with pytest.raises(ConfigError, match=says):
        EngineCore(config_of(model))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert sizing.choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="device is cuda:7, but torch sees 2 GPUs"):
        sizing.choose_device("cuda:7")


def test_leaving_out_what_is_not_there_is_said(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    EngineCore(config_of(model))
    assert "changes nothing" not in caplog.text
    EngineCore(config_of(model, without=("graphs", "skinny")))
    assert "without (graphs, skinny) changes nothing here" in caplog.text
