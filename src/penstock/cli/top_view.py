"""How `penstock top` looks: a snapshot as tables that fit a terminal. Pure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.top import clean
from penstock.observe.snapshot import Distribution, ModelNow, RequestNow, Snapshot

TONES = {
    "healthy": "green",
    "ok": "green",
    "starting": "cyan",
    "info": "cyan",
    "drained": "yellow",
    "leaving": "yellow",
    "warn": "yellow",
    "shed": "yellow",
    "rejected": "yellow",
    "aborted": "dim",
    "unhealthy": "red",
    "dead": "red",
    "page": "red",
    "failed": "red",
}
NONE = "-"
LEAST_RECENT = 4  # rows of the screen that the last requests get
TEXT_COLUMNS = 14  # of names and reasons, which may be cut, at least


def view(
    now: Snapshot, source: str, *, rows: int | None = None, width: int = 120, trouble: str = ""
) -> Group:
    """Everything that fits into so many rows, or all of it. `trouble`: why it is not of now."""
    head = [_title(now, source)]
    if trouble:
        head.append(_line().append(clean(trouble), "bold red"))
    objectives = _objectives(now)
    head += [_traffic(now), _times(now), *((objectives,) if objectives else ()), *_waiting(now)]
    head = head[:rows]
    room = _Room(None if rows is None else rows - len(head), kept=min(len(now.recent) + 1, LEAST_RECENT))
    # In the order of their claim to the screen, each with the share it gets at most if others want some, too.
    alerts = room.take([_alert(alert.severity, alert.summary) for alert in now.alerts], 3, head=0)
    models = room.take([_model(model) for model in now.models], 6)
    replicas = room.take(_replicas(now.models), 6)
    tiers = room.take([_tier(tier) for tier in (now.routing.tiers if now.routing else ())], 4)
    gpus = room.take([_gpu(gpu) for gpu in now.gpus], 2)
    tenants = room.take([_tenant(tenant) for tenant in now.tenants], 3)
    room.release()
    recent = room.take([_request(request) for request in now.recent], len(now.recent))
    _table = partial(_columns, width)
    parts: list[RenderableType] = [*head, *(row[0] for row in alerts)]
    parts += _table(
        ("MODEL", "REQ/S", "TTFT P50", "P99", "OUT TOK/S", "QUEUE", "RUN", "KV", "PREFIX"), models
    )
    parts += _table(("REPLICA", "OF", "STATE", "HAS", "KV", "WHY"), replicas, texts=3)
    saved = now.routing.savings if now.routing else None
    parts += _table(("TIER", "MODEL", "SHARE", "COST", f"GOOD (SAVED {_percent(saved)})"), tiers, texts=2)
    parts += _table(("GPU", "MEMORY", "USED", "BUSY", "HEAT", "POWER"), gpus)
    parts += _table(("TENANT", "THIS MONTH", "TOKENS", "SPENT", "BUDGET", "RUN"), tenants)
    parts += _table(
        ("REQUEST", "MODEL", "TENANT", "ENDED", "TTFT", "TOOK", "TOKENS", "SLOW BY"), recent, texts=4
    )
    return Group(*parts)


class _Room:
    """The rows of the screen that are left, `kept` of them for who comes last."""

    def __init__(self, rows: int | None, kept: int) -> None:
        self._kept = kept
        self._rows = None if rows is None else rows - kept

    def release(self) -> None:
        if self._rows is not None:
            self._rows += self._kept

    def take(self, items: Sequence[Any], most: int, *, head: int = 1) -> Sequence[Any]:
        if self._rows is None:
            return items
        if not items or self._rows <= head:
            return ()
        taken = items[: min(most, self._rows - head)]
        self._rows -= head + len(taken)
        return taken


def _columns(
    width: int, heads: Sequence[str], rows: Sequence[Sequence[Any]], texts: int = 1
) -> Iterable[Table]:
    """A table, if there are rows; of columns on the right only as many as leave room for whose row it is."""
    if not rows:
        return
    wide = [max(len(heads[at]), *(cell_len(str(row[at])) for row in rows)) for at in range(len(heads))]
    needed = [min(size, TEXT_COLUMNS) if at < texts else size for at, size in enumerate(wide)]
    if texts < len(heads) and not _numeric(rows[0][-1]):
        needed[-1] = min(needed[-1], TEXT_COLUMNS)
    while len(heads) > 1 and sum(needed[: len(heads)]) + len(heads) - 1 > width:
        heads = heads[:-1]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), expand=True, header_style="bold dim")
    for number, name in enumerate(heads):
        last = number == len(heads) - 1 and number >= texts and not _numeric(rows[0][number])
        text = number < texts or last
        table.add_column(
            name, justify="left" if text else "right", no_wrap=True, overflow="ellipsis",
            ratio=2 if number == 0 or last else None, min_width=min(needed[number], width),
        )  # fmt: skip
    for row in rows:
        cells = row[: len(heads)]
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells))
    yield table


def _numeric(cell: object) -> bool:
    return str(cell)[:1].isdigit() or str(cell) == NONE or str(cell)[:1] == "$"


def _title(now: Snapshot, source: str) -> Text:
    processes = f", {now.processes} processes" if now.processes > 1 else ""
    title = Text(f"penstock {now.version}", "bold", no_wrap=True, overflow="ellipsis")
    title.append(f"  {source}  up {_span(now.uptime)}{processes}", "not bold dim")
    if now.draining:
        title.append("  shutting down", "not bold yellow")
    return title


def _traffic(now: Snapshot) -> Text:
    seen = now.traffic
    line = _line()
    for name, value in (("requests/s", seen.requests), ("failed/s", seen.failed), ("shed/s", seen.shed)):
        alarming = value > 0 and name != "requests/s"
        line.append(f"{name} ", "dim").append(f"{_number(value)}  ", "red" if alarming else "bold")
    line.append("tokens/s in ", "dim").append(f"{_number(seen.input_tokens)}  ", "bold")
    line.append("out ", "dim").append(_number(seen.output_tokens), "bold")
    return line


def _times(now: Snapshot) -> Text:
    line = _line()
    for name, spread in (("TTFT", now.traffic.ttft), ("TPOT", now.traffic.tpot), ("e2e", now.traffic.e2e)):
        line.append(f"{name} ", "dim").append(f"{_pair(spread)}   ", "bold")
    return line.append(f"p50/p99 of {now.window:.0f} s", "dim")


def _waiting(now: Snapshot) -> Iterable[Text]:
    """The queue by class, and why requests were slow."""
    waiting: Counter[str] = Counter()
    for model in now.models:
        waiting.update(model.waiting)
    if waiting:
        line = _line().append("queue  ", "dim")
        for name, count in waiting.items():
            line.append(f"{clean(name)} ", "dim").append(f"{count}  ", "yellow" if count else "bold")
        yield line
    if now.causes:
        line = _line().append("slow by  ", "dim")
        for name, count in sorted(now.causes.items(), key=lambda pair: -pair[1]):
            line.append(f"{clean(name)} ", "dim").append(f"{count}  ", "bold")
        yield line


def _objectives(now: Snapshot) -> Text | None:
    judged = [each for each in now.objectives if each.state != "unknown"]
    if not judged:
        return None
    worst = sorted(judged, key=lambda each: (("page", "warn", "ok").index(each.state), each.good or 0.0))
    line = _line().append("SLO ", "dim")
    for each in worst[:3]:
        bound = f" < {_seconds(each.bound)}" if each.bound is not None else ""
        line.append(f"{clean(each.model)} {each.name}{bound} ", "dim")
        line.append(f"{_percent(each.good)} of {100 * each.target:.4g}%  ", TONES[each.state])
    return line


def _line() -> Text:
    return Text(no_wrap=True, overflow="ellipsis")


def _alert(severity: str, summary: str) -> tuple[Text]:
    line = _line().append(f"{severity.upper()} ", f"bold {TONES.get(severity, '')}")
    return (line.append(clean(summary)),)


def _model(model: ModelNow) -> tuple[Any, ...]:
    seen = model.traffic
    return (
        clean(model.name),
        _number(seen.requests),
        _seconds(seen.ttft.p50),
        _seconds(seen.ttft.p99),
        _number(seen.output_tokens),
        sum(model.waiting.values()),
        model.running,
        _percent(model.kv_usage),
        _percent(model.prefix_hits),
    )


def _replicas(models: Sequence[ModelNow]) -> list[tuple[Any, ...]]:
    """Those that get no requests first: they must not fall off the screen."""
    found = [(model.name, replica) for model in models for replica in model.replicas]
    return [
        (
            clean(each.name),
            clean(model),
            Text(each.state, TONES.get(each.state, "")),
            f"{each.requests}/{each.capacity}",
            _percent(each.kv_usage),
            Text(clean(each.reason or "")),
        )
        for model, each in sorted(found, key=lambda pair: pair[1].state == "healthy")
    ]


def _tier(tier: Any) -> tuple[Any, ...]:
    good = f"{_percent(tier.quality)} of {tier.checked}" if tier.checked else NONE
    return clean(tier.name), clean(tier.model), _percent(tier.share), _dollars(tier.dollars), good


def _gpu(gpu: Any) -> tuple[Any, ...]:
    share = gpu.memory_used / gpu.memory_total if gpu.memory_total else None
    heat = NONE if gpu.temperature is None else f"{gpu.temperature:.0f} C"
    power = NONE if gpu.power is None else f"{gpu.power:.0f} W"
    name = f"{gpu.index} {clean(gpu.name)}"
    return (
        name,
        f"{gpu.memory_total / 2**30:.0f} GiB",
        _percent(share),
        _percent(gpu.utilisation),
        heat,
        power,
    )


def _tenant(tenant: Any) -> tuple[Any, ...]:
    budget = NONE if tenant.budget is None else _dollars(tenant.budget)
    spent = _dollars(tenant.dollars)
    return clean(tenant.name), f"{tenant.requests:,}", f"{tenant.tokens:,}", spent, budget, tenant.running


def _request(each: RequestNow) -> tuple[Any, ...]:
    ended = each.outcome if each.outcome == "ok" else f"{each.outcome} {each.status or ''}".strip()
    ttft = None if each.ttft_ms is None else each.ttft_ms / 1000
    return (
        time.strftime("%H:%M:%S", time.localtime(each.at)),
        clean(each.tier or each.served_by or each.model),
        clean(each.tenant),
        Text(ended, TONES.get(each.outcome, "")),
        _seconds(ttft),
        _seconds(each.ms / 1000),
        f"{each.prompt_tokens}+{each.completion_tokens}",
        Text(clean(", ".join(each.causes))),
    )


def _pair(spread: Distribution) -> str:
    return f"{_seconds(spread.p50)}/{_seconds(spread.p99)}"


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    if value < 0.01:
        return f"{value * 1000:.1f}ms"
    return f"{value * 1000:.0f}ms" if value < 1 else f"{value:.1f}s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.{0 if 0.1 <= share < 0.9 or share in (0, 1) else 1}f}%"


def _dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 0.01 or value == 0 else f"${value:.6f}"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
