"""What an answer says of itself, and what of it is billed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock.gateway.accounts import Price
from penstock.gateway.exchange import decimal, with_charges
from penstock.protocol.shapes import UsageCount
from tests.servers.asking import Asked, asked

PRICE = Price(input=1_000_000, cached_input=500_000, output=2_000_000, request=3)  # picodollars


def priced(**fields: Any) -> Asked:
    request = asked("createChatCompletion", {"messages": [], **fields})
    request.exchange.price = PRICE
    request.exchange.tier, request.exchange.upstream_model = "small", "smollm"
    return request


@pytest.mark.parametrize(
    ("dollars", "text"),
    [(0.0, b"0.0"), (1.5, b"1.5"), (1e-12, b"0.000000000001"), (0.000011, b"0.000011"), (1234.0, b"1234.0")],
)
def test_money_is_written_without_exponents(dollars: float, text: bytes) -> None:
    assert decimal(dollars) == text
    assert json.loads(text) == dollars


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":1,"usage":{"prompt_tokens":1}}',
        b'{ "usage" : { "prompt_tokens" : 1 } , "text": "\\"usage\\":{\\"prompt_tokens\\":1}" }',
        b'{"usage":{},"x":"\xc3\xa9"}',
        b'{"usage":{"a":{"b":{}}}, "x":{"usage":{"a":1}}}',
    ],
)
def test_charges_are_added_to_the_usage_and_nothing_else_changes(body: bytes) -> None:
    charged = json.loads(with_charges(body, UsageCount(1, 1, cost=0.25, latency_ms=12.5)))
    before = json.loads(body)
    assert charged["usage"] == {**before["usage"], "cost": 0.25, "latency_ms": 12.5}
    assert {**charged, "usage": None} == {**before, "usage": None}


@pytest.mark.parametrize("body", [b"{}", b'{"usage":null}', b'{"usage":[]}', b'{"usage":3}'])
def test_an_answer_without_usage_stays_as_it_is(body: bytes) -> None:
    assert with_charges(body, UsageCount(1, 1, cost=0.25, latency_ms=1.0)) == body


async def test_a_whole_answer_has_its_price_in_headers_and_usage_and_is_billed_as_it_says() -> None:
    request = priced()
    await request.exchange.answer(
        b'{"usage":{"prompt_tokens":7}}', UsageCount(prompt=7, completion=2, cached=4)
    )
    expected = (3 * 1_000_000 + 4 * 500_000 + 2 * 2_000_000 + 3) / 10**12
    assert float(request.headers["x-penstock-cost"]) == pytest.approx(expected)
    assert request.json["usage"]["cost"] == pytest.approx(expected)
    assert (request.headers["x-penstock-tier"], request.headers["x-penstock-model"]) == ("small", "smollm")
    billed = request.exchange.billed()
    assert (billed.prompt, billed.cached, billed.completion) == (7, 4, 2)


async def test_what_never_went_out_is_not_billed() -> None:
    request = priced()
    request.exchange.delivered.prompt = 7
    assert request.exchange.billed() == UsageCount()
    stream = priced(stream=True)
    stream.exchange.delivered.prompt = 7
    await stream.exchange.start_stream()
    assert stream.exchange.billed() == UsageCount()
    await stream.exchange.write(b"data: {}\n\n", 2)
    assert (stream.exchange.billed().prompt, stream.exchange.billed().completion) == (7, 2)


async def test_a_write_that_fails_delivers_nothing() -> None:
    request = priced(stream=True)
    await request.exchange.start_stream()

    async def gone(message: Any) -> None:
        raise ConnectionError

    request.exchange.call._send = gone
    with pytest.raises(ConnectionError):
        await request.exchange.write(b"data: {}\n\n", 2)
    assert request.exchange.billed() == UsageCount()


async def test_a_header_that_is_said_again_is_said_once() -> None:
    request = priced()
    for value in (b"8", b"5"):
        request.exchange.say(b"x-penstock-max-tokens", value)
    await request.exchange.answer(b"{}")
    names = [name for name, _ in request.messages[0]["headers"]]
    assert names.count(b"x-penstock-max-tokens") == 1
    assert request.headers["x-penstock-max-tokens"] == "5"


async def test_the_first_reason_to_end_a_request_counts_and_none_after_its_end() -> None:
    started = asyncio.Event()
    reasons: list[Any] = []

    async def run() -> None:
        request = priced()
        reasons.append(request.exchange)
        started.set()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            request.exchange.done = True
            reasons.append(request.exchange.aborted)

    task = asyncio.create_task(run())
    await started.wait()
    exchange = reasons[0]
    first = ValueError("first")
    exchange.abort(first)
    exchange.abort(ValueError("second"))
    await task
    assert reasons[1] is first
    exchange.aborted = None
    exchange.abort(ValueError("late"))
    assert exchange.aborted is None


async def test_a_part_without_bytes_is_not_sent_but_its_tokens_count() -> None:
    request = priced(stream=True)
    await request.exchange.start_stream()
    before = len(request.messages)
    await request.exchange.write(b"", 2)
    assert len(request.messages) == before
    assert request.exchange.delivered.completion == 2


async def test_a_server_that_has_lost_count_is_taken_at_what_books_can_hold() -> None:
    request = priced()
    await request.exchange.answer(
        b'{"usage":{"prompt_tokens":7}}', UsageCount(prompt=7, completion=10**19, cached=4)
    )
    assert (request.exchange.billed().prompt, request.exchange.billed().completion) == (7, 10**12)
    usage = UsageCount(10**30, 1, 10**30)
    assert request.exchange.cost(usage) == request.exchange.cost(UsageCount(10**12, 1, 10**12))
