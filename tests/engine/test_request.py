"""Sampling parameters have limits, and passing one is told in a sentence that names parameter and value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from penstock.engine.request import EngineStats, SamplingParams
from penstock.errors import InvalidRequestError

NAN, INF = math.nan, math.inf
HUGE = 10**400

# parameter: values that are accepted, values that are refused
LIMITS: dict[str, tuple[list[Any], list[Any]]] = {
    "n": ([1, 128], [0, -1, 129, HUGE, 1.0, "1", True, None]),
    "best_of": ([None, 1, 128], [0, -1, 129, HUGE, 1.0, "1", True]),
    "max_tokens": ([None, 0, 1, 2**31 - 1], [-1, 2**31, HUGE, 1.5, "5", False]),
    "min_tokens": ([0, 1, 2**31 - 1], [-1, 2**31, HUGE, 0.0, "0", True, None]),
    "temperature": (
        [0, 0.0, 1e-300, 1, 2, 2.0],
        [-0.1, -1e-300, 2.0001, NAN, INF, -INF, HUGE, "1", True, None],
    ),
    "top_p": ([1e-300, 0.5, 1, 1.0], [0, 0.0, -0.1, 1.0001, NAN, INF, "1", True, None]),
    "top_k": ([-1, 0, 1, 2**31 - 1], [-2, 2**31, HUGE, 1.0, NAN, "1", True, None]),
    "min_p": ([0, 0.0, 0.5, 1, 1.0], [-0.1, 1.1, NAN, INF, "0", False, None]),
    "repetition_penalty": ([1e-300, 0.5, 1, 1e300], [0, 0.0, -1, NAN, INF, "1", True, None]),
    "presence_penalty": ([-2, 0, 2.0], [-2.1, 2.1, NAN, INF, -INF, "0", True, None]),
    "frequency_penalty": ([-2, 0, 2.0], [-2.1, 2.1, NAN, INF, -INF, "0", True, None]),
    "logit_bias": (
        [{}, {0: -100}, {2**31 - 1: 100.0}, {5: 0}],
        [
            *({token: 1.0} for token in (-1, 2**31, HUGE, 1.0, "5", True)),
            *({5: bias} for bias in (-100.1, 100.1, NAN, INF, "1", True, None)),
        ],
    ),
    "seed": ([None, 0, -1, -(2**63), 2**64 - 1], [-(2**63) - 1, 2**64, HUGE, 1.0, NAN, "1", True]),
    "stop": (
        [(), "END", ["a"], ("a" * 256,), ("x",) * 16],
        ["", [""], ("a" * 257,), ("x",) * 17, [5], [None], ["ok", ""]],
    ),
    "stop_token_ids": ([(), [0], (2**31 - 1,)], [[-1], [2**31], [HUGE], [1.0], ["1"], [True], [None]]),
    "allowed_token_ids": ([(), [0], (2**31 - 1,)], [[-1], [2**31], [HUGE], [1.0], ["1"], [True], [None]]),
    "bad_words": ([(), "END", ["a"], ("a" * 4096,)], ["", [""], ("a" * 4097,), ("x",) * 1025, [5], [None]]),
    "guided_choice": (
        [(), "yes", ["yes", "no"], ("x",) * 1024],
        ["", [""], ("a" * 4097,), ("x",) * 1025, [5], [None]],
    ),
    "prompt_logprobs": ([None, 0, 1, 256], [-1, 257, HUGE, 1.0, "1", True]),
    "logprobs": ([None, 0, 1, 256], [-1, 257, HUGE, 1.0, "1", True]),
}
ACCEPTED = [(name, value) for name, (good, _) in LIMITS.items() for value in good]
REFUSED = [(name, value) for name, (_, bad) in LIMITS.items() for value in bad]


def shown(value: Any) -> str:
    return f"{value!r:.20}"


def params_default(name: str) -> Any:
    return getattr(SamplingParams(), name)


@pytest.mark.parametrize(("name", "value"), ACCEPTED, ids=map(shown, ACCEPTED))
def test_values_within_the_limits_are_accepted(name: str, value: Any) -> None:
    params = SamplingParams(**{name: value})
    assert getattr(params, name) == (
        tuple([value] if isinstance(value, str) else value)
        if isinstance(params_default(name), tuple)
        else value
    )


@pytest.mark.parametrize(("name", "value"), REFUSED, ids=map(shown, REFUSED))
def test_values_beyond_the_limits_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    assert caught.value.param == name
    assert name in message
    assert message.endswith(".")
    assert len(message) < 200, "an absurd value is not repeated in full"


@pytest.mark.parametrize("value", ["x" * 100_000, 10**5000], ids=["text", "digits"])
@pytest.mark.parametrize("name", ["n", "temperature", "seed", "max_tokens"])
def test_an_absurd_value_is_refused_without_repeating_it_in_full(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{name: value})
    assert len(str(caught.value)) < 200


def test_the_sentence_names_the_limit_and_the_value() -> None:
    with pytest.raises(InvalidRequestError, match=r"temperature must be between 0 and 2, got 2\.5\."):
        SamplingParams(temperature=2.5)
    with pytest.raises(InvalidRequestError, match=r"top_p must be above 0 and at most 1, got 0\."):
        SamplingParams(top_p=0)
    with pytest.raises(InvalidRequestError, match=r"n must be at most 128, got 129\."):
        SamplingParams(n=129)


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    assert SamplingParams(min_tokens=5, max_tokens=5).min_tokens == 5
    assert SamplingParams(min_tokens=5).max_tokens is None
    with pytest.raises(
        InvalidRequestError, match=r"min_tokens \(6\) must not exceed max_tokens \(5\)"
    ) as caught:
        SamplingParams(min_tokens=6, max_tokens=5)
    assert caught.value.param == "min_tokens"


def test_a_single_stop_string_is_one_stop() -> None:
    assert SamplingParams(stop="END").stop == ("END",)


def test_the_defaults_sample_from_the_models_own_distribution() -> None:
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p) == (1, 1.0, 1.0, 0, 0.0)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.0, 0.0, 0.0)


def test_parameters_share_no_default_bias() -> None:
    assert SamplingParams().logit_bias is not SamplingParams().logit_bias


@pytest.mark.parametrize("name", ["logit_bias", "stop_token_ids"])
def test_token_ids_outside_the_vocabulary_are_refused(name: str) -> None:
    def params(token: int) -> SamplingParams:
        return SamplingParams(**{name: {token: 1.0} if name == "logit_bias" else [token]})

    params(99).check_vocabulary(100)
    with pytest.raises(InvalidRequestError, match=f"{name} names token id 100, .* 100 tokens") as caught:
        params(100).check_vocabulary(100)
    assert caught.value.param == name


def test_usage_and_waste_are_shares() -> None:
    assert EngineStats().kv_usage == 0.0
    assert EngineStats().kv_waste == 0.0
    stats = EngineStats(
        blocks_total=10, blocks_free=4, blocks_cached=1, kv_allocated_tokens=200, kv_used_tokens=190
    )
    assert stats.kv_usage == 0.5
    assert stats.kv_waste == pytest.approx(0.05)


def test_fewer_candidates_than_choices_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="best_of must be at least 3, got 2"):
        SamplingParams(n=3, best_of=2)


@pytest.mark.parametrize("other", [{"min_tokens": 1}, {"allowed_token_ids": [5]}])
def test_a_guided_choice_leaves_no_room_for_other_rules_about_what_may_come(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="cannot be combined with guided_choice") as caught:
        SamplingParams(guided_choice=["yes", "no"], **other)
    assert [caught.value.param] == list(other)


def test_the_engine_makes_more_choices_than_are_returned_and_scores_them() -> None:
    plain = SamplingParams(n=2)
    assert plain.for_engine() is plain
    assert SamplingParams(n=2, best_of=2).for_engine().n == 2
    made = SamplingParams(n=2, best_of=5, seed=1).for_engine()
    assert (made.n, made.best_of, made.logprobs, made.seed) == (5, None, 0, 1)
    assert SamplingParams(best_of=5, logprobs=3).for_engine().logprobs == 3
