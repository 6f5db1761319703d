"""The native drawer means what the torch one means, with any number of threads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from penstock.engine.layers.sampler import NO_TOKEN, Parameters, SamplingBatch, TorchDrawer
from penstock.engine.native.sampling import NativeDrawer, open_drawer
from tests.engine.native.kernels import needs_kernels

pytestmark = needs_kernels

INF = float("inf")


@pytest.fixture(scope="module")
def drawer() -> NativeDrawer:
    return opened(2)


def opened(threads: int) -> NativeDrawer:
    drawer = open_drawer(threads)
    assert drawer is not None
    return drawer


def random_batch(rows: int, vocab: int, generator: torch.Generator) -> SamplingBatch:
    """Every kind of parameters in every mixture, each often left out."""

    def uniform() -> Tensor:
        return torch.rand(rows, generator=generator)

    def often(default: float, other: Tensor) -> Tensor:
        return torch.where(uniform() < 0.5, torch.tensor(default, dtype=other.dtype), other)

    temperature = torch.where(uniform() < 0.1, 0.0, often(1.0, 0.01 + 2 * uniform()))
    columns = {
        "temperature": temperature,
        "top_k": often(0, 1 + (1.2 * vocab * uniform() ** 4).long()),
        "top_p": often(1.0, uniform()),
        "min_p": often(0.0, 0.5 * uniform() ** 2),
        "seeds": torch.randint(-(2**63), 2**63 - 1, (rows,), generator=generator),
    }
    positions = torch.randint(0, 100_000, (rows,), generator=generator).tolist()
    return batch_of(columns, torch.randperm(rows, generator=generator).tolist(), positions)


def plain_batch(rows: int, **wanted: float) -> SamplingBatch:
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seeds": 0, **wanted}
    columns = {name: torch.full((rows,), value) for name, value in values.items()}
    return batch_of(columns, list(range(rows)), list(range(rows)))


def batch_of(columns: dict[str, Tensor], slots: list[int], positions: list[int]) -> SamplingBatch:
    random = set(columns["temperature"].nonzero().flatten().tolist())
    return SamplingBatch(Parameters(**columns, random=random, filtered=random), slots, positions)


# Around blocks and vectors, and beyond.
VOCABULARIES = (1, 2, 15, 16, 17, 100, 127, 128, 129, 255, 257, 1000, 2048, 5003, 20_001)


@pytest.mark.parametrize("kind", ["smooth", "with ties", "with impossible tokens"])
def test_thousands_of_draws_are_those_of_torch(drawer: NativeDrawer, kind: str) -> None:
    generator = torch.Generator().manual_seed(len(kind))
    for vocab in VOCABULARIES:
        rows = 100 if vocab <= 2048 else 20
        spread = 0.1 + 5 * torch.rand(rows, 1, generator=generator)
        logits = 7 + spread * torch.randn(rows, vocab, generator=generator)
        if kind == "with ties":
            logits = (2 * logits).round() / 2
        if kind == "with impossible tokens":
            logits[:, 1::3] = -INF
        batch = random_batch(rows, vocab, generator)
        assert torch.equal(drawer.draw(logits, batch), TorchDrawer().draw(logits.clone(), batch)), vocab


def test_a_large_vocabulary_is_drawn_from_as_torch_does(drawer: NativeDrawer) -> None:
    generator = torch.Generator().manual_seed(5)
    # Peaked as a model's are, the likeliest in the middle of nowhere.
    logits = 2.5 * torch.randn(6, 151_936, generator=generator)
    logits[:, torch.randint(0, 151_936, (30,), generator=generator)] += 15
    for filters in ({}, {"top_k": 40}, {"top_k": 5000}, {"top_p": 0.95}, {"temperature": 2.0, "top_p": 0.99}):
        batch = plain_batch(6, **filters)
        assert torch.equal(drawer.draw(logits, batch), TorchDrawer().draw(logits.clone(), batch)), filters


def test_threads_change_no_bit() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(37, 5000, generator=generator)
    batch = random_batch(37, 5000, generator)
    drawers = [opened(threads) for threads in (1, 2, 5)]
    chosen = torch.arange(37) * 100
    first, *others = [(d.draw(logits, batch), d.logprobs(logits, chosen, 7)) for d in drawers]
    for tokens, logprobs in others:
        assert torch.equal(tokens, first[0])
        for part in ("chosen", "rank", "top_ids", "top"):
            assert torch.equal(getattr(logprobs, part), getattr(first[1], part))


def test_of_equals_the_first_is_greediest(drawer: NativeDrawer) -> None:
    logits = torch.zeros(300, 300)
    for at in range(300):
        logits[at, at:] = 1.0
    assert drawer.draw(logits, plain_batch(300, temperature=0.0)).tolist() == list(range(300))


def test_all_that_equal_the_last_of_top_k_or_top_p_are_kept(drawer: NativeDrawer) -> None:
    logits = torch.zeros(400, 200)
    logits[:, 50] = 1.0
    logits[:, 60:70] = 0.5
    kept = {50, *range(60, 70)}
    for filters in ({"top_k": 2}, {"top_k": 11}, {"top_p": 0.02}, {"min_p": 0.6}):
        assert set(drawer.draw(logits, plain_batch(400, **filters)).tolist()) == kept, filters


@pytest.mark.parametrize("place", [0, 127, 128, 299])
@pytest.mark.parametrize("value", [float("nan"), INF])
def test_what_is_not_a_number_is_found_wherever_it_is(drawer: NativeDrawer, place: int, value: float) -> None:
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(0))
    logits[1, place] = value
    for temperature in (0.0, 1.0):
        tokens = drawer.draw(logits, plain_batch(3, temperature=temperature)).tolist()
        assert [token == NO_TOKEN for token in tokens] == [False, True, False]
    found = drawer.logprobs(logits, torch.tensor([5, 5, 5]), 3)
    assert found.chosen.isnan().tolist() == [False, True, False]
    assert found.top.isnan().all(dim=1).tolist() == [False, True, False]


@pytest.mark.parametrize("vocab", VOCABULARIES)
def test_logprobs_are_exact_to_the_last_bits_of_a_float(drawer: NativeDrawer, vocab: int) -> None:
    generator = torch.Generator().manual_seed(vocab)
    logits = 4 * torch.randn(5, vocab, generator=generator)
    tokens = torch.randint(0, vocab, (5,), generator=generator)
    found = drawer.logprobs(logits, tokens, 20)
    best = logits.double().log_softmax(-1).sort(descending=True, stable=True)
    most = min(20, vocab)
    torch.testing.assert_close(found.top, best.values[:, :most].float(), atol=5e-7, rtol=3e-7)
    assert torch.equal(found.top_ids, best.indices[:, :most])
    ranks = best.indices.argsort(-1).gather(1, tokens[:, None])
    assert torch.equal(found.rank, ranks[:, 0] + 1)
    torch.testing.assert_close(found.chosen, best.values.gather(1, ranks)[:, 0].float(), atol=5e-7, rtol=3e-7)


def test_equal_alternatives_come_in_the_order_of_their_ids(drawer: NativeDrawer) -> None:
    logits = torch.zeros(1, 1000)
    logits[0, [900, 3]] = 1.0
    found = drawer.logprobs(logits, torch.tensor([7]), 5)
    assert found.top_ids.tolist() == [[3, 900, 0, 1, 2]]
    assert found.rank.tolist() == [3]


def test_a_drawer_that_is_dropped_takes_its_threads_along() -> None:
    def threads() -> int:
        return len(os.listdir(Path("/proc/self/task")))

    before = threads()
    kept = opened(4)
    assert threads() == before + 3
    del kept
    # A thread that was waited for may be listed for a moment more.
    for _ in range(1000):
        if threads() == before:
            return
        time.sleep(0.01)
    assert threads() == before
