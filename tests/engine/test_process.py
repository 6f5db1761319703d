"""An engine in its own process: what its client can rely on while it lives."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from penstock.engine import messages
from penstock.engine.core import EngineCore
from penstock.engine.process import EngineClient
from penstock.engine.request import Request, SamplingParams
from penstock.errors import ContextLengthError, InvalidRequestError, QueueFullError
from tests.engine.engines import (
    CONTEXT,
    answers_to,
    config_of,
    endless,
    request_of,
    save_model,
    tokens_of,
    until,
    until_idle,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(model: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.start(config_of(model))
    yield client
    assert client.alive
    await client.shutdown(5.0)


@pytest_asyncio.fixture(loop_scope="module")
async def client(shared: EngineClient) -> AsyncIterator[EngineClient]:
    """The engine of this module; every test must leave it alive and empty."""
    yield shared
    assert shared.alive
    await until_idle(shared)


@pytest.fixture(scope="module")
def alone(model: Path) -> Callable[[Request], list[int]]:
    """What the same core says in this process, to one request at a time."""
    core = EngineCore(config_of(model, prefix_caching=False))

    def tokens(request: Request) -> list[int]:
        core.submit(request)
        found: list[int] = []
        while core.has_work:
            for event in core.step():
                found += event.token_ids
        return found

    return tokens


async def test_it_tells_what_it_settled_on(client: EngineClient) -> None:
    info = client.info
    assert (info.architecture, info.device) == ("llama", "cpu")
    assert (info.vocab_size, info.max_model_len, info.max_running) == (256, CONTEXT, 4)
    assert client.stats.blocks_total in (0, info.num_blocks)
    assert client.pid != os.getpid()


async def test_it_generates_what_the_core_does(
    client: EngineClient, alone: Callable[[Request], list[int]]
) -> None:
    greedy = request_of("greedy", max_tokens=40)
    seeded = request_of("seeded", max_tokens=40, temperature=1.0, seed=2**64 - 1)
    for request in (greedy, seeded):
        assert await tokens_of(client, request) == alone(request)


async def test_many_at_once_get_what_each_would_get_alone(
    client: EngineClient, alone: Callable[[Request], list[int]]
) -> None:
    requests = [
        request_of(str(at), [1 + at, 2, 3] * (1 + 5 * at), max_tokens=15, temperature=at % 2, seed=at)
        for at in range(8)
    ]
    found = await asyncio.gather(*(tokens_of(client, request) for request in requests))
    assert found == [alone(request) for request in requests]


async def test_each_choice_has_its_own_end(client: EngineClient) -> None:
    answers = await answers_to(client, request_of("a", n=5, temperature=1.0, seed=3, max_tokens=9))
    assert [answer.ends for answer in answers] == [["length"]] * 5
    assert [len(answer.tokens) for answer in answers] == [9] * 5
    assert len({tuple(answer.tokens) for answer in answers}) > 1


async def test_logprobs_come_with_their_tokens(client: EngineClient) -> None:
    (answer,) = await answers_to(client, request_of("a", logprobs=2))
    assert len(answer.logprobs) == len(answer.tokens) == 8
    for token, logprobs in zip(answer.tokens, answer.logprobs, strict=True):
        assert logprobs.top_ids[0] == token, "greedy takes the likeliest"
        assert logprobs.chosen == logprobs.top[0] > logprobs.top[1]


async def test_a_stop_token_is_named(client: EngineClient) -> None:
    tokens = await tokens_of(client, request_of("a"))
    request = Request(
        id="b",
        prompt=[1, 2, 3],
        params=SamplingParams(temperature=0.0, max_tokens=8),
        eos_token_ids=(tokens[2],),
    )
    with client.submit(request) as events:
        seen = [event async for event in events]
    assert seen[-1].finish_reason == "stop"
    assert seen[-1].stop_token == tokens[2]


async def test_a_cached_prompt_is_reported(client: EngineClient) -> None:
    prompt = [9] * 50
    await tokens_of(client, request_of("a", prompt))
    with client.submit(request_of("b", prompt)) as events:
        cached = {event.cached_tokens async for event in events}
    assert cached == {48}


async def test_leaving_the_with_block_cancels_and_frees_the_blocks(client: EngineClient) -> None:
    with client.submit(endless("a", n=2)) as events:
        await anext(events)
        await until(lambda: client.stats.running == 2)
    await until_idle(client)


async def test_leaving_by_an_error_cancels_too(client: EngineClient) -> None:
    async def fail() -> None:
        with client.submit(endless("a")) as events:
            async for _ in events:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    await until_idle(client)


async def test_leaving_before_the_first_event_cancels_too(client: EngineClient) -> None:
    for at in range(50):
        with client.submit(endless(f"a{at}")):
            pass
    await until_idle(client)


async def test_a_cancelled_choice_ends_and_the_others_go_on(client: EngineClient) -> None:
    request = request_of("a", n=3, max_tokens=300)
    ends: dict[int, str] = {}
    lengths = [0, 0, 0]
    with client.submit(request) as events:
        async for event in events:
            lengths[event.index] += len(event.token_ids)
            if lengths == [1, 0, 0]:
                client.cancel("a", 1)
            if event.finish_reason is not None:
                ends[event.index] = event.finish_reason
    assert ends == {0: "length", 1: "cancelled", 2: "length"}
    assert lengths[0] == lengths[2] == 300


async def test_a_cancelled_request_ends_every_choice(client: EngineClient) -> None:
    with client.submit(endless("a", n=2)) as events:
        await anext(events)
        client.cancel("a")
        ends = [event.finish_reason async for event in events if event.finish_reason]
    assert ends == ["cancelled", "cancelled"]


async def test_cancelling_what_is_not_there_is_no_error(client: EngineClient) -> None:
    client.cancel("nobody")
    client.cancel("nobody", 5)
    client.cancel(5)  # type: ignore[arg-type]
    assert len(await tokens_of(client, request_of("a"))) == 8


@pytest.mark.parametrize(
    ("request_", "error", "param"),
    [
        (request_of("x", [256]), InvalidRequestError, "prompt"),
        (request_of("x", [-1]), InvalidRequestError, "prompt"),
        (Request(id="x", prompt=[], params=SamplingParams()), InvalidRequestError, "prompt"),
        (request_of("x", [1] * CONTEXT), ContextLengthError, None),
        (request_of("x", logit_bias={256: 1.0}), InvalidRequestError, "logit_bias"),
        (request_of("x", stop_token_ids=[999]), InvalidRequestError, "stop_token_ids"),
    ],
    ids=["unknown token", "negative token", "empty", "too long", "bias", "stop id"],
)
async def test_a_bad_request_is_refused_by_its_own_error_and_harms_nobody(
    client: EngineClient, request_: Request, error: type[InvalidRequestError], param: str | None
) -> None:
    good = asyncio.create_task(tokens_of(client, request_of("good", max_tokens=50)))
    with pytest.raises(error) as caught:
        await answers_to(client, request_)
    assert type(caught.value) is error
    assert caught.value.param == param
    assert str(caught.value).endswith(".")
    assert len(await good) == 50


@pytest.mark.parametrize(
    "fields",
    [{"prompt": [1.5]}, {"prompt": ["1"]}, {"priority": 1.5}, {"salt": 5}, {"eos_token_ids": (None,)}],
    ids=str,
)
async def test_a_request_of_wrong_types_is_refused_and_harms_nobody(
    client: EngineClient, fields: dict[str, object]
) -> None:
    good = asyncio.create_task(tokens_of(client, request_of("good", max_tokens=50)))
    with pytest.raises(InvalidRequestError, match="cannot be read"):
        await answers_to(client, replace(request_of("x"), **fields))
    assert len(await good) == 50


async def test_a_request_that_cannot_be_sent_is_refused_at_once_and_takes_no_place(
    client: EngineClient,
) -> None:
    for _ in range(20):
        with pytest.raises(InvalidRequestError, match="cannot be sent"):
            client.submit(Request(id="x", prompt=[1], params=SamplingParams(), salt="\ud800"))
    with pytest.raises(InvalidRequestError):
        client.submit(replace(request_of("x"), id=5))
    assert len(await tokens_of(client, request_of("x"))) == 8


async def test_a_message_larger_than_the_engine_takes_is_not_sent(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as smaller:
        smaller.setattr(messages, "MAX_FRAME", 4000)
        with pytest.raises(InvalidRequestError, match="at most 4000"):
            client.submit(request_of("x", [1] * 5000))
    assert len(await tokens_of(client, request_of("x"))) == 8


async def test_a_full_engine_refuses_at_once_and_takes_more_when_there_is_room(client: EngineClient) -> None:
    streams = [client.submit(endless(str(at), n=2)) for at in range(4)]
    with pytest.raises(QueueFullError, match="8 choices are running or waiting, and 1 more") as caught:
        client.submit(request_of("late"))
    assert caught.value.retry_after > 0
    streams[0].close()
    accepted = client.submit(endless("in time", n=2))
    for stream in [*streams, accepted]:
        stream.close()
        stream.close()  # closing twice gives nothing back twice
    with pytest.raises(InvalidRequestError, match="n is 9") as refused:
        client.submit(request_of("never", n=9))
    assert refused.value.param == "n"
    assert len(await tokens_of(client, request_of("late"))) == 8


async def test_a_refused_request_gives_its_place_back(client: EngineClient) -> None:
    for at in range(20):
        with pytest.raises(InvalidRequestError):
            await answers_to(client, request_of(f"bad {at}", [256], n=8))
    await answers_to(client, request_of("good", n=8))


async def test_an_id_in_use_is_refused_and_its_owner_is_not_disturbed(client: EngineClient) -> None:
    with client.submit(request_of("a", max_tokens=100)) as events:
        with pytest.raises(InvalidRequestError, match="'a' is already"):
            client.submit(request_of("a"))
        assert sum([len(event.token_ids) async for event in events]) == 100


async def test_nobody_waits_for_one_who_does_not_read(client: EngineClient) -> None:
    with client.submit(request_of("slow", max_tokens=200)) as slow:
        assert len(await tokens_of(client, request_of("quick", max_tokens=200))) == 200
        assert sum([len(event.token_ids) async for event in slow]) == 200


async def test_a_stream_that_has_ended_stays_ended(client: EngineClient) -> None:
    with client.submit(request_of("a")) as events:
        assert [event async for event in events]
        assert [event async for event in events] == []
    assert [event async for event in events] == []


async def test_a_stream_that_ended_with_an_error_stays_ended(client: EngineClient) -> None:
    with client.submit(request_of("a", [999])) as events:
        with pytest.raises(InvalidRequestError):
            await anext(events)
        assert [event async for event in events] == []


async def test_it_proves_itself_with_a_token(client: EngineClient) -> None:
    before = client.last_token
    assert await client.probe()
    assert client.last_token > before


async def test_a_cancellation_is_no_sign_of_generating(client: EngineClient) -> None:
    engine = psutil.Process(client.pid)
    before = client.last_token
    # While it is stopped, it cannot begin with the request: it learns of the end together with the beginning.
    engine.suspend()
    with client.submit(endless("a")):
        resumed = time.monotonic()
    engine.resume()
    await until(lambda: client.last_beat > resumed)
    assert client.last_token == before


async def test_signals_meant_for_everybody_do_not_end_it(client: EngineClient) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(client.pid, number)
    assert len(await tokens_of(client, request_of("a"))) == 8
    assert os.getpgid(client.pid) != os.getpgid(0), "a terminal's Ctrl-C does not even reach it"


async def test_an_idle_engine_beats_and_uses_next_to_no_processor(client: EngineClient) -> None:
    await until_idle(client)
    process = psutil.Process(client.pid)
    beat, used = client.last_beat, sum(process.cpu_times()[:2])
    await until(lambda: client.last_beat > beat + 1.5)
    assert sum(process.cpu_times()[:2]) - used < 0.4


async def test_counters_add_up(client: EngineClient) -> None:
    await until_idle(client)
    before = client.stats
    await tokens_of(client, request_of("a", [5] * 20, max_tokens=10))
    await until_idle(client)
    after = client.stats
    assert after.generated_tokens - before.generated_tokens == 10
    assert after.prompt_tokens - before.prompt_tokens == 20
    assert after.steps - before.steps == 10
    assert 0 <= after.kv_waste < 1
    assert after.kv_usage == 0


async def test_a_storm_of_arrivals_and_departures_leaves_nothing_behind(client: EngineClient) -> None:
    async def visit(at: int) -> None:
        for turn in range(12):
            try:
                with client.submit(endless(f"{at} {turn}", n=1 + at % 2)) as events:
                    for _ in range(turn % 4):
                        await anext(events)
            except QueueFullError:
                await asyncio.sleep(0.01)

    visits: list[Awaitable[None]] = [visit(at) for at in range(8)]
    await asyncio.gather(*visits)
    await until_idle(client)
    assert len(await tokens_of(client, request_of("a"))) == 8
