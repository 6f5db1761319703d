"""The configured tiers as the choice sees them, and what speaks against them before anything is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.aio.choose import Ladder
from penstock.aio.decision import Price
from penstock.aio.predictor import Predictor
from penstock.aio.steps import USUAL_OUTPUT, USUAL_PROMPT, Step, held_out, reference_at
from penstock.config import GatewayConfig, TenantConfig, TierConfig
from penstock.config.tiers import AUTO, price_of
from penstock.gateway.accounts import Price as Charged
from penstock.gateway.accounts.price import DOLLAR


def steps_of(config: GatewayConfig, references: Sequence[str]) -> list[Step]:
    """Cheapest first. Tiers that do not say whom they are like are spread over the measured ladder."""
    steps = []
    for number, tier in enumerate(config.tiers):
        charged = Charged.of(price_of(tier, config))
        price = Price(charged.input, charged.cached_input, charged.output, charged.request)
        reference = tier.like or reference_at(number, len(config.tiers), references)
        steps.append(Step(tier.name, reference, price))
    return steps


def check_ladder(config: GatewayConfig) -> None:
    """Raises ConfigError where requests could not be routed: no predictor, or tiers that it cannot weigh."""
    if config.tiers:
        check_steps(config, load(config.routing.predictor))


def check_steps(config: GatewayConfig, predictor: Predictor) -> None:
    """Raises ConfigError for tiers that this predictor cannot weigh."""
    held_out(steps_of(config, predictor.sample.references), predictor)


def models_of(config: GatewayConfig) -> dict[str, str]:
    """The model that each tier asks, by the name it is configured under."""
    found = {tier.name: config.model(tier.model or "") for tier in config.tiers}
    return {tier: model.name for tier, model in found.items() if model is not None}


def load(which: str) -> Predictor:
    from penstock.aio.predictor import load_predictor  # what it takes is not needed without a ladder

    return load_predictor(which)


def targets_out_of_reach(config: GatewayConfig, steps: Sequence[Step], ladder: Ladder) -> Iterator[str]:
    """Tenants whose target cannot be kept, as held-out queries have it: a sentence for each."""
    for tenant in config.tenants:
        usable = [number for number, tier in enumerate(config.tiers) if _may_use(tenant, tier, config)]
        if tenant.tier is not None:
            usable = [number for number in usable if steps[number].tier == tenant.tier]
        if not usable:
            continue
        open_ = [number for number in usable if _affordable(tenant, steps[number])]
        if not open_:
            yield (
                f"tenants.{tenant.name}.max_cost is ${tenant.max_cost:g}, for which no tier that it may use "
                f"answers a usual request ({USUAL_PROMPT} tokens of prompt, {USUAL_OUTPUT} of answer)."
            )
            continue
        target = config.routing.target if tenant.quality_target is None else tenant.quality_target
        if tenant.tier is not None and tenant.quality_target is None:
            continue  # who is held to a tier, and asks for nothing else, wants what that one gives
        best = ladder.best(open_)
        if best < target:
            names = ", ".join(steps[number].tier for number in open_)
            yield (
                f"tenants.{tenant.name} is to get {target:.0%} of the expert's quality, but with what it "
                f"may use and spend ({names}) at most {best:.0%} can be expected."
            )


def _may_use(tenant: TenantConfig, tier: TierConfig, config: GatewayConfig) -> bool:
    model = config.model(tier.model or "")
    names = {AUTO} if model is None else {AUTO, model.name, *model.aliases}
    return not tenant.models or not names.isdisjoint(tenant.models)


def _affordable(tenant: TenantConfig, step: Step) -> bool:
    usual = step.price.cost(USUAL_PROMPT, 0, USUAL_OUTPUT)
    return tenant.max_cost is None or usual <= tenant.max_cost * DOLLAR
