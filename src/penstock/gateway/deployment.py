"""A model as clients know it: its names, its replicas, its queue, its price."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from penstock.config import GatewayConfig, ModelConfig, PriceConfig, TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway import sizing
from penstock.gateway.accounts import Price
from penstock.gateway.backends import Backend
from penstock.gateway.balance import POLICIES, Policy, PolicyOptions, Query, byte_digests, token_digests
from penstock.gateway.dispatch import Dispatcher
from penstock.gateway.exchange import Exchange
from penstock.gateway.inquiry import OUTPUT_LIMITS
from penstock.gateway.local.backend import OPERATIONS as LOCAL_OPERATIONS
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.prepare import Prepared
from penstock.gateway.queue import FairQueue, QueueLimits, ServiceClass, Ticket
from penstock.gateway.resilience import RetryBudget
from penstock.protocol.decode import decode
from penstock.protocol.responses import Model

_SESSION_HEADER: Final = b"x-session-id"
_MESSAGES: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Size:
    """What a request will take, as far as one can know before."""

    prompt: int  # tokens
    output: int  # tokens of all choices together
    choices: int


class Deployment:
    def __init__(
        self,
        config: ModelConfig,
        gateway: GatewayConfig,
        served: ServedModel | None,
        share: int = 1,
        max_waiting: int | None = None,
    ) -> None:
        self.served = served  # how the engines of ours read and write; None: there are none
        self.created = int(time.time())
        self._share = share  # one of so many processes that serve it
        self._max_waiting = max_waiting  # as its engines' options say
        self.dispatcher = Dispatcher(FairQueue(self._limits(gateway)), self._policy(config, gateway), share)
        self.retries = RetryBudget(gateway.retry.budget)
        self._took(config, gateway)

    def configure(self, config: ModelConfig, gateway: GatewayConfig) -> None:
        """From now on as `config` says; who waits or is being answered goes on.

        What was learned of prefixes and earned of retries is kept while the rules for it are the same.
        """
        rules = (self.config.balance, self._slow_start)
        if rules != (config.balance, gateway.health.slow_start):
            self.dispatcher.policy = self._policy(config, gateway)
        if gateway.retry.budget != self._retry_share:
            self.retries = RetryBudget(gateway.retry.budget)
        self.dispatcher.queue.limits = self._limits(gateway)
        self._took(config, gateway)

    def _took(self, config: ModelConfig, gateway: GatewayConfig) -> None:
        self.config = config
        self._slow_start, self._retry_share = gateway.health.slow_start, gateway.retry.budget
        self.names = (config.name, *config.aliases)
        self.price = Price.of(config.price) if config.price != PriceConfig() else None
        self.longest_wait = gateway.queue.wait  # seconds

    def _limits(self, gateway: GatewayConfig) -> QueueLimits:
        queue = gateway.queue
        return QueueLimits(
            max_requests=max(1, (sizing.smaller(queue.max_requests, self._max_waiting) or 1) // self._share),
            max_tokens=max(1, queue.max_tokens // self._share),
            ageing_seconds=queue.ageing,
        )

    @staticmethod
    def _policy(config: ModelConfig, gateway: GatewayConfig) -> Policy:
        options = PolicyOptions(draw=random.random, slow_start=gateway.health.slow_start)
        return POLICIES[config.balance](options)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def context(self) -> int | None:
        """Tokens of prompt and answer together; None: not known here."""
        if self.config.context is not None or self.served is None:
            return self.config.context
        return self.served.context

    def describe(self) -> list[Model]:
        tasks = list(self.served.tasks) if self.served is not None else None
        return [
            Model(id=name, created=self.created, max_model_len=self.context, root=self.name, tasks=tasks)
            for name in self.names
        ]

    def expected_wait(self, tenant: str, service_class: ServiceClass) -> float | None:
        """Seconds that such a request would wait now; None: others wait, and nobody knows for how long."""
        now = time.monotonic()
        members = self.dispatcher.members.values()
        if any(member.look(now) and member.has_room(service_class) for member in members):
            return 0.0
        ticket = Ticket(id=-1, tenant=tenant, service_class=service_class, weight=1.0, tokens=0, arrived=now)
        return self.dispatcher.queue.wait(ticket)

    def backends(self) -> list[Backend]:
        return [member.backend for member in self.dispatcher.members.values()]

    def check_able(self, exchange: Exchange) -> None:
        """Refuse what none of its backends could ever answer."""
        asks, backends = exchange.operation.asks, self.backends()
        if backends and not any(asks in backend.operations for backend in backends):
            if self.served is not None and asks in LOCAL_OPERATIONS:
                self.served.check_task(LOCAL_OPERATIONS[asks][0])
            raise InvalidRequestError(
                f"The model {self.name} cannot be asked through {exchange.operation.path}: "
                "no server behind it offers that.",
                param="model",
                code="unsupported_task",
            )

    def needs_vision(self, exchange: Exchange) -> bool:
        """Whether only backends that may have images and the like can answer; refused if there are none."""
        if not exchange.inquiry.has_media:
            return False
        if any(backend.vision for backend in self.backends()):
            return True
        if self.served is not None:
            return False  # the engine's own reading of the request says what is wrong, and where
        raise InvalidRequestError(
            f"The request has an image or another part that is no text, and the model {self.name} reads "
            "text only.",
            param=exchange.inquiry.prompt_field,
            code="unsupported_value",
        )

    async def prepare(
        self, exchange: Exchange, tenant: TenantConfig, *, vision: bool, max_tokens: int | None = None
    ) -> Size:
        """Read the request as far as this model can, and cut it to the size that is allowed: by tenant, model
        and, where the request was routed, by `max_tokens`."""
        inquiry = exchange.inquiry
        cap = sizing.smaller(tenant.max_tokens, self.config.max_tokens, max_tokens)
        if sizing.cap_output(inquiry, cap):
            exchange.say(b"x-penstock-max-tokens", b"%d" % (cap or 0))
        budget = sizing.smaller(tenant.prompt_budget, self.config.prompt_budget)
        size = whole = await self._size(exchange, vision=vision)
        while budget is not None and size.prompt > budget:
            self._trim(exchange, size.prompt, budget, allowed=tenant.trim_history)
            size = await self._size(exchange, vision=vision)
        if size.prompt < whole.prompt:
            exchange.saved += whole.prompt - size.prompt
            exchange.say(b"x-penstock-tokens-saved", b"%d" % exchange.saved)
        return size

    def query(self, exchange: Exchange, size: Size) -> Query:
        """What a balancing policy may look at."""
        header = exchange.call.headers.get(_SESSION_HEADER)
        session = header.decode("latin-1") if header else exchange.inquiry.session
        prefix: list[bytes] = []
        if self.config.balance == "prefix" and len(self.dispatcher.members) > 1:
            prefix = self._blocks(exchange)
        return Query(tokens=size.prompt + size.output, prefix=prefix, session=session)

    # ------------------------------------------------------------ sizes

    async def _size(self, exchange: Exchange, *, vision: bool) -> Size:
        inquiry, served = exchange.inquiry, self.served
        exchange.prepared = None
        if served is None or vision or inquiry.operation not in LOCAL_OPERATIONS:
            prompt = sizing.estimated_tokens(inquiry)
            if inquiry.operation not in OUTPUT_LIMITS:  # vectors and scores
                return Size(prompt, 0, 1)
            choices = inquiry.choices
            return Size(prompt, choices * self._output(prompt, inquiry.max_tokens), choices)
        _, prepare, _ = LOCAL_OPERATIONS[inquiry.operation]
        body = inquiry.encode()
        prepared: Any = await served.apart(len(body), lambda: prepare(served, body))
        exchange.prepared = prepared
        output = 0
        if isinstance(prepared, Prepared):
            limit = prepared.params.max_tokens or sizing.EXPECTED_OUTPUT
            output = min(prepared.output_tokens(served.context), prepared.choices * limit)
        return Size(prepared.prompt_tokens, output, prepared.choices)

    def _output(self, prompt: int, limit: int | None) -> int:
        expected = sizing.EXPECTED_OUTPUT if limit is None else limit
        return expected if self.context is None else min(expected, max(0, self.context - prompt))

    def _trim(self, exchange: Exchange, tokens: int, budget: int, *, allowed: bool) -> None:
        inquiry = exchange.inquiry
        if not allowed or inquiry.operation != "createChatCompletion" or "messages" not in inquiry.fields:
            raise sizing.over_budget(tokens, budget, trims=False, field=inquiry.prompt_field)
        messages = decode(_MESSAGES, bytes(inquiry.fields["messages"]))
        whole = sum(map(len, map(bytes, messages)))

        def count(rest: list[msgspec.Raw]) -> int:
            # In proportion to its bytes: close enough to choose by, and what is left is counted exactly.
            return tokens * sum(map(len, map(bytes, rest))) // max(1, whole)

        rest = sizing.trimmed(messages, budget, count)
        if rest is None:
            raise sizing.over_budget(tokens, budget, trims=True, field=inquiry.prompt_field)
        inquiry.set("messages", rest)

    def _blocks(self, exchange: Exchange) -> list[bytes]:
        prepared: Any = exchange.prepared
        if isinstance(prepared, Prepared) and self.served is not None:
            return token_digests(prepared.prompts[0].ids, self.served.block_size, exchange.salt)
        return byte_digests(exchange.inquiry.prompt_bytes(), exchange.salt)
