"""Which requests were slow: each gets its causes, and a line in the log as long as there are not too many."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from penstock import logs
from penstock.config.observing import SlowConfig
from penstock.config.sections import GatewayConfig
from penstock.observe.objectives import PATIENT, Promise, Promises
from penstock.observe.record import RequestRecord
from penstock.observe.slow import Cause, Usual, causes

TIMES_THE_MEDIAN: Final = 10.0
KNOWN: Final = 30  # requests, before a median is believed
SURE: Final = 300  # requests, after which one of a few is enough to know what is usual
FEW: Final = 8
# Lines in one stretch of time; what is beyond is counted.
LINES: Final = 20
STRETCH_SECONDS: Final = 10.0
_NOBODY: Final = ("hit", "semantic", "shared")  # computed such an answer

logger = logging.getLogger("penstock.slow")


class _Model:
    """What is slow for one model, in seconds; `least`: whatever took no longer was not."""

    __slots__ = ("_batch_ttft", "_e2e", "_ttft", "least", "seen", "usual")

    def __init__(self) -> None:
        self.usual = Usual()
        self.seen = 0  # requests

    def limit(self, promise: Promise, config: SlowConfig) -> None:
        self._ttft = ttft = config.ttft or promise.ttft
        self._batch_ttft = max(ttft, promise.batch_ttft)
        self._e2e = e2e = config.e2e or promise.e2e
        self.least = ttft if e2e is None else min(ttft, e2e)

    def slow_until(self, record: RequestRecord) -> float:
        """Until when it was too slow: its first token, or its end; 0: it was not."""
        ttft, e2e, median = self._ttft, self._e2e, self.usual.seconds
        if e2e is None and median.count >= KNOWN:
            # Whatever ends before its first token must have come was not slow, however quick others are.
            e2e = max(ttft, TIMES_THE_MEDIAN * median.value)
        if e2e is not None and record.seconds > e2e:
            return record.ended
        if record.service_class == PATIENT:
            ttft = self._batch_ttft
        if record.first_token:
            return record.first_token if record.first_token - record.arrived > ttft else 0.0
        # A whole answer of another server: when its first token was there only that server knows.
        return record.ended if record.outcome != "ok" and record.seconds > ttft else 0.0


class SlowRequests:
    """The first listener: others read the causes that it finds.

    A request is slow if its first token came later than `slow.ttft`, or its end later than `slow.e2e`. One
    that never had a first token waited for it until it ended. Those that the server makes of itself are not
    looked at.
    """

    def __init__(self, config: GatewayConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, _Model] = {}
        self._stretch = 0.0  # when the current one began
        self._lines = 0
        self._untold: Counter[Cause] = Counter()
        self.configure(config)

    def configure(self, config: GatewayConfig) -> None:
        self._config = config.slow
        self._promises = Promises(config)
        for name, known in self._known.items():
            known.limit(self._promises.of(name), config.slow)

    def tick(self) -> None:
        """A few times a second: what was too much to be told singly is summed up when its time is over."""
        if self._untold and self._clock() - self._stretch >= STRETCH_SECONDS:
            self.tell_rest()

    def finished(self, record: RequestRecord) -> None:
        if record.inside or record.outcome == "rejected":
            return
        known = self._known.get(record.served_by)
        if known is None:
            known = self._known[record.served_by] = _Model()
            known.limit(self._promises.of(record.served_by), self._config)
        if record.ended - record.arrived > known.least and (until := known.slow_until(record)):
            found = causes(record, known.usual, until)
            record.causes = tuple(found)
            if self._config.log:
                # Several requests are told of at once, in the midst of any.
                with logs.about(record.id, record.trace.id if record.trace is not None else 0):
                    self._tell(record, found)
        known.seen += 1
        if known.seen > SURE and known.seen % FEW:
            return
        if record.outcome == "ok" and record.cache not in _NOBODY:
            known.usual.add(record)

    def _tell(self, record: RequestRecord, found: dict[Cause, float]) -> None:
        now = self._clock()
        if now - self._stretch >= STRETCH_SECONDS:
            self.tell_rest()
            self._stretch, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES:
            self._untold[next(iter(found), "busy gateway")] += 1
            return
        ttft = record.ttft
        fields: dict[str, object] = {
            "id": record.id,
            "seconds": round(record.seconds, 3),
            "ttft": None if ttft is None else round(ttft, 3),
            "causes": {cause: round(seconds, 3) for cause, seconds in found.items()},
            "outcome": record.outcome,
            "operation": record.operation,
            "model": record.served_by,
            "tenant": record.tenant,
            "class": record.service_class,
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "completion_tokens": record.completion_tokens,
            "retries": record.retries,
            "preemptions": record.preemptions,
        }
        logger.warning(
            "Slow request %s: %.3f s, %s; %s (%s by %s, tenant %s, class %s, outcome %s, "
            "%d of %d prompt tokens cached, %d tokens out).",
            record.id,
            record.seconds,
            "no first token" if ttft is None else f"first token after {ttft:.3f} s",
            ", ".join(f"{cause} {seconds:.3f} s" for cause, seconds in found.items()),
            record.operation,
            record.served_by or "nobody",
            record.tenant,
            record.service_class or "none",
            record.outcome,
            record.cached_tokens,
            record.prompt_tokens,
            record.completion_tokens,
            extra={"fields": fields},
        )

    def tell_rest(self) -> None:
        if not self._untold:
            return
        counts = ", ".join(f"{cause} {count}" for cause, count in self._untold.most_common())
        total = self._untold.total()
        self._untold.clear()
        with logs.about("", 0):  # of none of them
            logger.warning("%d further slow requests in these %g s: %s.", total, STRETCH_SECONDS, counts)
