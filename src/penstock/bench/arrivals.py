"""When the requests of an open loop are due, whatever the server does. Pure; seconds since the start."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.errors import ConfigError

# (number of requests, requests/s on average, requests of one burst, randomness) -> moments, in order
Process = Callable[[int, float, int, random.Random], list[float]]

BURST_SIZE = 8


def constant(count: int, rate: float, _: int, __: random.Random) -> list[float]:
    return [number / rate for number in range(count)]


def poisson(count: int, rate: float, _: int, chance: random.Random) -> list[float]:
    """Independent users: the gaps are exponential."""
    moments, now = [], 0.0
    for _number in range(count):
        moments.append(now)
        now += chance.expovariate(rate)
    return moments


def burst(count: int, rate: float, size: int, chance: random.Random) -> list[float]:
    """Groups of `size` at one moment, the groups a Poisson process of the same mean rate of requests."""
    groups = poisson(-(-count // size), rate / size, 1, chance)
    return [groups[number // size] for number in range(count)]


ARRIVALS: dict[str, Process] = {"poisson": poisson, "burst": burst, "constant": constant}


def check_arrivals(name: str, rate: float, burst_size: int) -> None:
    if name not in ARRIVALS:
        raise ConfigError(f"--arrivals must be one of {', '.join(ARRIVALS)}, got {name!r}.")
    if not 0 < rate < float("inf"):
        raise ConfigError(f"--rate must be a number of requests a second above 0, got {rate}.")
    if burst_size < 1:
        raise ConfigError(f"--burst-size must be at least 1, got {burst_size}.")
