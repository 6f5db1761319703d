"""Answers that are held back for a second look: what the client gets, what is billed, what is left behind."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import hub
from penstock.config import BackendConfig, CascadeConfig, GatewayConfig, HealthConfig, ModelConfig
from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.request import EngineStats, TokenEvent
from penstock.engine.request import Request as EngineRequest
from penstock.gateway import second_look
from penstock.gateway.accounts import Accounts, KeyRing, Price
from penstock.gateway.attempts import Answering, have_answered
from penstock.gateway.backends import Backend, BackendError
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.call import ClientGoneError
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.exchange import Exchange
from penstock.gateway.local.backend import OPERATIONS, EngineBackend
from penstock.gateway.local.model import ServedModel
from penstock.gateway.messages import speak
from penstock.gateway.second_look import Looked, with_second_look
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from penstock.protocol.shapes import UsageCount
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantEngine
from tests.gateway.backends.asking import Got, backend_of, exchange_of
from tests.gateway.door import save_tiny_chat
from tests.servers.http import HangUp, LocalServer, Reply, Request, answer
from tests.servers.openai import WORD, Fleet

OPTIONS = CascadeConfig(enabled=True, confidence=0.5, hold_tokens=4)
REFUSAL = "I cannot help with that request, as an AI language model."
GOOD = "The capital of France is Paris, on the river Seine."
QUESTION = "What is the capital of France?"
PRICE = Price(input=1, cached_input=1, output=100, request=0)  # picodollars


class Speaking(LocalServer):
    """A server that says one text, a word a token. `left`: a client hung up in the middle of a stream."""

    def __init__(self, text: str, *, breaks_after: int | None = None, **message: Any) -> None:
        super().__init__(self._handle)
        self._words = [f"{word} " for word in text.split(" ")] if text else []
        self._breaks_after = breaks_after
        self._message = message
        self.left = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    async def _handle(self, request: Request) -> Reply:
        if request.method == "GET":
            return answer({"object": "list", "data": []})
        body = request.json()
        head = {"id": "x", "created": 1, "model": body["model"]}
        if body.get("stream"):
            stream = self._stream({**head, "object": "chat.completion.chunk"})
            return Reply(200, headers={"content-type": "text/event-stream"}, stream=stream)
        await self.gate.wait()
        message = {"role": "assistant", "content": "".join(self._words), **self._message}
        choices = [
            {"index": index, "message": message, "finish_reason": "stop"} for index in range(body.get("n", 1))
        ]
        return answer({**head, "object": "chat.completion", "choices": choices, "usage": self._usage()})

    async def _stream(self, head: dict[str, Any]) -> AsyncIterator[bytes]:
        try:
            yield _event(**head, choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
            for number, word in enumerate(self._words):
                if number == self._breaks_after:
                    raise HangUp
                yield _event(**head, choices=[{"index": 0, "delta": {"content": word}}])
                await asyncio.sleep(0.001)
                await self.gate.wait()
            yield _event(**head, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
            yield _event(**head, choices=[], usage=self._usage())
            yield b"data: [DONE]\n\n"
        except (ConnectionError, GeneratorExit, asyncio.CancelledError):
            self.left.set()
            raise

    def _usage(self) -> dict[str, int]:
        count = len(self._words)
        return {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}


def _event(**content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


@asynccontextmanager
async def speaking(text: str, **options: Any) -> AsyncIterator[tuple[Speaking, Backend]]:
    async with Speaking(text, **options) as server:
        backend = backend_of(server.url)
        try:
            yield server, backend
        finally:
            await backend.close()


def asked(got: Got, asks: str = "createChatCompletion", **fields: Any) -> Exchange:
    body = {"model": "mine", "messages": [{"role": "user", "content": QUESTION}], **fields}
    exchange = got.exchange = exchange_of(asks, body, got)
    exchange.price, exchange.tier, exchange.upstream_model = PRICE, "small", "upstream-name"
    return exchange


async def look(exchange: Exchange, backend: Backend, options: CascadeConfig = OPTIONS, **more: Any) -> Looked:
    return await with_second_look(exchange, lambda: backend.answer(exchange), options, QUESTION, **more)


async def straight(text: str, **fields: Any) -> Got:
    """What a client gets without a second look."""
    async with speaking(text) as (_, backend):
        await backend.answer(asked(got := Got(), **fields))
        return got


def untimed(got: Got) -> Any:
    body = got.json()
    body["usage"].pop("latency_ms")
    return body


# ---------------------------------------------------------------- whole answers


async def test_an_answer_that_passes_is_the_one_that_would_have_been_sent() -> None:
    expected = await straight(GOOD)
    async with speaking(GOOD) as (_, backend):
        looked = await look(asked(got := Got()), backend)
    assert looked.look is not None
    assert looked.look.accept
    assert not looked.escalate
    assert untimed(got) == untimed(expected)
    assert got.headers.keys() == expected.headers.keys()
    assert got.exchange is not None
    assert got.exchange.done
    assert got.exchange.billed().completion == expected.delivered.completion
    assert (looked.spent, looked.cost) == (UsageCount(), None)


async def test_a_refusal_is_taken_back_unbilled_and_the_next_tier_answers() -> None:
    async with speaking(REFUSAL) as (_, small), speaking(GOOD) as (_, large):
        exchange = asked(got := Got())
        looked = await look(exchange, small)
        assert looked.escalate
        assert looked.look is not None
        assert "refusal" in looked.look.reasons
        assert (got.status, got.body) == (0, b"")
        assert not exchange.started
        assert not exchange.begun
        assert not exchange.done
        assert not exchange.first_byte
        assert exchange.billed() == UsageCount()
        words = len(REFUSAL.split())
        assert (looked.spent.prompt, looked.spent.completion) == (7, words)
        assert looked.cost == pytest.approx((7 + 100 * words) / 1e12)
        exchange.tier = "large"
        await large.answer(exchange)
    assert got.json()["choices"][0]["message"]["content"].strip() == GOOD
    assert got.headers["x-penstock-tier"] == "large"
    assert exchange.billed().completion == len(GOOD.split())


async def test_an_answer_that_was_taken_back_can_be_sent_after_all_as_its_own_tiers() -> None:
    async with speaking(REFUSAL) as (_, small):
        exchange = asked(got := Got())
        looked = await look(exchange, small)
        exchange.tier, exchange.price = "large", None
        assert looked.kept is not None
        await looked.kept.send()
    assert got.json()["choices"][0]["message"]["content"].strip() == REFUSAL
    assert (got.headers["x-penstock-tier"], exchange.tier, exchange.price) == ("small", "small", PRICE)
    assert exchange.billed().completion == len(REFUSAL.split())
    assert exchange.done


async def test_a_failed_attempt_leaves_the_exchange_as_it_was() -> None:
    async with speaking(GOOD, breaks_after=2) as (_, broken):
        exchange = asked(got := Got(), stream=True)
        call = exchange.call
        with pytest.raises(BackendError):
            await look(exchange, broken)
    assert exchange.call is call
    assert exchange.watch is None
    assert got.status == 0
    assert not exchange.begun
    assert exchange.billed() == UsageCount()


@pytest.mark.parametrize(
    "fields", [{"n": 2}, {"stream": True, "stream_options": {"include_usage": True}}], ids=["two", "stream"]
)
async def test_what_cannot_be_looked_at_goes_out_as_it_comes(fields: dict[str, Any]) -> None:
    async with speaking(REFUSAL) as (_, backend):
        looked = await look(asked(got := Got(), **fields), backend, CascadeConfig(hold_tokens=0))
    assert looked.look is None
    assert got.status == 200
    assert got.exchange is not None
    assert got.exchange.billed().completion >= len(REFUSAL.split())


async def test_a_client_that_leaves_during_the_look_ends_it_and_is_not_billed() -> None:
    exchanges: list[Exchange] = []
    sampling = asyncio.Event()

    async def sample() -> str:
        sampling.set()
        await asyncio.Event().wait()
        return ""

    async def run(backend: Backend) -> None:
        exchanges.append(asked(Got()))
        options = CascadeConfig(confidence=0.8, consistency=1)
        await look(exchanges[0], backend, options, sample=sample)

    async with speaking(GOOD) as (_, backend):
        task = asyncio.create_task(run(backend))
        await sampling.wait()
        [exchange] = exchanges
        assert not exchange.done, "it has been answered, but nobody has got the answer"
        exchange.abort(ClientGoneError())
        with pytest.raises(asyncio.CancelledError):
            await task
    assert exchange.billed() == UsageCount()
    assert not exchange.first_byte


async def test_an_answer_that_cannot_be_written_is_not_billed() -> None:
    async with speaking(GOOD) as (_, backend):
        exchange = asked(Got())

        async def gone(message: Any) -> None:
            raise ConnectionError

        exchange.call._send = gone  # type: ignore[attr-defined]
        with pytest.raises(ConnectionError):
            await look(exchange, backend)
    assert exchange.billed() == UsageCount()


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize(("sample", "accepted"), [("It is 4.", True), ("It is 5.", False)])
async def test_a_doubtful_answer_is_compared_with_further_samples(sample: str, accepted: bool) -> None:
    asking: list[str] = []
    begun: list[float] = []

    async def again() -> str:
        asking.append(sample)
        begun.append(time.monotonic())
        return sample

    options = CascadeConfig(confidence=0.85, consistency=2)
    async with speaking("It is 4.") as (_, backend):
        exchange = asked(Got())
        looked = await with_second_look(
            exchange, lambda: backend.answer(exchange), options, "How much is 2 + 2?", sample=again
        )
    assert looked.look is not None
    assert looked.look.accept == accepted
    assert len(asking) == 2
    assert exchange.first_byte > begun[-1] if accepted else exchange.first_byte == 0


async def test_samples_that_do_not_come_leave_time_until_the_deadline() -> None:
    async def again() -> str:
        await asyncio.Event().wait()
        raise AssertionError("nobody ends it")

    options = CascadeConfig(confidence=0.85, consistency=2)
    async with speaking("It is 4.") as (_, backend):
        exchange = asked(got := Got())
        exchange.deadline = time.monotonic() + 0.4
        looked = await with_second_look(
            exchange, lambda: backend.answer(exchange), options, "How much is 2 + 2?", sample=again
        )
    assert looked.look is not None
    assert looked.escalate == (got.status == 0)


async def test_what_is_plainly_wrong_is_not_asked_for_again_to_be_sure() -> None:
    async def again() -> str:
        raise AssertionError("a sample costs as much as an answer")

    async with speaking(REFUSAL) as (_, backend):
        looked = await look(asked(Got()), backend, CascadeConfig(confidence=0.5, consistency=3), sample=again)
    assert looked.escalate


# ---------------------------------------------------------------- streams


async def test_a_stream_begins_when_enough_of_it_has_passed_and_nothing_is_lost_or_twice() -> None:
    expected = await straight(GOOD, stream=True)
    async with speaking(GOOD) as (_, backend):
        looked = await look(asked(got := Got(), stream=True), backend)
    assert looked.look is not None
    assert looked.look.accept
    assert got.body == expected.body
    assert got.ended
    assert got.writes[0].count(b'"content": ') == OPTIONS.hold_tokens + 1, "the role, and what was held"
    assert len(got.writes) > 2, "from then on it comes as it is made"
    assert got.exchange is not None
    assert got.exchange.done
    assert got.exchange.billed().completion == len(GOOD.split())


async def test_a_stream_that_does_not_pass_is_stopped_at_its_server_before_the_client_saw_a_byte() -> None:
    async with speaking(REFUSAL + " More." * 500) as (server, small), speaking(GOOD) as (_, large):
        exchange = asked(got := Got(), stream=True)
        looked = await look(exchange, small)
        assert looked.escalate
        assert got.status == 0
        assert looked.kept is None
        assert looked.spent.completion == OPTIONS.hold_tokens
        await asyncio.wait_for(server.left.wait(), 30)
        await large.answer(exchange)
    assert got.text.strip() == GOOD
    assert exchange.billed().completion == len(GOOD.split())


@pytest.mark.parametrize(("text", "accepted"), [("Paris.", True), ("", False)])
async def test_a_stream_that_ends_before_is_looked_at_whole(text: str, accepted: bool) -> None:
    async with speaking(text) as (_, backend):
        looked = await look(asked(got := Got(), stream=True), backend)
    assert looked.look is not None
    assert looked.look.accept == accepted
    assert got.ended == accepted
    if not accepted:
        assert looked.kept is not None
        await looked.kept.send()
        assert got.events[-1] == "[DONE]"
        assert got.ended


async def test_what_one_replica_had_begun_is_not_sent_when_another_takes_over() -> None:
    async with speaking("Lost words", breaks_after=1) as (_, first), speaking(GOOD) as (_, second):
        exchange = asked(got := Got(), stream=True)

        async def tries() -> None:
            assert exchange.watch is not None
            exchange.watch.token(-9.0)  # as an engine of ours would have told
            with pytest.raises(BackendError):
                await first.answer(exchange)
            assert exchange.spent().completion == 1
            assert exchange.billed() == UsageCount(), "it is held back"
            exchange.reset()
            await second.answer(exchange)

        looked = await with_second_look(exchange, tries, OPTIONS, QUESTION)
    assert looked.look is not None
    assert looked.look.reasons == (), "of the words that were lost nothing is held against the others"
    assert got.text.strip() == GOOD
    assert exchange.billed().completion == len(GOOD.split())


async def test_a_try_that_fails_while_it_is_held_leaves_nothing_to_the_next_replicas(tmp_path: Path) -> None:
    fleet = Fleet()
    async with fleet.replica() as one, fleet.replica() as two:
        deployment = Deployment(ModelConfig(name="mine"), GatewayConfig(), None)
        backends = [
            RelayBackend(deployment.config, BackendConfig(name=url, kind="vllm", url=url), HealthConfig())
            for url in (one.url, two.url)
        ]
        for backend in backends:
            deployment.dispatcher.add(backend, 1.0)
            await backend.start()
        members = deployment.dispatcher.members.values()
        while not all(member.look(time.monotonic()) for member in members):  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.001)
        accounts, registry, drains = Accounts.open(None), SharedRegistry(tmp_path), Drains(tmp_path)
        gateway = Gateway(GatewayConfig(), [deployment], KeyRing(), accounts, Metrics(), registry, drains)
        plan = json.dumps({"tokens": 40, "faults": ["half"]})
        exchange = asked(got := Got(), stream=True, messages=[{"role": "user", "content": plan}])

        async def attempt() -> None:
            tenant = gateway.tenant(exchange.caller)
            await have_answered(
                gateway, exchange, tenant, "standard", Answering(deployment), lambda *sizes: None
            )

        options = CascadeConfig(confidence=0.001, hold_tokens=30)
        await with_second_look(exchange, attempt, options, QUESTION)
        for backend in backends:
            await backend.close()
    assert fleet.tries.total() == 2
    assert got.text == WORD * 40
    assert exchange.billed().completion == 40


async def test_a_stream_of_large_parts_is_not_held_beyond_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_look, "MAX_HELD_BYTES", 500)
    async with speaking(GOOD) as (_, backend):
        await look(asked(got := Got(), stream=True), backend, CascadeConfig(hold_tokens=10_000))
    assert 500 <= len(got.writes[0]) < 1000


async def test_a_client_of_messages_gets_one_beginning_after_an_escalation() -> None:
    async with speaking(REFUSAL) as (_, small), speaking(GOOD) as (_, large):
        exchange = asked(got := Got(), "createMessage", stream=True, max_tokens=99)
        speak(exchange, [_Chatting()])
        looked = await look(exchange, small)
        assert looked.escalate
        assert got.status == 0
        await large.answer(exchange)
    names = [line for line in got.body.decode().split("\n") if line.startswith("event: ")]
    assert names.count("event: message_start") == 1
    assert names[-1] == "event: message_stop"
    assert "Paris" in got.body.decode()
    assert "cannot" not in got.body.decode()


class _Chatting:
    operations = frozenset({"createChatCompletion"})


class Seen:
    """A tap that writes down what it is shown."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.uses: list[UsageCount | None] = []

    def whole(self, body: bytes, usage: UsageCount | None, status: int) -> None:
        self.parts.append(body)
        self.uses.append(usage)

    def began(self) -> None:
        self.parts.append(b"began")

    def part(self, data: bytes) -> None:
        self.parts.append(data)

    def ended(self, data: bytes) -> None:
        self.parts.append(data)

    def keeps(self) -> bool:
        return False


@pytest.mark.parametrize("stream", [False, True])
async def test_whoever_taps_an_exchange_sees_only_what_was_sent(stream: bool) -> None:
    async with speaking(REFUSAL) as (_, small), speaking(GOOD) as (_, large):
        exchange = asked(got := Got(), stream=stream)
        exchange.tap = seen = Seen()
        assert (await look(exchange, small)).escalate
        assert seen.parts == []
        assert exchange.tap is seen
        await look(exchange, large)
    shown = b"".join(seen.parts)
    if stream:
        assert shown == b"began" + got.body
    else:
        assert b"Paris" in shown
        assert b"latency_ms" not in shown
        assert [use and use.latency_ms for use in seen.uses] == [None]


# ---------------------------------------------------------------- engines of ours


class Stepping:
    """A core in this process that makes a step whenever somebody waits for a token."""

    stats = EngineStats()

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.info = core.info

    def submit(self, request: EngineRequest) -> Steps:
        self.core.submit(request)
        return Steps(self.core, request.id)

    def cancel(self, request_id: str, index: int | None = None) -> None:
        self.core.cancel(request_id, index)


class Steps:
    def __init__(self, core: EngineCore, request_id: str) -> None:
        self._core = core
        self._id = request_id

    async def __aiter__(self) -> AsyncIterator[TokenEvent]:
        while self._core.has_work:
            for event in self._core.step():
                yield event
            await asyncio.sleep(0)

    def close(self) -> None:
        self._core.cancel(self._id)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> EngineBackend:
    """A small random model that can chat."""
    path = save_tiny_chat(tmp_path_factory.mktemp("tiny"))
    core = EngineCore(EngineConfig(model=str(path), device="cpu", kv_cache_memory=4 << 20, threads=1))
    model = ServedModel(("mine",), Tokenizer.load(hub.resolve(str(path))), core.info)
    return EngineBackend(InstantEngine(Stepping(core)), model, Metrics().model("mine"))


async def generated(engine: EngineBackend, run: Callable[[Exchange], Awaitable[None]], **fields: Any) -> Got:
    exchange = asked(got := Got(), **{"temperature": 0, "max_tokens": 12, "ignore_eos": True, **fields})
    _, prepare, _ = OPERATIONS["createChatCompletion"]
    exchange.prepared = prepare(engine._model, exchange.inquiry.encode())
    await run(exchange)
    return got


class Heard:
    def __init__(self) -> None:
        self.logprobs: list[float] = []

    def token(self, logprob: float) -> None:
        self.logprobs.append(logprob)

    def clear(self) -> None:
        self.logprobs.clear()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_watch_hears_the_log_probabilities_that_a_client_could_have_asked_for(
    engine: EngineBackend, stream: bool
) -> None:
    watch = Heard()

    async def watched(exchange: Exchange) -> None:
        exchange.watch = watch
        await engine.answer(exchange)

    await generated(engine, engine.answer)  # from now on the prompt is cached
    plain = await generated(engine, engine.answer, stream=stream)
    silent = await generated(engine, watched, stream=stream)
    telling = await generated(engine, engine.answer, logprobs=True)
    expected = [each["logprob"] for each in telling.json()["choices"][0]["logprobs"]["content"]]
    assert watch.logprobs == pytest.approx(expected)
    assert len(expected) == 12
    assert unnamed(silent) == unnamed(plain), "the client sees no difference"


def unnamed(got: Got) -> list[Any]:
    """What does not differ from one request to the next."""
    bodies = [event for event in got.events if event != "[DONE]"] if got.events else [got.json()]
    for body in bodies:
        del body["id"], body["created"]
        if body.get("usage"):
            del body["usage"]["latency_ms"]
    return bodies


async def test_an_answer_that_its_own_model_finds_improbable_does_not_pass(engine: EngineBackend) -> None:
    looks: list[Looked] = []

    async def run(exchange: Exchange) -> None:
        looks.append(await look(exchange, engine))

    wild = {"temperature": 2, "seed": 1}
    got = await generated(engine, run, **wild)
    [looked] = looks
    assert looked.escalate
    assert looked.look is not None
    assert "the model was not sure" in looked.look.reasons
    assert got.status == 0
    assert looked.spent.completion == 12
    aborted = engine._metrics.finished["abort"]
    before = aborted.value
    await generated(engine, run, stream=True, **wild)
    assert looks[1].escalate
    assert OPTIONS.hold_tokens <= looks[1].spent.completion < 12, "it was stopped early"
    assert aborted.value == before + 1, "whoever is told to stop has not failed"
    assert not engine._engine.client.core.has_work, "nothing goes on computing it"
