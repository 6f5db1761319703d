"""Every option of Penstock, declared once."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from penstock.config.catalogue import Option, option, options_of
from penstock.config.sections import GatewayConfig
from penstock.config.values import BOOLEAN, INTEGER, NAMES, NUMBER, SECONDS, SIZE, TEXT
from penstock.engine.config import KV_PRECISIONS, LOAD_FORMATS, PARTS, PRECISIONS, EngineConfig
from penstock.errors import ConfigError
from penstock.text.reasoning import CHOICES as REASONING_PARSERS
from penstock.text.reasoning import check_parser

engine_option = functools.partial(option, group="Engine")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user decided. `None` means "decided from the model and the device"."""

    model: str = option(
        "default",
        TEXT,
        "The model: 'default', a hub id (org/name), a GGUF file or a safetensors folder.",
        group="Model",
    )
    served_model_names: tuple[str, ...] = option(
        (),
        NAMES,
        "Names the API answers to; the model's own name otherwise.",
        group="Model",
        aliases=("served_model_name",),
    )
    chat_template: str | None = option(
        None, TEXT, "File with a chat template (Jinja) to use instead of the model's own.", group="Model"
    )
    reasoning_parser: str = option(
        "auto",
        TEXT,
        f"How the model marks its reasoning: {', '.join(REASONING_PARSERS)}; auto asks the chat template.",
        group="Model",
    )
    host: str = option("127.0.0.1", TEXT, "Address to listen on.", group="Server")
    port: int = option(8000, INTEGER, "Port to listen on; 0 takes a free one.", group="Server")
    api_keys: tuple[str, ...] = option(
        (),
        NAMES,
        "Keys that clients must present; without any, every client on this machine may call.",
        group="Server",
        aliases=("api_key",),
        secret=True,
    )
    allow_public: bool = option(
        False,
        BOOLEAN,
        "Listen on an address other machines can reach although no API key is set.",
        group="Server",
    )
    drain_seconds: float = option(
        30.0, SECONDS, "On shutdown, how long running requests may take to finish.", group="Server"
    )
    workers: int = option(
        1, INTEGER, "Processes that answer requests; they share keys, limits and ledger.", group="Server"
    )
    state_dir: str | None = option(
        None, TEXT, "Folder for keys and ledger; under PENSTOCK_HOME otherwise.", group="Server"
    )
    log_level: str = option("info", TEXT, f"How much to log: {', '.join(LOG_LEVELS)}.", group="Server")
    log_format: str = option(
        "text", TEXT, f"What a line of the log is: {', '.join(LOG_FORMATS)}.", group="Server"
    )

    device: str = engine_option("auto", TEXT, "Where to run: auto, cpu or cuda.")
    precision: str = engine_option(
        "auto",
        TEXT,
        f"What the model computes in: {', '.join(PRECISIONS[1:])}; auto is int8 on a CPU that can, float32 "
        "on others, and what the files hold on a GPU; fp8 is for GPUs.",
        aliases=("dtype",),
    )
    max_model_len: int | None = engine_option(
        None, INTEGER, "Longest prompt plus answer, in tokens; the model's own context otherwise."
    )
    max_running: int | None = engine_option(
        None,
        INTEGER,
        "Most choices computed in one step; a request has n of them.",
        aliases=("max_num_seqs",),
    )
    max_waiting: int = engine_option(
        1024, INTEGER, "Most choices that may wait; further requests are refused with 429."
    )
    max_step_tokens: int | None = engine_option(
        None,
        INTEGER,
        "Token budget of one step: decodes first, then prompt chunks.",
        aliases=("max_num_batched_tokens",),
    )
    block_size: int | None = engine_option(
        None, INTEGER, "Tokens in one block of the KV cache; 16 on the CPU and 64 on a GPU otherwise."
    )
    kv_precision: str = engine_option(
        "auto",
        TEXT,
        f"What the KV cache holds: {', '.join(KV_PRECISIONS)}; auto is as the model computes, fp8 is half of "
        "16 bits, for GPUs.",
        aliases=("kv_cache_dtype",),
    )
    kv_cache_memory: int | None = engine_option(
        None, SIZE, "Memory for the KV cache.", aliases=("kv_cache_memory_bytes",)
    )
    memory_fraction: float = engine_option(
        0.9,
        NUMBER,
        "Share of an accelerator's memory to use, weights included.",
        aliases=("gpu_memory_utilization",),
    )
    prefix_caching: bool = engine_option(
        True, BOOLEAN, "Keep computed prompt prefixes and use them again.", aliases=("enable_prefix_caching",)
    )
    arrival_window: float = engine_option(
        0.0,
        SECONDS,
        "Wait this long, at most 50ms, so that requests arriving together start together; 0 is off.",
    )
    ageing_seconds: float = engine_option(10.0, SECONDS, "Waiting this long is worth one level of priority.")
    threads: int | None = engine_option(None, INTEGER, "CPU threads for the model.")
    pooling: str = engine_option(
        "auto",
        TEXT,
        "How a text's vector is made, for embeddings: last, mean, cls, none, or as the model's files say.",
    )
    load_format: str = engine_option(
        "auto",
        TEXT,
        f"Where weights come from: {', '.join(LOAD_FORMATS)}; auto reads the files, random makes some of the "
        "same shape, to measure speed.",
    )
    without: tuple[str, ...] = engine_option(
        (),
        NAMES,
        f"Parts of a GPU's step to leave out, to measure what they are worth: {', '.join(PARTS)}.",
    )

    # What only the file can say: models, tenants, queue, retries, health.
    gateway: GatewayConfig = dataclasses.field(default=GatewayConfig())

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be between 0 and 65535, got {self.port}.")
        if self.workers < 1:
            raise ConfigError(f"workers must be at least 1, got {self.workers}.")
        if self.drain_seconds < 0:
            raise ConfigError(f"drain_seconds must not be negative, got {self.drain_seconds:g}.")
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(f"log_level must be one of {', '.join(LOG_LEVELS)}, got {self.log_level!r}.")
        if self.log_format not in LOG_FORMATS:
            raise ConfigError(f"log_format must be one of {', '.join(LOG_FORMATS)}, got {self.log_format!r}.")
        check_parser(self.reasoning_parser)
        self.engine_config(self.model)  # checks the rest

    def engine_config(self, model_path: str) -> EngineConfig:
        """The engine's share of the settings, for the model file or folder at `model_path`."""
        names = {field.name for field in dataclasses.fields(EngineConfig)} - {"model"}
        return EngineConfig(model=model_path, **{name: getattr(self, name) for name in names})


def options() -> dict[str, Option]:
    """The catalogue of what flags and variables can set, by name, in the order of declaration."""
    return options_of(Settings)
