"""The load generator measures a real HTTP stream, and calls a failure a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from penstock.bench.online import Target, first_model, run_online
from penstock.bench.workloads import Workload
from penstock.errors import EngineUnavailableError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
WORK = Workload(name="W", requests=6, input_len=(4, 4), output_len=(3, 3))


class Server:
    """A small OpenAI-like server whose behaviour a test chooses."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.handler: Handler = answer
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = 0
        self.most_open = 0

    async def post(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self.handler(request)
        finally:
            self.open -= 1

    def target(self, **changes: Any) -> Target:
        return Target(**{"url": self.url, "model": "m", **changes})


async def stream(request: web.Request, events: list[Any], *, done: bool = True) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await asyncio.sleep(0.001)
    if done:
        await response.write(b"data: [DONE]\n\n")
    return response


async def answer(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    count = body["max_tokens"]
    if "messages" in body:
        words: list[Any] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        words += [{"choices": [{"delta": {"content": "x"}}]} for _ in range(count)]
    else:
        words = [{"choices": [{"text": "x"}]} for _ in range(count)]
    return await stream(
        request, [*words, {"choices": [{"text": "", "delta": {}, "finish_reason": "length"}]}]
    )


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    app = web.Application()
    runner = web.AppRunner(app)
    box = Server("")
    app.router.add_post("/v1/completions", box.post)
    app.router.add_post("/v1/chat/completions", box.post)
    app.router.add_get(
        "/v1/models", lambda _: asyncio.sleep(0, web.json_response({"data": [{"id": "first"}]}))
    )
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    box.url = f"http://{host}:{port}"
    yield box
    await runner.cleanup()


async def test_tokens_are_counted_and_timed_from_the_stream(server: Server) -> None:
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.requests, run.errors, run.short) == (6, 0, 0)
    assert (run.input_tokens, run.output_tokens) == (24, 18)
    assert run.ttft.p50 is not None
    assert run.itl.p50 is not None
    assert 0 < run.ttft.p50 < run.e2e.p50 < run.wall_seconds  # type: ignore[operator]


async def test_prompts_are_sent_as_token_ids_greedy_and_streaming(server: Server) -> None:
    jobs = WORK.jobs()
    await run_online(server.target(), WORK, jobs)
    body = server.bodies[0]
    assert sorted(body["prompt"] for body in server.bodies) == sorted(job.prompt for job in jobs)
    assert (body["stream"], body["temperature"], body["max_tokens"], body["ignore_eos"]) == (
        True,
        0.0,
        3,
        True,
    )


async def test_chat_is_sent_as_words(server: Server) -> None:
    run = await run_online(server.target(endpoint="chat", ignore_eos=False), WORK, WORK.jobs())
    content = server.bodies[0]["messages"][0]["content"]
    assert len(content.split()) == 4
    assert "ignore_eos" not in server.bodies[0]
    assert (run.errors, run.output_tokens) == (0, 18)  # the role chunk is no token


async def test_the_servers_own_count_is_believed(server: Server) -> None:
    async def several_tokens_in_a_chunk(request: web.Request) -> web.StreamResponse:
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
        return await stream(request, [{"choices": [{"text": "xyz"}]}, {"choices": [], "usage": usage}])

    server.handler = several_tokens_in_a_chunk
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.input_tokens, run.output_tokens, run.cached_tokens, run.short) == (30, 18, 12, 0)


async def test_all_requests_are_sent_at_once_without_clients(server: Server) -> None:
    everybody_is_here = asyncio.Event()

    async def wait_for_all(request: web.Request) -> web.StreamResponse:
        if server.open == WORK.requests:
            everybody_is_here.set()
        await everybody_is_here.wait()
        return await answer(request)

    server.handler = wait_for_all
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.errors, server.most_open) == (0, 6)


async def test_clients_have_one_request_open_each(server: Server) -> None:
    work = Workload(name="W", requests=6, input_len=(4, 4), output_len=(3, 3), clients=2)
    run = await run_online(server.target(), work, work.jobs())
    assert (run.requests, run.errors, server.most_open) == (6, 0, 2)


async def test_an_answer_that_is_short_is_reported(server: Server) -> None:
    async def one_token(request: web.Request) -> web.StreamResponse:
        return await stream(request, [{"choices": [{"text": "x", "finish_reason": "stop"}]}])

    server.handler = one_token
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.errors, run.short) == (0, 6)


async def test_a_refusal_is_an_error_with_the_servers_words(server: Server) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "too many"}}, status=429)

    server.handler = refuse
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert run.errors == 6
    assert run.first_error is not None
    assert "429" in run.first_error
    assert "too many" in run.first_error


async def test_a_stream_that_breaks_off_is_an_error(server: Server) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        return await stream(request, [{"choices": [{"text": "x"}]}], done=False)

    server.handler = break_off
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.errors, run.first_error) == (6, "The stream ended without [DONE].")


async def test_an_error_event_in_a_stream_is_an_error(server: Server) -> None:
    async def fail(request: web.Request) -> web.StreamResponse:
        return await stream(
            request, [{"choices": [{"text": "x"}]}, {"error": {"message": "lost the engine"}}]
        )

    server.handler = fail
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert run.errors == 6
    assert "lost the engine" in (run.first_error or "")


async def test_a_server_that_is_not_there_is_an_error_for_each_request() -> None:
    run = await run_online(Target(url="http://127.0.0.1:9", model="m"), WORK, WORK.jobs())
    assert run.errors == 6


async def test_the_key_is_sent_and_not_shown(server: Server) -> None:
    target = server.target(api_key="secret")
    await run_online(target, WORK, WORK.jobs())
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(target)


async def test_the_first_model_listed_is_found(server: Server) -> None:
    assert await first_model(server.url, None) == "first"


async def test_a_server_that_lists_no_model_is_named(server: Server) -> None:
    with pytest.raises(EngineUnavailableError, match="answered 404 when asked for its models"):
        await first_model(server.url + "/nowhere", None)
    with pytest.raises(EngineUnavailableError, match=r"http://127.0.0.1:9 cannot be reached"):
        await first_model("http://127.0.0.1:9", None)
