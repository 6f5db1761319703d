"""Noise is a pure function of seed, position and token, and as good as random."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from penstock.engine.layers.noise import choice_seed, exponential_noise

VOCAB = 1000


def noise(seeds: list[int], positions: list[int], vocab: int = VOCAB) -> Tensor:
    return exponential_noise(torch.tensor(seeds), torch.tensor(positions), vocab)


def test_company_changes_nothing() -> None:
    together = noise([5, 9, 5], [3, 3, 4])
    for at, (seed, position) in enumerate([(5, 3), (9, 3), (5, 4)]):
        assert torch.equal(together[at], noise([seed], [position])[0])


def test_a_larger_vocabulary_changes_nothing_for_the_tokens_it_had() -> None:
    assert torch.equal(noise([5], [3], 2 * VOCAB)[:, :VOCAB], noise([5], [3], VOCAB))


def test_the_caller_may_change_what_it_got() -> None:
    first = noise([5], [3])
    kept = first.clone()
    first.zero_()
    assert torch.equal(noise([5], [3]), kept)


def test_a_seed_means_the_same_in_every_version() -> None:
    expected = torch.tensor([[0.2956, 0.1427, 0.4680, 0.8848], [0.1411, 0.6707, 0.7224, 0.3119]])
    assert torch.allclose(noise([0, -1], [0, 1000], 4), expected, atol=1e-4)


def test_the_values_are_exponentially_distributed() -> None:
    values = noise([7] * 200, list(range(200))).flatten().double()
    assert abs(values.mean().item() - 1) < 0.01
    assert abs(values.var().item() - 1) < 0.03
    # Kolmogorov-Smirnov: the largest distance to the distribution function; 1.95 is a chance of 1 in 1000.
    cumulative = 1 - torch.exp(-values.sort().values)
    steps = torch.arange(1, len(values) + 1) / len(values)
    assert (cumulative - steps).abs().max().item() < 1.95 / math.sqrt(len(values))


@pytest.mark.parametrize(
    ("seeds", "positions"),
    [
        ([3] * 40, list(range(40))),
        (list(range(40)), [3] * 40),
        ([choice_seed(3, index) for index in range(40)], [3] * 40),
        ([1 << bit for bit in range(40)], [3] * 40),
        # Neighbours whose seed and position add up to the same.
        (list(range(40)), [40 - at for at in range(40)]),
    ],
    ids=["positions", "seeds", "choices", "single bits", "diagonal"],
)
def test_different_rows_have_nothing_to_do_with_each_other(seeds: list[int], positions: list[int]) -> None:
    values = noise(seeds, positions, 20_000).double()
    correlation = torch.corrcoef(values)
    correlation.fill_diagonal_(0.0)
    assert correlation.abs().max().item() < 5 / math.sqrt(20_000)


def test_neighbouring_tokens_have_nothing_to_do_with_each_other() -> None:
    values = noise([7] * 50, list(range(50)), 4096).double()
    for distance in (1, 2, 3, 64, 1024):
        pair = torch.stack((values[:, :-distance].flatten(), values[:, distance:].flatten()))
        assert abs(torch.corrcoef(pair)[0, 1].item()) < 5 / math.sqrt(pair.shape[1])


@pytest.mark.parametrize("vocab", [2, 3, 64, 257])
def test_every_token_wins_a_fair_race_equally_often(vocab: int) -> None:
    draws = 50 * vocab
    winners = noise([11] * draws, list(range(draws)), vocab).argmin(dim=-1)
    counts = torch.bincount(winners, minlength=vocab).double()
    chi_square = ((counts - 50) ** 2 / 50).sum().item()
    freedom = vocab - 1
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom) + 8


def test_noise_is_positive_and_finite_where_the_random_bits_are_extreme() -> None:
    # For these positions and tokens of seed 7 the 24 highest random bits are all ones, or all zeros.
    for position, token in ((250, 38423), (733, 5777), (2401, 33537)):
        assert 16 < noise([7], [position], 49152)[0, token].item() < 17
    for position, token in ((1058, 14059), (235, 23082)):
        assert 0 < noise([7], [position], 49152)[0, token].item() < 1e-8
    many = noise([7] * 100, list(range(100)), 49152)
    assert (many > 0).all()
    assert torch.isfinite(many).all()


@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)])
def test_every_seed_of_64_bits_has_its_choices(seed: int) -> None:
    seeds = [choice_seed(seed, index) for index in range(128)]
    assert len(set(seeds)) == 128
    values = noise(seeds, [0] * 128, 8)
    assert len({tuple(row) for row in values.tolist()}) == 128


def test_the_first_choice_keeps_the_requests_seed() -> None:
    assert choice_seed(12345, 0) == 12345
