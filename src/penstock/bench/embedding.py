"""Texts one by one against all at once: the engine in this process, and any server over HTTP."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.bench.offline import Engine
from penstock.bench.target import Target, open_session
from penstock.engine.request import Pooling, Request
from penstock.errors import EngineUnavailableError, InvalidRequestError

Mode = Literal["one by one", "batched"]
MODES: tuple[Mode, ...] = ("one by one", "batched")
WARM_UP_TEXTS = 8
TICK_SECONDS = 0.1  # between looks at whether to stop


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRun:
    """One mode, repeated; times in seconds."""

    where: Literal["engine", "HTTP"]
    mode: Mode
    texts: int
    tokens: int
    seconds: list[float]  # of each repeat

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "median_seconds": self.median,
            "texts_per_second": self.texts / self.median,
            "tokens_per_second": self.tokens / self.median,
        }


def run_engine(
    engine: Engine,
    texts: Sequence[list[int]],
    pooling: Pooling | None,
    *,
    repeat: int,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int], None] = lambda tokens: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[EmbedRun]:
    """Both modes in turn, so that a change of the machine's mood meets both.

    `stop` ends it early, with the repeats that have ended; `progress` hears of tokens computed.
    """
    serial = 0

    def compute(batch: Sequence[list[int]]) -> bool:
        """False when stopped before its end."""
        nonlocal serial
        for ids in batch:
            serial += 1
            engine.submit(Request(id=f"embed-{serial}", prompt=ids, pooling=pooling))
        while engine.has_work:
            if stop():
                return False
            for event in engine.step():
                if event.finish_reason == "error":
                    raise EngineUnavailableError(f"A text was not computed: {event.error}")
        progress(sum(map(len, batch)))
        return True

    compute(texts[:WARM_UP_TEXTS])
    times: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeat):
        for mode in MODES:
            start = clock()
            if not all(compute(batch) for batch in _batches(texts, mode)):
                return _runs("engine", texts, times)
            times[mode].append(clock() - start)
    return _runs("engine", texts, times)


async def run_http(
    target: Target,
    texts: Sequence[list[int]],
    *,
    repeat: int,
    clock: Callable[[], float] = time.perf_counter,
    progress: Callable[[int], None] = lambda tokens: None,
    stop: Callable[[], bool] = lambda: False,
) -> list[EmbedRun]:
    """One connection, one client, which waits for each answer: as a script of a user's would."""
    times: dict[Mode, list[float]] = {mode: [] for mode in MODES}
    async with open_session(target) as session:

        async def ask(batch: Sequence[list[int]]) -> None:
            body = {"model": target.model, "input": batch, "encoding_format": "base64"}
            async with session.post(f"{target.url}/v1/embeddings", json=body) as response:
                answer = await response.read()
                if response.status != 200:
                    text = answer.decode("utf-8", "replace")[:300]
                    raise InvalidRequestError(f"{target.url} answered {response.status}: {text}")
            progress(sum(map(len, batch)))

        async def repeats() -> None:
            await ask(texts[:WARM_UP_TEXTS])
            for _ in range(repeat):
                for mode in MODES:
                    start = clock()
                    for batch in _batches(texts, mode):
                        await ask(batch)
                    times[mode].append(clock() - start)

        work = asyncio.ensure_future(repeats())
        while not (await asyncio.wait([work], timeout=TICK_SECONDS))[0]:
            if stop():
                work.cancel()
        with suppress(asyncio.CancelledError):
            work.result()
    return _runs("HTTP", texts, times)


def planned_tokens(texts: Sequence[list[int]], repeat: int) -> int:
    """That are computed in all: of a few texts to warm up, then of all in both modes."""
    return sum(map(len, texts[:WARM_UP_TEXTS])) + repeat * len(MODES) * sum(map(len, texts))


def speedups(runs: Sequence[EmbedRun]) -> dict[str, float]:
    """How many times faster all texts at once are than one by one, in the median."""
    medians = {(run.where, run.mode): run.median for run in runs}
    return {
        where: seconds / medians[where, "batched"]
        for (where, mode), seconds in medians.items()
        if mode == "one by one" and (where, "batched") in medians
    }


def gflops(run: EmbedRun, weights: int) -> float:
    """Arithmetic of the matrices alone, in GFLOP/s: two operations for each weight and token."""
    return 2 * weights * run.tokens / run.median / 1e9


def _batches(texts: Sequence[list[int]], mode: Mode) -> list[Sequence[list[int]]]:
    return [texts] if mode == "batched" else [[ids] for ids in texts]


def _runs(
    where: Literal["engine", "HTTP"], texts: Sequence[list[int]], times: Mapping[Mode, list[float]]
) -> list[EmbedRun]:
    """Of the modes that were measured at least once."""
    tokens = sum(map(len, texts))
    return [
        EmbedRun(where=where, mode=mode, texts=len(texts), tokens=tokens, seconds=seconds)
        for mode, seconds in times.items()
        if seconds
    ]
