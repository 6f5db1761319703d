"""What an engine says of itself becomes its health; here the test is the engine, across the socket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from penstock.engine.messages import FrameReader, Loaded, Progress, Submit, ToEngine, frame
from penstock.engine.request import EngineStats, TokenEvent
from penstock.gateway.engines import KeptEngine, attached_engine, socket_folder, socket_path
from penstock.gateway.health import HealthLimits
from tests.engine.engines import INFO, until

LIMITS = HealthLimits(silence=10.0, probe_every=30.0, doubt_every=0.1, probe_timeout=0.5)


class Engine:
    """Says what it is told to say; answers a request with a token while `computes`."""

    def __init__(self) -> None:
        self.stats = EngineStats(steps=1000, failed_steps=3)
        self.computes = True
        self.asked = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.write(frame(Loaded(INFO, 8)))
        frames = FrameReader()
        while data := await reader.read(1 << 16):
            for body in frames.feed(data):
                message = msgspec.msgpack.decode(body, type=ToEngine)
                if isinstance(message, Submit):
                    self.asked += 1
                    if self.computes:
                        self.stats.steps += 1
                        self.say(
                            TokenEvent(request_id=message.request_id, token_ids=[1], finish_reason="stop")
                        )
        writer.close()

    def say(self, *events: TokenEvent) -> None:
        assert self._writer is not None
        self._writer.write(frame(Progress(time.monotonic(), self.stats, list(events))))

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            if self._writer is not None:
                self.say()


@asynccontextmanager
async def attached(engine: Engine, limits: HealthLimits = LIMITS) -> AsyncIterator[KeptEngine]:
    with socket_folder() as folder:
        path = socket_path(folder, "chat-0")
        server = await asyncio.start_unix_server(engine.serve, path)
        beating = asyncio.create_task(engine.beat())
        client = attached_engine("chat-0", path, limits=limits)
        await client.start()
        await until(lambda: client.stats.steps > 0)
        try:
            yield client
        finally:
            await client.shutdown()
            beating.cancel()
            server.close()
            await server.wait_closed()


def state(engine: KeptEngine) -> str:
    return engine.health.state(time.monotonic())


async def test_steps_that_failed_before_are_no_news() -> None:
    engine = Engine()
    async with attached(engine) as client:
        await asyncio.sleep(1.2)
        assert state(client) == "healthy"
        assert engine.asked == 0


async def test_a_step_that_fails_on_the_device_takes_it_out_until_it_computes_a_token() -> None:
    engine = Engine()
    async with attached(engine) as client:
        engine.computes = False
        # Until it is seen: what fails before the first look is taken for history.
        while state(client) == "healthy":
            engine.stats.failed_steps += 1
            await asyncio.sleep(0.2)
        assert client.health.reason(time.monotonic()) == "a step failed on its device"
        await until(lambda: engine.asked >= 2)
        assert state(client) == "unhealthy"
        engine.computes = True
        await until(lambda: state(client) == "healthy")


async def test_a_loop_that_goes_round_and_computes_nothing_is_found_out() -> None:
    engine = Engine()
    async with attached(engine, HealthLimits(silence=10.0, probe_every=0.5, probe_timeout=0.5)) as client:
        engine.computes = False
        await until(lambda: state(client) == "unhealthy")
        assert "probe" in str(client.health.reason(time.monotonic()))
        engine.computes = True
        await until(lambda: state(client) == "healthy")


async def test_parts_of_a_long_prompt_are_work_though_no_token_comes() -> None:
    engine = Engine()
    async with attached(engine, HealthLimits(silence=10.0, probe_every=1.5, probe_timeout=0.5)) as client:
        engine.computes = False
        for _ in range(20):
            engine.stats.steps += 1
            await asyncio.sleep(0.1)
            assert state(client) == "healthy"
        assert engine.asked == 0
