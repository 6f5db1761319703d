"""Replicas of an OpenAI-compatible server that generate what a prompt asks for, and fail as it asks.

The last message is a plan in JSON: `tokens` to generate, and `faults`, one for each time that the request
is sent to any of the replicas (they know it by `x-request-id`); it is answered once these are used up,
after a `pause` of so many seconds, or with `wait` when the fleet may `go`.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Literal

from tests.servers.http import HangUp, LocalServer, Reply, Request, answer

Fault = Literal[
    "silent", "500", "503", "429", "400", "nonsense", "half", "broken", "error_event", "odd_event"
]

# Those that leave a stream when it has begun; of an unstreamed answer there is nothing to be seen by then.
MIDWAY = ("half", "broken", "error_event", "odd_event")
WORD = "w "  # one token


def prompt_tokens(messages: list[dict[str, str]]) -> int:
    """A quarter of the JSON's bytes, which is also what is believed of servers that have not told yet."""
    return max(1, len(json.dumps(messages)) // 4)


class Fleet:
    """What the replicas of one model have in common."""

    def __init__(
        self, *, cached: bool = False, tokens_per_chunk: int = 1, tries: Counter[str] | None = None
    ) -> None:
        self.cached = cached  # a third of each prompt
        self.tokens_per_chunk = tokens_per_chunk
        self.tries = Counter() if tries is None else tries  # by the request's id; fleets may share it
        self.sent: Counter[str] = Counter()  # tokens written in streams
        self.go = asyncio.Event()

    def replica(self) -> LocalServer:
        return LocalServer(self._reply)

    def usage(self, prompt: int, completion: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": prompt // 3 if self.cached else 0},
        }

    async def _reply(self, request: Request) -> Reply:
        if request.method == "GET":
            return answer({"object": "list", "data": []})
        body = request.json()
        if request.path == "/v1/embeddings":
            usage = {"prompt_tokens": body["input"].count(WORD), "total_tokens": body["input"].count(WORD)}
            data = [{"object": "embedding", "index": 0, "embedding": [0.5]}]
            return answer({"object": "list", "data": data, "model": body["model"], "usage": usage})
        plan = json.loads(body["messages"][-1]["content"])
        id = request.headers["x-request-id"]
        faults, turn = plan.get("faults", []), self.tries[id]
        self.tries[id] += 1
        fault: Fault | None = faults[turn] if turn < len(faults) else None
        if fault is not None and fault.isdigit():
            return answer({"error": {"message": f"as asked: {fault}", "type": "test"}}, int(fault))
        if fault == "silent":
            raise HangUp
        if fault == "nonsense":
            return Reply(200, b"<html>", {"content-type": "text/html"})
        await asyncio.sleep(plan.get("pause", 0))
        if plan.get("wait"):
            await self.go.wait()
        if body.get("stream"):
            stream = self._stream(id, body, plan["tokens"], fault)
            return Reply(200, headers={"content-type": "text/event-stream"}, stream=stream)
        return self._whole(body, plan["tokens"], fault)

    def _whole(self, body: Any, tokens: int, fault: Fault | None) -> Reply:
        n = body.get("n", 1)
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": WORD * tokens},
                "finish_reason": "stop",
            }
            for index in range(n)
        ]
        content = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": choices,
            "usage": self.usage(prompt_tokens(body["messages"]), n * tokens),
        }
        if fault in MIDWAY:
            whole = json.dumps(content).encode()

            async def cut() -> AsyncIterator[bytes]:
                yield whole[: len(whole) // 2]
                raise HangUp

            return Reply(200, headers={"content-type": "application/json"}, stream=cut())
        return answer(content)

    async def _stream(self, id: str, body: Any, tokens: int, fault: Fault | None) -> AsyncIterator[bytes]:
        prompt = prompt_tokens(body["messages"])
        running = body["stream_options"].get("continuous_usage_stats", False)
        sent = 0

        def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
            content: dict[str, Any] = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": body["model"],
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
            if running:
                content["usage"] = self.usage(prompt, sent)
            return event(content)

        yield chunk({"role": "assistant"})
        while sent < tokens:
            if fault in MIDWAY and sent >= tokens // 2:
                yield _broken(fault)
                if fault in ("half", "broken"):
                    raise HangUp
                return
            more = min(self.tokens_per_chunk, tokens - sent)
            sent += more
            self.sent[id] += more
            yield chunk({"content": WORD * more})
            await asyncio.sleep(0.001)
        yield chunk({}, "stop")
        last = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
        yield event({**last, "choices": [], "usage": self.usage(prompt, tokens)})
        yield b"data: [DONE]\n\n"


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content, separators=(",", ":")).encode() + b"\n\n"


def _broken(fault: Fault) -> bytes:
    if fault == "half":
        return b'data: {"id":"chatcmpl-1","choices":[{"ind'
    if fault == "error_event":
        return event({"error": {"message": "as asked", "type": "test", "code": 500}})
    if fault == "odd_event":
        return b"data: this is not JSON\n\n"
    return b": nothing more\n\n"
