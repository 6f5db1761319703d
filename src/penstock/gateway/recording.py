"""How a request's way is written into its record: what it was, each try at it, how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from penstock import logs
from penstock.errors import EngineUnavailableError
from penstock.gateway.call import CLIENT_LEFT, Call, ClientGoneError
from penstock.gateway.exchange import Exchange
from penstock.observe.record import MAX_NAME, Outcome, Phase, RequestRecord
from penstock.observe.trace import joined
from penstock.protocol.errors import failure
from penstock.protocol.openapi import Operation
from penstock.protocol.shapes import UsageCount

if TYPE_CHECKING:
    from penstock.observe.tracing import Tracing

# Of errors with a 503: there was no time for the request. All that have a 429 are refusals, too.
_NO_TIME: Final = frozenset({"deadline_exceeded", "queue_full"})


def begin(call: Call, operation: Operation, tracing: Tracing | None) -> RequestRecord:
    """The record of a request that has just arrived."""
    record = RequestRecord(call.id, operation.asks, time.monotonic(), time.time())
    caller = joined(call.headers)
    record.trace = trace = caller if tracing is None else tracing.begin(caller)
    if trace is not None:
        logs.trace_id.set(trace.id)
    return record


def admitted(record: RequestRecord, since: float) -> float:
    """From `since` until now, which is returned, it was read and let in, or made ready for another model."""
    now = time.monotonic()
    phases = record.phases
    if phases and phases[-1].name == "admission":  # nothing came in between
        phases[-1].end = now
    else:
        phases.append(Phase("admission", since, now))
    return now


def attempt_begins(record: RequestRecord, replica: str) -> Phase:
    """A replica has it. What an earlier one had begun is not what the client gets."""
    record.scheduled = record.first_token = record.last_token = 0.0
    attempt = Phase("attempt", time.monotonic(), 0.0, replica)
    record.phases.append(attempt)
    return attempt


def attempt_ended(record: RequestRecord, attempt: Phase, *, failed: bool) -> None:
    """Part its time into what is known to have happened in it."""
    phases = record.phases
    attempt.end = now = time.monotonic()
    attempt.failed = failed
    start, detail, first = attempt.start, "upstream", record.first_token
    if record.scheduled:
        scheduled = min(max(start, record.scheduled), first or now)
        phases.append(Phase("queue", start, scheduled, "engine"))
        start, detail = scheduled, ""
    if first:
        last = record.last_token = record.last_token or now
        phases.append(Phase("prefill", start, first, detail))
        phases.append(Phase("decode", first, last))
    elif record.scheduled and not failed:
        phases.append(Phase("prefill", start, now))


def describe(record: RequestRecord, exchange: Exchange, usage: UsageCount, dollars: float) -> None:
    """What the request came to, once that is settled."""
    record.served_by, record.tier = exchange.served_by, exchange.tier
    record.prompt_tokens, record.cached_tokens = usage.prompt, usage.cached
    record.completion_tokens, record.dollars = usage.completion, dollars
    record.saved_tokens = exchange.saved
    first_byte = exchange.first_byte
    if record.stream:
        # An answer that was held back did not reach the client before it was sent.
        record.first_token = max(record.first_token, first_byte)
    elif not record.first_token and not exchange.delivered.completion:
        record.first_token = first_byte


def failed(record: RequestRecord, error: BaseException, *, started: bool) -> None:
    """How it ended without a whole answer; `started`: the client has seen a part of one."""
    if not record.completion_tokens:
        record.first_token = 0.0  # a stream was opened at most
    for phase in record.phases:
        phase.end = phase.end or time.monotonic()  # cut short
    if isinstance(error, ClientGoneError):
        record.outcome, record.status, record.code = "aborted", CLIENT_LEFT, ""
        return
    told = failure(error)
    record.code = (told.body.code or "")[:MAX_NAME]
    if started:
        record.outcome = "failed"
        return
    record.status = told.status
    if isinstance(error, EngineUnavailableError) and not record.phases:  # the doors are shut
        record.outcome, record.code = "shed", "draining"
    else:
        record.outcome = _outcome(told.status, record.code)


def _outcome(status: int, code: str) -> Outcome:
    if status == 429 or code in _NO_TIME:
        return "shed"
    return "rejected" if status < 500 else "failed"
