"""A server that speaks OpenAI's API, as a gateway sees one: chat, completions, embeddings, a health check.

A chat is answered with the server's name, once for each token that may be generated; a token is a word. A
prompt that says "wait" is answered when the gate opens, streamed ones after their first word.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from tests.servers.http import LocalServer, Reply, Request, answer

WORDS = 3  # tokens of an answer that is not limited


class OpenAIServer(LocalServer):
    """Run it with `in_a_thread`. `bodies` are those of the requests it has got."""

    def __init__(self, name: str = "one", *, delay: float = 0.0) -> None:
        super().__init__(self._handle)
        self.name = name
        self.delay = delay  # seconds that an answer takes
        self.broken = False  # answers 500 to everything but its health check
        self.running = 0
        self.most = 0  # requests it had at one time
        self._gate = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> OpenAIServer:
        self._loop = asyncio.get_running_loop()
        await super().__aenter__()
        return self

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.json() for request in list(self.requests) if request.method == "POST"]

    def open(self) -> None:
        """From any thread: let those who wait go."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.set)

    def close(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._gate.clear)

    async def _handle(self, request: Request) -> Reply:
        if request.method == "GET":
            return answer({"object": "list", "data": [{"id": "upstream", "object": "model"}]})
        if self.broken:
            return answer({"error": {"message": "It is broken.", "type": "server_error"}}, 500)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            body = request.json()
            if self.delay:
                await asyncio.sleep(self.delay)
            if request.path.endswith("/v1/embeddings"):
                data = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.5]}]
                usage = {"prompt_tokens": 2, "total_tokens": 2}
                return answer({"object": "list", "data": data, "model": body["model"], "usage": usage})
            chat = request.path.endswith("/v1/chat/completions")
            if not chat and not request.path.endswith("/v1/completions"):
                return answer({"detail": "Not Found"}, 404)
            if body.get("stream"):
                return Reply(
                    200, headers={"content-type": "text/event-stream"}, stream=self._chunks(body, chat)
                )
            if "wait" in str(body.get("messages", body.get("prompt"))):
                await self._gate.wait()
            return answer(self._whole(body, chat))
        finally:
            self.running -= 1

    def _words(self, body: dict[str, Any]) -> list[str]:
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        return [f"{self.name} "] * min(WORDS if limit is None else limit, 100)

    def _whole(self, body: dict[str, Any], chat: bool) -> dict[str, Any]:
        words = self._words(body)
        text = "".join(words)
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        choices = [{"index": i, **said, "finish_reason": "stop"} for i in range(body.get("n") or 1)]
        usage = _usage(body, len(words) * len(choices))
        kind = "chat.completion" if chat else "text_completion"
        return {"id": "x", "object": kind, "model": body["model"], "choices": choices, "usage": usage}

    async def _chunks(self, body: dict[str, Any], chat: bool) -> AsyncIterator[bytes]:
        words = self._words(body)
        kind = "chat.completion.chunk" if chat else "text_completion"
        head = {"id": "x", "object": kind, "model": body["model"]}
        for number, word in enumerate(words):
            said = {"delta": {"content": word}} if chat else {"text": word}
            yield _event(**head, choices=[{"index": 0, **said, "finish_reason": None}])
            if number == 0 and "wait" in str(body.get("messages", body.get("prompt"))):
                await self._gate.wait()
        last = {"delta": {}} if chat else {"text": ""}
        yield _event(**head, choices=[{"index": 0, **last, "finish_reason": "stop"}])
        if (body.get("stream_options") or {}).get("include_usage"):
            yield _event(**head, choices=[], usage=_usage(body, len(words)))
        yield b"data: [DONE]\n\n"


def _usage(body: dict[str, Any], completion: int) -> dict[str, Any]:
    prompt = words_of(body)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def words_of(body: dict[str, Any]) -> int:
    """What it counts as the tokens of a prompt."""
    return len(str(body.get("messages", body.get("prompt", ""))).split())


def _event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()
