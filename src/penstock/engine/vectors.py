"""What becomes of the vectors an engine gives: plain arithmetic, no torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.errors import InvalidRequestError

Vector = npt.NDArray[np.float32]


def vector(embedding: bytes) -> Vector:
    """An event's `embedding` as numbers."""
    return np.frombuffer(embedding, dtype="<f4")


def check_dimensions(wanted: int | None, size: int) -> None:
    if wanted is not None and not 1 <= wanted <= size:
        raise InvalidRequestError(
            f"dimensions must be between 1 and the model's {size}, got {wanted}.", param="dimensions"
        )


def finished(values: Vector, *, dimensions: int | None = None, normalize: bool = True) -> Vector:
    """The first `dimensions` numbers, brought to length 1 unless told otherwise."""
    shortened = values[:dimensions]
    if not normalize:
        return shortened
    length = float(np.linalg.norm(shortened.astype(np.float64)))
    # A vector of zeros has no direction to keep.
    return (shortened / length).astype("<f4") if length > 0 else shortened


def similarity(left: Vector, right: Vector) -> float:
    """The cosine of the angle between two vectors, -1 to 1."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return max(-1.0, min(1.0, float(a @ b) / lengths)) if lengths > 0 else 0.0
