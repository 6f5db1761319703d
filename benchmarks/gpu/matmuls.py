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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import torch

from penstock.engine.gpu.blas import ALIGNMENT, SUMMANDS, Blas, BlasError, Product, blas_of
from penstock.engine.gpu.blas_choices import (
    FINE_ROWS,
    Algorithm,
    Choices,
    Table,
    choice,
    matrix_name,
    read,
    version_name,
    write,
)
from penstock.engine.gpu.kernels.norm import add_norm

from .subjects import Shape, Subject

SUBJECTS = ("llama8b:bfloat16", "qwen0.6b:bfloat16")
PROPOSED = 24  # algorithms of one request
FINALISTS = 4
WORTH = 0.98  # of torch's time: what is not below is not chosen
WORTH_SUMMANDS = 0.99  # of the whole product's, adding included
WEIGHT_BYTES = 768 << 20  # that a measurement reads
ERROR = {1: 2e-2, 2: 5e-3}  # relative, of all of a product; by bytes of a number
CLUSTERS = (2, 3, 4, 5, 6, 8)  # 1x1, 2x1, 4x1, 1x2, 2x2, 1x4 programs
SPLITS = (1, 2, 3, 4, 5, 6, 8)
FLOAT32_REDUCTION = 2
BEGAN = time.perf_counter()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    algorithm: Algorithm | None  # None: torch's choice
    graph: torch.cuda.CUDAGraph
    tensors: tuple[torch.Tensor, ...]  # that the graph reads and writes, without keeping them


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


class Matrix:
    """One of a step's matrices, as often as it takes that no product finds its weight cached."""

    def __init__(self, blas: Blas, dtype: torch.dtype, outputs: int, inputs: int, times: int) -> None:
        self.name = self.name_of(dtype, outputs, inputs, 1)
        self.times = times  # in a step
        self.shape = (dtype, outputs, inputs)
        self.choices: Choices = {}
        self._blas = blas
        count = min(64, max(2, -(-WEIGHT_BYTES // (outputs * inputs * dtype.itemsize))))
        self._weights = [random(outputs, inputs, dtype, blas.device, 0.02) for _ in range(count)]
        self._one = torch.ones((), device=blas.device)

    @staticmethod
    def name_of(dtype: torch.dtype, outputs: int, inputs: int, summands: int) -> str:
        return matrix_name(str(dtype).removeprefix("torch."), outputs, inputs, summands)

    def in_summands(self, rows: int, whole: Algorithm | None) -> tuple[dict[int, Choices], str]:
        """What is chosen of products in summands, by how many, and a line that says so; `whole`: what is
        chosen of those in one. The residual and the norm behind it are measured with each."""
        dtype, outputs, inputs = self.shape
        x = random(rows, inputs, dtype, self._blas.device, 1.0)
        hidden = random(rows, outputs, dtype, self._blas.device, 1.0)
        normed, weight = torch.empty_like(hidden), torch.ones_like(hidden[0])

        def added(work: Callable[[torch.Tensor], object], out: torch.Tensor) -> torch.cuda.CUDAGraph:
            def both(matrix: torch.Tensor) -> None:
                work(matrix)
                add_norm(hidden, out, weight, 1e-5, multiplier=0.0, out=normed)

            both(self._weights[0])
            return self._captured(both)

        def graph_of(algorithm: Algorithm | None, summands: int) -> Candidate:
            product = Product(self._blas, dtype, outputs, inputs, rows, summands)
            out = torch.empty(product.shape, dtype=product.dtype, device=self._blas.device)
            if algorithm is None:
                return Candidate(None, added(lambda matrix: self._multiply(x, matrix, out), out), (x, out))
            work = self._work(product, algorithm, x, out)
            work(self._weights[0])
            expected = x.float() @ self._weights[0].float().t()
            found = out.float().sum(0) if summands > 1 else out.float()
            if not float((found - expected).norm() / expected.norm()) <= ERROR[dtype.itemsize]:
                raise BlasError(f"The product in {summands} summands by algorithm {algorithm.id} is wrong.")
            return Candidate(algorithm, added(work, out), (x, out))

        candidates, cuts = [graph_of(whole, 1)], [1]
        for summands in SUMMANDS[1:]:
            if inputs * dtype.itemsize % (summands * ALIGNMENT):
                continue
            product = Product(self._blas, dtype, outputs, inputs, rows, summands)
            for algorithm in dict.fromkeys(product.heuristics(PROPOSED // 2, split=False)):
                try:
                    candidates.append(graph_of(algorithm, summands))
                    cuts.append(summands)
                except BlasError as error:
                    complain(str(error))
        first = compare([each.graph for each in candidates], 3)
        ranked = [0, *sorted(range(1, len(candidates)), key=lambda index: first[index])[:FINALISTS]]
        passes = [compare([candidates[index].graph for index in ranked], 10) for _ in range(2)]
        unit = 1000 / self.products
        chosen: dict[int, Choices] = {summands: {rows: None} for summands in SUMMANDS[1:]}
        text = f"rows {rows:4d}  {self.name:26s} whole {unit * passes[0][0]:6.1f} us"
        if len(ranked) > 1:
            best = min(range(1, len(ranked)), key=lambda place: sum(one[place] for one in passes))
            winner, summands = candidates[ranked[best]], cuts[ranked[best]]
            text += f"  in {summands} {unit * passes[0][best]:6.1f} us  {passes[0][best] / passes[0][0]:.3f}"
            if all(one[best] < WORTH_SUMMANDS * one[0] for one in passes):
                chosen[summands][rows] = winner.algorithm
                text += f"  {winner.algorithm and tuple(winner.algorithm)}"
        return chosen, text

    def finalists(self, rows: int) -> tuple[list[Candidate], int, int]:
        """Torch's choice, then the best others; how many were tried, and how many proposals did not do."""
        dtype, outputs, inputs = self.shape
        product = Product(self._blas, dtype, outputs, inputs, rows)
        x = random(rows, inputs, dtype, self._blas.device, 1.0)
        out = torch.empty(rows, outputs, dtype=product.dtype, device=self._blas.device)
        expected = self._multiply(x, self._weights[0], out).float()
        plain = Candidate(None, self._captured(lambda weight: self._multiply(x, weight, out)), (x, out))
        times: dict[Candidate, float] = {}
        tried: set[Algorithm] = set()

        def attempt(algorithms: Iterable[Algorithm]) -> list[str]:
            """What is wrong with those that do not do."""
            fresh, refused = [], []
            for algorithm in dict.fromkeys(algorithms):
                if algorithm in tried:
                    continue
                tried.add(algorithm)
                try:
                    work = self._work(product, algorithm, x, out)
                    out.fill_(float("nan"))
                    work(self._weights[0])
                    difference = float((out.float() - expected).norm() / expected.norm())
                    if not difference <= ERROR[dtype.itemsize]:
                        raise BlasError(f"The product by algorithm {algorithm.id} is wrong.")
                    fresh.append(Candidate(algorithm, self._captured(work), (x, out)))
                except BlasError as error:
                    refused.append(str(error))
            times.update(zip(fresh, compare([each.graph for each in fresh], 3), strict=True))
            return refused

        refused = attempt(self._proposed(product))
        for reason in refused:
            complain(reason)
        # The best for other rows, and what is near the best of these, need not exist for these sizes.
        attempt(each for each in self.choices.values() if each is not None)
        leading = sorted(times, key=lambda each: times[each])[:2]
        near = [one for each in leading if each.algorithm is not None for one in neighbours(each.algorithm)]
        attempt(near)
        ranked = sorted(times, key=lambda each: times[each])
        return [plain, *ranked[:FINALISTS]], len(times), len(refused)

    def _proposed(self, product: Product) -> list[Algorithm]:
        found: list[Algorithm] = []
        for request in ({}, {"split": False}, {"waves": 1.0}, {"waves": 2.0}):
            try:
                found += product.heuristics(PROPOSED, **request)
            except BlasError as error:
                complain(f"{request}: {error}")
        return found

    def _work(
        self, product: Product, algorithm: Algorithm, x: torch.Tensor, out: torch.Tensor
    ) -> Callable[[torch.Tensor], object]:
        ready = product.ready(algorithm)

        def work(weight: torch.Tensor) -> None:
            status = product.launch(x, weight, out, ready)
            if status:
                raise BlasError(f"cublasLtMatmul returned status {status}.")

        return work

    def _multiply(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if x.dtype.itemsize > 1:
            return torch.mm(x, weight.t(), out=out)
        return torch._scaled_mm(
            x,
            weight.t(),
            scale_a=self._one,
            scale_b=self._one,
            out_dtype=out.dtype,
            use_fast_accum=True,
            out=out,
        )

    def _captured(self, work: Callable[[torch.Tensor], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for weight in self._weights:
                work(weight)
        finally:
            graph.capture_end()
        return graph

    @property
    def products(self) -> int:
        """In one graph."""
        return len(self._weights)


def random(
    rows: int, columns: int, dtype: torch.dtype, device: torch.device, deviation: float
) -> torch.Tensor:
    return torch.empty(rows, columns, dtype=torch.bfloat16, device=device).normal_(0, deviation).to(dtype)


def neighbours(algorithm: Algorithm) -> list[Algorithm]:
    """The same with other clusters of programs, orders of tiles and cuts of the sum."""
    found = [algorithm._replace(cluster=cluster) for cluster in CLUSTERS]
    found.append(algorithm._replace(swizzle=1 - min(algorithm.swizzle, 1)))
    for split in SPLITS:
        reduction = FLOAT32_REDUCTION if split > 1 else 0
        found.append(algorithm._replace(split_k=split, reduction=reduction))
    return [each for each in dict.fromkeys(found) if each != algorithm]


def coarse_first(sizes: Sequence[int]) -> list[int]:
    """So that whatever time is left out, what was measured is spread."""
    return sorted(sizes, key=lambda rows: (rows % 64 != 0, rows % 32 != 0, rows % 16 != 0, rows))


def worth(torch_times: Sequence[float], times: Sequence[float]) -> bool:
    return all(mine < WORTH * theirs for theirs, mine in zip(torch_times, times, strict=True))


def compare(graphs: Sequence[torch.cuda.CUDAGraph], rounds: int) -> list[float]:
    """Milliseconds of each, which take turns, so that a clock that changes changes for all."""
    for graph in graphs:
        graph.replay()
    events = [[(event(), event()) for _ in range(rounds)] for _ in graphs]
    for number in range(rounds):
        for graph, pairs in zip(graphs, events, strict=True):
            begin, end = pairs[number]
            begin.record()
            graph.replay()
            end.record()
    torch.cuda.synchronize()
    return [median(begin.elapsed_time(end) for begin, end in pairs) for pairs in events]


def event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


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


def tune_summands(
    subject: Subject,
    blas: Blas,
    sizes: Sequence[int],
    until: float,
    known: dict[str, Choices],
    save: Callable[[str, Choices], None],
) -> None:
    shape = Shape.of(subject.model)
    dtype = getattr(torch, subject.precision)
    _, output, _, down = shape.layer_matrices()
    matrices = [Matrix(blas, dtype, *size, shape.layers) for size in (output, down)]
    for rows in coarse_first(sizes):
        if time.perf_counter() - BEGAN > until:
            say(f"{subject.spelled}: out of time at {rows} rows")
            break
        for matrix in matrices:
            found, text = matrix.in_summands(rows, choice(known.get(matrix.name, {}), rows))
            say(text)
            for summands, choices in found.items():
                save(Matrix.name_of(*matrix.shape, summands), choices)


def line(rows: int, name: str, found: Measured) -> str:
    plain, best = median(found.torch), median(found.best)
    tried = f"{found.tried} tried" + (f", {found.refused} refused" if found.refused else "")
    what = "torch's" if found.algorithm is None else str(tuple(found.algorithm))
    times = f"torch {plain:6.1f} us  best {best:6.1f} us  {best / plain:.3f}"
    return f"rows {rows:4d}  {name:26s} {times}  {tried}  {what}"


@cache  # each once
def complain(text: str) -> None:
    say(text)


def say(text: str) -> None:
    sys.stdout.write(f"[{time.perf_counter() - BEGAN:5.1f} s] {text}\n")
    sys.stdout.flush()


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
