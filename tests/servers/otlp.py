"""A collector of OpenTelemetry's: takes spans by OTLP over HTTP, as protobuf, and keeps them."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`status` other than 200: refuses what comes. `port`: where another one was, to come back there."""

    def __init__(self, *, status: int = 200, port: int = 0) -> None:
        self.status = status
        self.spans: list[Span] = []
        self.resources: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector._take(self, body)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _take(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        if self.status == 200:
            assert handler.path == "/v1/traces", handler.path
            assert handler.headers["content-type"] == "application/x-protobuf"
            if handler.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(values(group.resource.attributes))
                for scope in group.scope_spans:
                    assert scope.scope.name == "penstock"
                    self.spans += scope.spans
        answer = ExportTraceServiceResponse().SerializeToString()
        handler.send_response(self.status)
        if 300 <= self.status < 400:
            handler.send_header("Location", "/elsewhere")
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def traces(self) -> dict[bytes, list[Span]]:
        found: dict[bytes, list[Span]] = {}
        for span in list(self.spans):
            found.setdefault(span.trace_id, []).append(span)
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as plain Python values."""
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes}
