"""What a request can ask of the engine beyond sampling, on a tiny model against plain arithmetic."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, SamplingParams, TokenEvent
from penstock.errors import ContextLengthError, InvalidRequestError
from tests.engine.models.forward import all_logits
from tests.engine.models.loading import load_decoder
from tests.engine.tiny import save_tiny_llama

END = 2
CONTEXT = 512

# Ways to compute the same; none may show in a result.
SETTINGS: dict[str, dict[str, Any]] = {
    "whole prompts": {},
    "chunks of 7": {"max_step_tokens": 7, "max_running": 4},
    "no prefix cache": {"prefix_caching": False},
    "small blocks": {"block_size": 4},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("asked"), max_position_embeddings=CONTEXT)


def engine_of(model: Path, **options: Any) -> EngineCore:
    return EngineCore(EngineConfig(model=str(model), **{"kv_cache_memory": 4 << 20, "threads": 1, **options}))


def events_of(engine: EngineCore, *requests: Request, processors: Any = ()) -> dict[str, list[TokenEvent]]:
    found: defaultdict[str, list[TokenEvent]] = defaultdict(list)
    for request in requests:
        engine.submit(request, processors)
    while engine.has_work:
        for event in engine.step():
            found[event.request_id].append(event)
    engine.check()
    return found


def output_of(engine: EngineCore, request: Request, **kwargs: Any) -> tuple[list[int], TokenEvent]:
    events = events_of(engine, request, **kwargs)[request.id]
    return [token for event in events for token in event.token_ids], events[-1]


def request_of(name: str = "r", prompt: list[int] | None = None, **options: Any) -> Request:
    ours = {name: options.pop(name) for name in ("bad_words", "guided", "pooling") if name in options}
    params = {"temperature": 0.0, "max_tokens": 8, **options}
    return Request(
        id=name, prompt=prompt or [5, 6, 7], params=SamplingParams(**params), eos_token_ids=(END,), **ours
    )


def prompt_of(length: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 90) for _ in range(length)]


# ---------------------------------------------------------------- prompt logprobs


@pytest.mark.parametrize("setting", SETTINGS)
def test_prompt_logprobs_are_those_of_the_whole_prompt_in_one_pass(setting: str, model: Path) -> None:
    decoder, _ = load_decoder(model, torch.device("cpu"), "float32")
    shared = prompt_of(60)
    prompts = [shared + prompt_of(length, seed=length) for length in (1, 20, 70)] + [[9], shared]
    # A first request leaves the shared beginning in the cache, which must not be used.
    requests = [request_of("first", shared)]
    requests += [request_of(str(i), p, prompt_logprobs=3, max_tokens=4) for i, p in enumerate(prompts)]
    found = events_of(engine_of(model, precision="float32", **SETTINGS[setting]), *requests)
    for number, prompt in enumerate(prompts):
        events = found[str(number)]
        got = events[0].prompt_logprobs
        assert all(not event.prompt_logprobs for event in events[1:]), "given once, with the first token"
        assert len(got) == len(prompt) - 1
        [logits] = all_logits(decoder, [prompt], 300)
        wanted = logits.log_softmax(dim=-1)
        for place, entry in enumerate(got):
            row = wanted[place]
            chosen = row[prompt[place + 1]]
            assert entry.chosen == pytest.approx(float(chosen), abs=1e-4)
            assert entry.rank == int((row > chosen).sum()) + 1
            assert entry.top_ids == row.topk(3).indices.tolist()
            assert entry.top == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


def test_prompt_logprobs_and_means_survive_being_preempted_in_the_middle(model: Path) -> None:
    block = (1 << 20) // engine_of(model, kv_cache_memory=1 << 20).info.num_blocks  # bytes
    options = {"kv_cache_memory": 14 * block, "max_model_len": 200, "max_step_tokens": 16, "max_running": 4}
    prompt = prompt_of(150)
    requests = [
        request_of("logprobs", prompt, prompt_logprobs=1, max_tokens=1),
        replace(request_of("mean", prompt), pooling="mean"),
    ]
    for request in requests:
        engine = engine_of(model, **options)
        [wanted] = events_of(engine, request)[request.id]
        engine.submit(replace(request, id="again", priority=1))
        for _ in range(4):
            assert engine.step() == []
        found = events_of(engine, replace(request_of("urgent", prompt_of(150, seed=1)), priority=-5))
        assert engine.stats().preemptions == 1
        [again] = found["again"]
        assert again.prompt_logprobs == wanted.prompt_logprobs
        assert again.embedding == wanted.embedding


def test_prompt_logprobs_do_not_change_what_is_generated(model: Path) -> None:
    engine, prompt = engine_of(model), prompt_of(80)
    plain, _ = output_of(engine, request_of("plain", prompt))
    asked, _ = output_of(engine, request_of("asked", prompt, prompt_logprobs=0))
    assert asked == plain


def test_only_the_first_choice_carries_the_prompt_logprobs(model: Path) -> None:
    events = events_of(engine_of(model), request_of(prompt=prompt_of(20), n=3, prompt_logprobs=1))["r"]
    assert [(e.index, len(e.prompt_logprobs)) for e in events if e.prompt_logprobs] == [(0, 19)]


def test_a_prompt_can_be_scored_without_generating(model: Path) -> None:
    prompt = prompt_of(30)
    [event] = events_of(engine_of(model), request_of(prompt=prompt, prompt_logprobs=1, max_tokens=0))["r"]
    assert event.token_ids == []
    assert event.finish_reason == "length"
    assert len(event.prompt_logprobs) == 29


def test_a_prompt_as_long_as_the_context_can_be_scored_but_not_continued(model: Path) -> None:
    engine, prompt = engine_of(model), prompt_of(CONTEXT)
    [event] = events_of(engine, request_of(prompt=prompt, max_tokens=0))["r"]
    assert event.finish_reason == "length"
    with pytest.raises(ContextLengthError, match="512 tokens must hold the prompt and at least one"):
        engine.submit(request_of(prompt=prompt))
    with pytest.raises(ContextLengthError, match=r"513 tokens, but .* must hold the prompt\."):
        engine.submit(request_of(prompt=[*prompt, 5], max_tokens=0))


# ---------------------------------------------------------------- pooling


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_pooled_prompt_is_one_vector_however_it_was_computed(
    setting: str, pooling: Any, model: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModel.from_pretrained(model, dtype=torch.float32)
    shared = prompt_of(50)
    prompts = [shared + prompt_of(length, seed=length) for length in (1, 30, 90)] + [[9], shared]
    requests = [replace(request_of(str(i), p, n=2), pooling=pooling) for i, p in enumerate(prompts)]
    found = events_of(engine_of(model, precision="float32", **SETTINGS[setting]), *requests)
    for number, prompt in enumerate(prompts):
        [event] = found[str(number)]
        assert (event.token_ids, event.finish_reason) == ([], "stop")
        with torch.no_grad():
            hidden = reference(torch.tensor([prompt])).last_hidden_state[0]
        wanted = hidden[-1] if pooling == "last" else hidden.mean(dim=0)
        got = np.frombuffer(event.embedding, "<f4")
        assert np.abs(got - wanted.numpy()).max() <= 1e-4


@pytest.mark.parametrize("pooling", ["cls", "score"])
def test_a_decoder_has_no_such_pooling(pooling: Any, model: Path) -> None:
    with pytest.raises(InvalidRequestError, match=f"pooled by last or mean, not by {pooling}"):
        engine_of(model).submit(request_of(pooling=pooling))


# ---------------------------------------------------------------- what may come


def test_only_allowed_tokens_come(model: Path) -> None:
    allowed = [11, 30, 47]
    for sampling in ({}, {"temperature": 1.5, "seed": 3}):
        tokens, _ = output_of(
            engine_of(model), request_of(allowed_token_ids=allowed, max_tokens=40, **sampling)
        )
        assert len(tokens) == 40
        assert set(tokens) <= set(allowed)


def test_a_bad_word_of_one_token_never_comes(model: Path) -> None:
    engine = engine_of(model)
    usual, _ = output_of(engine, request_of(max_tokens=12))
    tokens, _ = output_of(engine, request_of(max_tokens=12, bad_words=((usual[0],), (usual[1],))))
    assert not {usual[0], usual[1]} & set(tokens)


def test_a_bad_word_of_several_tokens_is_never_completed_but_its_parts_may_come(model: Path) -> None:
    engine = engine_of(model)
    usual, _ = output_of(engine, request_of(max_tokens=12))
    tokens, _ = output_of(engine, request_of(max_tokens=12, bad_words=(tuple(usual[:3]),)))
    assert tokens[:2] == usual[:2]
    assert tokens[2] != usual[2]
    # What the prompt ends with is not the model's doing.
    prompt = [5, 6, 7, *usual[:2]]
    after, _ = output_of(engine, request_of("p", prompt, max_tokens=1, bad_words=(tuple(usual[:3]),)))
    assert after == [usual[2]]


def test_what_forbids_everything_ends_the_request_with_a_sentence_and_no_other(model: Path) -> None:
    engine = engine_of(model)
    wanted, _ = output_of(engine, request_of("alone"))
    found = events_of(
        engine, request_of("stuck", allowed_token_ids=[11], bad_words=((11,),)), request_of("other")
    )
    [event] = found["stuck"]
    assert (event.finish_reason, event.invalid) == ("error", True)
    assert "Every token is forbidden" in (event.error or "")
    assert [token for event in found["other"] for token in event.token_ids] == wanted


CHOICES = ((11, 12, 13), (11, 14), (20,), (20, 21))


@pytest.mark.parametrize("seed", range(12))
def test_a_guided_answer_is_one_of_the_choices(seed: int, model: Path) -> None:
    tokens, event = output_of(
        engine_of(model), request_of(guided=CHOICES, temperature=2.0, seed=seed, max_tokens=20)
    )
    if tokens[-1] == END:
        # Only where a choice begins another does the model say that it is over.
        assert (tokens, event.stop_token) == ([20, END], END)
    else:
        assert tuple(tokens) in CHOICES
    assert event.finish_reason == "stop"


def test_the_likelier_choice_is_taken(model: Path) -> None:
    engine = engine_of(model)
    [first, *_], _ = output_of(engine, request_of(logprobs=0))
    tokens, _ = output_of(engine, request_of("g", guided=((first, 30), (first + 1, 30))))
    assert tokens == [first, 30]


def test_a_choice_longer_than_the_answer_may_be_is_cut(model: Path) -> None:
    tokens, event = output_of(engine_of(model), request_of(guided=((11, 12, 13),), max_tokens=2))
    assert (tokens, event.finish_reason) == ([11, 12], "length")


def test_choices_can_be_guided_where_the_end_of_text_is_ignored(model: Path) -> None:
    engine = engine_of(model)
    tokens, event = output_of(engine, request_of(guided=((20,), (20, 21)), ignore_eos=True))
    assert tokens in ([20, END], [20, 21])
    assert event.finish_reason == "stop"


@pytest.mark.parametrize("name", ["bad_words", "guided"])
@pytest.mark.parametrize(("ids", "sentence"), [((), "is empty"), ((5, 10**6), "has the token id 1000000")])
def test_token_sequences_that_cannot_be_are_refused(
    name: str, ids: tuple[int, ...], sentence: str, model: Path
) -> None:
    with pytest.raises(InvalidRequestError, match=sentence):
        engine_of(model).submit(request_of(**{name: (ids,)}))


# ---------------------------------------------------------------- logits processors


def test_processors_change_the_logits_one_after_the_other(model: Path) -> None:
    seen: list[tuple[list[int], list[int]]] = []

    def only_even(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
        seen.append((prompt, output))
        logits[1::2] = float("-inf")
        return logits

    def not_the_last(prompt: list[int], output: list[int], logits: torch.Tensor) -> torch.Tensor:
        logits[output[-1:]] = float("-inf")
        return logits

    tokens, _ = output_of(engine_of(model), request_of(), processors=(only_even, not_the_last))
    assert all(token % 2 == 0 for token in tokens)
    assert all(a != b for a, b in pairwise(tokens))
    assert seen == [([5, 6, 7], tokens[:count]) for count in range(len(tokens))]


def failing(*_: Any) -> torch.Tensor:
    raise ZeroDivisionError("no reason at all")


@pytest.mark.parametrize(
    ("processor", "sentence"),
    [
        (failing, "ZeroDivisionError: no reason at all"),
        (lambda prompt, output, logits: logits[:5], r"shape [5]"),
        (lambda prompt, output, logits: logits.sum(), "shape []"),
        (lambda prompt, output, logits: logits + float("inf"), "infinite"),
        (lambda prompt, output, logits: None, "AttributeError"),
        (lambda prompt, output, logits: logits * float("nan"), "not numbers"),
    ],
)
def test_a_processor_that_fails_ends_its_own_request_alone(
    processor: Any, sentence: str, model: Path
) -> None:
    engine = engine_of(model)
    wanted, _ = output_of(engine, request_of("alone"))
    engine.submit(request_of("other"))
    found = []
    engine.submit(request_of("bad"), (processor,))
    while engine.has_work:
        found += engine.step()
    [bad] = [event for event in found if event.request_id == "bad"]
    assert (bad.finish_reason, bad.invalid) == ("error", True)
    assert sentence in (bad.error or "")
    assert [t for event in found if event.request_id == "other" for t in event.token_ids] == wanted
