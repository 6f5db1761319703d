"""Decode attention against its reference: what each sequence sees, whatever the cut of the work."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from penstock.engine.gpu import reference_decode
from penstock.engine.gpu.batch import TILE_MEMBERS, DecodeBatch, SharedPrefixes
from penstock.engine.gpu.cache import PagedLayer, allocate
from penstock.engine.gpu.kernels import decode_attention
from penstock.engine.gpu.kernels.decode_attention import (
    attend_decodes,
    begin_decodes,
    workspace,
)
from penstock.engine.gpu.kernels.decode_prefixes import choose_shared_splits

SCALE = 0.3


@dataclass(frozen=True)
class Case:
    query: Tensor
    layer: PagedLayer
    batch: DecodeBatch

    def attend(self, **options: float | int | None) -> Tensor:
        sequences, heads, dim = self.query.shape
        splits = self.batch.shared.splits if self.batch.shared else 1
        longest = int(self.batch.lengths.max())
        windows = {options.get("window")}
        room = workspace(sequences, heads, dim, splits, self.query.device, longest=longest, windows=windows)
        out = torch.full(
            (sequences, heads * dim), float("nan"), dtype=self.query.dtype, device=self.query.device
        )
        for _ in range(2):  # a launch leaves the workspace as it found it
            begin_decodes(self.layer, self.batch, room)
            if self.query.is_cuda:  # in a step, kernels lie between
                torch.cuda.synchronize()
            attend_decodes(self.query, self.layer, self.batch, scale=SCALE, room=room, out=out, **options)
        return out

    def check(self, tolerance: float = 1e-5, **options: float | int | None) -> None:
        expected = reference_decode.attend_decodes(self.query, self.layer, self.batch, scale=SCALE, **options)
        torch.testing.assert_close(self.attend(**options).float(), expected, rtol=tolerance, atol=tolerance)


def make_case(
    lengths: list[int],
    device: torch.device,
    *,
    group: int = 2,
    kv_heads: int = 2,
    dim: int = 64,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    shared: int = 0,
    sharing: int | None = None,
    seed: int = 0,
) -> Case:
    """Sequences in scattered blocks, the first `shared` tokens of the first `sharing` of them (None: of all)
    in the same; unused places hold no number."""
    draw = torch.Generator().manual_seed(seed)
    most = max(1, max(-(-length // block_size) for length in lengths))
    needed = 1 + len(lengths) * most
    layer = allocate(1, kv_heads, needed, block_size, dim, cache_dtype or dtype, torch.device("cpu"))[0]
    scaled = layer.key_scales is not None
    rubbish = 0.0 if scaled else float("nan")
    order = 1 + torch.randperm(needed - 1, generator=draw)
    tables = order.view(len(lengths), most).to(torch.int32)
    tables[:sharing, : shared // block_size] = tables[0, : shared // block_size]
    for part, scales in ((layer.keys, layer.key_scales), (layer.values, layer.value_scales)):
        part.copy_(torch.randn(part.shape, generator=draw))
        if scales is not None:
            scales.copy_(torch.rand(scales.shape, generator=draw) + 0.5)
        part[0] = rubbish
    for index, length in enumerate(lengths):
        if length and length % block_size:
            for part in (layer.key_scales, layer.value_scales) if scaled else (layer.keys, layer.values):
                part[tables[index, length // block_size].long(), :, length % block_size :] = float("nan")
        tables[index, -(-length // block_size) :] = 0
    slots = torch.randperm(len(lengths), generator=draw)
    by_slot = torch.zeros_like(tables)
    by_slot[slots] = tables
    rows = torch.randn(len(lengths), (group + 2) * kv_heads * dim, generator=draw).to(dtype)
    query = rows.to(device)[:, : group * kv_heads * dim].view(len(lengths), group * kv_heads, dim)
    parts = (layer.keys, layer.values, layer.key_scales, layer.value_scales)
    return Case(
        query,
        PagedLayer(*(part if part is None else part.to(device) for part in parts)),
        DecodeBatch(
            slots.to(torch.int32).to(device),
            torch.tensor(lengths, dtype=torch.int32, device=device),
            by_slot.to(device),
        ),
    )


def share(case: Case, length: int, members: list[int], splits: int) -> Case:
    """The same case, where `members` read their first `length` tokens together."""
    device = case.query.device
    lengths = torch.zeros_like(case.batch.lengths)
    lengths[members] = length
    table = torch.full((2, TILE_MEMBERS), -1, dtype=torch.int32)  # the second tile is not used
    table[0, : len(members)] = torch.tensor(members)
    slot = int(case.batch.slots[members[0]])
    shared = SharedPrefixes(
        lengths,
        table.to(device),
        torch.tensor([slot, 0], dtype=torch.int32, device=device),
        torch.tensor([length, 0], dtype=torch.int32, device=device),
        splits,
    )
    return replace(case, batch=replace(case.batch, shared=shared))


def test_sequences_of_all_lengths_see_their_own_tokens(device: torch.device) -> None:
    make_case([1, 40, 0, 97], device, kv_heads=1).check()
    make_case([33], device, kv_heads=3).check()


@pytest.mark.parametrize("programs", [1, 2, 9])
def test_any_cut_of_the_work_gives_the_same(
    programs: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One program reads several heads to their ends; many leave partial results that the last one merges."""
    monkeypatch.setattr(decode_attention, "processors", lambda device: programs)
    make_case([70, 330, 3], device, kv_heads=1).check()
    share(make_case([70, 130, 95], device, kv_heads=1, shared=64), 64, [0, 1, 2], 2).check()


def test_what_is_no_number_stays_with_its_sequence(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_attention, "processors", lambda device: 1)
    case = make_case([70, 40, 90], device, kv_heads=1)
    expected = case.attend()
    first = case.batch.tables[case.batch.slots[0].long(), 0].long()
    case.layer.values[first] = float("nan")
    seen = case.attend()
    assert seen[0].isnan().all()
    torch.testing.assert_close(seen[1:], expected[1:])


def test_padding_gives_zeros(device: torch.device) -> None:
    assert not make_case([0, 0, 5], device).attend()[:2].any()


@pytest.mark.parametrize(
    ("dim", "group", "block_size"), [(80, 1, 16), (96, 3, 32), (128, 4, 64), (256, 2, 128), (64, 12, 16)]
)
def test_head_and_block_sizes_may_be_any(dim: int, group: int, block_size: int, device: torch.device) -> None:
    make_case([150, 31], device, dim=dim, group=group, kv_heads=1, block_size=block_size).check()


def test_half_precision_is_near(device: torch.device) -> None:
    make_case([100, 40], device, dtype=torch.float16).check(tolerance=3e-3)


@pytest.mark.parametrize("dim", [64, 80, 128, 256])
@pytest.mark.parametrize("block_size", [16, 64])
def test_eight_bit_vectors_are_scaled(dim: int, block_size: int, device: torch.device) -> None:
    case = make_case(
        [100, 40, 5],
        device,
        dim=dim,
        block_size=block_size,
        dtype=torch.float16,
        cache_dtype=torch.float8_e4m3fn,
    )
    case.check(tolerance=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [64, 96, 128, 256])
@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_many_sequences_of_many_tiles(dim: int, cache_dtype: torch.dtype, device: torch.device) -> None:
    lengths = torch.randint(1, 1500, (90,), generator=torch.Generator().manual_seed(dim)).tolist()
    case = make_case(
        lengths,
        device,
        dim=dim,
        kv_heads=4,
        group=4,
        block_size=64,
        dtype=torch.bfloat16,
        cache_dtype=cache_dtype,
    )
    expected = reference_decode.attend_decodes(case.query, case.layer, case.batch, scale=SCALE)
    found = case.attend().float()
    assert ((found - expected).norm() / expected.norm()) < 1e-2


def test_scores_are_capped(device: torch.device) -> None:
    make_case([60], device).check(softcap=2.0)


@pytest.mark.parametrize("window", [1, 40, 500])
def test_nothing_before_the_window_is_seen(window: int, device: torch.device) -> None:
    case = make_case([300, 0], device, kv_heads=1)
    far = case.batch.tables[case.batch.slots[0].long(), 0].long()
    if window < 250:
        case.layer.values[far] = float("nan")
        case.layer.keys[far] = float("nan")
    case.check(window=window)


@pytest.mark.parametrize("splits", [1, 4])
def test_a_shared_prefix_is_seen_by_its_members(splits: int, device: torch.device) -> None:
    case = make_case([300, 57, 49, 0], device, shared=48, kv_heads=1)
    share(case, 48, [0, 2], splits).check()


@pytest.mark.parametrize(
    "lengths",
    [[130, 57, 49, 0], [100, 0, 49, 64, 70, 60]],
    ids=["a program for each head", "programs with several heads"],
)
def test_what_is_seen_behind_a_shared_prefix_is_merged_with_it(
    lengths: list[int], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode_attention, "processors", lambda device: 1)
    case = make_case(lengths, device, shared=48, kv_heads=1, group=3, dim=128, dtype=torch.float16)
    share(case, 48, [0, 2], 4).check(tolerance=3e-3)


@pytest.mark.gpu
def test_many_sequences_behind_a_shared_prefix_on_a_gpu(device: torch.device) -> None:
    lengths = [260 + 7 * index for index in range(TILE_MEMBERS)] + [3 * index for index in range(48)]
    case = make_case(
        lengths, device, shared=256, sharing=TILE_MEMBERS, kv_heads=8, group=4, dim=128, dtype=torch.bfloat16
    )
    share(case, 256, list(range(TILE_MEMBERS)), 8).check(tolerance=2e-2)


def test_a_shared_prefix_in_eight_bits_is_scaled(device: torch.device) -> None:
    case = make_case(
        [60, 40], device, shared=32, kv_heads=1, dtype=torch.float16, cache_dtype=torch.float8_e4m3fn
    )
    share(case, 32, [0, 1], 2).check(tolerance=1e-2)


def test_a_shared_prefix_is_seen_through_each_members_window(device: torch.device) -> None:
    case = make_case([200, 170, 110, 97], device, shared=96, kv_heads=1)
    share(case, 96, [0, 1, 2, 3], 4).check(window=90)


def test_more_heads_than_a_tile_has_rows_read_a_prefix_in_turns(device: torch.device) -> None:
    case = make_case([40, 33], device, shared=32, kv_heads=1, group=16)
    share(case, 32, [0, 1], 2).check()


def test_a_prefix_is_cut_until_every_processor_has_two_programs() -> None:
    assert choose_shared_splits(4, 8, 2048, 132) == 8
    assert choose_shared_splits(32, 8, 2048, 132) == 1


def test_a_short_prefix_is_not_cut_below_two_tiles() -> None:
    assert choose_shared_splits(1, 8, 256, 132) == 2
