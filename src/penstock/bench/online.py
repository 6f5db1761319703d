"""Drive any OpenAI-compatible server over HTTP, streaming, as its users do."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from penstock.bench.statistics import Run, Timing, summarise
from penstock.bench.workloads import Job, Workload
from penstock.errors import EngineUnavailableError

Progress = Callable[[int], None]  # called after each answer with its number of tokens
LINE_BYTES = 2**20  # the longest event that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and how to speak to it."""

    url: str  # without /v1
    model: str
    endpoint: Literal["completions", "chat"] = "completions"
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 1800.0  # seconds for one answer
    ignore_eos: bool = True  # a field of ours and of vLLM's; some servers refuse it

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


async def first_model(url: str, api_key: str | None) -> str:
    """The name of the model that a server lists first."""
    target = Target(url=url, model="", api_key=api_key, timeout=10.0)
    try:
        async with open_session(target) as session, session.get(f"{url}/v1/models") as response:
            response.raise_for_status()
            return str((await response.json())["data"][0]["id"])
    except aiohttp.ClientResponseError as error:
        raise EngineUnavailableError(f"{url} answered {error.status} when asked for its models.") from None
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EngineUnavailableError(
            f"{url} cannot be reached: {str(error) or 'it did not answer in time'}."
        ) from None
    except (ValueError, LookupError, TypeError):
        raise EngineUnavailableError(f"{url} does not list any model; name one with --model.") from None


async def run_online(
    target: Target,
    workload: Workload,
    jobs: Sequence[Job],
    *,
    repeat: int = 0,
    progress: Progress = lambda _: None,
) -> Run:
    """Each client sends its next request when its last answer is complete."""
    waiting = deque(jobs)
    timings: list[Timing] = []

    async def client(session: aiohttp.ClientSession) -> None:
        while waiting:
            timing = await _ask(session, target, waiting.popleft())
            timings.append(timing)
            progress(timing.output_tokens)

    async with open_session(target) as session:
        start = time.perf_counter()
        await asyncio.gather(*(client(session) for _ in range(workload.clients or len(jobs))))
        wall = time.perf_counter() - start
    return summarise(timings, workload=workload.name, mode="online", repeat=repeat, wall=wall)


def open_session(target: Target) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers=target.headers,
        timeout=aiohttp.ClientTimeout(total=target.timeout),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=LINE_BYTES,
    )


def _body(target: Target, job: Job) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": target.model,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "max_tokens": job.output_len,
    }
    if target.ignore_eos:
        body["ignore_eos"] = True
    if target.endpoint == "chat":
        # Chat takes text only, so the length is approximate; the server's count is reported.
        body["messages"] = [{"role": "user", "content": " ".join(_word(token) for token in job.prompt)}]
    else:
        body["prompt"] = job.prompt
    return body


async def _ask(session: aiohttp.ClientSession, target: Target, job: Job) -> Timing:
    path = "/v1/chat/completions" if target.endpoint == "chat" else "/v1/completions"
    timing = Timing(time.perf_counter(), wanted=job.output_len, input_tokens=len(job.prompt))
    try:
        async with session.post(target.url + path, json=_body(target, job)) as response:
            if response.status != 200:
                timing.error = f"{response.status}: {(await response.text())[:300]}"
            else:
                await _read(response, timing)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        timing.error = f"{type(error).__name__}: {error}"
    timing.ended = time.perf_counter()
    return timing


async def _read(response: aiohttp.ClientResponse, timing: Timing) -> None:
    """Collect the times of the tokens until the stream ends; an end without [DONE] is an error."""
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        now = time.perf_counter()
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        event = json.loads(data)
        if event.get("error"):
            timing.error = str(event["error"])[:300]
        _count(event, timing, now)
    timing.error = timing.error or "The stream ended without [DONE]."


def _count(event: dict[str, Any], timing: Timing, now: float) -> None:
    for choice in event.get("choices") or ():
        text = choice["text"] if "text" in choice else (choice.get("delta") or {}).get("content")
        # A text chunk that is empty is a token still (half a character), unless it only closes the answer.
        if text or (text == "" and "text" in choice and not choice.get("finish_reason")):
            timing.tokens_at.append(now)
            timing.output_tokens += 1
    # The server's own count, when it gives one: a chunk may carry several tokens.
    if usage := event.get("usage"):
        timing.output_tokens = usage.get("completion_tokens") or timing.output_tokens
        timing.input_tokens = usage.get("prompt_tokens") or timing.input_tokens
        timing.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def _word(token: int) -> str:
    """A pronounceable stand-in for a token id."""
    return "".join(
        "bcdfgklmnprstvz"[token // 75**i % 15] + "aeiou"[token // (75**i * 15) % 5] for i in range(2)
    )
