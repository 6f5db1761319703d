"""How the algorithms of matrix products are chosen from what was measured."""

from __future__ import annotations

from benchmarks.gpu.matmuls import worth
from benchmarks.gpu.products import coarse_first, neighbours

from penstock.engine.gpu.blas_choices import Algorithm

ALGORITHM = Algorithm(66, 513, 35, 1, 0, 1, 12, 0, 3)


def test_an_algorithm_is_chosen_only_if_it_is_faster_in_both_passes() -> None:
    assert worth([10.0, 10.0], [9.7, 9.7])
    assert not worth([10.0, 10.0], [9.9, 9.0])
    assert not worth([10.0, 10.0], [9.0, 9.9])


def test_sizes_that_are_far_apart_come_first() -> None:
    assert coarse_first([8, 16, 24, 32, 40, 48, 64, 96, 128]) == [64, 128, 32, 96, 16, 48, 8, 24, 40]


def test_what_is_close_to_an_algorithm_differs_in_one_way_and_sums_in_float32() -> None:
    found = neighbours(ALGORITHM)
    assert ALGORITHM not in found
    assert len({*found}) == len(found)
    for near in found:
        differing = {name for name in near._fields if getattr(near, name) != getattr(ALGORITHM, name)}
        assert differing in ({"cluster"}, {"swizzle"}, {"split_k", "reduction"})
        assert (near.reduction == 2) == (near.split_k > 1)
