"""What engines have counted, second by second: what it came to in the last minutes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.engine.request import EngineStats
from penstock.gateway.console.samples import FAULT_SECONDS, Samples
from penstock.gateway.local.backend import EngineBackend


def test_want_of_memory_is_seen_in_steps_and_in_deaths() -> None:
    engine: Any = SimpleNamespace(name="e", stats=EngineStats(), deaths={})
    nothing: Any = None
    member: Any = SimpleNamespace(backend=EngineBackend(engine, nothing, nothing))
    dispatcher = SimpleNamespace(queue=SimpleNamespace(counts={}), members={"e": member})
    deployment: Any = SimpleNamespace(name="m", dispatcher=dispatcher)
    samples = Samples()

    def after(seconds: int) -> int:
        for _ in range(seconds):
            samples.look([deployment])
        return samples.oom("m", member)

    assert after(1) == 0
    engine.stats = EngineStats(oom_steps=1)
    assert after(1) == 1
    engine.deaths = {"killed": 1}
    assert after(1) == 1, "somebody killed it"
    # Started again it counts its steps from nothing; its keeper goes on counting deaths.
    engine.stats, engine.deaths = EngineStats(), {"killed": 1, "out_of_memory": 1}
    assert after(1) == 1
    assert after(FAULT_SECONDS - 3) == 1
    assert after(10) == 0, "that was long ago"
