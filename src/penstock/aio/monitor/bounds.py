"""What a share of successes says about the probability behind it."""

from __future__ import annotations

import math

import numpy as np


def wilson(successes: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Lower and upper end of Wilson's interval, `z` standard deviations wide on either side."""
    if n <= 0:
        return 0.0, 1.0
    share, square = successes / n, z * z / n
    middle = share + square / 2
    spread = z * math.sqrt(share * (1 - share) / n + square / (4 * n))
    return max(0.0, (middle - spread) / (1 + square)), min(1.0, (middle + spread) / (1 + square))


def most_successes_below(threshold: float, n: int, z: float) -> int:
    """The most successes among n at which quality is surely under the threshold; -1 where none is."""
    low, high = -1, n
    while low < high:
        middle = (low + high + 1) // 2
        if wilson(middle, n, z)[1] < threshold:
            low = middle
        else:
            high = middle - 1
    return low


def samples_needed(
    quality: float, threshold: float = 0.85, *, z: float = 3.3, power: float = 0.95, most: int = 10_000
) -> int | None:
    """How many verdicts show, with probability `power`, that `quality` is under the threshold.

    None if more than `most` would be needed, as for a quality that is not under it.
    """
    if quality >= threshold:
        return None
    n = 1
    while n <= most:
        bound = most_successes_below(threshold, n, z)
        if bound >= 0 and _at_most(bound, n, quality) >= power:
            return n
        n += max(1, n // 50)
    return None


def _at_most(successes: int, n: int, quality: float) -> float:
    """The binomial distribution function."""
    if quality <= 0.0:
        return 1.0
    k = np.arange(n + 1)
    logs = np.cumsum(np.log(np.maximum(k, 1)))
    terms = logs[n] - logs[k] - logs[n - k] + k * math.log(quality) + (n - k) * math.log1p(-quality)
    return float(np.exp(terms[: successes + 1]).sum())
