"""Asking a server: the words on the wire, and what is said when it cannot be asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.cli.app import main
from penstock.cli.sources import Answer, Remote, Thought, open_source
from penstock.config import Settings
from penstock.engine.request import SamplingParams
from penstock.errors import ConfigError, EngineUnavailableError, InvalidRequestError

PARAMS = SamplingParams(max_tokens=5, temperature=0.5, seed=3, stop=("END",))


class Handler(BaseHTTPRequestHandler):
    requests: ClassVar[list[tuple[str, dict[str, str], Any]]]
    events: ClassVar[list[Any]]
    refusal: tuple[int, bytes] | None

    def do_GET(self) -> None:
        self._note(None)
        self._send(200, json.dumps({"data": [{"id": "served"}]}).encode())

    def do_POST(self) -> None:
        self._note(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.refusal:
            self._send(*self.refusal)
            return
        stream = "".join(f"data: {json.dumps(event)}\n\n" for event in self.events)
        self._send(200, f": comment\n\n{stream}data: [DONE]\n\n".encode())

    def _note(self, body: Any) -> None:
        self.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def handler() -> type[Handler]:
    class Fresh(Handler):
        requests: ClassVar[list[tuple[str, dict[str, str], Any]]] = []
        events: ClassVar[list[Any]] = []
        refusal = None

    return Fresh


@pytest.fixture
def url(handler: type[Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_prompt_is_streamed_from_completions(url: str, handler: type[Handler]) -> None:
    handler.events = [
        {"choices": [{"text": "Hel"}]},
        {"choices": [{"text": "lo"}]},
        {"choices": [{"text": "", "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}},
    ]
    answer = Answer()
    remote = Remote(url, api_key="secret", model=None)
    assert list(remote.stream("Say", PARAMS, answer)) == ["Hel", "lo"]
    assert answer == Answer(finish_reason="length", prompt_tokens=4, completion_tokens=2)
    path, headers, body = handler.requests[-1]
    assert path == "/v1/completions"
    assert headers["authorization"] == "Bearer secret"
    assert (body["model"], body["prompt"], body["stream"]) == ("served", "Say", True)
    assert (body["max_tokens"], body["temperature"], body["seed"], body["stop"]) == (5, 0.5, 3, ["END"])


def test_messages_are_streamed_from_chat(url: str, handler: type[Handler]) -> None:
    handler.events = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": "Hi"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    messages = [{"role": "user", "content": "Hello"}]
    assert list(Remote(url, api_key=None, model="named").stream(messages, SamplingParams(), Answer())) == [
        "Hi"
    ]
    path, headers, body = handler.requests[-1]
    assert (path, body["messages"], body["model"]) == ("/v1/chat/completions", messages, "named")
    assert "authorization" not in headers
    assert "max_tokens" not in body


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_from_the_answer(url: str, handler: type[Handler], name: str) -> None:
    handler.events = [
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {name: "hm"}}]},
        {"choices": [{"delta": {"content": "Hi"}}]},
    ]
    stream = Remote(url, api_key=None, model="m").stream([], SamplingParams(), Answer())
    assert [(type(piece), str(piece)) for piece in stream] == [(Thought, "hm"), (str, "Hi")]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_the_address_may_be_given_with_or_without_v1(url: str, suffix: str) -> None:
    assert Remote(url + suffix, api_key=None, model=None).name == "served"


def test_the_address_may_lack_its_scheme(url: str) -> None:
    assert Remote(url.removeprefix("http://"), api_key=None, model=None).name == "served"


def test_the_key_comes_from_the_environment(
    url: str, handler: type[Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    with open_source(Settings(), url, None, named=None) as source:
        assert source.name == "served"
    assert handler.requests[-1][1]["authorization"] == "Bearer from the environment"


@pytest.mark.parametrize(
    ("arguments", "name"), [([], "served"), (["--model", "mine"], "mine")], ids=["configured", "named"]
)
def test_a_server_is_asked_for_a_model_only_by_a_name_from_the_command_line(
    url: str,
    handler: type[Handler],
    arguments: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "penstock.yaml").write_text("model: ./local.gguf\n")  # the server's, not the client's
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["penstock", "complete", "hi", "--url", url, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert handler.requests[-1][2]["model"] == name


def test_a_refusal_has_the_servers_sentence(url: str, handler: type[Handler]) -> None:
    handler.refusal = (400, json.dumps({"error": {"message": "temperature is too high."}}).encode())
    with pytest.raises(InvalidRequestError, match=r"answered 400: temperature is too high\."):
        list(Remote(url, api_key=None, model="m").stream("x", SamplingParams(), Answer()))


def test_a_failure_that_is_not_json_is_shown_as_it_is(url: str, handler: type[Handler]) -> None:
    handler.refusal = (502, b"<html>bad gateway</html>")
    with pytest.raises(EngineUnavailableError, match="answered 502: <html>bad gateway"):
        list(Remote(url, api_key=None, model="m").stream("x", SamplingParams(), Answer()))


def test_an_error_inside_the_stream_is_raised(url: str, handler: type[Handler]) -> None:
    handler.events = [{"choices": [{"text": "a"}]}, {"error": {"message": "The engine stopped."}}]
    stream = Remote(url, api_key=None, model="m").stream("x", SamplingParams(), Answer())
    assert next(stream) == "a"
    with pytest.raises(EngineUnavailableError, match="The engine stopped"):
        next(stream)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineUnavailableError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        Remote("http://127.0.0.1:9", api_key=None, model=None)


@pytest.mark.parametrize("address", ["", "ftp://x", "http://", "//"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="--url must be an address"):
        Remote(address, api_key=None, model=None)
