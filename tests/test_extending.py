"""The examples of how to extend Penstock, taken from the page and run."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from benchmarks.peers import environments, servers

from penstock.aio.evaluate.dataset import Dataset
from penstock.aio.evaluate.recipe import Recipe
from penstock.aio.judges.verdict import Embed, Pair, Verdict
from penstock.aio.query import query_of_text
from penstock.aio.regions import region
from penstock.config import BackendConfig, HealthConfig, ModelConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.balance import Load, Policy, PolicyOptions, Query, Replica
from penstock.gateway.balance.least_tokens import LeastTokens
from penstock.gateway.balance.load import effective_weight
from penstock.gateway.cache.entry import Counted, Entry
from penstock.gateway.cache.key import Asker
from penstock.gateway.cache.store import CacheStoreError, Shelf, Store, StoreStats
from penstock.gateway.cache.verify.checks import Check
from penstock.gateway.cache.verify.reading import read
from penstock.gateway.discovery.file import MAX_BYTES, read_addresses
from penstock.gateway.discovery.source import Addresses, SourceError, poll
from penstock.gateway.exchange import Exchange
from penstock.gateway.health import Health, unwatched_limits
from penstock.gateway.upstream import Origin, UpstreamError
from penstock.protocol import sse
from penstock.protocol.shapes import UsageCount
from tests.gateway.backends.asking import ask
from tests.servers.http import LocalServer, Reply, Request

DOCS = Path(__file__).parents[1] / "docs"

# What the examples leave to be imported.
KNOWN: dict[str, Any] = {
    each.__name__: each
    for each in (
        *(ModelConfig, BackendConfig, HealthConfig, InvalidRequestError, Exchange, Health, UsageCount),
        *(unwatched_limits, Load, PolicyOptions, Query, Replica, Sequence, LeastTokens, effective_weight),
        *(AsyncIterator, SourceError, Origin, UpstreamError, poll, read_addresses),
        *(Verdict, CacheStoreError, StoreStats, dataclass, region),
    )
} | {
    "re": re,
    "asyncio": asyncio,
    "np": np,
    "time": time,
    "msgspec": msgspec,
    "sse": sse,
    "Addresses": Addresses,
    "MAX_BYTES": MAX_BYTES,
}


def example(page: str, name: str, **known: Any) -> Any:
    """The class or function of this name, as the page writes it, where these are known too."""
    blocks = [block.split("```")[0] for block in (DOCS / page).read_text().split("```python\n")[1:]]
    [block] = [block for block in blocks if re.search(rf"^(?:class|def) {name}\b", block, re.MULTILINE)]
    namespace = KNOWN | known
    exec(compile(block, page, "exec"), namespace)
    return namespace[name]


def echo() -> Any:
    config = BackendConfig(name="e", kind="echo", url="http://nowhere", model="parrot")
    return example("extending.md", "EchoBackend")(ModelConfig(name="mine"), config, HealthConfig())


TOLD = {"messages": [{"role": "user", "content": "one two three"}]}


async def test_the_backend_of_the_page_answers_whole() -> None:
    got = await ask(echo(), TOLD)
    assert got.json()["choices"][0]["message"]["content"] == "one two three"
    assert got.json()["usage"]["completion_tokens"] == 3
    assert (got.delivered.prompt, got.delivered.completion) == (3, 3)


async def test_the_backend_of_the_page_streams_what_is_billed() -> None:
    got = await ask(
        echo(), {**TOLD, "max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert got.text == "one two "
    assert got.events[-1] == "[DONE]"
    assert got.events[-2]["usage"]["completion_tokens"] == 2
    assert (got.delivered.prompt, got.delivered.completion) == (2, 2)


async def test_the_backend_of_the_page_refuses_what_it_cannot_answer() -> None:
    with pytest.raises(InvalidRequestError, match="at least one message"):
        await ask(echo(), {"messages": []})


def test_the_policy_of_the_page_prefers_free_memory() -> None:
    policy: Policy = example("balancing.md", "FreeMemory")(PolicyOptions(draw=lambda: 0.5))
    full, free, mute = Replica("full"), Replica("free"), Replica("mute")
    assert policy.choose(Query(10), [full, mute], 100.0) in (full, mute)
    full.load, free.load = Load(1, 0, 0.9), Load(9, 0, 0.1)
    assert policy.choose(Query(10), [full, free, mute], 100.0) is free
    policy.placed(Query(10), free, 100.0)
    policy.gone("free")


async def test_the_source_of_the_page_follows_a_list_and_keeps_it_through_trouble() -> None:
    content = b'["http://10.0.0.5:8000"]'

    async def handle(request: Request) -> Reply:
        return Reply(200, content)

    async with LocalServer(handle) as server:
        source = example("extending.md", "ListedSource")(server.url, 0.01)
        found = aiter(source.watch())
        assert await anext(found) == {"http://10.0.0.5:8000"}
        content = b"<html>"
        changed = asyncio.ensure_future(anext(found))
        asked = len(server.requests)
        while len(server.requests) < asked + 3:  # noqa: ASYNC110 (what is watched is a list)
            await asyncio.sleep(0.01)
        assert not changed.done()
        content = b"http://10.0.0.6:8000\n"
        assert await changed == {"http://10.0.0.6:8000"}
        await found.aclose()


def test_the_judge_of_the_page_compares_colours() -> None:
    judge: Callable[[Pair, Embed | None], Verdict] = example("extending.md", "judge_colour")
    outcomes = [
        judge(Pair("Which red?", low, expert), None).outcome
        for low, expert in [("It is #FF0000.", "#ff0000"), ("Red.", "#ff0000"), ("#ff0000", "Red.")]
    ]
    assert outcomes == ["same", "expert_better", "unclear"]


def test_the_recipe_of_the_page_knows_regions() -> None:
    recipe: Recipe = example("extending.md", "ByRegion")()
    texts = ["What is the capital of France?", "Prove that the square root of 2 is irrational."] * 100
    queries = [query_of_text(text) for text in texts]
    ok = np.array([[1.0, 1.0], [0.0, np.nan]] * 100)
    table = Dataset("t", queries, texts, None, ("small", "large"), ok, np.array([1.0, 9.0]), texts)
    fitted = recipe.fit(table, [])
    easy, hard = fitted.predict(queries[:2])
    assert easy[0] > 0.9
    assert hard[0] < 0.1
    assert easy[1] == hard[1] == 1.0
    assert fitted.deviation(queries[:2]).shape == (2, 2)


async def test_the_store_of_the_page_keeps_answers_and_forgets_what_is_invalidated(tmp_path: Path) -> None:
    store: Store = example("extending.md", "FolderStore")(tmp_path)
    shelf, asker = Shelf(store, wall=lambda: 5.0, clock=lambda: 5.0), Asker("acme", "small", "m")
    generations = (await shelf.get(b"key", asker)).generations
    assert generations is not None
    entry = Entry("createChatCompletion", b"{}", Counted(1, 2), "up", 5.0)
    assert await shelf.put(b"key", entry, 60.0, generations)
    assert (await shelf.get(b"key", asker)).entry == entry
    await shelf.invalidate("acme")
    assert (await shelf.get(b"key", asker)).entry is None
    missing = Shelf(example("extending.md", "FolderStore")(tmp_path / "no"), wall=time.time, clock=time.time)
    assert not await missing.put(b"key", entry, 60.0, generations)
    await shelf.close()


def test_the_check_of_the_page_refuses_other_currencies() -> None:
    check: Check = example("extending.md", "currencies")
    dollars, euros = read("What can I buy for $5?"), read("What can I buy for €5?")
    assert check(dollars, euros, 0.9) == "currencies differ"
    assert check(dollars, read("What could I buy for $5?"), 0.9) is None


def test_the_quantization_of_the_page_means_what_the_file_means(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized = pytest.importorskip("penstock.engine.native.quantized", exc_type=ImportError)
    gguf = pytest.importorskip("gguf")
    raw = np.random.default_rng(1).integers(0, 256, (5, 2, 18), dtype=np.uint8)
    raw[:, :, :2] = np.linspace(-2, 2, 10, dtype=np.float16).reshape(5, 2, 1).view(np.uint8)
    raw = raw.reshape(5, 36)
    unpack = example("extending.md", "_iq4_nl", **vars(quantized))
    monkeypatch.setattr(quantized, "_UNPACKERS", {"IQ4_NL": unpack})
    found = quantized.from_gguf("IQ4_NL", raw, 64)
    groups = found.values.reshape(5, 2, 32) * found.scales[..., None].astype(np.float32)
    meant = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType.IQ4_NL)
    assert np.allclose((groups + found.offsets[..., None]).reshape(5, 64), meant, rtol=0, atol=1e-4)


def test_the_peer_of_the_page_is_started_from_its_environment(tmp_path: Path) -> None:
    recipe = environments.Recipe(name="other", requirements=("other-server==1.*",))
    folder = tmp_path / f"other-py{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib/python3/site-packages/other_server-1.2.dist-info").mkdir(parents=True)
    (folder / "complete.json").write_text(json.dumps(asdict(recipe)))  # as if pip had installed it
    setting = servers.Setting(tmp_path / "m.gguf", tmp_path, tmp_path, print)
    other = example("extending.md", "other", **vars(servers), Recipe=environments.Recipe)
    launch = other(setting)
    assert launch.version == "other-server 1.2"
    assert launch.command[0] == str(folder / "bin/other")
    assert launch.command[-2:] == ["--port", str(launch.port)]
