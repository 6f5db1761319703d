"""How work that did not come to its end is counted: its client left, or something failed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import InvalidRequestError, QueueFullError
from penstock.gateway.call import ClientGoneError
from penstock.gateway.exchange import DiscardedError, Exchange
from penstock.observe.metrics import Ending


@contextmanager
def endings_counted(
    exchange: Exchange, begun: Callable[[], bool], count_unfinished: Callable[[Ending], None]
) -> Iterator[None]:
    """Around the engine's work for one request; `begun`: whether anything has come of it."""
    try:
        yield
    except asyncio.CancelledError:
        count_unfinished("abort" if isinstance(exchange.aborted, ClientGoneError) else "error")
        raise
    except DiscardedError:
        count_unfinished("abort")
        raise
    except Exception as error:
        # Where nothing had begun it is the engine that refuses, which is no ending.
        if begun() or not isinstance(error, InvalidRequestError | QueueFullError):
            count_unfinished("error")
        raise
