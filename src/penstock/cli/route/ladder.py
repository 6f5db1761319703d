"""The ladder that a command weighs: the configured tiers, or the four of the product's promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.aio.query import Query
    from penstock.aio.steps import Step
    from penstock.config import GatewayConfig, TierConfig

MOST_FILE = 64 << 20  # bytes of a body


def steps_of(gateway: GatewayConfig, references: Sequence[str], query: Query | None = None) -> list[Step]:
    """As a server would have them that has just started: everybody is up."""
    from penstock.aio.steps import example
    from penstock.gateway.routing.ladder import steps_of as configured

    if not gateway.tiers:
        return example(references)
    steps = configured(gateway, references)
    if query is None:
        return steps
    return [
        replace(step, why_not=_unable(tier, gateway, query))
        for step, tier in zip(steps, gateway.tiers, strict=True)
    ]


def _unable(tier: TierConfig, gateway: GatewayConfig, query: Query) -> str:
    """What the configuration alone rules out, in a few words."""
    from penstock.aio.language import language

    said = tier.capabilities
    needs = (("vision", query.media), ("tools", query.tools), ("json", query.schema))
    for ability, needed in needs:
        if needed and said is not None and ability not in said:
            return f"it is not said to be capable of {ability}"
    if tier.prompt_budget is not None and query.prompt_tokens > tier.prompt_budget:
        return f"the prompt is longer than its {tier.prompt_budget} tokens"
    model = gateway.model(tier.model or "")
    context = tier.context or (None if model is None else model.context)
    if context is not None and query.prompt_tokens > context:
        return f"the prompt is longer than its {context} tokens"
    spoken = language(query.ask) if tier.languages else ""
    if spoken and spoken not in tier.languages:
        return f"it is not asked in {spoken}"
    return ""


# A body says by its fields which endpoint it is for.
_OPERATIONS = {"messages": "createChatCompletion", "input": "createResponse", "prompt": "createCompletion"}


def query_of_body(body: Mapping[str, Any]) -> Query | None:
    """The query of a request's body; None if it is none."""
    from penstock.aio.query import query_of

    operation = next((name for field, name in _OPERATIONS.items() if field in body), None)
    if operation == "createChatCompletion" and "system" in body:
        operation = "createMessage"  # only Anthropic's clients put it there
    return None if operation is None else query_of(operation, body)


def read_body(path: str) -> dict[str, Any]:
    try:
        with Path(path).open("rb") as file:
            body = json.loads(file.read(MOST_FILE))
    except OSError as error:
        raise ConfigError(f"--file {path} cannot be read ({error.strerror or error}).") from None
    except ValueError as error:
        raise ConfigError(f"--file {path} is not JSON ({error}).") from None
    if not isinstance(body, dict):
        raise ConfigError(
            f"--file {path} must hold a request's body, an object with messages, input or prompt."
        )
    return body


def share(flag: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value <= 1:
        raise ConfigError(f"{flag} must be a share from 0 to 1, such as 0.95, got {value!r}.")
    return value


def picodollars(flag: str, value: float | None) -> int | None:
    if value is None:
        return None
    if not 0 <= value <= 1e6:  # NaN is neither
        raise ConfigError(f"{flag} must be an amount of US dollars, such as 0.002, got {value!r}.")
    return round(value * 10**12)
