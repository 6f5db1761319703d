"""Reading a server's own account of its load: a scan for three numbers, not a parser of metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from penstock.gateway.balance import Load

_MOST: Final = 1e9  # requests: no server has more, and whoever says so has lost count
LoadReader = Callable[[bytes], Load | None]  # the page; None: it does not say


def gauges(
    *,
    running: bytes,
    waiting: bytes,
    kv_usage: bytes | None = None,
    accepted: bytes | None = None,
    drafted: bytes | None = None,
) -> LoadReader:
    """From a page in Prometheus' text format. A server with several engines has a line for each. `accepted`
    is of the tokens `drafted` ahead, or a share of its own."""

    def read(page: bytes) -> Load | None:
        at_work, in_queue = _values(page, running), _values(page, waiting)
        if not at_work and not in_queue:
            return None
        shares = _values(page, kv_usage) if kv_usage is not None else []
        # Requests add up over engines; memory does not: the fullest decides who has to wait.
        acceptance = _acceptance(page, accepted, drafted) if accepted is not None else None
        return Load(round(sum(at_work)), round(sum(in_queue)), max(shares, default=None), acceptance)

    return read


def _acceptance(page: bytes, accepted: bytes, drafted: bytes | None) -> float | None:
    taken = _values(page, accepted)
    of = float(len(taken)) if drafted is None else sum(_values(page, drafted))
    share = sum(taken) / of if of else None
    return share if share is not None and share <= 1 else None


def _values(page: bytes, name: bytes) -> list[float]:
    """The values of all lines of this metric. Its name may be the beginning of another one's."""
    values = []
    at = page.find(name)
    while at >= 0:
        end = page.find(b"\n", at)
        line = page[at + len(name) : end if end >= 0 else len(page)]
        if (at == 0 or page[at - 1] == 10) and line[:1] in (b" ", b"{"):
            number = _number(line.rpartition(b"}")[2])
            if number is not None:
                values.append(number)
        at = page.find(name, at + len(name))
    return values


def _number(text: bytes) -> float | None:
    """The first of what may be a value and a time stamp; None for what counts nothing that there can be."""
    try:
        value = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return value if 0 <= value <= _MOST else None


class _Slot(msgspec.Struct):
    is_processing: bool = False


class _KvCache(msgspec.Struct, rename="camel"):
    used_num_blocks: int = 0
    max_num_blocks: int = 0


class _Iteration(msgspec.Struct, rename="camel"):
    num_active_requests: int
    num_queued_requests: int = 0
    kv_cache_stats: _KvCache | None = None


_slots: Final = msgspec.json.Decoder(list[_Slot])
_iterations: Final = msgspec.json.Decoder(list[_Iteration])


def slots(page: bytes) -> Load | None:
    """From llama.cpp's `/slots`. It does not tell how many requests wait for one."""
    try:
        found = _slots.decode(page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Load(sum(slot.is_processing for slot in found), 0) if found else None


def iteration_stats(page: bytes) -> Load | None:
    """From trtllm-serve's `/metrics`: the iterations since it was last read; none when nothing runs."""
    try:
        found = _iterations.decode(page)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not found:
        return Load(0, 0)
    last = found[-1]
    cache = last.kv_cache_stats
    share = cache.used_num_blocks / cache.max_num_blocks if cache and cache.max_num_blocks > 0 else None
    # Active are all that the executor holds, those that wait in it included.
    waiting = min(last.num_queued_requests, last.num_active_requests)
    return Load(max(0, last.num_active_requests - waiting), max(0, last.num_queued_requests), share)
