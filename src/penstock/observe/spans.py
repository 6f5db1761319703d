"""A request that has ended, as the spans of one trace: itself, and below it its phases.

Names of attributes are those of OpenTelemetry's conventions for generative AI where they have one; what is
ours begins with `penstock.`. No prompt and no answer is in them; what a client chose itself is the name of
the model and the request's id, of 128 characters each at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.observe.record import Phase, RequestRecord
from penstock.observe.trace import Trace, new_span

Value = str | int | float | bool
Kind = Literal["internal", "server", "client"]

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
STATUS: Final = "http.response.status_code"
ERROR: Final = "error.type"

_OPERATIONS: Final = {
    "createChatCompletion": "chat",
    "createResponse": "chat",
    "createMessage": "chat",
    "createCompletion": "text_completion",
    "createEmbedding": "embeddings",
}
# What a phase's detail says.
_DETAILS: Final = {
    "attempt": "penstock.replica",
    "cache": "penstock.cache",
    "route": "penstock.tier",
    "queue": "penstock.where",
    "prefill": "penstock.where",
}


@dataclass(slots=True)
class Span:
    """Times are nanoseconds since the epoch."""

    id: int
    parent: int  # 0: it has none
    name: str
    kind: Kind
    start: int
    end: int
    attributes: dict[str, Value]
    error: bool = False
    remote: bool = False  # the parent is another server's


def spans_of(record: RequestRecord, trace: Trace) -> list[Span]:
    """The request's own first. The wall clock is asked once, when a request arrives: if it is set meanwhile,
    spans still last as long as what they are of."""
    arrived, wall = record.arrived, int(record.wall * 1e9)
    spans = [_whole(record, trace, wall)]
    attempts: list[tuple[Phase, int]] = []
    for phase in record.phases:
        parent, span = trace.span, phase.span or new_span()
        if phase.name == "attempt":
            attempts.append((phase, span))
        else:  # what happened in an attempt comes after it
            for attempt, above in attempts:
                if attempt.start <= phase.start and phase.end <= attempt.end:
                    parent = above
        start = wall + int((phase.start - arrived) * 1e9)
        spans.append(
            Span(
                span,
                parent,
                phase.name,
                "client" if phase.span else "internal",  # another server has been told of it
                start,
                max(start, wall + int((phase.end - arrived) * 1e9)),
                {_DETAILS[phase.name]: phase.detail} if phase.detail and phase.name in _DETAILS else {},
                phase.failed,
            )
        )
    return spans


def _whole(record: RequestRecord, trace: Trace, wall: int) -> Span:
    operation = _OPERATIONS.get(record.operation, record.operation)
    attributes: dict[str, Value] = {
        OPERATION: operation,
        PROVIDER: "penstock",
        STATUS: record.status,
        "penstock.request.id": record.id,
        "penstock.outcome": record.outcome,
    }
    known: tuple[tuple[str, Value | None], ...] = (
        (REQUEST_MODEL, record.model),
        (REQUEST_STREAM, record.stream),
        (RESPONSE_MODEL, record.served_by),
        (INPUT_TOKENS, record.prompt_tokens),
        (CACHED_TOKENS, record.cached_tokens),
        (OUTPUT_TOKENS, record.completion_tokens),
        (FIRST_CHUNK, record.ttft if record.stream else None),
        (ERROR, record.code),
        ("penstock.tenant", record.tenant),
        ("penstock.tier", record.tier),
        ("penstock.route.reason", record.reason),
        ("penstock.service_class", record.service_class),
        ("penstock.cache", record.cache),
        ("penstock.cost", record.dollars),
        ("penstock.retries", record.retries),
        ("penstock.fallbacks", record.fallbacks),
        ("penstock.escalations", record.escalations),
        ("penstock.preemptions", record.preemptions),
        ("penstock.slow", ", ".join(record.causes)),
        ("penstock.inside", record.inside),
    )
    attributes.update((name, value) for name, value in known if value)
    # By the models that there are: a name that a client made up would be a span's name of its own.
    name = f"{operation} {record.served_by}" if record.served_by else operation
    return Span(
        trace.span,
        trace.parent,
        name,
        "server",
        wall,
        wall + max(0, int(record.seconds * 1e9)),
        attributes,
        # A request that was wrong is no failure of the server.
        record.outcome in ("failed", "shed") and record.status != 429,
        remote=trace.parent != 0,
    )
