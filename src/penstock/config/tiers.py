"""Tiers as they are written, made ready to be served: backends of their own become models, and what
contradicts itself is said before anybody is routed by it."""

from __future__ import annotations

import dataclasses
import itertools

from penstock.config.backends import named
from penstock.config.problems import Problems, nearest
from penstock.config.sections import GatewayConfig, ModelConfig, PriceConfig, TierConfig
from penstock.protocol.estimate import USUAL_OUTPUT, USUAL_PROMPT

AUTO = "auto"  # the name that asks for a model to be chosen
INSIDE = "penstock"  # the tenant of requests that the server makes of itself
CAPABILITIES = ("tools", "json", "vision")
# Fields of a request that are not a tier's to say.
_NOT_SAMPLING = frozenset({"model", "messages", "prompt", "input", "stream", "stream_options", "tools", "n"})


def with_tier_models(gateway: GatewayConfig) -> GatewayConfig:
    """A tier with backends is a model of its own name, which the tier then asks."""
    models, tiers = list(gateway.models), []
    for tier in gateway.tiers:
        if tier.backends and tier.model is None:
            models.append(
                ModelConfig(
                    name=tier.name,
                    backends=named(tier.backends),
                    price=tier.price or PriceConfig(),
                    context=tier.context,
                )
            )
            tier = dataclasses.replace(tier, model=tier.name, backends=())
        tiers.append(tier)
    return dataclasses.replace(gateway, models=tuple(models), tiers=tuple(tiers))


def price_of(tier: TierConfig, gateway: GatewayConfig) -> PriceConfig:
    """What callers are charged on this tier."""
    model = gateway.model(tier.model or "")
    if tier.price is not None:
        return tier.price
    return PriceConfig() if model is None else model.price


def usual_cost(price: PriceConfig) -> float:
    """USD of a request of usual length, to compare prices by."""
    return price.request + (price.input * USUAL_PROMPT + price.output * USUAL_OUTPUT) / 1e6


def check_tiers(gateway: GatewayConfig, problems: Problems) -> None:
    for tier in gateway.tiers:
        _check_tier(tier, gateway, problems)
    if gateway.tiers:
        _check_ladder(gateway, problems)
    if any(tenant.name == INSIDE for tenant in gateway.tenants):
        problems.add(
            f"tenants.{INSIDE}", "is the name of the server's own requests; give the tenant another one"
        )
    names = [tier.name for tier in gateway.tiers]
    monitor = gateway.routing.monitor
    wanted = [("routing.monitor.tiers", name) for name in monitor.tiers]
    wanted += [("routing.monitor.rubric", monitor.rubric)] if monitor.rubric is not None else []
    wanted += [(f"tenants.{tenant.name}.tier", tenant.tier) for tenant in gateway.tenants if tenant.tier]
    for place, name in wanted:
        if name not in names:
            problems.add(place, _no_such_tier(name, names))


def _check_tier(tier: TierConfig, gateway: GatewayConfig, problems: Problems) -> None:
    place = f"tiers.{tier.name}"
    if not tier.name.isascii() or not tier.name.isprintable() or " " in tier.name:
        problems.add(place, "must have a name that a header can carry: ASCII without blanks")
    if tier.model is None and not problems.about(place):
        problems.add(place, "names neither a model nor backends; it takes one of them to answer")
    elif tier.model is not None and tier.backends:
        problems.add(place, "names a model and has backends of its own; keep one of them")
    elif tier.model is not None and gateway.model(tier.model) is None:
        known = [name for model in gateway.models for name in (model.name, *model.aliases)]
        hint = f"; the nearest is {nearest(tier.model, known)!r}" if known else ""
        problems.add(f"{place}.model", f"names the model {tier.model!r}, which there is not{hint}")
    for name in tier.capabilities or ():
        if name not in CAPABILITIES:
            problems.add(f"{place}.capabilities", f"must be among {', '.join(CAPABILITIES)}, got {name!r}")
    for name in sorted(_NOT_SAMPLING.intersection(tier.sampling or {})):
        problems.add(f"{place}.sampling.{name}", "is the request's own to say; a tier cannot set it")
    model = gateway.model(tier.model or "")
    if tier.speculation is not None and model is not None:
        kinds = {backend.kind for backend in model.backends} - {"llamacpp"}
        if kinds:
            problems.add(
                f"{place}.speculation",
                f"is taken with a request by llamacpp only, and its model has {', '.join(sorted(kinds))}; "
                "servers that speculate by themselves need nothing here",
            )


def _check_ladder(gateway: GatewayConfig, problems: Problems) -> None:
    """Each step must cost at least as much as the one below, or there is no reason to stand on that one."""
    costs = [(tier.name, usual_cost(price_of(tier, gateway))) for tier in gateway.tiers if tier.model]
    if len(gateway.tiers) < 2:
        problems.add("tiers", "must be two at least, cheapest first, or there is nothing to choose from")
    elif not any(cost for _, cost in costs) and len(costs) == len(gateway.tiers):
        problems.add(
            "tiers", "have no prices; quality is weighed against cost, so give their models or them a price"
        )
    for (below, less), (above, more) in itertools.pairwise(costs):
        if more < less:
            problems.add(
                f"tiers.{above}",
                f"stands above {below!r} but costs less (${more:.6f} against ${less:.6f} for "
                f"{USUAL_PROMPT} tokens of prompt and {USUAL_OUTPUT} of answer); order tiers by price",
            )


def _no_such_tier(name: str, names: list[str]) -> str:
    hint = f"; the nearest is {nearest(name, names)!r}" if names else "; there are no tiers"
    return f"names the tier {name!r}, which there is not{hint}"
