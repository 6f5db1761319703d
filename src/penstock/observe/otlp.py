"""Spans as OTLP's protobuf messages.

They are filled in directly. OpenTelemetry's SDK makes an object of each span first and takes five times as
long: as long as a request itself takes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2 as pb

from penstock.observe.spans import Span, Value
from penstock.observe.trace import Trace

_KINDS: Final = {
    "internal": pb.Span.SPAN_KIND_INTERNAL,
    "server": pb.Span.SPAN_KIND_SERVER,
    "client": pb.Span.SPAN_KIND_CLIENT,
}
_HAS_REMOTE: Final = pb.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE: Final = pb.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK


class Batch:
    """Spans on their way, of one server."""

    def __init__(self, resource: Mapping[str, Value], version: str) -> None:
        self._message = ExportTraceServiceRequest()
        group = self._message.resource_spans.add()
        _describe(group.resource.attributes, resource)
        scope = group.scope_spans.add()
        scope.scope.name, scope.scope.version = "penstock", version
        self._spans = scope.spans

    def add(self, trace: Trace, spans: Iterable[Span]) -> None:
        name, state = trace.id.to_bytes(16, "big"), trace.state.decode("latin-1")
        for span in spans:
            written = self._spans.add(
                trace_id=name,
                span_id=span.id.to_bytes(8, "big"),
                trace_state=state,
                name=span.name,
                kind=_KINDS[span.kind],
                start_time_unix_nano=span.start,
                end_time_unix_nano=span.end,
                flags=trace.flags | _HAS_REMOTE | (_IS_REMOTE if span.remote else 0),
            )
            if span.parent:
                written.parent_span_id = span.parent.to_bytes(8, "big")
            if span.error:
                written.status.code = pb.Status.STATUS_CODE_ERROR
            _describe(written.attributes, span.attributes)

    def encode(self) -> bytes:
        return bytes(self._message.SerializeToString())


def _describe(attributes: Any, values: Mapping[str, Value]) -> None:
    for name, value in values.items():
        written = attributes.add(key=name).value
        if isinstance(value, bool):
            written.bool_value = value
        elif isinstance(value, int):
            written.int_value = value
        elif isinstance(value, float):
            written.double_value = value
        else:
            written.string_value = value
