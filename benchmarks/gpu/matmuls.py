"""Choose the library's algorithms for the matrix products of decode steps, by measuring them on this GPU.

  PYTHONPATH=src python -m benchmarks.gpu.matmuls --json src/penstock/engine/gpu/blas_choices.json
  PYTHONPATH=src python -m benchmarks.gpu.matmuls --json src/penstock/engine/gpu/blas_choices.json --summands

For each matrix and number of rows, what cuBLASLt proposes, and what is close to the best of it, is held
against what torch takes by itself. An algorithm is chosen if it is faster by more than 2% in two separate
passes. All products of a measurement have different weights, of more bytes than any cache holds.

Products that are added to the residual stream may be left in several summands, which are added up on the
way: these are held, adding included, against what was chosen of whole products (`--summands`, when that is
known).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from penstock.engine.gpu.blas import Blas, blas_of
from penstock.engine.gpu.blas_choices import FINE_ROWS, Algorithm, Choices, Table, read, version_name, write

from .products import BEGAN, Candidate, Matrix, coarse_first, compare, say
from .subjects import Shape, Subject
from .summands import tune_summands

SUBJECTS = ("llama8b:bfloat16", "qwen0.6b:bfloat16")
WORTH = 0.98  # of torch's time: what is not below is not chosen


@dataclass(slots=True)
class Measured:
    torch: list[float]  # microseconds, by pass
    best: list[float]
    algorithm: Algorithm | None  # None: torch's choice is as good
    tried: int = 0
    refused: int = 0

    @property
    def chosen(self) -> float:
        return median(self.torch if self.algorithm is None else self.best)


def worth(torch_times: Sequence[float], times: Sequence[float]) -> bool:
    return all(mine < WORTH * theirs for theirs, mine in zip(torch_times, times, strict=True))


def measure(matrices: Sequence[Matrix], rows: int) -> dict[str, Measured]:
    """The finals of the second pass come when all matrices have had their first."""
    finals: dict[str, list[Candidate]] = {}
    times: dict[str, list[list[float]]] = {}
    found: dict[str, Measured] = {}
    for matrix in matrices:
        finals[matrix.name], tried, refused = matrix.finalists(rows)
        found[matrix.name] = Measured([], [], None, tried, refused)
        times[matrix.name] = [compare([each.graph for each in finals[matrix.name]], 10)]
    for matrix in matrices:
        times[matrix.name].append(compare([each.graph for each in finals[matrix.name]], 10))
        measured, unit = found[matrix.name], 1000 / matrix.products
        passes = [[unit * each for each in one] for one in times[matrix.name]]
        measured.torch = measured.best = [one[0] for one in passes]
        if len(finals[matrix.name]) > 1:
            best = min(range(1, len(passes[0])), key=lambda index: sum(one[index] for one in passes))
            measured.best = [one[best] for one in passes]
            if worth(measured.torch, measured.best):
                measured.algorithm = finals[matrix.name][best].algorithm
        matrix.choices[rows] = measured.algorithm
    return found


def tune(
    subject: Subject, blas: Blas, sizes: Sequence[int], until: float, save: Callable[[str, Choices], None]
) -> None:
    shape = Shape.of(subject.model)
    fp8 = subject.precision == "fp8"
    dtype = torch.float8_e4m3fn if fp8 else getattr(torch, subject.precision)
    matrices = [Matrix(blas, dtype, *size, shape.layers) for size in shape.layer_matrices()]
    if not fp8:  # else the output matrix stays in 16 bits
        matrices.append(Matrix(blas, dtype, shape.vocabulary, shape.hidden, 1))
    steps: dict[int, tuple[float, float]] = {}
    for rows in coarse_first(sizes):
        if time.perf_counter() - BEGAN > until:
            say(f"{subject.spelled}: out of time; {len(steps)} of {len(sizes)} sizes are measured")
            break
        found = measure(matrices, rows)
        for matrix in matrices:
            say(line(rows, matrix.name, found[matrix.name]))
            save(matrix.name, matrix.choices)
        steps[rows] = (
            sum(matrix.times * median(found[matrix.name].torch) for matrix in matrices) / 1000,
            sum(matrix.times * found[matrix.name].chosen for matrix in matrices) / 1000,
        )
    say(f"{subject.spelled}: milliseconds of a step's products")
    for rows, (plain, chosen) in sorted(steps.items()):
        say(f"rows {rows:4d}  torch {plain:7.3f}  chosen {chosen:7.3f}  {chosen / plain - 1:+.1%}")


def line(rows: int, name: str, found: Measured) -> str:
    plain, best = median(found.torch), median(found.best)
    tried = f"{found.tried} tried" + (f", {found.refused} refused" if found.refused else "")
    what = "torch's" if found.algorithm is None else str(tuple(found.algorithm))
    times = f"torch {plain:6.1f} us  best {best:6.1f} us  {best / plain:.3f}"
    return f"rows {rows:4d}  {name:26s} {times}  {tried}  {what}"


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--subject", action="append", default=[], metavar="MODEL[:PRECISION]", help="may be repeated")
    add("--rows", default="", metavar="N,N", help="every eighth up to 256 unless given")
    add("--summands", action="store_true", help="choose which products are left in summands")
    add("--seconds", type=float, default=50.0, help="after so many no further size is begun")
    add("--json", type=Path, required=True, metavar="FILE", help="the table; what it holds already is kept")
    options = parser.parse_args(arguments)
    options.subjects = [Subject.read(text) for text in options.subject or SUBJECTS]
    options.rows = [int(rows) for rows in options.rows.split(",") if rows] or [*range(16, FINE_ROWS + 1, 8)]
    if options.summands and any(each.precision == "fp8" for each in options.subjects):
        parser.error("products in eight bits are not left in summands.")
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU here.")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    index = torch.cuda.current_device()
    blas = blas_of(index)
    if blas is None:
        sys.stderr.write("The library cuBLASLt cannot be used here; the log says why.\n")
        return 1
    gpu, version = torch.cuda.get_device_name(index), version_name(blas.library.version)
    table: Table = read(options.json.read_text()) if options.json.exists() else {}
    matrices = table.setdefault(gpu, {}).setdefault(version, {})
    say(f"{gpu}, cuBLASLt {blas.library.version}, torch {torch.__version__}")

    def save(name: str, choices: Choices) -> None:
        matrices.setdefault(name, {}).update(choices)
        options.json.write_text(write(table))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for number, subject in enumerate(options.subjects):
            spent = time.perf_counter() - BEGAN
            until = spent + (options.seconds - spent) / (len(options.subjects) - number)
            if options.summands:
                tune_summands(subject, blas, options.rows, until, matrices, save)
            else:
                tune(subject, blas, options.rows, until, save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
