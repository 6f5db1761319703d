"""The page with a state that a test puts before it. It sees what buttons ask for; no model is there."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.observe import console
from penstock.observe.snapshot import Snapshot
from tests.console.states import idle

TICK_SECONDS = 0.2
IN_EVENTS = 50  # requests; the rest is in the state


class Stage:
    """Served by a thread of the test's own process; `state` may be replaced at any time."""

    def __init__(self) -> None:
        self.state: Snapshot = idle()
        self.report = "<h1>report</h1>"
        self.asked: list[Any] = []
        self.broken = False  # streams end, and no new one begins
        routes = [
            Route("/", self._index),
            Route("/console/state", self._state),
            Route("/console/events", self._events),
            Route("/console/reports/{name}", self._report),
            Route("/console/{name}", self._file),
            Route("/admin/backends/drain", self._drain, methods=["POST"]),
            Route("/v1/models", self._models),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="warning", lifespan="off")
        config.timeout_graceful_shutdown = 1
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> str:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
        return f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/"

    def stop(self) -> None:
        self.broken = True
        self._server.should_exit = True
        self._thread.join()

    async def _index(self, request: Request) -> Response:
        content, kind = console.files()[console.INDEX]
        return Response(content, media_type=kind, headers=console.HEADERS)

    async def _file(self, request: Request) -> Response:
        content, kind = console.files()[request.path_params["name"]]
        return Response(content, media_type=kind, headers=console.HEADERS)

    async def _state(self, request: Request) -> Response:
        return Response(msgspec.json.encode(self.state), media_type="application/json")

    async def _events(self, request: Request) -> Response:
        if self.broken:
            return JSONResponse({"error": {"message": "as asked", "code": "down"}}, 503)

        async def stream() -> AsyncIterator[bytes]:
            while not self.broken:
                latest = msgspec.structs.replace(self.state, recent=self.state.recent[:IN_EVENTS])
                yield b"data: " + msgspec.json.encode(latest) + b"\n\n"
                await asyncio.sleep(TICK_SECONDS)

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def _report(self, request: Request) -> Response:
        return Response(self.report, media_type="text/html")

    async def _drain(self, request: Request) -> Response:
        self.asked.append(await request.json())
        return JSONResponse({})

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"data": [{"id": model.name} for model in self.state.models]})
