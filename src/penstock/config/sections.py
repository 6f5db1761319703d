"""The sections of penstock.yaml: models and their backends, tenants, queue, retries, health.

Prices and budgets are in US dollars, times in seconds, lengths in tokens. What a section's
values must have to do with each other is in `checks.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.config.catalogue import Section, option
from penstock.config.observing import (
    ConsoleConfig,
    MetricsConfig,
    ObjectivesConfig,
    SlowConfig,
    TracingConfig,
)
from penstock.config.routing import CacheConfig, RoutingConfig
from penstock.config.values import (
    BOOLEAN,
    COUNT,
    MAPPING,
    MONEY,
    NAMES,
    PAIRS,
    POSITIVE,
    SECONDS_ABOVE_0,
    SECONDS_FROM_0,
    SHARE,
    TEXT,
    URL,
    one_of,
)

ServiceClass = Literal["interactive", "standard", "batch"]
SERVICE_CLASSES: tuple[ServiceClass, ...] = ("interactive", "standard", "batch")
BALANCE_POLICIES = ("prefix", "least_tokens", "two_choices", "round_robin", "session")
# What a backend can be: an engine that Penstock starts itself, or a server that speaks one of these.
BACKEND_KINDS = (
    "engine",
    "penstock",
    "vllm",
    "sglang",
    "llamacpp",
    "tgi",
    "trtllm",
    "openai_compatible",
    "triton",
    "openai",
    "anthropic",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceConfig:
    input: float = option(0.0, MONEY, "USD for 1M prompt tokens.")
    cached_input: float | None = option(
        None, MONEY, "USD for 1M prompt tokens that came from the prefix cache; as `input` otherwise."
    )
    output: float = option(0.0, MONEY, "USD for 1M generated tokens.")
    request: float = option(0.0, MONEY, "USD for each request, whatever its length.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SloConfig:
    """What is promised. Each bound is one of the histogram's, so that it can be read off."""

    ttft: float | None = option(None, SECONDS_ABOVE_0, "Time to the first token.")
    tpot: float | None = option(None, SECONDS_ABOVE_0, "Time per output token after the first.")
    e2e: float | None = option(None, SECONDS_ABOVE_0, "Time from arrival to the end of the answer.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutConfig:
    connect: float = option(5.0, SECONDS_ABOVE_0, "To open a connection.")
    first_byte: float = option(
        600.0, SECONDS_ABOVE_0, "From the request sent to the answer's first byte; unstreamed, all of it."
    )
    idle: float = option(60.0, SECONDS_ABOVE_0, "Between two parts of a stream.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoverConfig:
    """Where a backend's servers are found; exactly one source."""

    dns: str | None = option(
        None, TEXT, "`name:port`: each address of the name is a server; `srv:name` asks for SRV records."
    )
    file: str | None = option(None, TEXT, "A file with one URL a line, read again when it changes.")
    register: bool = option(False, BOOLEAN, "Servers join and leave through the API.")
    every: float = option(10.0, SECONDS_ABOVE_0, "How often the source is asked.")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendConfig:
    """Where a model's answers come from: an engine started here, or a server behind HTTP."""

    name: str = option("", TEXT, "What it is called in metrics and logs; made from its address otherwise.")
    kind: str = option("engine", one_of(BACKEND_KINDS), "What it is; `vllm: URL` is short for both.")
    engine: str | None = option(
        None, TEXT, "For an engine: the model, as `model` above names one. Engine options go beside it."
    )
    replicas: int = option(1, COUNT, "How many engines to start.")
    url: str | None = option(None, URL, "Where the server is, http or https, with or without `/v1`.")
    discover: DiscoverConfig | None = option(
        None, Section(DiscoverConfig, "one"), "Where its servers are found, in place of `url`."
    )
    model: str | None = option(
        None, TEXT, "The name the server knows the model by; the name of this model otherwise."
    )
    api_key: str | None = option(None, TEXT, "The key the server wants.", secret=True)
    headers: Mapping[str, str] | None = option(
        None, PAIRS, "Further headers to send to the server.", secret=True
    )
    vision: bool = option(False, BOOLEAN, "Whether it understands images; without, they are refused.")
    weight: float = option(1.0, POSITIVE, "Its share of the requests, beside the others.")
    max_concurrent: int | None = option(None, COUNT, "Most requests it is given at a time.")
    priority: bool = option(False, BOOLEAN, "Whether it obeys the body's `priority`, as vLLM can.")
    timeouts: TimeoutConfig = option(TimeoutConfig(), Section(TimeoutConfig, "one"), "How long to wait.")
    options: Mapping[str, Any] | None = option(None, MAPPING, "What only this kind of backend knows.")
    engine_options: Mapping[str, Any] = field(default_factory=dict)  # by the settings' names


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A name that clients ask for, and what stands behind it."""

    name: str
    aliases: tuple[str, ...] = option((), NAMES, "Further names for it.")
    backends: tuple[BackendConfig, ...] = option((), Section(BackendConfig, "list"), "What answers.")
    balance: str = option("prefix", one_of(BALANCE_POLICIES), "How a replica is chosen.")
    price: PriceConfig = option(PriceConfig(), Section(PriceConfig, "one"), "What callers are charged.")
    fallbacks: tuple[str, ...] = option((), NAMES, "Models that answer, in this order, when it cannot.")
    max_tokens: int | None = option(None, COUNT, "Most tokens of one answer; a larger wish is cut.")
    prompt_budget: int | None = option(None, COUNT, "Most tokens of a prompt.")
    context: int | None = option(None, COUNT, "Longest prompt plus answer; as the backend says otherwise.")
    tokenizer: str | None = option(
        None,
        TEXT,
        "For Triton: folder, GGUF file or hub id with the model's tokenizer, to render chats and to count.",
    )
    slo: SloConfig = option(SloConfig(), Section(SloConfig, "one"), "What is promised.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TierConfig:
    """A step of the ladder that `model: auto` chooses from, cheapest first; the last is the expert.

    It is a model, asked in a certain way, or has backends of its own and is then a model of its name too.
    """

    name: str
    model: str | None = option(None, TEXT, "The model that answers.")
    backends: tuple[BackendConfig, ...] = option(
        (), Section(BackendConfig, "list"), "What answers, in place of `model`."
    )
    price: PriceConfig | None = option(
        None, Section(PriceConfig, "one"), "What callers are charged on this tier; as the model otherwise."
    )
    context: int | None = option(None, COUNT, "Longest prompt plus answer; as the model otherwise.")
    capabilities: tuple[str, ...] | None = option(
        None,
        NAMES,
        "What it can do beside text: tools, json, vision; all that its servers do otherwise.",
    )
    languages: tuple[str, ...] = option((), NAMES, "Languages it is asked in, such as en, de; all otherwise.")
    max_tokens: int | None = option(None, COUNT, "Most tokens of one answer; a larger wish is cut.")
    prompt_budget: int | None = option(None, COUNT, "Longest prompt it is given; longer ones go further up.")
    image_tokens: int = option(2048, COUNT, "Most tokens of an image, by which a cap on the cost reckons.")
    instruction: str | None = option(
        None, TEXT, "Put before the conversation, such as one that asks for thinking step by step."
    )
    sampling: Mapping[str, Any] | None = option(
        None, MAPPING, "Fields of the request where it does not have them, such as `temperature: 0.2`."
    )
    speculation: int | None = option(
        None, COUNT, "Tokens to draft ahead, for servers that take that with a request (llamacpp)."
    )
    like: str | None = option(
        None, TEXT, "The measured model that it resembles; by its place on the ladder otherwise."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantConfig:
    """Who calls, and how much of what; `None` is no limit."""

    name: str
    service_class: ServiceClass = option(
        "standard", one_of(SERVICE_CLASSES), "The class of its requests.", aliases=("class",)
    )
    weight: float = option(1.0, POSITIVE, "Its share beside other tenants of its class.")
    models: tuple[str, ...] = option((), NAMES, "Models it may use; all of them otherwise.")
    requests_per_minute: int | None = option(None, COUNT, "Most requests a minute.")
    tokens_per_minute: int | None = option(None, COUNT, "Most tokens a minute, prompt and answer.")
    concurrent: int | None = option(None, COUNT, "Most requests at a time.")
    monthly_budget: float | None = option(None, MONEY, "USD it may spend in a calendar month (UTC).")
    max_tokens: int | None = option(None, COUNT, "Most tokens of one answer; a larger wish is cut.")
    prompt_budget: int | None = option(None, COUNT, "Most tokens of a prompt.")
    trim_history: bool = option(
        False, BOOLEAN, "Leave out the oldest turns of a chat that is over its budget, rather than refuse it."
    )
    tier: str | None = option(None, TEXT, "The tier that answers `model: auto`, whatever is asked.")
    quality_target: float | None = option(None, SHARE, "Its own `routing.target`.")
    max_cost: float | None = option(
        None, MONEY, "Most that one request to `model: auto` may cost, in USD; no tier above it is asked."
    )
    keep_text: bool = option(
        False, BOOLEAN, "Whether questions and answers that are checked may be kept, to learn from."
    )
    cache: bool = option(True, BOOLEAN, "Whether its answers may be kept in the response cache.")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    max_requests: int = option(1000, COUNT, "Most requests that wait for one model.")
    max_tokens: int = option(2_000_000, COUNT, "Most tokens that wait, prompts and expected answers.")
    ageing: float = option(10.0, SECONDS_ABOVE_0, "Waiting this long is worth one service class.")
    wait: float = option(60.0, SECONDS_ABOVE_0, "Longest wait of a request that states no deadline.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryConfig:
    attempts: int = option(3, COUNT, "Most replicas that are tried for one request and model.")
    budget: float = option(0.2, SHARE, "Retries as a share of requests, at most.")
    backoff: float = option(0.05, SECONDS_FROM_0, "Longest pause before the first retry; doubles each time.")
    max_backoff: float = option(2.0, SECONDS_FROM_0, "Longest pause before any retry.")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    silence: float = option(
        8.0, SECONDS_ABOVE_0, "A replica that has work and shows no progress for this long is unhealthy."
    )
    probe_every: float = option(10.0, SECONDS_ABOVE_0, "How often an idle or doubtful replica is probed.")
    probe_timeout: float = option(5.0, SECONDS_ABOVE_0, "How long a probe may take.")
    error_rate: float = option(0.5, SHARE, "Share of failed requests above which a replica is unhealthy.")
    error_window: float = option(30.0, SECONDS_ABOVE_0, "Over which time that share is taken.")
    error_requests: int = option(10, COUNT, "Fewest requests in that time for a judgement.")
    restart_backoff: float = option(1.0, SECONDS_ABOVE_0, "Pause before an engine is restarted; doubles.")
    max_restart_backoff: float = option(60.0, SECONDS_ABOVE_0, "Longest pause before a restart.")
    slow_start: float = option(10.0, SECONDS_FROM_0, "A new replica gets its full share after this time.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Everything of the file that is not a flat option."""

    models: tuple[ModelConfig, ...] = option((), Section(ModelConfig, "named"), "Models, by name.")
    tiers: tuple[TierConfig, ...] = option(
        (), Section(TierConfig, "named"), "Tiers of `model: auto`, by name, cheapest first."
    )
    routing: RoutingConfig = option(RoutingConfig(), Section(RoutingConfig, "one"), "Choosing a tier.")
    cache: CacheConfig = option(CacheConfig(), Section(CacheConfig, "one"), "Keeping answers.")
    tenants: tuple[TenantConfig, ...] = option((), Section(TenantConfig, "named"), "Tenants, by name.")
    queue: QueueConfig = option(QueueConfig(), Section(QueueConfig, "one"), "The queue of each model.")
    retry: RetryConfig = option(RetryConfig(), Section(RetryConfig, "one"), "Trying again elsewhere.")
    health: HealthConfig = option(HealthConfig(), Section(HealthConfig, "one"), "When a replica is out.")
    slo: ObjectivesConfig = option(
        ObjectivesConfig(), Section(ObjectivesConfig, "one"), "What is promised for every model."
    )
    metrics: MetricsConfig = option(MetricsConfig(), Section(MetricsConfig, "one"), "What is measured.")
    tracing: TracingConfig = option(TracingConfig(), Section(TracingConfig, "one"), "OpenTelemetry traces.")
    console: ConsoleConfig = option(ConsoleConfig(), Section(ConsoleConfig, "one"), "The page at `/`.")
    slow: SlowConfig = option(SlowConfig(), Section(SlowConfig, "one"), "Which requests are explained.")

    def model(self, name: str) -> ModelConfig | None:
        """The model that clients know by this name or alias."""
        return next((model for model in self.models if name == model.name or name in model.aliases), None)

    def tier(self, name: str) -> TierConfig | None:
        return next((tier for tier in self.tiers if tier.name == name), None)

    def tenant(self, name: str) -> TenantConfig | None:
        return next((tenant for tenant in self.tenants if tenant.name == name), None)
