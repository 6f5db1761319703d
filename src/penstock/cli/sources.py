"""Where answers come from: a model in this process, or any OpenAI-compatible server.

Both give an answer as an iterator of text; letting go of it early stops the work behind it. What a model
thinks before it answers comes as `Thought`.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from penstock.cli.options import engine_options
from penstock.cli.pull import fetched
from penstock.config import Settings
from penstock.engine.request import SamplingParams
from penstock.errors import ConfigError, EngineUnavailableError, InvalidRequestError

if TYPE_CHECKING:
    from penstock.llm import LLM

Messages = list[dict[str, Any]]
CONNECT_SECONDS = 10.0


class Thought(str):
    """A piece of reasoning rather than of the answer."""


@dataclass(slots=True)
class Answer:
    """How an answer ended; filled in while it is being read."""

    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Source(Protocol):
    name: str

    def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]: ...


@contextmanager
def open_source(
    settings: Settings, url: str | None, api_key: str | None, *, named: str | None
) -> Iterator[Source]:
    """The server at `url`, or without one the model of the settings, loaded into this process.

    A server is asked for the model that the user `named`, otherwise for the first one that it serves.
    """
    if url is not None:
        yield Remote(url, api_key=api_key or os.environ.get("OPENAI_API_KEY"), model=named)
        return
    from penstock.llm import LLM

    files = fetched(settings.model)
    if sys.stderr.isatty():
        print(f"Loading {files.name} ...", file=sys.stderr)
    with LLM(
        str(files.path),
        chat_template=settings.chat_template,
        reasoning_parser=settings.reasoning_parser,
        **engine_options(settings),
    ) as llm:
        yield Local(llm, files.name)


class Local:
    """The engine in this process."""

    def __init__(self, llm: LLM, name: str) -> None:
        self.name = name
        self._llm = llm

    def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]:
        given = self._llm.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if isinstance(prompt, str):
            answer.prompt_tokens = len(given)
        answer.completion_tokens = 0
        for chunk in self._llm.stream(given, params):
            answer.finish_reason = chunk.finish_reason or answer.finish_reason
            answer.completion_tokens += len(chunk.token_ids)
            if chunk.reasoning:
                yield Thought(chunk.reasoning)
            yield chunk.text


class Remote:
    """A client of /v1/chat/completions and /v1/completions, on the standard library alone."""

    def __init__(self, url: str, *, api_key: str | None, model: str | None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--url must be an address such as http://127.0.0.1:8000, got {url!r}.")
        self._secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._address = f"{parts.scheme}://{parts.netloc}{self._path}"
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self.name = model or self._first_model()

    def stream(self, prompt: str | Messages, params: SamplingParams, answer: Answer) -> Iterator[str]:
        body: dict[str, Any] = {"model": self.name, "stream": True, "stream_options": {"include_usage": True}}
        body |= _fields(params)
        if isinstance(prompt, str):
            path, body["prompt"] = "/v1/completions", prompt
        else:
            path, body["messages"] = "/v1/chat/completions", prompt
        with self._request("POST", path, body) as response:
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    break
                yield from _texts(json.loads(data), answer)

    def _first_model(self) -> str:
        with self._request("GET", "/v1/models") as response:
            models = json.load(response)["data"]
        if not models:
            raise EngineUnavailableError(f"{self._address} serves no model.")
        return str(models[0]["id"])

    @contextmanager
    def _request(self, method: str, path: str, body: object = None) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
            # Connecting has a limit, an answer has none: the user can stop it.
            connection.sock.settimeout(None)
            payload = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, payload, self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise _refusal(self._address, response)
            yield response
        except (OSError, http.client.HTTPException) as error:
            reason = (
                "it did not answer in time"
                if isinstance(error, socket.timeout)
                else str(error) or repr(error)
            )
            raise EngineUnavailableError(f"{self._address} cannot be reached: {reason}.") from None
        finally:
            connection.close()


def _fields(params: SamplingParams) -> dict[str, Any]:
    """Only fields of OpenAI's own API, and what is off left out, so that any server understands it."""
    fields: dict[str, Any] = {"temperature": params.temperature, "top_p": params.top_p}
    if params.max_tokens is not None:
        fields["max_tokens"] = params.max_tokens
    if params.seed is not None:
        fields["seed"] = params.seed
    if params.stop:
        fields["stop"] = list(params.stop)
    return fields


def _texts(event: dict[str, Any], answer: Answer) -> Iterator[str]:
    if event.get("error"):
        raise EngineUnavailableError(f"The server broke off: {event['error'].get('message')}")
    if usage := event.get("usage"):
        answer.prompt_tokens = usage.get("prompt_tokens")
        answer.completion_tokens = usage.get("completion_tokens")
    for choice in event.get("choices") or ():
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice.get("delta") or {}
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            yield Thought(thought)
        if text := choice.get("text") or delta.get("content"):
            yield text


def _refusal(address: str, response: http.client.HTTPResponse) -> Exception:
    text = response.read(4096).decode("utf-8", "replace")
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = text.strip()[:200] or response.reason
    kind = InvalidRequestError if 400 <= response.status < 500 else EngineUnavailableError
    return kind(f"{address} answered {response.status}: {message}")
