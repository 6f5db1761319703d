"""The encoder's loop: company changes nothing, order, limits, ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.engine.encode.core import EncoderCore
from penstock.engine.failures import MAX_FAILED_STEPS
from penstock.engine.request import Request
from penstock.errors import ConfigError, ContextLengthError, InvalidRequestError, QueueFullError
from tests.engine.encode.encoders import core, encode, random_texts, save


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    save(path, "Bert")
    return path


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cross")
    save(path, "Bert", "ForSequenceClassification", num_labels=1)
    return path


def request(name: str, prompt: list[int] | None = None, **fields: Any) -> Request:
    return Request(**{"id": name, "prompt": prompt or [5, 6], "pooling": "mean", **fields})


def rest(engine: EncoderCore) -> list[str]:
    """The names of those that are still to come, in the order they end."""
    ended = []
    while engine.has_work:
        ended += [event.request_id for event in engine.step()]
    return ended


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_texts_vector_does_not_depend_on_its_company(folder: Path, pooling: Any) -> None:
    engine = core(folder)
    texts = random_texts(80)
    together = encode(engine, texts, pooling)
    for name, ids in texts.items():
        assert np.array_equal(encode(engine, {name: ids}, pooling)[name], together[name]), len(ids)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu"])
def test_nor_does_it_where_sizes_fit_no_vector_of_the_processor(activation: str, tmp_path: Path) -> None:
    save(tmp_path, "Bert", hidden_size=60, intermediate_size=101, hidden_act=activation)
    engine = core(tmp_path)
    texts = random_texts(80)
    together = encode(engine, texts)
    for name, ids in texts.items():
        assert np.array_equal(encode(engine, {name: ids})[name], together[name]), len(ids)


def test_a_pairs_score_does_not_depend_on_its_company(scorer: Path) -> None:
    engine = core(scorer)
    texts = random_texts(40)
    together = encode(engine, texts, "score")
    for name, ids in texts.items():
        assert np.array_equal(encode(engine, {name: ids}, "score")[name], together[name])


def test_the_size_of_a_step_changes_nothing(folder: Path) -> None:
    texts = random_texts(30)
    small, large = core(folder, max_step_tokens=70), core(folder)
    few, many = encode(small, texts), encode(large, texts)
    assert all(np.array_equal(few[name], many[name]) for name in texts)
    assert small.stats().steps > large.stats().steps


def test_a_step_takes_whole_texts_up_to_its_tokens(folder: Path) -> None:
    engine = core(folder, max_step_tokens=70, max_model_len=64)
    for number, length in enumerate((30, 30, 30, 64, 1)):
        engine.submit(request(str(number), [5] * length))
    steps = []
    while engine.has_work:
        steps.append([event.request_id for event in engine.step()])
    assert steps == [["0", "1"], ["2"], ["3", "4"]]
    assert engine.stats().prompt_tokens == 155


def test_a_step_takes_no_more_texts_than_may_run(folder: Path) -> None:
    engine = core(folder, max_running=3)
    for number in range(7):
        engine.submit(request(str(number)))
    assert [len(engine.step()) for _ in range(3)] == [3, 3, 1]
    assert engine.stats().waiting == 0


def test_lower_priority_numbers_go_first_and_waiting_counts(folder: Path) -> None:
    now = [0.0]
    engine = EncoderCore(core_config(folder, max_running=1, ageing_seconds=10.0), clock=lambda: now[0])
    engine.submit(request("first"))
    engine.submit(request("second"))
    now[0] = 5.0
    engine.submit(request("urgent", priority=-1))
    now[0] = 25.0
    engine.submit(request("too late", priority=-1))
    assert rest(engine) == ["urgent", "first", "second", "too late"]


def test_the_arrival_window_lets_texts_that_arrive_together_share_a_step(folder: Path) -> None:
    engine = core(folder, arrival_window=0.02)
    engine.submit(request("one"))
    assert engine.step() == []  # sleeps the window out
    engine.submit(request("two"))
    assert [event.request_id for event in engine.step()] == ["one", "two"]


def test_the_queue_is_bounded(folder: Path) -> None:
    engine = core(folder, max_running=2, max_waiting=3)
    for number in range(5):
        engine.submit(request(str(number)))
    with pytest.raises(QueueFullError, match=r"5 texts are waiting.*max_waiting \(3\)"):
        engine.submit(request("more"))
    assert rest(engine) == ["0", "1", "2", "3", "4"]
    engine.submit(request("more"))


def test_a_cancelled_request_ends_once_and_is_not_computed(folder: Path) -> None:
    engine = core(folder)
    for name in ("a", "b"):
        engine.submit(request(name))
    [event] = engine.cancel("a")
    assert (event.request_id, event.finish_reason) == ("a", "cancelled")
    assert engine.cancel("a") == engine.cancel("unknown") == []
    assert rest(engine) == ["b"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"pooling": None}, "gives vectors and scores, and does not generate: it is an encoder"),
    ({"pooling": "score"}, "has no classifier head"),
    ({"prompt": [200]}, "token id 200, but the vocabulary has ids 0 to 199"),
    ({"prompt": [-1]}, "token id -1"),
    ({"segments": [0]}, "2 tokens needs as many segments, each from 0 to 1"),
    ({"segments": [0, 2]}, "each from 0 to 1"),
    ({"segments": [-1, 0]}, "each from 0 to 1"),
]


@pytest.mark.parametrize(("fields", "message"), BAD)
def test_a_wrong_request_is_refused_with_a_sentence(
    folder: Path, fields: dict[str, Any], message: str
) -> None:
    engine = core(folder)
    with pytest.raises(InvalidRequestError, match=message):
        engine.submit(request("wrong", **fields))
    assert not engine.has_work


def test_an_empty_text_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequestError, match="empty"):
        core(folder).submit(Request(id="empty", prompt=[], pooling="mean"))


def test_a_text_longer_than_the_positions_is_refused_with_both_numbers(folder: Path) -> None:
    with pytest.raises(ContextLengthError, match="has 67 tokens, but the model reads at most 66"):
        core(folder).submit(request("long", [5] * 67))


def test_an_id_in_use_is_refused(folder: Path) -> None:
    engine = core(folder)
    engine.submit(request("same"))
    with pytest.raises(InvalidRequestError, match="'same' is already being served"):
        engine.submit(request("same"))


def test_a_cross_encoder_gives_no_vectors(scorer: Path) -> None:
    engine = core(scorer)
    assert (engine.info.tasks, engine.info.pooling, engine.info.embedding_size) == (("score",), "score", 0)
    with pytest.raises(InvalidRequestError, match="scores pairs and gives no vectors"):
        engine.submit(request("vector"))


def test_the_engine_says_what_it_can_be_asked_for(folder: Path) -> None:
    info = core(folder).info
    assert (info.tasks, info.pooling, info.embedding_size) == (("embed", "score"), "mean", 48)
    assert (info.architecture, info.max_model_len, info.num_blocks) == ("bert", 66, 0)


def fail_when(engine: EncoderCore, condition: Callable[[list[int]], bool], error: Exception) -> None:
    compute = engine._model.encode

    def encode(items: Any) -> Any:
        if any(condition(list(item.tokens)) for item in items):
            raise error
        return compute(items)

    engine._model.encode = encode  # type: ignore[method-assign]


def test_a_failed_step_ends_its_requests_and_the_engine_goes_on(folder: Path) -> None:
    engine = core(folder, max_running=2)
    fail_when(engine, lambda tokens: 99 in tokens, RuntimeError("secret"))
    for name, prompt in (("bad", [99]), ("beside", [5]), ("later", [5])):
        engine.submit(request(name, prompt))
    failed = engine.step()
    assert [(event.request_id, event.finish_reason) for event in failed] == [
        ("bad", "error"),
        ("beside", "error"),
    ]
    assert "RuntimeError" in str(failed[0].error)
    assert "secret" not in str(failed[0].error)
    assert rest(engine) == ["later"]


def test_a_device_that_keeps_failing_is_given_up(folder: Path) -> None:
    engine = core(folder, max_running=1)
    fail_when(engine, lambda tokens: True, RuntimeError("gone"))
    for number in range(MAX_FAILED_STEPS):
        engine.submit(request(str(number)))
    for _ in range(MAX_FAILED_STEPS - 1):
        assert engine.step()[0].finish_reason == "error"
    with pytest.raises(RuntimeError, match="gone"):
        engine.step()


def test_numbers_that_are_none_end_their_own_text_alone(folder: Path) -> None:
    engine = core(folder)
    engine._model._tokens[77] = torch.nan
    engine.submit(request("sick", [77, 5]))
    engine.submit(request("well", [5, 5]))
    by_name = {event.request_id: event for event in engine.step()}
    assert by_name["sick"].finish_reason == "error"
    assert "is not a number" in str(by_name["sick"].error)
    assert by_name["well"].finish_reason == "stop"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_model_len": 67}, "max_model_len is 67, but the model's context is 66 tokens"),
        ({"precision": "int8"}, "precision is int8, in which only decoders are computed"),
        ({"pooling": "none"}, "an encoder gives nothing else than pooled vectors"),
    ],
)
def test_a_wrong_option_is_refused_with_a_sentence(
    folder: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        core(folder, **options)


def core_config(path: Path, **options: Any) -> Any:
    from penstock.engine.config import EngineConfig

    return EngineConfig(model=str(path), device="cpu", **options)


def test_an_event_says_when_its_step_began(folder: Path) -> None:
    now = [0.0]
    engine = EncoderCore(core_config(folder, max_running=1), clock=lambda: now[0])
    engine.submit(request("first"))
    engine.submit(request("second"))
    began = []
    for now[0] in (5.0, 7.0):
        began += [event.scheduled for event in engine.step()]
    assert began == [5.0, 7.0]
