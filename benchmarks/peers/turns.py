"""In which order servers are measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

OURS = "penstock"


@dataclass(frozen=True, slots=True)
class Turn:
    system: str
    workload: str
    repeat: int
    prompts: int  # which prompts: no two turns of a workload have the same


def turns(peers: Mapping[str, Sequence[str]], workloads: Sequence[str], repeats: int) -> list[Turn]:
    """Peer, Penstock, next peer, Penstock: for each workload of each repeat. `peers` has what each can run.

    Penstock runs right after every peer, so that whatever slows the machine for a while slows both; another
    peer begins in every repeat.
    """
    order: list[Turn] = []
    names = list(peers)
    for repeat in range(repeats):
        first = repeat % max(1, len(names))
        for workload in workloads:
            able = [name for name in names[first:] + names[:first] if workload in peers[name]]
            row = [system for name in able for system in (name, OURS)] or [OURS]
            order += [
                Turn(system, workload, repeat, repeat * 2 * max(1, len(names)) + place)
                for place, system in enumerate(row)
            ]
    return order
