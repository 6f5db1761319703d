"""Which algorithm of cuBLASLt was measured to be the fastest, by GPU, version of the library and sizes.

`blas_choices.json` is written by `python -m benchmarks.gpu.matmuls`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("blas_choices.json")


class Algorithm(NamedTuple):
    """The attributes that an algorithm is made again from; their values are the library's own."""

    id: int
    tile: int
    stages: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    inner_shape: int
    cluster: int


# By rows of x. None: none was faster than what the library takes by itself.
Choices = dict[int, Algorithm | None]
# By GPU, version of the library and matrix, as `matrix_name` calls it.
Table = dict[str, dict[str, dict[str, Choices]]]


def matrix_name(dtype: str, outputs: int, inputs: int, summands: int = 1) -> str:
    """`summands`: how many a product is left in, for whoever reads it to add up."""
    return f"{dtype} {outputs}x{inputs}" + (f"/{summands}" if summands > 1 else "")


def version_name(version: int) -> str:
    """Of what the library says: 130101 is 13.1."""
    return f"{version // 10000}.{version // 100 % 100}"


FINE_ROWS = 256  # up to here sizes are measured so closely that a choice serves those just below it too


def choice(choices: Mapping[int, Algorithm | None], rows: int) -> Algorithm | None:
    """That of the smallest measured number of rows that is not below; of many rows, of exactly so many."""
    if rows > FINE_ROWS:
        return choices.get(rows)
    size = min((size for size in choices if rows <= size <= FINE_ROWS), default=None)
    return None if size is None else choices[size]


def read(text: str) -> Table:
    return {
        gpu: {
            version: {
                matrix: {
                    int(rows): None if found is None else Algorithm(*found) for rows, found in by.items()
                }
                for matrix, by in matrices.items()
            }
            for version, matrices in versions.items()
        }
        for gpu, versions in json.loads(text).items()
    }


def write(table: Table) -> str:
    """A line for each number of rows, so that a change shows what it changes."""
    parts = []
    for gpu, versions in table.items():
        inner = []
        for version, matrices in versions.items():
            lines = [
                f"   {json.dumps(matrix)}: {{\n"
                + ",\n".join(f'    "{rows}": {json.dumps(by[rows])}' for rows in sorted(by))
                + "\n   }"
                for matrix, by in sorted(matrices.items())
            ]
            inner.append(f"  {json.dumps(version)}: {{\n" + ",\n".join(lines) + "\n  }")
        parts.append(f" {json.dumps(gpu)}: {{\n" + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


@cache
def checked_in() -> Table:
    return read(FILE.read_text())
