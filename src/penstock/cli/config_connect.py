"""Ask the servers of a configuration, once and plainly, whether they are there and know their model."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from urllib.parse import quote

import aiohttp
import msgspec

from penstock.config import BackendConfig, Settings, models_of

SECONDS = 5.0
MAX_BYTES = 4 << 20
Verdict = tuple[bool, bool | None, str]  # whether it answers, whether it knows the model, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    model: str
    backend: str
    answers: bool
    knows_model: bool | None  # None: it does not say
    sentence: str

    @property
    def good(self) -> bool:
        return self.answers and self.knows_model is not False


def ask_all(settings: Settings) -> list[Answer]:
    """Only those with an address; what is discovered or started is not there yet."""
    asked = [
        (model.name, backend)
        for model in models_of(settings)
        for backend in model.backends
        if backend.url is not None
    ]
    return asyncio.run(_ask_all(asked))


async def _ask_all(asked: list[tuple[str, BackendConfig]]) -> list[Answer]:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, raise_for_status=False) as session:
        return list(await asyncio.gather(*(_ask(session, model, backend) for model, backend in asked)))


async def _ask(session: aiohttp.ClientSession, model: str, backend: BackendConfig) -> Answer:
    ask = _ask_triton if backend.kind == "triton" else _ask_for_models
    try:
        answers, knows, sentence = await ask(session, backend, backend.model or model)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = f"no answer within {SECONDS:g} s" if isinstance(error, TimeoutError) else _reason(error)
        answers, knows, sentence = False, None, f"{backend.url} cannot be reached: {reason}."
    return Answer(model=model, backend=backend.name, answers=answers, knows_model=knows, sentence=sentence)


def _reason(error: Exception) -> str:
    """Without the library's own words for it, and the address once more."""
    system = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    number = getattr(system, "errno", None)
    return os.strerror(number).lower() if isinstance(number, int) and number > 0 else str(error)


async def _ask_for_models(session: aiohttp.ClientSession, backend: BackendConfig, wanted: str) -> Verdict:
    prefix = str((backend.options or {}).get("prefix", "/v1")).rstrip("/")
    url = f"{backend.url}{prefix}/models"
    status, body = await _get(session, url, backend)
    if status in (401, 403):
        return False, None, f"answers {status}: it does not accept the key."
    if status != 200:
        return False, None, f"answers {status} to {url}."
    known = _ids(body)
    if known is None:
        return False, None, "answers, but not with a list of models."
    if wanted in known:
        return True, True, f"answers, and knows {wanted!r}."
    some = ", ".join(sorted(known)[:5]) or "none"
    return True, False, f"answers, but does not know {wanted!r}; it has: {some}."


async def _ask_triton(session: aiohttp.ClientSession, backend: BackendConfig, wanted: str) -> Verdict:
    alive, _ = await _get(session, f"{backend.url}/v2/health/ready", backend)
    if alive != 200:
        return False, None, f"answers {alive}: it is not ready."
    ready, _ = await _get(session, f"{backend.url}/v2/models/{quote(wanted, safe='')}/ready", backend)
    if ready != 200:
        return True, False, f"answers, but {wanted!r} is not ready there."
    return True, True, f"answers, and {wanted!r} is ready."


async def _get(session: aiohttp.ClientSession, url: str, backend: BackendConfig) -> tuple[int, bytes]:
    async with session.get(url, headers=_headers(backend), allow_redirects=False) as response:
        return response.status, await response.content.read(MAX_BYTES)


def _headers(backend: BackendConfig) -> dict[str, str]:
    headers = dict(backend.headers or {})
    if backend.kind == "anthropic":
        headers |= {"anthropic-version": "2023-06-01", "x-api-key": backend.api_key or ""}
    elif backend.api_key is not None:
        headers["authorization"] = f"Bearer {backend.api_key}"
    return headers


def _ids(body: bytes) -> set[str] | None:
    try:
        return {str(model["id"]) for model in msgspec.json.decode(body)["data"]}
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
