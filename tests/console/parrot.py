"""A server that repeats what it is told, a word at a time, as fast as its test wants to see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.servers.http import LocalServer, Reply, Request, answer


class Parrot(LocalServer):
    def __init__(self, pace: float = 0.001, thinks: float = 0.0) -> None:
        super().__init__(self._respond)
        self.pace = pace  # seconds a word
        self.thinks = thinks  # seconds before the first
        self.refuses = False  # every request, as the client's fault
        self.held = False  # it says nothing more as long as this is so

    @property
    def asked_of(self) -> int:
        """Requests for an answer, without those that look whether it lives."""
        return sum(request.method == "POST" for request in self.requests)

    async def _respond(self, request: Request) -> Reply:
        if request.method == "GET":
            return answer({"object": "list", "data": []})
        if self.refuses:
            return answer({"error": {"message": "as told", "type": "invalid_request_error"}}, 400)
        body = request.json()
        words = body["messages"][-1]["content"].split(" ")
        usage = {
            "prompt_tokens": len(request.body) // 4,
            "completion_tokens": len(words),
            "total_tokens": len(request.body) // 4 + len(words),
        }
        await asyncio.sleep(self.thinks)
        if body.get("stream"):
            stream = self._stream(body["model"], words, usage)
            return Reply(200, headers={"content-type": "text/event-stream"}, stream=stream)
        await asyncio.sleep(self.pace * len(words))
        message = {"role": "assistant", "content": " ".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return answer(_content(body["model"], "chat.completion", [choice], usage))

    async def _stream(self, model: str, words: list[str], usage: Any) -> AsyncIterator[bytes]:
        def event(choices: list[Any], usage: Any = None) -> bytes:
            return (
                b"data: %b\n\n"
                % json.dumps(_content(model, "chat.completion.chunk", choices, usage)).encode()
            )

        for number, word in enumerate(words):
            while self.held and number:  # noqa: ASYNC110 (ended by another thread)
                await asyncio.sleep(0.005)
            text = word if number == 0 else f" {word}"
            yield event([{"index": 0, "delta": {"content": text}, "finish_reason": None}])
            await asyncio.sleep(self.pace)
        yield event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        yield event([], usage)
        yield b"data: [DONE]\n\n"


def _content(model: str, kind: str, choices: list[Any], usage: Any) -> dict[str, Any]:
    return {"id": "c-1", "object": kind, "created": 1, "model": model, "choices": choices, "usage": usage}
