"""Spans reach a collector, and one that is not there troubles nobody."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from penstock.config import TracingConfig
from penstock.errors import ConfigError
from penstock.observe import tracing as module
from penstock.observe.collector import Collector as Sender
from penstock.observe.collector import UndeliveredError
from penstock.observe.open_tracing import endpoint, open_tracing, share
from penstock.observe.record import Phase, RequestRecord
from penstock.observe.tracing import Tracing
from tests.server import poll
from tests.servers.otlp import Collector, values


@contextmanager
def tracing(url: str, environ: dict[str, str] | None = None, **options: Any) -> Iterator[Tracing]:
    opened = open_tracing(TracingConfig(endpoint=url, **options), environ or {})
    assert opened is not None
    opened.start()
    try:
        yield opened
    finally:
        opened.close()


def finish(to: Tracing, number: int = 1, tenant: str = "acme") -> None:
    for i in range(number):
        record = RequestRecord(f"r{i}", "createChatCompletion", 1.0, time.time(), ended=2.0, status=200)
        record.tenant = tenant
        record.trace = to.begin(None)
        record.phases.append(Phase("attempt", 1.0, 2.0, "a"))
        to.finished(record)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.05)
    monkeypatch.setattr(module, "MAX_PAUSE", 0.2)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("compression", ["", "gzip"])
def test_spans_arrive_with_what_the_server_is(compression: str) -> None:
    environ = {
        "OTEL_EXPORTER_OTLP_COMPRESSION": compression,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b, x-other = c",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=prod,service.name=no",
        "OTEL_SERVICE_NAME": "front",
    }
    with Collector() as collector:
        with tracing(collector.url, environ, headers={"x-other": "d"}) as to:
            finish(to, 3)
        assert len(collector.traces()) == 3
        whole, attempt = next(iter(collector.traces().values()))
        assert attempt.parent_span_id == whole.span_id
        assert values(whole.attributes)["penstock.request.id"] == "r0"
        assert collector.headers[0]["x-key"] == "a b"
        assert collector.headers[0]["x-other"] == "d"
        resource = collector.resources[0]
        assert resource["service.name"] == "front"
        assert resource["deployment.environment.name"] == "prod"
        assert set(resource) >= {"service.version", "service.instance.id"}


def test_what_is_not_sampled_is_not_sent() -> None:
    with Collector() as collector:
        with tracing(collector.url, sample=0.25) as to:
            finish(to, 1000)
        assert 150 < len(collector.traces()) < 350


def test_a_collector_that_is_not_there_gets_what_was_kept_when_it_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One warning, one line when it is back; what the queue does not hold is lost, and counted."""
    monkeypatch.setattr(module, "KEPT", 20)
    with Collector() as gone:
        pass
    with tracing(gone.url) as to:
        finish(to)
        poll(lambda: warnings(caplog))
        finish(to, 100)
        time.sleep(0.3)  # several tries
        assert len(warnings(caplog)) == 1
        assert gone.url in warnings(caplog)[0]
        with Collector(port=gone.port) as back:
            poll(lambda: len(back.traces()) == 21)
            poll(lambda: len(warnings(caplog)) == 2)
            assert "those of 80 requests were lost" in warnings(caplog)[1]
            finish(to, 5)
            poll(lambda: len(back.traces()) == 26)
            poll(lambda: (to.tally.sent, to.tally.lost) == (26, 80))
    assert len(warnings(caplog)) == 2


def test_a_collector_that_never_answers_holds_up_neither_requests_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with tracing(f"http://127.0.0.1:{silent.getsockname()[1]}") as to:
            finish(to, 500)
        assert to._thread.is_alive(), "the collector's whole time was waited for"
    to._thread.join()
    assert (to.tally.sent, to.tally.lost) == (0, 500)


@contextmanager
def babbling(*parts: bytes, every: float) -> Iterator[str]:
    """A server that answers everybody with the first part, and then with the others, again and again."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=talk, args=[connection], daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.recv(65536)
                connection.sendall(parts[0])
                for part in itertools.cycle(parts[1:]):
                    time.sleep(every)
                    connection.sendall(part)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("begins", "goes_on", "every"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"10000\r\n" + b"x" * 65536 + b"\r\n",
            0.0,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x", 0.1),
    ],
)
def test_an_answer_without_end_is_not_waited_for(begins: bytes, goes_on: bytes, every: float) -> None:
    with babbling(begins, goes_on, every=every) as url:
        Sender(url, {}, timeout=60.0).send(b"spans")  # or it would raise, after its time


def test_an_answer_that_never_begins_is_given_up_however_much_there_is_of_it() -> None:
    with babbling(b"HTTP/1.1 200 OK\r\n", b"x", every=0.1) as url:
        with pytest.raises(UndeliveredError, match=r"no answer within 0\.5 s") as caught:
            Sender(url, {}, timeout=0.5).send(b"spans")
        assert caught.value.later


def test_a_collector_that_is_too_slow_is_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 20)
    monkeypatch.setattr(module, "SEND_SECONDS", 600.0)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 600.0)
    with Collector() as collector:
        with tracing(collector.url) as to:
            finish(to, 100)
            [line] = warnings(caplog)
            assert "takes fewer traces than there are" in line
        assert (to.tally.sent, to.tally.lost) == (20, 80)
        assert [line for line in warnings(caplog) if "those of 80 requests were lost" in line]
    assert len(warnings(caplog)) == 2


def test_spans_refused_for_good_are_not_sent_again(caplog: pytest.LogCaptureFixture) -> None:
    with Collector(status=401) as collector, tracing(collector.url) as to:
        finish(to)
        poll(lambda: len(collector.headers) == 1)
        time.sleep(0.3)
        assert len(collector.headers) == 1
        assert "status 401" in warnings(caplog)[0]
        collector.status = 200
        finish(to)
        poll(lambda: len(collector.traces()) == 1)
    assert "those of 1 requests were lost" in warnings(caplog)[1]


@pytest.mark.parametrize("status", [302, 307, 503])
def test_a_redirect_or_a_busy_collector_is_no_success(status: int, caplog: pytest.LogCaptureFixture) -> None:
    with Collector(status=status) as collector, tracing(collector.url) as to:
        finish(to)
        poll(lambda: warnings(caplog))
    assert f"status {status}" in warnings(caplog)[0]


def test_a_record_that_cannot_be_written_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Collector() as collector:
        with tracing(collector.url) as to:
            odd = RequestRecord("odd", "createChatCompletion", 1.0, 1.0, tenant="\udc00", ended=2.0)
            odd.trace = to.begin(None)
            to.finished(odd)
            finish(to, 2)
        assert len([trace for trace in collector.traces().values() if len(trace) == 2]) == 2
    assert [line for line in warnings(caplog) if "odd" in line]
    assert (to.tally.sent, to.tally.lost) == (2, 1)


def test_what_a_stranger_asked_is_not_sent() -> None:
    """Whoever has no valid key has no tenant either, and may send whatever flags it likes."""
    with Collector() as collector:
        with tracing(collector.url) as to:
            finish(to, 3, tenant="")
            finish(to, 1)
        assert len(collector.traces()) == 1
        assert (to.tally.sent, to.tally.lost) == (1, 0)


def test_what_was_counted_outlives_a_change_of_the_collector() -> None:
    with Collector() as collector:
        with tracing(collector.url) as one:
            finish(one, 3)
        again = open_tracing(TracingConfig(endpoint=collector.url), {}, one.tally)
        assert again is not None
        again.start()
        finish(again, 2)
        again.close()
        assert (one.tally.sent, one.tally.lost) == (5, 0)


def test_traces_are_off_unless_a_collector_is_named() -> None:
    assert open_tracing(TracingConfig(), {}) is None
    named = TracingConfig(endpoint="http://c:4318")
    assert open_tracing(named, {"OTEL_SDK_DISABLED": "true"}) is None


@pytest.mark.parametrize(
    ("config", "environ", "url"),
    [
        ("http://c:4318", {}, "http://c:4318/v1/traces"),
        ("http://c:4318/", {}, "http://c:4318/v1/traces"),
        ("http://c/otel/spans", {}, "http://c/otel/spans"),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/base/"}, "http://c:4318/base/v1/traces"),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"}, "http://c/x"),
        (
            "http://mine",
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"},
            "http://mine/v1/traces",
        ),
    ],
)
def test_where_spans_go(config: str | None, environ: dict[str, str], url: str) -> None:
    found = endpoint(TracingConfig(endpoint=config), environ)
    assert found is not None
    assert found[0] == url


@pytest.mark.parametrize(
    ("given", "environ", "name"),
    [
        (None, {}, "penstock"),
        (None, {"OTEL_SERVICE_NAME": "front"}, "front"),
        ("penstock", {"OTEL_SERVICE_NAME": "front"}, "penstock"),
    ],
)
def test_what_the_server_is_called(given: str | None, environ: dict[str, str], name: str) -> None:
    with Collector() as collector:
        with tracing(collector.url, environ, service_name=given) as to:
            finish(to)
        assert collector.resources[0]["service.name"] == name


def test_the_share_is_the_configurations_then_the_environments() -> None:
    arg = {"OTEL_TRACES_SAMPLER_ARG": "0.25"}
    assert share(TracingConfig(), {}) == 1.0
    assert share(TracingConfig(), arg) == 0.25
    assert share(TracingConfig(sample=0.5), arg) == 0.5
    assert share(TracingConfig(sample=1.0), arg) == 1.0
    assert share(TracingConfig(), {**arg, "OTEL_TRACES_SAMPLER": "parentbased_always_on"}) == 1.0
    assert share(TracingConfig(), {"OTEL_TRACES_SAMPLER": "always_off"}) == 0.0
    for wrong in ("half", "nan", "2"):
        with pytest.raises(ConfigError, match="OTEL_TRACES_SAMPLER_ARG must be a share from 0 to 1"):
            share(TracingConfig(), {"OTEL_TRACES_SAMPLER_ARG": wrong})


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT must be the http"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://[::1"}, "OTEL_EXPORTER_OTLP_ENDPOINT must be the http"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://u:PASSWORD@c:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT has a name or password in it",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd"},
            "not zstd; set it to gzip",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%0Ab"},
            "The header 'x-key' for traces is none that HTTP has",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/such.pem"},
            "OTEL_EXPORTER_OTLP_CERTIFICATE names /no/such.pem, which cannot be read",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://c", "OTEL_EXPORTER_OTLP_CERTIFICATE": __file__},
            "name a PEM file",
        ),
    ],
)
def test_what_cannot_be_is_one_sentence(environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        open_tracing(TracingConfig(), environ)
    assert "PASSWORD" not in str(caught.value)


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout


def test_without_the_package_traces_are_refused_with_what_to_do() -> None:
    program = """
import sys
from importlib.machinery import PathFinder
class Hidden(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.startswith("opentelemetry") else super().find_spec(name, path, target)
sys.meta_path[:] = [f for f in sys.meta_path if f is not PathFinder] + [Hidden]
from penstock.config import TracingConfig
from penstock.errors import ConfigError
from penstock.observe.open_tracing import open_tracing
assert open_tracing(TracingConfig(), {}) is None
try:
    open_tracing(TracingConfig(endpoint="http://c:4318"), {})
except ConfigError as error:
    print(error)
"""
    assert "tracing.endpoint asks for traces" in (said := python(program))
    assert "pip install 'penstock[tracing]'" in said


def test_where_requests_are_not_traced_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, penstock.gateway.front; from penstock.config import TracingConfig\n"
        "from penstock.observe.open_tracing import open_tracing; open_tracing(TracingConfig(), {})\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or name == 'penstock.observe.otlp'])"
    )
    assert python(program).strip() == "[]"
