"""What is known of each kind of server that speaks OpenAI's API: one row each.

A row says what exists there, where its health and load can be read, and which fields mean something else
than with the others. A server that is none of these is `openai_compatible`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from penstock.gateway.backends.load import LoadReader, gauges, iteration_stats, slots

# Where each operation is asked for.
PATHS: Final[dict[str, bytes]] = {
    "createChatCompletion": b"/v1/chat/completions",
    "createCompletion": b"/v1/completions",
    "createEmbedding": b"/v1/embeddings",
    "rerank": b"/v1/rerank",
    "score": b"/v1/score",
    "createResponse": b"/v1/responses",
    "createMessage": b"/v1/messages",
}
_TEXT: Final = frozenset({"createChatCompletion", "createCompletion"})
_ALL: Final = frozenset(PATHS)

# What a chunk's own usage counts: its choice's tokens so far, all choices' so far, or it has none.
RunningUsage = Literal["choice", "total", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    operations: frozenset[str] = _TEXT
    health: bytes | None = b"/v1/models"  # answers 200 when requests should be sent; None: not to be asked
    load: tuple[tuple[bytes, LoadReader], ...] = ()  # where, and how to read it; the first that is there
    capacity: int = 64  # choices at once, unless the configuration says
    stream_usage: bool = True  # obeys stream_options.include_usage
    running_usage: RunningUsage = "none"  # with stream_options.continuous_usage_stats
    priority: Literal[-1, 0, 1] = (
        0  # 1: the lower number is earlier, as here; -1: the higher; 0: no such field
    )
    cache_salt: bool = False  # keeps prompts with different salts apart in its prefix cache
    max_tokens: str | None = None  # the one name it knows for the most tokens of a chat's answer
    withheld: frozenset[str] = frozenset()  # fields that do not go on
    stored: bool = False  # clients may name what it keeps by its id; of all tenants, that is
    url: str | None = None  # where everybody finds it
    key_variable: str | None = None  # the environment variable that clients of it read their key from


_VLLM_LOAD: Final = gauges(
    running=b"vllm:num_requests_running",
    waiting=b"vllm:num_requests_waiting",
    kv_usage=b"vllm:kv_cache_usage_perc",
    accepted=b"vllm:spec_decode_num_accepted_tokens_total",
    drafted=b"vllm:spec_decode_num_draft_tokens_total",
)
_PENSTOCK_LOAD: Final = gauges(
    running=b"penstock_engine_running",
    waiting=b"penstock_engine_waiting",
    kv_usage=b"penstock_kv_usage_ratio",
)
_GATEWAYS_OWN: Final = frozenset({"priority", "cache_salt"})  # refused by who does not know them
# llama.cpp's own names for max_tokens and n, which it obeys over these: no cap would hold.
_LLAMACPP_LIMITS: Final = frozenset({"n_predict", "n_cmpl"})

PRESETS: Final[dict[str, Preset]] = {
    "penstock": Preset(
        operations=_ALL,
        health=b"/ready",
        load=((b"/metrics", _PENSTOCK_LOAD),),
        capacity=256,
        running_usage="total",
        priority=1,
        cache_salt=True,
    ),
    "vllm": Preset(
        operations=_ALL,
        health=b"/health",
        load=((b"/metrics", _VLLM_LOAD),),
        capacity=256,
        running_usage="choice",
        priority=1,
        cache_salt=True,
    ),
    "sglang": Preset(
        operations=_ALL,
        health=b"/health",
        load=(
            (
                b"/metrics",  # with --enable-metrics
                gauges(
                    running=b"sglang:num_running_reqs",
                    waiting=b"sglang:num_queue_reqs",
                    kv_usage=b"sglang:token_usage",
                    accepted=b"sglang:spec_accept_rate",
                ),
            ),
        ),
        capacity=256,
        running_usage="choice",
        priority=-1,
        cache_salt=True,
    ),
    "llamacpp": Preset(
        operations=_ALL - {"score"},
        health=b"/health",
        load=(
            (
                b"/metrics",  # with --metrics
                gauges(running=b"llamacpp:requests_processing", waiting=b"llamacpp:requests_deferred"),
            ),
            (b"/slots", slots),
        ),
        capacity=4,  # as many slots as it makes by itself
        max_tokens="max_tokens",
        withheld=_GATEWAYS_OWN | _LLAMACPP_LIMITS,
    ),
    "tgi": Preset(
        health=b"/health",
        load=((b"/metrics", gauges(running=b"tgi_batch_current_size", waiting=b"tgi_queue_size")),),
        capacity=128,
        max_tokens="max_tokens",
        withheld=_GATEWAYS_OWN,
    ),
    "trtllm": Preset(
        operations=_TEXT | {"createResponse"},
        health=b"/health",
        load=(
            (
                b"/prometheus/metrics",
                gauges(
                    running=b"trtllm_num_requests_running",
                    waiting=b"trtllm_num_requests_waiting",
                    kv_usage=b"trtllm_kv_cache_utilization",
                ),
            ),
            (b"/metrics", iteration_stats),
        ),
        capacity=256,
        running_usage="choice",
        withheld=_GATEWAYS_OWN,
    ),
    "openai_compatible": Preset(operations=_ALL, withheld=_GATEWAYS_OWN | _LLAMACPP_LIMITS),
    "openai": Preset(
        operations=_TEXT | {"createEmbedding", "createResponse"},
        health=None,  # every probe of a provider counts against its rate limits
        capacity=1000,
        max_tokens="max_completion_tokens",
        withheld=_GATEWAYS_OWN,
        url="https://api.openai.com",
        key_variable="OPENAI_API_KEY",
    ),
}
