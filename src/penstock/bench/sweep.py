"""One kind of request at rising load, until the server gives no more. Pure: decides, measures nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.bench.statistics import Run
from penstock.bench.workloads import Workload, length_range
from penstock.errors import ConfigError

GROWTH = 1.05  # of output tokens/s: less for a higher load is no growth
CONFIRMATIONS = 2  # higher loads that must give no more before doubling ends
MOST_CLIENTS = 1024  # when the load is doubled without an end given


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Requests of one shape under several loads."""

    workload: Workload  # its load is still to be chosen
    loads: tuple[float, ...]  # clients, or requests/s; none: clients, doubled until saturation
    is_rate: bool = False
    requests: int | None = None  # for each load; None: by the load

    def next_load(self, measured: Sequence[Run]) -> float | None:
        """The load to measure after these runs, one for each load so far; None: no more."""
        done = len(measured)
        if self.loads:
            return self.loads[done] if done < len(self.loads) else None
        point = saturation(measured)
        confirmed = point is not None and done - point > CONFIRMATIONS
        load = 2**done
        return None if confirmed or load > MOST_CLIENTS else load

    def at(self, load: float) -> Workload:
        """Long enough for a steady state: some rounds of all clients, or some seconds of arrivals."""
        if self.is_rate:
            return replace(self.workload, requests=self.requests or max(16, round(10 * load)), rate=load)
        clients = int(load)
        return replace(self.workload, requests=self.requests or max(8, 4 * clients), clients=clients)


def saturation(runs: Sequence[Run]) -> int | None:
    """The first load after which output grows by less than 5% while p99 latency grows; None: not seen.

    Of all higher loads none may give more: one bad moment of the machine is no saturation.
    """
    for number, (run, higher) in enumerate(itertools.pairwise(runs)):
        most = max(later.output_tokens_per_second for later in runs[number + 1 :])
        flat = most < run.output_tokens_per_second * GROWTH
        if flat and (higher.e2e.p99 or float("inf")) > (run.e2e.p99 or 0.0):
            return number
    return None


def sentence(series: Series, runs: Sequence[Run]) -> str:
    """Where a series is saturated, one run for each load measured."""
    name = series.workload.name
    if (index := saturation(runs)) is None:
        return f"{name}: not saturated by the loads measured."
    run = runs[index]
    words = load_words(series.at(series.loads[index] if series.loads else 2**index))
    return (
        f"{name}: saturated at {words} with {run.output_tokens_per_second:.1f} output tok/s; "
        "a higher load gives less than 5% more, and longer waits."
    )


def load_words(workload: Workload) -> str:
    if workload.rate is not None:
        return f"{workload.rate:g} requests/s"
    return f"{workload.clients} client{'' if workload.clients == 1 else 's'}"


def make_series(
    *,
    concurrency: str | None,
    rate: str | None,
    input_len: str,
    output_len: str,
    prefix_len: int,
    requests: int | None,
) -> list[Series]:
    """Every input length with every output length."""
    if concurrency is not None and rate is not None:
        raise ConfigError("Give either --concurrency (closed loop) or --rate (open loop), not both.")
    loads = _numbers("rate", rate) if rate is not None else _whole_numbers("concurrency", concurrency)
    return [
        Series(
            workload=Workload(
                name=f"{prefix_len}+{inputs}/{outputs}" if prefix_len else f"{inputs}/{outputs}",
                requests=1,
                input_len=length_range("input-len", inputs),
                output_len=length_range("output-len", outputs),
                prefix_len=prefix_len,
            ),
            loads=loads,
            is_rate=rate is not None,
            requests=requests,
        )
        for inputs in _parts(input_len)
        for outputs in _parts(output_len)
    ]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in _parts(text))
    except ValueError:
        numbers = ()
    if not numbers or not all(0 < number < float("inf") for number in numbers):
        raise ConfigError(f"--{name} takes numbers above 0 such as 1,2,4,8, got {text!r}.")
    if list(numbers) != sorted(set(numbers)):
        raise ConfigError(f"--{name} must rise from each number to the next, got {text!r}.")
    return numbers


def _whole_numbers(name: str, text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    numbers = _numbers(name, text)
    if any(number != int(number) for number in numbers):
        raise ConfigError(f"--{name} takes whole numbers such as 1,2,4,8, got {text!r}.")
    return numbers
