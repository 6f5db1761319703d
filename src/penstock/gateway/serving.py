"""A request's work while its client waits: watched, ended when the client leaves, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from penstock.errors import InvalidRequestError, QueueFullError
from penstock.gateway.call import CLIENT_LEFT, Call, ClientGoneError
from penstock.gateway.state import Gateway, Running
from penstock.observe.metrics import Ending


class Work(Running, Protocol):
    @property
    def begun(self) -> bool:
        """Whether anything has come of it."""

    def start(self) -> None:
        """Hand it to the engine, which may refuse it."""


@asynccontextmanager
async def serving(
    gateway: Gateway, call: Call, work: Work, count_unfinished: Callable[[Ending], None]
) -> AsyncIterator[None]:
    """Start the work and watch the client. One that leaves ends what is done here, without an error."""
    async with gateway.running(work):
        work.start()
        watcher = asyncio.create_task(_watch(call, work))
        try:
            yield
        except ClientGoneError:
            call.status = CLIENT_LEFT
            count_unfinished("abort")
        except Exception as error:
            # Where nothing had begun it is the engine that refuses, which is no ending.
            if work.begun or not isinstance(error, InvalidRequestError | QueueFullError):
                count_unfinished("error")
            raise
        finally:
            watcher.cancel()


async def _watch(call: Call, work: Running) -> None:
    await call.left()
    work.abort(ClientGoneError())
