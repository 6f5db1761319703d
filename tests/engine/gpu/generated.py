"""Running an engine by hand until all its requests have ended."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.core import EngineCore
from penstock.engine.request import Request


def tokens_of(core: EngineCore, requests: Sequence[Request]) -> list[list[int]]:
    """What each request generates; none may fail."""
    found: dict[str, list[int]] = {request.id: [] for request in requests}
    for request in requests:
        core.submit(request)
    while core.has_work:
        for event in core.step():
            assert event.finish_reason != "error", event.error
            found[event.request_id] += event.token_ids
    core.check()
    return list(found.values())
