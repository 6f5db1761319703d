"""Choose which products are left in several summands, which are added up on the way, by measuring them.

They are held, the adding included, against what was chosen of whole products.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from penstock.engine.gpu.blas import ALIGNMENT, SUMMANDS, Blas, BlasError, Product
from penstock.engine.gpu.blas_choices import Algorithm, Choices, choice
from penstock.engine.gpu.kernels.norm import add_norm

from .products import (
    BEGAN,
    ERROR,
    FINALISTS,
    PROPOSED,
    Candidate,
    Matrix,
    coarse_first,
    compare,
    complain,
    random,
    say,
)
from .subjects import Shape, Subject

WORTH = 0.99  # of the whole product's time, adding included: what is not below is not chosen


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
            found, text = in_summands(matrix, rows, choice(known.get(matrix.name, {}), rows))
            say(text)
            for summands, choices in found.items():
                save(Matrix.name_of(*matrix.shape, summands), choices)


def in_summands(matrix: Matrix, rows: int, whole: Algorithm | None) -> tuple[dict[int, Choices], str]:
    """What is chosen of products in summands, by how many, and a line that says so; `whole`: what is
    chosen of those in one. The residual and the norm behind it are measured with each."""
    dtype, outputs, inputs = matrix.shape
    x = random(rows, inputs, dtype, matrix.blas.device, 1.0)
    hidden = random(rows, outputs, dtype, matrix.blas.device, 1.0)
    normed, weight = torch.empty_like(hidden), torch.ones_like(hidden[0])

    def added(work: Callable[[torch.Tensor], object], out: torch.Tensor) -> torch.cuda.CUDAGraph:
        def both(operand: torch.Tensor) -> None:
            work(operand)
            add_norm(hidden, out, weight, 1e-5, multiplier=0.0, out=normed)

        both(matrix.weights[0])
        return matrix.captured(both)

    def graph_of(algorithm: Algorithm | None, summands: int) -> Candidate:
        product = Product(matrix.blas, dtype, outputs, inputs, rows, summands)
        out = torch.empty(product.shape, dtype=product.dtype, device=matrix.blas.device)
        if algorithm is None:
            return Candidate(None, added(lambda operand: matrix.multiply(x, operand, out), out), (x, out))
        work = matrix.work(product, algorithm, x, out)
        work(matrix.weights[0])
        expected = x.float() @ matrix.weights[0].float().t()
        found = out.float().sum(0) if summands > 1 else out.float()
        if not float((found - expected).norm() / expected.norm()) <= ERROR[dtype.itemsize]:
            raise BlasError(f"The product in {summands} summands by algorithm {algorithm.id} is wrong.")
        return Candidate(algorithm, added(work, out), (x, out))

    candidates, cuts = [graph_of(whole, 1)], [1]
    for summands in SUMMANDS[1:]:
        if inputs * dtype.itemsize % (summands * ALIGNMENT):
            continue
        product = Product(matrix.blas, dtype, outputs, inputs, rows, summands)
        for algorithm in dict.fromkeys(product.heuristics(PROPOSED // 2, split=False)):
            try:
                candidates.append(graph_of(algorithm, summands))
                cuts.append(summands)
            except BlasError as error:
                complain(str(error))
    first = compare([each.graph for each in candidates], 3)
    ranked = [0, *sorted(range(1, len(candidates)), key=lambda index: first[index])[:FINALISTS]]
    passes = [compare([candidates[index].graph for index in ranked], 10) for _ in range(2)]
    unit = 1000 / matrix.products
    chosen: dict[int, Choices] = {summands: {rows: None} for summands in SUMMANDS[1:]}
    text = f"rows {rows:4d}  {matrix.name:26s} whole {unit * passes[0][0]:6.1f} us"
    if len(ranked) > 1:
        best = min(range(1, len(ranked)), key=lambda place: sum(one[place] for one in passes))
        winner, summands = candidates[ranked[best]], cuts[ranked[best]]
        text += f"  in {summands} {unit * passes[0][best]:6.1f} us  {passes[0][best] / passes[0][0]:.3f}"
        if all(one[best] < WORTH * one[0] for one in passes):
            chosen[summands][rows] = winner.algorithm
            text += f"  {winner.algorithm and tuple(winner.algorithm)}"
    return chosen, text
