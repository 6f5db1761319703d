"""What the front door does with long input: apart from the event loop, or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import hub
from penstock.engine.config import EngineInfo
from penstock.errors import ContextLengthError
from penstock.gateway import endpoints
from penstock.gateway.accounts.keys import ANYBODY, Caller
from penstock.gateway.ask import ask
from penstock.gateway.call import Call
from penstock.gateway.local.model import ServedModel
from penstock.gateway.state import Gateway
from penstock.protocol.openapi import OPERATIONS
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantBackend, gateway_of

Handler = Callable[[Any, Call, Caller], Awaitable[None]]


class Watched(Tokenizer):
    """Notes the thread of every use."""

    threads: set[str]

    def encode(self, *arguments: Any, **options: Any) -> list[int]:
        self.note()
        return super().encode(*arguments, **options)

    def encode_marked(self, *arguments: Any) -> list[int]:
        self.note()
        return super().encode_marked(*arguments)

    def token_text(self, token_id: int) -> str:
        self.note()
        return super().token_text(token_id)

    def decode(self, *arguments: Any, **options: Any) -> str:
        self.note()
        return super().decode(*arguments, **options)

    def note(self) -> None:
        self.threads.add(threading.current_thread().name)


@pytest.fixture(scope="module")
def tokenizer(default_model: Path) -> Tokenizer:
    return Watched.load(hub.resolve(str(default_model)))


@pytest.fixture
def doors(tokenizer: Watched) -> Gateway:
    info = EngineInfo(
        architecture="llama", device="cpu", precision="float32", quantization="none", vocab_size=49152,
        max_model_len=8192, max_running=8, max_step_tokens=512, block_size=16, num_blocks=512,
        weight_bytes=1, load_seconds=0.0,
    )  # fmt: skip
    model = ServedModel(("m",), tokenizer, info)
    tokenizer.threads = set()
    return gateway_of(model, InstantBackend(info, lambda request: ()))


async def send(handler: Handler, doors: Gateway, body: dict[str, Any]) -> bytes:
    sent: list[dict[str, Any]] = []

    messages = iter([{"type": "http.request", "body": json.dumps(body).encode()}])

    async def receive() -> dict[str, Any]:
        for message in messages:
            return message
        return await asyncio.get_running_loop().create_future()  # the client stays

    async def answer(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    await handler(doors, Call({"type": "http", "headers": headers}, receive, answer), ANYBODY)
    return b"".join(message.get("body", b"") for message in sent)


async def chat(gateway: Gateway, call: Call, caller: Caller) -> None:
    await ask(gateway, call, OPERATIONS[0], caller)


USER = {"role": "user", "content": ""}
BIG: list[dict[str, Any]] = [
    {"messages": [USER] * 4000},
    {"messages": [{**USER, "name": "x" * 50_000}]},
    {"messages": [{"role": "assistant", "content": "", "reasoning": "x" * 50_000}]},
    {"messages": [USER], "chat_template_kwargs": {"a": "x" * 50_000}},
    {"prompt": "x " * 50_000, "return_token_strs": True},
]


@pytest.mark.parametrize("body", BIG, ids=["messages", "name", "reasoning", "kwargs", "prompt"])
async def test_a_long_body_is_worked_on_apart_from_the_event_loop(
    doors: Gateway, tokenizer: Watched, body: dict[str, Any]
) -> None:
    assert json.loads(await send(endpoints.tokenize, doors, body))["count"] > 0
    assert tokenizer.threads
    assert threading.current_thread().name not in tokenizer.threads


async def test_many_tokens_are_made_text_apart_from_the_event_loop(
    doors: Gateway, tokenizer: Watched
) -> None:
    await send(endpoints.detokenize, doors, {"tokens": [100] * 50_000})
    assert threading.current_thread().name not in tokenizer.threads


async def test_a_short_body_takes_no_detour(doors: Gateway, tokenizer: Watched) -> None:
    await send(endpoints.tokenize, doors, {"messages": [USER]})
    assert tokenizer.threads == {threading.current_thread().name}


@pytest.mark.parametrize("handler", [chat, endpoints.tokenize])
async def test_more_messages_than_the_context_has_tokens_are_not_even_rendered(
    doors: Gateway, tokenizer: Watched, handler: Handler
) -> None:
    with pytest.raises(ContextLengthError, match="8192") as caught:
        await send(handler, doors, {"messages": [USER] * 8192})
    assert caught.value.param == "messages"
    assert not tokenizer.threads


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "", "name": "x" * 7_000_000},
        {"role": "assistant", "content": "", "reasoning": "x" * 7_000_000},
        {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": json.dumps({"x": ["x" * 7_000_000]})},
                }
            ],
        },
    ],
    ids=["name", "reasoning", "arguments"],
)
async def test_all_text_of_a_message_counts_before_it_is_rendered(
    doors: Gateway, tokenizer: Watched, message: dict[str, Any]
) -> None:
    with pytest.raises(ContextLengthError, match="characters"):
        await send(chat, doors, {"messages": [message]})
    assert not tokenizer.threads
