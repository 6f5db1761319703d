"""What the record of a request says: its phases and times, and how it ended, whichever way it took."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import hub
from penstock.config import (
    BackendConfig,
    CascadeConfig,
    GatewayConfig,
    HealthConfig,
    MetricsConfig,
    ModelConfig,
    MonitorConfig,
    PriceConfig,
    QueueConfig,
    RoutingConfig,
    TenantConfig,
    TierConfig,
)
from penstock.engine.request import Request, TokenEvent
from penstock.gateway.accounts import Accounts, KeyRing
from penstock.gateway.app import FrontDoor
from penstock.gateway.backends.relay import RelayBackend
from penstock.gateway.deployment import Deployment
from penstock.gateway.discovery import SharedRegistry
from penstock.gateway.drains import Drains
from penstock.gateway.local import answer
from penstock.gateway.local.model import ServedModel
from penstock.gateway.recording import attempt_ended
from penstock.gateway.routing.orchestrator import Orchestrator
from penstock.gateway.state import Gateway
from penstock.observe.metrics import Metrics
from penstock.observe.record import Phase, RequestRecord
from penstock.text.tokenizer import Tokenizer
from tests.backends import InstantBackend, ask, gateway_of
from tests.gateway.cache.front import Answer, Front, front, plan
from tests.gateway.cache.test_serving import kept as settled
from tests.gateway.cache.test_serving import memory
from tests.gateway.test_large_answers import INFO, VECTOR
from tests.gateway.upstream.conftest import pytest_asyncio_loop_factories
from tests.observe.pages import samples
from tests.servers.openai import Fleet

__all__ = ["pytest_asyncio_loop_factories"]

CHAT = "createChatCompletion"


class Kept:
    """Who listens."""

    def __init__(self, gateway: Gateway) -> None:
        self._records: list[RequestRecord] = []
        self._recorder = gateway.recorder
        self._recorder.add(self)

    def finished(self, record: RequestRecord) -> None:
        self._records.append(record)

    @property
    def records(self) -> list[RequestRecord]:
        self._recorder.tell()
        return self._records

    @property
    def last(self) -> RequestRecord:
        return self.records[-1]


def shape(record: RequestRecord) -> list[str]:
    """The names of its phases, with what they say of themselves."""
    check(record)
    return [f"{phase.name} {phase.detail}".strip() + " failed" * phase.failed for phase in record.phases]


def check(record: RequestRecord) -> None:
    """What holds of every record."""
    assert record.arrived <= record.ended <= time.monotonic()
    assert abs(record.wall - time.time()) < 60
    attempt = None
    before = record.arrived
    for phase in record.phases:
        assert record.arrived <= phase.start <= phase.end <= record.ended, phase
        if phase.name == "attempt":
            attempt = phase
        inside = phase.name in ("prefill", "decode") or phase.detail == "engine"
        if inside:
            assert attempt is not None
            assert attempt.start <= phase.start <= phase.end <= attempt.end, phase
        else:
            assert phase.start >= before, phase
            before = phase.end
    if record.ttft is not None:
        assert 0 <= record.ttft <= record.seconds


@asynccontextmanager
async def doors(
    *models: ModelConfig, replicas: int = 1, fleet: Fleet | None = None, **sections: Any
) -> AsyncIterator[tuple[Front, Kept]]:
    """A front door without a cache; each model has so many replicas, which behave as they are asked to."""
    fleet = fleet or Fleet()
    async with contextlib.AsyncExitStack() as stack:
        config = GatewayConfig(models=models, health=HealthConfig(error_requests=1000), **sections)
        deployments = [Deployment(model, config, None) for model in models]
        metrics, registry, drains = Metrics(), SharedRegistry(Path("unused")), Drains(Path("unused"))
        orchestrator = Orchestrator.open(None, metrics, _nobody) if config.tiers else None
        gateway = Gateway(
            config, deployments, KeyRing(), Accounts.open(None), metrics, registry, drains, orchestrator
        )
        if orchestrator is not None:
            orchestrator.prepare(config)
            orchestrator.configure(config, gateway.deployments)
        for deployment in deployments:
            for number in range(replicas):
                server = await stack.enter_async_context(fleet.replica())
                backend = BackendConfig(name=f"b{number}", kind="openai", url=server.url, model="upstream")
                relay = RelayBackend(deployment.config, backend, config.health)
                deployment.dispatcher.add(relay, 1.0)
                await relay.start()
                stack.push_async_callback(relay.close)
        clock = asyncio.create_task(gateway.keep_time())
        stack.callback(clock.cancel)
        yield Front(gateway, memory(), server), Kept(gateway)


async def begun(fleet: Fleet) -> None:
    """A replica has a request."""
    while not fleet.tries:  # noqa: ASYNC110 (no event tells)
        await asyncio.sleep(0.001)


async def _nobody(*_: Any, **__: Any) -> Any: ...


def door(**options: Any) -> contextlib.AbstractAsyncContextManager[tuple[Front, Kept]]:
    """With one model, which has a price."""
    return doors(ModelConfig(name="m", price=PriceConfig(input=1.0, output=2.0)), **options)


async def test_a_stream_from_another_server() -> None:
    async with door() as (front, kept):
        before = time.monotonic()
        await front.ask(plan(5, pause=0.2, model="m", stream=True))
    record = kept.last
    assert shape(record) == ["admission", "queue", "attempt b0", "prefill upstream", "decode"]
    assert (record.outcome, record.status, record.code) == ("ok", 200, "")
    assert (record.tenant, record.model, record.served_by, record.tier) == ("acme", "m", "m", "m")
    assert (record.operation, record.service_class, record.stream) == (CHAT, "standard", True)
    assert (record.completion_tokens, record.cache, record.retries) == (5, "", 0)
    assert record.arrived >= before
    assert record.phases[3].seconds > 0.19
    assert record.ttft == pytest.approx(record.phases[3].end - record.arrived)
    assert record.tpot == pytest.approx(record.phases[4].seconds / 4)


async def test_the_time_of_a_token_is_that_of_one_choice() -> None:
    async with door() as (front, kept):
        await front.ask(plan(40, model="m", stream=True, n=4))
    record = kept.last
    assert (record.choices, record.completion_tokens) == (4, 40)
    assert record.tpot == pytest.approx((record.last_token - record.first_token) / 9)


async def test_a_whole_answer_of_another_server_hides_when_it_had_the_first_token() -> None:
    async with door() as (front, kept):
        await front.ask(plan(5, pause=0.1, model="m"))
    record = kept.last
    assert shape(record) == ["admission", "queue", "attempt b0"]
    assert (record.ttft, record.tpot, record.completion_tokens) == (None, None, 5)
    assert record.phases[2].seconds >= 0.1


async def test_vectors_have_no_tokens_so_the_first_byte_counts() -> None:
    async with door() as (front, kept):
        await front.ask({"model": "m", "input": "w w w "}, path="/v1/embeddings")
    record = kept.last
    assert (record.operation, record.outcome, record.prompt_tokens) == ("createEmbedding", "ok", 3)
    assert record.ttft is not None


async def test_a_failed_try_is_an_attempt_of_its_own() -> None:
    async with door(replicas=2) as (front, kept):
        await front.ask(plan(5, faults=["500"], model="m", stream=True))
    record = kept.last
    first, second = [phase for phase in record.phases if phase.name == "attempt"]
    assert (first.failed, second.failed, record.retries, record.outcome) == (True, False, 1, "ok")
    assert first.detail != second.detail
    check(record)


async def test_what_is_taken_back_from_a_lost_replica_is_counted_as_retried() -> None:
    fleet = Fleet()
    async with door(fleet=fleet) as (front, kept):
        asking = asyncio.create_task(front.ask(plan(1, pause=0.5, model="m")))
        await begun(fleet)
        dispatcher = front.gateway.deployments["m"].dispatcher
        for member in dispatcher.members.values():
            dispatcher._take_back(member)
        await asking
        counted = samples(front.gateway.metrics.render())
    assert (kept.last.outcome, kept.last.retries) == ("ok", 1)
    assert counted.of("penstock_retries_total", model_name="m") == 1
    assert counted.of("penstock_queue_seconds_count", model_name="m") == 1, "one request, waited once"


async def test_a_request_that_nobody_can_answer_failed() -> None:
    async with door(replicas=2) as (front, kept):
        await front.ask(plan(5, faults=["500"] * 9, model="m"))
    record = kept.last
    assert (record.outcome, record.status, record.code) == ("failed", 502, "bad_gateway")
    assert all(phase.failed for phase in record.phases if phase.name == "attempt")
    assert record.ttft is None


async def test_a_stream_that_breaks_off_failed_whatever_its_status_said() -> None:
    async with door() as (front, kept):
        await front.ask(plan(6, faults=["half"], model="m", stream=True))
    record = kept.last
    assert (record.outcome, record.status) == ("failed", 200)
    assert record.code
    assert shape(record)[2:] == ["attempt b0 failed", "prefill upstream", "decode"]
    assert record.completion_tokens == 3


async def test_a_client_that_leaves_has_aborted() -> None:
    fleet, client = Fleet(), Answer()
    async with door(fleet=fleet) as (front, kept):
        asking = asyncio.create_task(front.ask(plan(3, pause=5, model="m"), answer=client))
        await begun(fleet)
        client.left.set()
        await asking
    record = kept.last
    assert (record.outcome, record.status, record.ttft) == ("aborted", 499, None)
    assert shape(record) == ["admission", "queue", "attempt b0"], "the replica is not to blame"


async def test_a_client_that_does_not_read_is_known_to_have_blocked() -> None:
    client = Answer(reads=asyncio.Event())
    assert client.reads is not None
    async with door() as (front, kept):
        asking = asyncio.create_task(front.ask(plan(5, model="m", stream=True), answer=client))
        await client.has(10)
        await asyncio.sleep(0.3)
        client.reads.set()
        await asking
    assert 0.29 < kept.last.blocked < kept.last.seconds
    assert kept.last.outcome == "ok"


@pytest.mark.parametrize(
    ("tenant", "body", "outcome", "status", "code"),
    [
        ({"requests_per_minute": 1}, {}, "shed", 429, "rate_limit_exceeded"),
        ({"monthly_budget": 1e-9}, {"max_tokens": 1000}, "shed", 429, "insufficient_quota"),
        ({}, {"model": "unknown"}, "rejected", 404, "model_not_found"),
        ({}, {"model": "x" * 100_000}, "rejected", 404, "model_not_found"),
        ({}, {"stream_options": {}}, "rejected", 400, ""),
        ({"models": ["other"]}, {}, "rejected", 403, "model_not_allowed"),
    ],
)
async def test_refusals_are_told_from_mistakes(
    tenant: dict[str, Any], body: dict[str, Any], outcome: str, status: int, code: str
) -> None:
    config = TenantConfig(name="acme", **tenant)
    async with door(tenants=(config,)) as (front, kept):
        for _ in range(2):
            await front.ask(plan(1, **{"model": "m", **body}))
    record = kept.last
    assert (record.outcome, record.status, record.tenant) == (outcome, status, "acme")
    assert code in record.code
    assert len(record.model) <= 128
    assert not any(phase.name == "attempt" for phase in record.phases)
    check(record)


async def test_a_full_queue_and_a_deadline_shed() -> None:
    fleet = Fleet()
    async with door(fleet=fleet, queue=QueueConfig(max_requests=1)) as (front, kept):
        member = front.gateway.deployments["m"].dispatcher.members["b0"]
        member.backend.capacity = 1  # type: ignore[misc]
        running = asyncio.create_task(front.ask(plan(1, pause=2, model="m")))
        await begun(fleet)
        waiting = asyncio.create_task(front.ask(plan(1, model="m")))
        while not len(front.gateway.deployments["m"].dispatcher.queue):  # noqa: ASYNC110 (no event tells)
            await asyncio.sleep(0.001)
        await front.ask(plan(1, model="m"))
        full = kept.last
        await asyncio.gather(running, waiting)
        [queued] = [phase for phase in kept.last.phases if phase.name == "queue"]
        assert queued.seconds > 0.2
        late = await asked(front.gateway, plan(1, pause=5, model="m"), (b"x-penstock-deadline-ms", b"100"))
    assert late == 503
    assert (full.outcome, full.status, full.code) == ("shed", 429, "queue_full")
    assert shape(full) == ["admission", "queue failed"]
    assert (kept.last.outcome, kept.last.code) == ("shed", "deadline_exceeded")
    assert kept.last.seconds > 0.09


async def asked(gateway: Gateway, body: Any, *headers: tuple[bytes, bytes]) -> int:
    """The status of what comes out of the whole application."""
    sent: list[Any] = []
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    messages = iter([{"type": "http.request", "body": content}])

    async def receive() -> Any:
        for message in messages:
            return message
        await asyncio.Event().wait()
        raise AssertionError("nobody hangs up here")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"content-type", b"application/json"), *headers],
    }
    await FrontDoor(gateway)(scope, receive, send)
    return int(sent[0]["status"])


async def test_who_has_no_key_is_recorded_without_a_tenant() -> None:
    async with door() as (front, kept):
        front.gateway.keys.configure(["secret"])
        assert await asked(front.gateway, plan(1, model="m")) == 401
        record = kept.last
        assert (record.outcome, record.status, record.code) == ("rejected", 401, "invalid_api_key")
        assert (record.tenant, record.model, record.phases) == ("", "", [])
        assert await asked(front.gateway, plan(1, model="m"), (b"authorization", b"Bearer secret")) == 200
    assert (kept.last.outcome, kept.last.tenant) == ("ok", "default")
    assert [each.outcome for each in front.gateway.recent] == ["ok"]


async def test_requests_need_not_be_measured_and_a_reload_can_change_that() -> None:
    async with door() as (front, kept):
        gateway = front.gateway
        config, deployments = gateway.config, list(gateway.deployments.values())
        for enabled, known in ((True, 1), (False, 1), (True, 2)):
            gateway.configure(replace(config, metrics=MetricsConfig(enabled=enabled)), deployments)
            assert await asked(gateway, plan(1, model="m")) == 200
            assert len(kept.records) == len(gateway.recent) == known


async def test_what_is_no_json_is_rejected() -> None:
    async with door() as (front, kept):
        assert await asked(front.gateway, b"{") == 400
    assert (kept.last.outcome, kept.last.status) == ("rejected", 400)


async def test_a_server_that_shuts_down_sheds() -> None:
    async with door() as (front, kept):
        front.gateway.refuse_new()
        assert await asked(front.gateway, plan(1, model="m")) == 503
        page = front.gateway.metrics.render().decode()
    assert (kept.last.outcome, kept.last.status, kept.last.code) == ("shed", 503, "draining")
    assert 'penstock_requests_total{model_name="",class="",outcome="shed"} 1' in page
    judged = [line for line in page.splitlines() if line.startswith("penstock_slo_requests_total")]
    assert judged
    assert all(line.endswith(" 0.0") for line in judged), "a drain calls nobody"


async def test_what_was_let_in_before_a_shutdown_cut_it_off_has_failed() -> None:
    fleet = Fleet()
    async with door(fleet=fleet) as (front, kept):
        asking = asyncio.create_task(front.ask(plan(1, pause=5, model="m")))
        await begun(fleet)
        front.gateway.abort_all("The server is shutting down.")
        await asking
    assert (kept.last.outcome, kept.last.status) == ("failed", 503)


async def test_a_fallback_is_counted_and_named() -> None:
    models = ModelConfig(name="m", fallbacks=("n",)), ModelConfig(name="n")
    async with doors(*models) as (front, kept):
        await front.ask(plan(2, faults=["503"], model="m", stream=True))
    record = kept.last
    assert (record.outcome, record.model, record.served_by) == ("ok", "m", "n")
    assert record.fallbacks == 1
    assert record.retries == len([each for each in record.phases if each.name == "attempt"]) - 2
    check(record)


async def test_what_the_cache_did_is_a_phase() -> None:
    async with front(memory()) as door:
        kept = Kept(door.gateway)
        await settled(door, plan(3, stream=True))
        miss = kept.last
        await door.ask(plan(3, stream=True))
        hit = kept.last
        await door.ask(plan(3), control="no-store")
        bypass = kept.last
    assert shape(miss)[:2] == ["admission", "cache miss"]
    assert shape(hit) == ["admission", "cache hit"]
    assert shape(bypass)[1] == "cache bypass"
    assert (miss.cache, hit.cache, bypass.cache) == ("miss", "hit", "bypass")
    assert (hit.outcome, hit.completion_tokens, hit.dollars) == ("ok", 0, 0.0)
    assert hit.ttft is not None


@pytest.mark.parametrize("stream", [False, True])
async def test_waiting_for_an_answer_that_is_shared_is_the_caches_time(stream: bool) -> None:
    async with front(memory()) as door:
        kept = Kept(door.gateway)
        body = plan(3, pause=0.3, stream=stream)
        await asyncio.gather(door.ask(body), door.ask(body))
    [record] = [each for each in kept.records if each.cache == "shared"]
    assert shape(record) == ["admission", "cache shared"]
    assert record.phases[1].seconds > 0.29
    assert record.outcome == "ok"


async def test_a_phase_that_was_cut_short_ends_with_the_request() -> None:
    client = Answer()
    async with front(memory()) as door:
        kept = Kept(door.gateway)
        body = plan(3, pause=2)
        asking = [asyncio.create_task(door.ask(body)), asyncio.create_task(door.ask(body, answer=client))]
        await asyncio.sleep(0.1)
        client.left.set()
        await asyncio.gather(*asking)
    follower, leader = kept.records
    assert (follower.outcome, leader.outcome) == ("aborted", "ok")
    assert shape(follower) == ["admission", "cache"]
    assert follower.phases[1].seconds > 0


async def test_choosing_a_tier_and_a_second_look_at_its_answer() -> None:
    models = [ModelConfig(name=name) for name in ("cheap", "dear")]
    tiers = [
        TierConfig(name="small", model="cheap", price=PriceConfig(output=1.0)),
        TierConfig(name="large", model="dear", price=PriceConfig(output=100.0)),
    ]
    routing = RoutingConfig(
        target=0.01,
        cascade=CascadeConfig(enabled=True, confidence=0.02, hold_tokens=30),
        monitor=MonitorConfig(enabled=False),
    )
    async with doors(*models, tiers=tuple(tiers), routing=routing) as (front, kept):
        await front.ask(plan(8, model="auto", stream=True))
        await front.ask(plan(0, model="auto", stream=True))
    good, empty = kept.records
    assert shape(good)[:2] == ["admission", "route small"]
    assert (good.tier, good.served_by, good.reason, good.escalations) == ("small", "cheap", "quality", 0)
    decode = good.phases[-1]
    assert good.first_token >= decode.end, "the client had nothing before it was looked at"
    assert (empty.tier, empty.escalations, empty.outcome) == ("large", 1, "ok")
    attempts = [phase for phase in empty.phases if phase.name == "attempt"]
    assert [phase.failed for phase in attempts] == [False, False], (
        "an answer that is not wanted is no failure"
    )


# ------------------------------------------------------------ an engine of ours


@pytest.fixture(scope="module")
def served(default_model: Path) -> ServedModel:
    return ServedModel(("m",), Tokenizer.load(hub.resolve(str(default_model))), INFO)


def tokens(
    *ids: list[int], before: float = 0.2, preemptions: int = 0
) -> Callable[[Request], Iterator[TokenEvent]]:
    """Of an engine that began so many seconds before it gave the first."""

    def reply(request: Request) -> Iterator[TokenEvent]:
        began = time.monotonic()
        time.sleep(before)
        for number, new in enumerate(ids):
            yield TokenEvent(
                request_id=request.id,
                token_ids=new,
                cached_tokens=3,
                scheduled=began,
                preemptions=preemptions if number else 0,
                finish_reason="length" if number == len(ids) - 1 else None,
            )
            time.sleep(0.01)

    return reply


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_of_ours_tells_its_queue_from_its_prefill(served: ServedModel, stream: bool) -> None:
    gateway = gateway_of(served, InstantBackend(INFO, tokens([500], [501, 502], [503], preemptions=2)))
    kept = Kept(gateway)
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}
    await ask(gateway, CHAT, body)
    record = kept.last
    assert shape(record) == ["admission", "queue", "attempt engine-0", "queue engine", "prefill", "decode"]
    assert (record.completion_tokens, record.cached_tokens, record.preemptions) == (4, 3, 2)
    assert record.preempted_early == 0
    assert record.phases[4].start == record.scheduled
    assert record.phases[4].seconds > 0.19
    assert record.ttft == pytest.approx(record.first_token - record.arrived)
    assert record.ttft > 0.19


@pytest.mark.parametrize(("scheduled", "waited"), [(0.5, 0.0), (1.5, 0.5), (3.0, 1.0)])
def test_an_engines_times_lie_within_the_attempt(scheduled: float, waited: float) -> None:
    """They are another process's, which reads the same clock a little earlier or later."""
    record = RequestRecord("r", CHAT, 0.0, 0.0, scheduled=scheduled, first_token=2.0, last_token=2.5)
    attempt = Phase("attempt", 1.0, 0.0, "engine-0")
    attempt_ended(record, attempt, failed=False)
    assert [(phase.name, phase.seconds) for phase in record.phases] == [
        ("queue", waited),
        ("prefill", 1.0 - waited),
        ("decode", 0.5),
    ]


async def test_a_stream_that_was_opened_in_vain_had_no_first_token(
    served: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "OPENING_SECONDS", 0.05)

    class Silent(InstantBackend):
        def submit(self, request: Request) -> Any:
            return Forever()

    class Forever:
        async def __aiter__(self) -> AsyncIterator[TokenEvent]:
            await asyncio.sleep(1.0)
            yield TokenEvent(request_id="", finish_reason="error", error="It broke.")

        def close(self) -> None: ...

    gateway = gateway_of(served, Silent(INFO, tokens()))
    kept = Kept(gateway)
    await ask(gateway, CHAT, {"messages": [{"role": "user", "content": "hi"}], "stream": True})
    record = kept.last
    assert (record.outcome, record.status, record.code) == ("failed", 200, "generation_failed")
    assert record.ttft is None
    assert shape(record) == ["admission", "queue", "attempt engine-0 failed"]


async def test_texts_that_become_vectors_are_prefilled(served: ServedModel) -> None:
    began = time.monotonic()

    def reply(request: Request) -> Iterator[TokenEvent]:
        yield TokenEvent(
            request_id=request.id,
            finish_reason="stop",
            embedding=VECTOR.tobytes(),
            scheduled=time.monotonic(),
        )

    gateway = gateway_of(served, InstantBackend(INFO, reply))
    kept = Kept(gateway)
    await ask(gateway, "createEmbedding", {"input": ["a", "b"]})
    record = kept.last
    assert shape(record) == ["admission", "queue", "attempt engine-0", "queue engine", "prefill"]
    assert began <= record.scheduled <= record.first_token
    assert record.outcome == "ok"


async def test_a_listener_that_fails_does_not_fail_the_request(
    served: ServedModel, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def finished(self, record: RequestRecord) -> None:
            raise RuntimeError("a bug")

    gateway = gateway_of(served, InstantBackend(INFO, tokens([500], before=0.0)))
    gateway.recorder.add(Broken())
    kept = Kept(gateway)
    for _ in range(2):
        assert b"chat.completion" in await ask(
            gateway, CHAT, {"messages": [{"role": "user", "content": "hi"}]}
        )
    assert len(kept.records) == 2
    assert len(caplog.records) == 1
