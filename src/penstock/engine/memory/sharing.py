"""Which sequences of a step begin with the same blocks, so that the device reads those once for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

MOST_LEVELS = 4  # of groups inside groups that are looked for: a step waits for this
_FIRST_PIECE = 64  # blocks


@dataclass(frozen=True, slots=True)
class Group:
    """The first `blocks` blocks of all `members` are the same; members are positions in the given tables."""

    members: list[int]
    blocks: int


def shared_prefixes(
    tables: Sequence[Sequence[int]], block_size: int, *, least_tokens: int = 256, least_members: int = 4
) -> list[Group]:
    """Groups that save many block reads; nobody is in two.

    A group of m members saves (m - 1) times its blocks. Who shares more with some than with all of a
    group goes with those where that saves more. Groups of fewer members or a shorter prefix than asked
    for are not worth the device's trouble.
    """
    least_members = max(2, least_members)
    least_blocks = max(1, -(-least_tokens // block_size))
    found: list[Group] = []
    for members in _alike(tables, range(len(tables)), 0, least_blocks, least_members):
        found += _best(tables, members, least_blocks, least_members, MOST_LEVELS)[1]
    return found


def _alike(
    tables: Sequence[Sequence[int]], members: Sequence[int], start: int, end: int, least: int
) -> list[list[int]]:
    """Those who have the same blocks from `start` to `end`, where they are enough."""
    # Nearly always who has the last of these blocks in common has all: most are settled by one number.
    counts = Counter(tables[member][end - 1] for member in members if end <= len(tables[member]))
    by_blocks: dict[tuple[int, ...], list[int]] = {}
    for member in members:
        table = tables[member]
        if end <= len(table) and counts[table[end - 1]] >= least:
            by_blocks.setdefault(tuple(table[start:end]), []).append(member)
    return [alike for alike in by_blocks.values() if len(alike) >= least]


def _best(
    tables: Sequence[Sequence[int]], members: list[int], known: int, least_members: int, levels: int
) -> tuple[int, list[Group]]:
    """How to group members that share at least `known` blocks: the reads it saves, and the groups."""
    blocks = _common(tables, members, known)
    together = (len(members) - 1) * blocks
    apart = 0
    groups: list[Group] = []
    leaving: set[int] = set()
    for alike in _alike(tables, members, blocks, blocks + 1, least_members) if levels else ():
        saved, parts = _best(tables, alike, blocks + 1, least_members, levels - 1)
        if saved > len(alike) * blocks:
            apart += saved
            groups += parts
            leaving.update(alike)
    staying = [member for member in members if member not in leaving]
    if leaving and len(staying) >= least_members:
        apart += (len(staying) - 1) * blocks
        groups.append(Group(staying, blocks))
    if together >= apart:
        return together, [Group(members, blocks)]
    return apart, groups


def _common(tables: Sequence[Sequence[int]], members: list[int], known: int) -> int:
    """How many blocks all members begin with, of which the first `known` are known to be the same."""
    ours = [tables[member] for member in members]
    same, most, length = known, min(map(len, ours)), _FIRST_PIECE
    while same < most:
        # Asking for blocks one by one is slow: pieces are compared, each twice as long as the one before.
        end = min(same + length, most)
        piece = ours[0][same:end]
        for table in ours:
            other = table[same : same + len(piece)]
            if other != piece:
                piece = piece[: _parting(piece, other)]
        same += len(piece)
        if same < end:
            break
        length *= 2
    return same


def _parting(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Where the first difference is, of which there is one; by halves."""
    low, high = 0, len(ours) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if ours[low:middle] == theirs[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
