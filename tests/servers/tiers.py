"""Tiers of known quality: OpenAI-compatible servers that answer sums and facts, rightly or wrongly as they
are told for each kind of question."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Literal

from tests.servers.http import LocalServer, Reply, Request, answer

Kind = Literal["story", "fact"]
_NUMBERS = re.compile(r"\d+")


def story(number: int) -> str:
    """A sum in words; the right answer is `number` + 7."""
    return f"Ann has {number} apples and buys 7 more apples at the shop. How many apples does she have now?"


def fact(number: int) -> str:
    """A question of history; the right answer is the year 1000 + `number`."""
    return f"In which year did king Henry the {number}th sign the treaty that ended the war? Give the year."


def kind_of(question: str) -> Kind:
    return "story" if "apples" in question else "fact"


class SimulatedTier(LocalServer):
    """One model. `wrong` are the kinds that it gets wrong; `counts` what it was asked."""

    def __init__(self) -> None:
        super().__init__(self._respond)
        self.wrong: set[Kind] = set()
        self.silent = False  # it fails every request
        self.held = False  # it answers nobody as long as this is so
        self.digits = False  # a character of the prompt is a token, as with a tokenizer that knows no words
        self.says: str | None = None  # in place of any answer
        self.claims: int | None = None  # tokens of any answer, whatever it has
        self.counts: Counter[Kind] = Counter()
        self.bodies: list[dict[str, Any]] = []

    async def _respond(self, request: Request) -> Reply:
        if request.method == "GET":
            return answer({"object": "list", "data": []})
        if request.path != "/v1/chat/completions":
            return answer({"error": {"message": "not found", "type": "test"}}, 404)
        body = request.json()
        self.bodies.append(body)
        question = body["messages"][-1]["content"]
        kind = kind_of(question)
        self.counts[kind] += 1
        while self.held:  # noqa: ASYNC110 (ended by another thread)
            await asyncio.sleep(0.005)
        if self.silent:
            return answer({"error": {"message": "as told", "type": "test"}}, 500)
        text = self.says if self.says is not None else self._answer(kind, question)
        if body.get("stream"):
            stream = self._stream(body, text)
            return Reply(200, headers={"content-type": "text/event-stream"}, stream=stream)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return answer(self._content(body, "chat.completion", [choice], self._usage(body, text)))

    def _answer(self, kind: Kind, question: str) -> str:
        number = int(_NUMBERS.findall(question)[0])
        right = number + 7 if kind == "story" else 1000 + number
        return f"The answer is {right + (kind in self.wrong)}."

    def _usage(self, body: dict[str, Any], text: str) -> dict[str, int]:
        prompt, completion = len(json.dumps(body["messages"])) // 4, max(1, len(text.split()))
        completion = completion if self.claims is None else self.claims
        if self.digits:
            prompt = sum(len(message["content"]) for message in body["messages"])
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

    @staticmethod
    def _content(body: dict[str, Any], kind: str, choices: Any, usage: Any) -> dict[str, Any]:
        return {
            "id": "chatcmpl-1",
            "object": kind,
            "created": 1,
            "model": body["model"],
            "choices": choices,
            "usage": usage,
        }

    async def _stream(self, body: dict[str, Any], text: str) -> AsyncIterator[bytes]:
        deltas = [{"role": "assistant", "content": ""}, *({"content": word + " "} for word in text.split())]
        kind = "chat.completion.chunk"
        for delta in deltas:
            chunk = {"index": 0, "delta": delta, "finish_reason": None}
            yield b"data: %b\n\n" % json.dumps(self._content(body, kind, [chunk], None)).encode()
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        yield b"data: %b\n\n" % json.dumps(self._content(body, kind, [end], None)).encode()
        yield b"data: %b\n\n" % json.dumps(self._content(body, kind, [], self._usage(body, text))).encode()
        yield b"data: [DONE]\n\n"
