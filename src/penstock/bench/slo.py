"""What an answer must keep to be of use: limits on its latency. Pure; seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.errors import ConfigError

METRICS = {
    "ttft": "until the first token",
    "tpot": "mean time of a token after the first",
    "e2e": "until the end of the answer",
}
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|)")


def parse_slo(text: str) -> dict[str, float]:
    """'ttft=500ms,tpot=50ms,e2e=5s': at most so many seconds by metric."""
    limits: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in METRICS or not equals:
            raise ConfigError(
                f"--slo limits {', '.join(METRICS)}, such as ttft=500ms,tpot=50ms,e2e=5s, got {part!r}."
            )
        if name in limits:
            raise ConfigError(f"--slo names {name} twice, in {text!r}; give one limit for each.")
        limits[name] = seconds("slo", value)
    return limits


def seconds(option: str, text: str) -> float:
    """'500ms', '5s', '2m' or plain seconds."""
    match = _DURATION.fullmatch(text.strip())
    length = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not length > 0:
        raise ConfigError(f"--{option} takes a time such as 500ms, 5s or 2m, got {text!r}.")
    return length


def meets(slo: Mapping[str, float], *, ttft: float, tpot: float | None, e2e: float) -> bool:
    """An answer of one token has no time per token, and cannot miss its limit."""
    measured = {"ttft": ttft, "tpot": tpot or 0.0, "e2e": e2e}
    return all(measured[metric] <= limit for metric, limit in slo.items())
