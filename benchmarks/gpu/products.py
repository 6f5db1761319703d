"""Matrix products as they are measured: algorithms of the library, captured and held against each other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

import torch

from penstock.engine.gpu.blas import Blas, BlasError, Product
from penstock.engine.gpu.blas_choices import Algorithm, Choices, matrix_name

PROPOSED = 24  # algorithms of one request
FINALISTS = 4
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


class Matrix:
    """One of a step's matrices, as often as it takes that no product finds its weight cached."""

    def __init__(self, blas: Blas, dtype: torch.dtype, outputs: int, inputs: int, times: int) -> None:
        self.name = self.name_of(dtype, outputs, inputs, 1)
        self.times = times  # in a step
        self.shape = (dtype, outputs, inputs)
        self.choices: Choices = {}
        self.blas = blas
        count = min(64, max(2, -(-WEIGHT_BYTES // (outputs * inputs * dtype.itemsize))))
        self.weights = [random(outputs, inputs, dtype, blas.device, 0.02) for _ in range(count)]
        self._one = torch.ones((), device=blas.device)

    @staticmethod
    def name_of(dtype: torch.dtype, outputs: int, inputs: int, summands: int) -> str:
        return matrix_name(str(dtype).removeprefix("torch."), outputs, inputs, summands)

    def finalists(self, rows: int) -> tuple[list[Candidate], int, int]:
        """Torch's choice, then the best others; how many were tried, and how many proposals did not do."""
        dtype, outputs, inputs = self.shape
        product = Product(self.blas, dtype, outputs, inputs, rows)
        x = random(rows, inputs, dtype, self.blas.device, 1.0)
        out = torch.empty(rows, outputs, dtype=product.dtype, device=self.blas.device)
        expected = self.multiply(x, self.weights[0], out).float()
        plain = Candidate(None, self.captured(lambda weight: self.multiply(x, weight, out)), (x, out))
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
                    work = self.work(product, algorithm, x, out)
                    out.fill_(float("nan"))
                    work(self.weights[0])
                    difference = float((out.float() - expected).norm() / expected.norm())
                    if not difference <= ERROR[dtype.itemsize]:
                        raise BlasError(f"The product by algorithm {algorithm.id} is wrong.")
                    fresh.append(Candidate(algorithm, self.captured(work), (x, out)))
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

    def work(
        self, product: Product, algorithm: Algorithm, x: torch.Tensor, out: torch.Tensor
    ) -> Callable[[torch.Tensor], object]:
        ready = product.ready(algorithm)

        def work(weight: torch.Tensor) -> None:
            status = product.launch(x, weight, out, ready)
            if status:
                raise BlasError(f"cublasLtMatmul returned status {status}.")

        return work

    def multiply(self, x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
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

    def captured(self, work: Callable[[torch.Tensor], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for weight in self.weights:
                work(weight)
        finally:
            graph.capture_end()
        return graph

    @property
    def products(self) -> int:
        """In one graph."""
        return len(self.weights)


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


@cache  # each once
def complain(text: str) -> None:
    say(text)


def say(text: str) -> None:
    sys.stdout.write(f"[{time.perf_counter() - BEGAN:5.1f} s] {text}\n")
    sys.stdout.flush()
