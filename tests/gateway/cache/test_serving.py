"""Requests through a front door with a cache: who is asked, what is said of it, and who pays."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.config import CacheConfig, TenantConfig
from penstock.gateway.accounts import Caller
from penstock.gateway.cache.cache import ResponseCache
from penstock.gateway.cache.memory import MemoryStore
from penstock.gateway.cache.opening import open_cache
from penstock.gateway.cache.store import Shelf
from tests.gateway.cache.conftest import RedisServer
from tests.gateway.cache.front import Answer, Front, front, plan
from tests.servers.openai import Fleet

STREAM = {"stream": True}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def memory(**fields: Any) -> ResponseCache:
    shelf = Shelf(MemoryStore(1000, 1 << 24), wall=time.time, clock=time.monotonic)
    return ResponseCache(shelf, ttl=60.0, **fields)


async def kept(door: Front, body: dict[str, Any], **options: Any) -> Answer:
    answer = await door.ask(body, **options)
    await door.cache.settle()
    return answer


@pytest.mark.parametrize("first", [{}, STREAM, USAGE])
@pytest.mark.parametrize("second", [{}, STREAM, USAGE])
async def test_a_hit_comes_in_whatever_form_it_is_asked_for(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    async with front(memory()) as door:
        miss = await kept(door, plan(5, **first))
        hit = await door.ask(plan(5, **second, model="alias", user="somebody"))
        assert (miss.cache, hit.cache, door.asked) == ("miss", "hit", 1)
        assert miss.text() == hit.text() == "w " * 5
        assert hit.headers["x-penstock-tier"] == "m"
        assert hit.headers["x-penstock-model"] == "upstream"
        if second is USAGE:
            usage = hit.events()[-1]["usage"]
            assert (usage["completion_tokens"], usage["cost"]) == (5, 0)
        elif second is STREAM:
            assert all("usage" not in event for event in hit.events())
            assert {event["model"] for event in hit.events()} == {"alias"}
        else:
            assert hit.json()["usage"]["completion_tokens"] == 5
            assert hit.json()["model"] == "alias"
            assert float(hit.headers["x-penstock-cost"]) == 0


async def test_a_hit_costs_nothing_and_counts_as_a_request() -> None:
    saved: list[Any] = []
    limited = TenantConfig(name="few", requests_per_minute=2)
    async with front(memory(count=lambda *what: saved.append(what)), limited) as door:
        await kept(door, plan())
        spent = door.spent()
        assert spent > 0
        for _ in range(3):
            await door.ask(plan())
        assert door.spent() == spent
        assert [what[2] for what in saved] == ["miss", "hit", "hit", "hit"]
        assert saved[0][3:] == (0, 0.0)
        assert saved[1][3] > 3
        assert saved[1][4] == pytest.approx(spent / 1e12)
        few = Caller("few")
        answers = [await kept(door, plan(), caller=few) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert [answer.cache for answer in answers[:2]] == ["miss", "hit"]


async def test_tenants_salts_and_parameters_are_kept_apart() -> None:
    async with front(memory(), TenantConfig(name="own", cache=False)) as door:
        await kept(door, plan())
        for body, caller in (
            (plan(), Caller("other")),
            (plan(), Caller("acme", salt="s")),
            (plan(cache_salt="s"), Caller("acme")),
            (plan(max_tokens=9), Caller("acme")),
        ):
            assert (await kept(door, body, caller=caller)).cache == "miss"
        assert (await door.ask(plan(), caller=Caller("own"))).cache == "bypass"
        assert (await door.ask(plan())).cache == "hit"


async def test_what_draws_and_what_is_not_to_be_stored_goes_past_the_cache() -> None:
    async with front(memory()) as door:
        for body, control in (
            (plan(temperature=1), ""),
            (plan(), "no-store"),
            (plan(), "max-age=0, No-Store"),
        ):
            for _ in range(2):
                assert (await kept(door, body, control=control)).cache == "bypass"
        assert door.asked == 6
        assert (await kept(door, plan())).cache == "miss"
        assert (await kept(door, plan(), control="no-cache")).cache == "miss"
        assert (await door.ask(plan(), control="max-age=100")).cache == "hit"
        assert (await door.ask(plan(), control="max-age=0")).cache == "miss"


async def test_vectors_are_kept_too() -> None:
    async with front(memory()) as door:
        body = {"model": "m", "input": "w w w "}
        miss = await kept(door, body, path="/v1/embeddings")
        hit = await door.ask(body, path="/v1/embeddings")
        assert (miss.cache, hit.cache, door.asked) == ("miss", "hit", 1)
        assert miss.json()["data"] == hit.json()["data"]


async def test_anthropics_clients_share_what_chats_have() -> None:
    async with front(memory()) as door:
        await kept(door, plan(2, max_tokens=50))
        message = {"model": "m", **plan(2, max_tokens=50)}
        answer = await door.ask(message, path="/v1/messages")
        assert answer.cache == "hit"
        assert answer.json()["content"][0]["text"] == "w w "
        streamed = await door.ask({**message, "stream": True}, path="/v1/messages")
        assert streamed.cache == "hit"
        assert b"event: message_stop" in streamed.body


@pytest.mark.parametrize("fields", [{}, STREAM])
@pytest.mark.parametrize("fault", ["half", "broken", "error_event", "400", "500", "odd_event"])
async def test_errors_and_broken_answers_are_never_kept(fault: str, fields: dict[str, Any]) -> None:
    async with front(memory()) as door:
        body = plan(8, faults=[fault] * 20, **fields)
        await kept(door, body)
        asked = door.asked
        again = await kept(door, body)
        assert again.cache in (None, "miss")
        assert door.asked > asked
        assert (await door.cache.shelf.stats()).entries == 0


async def test_an_answer_whose_client_left_is_not_kept() -> None:
    async with front(memory()) as door:
        answer = Answer()
        asking = asyncio.create_task(door.ask(plan(3000, stream=True), answer=answer))
        await answer.has(1000)
        answer.left.set()
        assert (await asking).status == 499
        await door.cache.settle()
        assert (await door.cache.shelf.stats()).entries == 0
        assert len(door.cache.flights) == 0


async def test_identical_requests_at_once_are_asked_once() -> None:
    saved: list[Any] = []
    async with front(memory(count=lambda *what: saved.append(what))) as door:
        bodies = [plan(50, **fields) for fields in (STREAM, USAGE, STREAM, {}, USAGE, {})]
        answers = await asyncio.gather(*(door.ask(body) for body in bodies))
        assert door.asked == 1
        assert [answer.cache for answer in answers] == ["miss", *["shared"] * 5]
        assert {answer.text() for answer in answers} == {"w " * 50}
        assert (
            len(
                {
                    answer.events()[0]["id"]
                    for answer in answers
                    if answer is not answers[3] and answer is not answers[5]
                }
            )
            == 4
        )
        assert answers[1].events()[-1]["usage"]["completion_tokens"] == 50
        assert answers[1].events()[-1]["usage"]["cost"] == 0
        assert answers[3].json()["usage"]["completion_tokens"] == 50
        assert sorted(what[2] for what in saved) == ["miss", *["shared"] * 5]
        assert sum(what[4] for what in saved) == pytest.approx(5 * door.spent() / 1e12)


async def test_a_long_answer_is_kept_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.cache.cache.LARGE", 100)
    async with front(memory()) as door:
        answers = await asyncio.gather(door.ask(plan(50, stream=True)), door.ask(plan(50)))
        await door.cache.settle()
        answers.append(await door.ask(plan(50)))
        assert [answer.cache for answer in answers] == ["miss", "shared", "hit"]
        assert {answer.text() for answer in answers} == {"w " * 50}


async def test_what_outgrows_the_record_is_answered_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.cache.record._MAX_STREAM", 1000)
    async with front(memory()) as door:
        for _ in range(2):
            answer = await kept(door, plan(50, stream=True))
            assert (answer.cache, answer.text()) == ("miss", "w " * 50)
        answers = await asyncio.gather(*(door.ask(plan(50, stream=True)) for _ in range(3)))
        assert [answer.cache for answer in answers] == ["miss", "shared", "shared"]
        assert {answer.text() for answer in answers} == {"w " * 50}


async def test_an_answer_on_its_way_to_the_store_is_a_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with front(memory()) as door:
        go = asyncio.Event()
        put = door.cache.shelf.put

        async def slow(*arguments: Any) -> bool:
            await go.wait()
            return await put(*arguments)

        monkeypatch.setattr(door.cache.shelf, "put", slow)
        answers = [await door.ask(plan(5)), await door.ask(plan(5))]
        go.set()
        await door.cache.settle()
        assert [answer.cache for answer in answers] == ["miss", "hit"]
        assert door.asked == 1


async def test_a_late_follower_gets_what_was_and_then_the_rest() -> None:
    async with front(memory()) as door:
        first, second = Answer(), Answer()
        body = plan(300, stream=True)
        leading = asyncio.create_task(door.ask(body, answer=first))
        await first.has(3000)
        following = asyncio.create_task(door.ask(body, answer=second))
        await second.has(2000)
        assert not leading.done()
        await asyncio.gather(leading, following)
        assert (second.cache, second.text(), door.asked) == ("shared", "w " * 300, 1)


async def test_a_stream_does_not_wait_for_an_answer_in_one_piece() -> None:
    async with front(memory()) as door:
        whole, stream = await asyncio.gather(door.ask(plan(5)), door.ask(plan(5, stream=True)))
        assert (whole.cache, stream.cache, door.asked) == ("miss", "miss", 2)


async def test_tenants_never_share_what_is_on_its_way() -> None:
    async with front(memory()) as door:
        tenants = [Caller("acme"), Caller("other"), Caller("acme", salt="x")]
        answers = await asyncio.gather(*(door.ask(plan(20), caller=caller) for caller in tenants))
        assert [answer.cache for answer in answers] == ["miss"] * 3
        assert door.asked == 3


async def test_a_leader_that_hangs_up_leaves_its_work_to_those_who_follow() -> None:
    async with front(memory()) as door:
        first, second = Answer(), Answer()
        body = plan(300, stream=True)
        leading = asyncio.create_task(door.ask(body, answer=first))
        await first.has(1000)
        following = asyncio.create_task(door.ask(body, answer=second))
        await second.has(1000)
        first.left.set()
        assert (await following).text() == "w " * 300
        await leading
        await door.cache.settle()
        assert door.asked == 1
        assert (await door.ask(body)).cache == "hit"


async def test_work_ends_when_the_last_of_them_hangs_up() -> None:
    async with front(memory()) as door:
        first, second = Answer(), Answer()
        body = plan(5000, stream=True)
        leading = asyncio.create_task(door.ask(body, answer=first))
        await first.has(1000)
        following = asyncio.create_task(door.ask(body, answer=second))
        await second.has(1000)
        first.left.set()
        await second.has(3000)
        second.left.set()
        assert (await following).status == 499
        assert (await leading).status == 499
        assert len(door.cache.flights) == 0


async def test_a_leader_that_fails_fails_nobody_else() -> None:
    """The server refuses one request, by its id, however often it is asked; all others it answers."""
    async with front(memory()) as door:
        body = plan(5, faults=["400"], pause=0)
        answers = await asyncio.gather(*(door.ask(body) for _ in range(4)))
        assert [answer.status for answer in answers] == [400] * 4
        assert door.asked == 4
        assert len(door.cache.flights) == 0


async def test_followers_of_a_leader_that_was_ended_ask_for_themselves() -> None:
    async with front(memory()) as door:
        body = plan(5, pause=0.2)
        leading = asyncio.create_task(door.ask(body))
        while not door.asked:
            door.server.asked.clear()
            await door.server.asked.wait()
        [leader] = door.gateway._exchanges
        following = [asyncio.create_task(door.ask(body)) for _ in range(3)]
        await asyncio.sleep(0.05)  # they are waiting for it
        leader.abort(RuntimeError("ended on purpose"))
        assert (await leading).status == 500
        answers = await asyncio.gather(*following)
        assert [answer.status for answer in answers] == [200] * 3
        assert door.asked == 4


@pytest.mark.parametrize("leads", [{}, STREAM])
@pytest.mark.parametrize("joins", ["before", "after"])
async def test_nobody_waits_for_a_client_that_does_not_read(
    leads: dict[str, Any], joins: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.cache.flight.STALLED_S", 0.05)
    monkeypatch.setattr("penstock.gateway.cache.flight.SLOW_S", 0.02 if joins == "after" else 60.0)
    async with front(memory()) as door, asyncio.timeout(10):
        first = Answer(reads=asyncio.Event())
        leading = asyncio.create_task(door.ask(plan(50, **leads), answer=first))
        await first.has(1)
        if joins == "after":
            await asyncio.sleep(0.03)
        follows = STREAM if joins == "after" else {}  # what has begun would stay with it
        answer = await door.ask(plan(50, **follows))
        assert (answer.cache, answer.text(), door.asked) == ("miss", "w " * 50, 2)
        assert first.reads is not None
        first.reads.set()
        assert (await leading).text() == "w " * 50


async def test_a_stream_without_a_mark_at_its_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Fleet._stream

    async def unmarked(*arguments: Any) -> AsyncIterator[bytes]:
        async for data in whole(*arguments):
            if b"[DONE]" not in data and b'"choices": []' not in data:
                yield data

    async with front(memory()) as door:
        with monkeypatch.context() as patched:
            patched.setattr(Fleet, "_stream", unmarked)
            assert (await kept(door, plan(5, stream=True))).text() == "w " * 5
        assert (await kept(door, plan(5, stream=True))).cache == "miss"
        assert (await kept(door, plan(5, stream=True))).cache == "hit"


async def test_a_body_with_a_field_twice_is_not_kept() -> None:
    """Whoever answers may take the first of them, and the key would have the last."""
    async with front(memory()) as door:
        body = json.dumps(plan(5)).encode()
        twice = body.replace(b'"role": "user"', b'"role": "system", "role": "user"')
        assert twice != body
        assert (await kept(door, twice)).cache == "bypass"
        assert (await kept(door, body)).cache == "miss"
        assert (await kept(door, body)).cache == "hit"


async def test_invalidating_a_tenant_or_a_model_makes_misses_of_hits() -> None:
    async with front(memory()) as door:
        await kept(door, plan())
        await door.cache.invalidate(tenant="somebody")
        assert (await door.ask(plan())).cache == "hit"
        await door.cache.invalidate(tenant="acme")
        assert (await kept(door, plan())).cache == "miss"
        await door.cache.invalidate(model="m")
        assert (await kept(door, plan())).cache == "miss"
        assert (await door.ask(plan())).cache == "hit"


class Paraphrases:
    """Takes every question of a partition for the same."""

    def __init__(self, *, fails: bool = False) -> None:
        self.noted: dict[bytes, bytes] = {}
        self._fails = fails

    async def find(self, partition: bytes, text: str) -> bytes | None:
        if self._fails:
            raise RuntimeError("no embedding")
        return self.noted.get(partition)

    async def note(self, partition: bytes, text: str, key: bytes) -> None:
        self.noted[partition] = key

    def close(self) -> None:
        """There is nothing to let go of."""


async def test_a_question_that_says_the_same_is_answered_with_a_mark() -> None:
    async with front(memory(semantic=Paraphrases())) as door:
        await kept(door, plan(3))
        other = await kept(door, plan(4, stream=True))
        assert (other.cache, other.text()) == ("hit; semantic", "w " * 3)
        assert (await kept(door, plan(4), caller=Caller("other"))).cache == "miss"
        assert (await kept(door, plan(4, max_tokens=7))).cache == "miss"
        drawn = [await kept(door, plan(5, temperature=0.7)) for _ in range(2)]
        assert [answer.cache for answer in drawn] == ["miss", "hit; semantic"]


async def test_a_search_that_fails_costs_a_hit_and_not_the_request() -> None:
    async with front(memory(semantic=Paraphrases(fails=True))) as door:
        assert (await kept(door, plan())).cache == "miss"
        assert (await kept(door, plan())).cache == "hit"


async def test_redis_lost_in_mid_run_costs_hits_and_no_request(redis_server: RedisServer) -> None:
    cache = open_cache(CacheConfig(exact=True, store=redis_server.url), None)
    assert cache is not None
    async with front(cache) as door:
        await kept(door, plan(3))
        assert (await door.ask(plan(3))).cache == "hit"
        redis_server.kill()
        answers = await asyncio.gather(*(door.ask(plan(3 + number % 5)) for number in range(40)))
        answers += [await kept(door, plan(3)) for _ in range(20)]
        assert {answer.status for answer in answers} == {200}
        assert "hit" not in {answer.cache for answer in answers}
        redis_server.start()
        async with asyncio.timeout(10):
            while (answer := await kept(door, plan(3))).cache != "hit":
                assert answer.status == 200
