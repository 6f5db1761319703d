"""The server that is measured, and how to speak to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp

from penstock.bench.workloads import Job
from penstock.errors import EngineUnavailableError

LINE_BYTES = 2**20  # the longest event that is read


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A server and how to speak to it."""

    url: str  # without /v1
    model: str
    endpoint: Literal["completions", "chat"] = "completions"
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 1800.0  # seconds for one answer
    stall_timeout: float = 300.0  # seconds for its next token: a server that hangs need not be waited for
    ignore_eos: bool = True  # a field of ours and of vLLM's; some servers refuse it

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.endpoint == "chat" else "/v1/completions"

    def body(self, job: Job) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "max_tokens": job.output_len,
        }
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.endpoint == "chat":
            # Chat takes text only, so the length is approximate; the server's count is reported.
            text = job.text or " ".join(_word(token) for token in job.prompt)
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = job.prompt if job.text is None else job.text
        return body


def open_session(target: Target) -> aiohttp.ClientSession:
    """For questions beside the load."""
    return aiohttp.ClientSession(
        headers=target.headers,
        timeout=aiohttp.ClientTimeout(total=target.timeout),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=LINE_BYTES,
    )


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


def _word(token: int) -> str:
    """A pronounceable stand-in for a token id."""
    return "".join(
        "bcdfgklmnprstvz"[token // 75**i % 15] + "aeiou"[token // (75**i * 15) % 5] for i in range(2)
    )
