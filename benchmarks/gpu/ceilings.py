"""What the GPU can do at most, measured: bandwidth, matrix products, and all of a step's in one graph.

Products in eight bits are measured in two forms, and the faster counts: with a scale for each row and
channel, and without scales, which the library computes much faster for few rows.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from .subjects import Shape

BATCHES = (1, 16, 32, 64, 96, 128, 160, 192, 224, 256)
BUFFER_BYTES = 4 << 30
LARGE = 8192  # rows and columns of a matrix product that fills the chip
E4M3_MOST = 448.0


@dataclass(slots=True)
class Ceilings:
    device: str
    read_tb_per_second: float = 0.0
    copy_tb_per_second: float = 0.0  # bytes read and bytes written
    bf16_tflop_per_second: float = 0.0
    fp8_tflop_per_second: float = 0.0  # 0: this GPU has no such matrix product
    # Milliseconds of all matrix products of a decode step: by model, precision and batch.
    step_ms: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)

    def tflops(self, precision: str) -> float:
        return self.fp8_tflop_per_second if precision == "fp8" else self.bf16_tflop_per_second

    def matmuls(self, model: str, precision: str, batch: int) -> float | None:
        """Milliseconds at any batch, on a line between those that were measured."""
        known = self.step_ms.get(model, {}).get(precision)
        if not known:
            return None
        sizes = sorted(known)
        if batch <= sizes[0]:
            return known[sizes[0]]
        for low, high in itertools.pairwise(sizes):
            if batch <= high:
                return known[low] + (known[high] - known[low]) * (batch - low) / (high - low)
        return known[sizes[-1]] * batch / sizes[-1]


def milliseconds(work: Callable[[], object], repeats: int = 20, warm_up: int = 5) -> float:
    """The median by the device's own clock."""
    for _ in range(warm_up):
        work()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def measure(models: dict[str, set[str]], device: torch.device) -> Ceilings:
    """`models`: the precisions that each is wanted in."""
    found = Ceilings(torch.cuda.get_device_name(device))
    found.copy_tb_per_second, found.read_tb_per_second = _bandwidths(device)
    found.bf16_tflop_per_second = _large_product(device, fp8=False)
    if torch.cuda.get_device_capability(device) >= (8, 9):
        found.fp8_tflop_per_second = _large_product(device, fp8=True)
    for model, precisions in models.items():
        for precision in sorted(precisions):
            if precision == "fp8" and not found.fp8_tflop_per_second:
                continue
            steps = found.step_ms.setdefault(model, {})
            steps[precision] = _steps(Shape.of(model), precision, device)
            torch.cuda.empty_cache()
    return found


def _bandwidths(device: torch.device) -> tuple[float, float]:
    """Of copying and of reading, TB/s."""
    source = torch.randn(BUFFER_BYTES // 4, device=device)
    target = torch.empty_like(source)
    copying = milliseconds(lambda: target.copy_(source))
    # Whichever is faster: they add or compare, but wait for memory.
    reading = min(milliseconds(lambda: source.sum()), milliseconds(lambda: source.amax()))
    return 2 * BUFFER_BYTES / copying / 1e9, BUFFER_BYTES / reading / 1e9


def _large_product(device: torch.device, *, fp8: bool) -> float:
    """TFLOP/s."""
    one, other = (torch.randn(LARGE, LARGE, device=device, dtype=torch.bfloat16) for _ in range(2))
    if fp8:
        x, weight = _quantized(one), _quantized(other)
        products = [_fp8_product(x, weight, scaled=scaled) for scaled in (True, False)]
    else:
        products = [_product(one, other)]
    return 2 * LARGE**3 / min(milliseconds(product) for product in products) / 1e9


def _steps(shape: Shape, precision: str, device: torch.device) -> dict[int, float]:
    """All matrix products of a decode step, by batch. Each has weights of its own: none stay in a cache."""
    dtype = torch.bfloat16 if precision == "fp8" else getattr(torch, precision)
    sizes = [*shape.layer_matrices() * shape.layers, (shape.vocabulary, shape.hidden)]
    weights = [torch.empty(size, device=device, dtype=dtype).normal_(0, 0.02) for size in sizes]
    # The output matrix stays in 16 bits.
    small = [_quantized(weight) for weight in weights[:-1]] if precision == "fp8" else []
    if small:
        weights = weights[-1:]
    found = {}
    for batch in BATCHES:
        plain = [_product(_rows(batch, w, dtype), w) for w in weights]
        pairs = [(_quantized(_rows(batch, w[0])), w) for w in small]
        forms = (True, False) if small else (True,)
        found[batch] = min(
            _together([*(_fp8_product(x, w, scaled=scaled) for x, w in pairs), *plain]) for scaled in forms
        )
    return found


def _together(products: Sequence[Callable[[], object]]) -> float:
    """Milliseconds of all in one graph."""
    for product in products:
        product()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for product in products:
            product()
    return milliseconds(graph.replay)


def _rows(batch: int, weight: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(batch, weight.shape[1], device=weight.device, dtype=dtype)


def _product(x: torch.Tensor, weight: torch.Tensor) -> Callable[[], object]:
    out = torch.empty(len(x), len(weight), device=x.device, dtype=x.dtype)
    return lambda: torch.mm(x, weight.T, out=out)


def _quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """E4M3 and a scale for each row."""
    scales = x.abs().amax(dim=1, keepdim=True).float() / E4M3_MOST
    return (x / scales).to(torch.float8_e4m3fn), scales


def _fp8_product(
    x: tuple[torch.Tensor, torch.Tensor], weight: tuple[torch.Tensor, torch.Tensor], *, scaled: bool
) -> Callable[[], object]:
    """Where it is not scaled, whoever reads it multiplies by the scales."""
    (rows, row_scales), (columns, column_scales) = x, weight
    one = row_scales.new_ones(())
    by_row, by_column = (row_scales, column_scales.T.contiguous()) if scaled else (one, one)
    return lambda: torch._scaled_mm(
        rows,
        columns.T,
        scale_a=by_row,
        scale_b=by_column,
        out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )
