"""A step of the ladder as it is served: a model, asked in a certain way, at a certain price."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.aio.language import language
from penstock.aio.query import Query
from penstock.aio.steps import Step
from penstock.config import GatewayConfig, TierConfig
from penstock.config.tiers import price_of
from penstock.gateway.accounts import Price
from penstock.gateway.deployment import Deployment
from penstock.gateway.inquiry import Inquiry
from penstock.gateway.queue import ServiceClass
from penstock.gateway.routing.bound import most_prompt_tokens
from penstock.gateway.routing.ladder import steps_of

ROUTED: Final = ("createChatCompletion", "createCompletion", "createResponse", "createMessage")
_anything: Final = msgspec.json.Decoder()


class Tier:
    def __init__(self, config: TierConfig, step: Step, deployment: Deployment, price: Price) -> None:
        self.config = config
        self.name = config.name
        self.step = step  # as the choice sees it
        self.reference = step.reference  # the measured model that it is like
        self.deployment = deployment
        self.price = price

    @property
    def context(self) -> int | None:
        return self.config.context or self.deployment.context

    def unable(self, operation: str, query: Query, output: int) -> str | None:
        """Why it cannot be asked this, in a few words, or None. `output`: tokens wanted of the answer."""
        config = self.config
        able = {name for backend in self.deployment.backends() for name in backend.operations}
        if able and operation not in able and not (operation == ROUTED[3] and ROUTED[0] in able):
            return "no server behind it offers this endpoint"
        if query.media and not self._can("vision"):
            return "it reads text only"
        if query.tools and not self._can("tools"):
            return "it has no tools"
        if query.schema and not self._can("json"):
            return "it does not answer in JSON"
        if config.prompt_budget is not None and query.prompt_tokens > config.prompt_budget:
            return f"the prompt is longer than its {config.prompt_budget} tokens"
        # Where the answer's length is not said it is no more than a guess, which must not shut a tier out.
        if self.context is not None and query.prompt_tokens + min(output, 64) > self.context:
            return f"prompt and answer are longer than its {self.context} tokens"
        if config.languages:
            spoken = language(query.ask)
            if spoken and spoken not in config.languages:
                return f"it is not asked in {spoken}"
        return None

    def pays_for(self, prompt: int, money: int) -> int | None:
        """Tokens of an answer that so many picodollars pay beside the prompt; None: any number."""
        rest = money - self.price.most(prompt, 0)
        if rest < 0:
            return 0
        return rest // self.price.output if self.price.output else None

    def _can(self, ability: str) -> bool:
        said = self.config.capabilities
        if said is not None and ability not in said:
            return False
        if ability == "vision":
            return any(backend.vision for backend in self.deployment.backends())
        return True

    def down(self) -> bool:
        """Whether nobody there could answer now, or soon."""
        now = time.monotonic()
        members = self.deployment.dispatcher.members.values()
        return not any(member.look(now) or member.returns for member in members)

    def full_beyond(self, tenant: str, service_class: ServiceClass, left: float) -> bool:
        """Whether such a request would not get its turn within `left` seconds, as far as anybody knows."""
        wait = self.deployment.expected_wait(tenant, service_class)
        return wait > left if wait is not None else left < self.deployment.longest_wait

    def most_prompt(self, inquiry: Inquiry) -> int:
        """Tokens that the prompt can have at most as this tier is asked it."""
        return most_prompt_tokens(self.shaped(inquiry), self.config.image_tokens)

    def shaped(self, inquiry: Inquiry) -> Inquiry:
        """The request as this tier is asked it; the one that came stays as it is."""
        changes: dict[str, Any] = {
            name: value for name, value in (self.config.sampling or {}).items() if name not in inquiry.fields
        }
        if self.config.instruction is not None:
            changes |= instructed(inquiry, self.config.instruction)
        if self.config.speculation is not None:
            changes["speculative.n_max"] = self.config.speculation
        return Inquiry(inquiry.operation, inquiry.encode(changes or None))


def ladder_of(
    config: GatewayConfig, deployments: Mapping[str, Deployment], references: Sequence[str]
) -> list[Tier]:
    """The configured tiers, each with the model that it asks."""
    names = {name: deployment for deployment in deployments.values() for name in deployment.names}
    return [
        Tier(tier, step, names[tier.model or ""], Price.of(price_of(tier, config)))
        for tier, step in zip(config.tiers, steps_of(config, references), strict=True)
    ]


def instructed(inquiry: Inquiry, instruction: str) -> Mapping[str, Any]:
    """The fields that change when an instruction is put before a conversation. Bodies that are malformed stay
    so: whoever answers says what is wrong with them."""
    fields = {name: _anything.decode(bytes(raw)) for name, raw in inquiry.fields.items() if name in _PLACES}
    add = _ADD[inquiry.operation]
    return add(fields, instruction)


def _to_chat(fields: Mapping[str, Any], instruction: str) -> dict[str, Any]:
    messages = fields.get("messages")
    if not isinstance(messages, list):
        return {}
    first = messages[0] if messages else None
    # Many templates take one message of the system's only, and that at the beginning.
    if isinstance(first, dict) and first.get("role") in ("system", "developer"):
        content = first.get("content")
        if isinstance(content, str):
            return {"messages": [{**first, "content": f"{instruction}\n\n{content}"}, *messages[1:]]}
        if isinstance(content, list):
            part = {"type": "text", "text": instruction}
            return {"messages": [{**first, "content": [part, *content]}, *messages[1:]]}
    return {"messages": [{"role": "system", "content": instruction}, *messages]}


def _to_completion(fields: Mapping[str, Any], instruction: str) -> dict[str, Any]:
    prompt = fields.get("prompt")
    if isinstance(prompt, str):
        return {"prompt": f"{instruction}\n\n{prompt}"}
    if isinstance(prompt, list) and prompt and all(isinstance(each, str) for each in prompt):
        return {"prompt": [f"{instruction}\n\n{each}" for each in prompt]}
    return {}  # token ids: there is no telling where words would go


def _to_response(fields: Mapping[str, Any], instruction: str) -> dict[str, Any]:
    said = fields.get("instructions")
    return {"instructions": f"{instruction}\n\n{said}" if isinstance(said, str) and said else instruction}


def _to_message(fields: Mapping[str, Any], instruction: str) -> dict[str, Any]:
    system = fields.get("system")
    if isinstance(system, list):
        return {"system": [{"type": "text", "text": instruction}, *system]}
    return {"system": f"{instruction}\n\n{system}" if isinstance(system, str) and system else instruction}


_ADD: Final = dict(zip(ROUTED, (_to_chat, _to_completion, _to_response, _to_message), strict=True))
_PLACES: Final = frozenset({"messages", "prompt", "instructions", "system"})
