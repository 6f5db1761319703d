"""Plain tables for terminals and pipes alike: aligned, never cut."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> str:
    """Lines of columns, the last `numbers` of them aligned to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    texts = len(head) - numbers
    lines = [
        "  ".join(
            cell.ljust(width) if column < texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    return "\n".join(lines)
