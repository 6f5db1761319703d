"""A server that speaks Anthropic's Messages API, as its reference describes it.

The model answers with the words of the last user's text, in reverse order; a text that begins with "call "
makes it use the first tool, and with "think " it thinks first. A token is a word.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Literal

from anthropic.types import message_create_params
from pydantic import TypeAdapter, ValidationError

from tests.servers.http import HangUp, LocalServer, Reply, Request, answer

KEY = "sk-ant-test"
MODEL = "claude-test-1"
VERSIONS = ("2023-06-01", "2026-10-21")

Fault = Literal[
    "overloaded",  # 529
    "rate_limited",  # 429, come back in 7 s
    "api_error",  # 500
    "html",  # a proxy's 502
    "garbage",  # 200, but no message
    "nothing",  # closes without an answer
    "half",  # the stream breaks off
    "quiet",  # the stream ends without message_stop, cleanly
    "error_event",  # an error event after some text
    "error_first",  # an error event and nothing else
    "wait",  # says nothing until `go` is set
]
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 529,
}
_PARAMS: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParams)


class AnthropicServer(LocalServer):
    """Faults are taken from `faults`, one for each request; when there are none left it behaves."""

    def __init__(self) -> None:
        super().__init__(self._messages)
        self.faults: deque[Fault] = deque()
        self.go = asyncio.Event()

    @property
    def sent(self) -> dict[str, Any]:
        """The body of the last request."""
        return dict(self.requests[-1].json())

    async def _messages(self, request: Request) -> Reply:
        fault = self.faults.popleft() if self.faults else None
        if fault == "nothing":
            raise HangUp
        if fault == "html":
            return Reply(502, b"<html>Bad Gateway</html>", {"content-type": "text/html"})
        if (request.method, request.path) != ("POST", "/v1/messages"):
            return error("not_found_error", "Not found")
        refused = _refused(request)
        if refused is not None:
            return refused
        match fault:
            case "overloaded":
                return error("overloaded_error", "Overloaded")
            case "rate_limited":
                return error("rate_limit_error", "Number of requests has exceeded your limit", "7")
            case "api_error":
                return error("api_error", "Internal server error")
            case "garbage":
                return answer({"hello": "world"})
        body = request.json()
        if body.get("stream"):
            return Reply(200, headers={"content-type": "text/event-stream; charset=utf-8"},
                         stream=self._stream(body, fault))  # fmt: skip
        if fault == "wait":
            await self.go.wait()
        blocks = _content(body)
        message = _message(body, blocks, _stop_reason(blocks))
        return answer(message)

    async def _stream(self, body: dict[str, Any], fault: Fault | None) -> AsyncIterator[bytes]:
        if fault == "error_first":
            yield event("error", error={"type": "overloaded_error", "message": "Overloaded"})
            return
        blocks = _content(body)
        start = _message(body, [], None)
        start["usage"]["output_tokens"] = 1
        yield event("message_start", message=start)
        yield event("ping")
        if fault == "wait":
            await self.go.wait()
        for index, block in enumerate(blocks):
            empty, deltas = _pieces(block)
            yield event("content_block_start", index=index, content_block=empty)
            for number, delta in enumerate(deltas):
                if number == 1 and fault == "half":
                    raise HangUp
                if number == 1 and fault == "quiet":
                    return
                if number == 1 and fault == "error_event":
                    yield event("error", error={"type": "overloaded_error", "message": "Overloaded"})
                    return
                yield event("content_block_delta", index=index, delta=delta)
                await asyncio.sleep(0)
            yield event("content_block_stop", index=index)
        delta = {"stop_reason": _stop_reason(blocks), "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": _words(blocks)})
        yield event("message_stop")


def check_params(body: dict[str, Any]) -> None:
    """Raise ValidationError for what the SDK's own types of a request do not allow."""
    _drain(_PARAMS.validate_python(body))


def _drain(value: Any) -> None:
    """Types say that lists may be any iterables, and those are checked only as they are read."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
        return
    for item in value:
        _drain(item)


def error(kind: str, message: str, retry_after: str | None = None) -> Reply:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return answer(body, _STATUS[kind], **({} if retry_after is None else {"retry_after": retry_after}))


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _refused(request: Request) -> Reply | None:
    headers = request.headers
    if headers.get("x-api-key") != KEY and headers.get("authorization") != f"Bearer {KEY}":
        return error("authentication_error", "invalid x-api-key")
    version = headers.get("anthropic-version")
    if version not in VERSIONS:
        return error("invalid_request_error", "anthropic-version: header is required")
    try:
        body = request.json()
    except ValueError:
        return error("invalid_request_error", "The request body is not valid JSON")
    if body.get("model") != MODEL:
        return error("not_found_error", f"model: {body.get('model')}")
    checked = dict(body)
    for name in ("temperature", "top_p", "top_k"):
        if name in checked and version == "2026-10-21":
            return error("invalid_request_error", f"{name}: Extra inputs are not permitted")
        checked.pop(name, None)
    try:
        check_params(checked)
    except ValidationError as problem:
        return error("invalid_request_error", str(problem.errors()[0]["loc"]))
    if not 0 <= body.get("temperature", 1) <= 1:
        return error("invalid_request_error", "temperature: range: 0..1")
    for index, message in enumerate(body["messages"]):
        content = message["content"]
        if not content or any(block.get("text") == "" for block in content if isinstance(block, dict)):
            return error("invalid_request_error", f"messages.{index}: text content blocks must be non-empty")
    return None


def _message(body: dict[str, Any], blocks: list[dict[str, Any]], stop: str | None) -> dict[str, Any]:
    prompt = len(json.dumps(body["messages"]).split())
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 2,
            "output_tokens": _words(blocks),
        },
    }


def _content(body: dict[str, Any]) -> list[dict[str, Any]]:
    last = body["messages"][-1]["content"]
    text = last if isinstance(last, str) else " ".join(block.get("text", "") for block in last)
    said = {"type": "text", "text": " ".join(reversed(text.split())) or "Nothing."}
    if text.startswith("call ") and body.get("tools"):
        use = {
            "type": "tool_use",
            "id": "toolu_1",
            "name": body["tools"][0]["name"],
            "input": {"words": text.split()},
        }
        return [{"type": "text", "text": "Let me see."}, use]
    if text.startswith("think "):
        return [{"type": "thinking", "thinking": "It wants me to think.", "signature": "c2ln"}, said]
    return [said]


def _stop_reason(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"


def _words(blocks: list[dict[str, Any]]) -> int:
    return sum(
        len(str(block.get("text") or block.get("thinking") or block.get("input")).split()) for block in blocks
    )


def _pieces(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as a stream opens it, and the deltas that fill it."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": w} for w in _cut(block["text"])]
    if block["type"] == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": w} for w in _cut(block["thinking"])]
        signature = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signature]
    pieces = [
        {"type": "input_json_delta", "partial_json": w} for w in ("", *_cut(json.dumps(block["input"])))
    ]
    return {**block, "input": {}}, pieces


def _cut(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [first, *(f" {word}" for word in rest)]
