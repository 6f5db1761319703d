"""The scenarios: what is sent when, and what the figures come to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from .clients import House, Outcome, Report, arrivals, clients, goodput, open_session, p99, ttfts

# Of what the engines can do: what each of the two tenants is meant to ask for.
TENANT_SHARE = 1 / 8


async def peak_of(house: House, say: Callable[[str], None]) -> tuple[float, float]:
    """Tokens and requests a second with all places taken and somebody always waiting."""
    sizes = house.sizes
    count = 2 * sizes.max_running * sizes.replicas
    async with open_session() as session:
        await clients(house, session, "batch", 2, 3.0)
        began = time.perf_counter()
        outcomes = await clients(house, session, "batch", count, sizes.seconds)
    start = began + sizes.seconds / 6  # until all places are taken
    tokens = goodput(outcomes, start, began + sizes.seconds)
    say(f"  peak: {tokens:.1f} tokens/s, {tokens / sizes.max_tokens:.2f} requests/s")
    return tokens, tokens / sizes.max_tokens


async def tenants(house: House, peak: float, report: Report, say: Callable[[str], None]) -> None:
    sizes, rate = house.sizes, peak * TENANT_SHARE
    alone: list[Outcome] = []
    beside: list[Outcome] = []
    flood: list[Outcome] = []
    async with open_session() as session:
        for repeat in range(sizes.repeats):
            say(f"  repeat {repeat + 1} of {sizes.repeats}: alone, then beside a flood")
            alone += await arrivals(house, session, "quiet", rate, sizes.seconds)
            both = await asyncio.gather(
                arrivals(house, session, "quiet", rate, sizes.seconds),
                arrivals(house, session, "flood", 10 * rate, sizes.seconds),
            )
            beside += both[0]
            flood += both[1]
    report.keep("alone", alone)
    report.keep("beside the flood", beside)
    report.keep("flood", flood)
    before, after = p99(ttfts(alone)), p99(ttfts(beside))
    ratio = after / before if before else 0.0
    failed = sum(each.error is not None for each in (*alone, *beside))
    report.add("tenants", "the quiet tenant's TTFT p99, alone", f"{before * 1000:,.0f} ms of {len(alone)}")
    report.add("tenants", "beside the flood", f"{after * 1000:,.0f} ms of {len(beside)}")
    report.add("tenants", "ratio", f"{ratio:.2f}", bar="<= 1.5", met=0 < ratio <= 1.5)
    report.add("tenants", "quiet requests that failed", str(failed), bar="0", met=failed == 0)
    refused = sum(each.refused for each in flood)
    report.add("tenants", "flood: sent, refused", f"{len(flood)}, {refused}")


async def overload(
    house: House, peak_tokens: float, peak: float, report: Report, say: Callable[[str], None]
) -> None:
    sizes, rate = house.sizes, peak / 10
    async with open_session() as session:
        say("  interactive requests in an empty house")
        empty = await arrivals(house, session, "interactive", rate, 2 * sizes.seconds)
        say("  interactive requests, and batch work at five times what the engines can do")
        began = time.perf_counter()
        urgent, batch = await asyncio.gather(
            arrivals(house, session, "interactive", rate, 2 * sizes.seconds),
            arrivals(house, session, "batch", 5 * peak - rate, 2 * sizes.seconds),
        )
    for part, outcomes in (("empty house", empty), ("interactive", urgent), ("batch", batch)):
        report.keep(part, outcomes)
    start = began + sizes.seconds / 3
    share = goodput([*urgent, *batch], start, began + 2 * sizes.seconds) / peak_tokens
    before, after = p99(ttfts(empty)), p99(ttfts(urgent))
    ratio = after / before if before else 0.0
    at_once = [each for each in batch if each.refused and not each.waited_in_vain]
    refusals = [each.ended - each.sent for each in at_once if each.ended is not None]
    in_vain = sum(each.waited_in_vain for each in batch)
    lost = sum(each.error is not None for each in urgent)
    report.add("overload", "goodput against the peak", f"{share:.1%}", bar=">= 95%", met=share >= 0.95)
    report.add(
        "overload",
        f"refusals, p99 of {len(refusals)}",
        f"{p99(refusals) * 1000:,.1f} ms",
        bar="<= 50 ms",
        met=bool(refusals) and p99(refusals) <= 0.05,
    )
    report.add("overload", "interactive TTFT p99, empty house", f"{before * 1000:,.0f} ms of {len(empty)}")
    report.add("overload", "the same in the overload", f"{after * 1000:,.0f} ms of {len(urgent)}")
    report.add("overload", "ratio", f"{ratio:.2f}", bar="<= 2", met=0 < ratio <= 2)
    report.add("overload", "interactive requests lost", str(lost), bar="0", met=lost == 0)
    answered = sum(each.error is None for each in batch)
    shown = f"{len(batch)}, {answered}, {len(refusals)}, {in_vain}"
    report.add("overload", "batch: sent, answered, refused at once, waited in vain", shown)
