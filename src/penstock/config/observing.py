"""The sections about what operators see: promises, metrics, traces, the console, slow requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.catalogue import option
from penstock.config.values import (
    BOOLEAN,
    COUNT,
    NATURAL,
    PAIRS,
    SECONDS_ABOVE_0,
    SHARE,
    TARGET,
    TEXT,
    URL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectivesConfig:
    """What is promised for every model; a model's own `slo` goes before `ttft` and `tpot`."""

    ttft: float = option(0.5, SECONDS_ABOVE_0, "Time to the first token.")
    batch_ttft: float = option(
        2.0, SECONDS_ABOVE_0, "The same for requests of class `batch`; never less than for the others."
    )
    ttft_target: float = option(
        0.99, TARGET, "Share of requests that must have it in time; failed and refused ones count as late."
    )
    errors_target: float = option(0.99, TARGET, "Share of requests that must neither fail nor be refused.")
    tpot: float | None = option(None, SECONDS_ABOVE_0, "Time per output token after the first.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    enabled: bool = option(
        True, BOOLEAN, "Whether requests are measured; without, only engines, replicas and processes are."
    )
    vllm_names: bool = option(
        True, BOOLEAN, "Whether `/metrics` also has vLLM's names, for what means the same there."
    )
    label_values: int = option(
        1000, COUNT, "Most tenants, and other names that clients give, that are told apart; then `other`."
    )
    open: bool = option(
        False,
        BOOLEAN,
        "Whether `/metrics` needs no key; otherwise an administrator's, once there are keys.",
    )
    gpu: bool = option(True, BOOLEAN, "Whether NVIDIA GPUs are asked how they are, where there are any.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingConfig:
    """OpenTelemetry. Off unless an endpoint is given, here or by `OTEL_EXPORTER_OTLP_ENDPOINT`."""

    endpoint: str | None = option(
        None, URL, "Where spans go by OTLP over HTTP; `OTEL_*` variables count too."
    )
    sample: float | None = option(
        None, SHARE, "Share of requests that are traced, where the caller has not decided; 1 otherwise."
    )
    trust_caller: bool = option(
        True,
        BOOLEAN,
        "Whether a caller's trace is joined, and its decision to sample obeyed; else all begin here.",
    )
    service_name: str | None = option(
        None, TEXT, "What this server is called in traces; `penstock` otherwise."
    )
    headers: Mapping[str, str] | None = option(
        None, PAIRS, "Further headers to send to the endpoint, such as a key.", secret=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    enabled: bool = option(True, BOOLEAN, "Whether browsers find a console at `/`.")
    recent: int = option(200, NATURAL, "Requests that are remembered after they have ended.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowConfig:
    """Which requests are called slow, and explained."""

    ttft: float | None = option(
        None, SECONDS_ABOVE_0, "From this time to the first token on; as promised by `slo` otherwise."
    )
    e2e: float | None = option(
        None,
        SECONDS_ABOVE_0,
        "From this whole time on; a model's own `slo.e2e`, or ten times its median, otherwise.",
    )
    log: bool = option(True, BOOLEAN, "Whether each is a line of the log, with its causes.")
