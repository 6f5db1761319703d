"""Numbers that several kernels compute with."""

from __future__ import annotations

import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exponentials are computed as powers of two
# The score of what a row does not see. Not minus infinity: a row that has seen nothing yet gets rubbish that
# its first key multiplies by zero. A power of two, since its product with any scale must be exact: the fused
# multiply-add that subtracts the largest score would keep what rounding lost, 1e20 and more, and overflow.
HIDDEN = tl.constexpr(-(2.0**100))


# On the host Triton's own take longer than all else that is computed for a launch.
def power_of_two(number: int) -> int:
    """The least that is not below."""
    return 1 << (number - 1).bit_length()


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)
