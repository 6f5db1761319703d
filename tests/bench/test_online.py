"""The load generator measures a real HTTP stream, and calls a failure a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from aiohttp import web

from penstock.bench.online import run_online
from penstock.bench.progress import Progress
from penstock.bench.target import Target, first_model
from penstock.bench.workloads import Job, Workload
from penstock.errors import ConfigError, EngineUnavailableError

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


@asynccontextmanager
async def bare_peer(
    speak: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[Target]:
    """Whatever listens on a port; closed when each of its conversations is over."""
    conversations: list[asyncio.Task[None]] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.append(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await speak(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as peer:
        port = peer.sockets[0].getsockname()[1]
        yield Target(url=f"http://127.0.0.1:{port}", model="m")
        await asyncio.gather(*conversations, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    app = web.Application()
    runner = web.AppRunner(app, shutdown_timeout=0.01)  # handlers that hang are part of the tests
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


async def test_more_tokens_than_asked_for_are_no_good_result_either(server: Server) -> None:
    async def talk(request: web.Request) -> web.StreamResponse:
        return await stream(request, [{"choices": [{"text": "x"}]}] * 5)

    server.handler = talk
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.completed, run.short, run.output_tokens, run.e2e.count) == (0, 6, 0, 0)


async def test_an_answer_may_end_early_where_it_was_allowed_to(server: Server) -> None:
    async def one_token(request: web.Request) -> web.StreamResponse:
        return await stream(request, [{"choices": [{"text": "x", "finish_reason": "stop"}]}])

    server.handler = one_token
    run = await run_online(server.target(ignore_eos=False), WORK, WORK.jobs())
    assert (run.completed, run.short, run.output_tokens) == (6, 0, 6)


@pytest.mark.parametrize("tokens", [0, 1])
async def test_a_server_that_hangs_is_given_up_and_counted_apart(server: Server, tokens: int) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(tokens):
            await response.write(b'data: {"choices":[{"text":"x"}]}\n\n')
        while True:  # alive, as a comment tells, and yet no token comes
            await response.write(b": wait\n\n")
            await asyncio.sleep(0.02)

    server.handler = hang
    run = await run_online(server.target(stall_timeout=0.1), WORK, WORK.jobs())
    assert (run.completed, run.errors, run.timeouts, run.short) == (0, 0, 6, 0)
    assert run.first_error == "No token for 0.1 s."


async def test_an_answer_that_takes_too_long_is_a_timeout_though_tokens_come(server: Server) -> None:
    async def dawdle(request: web.Request) -> web.StreamResponse:
        return await stream(request, [{"choices": [{"text": "x"}]}] * 10_000)

    server.handler = dawdle
    run = await run_online(server.target(timeout=0.1), WORK, WORK.jobs())
    assert (run.completed, run.timeouts) == (0, 6)
    assert run.first_error == "No answer within 0.1 s."


async def test_a_response_without_an_end_is_whole_when_its_last_event_came(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.bench.online.LINGER_SECONDS", 0.05)

    async def never_close(request: web.Request) -> web.StreamResponse:
        await stream(request, [{"choices": [{"text": "x"}]}] * 3)
        await asyncio.sleep(60)
        raise AssertionError("the test should have ended")

    server.handler = never_close
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.completed, run.timeouts) == (6, 0)
    # The wait for an end that never came is no part of the run.
    assert run.wall_seconds == pytest.approx(max(one.sent + (one.e2e or 0.0) for one in run.samples))


async def test_events_that_cannot_be_read_are_errors_with_their_text(server: Server) -> None:
    async def babble(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: {{{ nonsense\n\ndata: [DONE]\n\n")
        return response

    server.handler = babble
    run = await run_online(server.target(), WORK, WORK.jobs())
    assert (run.errors, run.first_error) == (6, "An event cannot be read: {{{ nonsense")


async def test_events_are_read_however_they_are_cut_into_packets(server: Server) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        text = 'data: {"choices": [{"text": "é"}]}\r\n\r\n' * 3 + "data: [DONE]"
        for byte in text.encode():
            await response.write(bytes([byte]))
        return response

    server.handler = drip
    work = Workload(name="W", requests=1, input_len=(4, 4), output_len=(3, 3))
    run = await run_online(server.target(), work, work.jobs())
    assert (run.completed, run.output_tokens, run.first_error) == (1, 3, None)


@pytest.mark.parametrize(
    ("answer_bytes", "sentence"),
    [
        (b"", "The connection was closed without an answer."),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "That is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nda", "The stream ended without [DONE]."),
    ],
)
async def test_a_peer_that_is_no_such_server_is_an_error(answer_bytes: bytes, sentence: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer_bytes)

    async with bare_peer(speak) as target:
        run = await run_online(target, WORK, WORK.jobs())
    assert (run.completed, run.errors) == (0, 6)
    assert (run.first_error or "").startswith(sentence)


async def test_a_connection_that_was_closed_between_two_requests_is_opened_again() -> None:
    connections = 0

    async def close_quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        event = b'data: {"choices":[{"text":"x"}]}\n\n' * 3 + b"data: [DONE]\n\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(event), event))
        await reader.read(1)  # the next request has been sent already

    work = Workload(name="W", requests=3, input_len=(4, 4), output_len=(3, 3), clients=1)
    async with bare_peer(close_quietly) as target:
        run = await run_online(target, work, work.jobs())
    assert (run.completed, connections) == (3, 3)


async def test_an_open_loop_is_not_held_back_by_answers_that_do_not_come(server: Server) -> None:
    everybody_is_here = asyncio.Event()

    async def wait_for_all(request: web.Request) -> web.StreamResponse:
        if server.open == WORK.requests:
            everybody_is_here.set()
        await everybody_is_here.wait()
        return await answer(request)

    server.handler = wait_for_all
    work = Workload(name="W", requests=6, input_len=(4, 4), output_len=(3, 3), rate=100.0, process="constant")
    run = await run_online(server.target(), work, work.jobs())
    assert (run.completed, server.most_open) == (6, 6)
    assert (run.arrivals, run.rate, run.concurrency) == ("constant", 100.0, None)
    # The first waited for the last: its latency counts from its own moment.
    assert run.e2e.max is not None
    assert run.e2e.max >= 0.05


async def test_latency_counts_from_the_moment_a_request_was_due(server: Server) -> None:
    late = [Job([1000], 3, at=-5.0), Job([1000], 3, at=0.0)]  # a generator that is five seconds behind
    work = Workload(name="W", requests=2, input_len=(1, 1), output_len=(3, 3), rate=1.0)
    run = await run_online(server.target(), work, late)
    assert run.schedule_lag is not None
    assert run.schedule_lag.max is not None
    assert run.e2e.max is not None
    assert run.e2e.max > run.schedule_lag.max >= 5.0
    assert run.warnings[0].startswith("The load generator was late")


async def test_a_run_that_is_stopped_reports_what_was_measured(server: Server) -> None:
    async def some_hang(request: web.Request) -> web.StreamResponse:
        if len(server.bodies) > 2:
            await asyncio.sleep(60)
        return await answer(request)

    server.handler = some_hang
    progress = Progress()
    run = await run_online(
        server.target(),
        WORK,
        WORK.jobs(),
        progress=progress,
        stop=lambda: progress.done == 2,
    )
    assert (run.requests, run.completed, run.unfinished, run.errors, run.timeouts) == (6, 2, 4, 0, 0)
    assert progress == Progress(tokens=6, done=2, failed=0, in_flight=0)


async def test_goodput_is_counted_under_an_slo(server: Server) -> None:
    run = await run_online(server.target(), WORK, WORK.jobs(), slo={"e2e": 60.0, "ttft": 1e-9})
    assert run.goodput is not None
    assert (run.completed, run.goodput.good) == (6, 0)


async def test_a_server_that_is_not_there_is_an_error_for_each_request() -> None:
    run = await run_online(Target(url="http://127.0.0.1:9", model="m"), WORK, WORK.jobs())
    assert run.errors == 6
    assert (run.first_error or "").startswith("No connection to http://127.0.0.1:9")


async def test_the_key_is_sent_and_not_shown(server: Server) -> None:
    target = server.target(api_key="secret")
    await run_online(target, WORK, WORK.jobs())
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert "secret" not in repr(target)


async def test_a_key_that_would_write_headers_of_its_own_is_refused(server: Server) -> None:
    with pytest.raises(ConfigError, match="characters that HTTP cannot carry"):
        await run_online(server.target(api_key="a\r\nX-Admin: yes"), WORK, WORK.jobs())
    assert server.bodies == []


async def test_the_first_model_listed_is_found(server: Server) -> None:
    assert await first_model(server.url, None) == "first"


async def test_a_server_that_lists_no_model_is_named(server: Server) -> None:
    with pytest.raises(EngineUnavailableError, match="answered 404 when asked for its models"):
        await first_model(server.url + "/nowhere", None)
    with pytest.raises(EngineUnavailableError, match=r"http://127.0.0.1:9 cannot be reached"):
        await first_model("http://127.0.0.1:9", None)
