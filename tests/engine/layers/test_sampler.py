"""Tokens are drawn exactly as the parameters say, row by row, whoever draws them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from penstock.engine.layers.noise import choice_seed, exponential_noise
from penstock.engine.layers.sampler import (
    ALL_BANNED,
    NO_TOKEN,
    TOP_P_CANDIDATES,
    Drawer,
    TorchDrawer,
    sample,
)
from penstock.engine.native.sampling import open_drawer
from penstock.engine.request import SamplingParams
from penstock.engine.run.slots import Slots
from tests.engine.layers import drawing
from tests.engine.layers.drawing import Row, batch_of, draw, row, rows_at_positions, sequence_of, tokens
from tests.engine.native.kernels import needs_kernels

INF = float("inf")
DRAWERS = {"torch": TorchDrawer, "native": lambda: open_drawer(2)}


@pytest.fixture(autouse=True, scope="module", params=["torch", pytest.param("native", marks=needs_kernels)])
def drawer(request: pytest.FixtureRequest) -> Iterator[Drawer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "drawer", DRAWERS[request.param]())
        yield drawing.drawer


def random_logits(vocab: int, *, spread: float = 3.0, seed: int = 0, count: int = 1) -> Tensor:
    return spread * torch.randn(count, vocab, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------- an independent reference


def kept_tokens(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Which tokens may be drawn, by sorting and adding up in float64."""
    scaled = logits.astype(np.float64) / params.temperature
    order = np.argsort(-scaled, kind="stable")
    kept = list(order)
    if params.top_k > 0:
        kept = kept[: params.top_k]
    probabilities = np.exp(scaled - scaled.max())
    if params.top_p < 1:
        shares = probabilities[kept] / probabilities[kept].sum()
        enough = int(np.argmax(np.cumsum(shares) >= params.top_p))
        kept = kept[: enough + 1]
    if params.min_p > 0:
        kept = [token for token in kept if probabilities[token] >= params.min_p]
    mask = np.zeros(len(logits), dtype=bool)
    mask[kept] = True
    return mask


def expected_token(logits: np.ndarray, r: Row) -> int:
    """The race of the kept tokens, decided in float64 with the engine's own noise."""
    if r.params.temperature == 0:
        return int(np.argmax(logits))
    seed = choice_seed(r.params.seed, r.index)
    noise = exponential_noise(torch.tensor([seed]), torch.tensor([r.position]), len(logits))[0].double()
    scaled = logits.astype(np.float64) / r.params.temperature
    scores = np.where(kept_tokens(logits, r.params), scaled - np.log(noise.numpy()), -np.inf)
    return int(np.argmax(scores))


FILTERS = {
    "none": {},
    "top_k 1": {"top_k": 1},
    "top_k 7": {"top_k": 7},
    "top_k -1": {"top_k": -1},
    "top_p 0.1": {"top_p": 0.1},
    "top_p 0.9": {"top_p": 0.9},
    "top_p 0.999": {"top_p": 0.999},
    "min_p 0.05": {"min_p": 0.05},
    "min_p 0.9": {"min_p": 0.9},
    "top_k and top_p": {"top_k": 20, "top_p": 0.7},
    "top_k and min_p": {"top_k": 20, "min_p": 0.1},
    "top_p and min_p": {"top_p": 0.8, "min_p": 0.1},
    "all three": {"top_k": 30, "top_p": 0.9, "min_p": 0.02, "temperature": 0.7},
    "hot": {"temperature": 2.0, "top_p": 0.95},
    "cold": {"temperature": 0.05, "top_p": 0.95},
}


@pytest.mark.parametrize("vocab", [5, 100, 2 * TOP_P_CANDIDATES])
@pytest.mark.parametrize("filters", FILTERS.values(), ids=FILTERS.keys())
def test_filtered_draws_equal_the_brute_force_reference(filters: dict[str, float], vocab: int) -> None:
    logits = random_logits(vocab)
    rows = rows_at_positions(60, seed=3, **filters)
    expected = [expected_token(logits[0].numpy(), r) for r in rows]
    assert tokens(logits, rows) == expected


def test_top_p_of_a_flat_distribution_reaches_beyond_its_candidates() -> None:
    logits = random_logits(4 * TOP_P_CANDIDATES, spread=0.1)
    rows = rows_at_positions(60, seed=3, top_p=0.95)
    drawn = tokens(logits, rows)
    assert drawn == [expected_token(logits[0].numpy(), r) for r in rows]
    assert len(set(drawn)) > 55, "a flat distribution hardly ever repeats"


def test_each_row_of_a_mixed_batch_gets_its_own_parameters() -> None:
    logits = random_logits(3 * TOP_P_CANDIDATES, count=len(FILTERS) + 1)
    rows = [row(seed=at, **filters) for at, filters in enumerate(FILTERS.values())]
    rows.append(row(temperature=0.0, top_k=5, top_p=0.5))
    expected = [expected_token(values.numpy(), r) for values, r in zip(logits, rows, strict=True)]
    assert tokens(logits, rows) == expected


# ---------------------------------------------------------------- frequencies


def assert_frequencies(drawn: list[int], probabilities: np.ndarray) -> None:
    """Chi-square against what was intended; the seeds are fixed, so this never changes its mind."""
    possible = np.flatnonzero(probabilities > 0)
    counts = Counter(drawn)
    assert set(counts) <= set(possible.tolist()), "a token was drawn that cannot be"
    expected = len(drawn) * probabilities[possible]
    found = np.array([counts[token] for token in possible.tolist()])
    chi_square = float(((found - expected) ** 2 / expected).sum())
    freedom = len(possible) - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 8


def intended(logits: Tensor, params: SamplingParams) -> np.ndarray:
    values = logits[0].numpy()
    scaled = np.where(kept_tokens(values, params), values.astype(np.float64) / params.temperature, -np.inf)
    weights = np.exp(scaled - scaled.max())
    return weights / weights.sum()


@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.5}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}],
    ids=str,
)
def test_tokens_come_as_often_as_they_should(params: dict[str, float]) -> None:
    logits = random_logits(8, spread=1.5)
    by_position = rows_at_positions(1000, seed=17, **params)
    assert_frequencies(tokens(logits, by_position), intended(logits, by_position[0].params))
    by_seed = [row(seed=seed, **params) for seed in range(1000)]
    assert_frequencies(tokens(logits, by_seed), intended(logits, by_seed[0].params))


def test_choices_of_one_request_are_drawn_independently() -> None:
    logits = random_logits(8, spread=1.5)
    choices = [replace(r, index=index) for r in rows_at_positions(50, seed=4) for index in range(40)]
    assert_frequencies(tokens(logits, choices), intended(logits, choices[0].params))


# Positions and tokens at which the noise of seed 7 has its largest and its smallest values.
LARGEST_NOISE = ((250, 38423), (733, 5777), (2401, 33537))
SMALLEST_NOISE = ((1058, 14059), (235, 23082))


def test_no_extreme_of_the_noise_lets_a_token_of_vanishing_probability_win() -> None:
    logits = torch.zeros(1, 49152)
    logits[0, 5] = 60.0
    rows = [row(seed=7, prompt=(0,) * position) for position, _ in LARGEST_NOISE + SMALLEST_NOISE]
    assert set(tokens(logits, rows)) == {5}
    assert set(tokens(logits, [replace(r, params=replace(r.params, top_k=1)) for r in rows])) == {5}


def test_no_extreme_of_the_noise_keeps_a_lone_token_from_winning() -> None:
    for position, token in LARGEST_NOISE + SMALLEST_NOISE:
        logits = torch.full((1, 49152), -INF)
        logits[0, token] = 0.0
        assert tokens(logits, [row(seed=7, prompt=(0,) * position)]) == [token]


def test_a_token_of_one_in_a_hundred_million_wins_when_its_turn_comes() -> None:
    logits = torch.full((1, 49152), math.log(1e-8))
    logits[0, 5] = 0.0
    for position, token in SMALLEST_NOISE:
        assert tokens(logits, [row(seed=7, prompt=(0,) * position)]) == [token]


# ---------------------------------------------------------------- independence of the batch


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_a_row_alone_gives_the_same_bits_as_in_a_batch(threads: int) -> None:
    vocab = 49152  # long enough that a single row's sums would be shared out among threads
    kinds = [
        {},
        {"temperature": 0.0},
        {"top_k": 40, "top_p": 0.9},
        {"top_p": 0.99},
        {"min_p": 0.05},
        {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2},
        {"logit_bias": {3: 5.0, 9: -100.0}},
        {"min_tokens": 5, "stop_token_ids": (4,)},
    ]
    rows = [
        row(seed=at, logprobs=at % 4, prompt=(1, 2, 3), output=(4,) * at, **kinds[at % len(kinds)])
        for at in range(8)
    ]
    logits = random_logits(vocab, count=8)
    together = draw(logits, rows)
    for at, r in enumerate(rows):
        alone = draw(logits[at : at + 1], [r])
        assert alone.tokens[0] == together.tokens[at]
        assert torch.equal(alone.logprobs.chosen[0], together.logprobs.chosen[at])
        wanted = r.params.logprobs
        assert torch.equal(alone.logprobs.top[0], together.logprobs.top[at, :wanted])
        assert torch.equal(alone.logprobs.top_ids[0], together.logprobs.top_ids[at, :wanted])


def test_the_border_of_top_p_does_not_depend_on_company(threads: int) -> None:
    # Two heavy tokens and a long tail: the last bit of the sum decides whether top_p lets the second in.
    logits = random_logits(49152, spread=0.5, count=10)
    logits[:, :2] = torch.tensor([10.5, 10.4])
    first = torch.softmax(logits, -1)[:, 0]
    for border in (first, torch.nextafter(first, torch.ones(1))):
        rows = [row(seed=at, top_p=share) for at, share in enumerate(border.tolist())]
        together = tokens(logits, rows)
        assert [tokens(logits[at : at + 1], [r])[0] for at, r in enumerate(rows)] == together


# ---------------------------------------------------------------- penalties, bias, bans


def reference_logits(logits: np.ndarray, r: Row) -> np.ndarray:
    """What is left of the logits before the draw, one token at a time."""
    result = logits.astype(np.float32).copy()
    params = r.params
    for token in {*r.prompt, *r.output}:
        value = result[token]
        penalty = np.float32(params.repetition_penalty)
        result[token] = value / penalty if value > 0 else value * penalty
    for token, count in Counter(r.output).items():
        result[token] -= np.float32(params.frequency_penalty) * np.float32(count)
        result[token] -= np.float32(params.presence_penalty)
    for token, bias in params.logit_bias.items():
        result[token] += np.float32(bias)
    if len(r.output) < params.min_tokens:
        ends = [*params.stop_token_ids, *(() if params.ignore_eos else r.eos)]
        result[ends] = -np.inf
    return result


PENALIZED = [
    row(repetition_penalty=1.5, prompt=(1, 2, 2), output=(3, 3, 3)),
    row(repetition_penalty=0.5, prompt=(1, 2, 2), output=(3, 3, 3)),
    row(presence_penalty=1.5, prompt=(1, 2, 2), output=(3, 3, 4)),
    row(presence_penalty=-2.0, prompt=(1, 2, 2), output=(3, 3, 4)),
    row(frequency_penalty=0.7, prompt=(1, 2, 2), output=(3, 3, 4)),
    row(frequency_penalty=-0.7, prompt=(1, 2, 2), output=(3, 3, 4)),
    row(repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4, prompt=(5,) * 9, output=(5, 6)),
    row(repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4, prompt=(7, 8)),
    row(logit_bias={0: 100.0, 11: -100.0, 3: 0.5}),
    row(logit_bias={3: 1}, repetition_penalty=2.0, output=(3,)),
    row(min_tokens=2, eos=(4,), stop_token_ids=(5, 6), output=(9,)),
    row(min_tokens=2, eos=(4,), stop_token_ids=(5, 6), output=(9, 9)),
    row(min_tokens=2, eos=(4,), stop_token_ids=(5,), ignore_eos=True),
    row(min_tokens=3),
    row(),
]


def test_penalties_bias_and_bans_change_the_logits_as_the_reference_does() -> None:
    logits = random_logits(12, count=len(PENALIZED))
    changed = logits.clone()
    sample(changed, batch_of(PENALIZED))
    for before, after, r in zip(logits, changed, PENALIZED, strict=True):
        np.testing.assert_allclose(
            after.numpy(), reference_logits(before.numpy(), r), rtol=1e-6, err_msg=str(r)
        )


def test_presence_and_frequency_look_at_the_output_only() -> None:
    logits = torch.zeros(1, 6)
    prompt_only = row(presence_penalty=2.0, frequency_penalty=2.0, prompt=(1, 1, 1))
    changed = logits.clone()
    sample(changed, batch_of([prompt_only]))
    assert torch.equal(changed, logits)


def test_repetition_looks_at_prompt_and_output() -> None:
    logits = torch.tensor([[4.0, 4.0, 4.0, -4.0]])
    sample(logits, batch_of([row(repetition_penalty=2.0, prompt=(0, 3), output=(1,))]))
    assert logits.tolist() == [[2.0, 2.0, 4.0, -8.0]]


def test_a_bias_of_100_decides() -> None:
    logits = random_logits(50)
    forced = rows_at_positions(100, logit_bias={33: 100.0})
    assert set(tokens(logits, forced)) == {33}
    likeliest = int(logits.argmax())
    forbidden = rows_at_positions(100, logit_bias={likeliest: -100.0})
    assert likeliest not in tokens(logits, forbidden)


def test_an_end_is_banned_before_min_tokens_and_allowed_from_then_on() -> None:
    logits = torch.tensor([[0.0, 50.0, 1.0]])
    for length, expected in ((0, 2), (1, 2), (2, 1)):
        r = row(temperature=0.0, min_tokens=2, eos=(1,), output=(0,) * length)
        assert tokens(logits, [r]) == [expected]


def test_a_slot_forgets_what_its_former_sequence_wanted() -> None:
    slots = Slots(1, 8, 1, drawing.CPU)
    demanding = row(
        temperature=0.0,
        presence_penalty=1.0,
        logit_bias={1: 9.0},
        min_tokens=3,
        eos=(2,),
        allowed_token_ids=(1, 2),
        logprobs=2,
        top_p=0.5,
    )
    for r, special in ((row(top_k=3), False), (demanding, True), (row(), False)):
        sequence = sequence_of(r, 0)
        slots.load([sequence])
        batch = slots.sampling_batch([sequence], [r.position])
        assert batch.parameters.random == ({0} if r.params.temperature else set())
        assert batch.parameters.filtered == ({0} if r.params.top_k == 3 else set())
        assert batch.changed_rows == ([0] if special else [])
        assert batch.logprob_rows == ([0] if special else [])


# ---------------------------------------------------------------- broken logits


@pytest.mark.parametrize(
    "broken",
    [[float("nan")] * 4, [0.0, float("nan"), 1.0, 2.0], [0.0, INF, 1.0, 2.0], [-INF] * 4],
    ids=["all nan", "one nan", "infinite", "nothing possible"],
)
@pytest.mark.parametrize(
    "params",
    [{}, {"temperature": 0.0}, {"top_k": 2, "top_p": 0.5, "min_p": 0.1}, {"repetition_penalty": 2.0}],
    ids=str,
)
def test_a_row_that_is_not_numbers_gets_no_token_and_harms_no_other(
    broken: list[float], params: dict[str, float]
) -> None:
    good = random_logits(4, count=2)
    logits = torch.stack((good[0], torch.tensor(broken), good[1]))
    rows = [row(seed=at, logprobs=2, **params) for at in range(3)]
    result = draw(logits, rows)
    assert result.tokens[1] == NO_TOKEN
    for at, values in ((0, good[0]), (2, good[1])):
        alone = draw(values[None], [rows[at]])
        assert result.tokens[at] == alone.tokens[0]
        assert torch.equal(result.logprobs.chosen[at], alone.logprobs.chosen[0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_row_is_told_from_one_whose_every_token_is_forbidden(temperature: float) -> None:
    forbidding = {"min_tokens": 1, "stop_token_ids": (0, 1, 2), "temperature": temperature}
    logits = torch.zeros(5, 3)
    logits[2:4, 1] = float("nan")  # which the ban hides in row 2
    logits[4] = -INF
    rows = [
        row(temperature=temperature, logit_bias={2: 50.0}),
        row(**forbidding, logprobs=1),
        row(**forbidding),
        row(temperature=temperature),
        row(temperature=temperature),
    ]
    assert tokens(logits, rows) == [2, ALL_BANNED, NO_TOKEN, NO_TOKEN, NO_TOKEN]


# ---------------------------------------------------------------- log probabilities


def test_logprobs_are_of_the_models_own_distribution() -> None:
    logits = random_logits(40, count=3)
    rows = [
        row(temperature=0.3, top_k=2, logprobs=3),
        row(temperature=0.0, repetition_penalty=5.0, logit_bias={7: 100.0}, logprobs=5),
        row(temperature=0.0, min_tokens=1, eos=(int(logits[2].argmax()),), logprobs=0),
    ]
    result = draw(logits, rows)
    raw = logits.double().log_softmax(-1)
    assert result.tokens[1] == 7
    assert result.tokens[2] != logits[2].argmax()
    for at, token in enumerate(result.tokens.tolist()):
        assert result.logprobs.chosen[at].item() == pytest.approx(raw[at, token].item(), abs=1e-5)
    best = raw.sort(descending=True)
    assert torch.equal(result.logprobs.top_ids, best.indices[:, :5])
    torch.testing.assert_close(result.logprobs.top, best.values[:, :5].float(), atol=1e-5, rtol=0)


def test_only_rows_that_ask_get_logprobs() -> None:
    logits = random_logits(40, count=3)
    result = draw(logits, [row(), row(logprobs=1), row()])
    assert result.logprobs.chosen.shape == (1,)
    assert result.logprobs.top_ids.tolist() == [[int(logits[1].argmax())]]
    assert draw(logits, [row(), row(), row()]).logprobs is None


def test_more_alternatives_than_tokens_are_as_many_as_there_are() -> None:
    result = draw(random_logits(4), [row(logprobs=20)])
    assert sorted(result.logprobs.top_ids[0].tolist()) == [0, 1, 2, 3]


# ---------------------------------------------------------------- extremes


@pytest.mark.parametrize("temperature", [1e-5, 1e-9, 1e-30, 1e-38, 1e-45, 1e-300])
def test_the_smallest_temperatures_are_greedy(temperature: float) -> None:
    logits = 20.0 + random_logits(1000)
    for filters in ({}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}):
        rows = rows_at_positions(20, temperature=temperature, **filters)
        assert set(tokens(logits, rows)) == {int(logits.argmax())}


def test_equals_share_the_draws_at_any_temperature() -> None:
    logits = torch.tensor([[1000.0, 0.0, 1000.0]])
    for temperature in (1e-300, 1e-9, 1.0, 2.0):
        assert_frequencies(
            tokens(logits, rows_at_positions(500, temperature=temperature)), np.array([0.5, 0.0, 0.5])
        )


@pytest.mark.parametrize(
    "params", [{}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"temperature": 2.0}], ids=str
)
def test_the_only_possible_token_is_drawn(params: dict[str, float]) -> None:
    logits = torch.full((1, 700), -INF)
    logits[0, 123] = -5.0
    assert set(tokens(logits, rows_at_positions(50, **params))) == {123}


def test_impossible_tokens_stay_impossible_under_every_change() -> None:
    logits = random_logits(20)
    logits[0, ::2] = -INF
    params = {
        "repetition_penalty": 0.01,
        "presence_penalty": -2.0,
        "logit_bias": {2: 100.0},
        "temperature": 2.0,
    }
    rows = [row(seed=seed, prompt=(0, 2), output=(2, 4), **params) for seed in range(200)]
    assert all(token % 2 for token in tokens(logits, rows))


@pytest.mark.parametrize("top_k", [1000, 1001, 2**31 - 1])
def test_a_top_k_of_the_vocabulary_or_more_is_no_filter(top_k: int) -> None:
    logits = random_logits(1000)
    assert tokens(logits, rows_at_positions(100, top_k=top_k)) == tokens(logits, rows_at_positions(100))


@pytest.mark.parametrize("top_p", [1e-6, 1e-9, 1e-45, 1e-300])
def test_a_tiny_top_p_leaves_the_likeliest(top_p: float) -> None:
    logits = random_logits(1000)
    assert set(tokens(logits, rows_at_positions(50, top_p=top_p))) == {int(logits.argmax())}


@pytest.mark.parametrize("top_p", [1.0, 1 - 1e-9, 1 - 1e-17])
def test_a_top_p_next_to_one_is_no_filter(top_p: float) -> None:
    logits = random_logits(3 * TOP_P_CANDIDATES)
    assert tokens(logits, rows_at_positions(100, top_p=top_p)) == tokens(logits, rows_at_positions(100))


@pytest.mark.parametrize(("min_p", "kept"), [(1.0, {2}), (1e-45, {0, 1, 2}), (1e-300, {0, 1, 2})])
def test_min_p_at_its_ends(min_p: float, kept: set[int]) -> None:
    logits = torch.tensor([[1.0, 1.0, 2.0]])
    assert set(tokens(logits, rows_at_positions(200, min_p=min_p))) == kept


def test_a_vocabulary_of_one_token() -> None:
    for params in ({}, {"top_k": 5}, {"top_p": 0.1}, {"min_p": 1.0}, {"temperature": 0.0}):
        assert tokens(torch.tensor([[-3.0]]), [row(**params)]) == [0]


def test_a_penalty_over_a_long_history_counts_every_token() -> None:
    logits = torch.zeros(1, 10)
    sample(logits, batch_of([row(frequency_penalty=0.001, output=(3,) * 5000)]))
    assert logits[0, 3].item() == pytest.approx(-5.0, abs=1e-3)
    assert torch.count_nonzero(logits) == 1
