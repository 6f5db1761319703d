"""Draws by the kernels are those of the plain drawer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu.kernels.sampling import draw
from penstock.engine.gpu.sampling import GpuDrawer
from penstock.engine.layers.sampler import NO_TOKEN, Parameters, SamplingBatch, TorchDrawer

INF, NAN = float("inf"), float("nan")
FILTERS: list[Mapping[str, float]] = [
    {},
    {"top_k": 1},
    {"top_k": 100_000},
    {"top_k": 3000},
    {"top_p": 0.0},
    {"top_p": 0.9},
    {"top_p": 0.9999},
    {"min_p": 0.05},
    {"top_k": 20, "top_p": 0.7},
    {"top_p": 0.8, "min_p": 0.1},
    {"top_k": 30, "top_p": 0.9, "min_p": 0.02, "temperature": 0.7},
    {"temperature": 0.05, "top_p": 0.95},
    {"temperature": 1e-30, "top_k": 50, "top_p": 0.95},
    {"temperature": 0.0, "top_k": 5, "top_p": 0.5},
]


def parameters_of(wishes: list[Mapping[str, float]], device: torch.device) -> Parameters:
    def column(name: str, default: float, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.tensor([wish.get(name, default) for wish in wishes], dtype=dtype).to(device)

    temperature, top_k = column("temperature", 1.0), column("top_k", 0, torch.int64)
    top_p, min_p = column("top_p", 1.0), column("min_p", 0.0)
    at_random = temperature > 0
    asking = at_random & ((top_k > 0) | (top_p < 1) | (min_p > 0))
    return Parameters(
        temperature,
        top_k,
        top_p,
        min_p,
        column("seed", 0, torch.int64),
        set(at_random.nonzero().flatten().tolist()),
        set(asking.nonzero().flatten().tolist()),
    )


def logits_of(rows: int, vocab: int, device: torch.device, *, spread: float = 3.0, seed: int = 0) -> Tensor:
    return spread * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)).to(device)


def assert_drawn_alike(
    logits: Tensor, wishes: list[Mapping[str, float]], slots: list[int], positions: list[int]
) -> list[int]:
    batch = SamplingBatch(parameters_of(wishes, logits.device), slots, positions)
    found = GpuDrawer().draw(logits.clone(), batch).tolist()
    assert found == TorchDrawer().draw(logits.clone(), batch).tolist()
    return found


@pytest.mark.parametrize(("vocab", "rows"), [(1, 3), (100, 24), (9000, 8)])
def test_rows_at_random_and_greedy_ones_are_drawn_together(
    device: torch.device, vocab: int, rows: int
) -> None:
    wishes = [
        {"temperature": temperature, "seed": seed}
        for seed, temperature in ((-(2**63), 0.6), (5, 0.0), (2**63 - 1, 2.0), (7, 1e-30))
    ]
    slots = [(3 * row) % 4 for row in range(rows)]
    logits = logits_of(rows, vocab, device)
    found = assert_drawn_alike(logits, wishes, slots, list(range(rows)))
    assert vocab < 100 or len(set(found)) > rows // 3


@pytest.mark.parametrize(
    ("vocab", "spread", "filters"),
    [
        (100, 3.0, FILTERS[::2]),
        (9000, 3.0, FILTERS[2:9:3]),
        (4099, 0.05, FILTERS[3::5]),
        (5, 1e4, FILTERS[1::2]),
    ],
)
def test_filters_keep_what_the_plain_ones_do(
    device: torch.device, vocab: int, spread: float, filters: list[Mapping[str, float]]
) -> None:
    logits = logits_of(len(filters), vocab, device, spread=spread)
    wishes = [{"seed": seed, **wish} for seed, wish in enumerate(filters)]
    assert_drawn_alike(logits, wishes, list(range(len(filters))), [9] * len(filters))


def test_ties_at_a_threshold_are_all_kept(device: torch.device) -> None:
    logits = torch.tensor([2.1, 2.0, 2.0, 2.0, -4.0, -INF, -4.0]).repeat(4, 1).to(device)
    wishes: list[Mapping[str, float]] = [
        {"top_k": 2},
        {"top_p": 0.3},
        {"top_k": 2, "top_p": 0.99},
        {"top_k": 6},
    ]
    found = assert_drawn_alike(logits, wishes, [0, 1, 2, 3], [0, 1, 2, 3])
    assert len({*found} & {1, 2, 3}) > 1


def test_a_row_of_equal_logits_is_filtered(device: torch.device) -> None:
    logits = torch.full((2, 5000), 1.5, device=device)
    assert_drawn_alike(logits, [{"top_k": 3}, {"top_p": 0.5}], [0, 1], [1, 2])


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_not_numbers_give_no_token(
    device: torch.device, temperature: float, filtered: bool
) -> None:
    wish = {"temperature": temperature, "top_p": 0.9 if filtered else 1.0}
    logits = logits_of(5, 5000, device)
    logits[0, 4321], logits[1, 3], logits[2] = NAN, INF, -INF
    logits[3, :4999] = -INF  # one is left
    logits[4, 7] = -INF
    found = assert_drawn_alike(logits, [wish], [0] * 5, list(range(5)))
    assert found[:4] == [NO_TOKEN] * 3 + [4999]


@pytest.mark.parametrize("value", [-3.1e38, torch.finfo(torch.float32).min, torch.finfo(torch.float32).max])
@pytest.mark.parametrize("filtered", [False, True])
def test_logits_at_the_ends_of_the_range_are_drawn_from(
    device: torch.device, value: float, filtered: bool
) -> None:
    """As of a logits processor that masks with the least finite number."""
    wishes: list[Mapping[str, float]] = [
        {"temperature": temperature, "top_k": 30 if filtered else 0} for temperature in (1.0, 0.1, 1e-30, 0.0)
    ]
    logits = torch.full((4, 4200), value, device=device)
    logits[:, :4100] = -INF
    found = assert_drawn_alike(logits, wishes, [0, 1, 2, 3], [1, 2, 3, 4])
    assert all(4100 <= token < 4200 for token in found)


def test_the_first_of_equal_logits_is_the_greedy_choice(device: torch.device) -> None:
    logits = torch.zeros(1, 9000, device=device)
    logits[0, [4100, 4200, 8500]] = 1.0
    assert assert_drawn_alike(logits, [{"temperature": 0.0}], [0], [0]) == [4100]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("filtered", [False, True])
def test_tokens_are_written_to_their_slots(device: torch.device, filtered: bool, dtype: torch.dtype) -> None:
    logits = logits_of(4, 300, device).to(dtype)
    logits[3, 7] = NAN
    wishes: list[Mapping[str, float]] = [
        {"temperature": 0.0},
        {"seed": 3, "top_k": 5 if filtered else 0},
        {},
        {},
    ]
    parameters = parameters_of(wishes, device)
    slots, positions = torch.tensor([[1, 0, 3, 2], [4, 2, -1, 0]], dtype=torch.int32).to(device)
    table = torch.full((4, 6), -7, dtype=torch.int32, device=device)
    out = torch.full((4,), -7, dtype=torch.int64, device=device)
    draw(logits, parameters, slots, positions, filtered=filtered, out=out, tokens_table=table)
    batch = SamplingBatch(parameters, slots.tolist(), positions.tolist())
    expected = TorchDrawer().draw(logits.float(), batch)
    assert torch.equal(out, expected)
    assert expected[3] == NO_TOKEN
    written = torch.full_like(table, -7)
    written[1, 4], written[0, 2], written[2, 0] = expected[0], expected[1], 0
    assert torch.equal(table, written), "padding is written nowhere, and no token as 0"


def test_wide_rows_are_read_by_their_stride(device: torch.device) -> None:
    wide = logits_of(2, 400, device)
    parameters = parameters_of([{"top_k": 3}], device)
    batch = SamplingBatch(parameters, [0] * 2, [1, 2])
    found = GpuDrawer().draw(wide[:, :301], batch)
    assert torch.equal(found, TorchDrawer().draw(wide[:, :301], batch))


def test_log_probabilities_are_those_of_the_plain_drawer(device: torch.device) -> None:
    logits = logits_of(3, 50, device)
    tokens = torch.tensor([3, 4, 5], device=device)
    found, expected = (drawer.logprobs(logits, tokens, 4) for drawer in (GpuDrawer(), TorchDrawer()))
    assert torch.equal(found.chosen, expected.chosen)
    assert torch.equal(found.top_ids, expected.top_ids)
