"""A front door before tiers whose quality is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.door import CHAT, Door, behind, chat
from tests.server import Reply, poll
from tests.servers.http import in_a_thread
from tests.servers.tiers import SimulatedTier


@dataclass
class Ladder:
    door: Door
    low: SimulatedTier
    middle: SimulatedTier
    top: SimulatedTier
    keys: dict[str, dict[str, str]] = field(default_factory=dict)  # by tenant, once there are any

    def lock(self, *tenants: str) -> None:
        """Make a key for each tenant, and wait until the server asks for them."""
        self.keys = {tenant: self.door.key(tenant) for tenant in tenants}
        poll(lambda: self.door.get("/v1/models").status == 401)

    def ask(
        self, question: str, *, tenant: str = "default", quality: float | None = None, **fields: Any
    ) -> Reply:
        headers = {**self.keys.get(tenant, {}), **fields.pop("headers", {})}
        if quality is not None:
            headers = {**headers, "x-penstock-quality": str(quality)}
        return self.door.post(CHAT, chat(question, model="auto", **fields), headers)

    def tier(self, question: str, **fields: Any) -> str:
        """The one that answered."""
        reply = self.ask(question, **fields)
        assert reply.status == 200, reply.body
        return reply.headers["x-penstock-tier"]


def ladder_config(low: str, middle: str, top: str, **sections: Any) -> dict[str, Any]:
    def model(url: str, price: float) -> dict[str, Any]:
        return behind(url, price={"input": price, "output": price * 5})

    return {
        "models": {"small": model(low, 0.1), "medium": model(middle, 1.0), "large": model(top, 10.0)},
        "tiers": {
            "low": {"model": "small", "capabilities": ["json"], "context": 2000},
            "middle": {"model": "medium"},
            "top": {
                "model": "large",
                "price": {"input": 12, "output": 60},
                "instruction": "Think step by step.",
                "sampling": {"temperature": 0.5},
            },
        },
        "health": {"error_requests": 1000},  # a tier that fails is to be tried again
        **sections,
    }


@pytest.fixture(scope="module")
def climb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Ladder]]:
    """Starts a front door before three tiers, with these sections of the configuration."""
    with ExitStack() as stack:
        doors: list[Door] = []

        def start(*options: str, **sections: Any) -> Ladder:
            low, middle, top = (stack.enter_context(in_a_thread(SimulatedTier())) for _ in range(3))
            config = ladder_config(low.url, middle.url, top.url, **sections)
            door = Door(tmp_path_factory.mktemp("tiers"), config, *options)
            doors.append(door)
            return Ladder(door, low, middle, top)

        yield start
        for door in doors:
            door.stop()
            assert "Traceback" not in Path(door._log.name).read_text()
