"""Beam search decides as transformers does, and its driver asks for one token of each beam in a round."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.beam import BeamRequest, BeamSearch, BeamSearchParams
from penstock.engine.request import MAX_LOGPROBS, Request, TokenEvent, TokenLogprobs
from penstock.errors import InvalidRequestError

END = 0


def scored(ids: list[int], logprobs: list[float], cached: int = 0) -> TokenEvent:
    """The event of a one-token request."""
    scores = [TokenLogprobs(logprobs[0], ids, logprobs)]
    return TokenEvent(request_id="", token_ids=ids[:1], logprobs=scores, cached_tokens=cached)


def search(width: int, max_tokens: int, ends: tuple[int, ...] = (END,), **params: Any) -> BeamSearch:
    return BeamSearch(BeamSearchParams(beam_width=width, **params), ends, max_tokens)


def logs(**probabilities: float) -> list[tuple[int, float]]:
    """t1=0.5 means token 1 with probability 0.5."""
    return [(int(name[1:]), math.log(value)) for name, value in probabilities.items()]


def test_all_continuations_of_all_beams_are_ranked_together() -> None:
    beams = search(2, 9)
    beams.advance([logs(t1=0.5, t2=0.3, t3=0.2)])
    assert [beam.tokens for beam in beams.live] == [(1,), (2,)]
    beams.advance([logs(t4=0.3, t5=0.3, t6=0.1), logs(t7=0.9, t8=0.05, t9=0.05)])
    assert [beam.tokens for beam in beams.live] == [(2, 7), (1, 4)]
    assert beams.live[0].logprob == pytest.approx(math.log(0.27))


def test_an_end_counts_only_among_the_best_of_a_round() -> None:
    beams = search(2, 9)
    beams.advance([logs(t1=0.5, t2=0.3, t0=0.2)])
    assert beams.finished == []
    beams.advance([logs(t0=0.9, t3=0.05, t4=0.05), logs(t5=0.8, t0=0.1, t6=0.1)])
    [hypothesis] = beams.finished
    assert hypothesis.tokens == (1, 0)
    assert hypothesis.end == 0
    assert hypothesis.score == pytest.approx(math.log(0.45) / 2)
    assert [beam.tokens for beam in beams.live] == [(2, 5), (2, 6)]


def test_an_end_does_not_take_a_live_beams_place() -> None:
    beams = search(2, 9)
    beams.advance([logs(t0=0.6, t1=0.2, t2=0.15)])
    assert [beam.tokens for beam in beams.live] == [(1,), (2,)]
    assert [hypothesis.tokens for hypothesis in beams.finished] == [(0,)]


def test_at_the_limit_the_best_are_finished_as_they_are() -> None:
    beams = search(2, 1)
    beams.advance([logs(t3=0.5, t0=0.3, t4=0.2)])
    assert beams.done
    assert [(hypothesis.tokens, hypothesis.end) for hypothesis in beams.finished] == [((3,), None), ((0,), 0)]


def test_early_stopping_takes_the_first_hypotheses() -> None:
    rounds = [[logs(t0=0.4, t1=0.35, t2=0.25)], [logs(t3=0.99, t0=0.01), logs(t0=0.9, t4=0.1)]]
    lazy, thorough = search(2, 9, early_stopping=True), search(2, 9, early_stopping=False)
    for candidates in rounds:
        lazy.advance(candidates)
        thorough.advance(candidates)
    assert (lazy.done, thorough.done) == (True, False)
    assert len(lazy.finished) == 2


def test_never_stopping_early_hopes_for_the_longest_hypothesis() -> None:
    rounds = [[logs(t0=0.45, t1=0.3, t2=0.25)], [logs(t0=0.9, t3=0.1), logs(t4=0.6, t0=0.4)]]
    usual, hopeful = search(2, 50), search(2, 50, early_stopping="never")
    for candidates in rounds:
        usual.advance(candidates)
        hopeful.advance(candidates)
    assert (usual.done, hopeful.done) == (True, False)


@pytest.mark.parametrize(("penalty", "best"), [(0.0, (0,)), (3.0, (1, 0)), (-2.0, (0,))])
def test_the_length_penalty_decides_between_short_and_long(penalty: float, best: tuple[int, ...]) -> None:
    beams = search(2, 2, length_penalty=penalty)
    beams.advance([logs(t0=0.5, t1=0.5)])
    if not beams.done:
        beams.advance([logs(t0=0.8, t2=0.2)])
    assert beams.best()[0].tokens == best


def test_impossible_tokens_are_no_candidates() -> None:
    beams = search(2, 9)
    beams.advance([[(1, -0.1), (2, -math.inf)]])
    assert [beam.tokens for beam in beams.live] == [(1,)]


@given(st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_beams_as_wide_as_the_tree_find_the_likeliest_sequence(length: int, ends: int, random: Any) -> None:
    """With every sequence on a beam, and length not rewarded, nothing is overlooked."""
    vocabulary = 3 + ends
    scores: dict[tuple[int, ...], list[float]] = {}

    def of(prefix: tuple[int, ...]) -> list[float]:
        if prefix not in scores:
            weights = [random.random() + 1e-3 for _ in range(vocabulary)]
            scores[prefix] = [math.log(weight / sum(weights)) for weight in weights]
        return scores[prefix]

    beams = search(64, length, tuple(range(ends)), length_penalty=0.0, early_stopping="never")
    while not beams.done:
        beams.advance([list(enumerate(of(beam.tokens))) for beam in beams.live])
    found = beams.best()[0]

    def total(tokens: tuple[int, ...]) -> float:
        return sum(of(tokens[:at])[token] for at, token in enumerate(tokens))

    complete = [
        tokens
        for size in range(1, length + 1)
        for tokens in itertools.product(range(vocabulary), repeat=size)
        if all(token >= ends for token in tokens[:-1]) and (size == length or tokens[-1] < ends)
    ]
    if 3**length <= 64:
        assert total(found.tokens) == pytest.approx(max(map(total, complete)))
    assert found.tokens in complete
    assert found.logprob == pytest.approx(total(found.tokens))


def test_a_round_asks_for_one_token_of_every_live_beam() -> None:
    request = Request(id="r", prompt=[7, 8], eos_token_ids=(0, 9), priority=3, salt="tenant")
    beams = BeamRequest(request, BeamSearchParams(beam_width=2, max_tokens=2), context=100)
    [first] = beams.round()
    assert (first.prompt, first.priority, first.salt) == ([7, 8], 3, "tenant")
    assert (first.params.max_tokens, first.params.logprobs) == (1, 4)
    beams.take([scored([1, 2, 0, 9], [-0.1, -2.0, -3.0, -4.0], cached=1)])
    second = beams.round()
    assert [each.prompt for each in second] == [[7, 8, 1], [7, 8, 2]]
    assert len({first.id, *(each.id for each in second)}) == 3
    beams.take([scored([0, 5], [-0.1, -3.0], cached=3), scored([9, 5], [-0.2, -3.0])])
    assert beams.done
    best, other = beams.events()
    assert (best.token_ids, best.finish_reason, best.stop_token) == ([1, 0], "stop", 0)
    assert best.cached_tokens == 1
    assert (other.token_ids, other.finish_reason, other.stop_token) == ([2, 9], "stop", 9)


def test_without_a_limit_the_search_fills_the_context() -> None:
    request = Request(id="r", prompt=[7, 8], eos_token_ids=(0,))
    beams = BeamRequest(request, BeamSearchParams(beam_width=1, ignore_eos=True), context=4)
    for _ in range(2):
        assert not beams.done
        beams.round()
        beams.take([scored([0, 5], [-0.1, -3.0])])
    [event] = beams.events()
    assert (event.token_ids, event.finish_reason) == ([0, 0], "length")


def test_every_choice_ends_even_if_there_are_too_few_hypotheses() -> None:
    beams = BeamRequest(Request(id="r", prompt=[7]), BeamSearchParams(beam_width=3, max_tokens=1), context=9)
    beams.take([scored([1, 2], [-0.1, -3.0])])
    events = beams.events()
    assert sorted(event.index for event in events) == [0, 1, 2]
    assert [event.finish_reason for event in events].count("error") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("beam_width", value) for value in (0, 65, True, 1.0, "4", None)),
        *(("n", value) for value in (0, 5, True)),
        *(("max_tokens", value) for value in (0, -1, 2**31, 1.5)),
        *(("length_penalty", value) for value in (10.1, -10.1, math.nan, math.inf, "1", True)),
        *(("early_stopping", value) for value in ("always", 2, None)),
    ],
)
def test_a_bad_parameter_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name} must be") as caught:
        BeamSearchParams(**{name: value})
    assert caught.value.param == name


def test_more_ends_than_can_be_compared_are_refused() -> None:
    search(1, 9, tuple(range(MAX_LOGPROBS - 1)))
    with pytest.raises(InvalidRequestError, match="fewer beams or stop_token_ids"):
        search(2, 9, tuple(range(MAX_LOGPROBS - 1)))


def test_a_search_was_scheduled_with_its_first_round_and_set_back_as_often_as_its_beams() -> None:
    request = Request(id="r", prompt=[1, 2])
    beams = BeamRequest(request, BeamSearchParams(beam_width=2, max_tokens=2), 100)
    for number in range(2):
        events = [scored([5, 6, 7, 8], [-0.5, -1.0, -2.0, -3.0], 2) for _ in beams.round()]
        for event in events:
            event.scheduled, event.preemptions = 10.0 + number, 1
        beams.take(events)
    events = beams.events()
    assert [event.scheduled for event in events] == [10.0, 10.0]
    assert sum(event.preemptions for event in events) == 3
