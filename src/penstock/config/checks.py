"""What sections must have to do with each other, and what is allowed but hardly meant."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Iterator

from penstock.config.models import engine_settings
from penstock.config.problems import Problems, nearest
from penstock.config.sections import GatewayConfig, ModelConfig, PriceConfig
from penstock.config.settings import Settings
from penstock.errors import ConfigError

RESERVED_NAMES = frozenset({"auto"})  # asks for the model to be chosen
MAX_NAME = 128
_NAME = re.compile(r"[^\s\x00-\x20\x7f]+")
_VERSION = re.compile(r"/v\d[^/]*(/|$)")
SMALLEST_PRICE = 1e-6  # USD for 1M tokens: a millionth of a millionth of a dollar for one


def check_sections(gateway: GatewayConfig, problems: Problems) -> None:
    _check_names(gateway, problems)
    _check_fallbacks(gateway, problems)
    for model in gateway.models:
        _check_model(model, problems)
    for tenant in gateway.tenants:
        _check_word(f"tenants.{tenant.name}", tenant.name, problems)
        for name in tenant.models if gateway.models else ():
            if gateway.model(name) is None and name not in RESERVED_NAMES:
                problems.add(f"tenants.{tenant.name}.models", _unknown(name, gateway))


def check_engines(settings: Settings, problems: Problems) -> None:
    """The options of each engine, together with those that all engines share."""
    for model in settings.gateway.models:
        for index, backend in enumerate(model.backends):
            if backend.kind != "engine":
                continue
            try:
                engine_settings(settings, backend)
            except ConfigError as error:
                option, _, predicate = str(error).rstrip(".").partition(" ")
                problems.add(f"models.{model.name}.backends[{index}].{option}", predicate)


def warnings_of(settings: Settings) -> Iterator[str]:
    gateway = settings.gateway
    for model in gateway.models:
        for backend in model.backends:
            if _VERSION.search(backend.url or "") and "prefix" not in (backend.options or {}):
                yield (
                    f"models.{model.name} has the backend {backend.name}, whose requests will go to "
                    f"{backend.url}/v1/...; for another path than /v1 write 'options: {{prefix: /...}}'."
                )
        price = model.price
        if price.cached_input is not None and price.cached_input > price.input:
            yield f"models.{model.name}.price charges more for cached prompt tokens than for others."
    for tenant in gateway.tenants:
        usable = [model for model in gateway.models if not tenant.models or _may(tenant.models, model)]
        free = [model.name for model in usable if model.price == PriceConfig()]
        if tenant.monthly_budget is not None and free:
            names = ", ".join(free)
            yield f"tenants.{tenant.name} has a monthly budget, but no price is set for: {names}."


def _check_names(gateway: GatewayConfig, problems: Problems) -> None:
    taken: dict[str, str] = {}
    for model in gateway.models:
        place = f"models.{model.name}"
        for name, where in ((model.name, place), *((alias, f"{place}.aliases") for alias in model.aliases)):
            _check_word(where, name, problems)
            if name in RESERVED_NAMES:
                problems.add(where, f"takes the name {name!r}, which asks for a model to be chosen")
            elif name in taken:
                problems.add(where, f"takes the name {name!r}, which {taken[name]} has already")
            taken.setdefault(name, where)


def _check_word(place: str, name: str, problems: Problems) -> None:
    if not name or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        problems.add(place, f"must be a name of 1 to {MAX_NAME} characters without blanks")


def _check_model(model: ModelConfig, problems: Problems) -> None:
    place = f"models.{model.name}"
    if not model.backends and not problems.about(f"{place}.backends"):
        problems.add(place, "has no backends; name at least one, such as 'engine: default'")
    servers: list[tuple[object, ...]] = []
    names: dict[str, int] = {}
    for index, backend in enumerate(model.backends):
        where = f"{place}.backends[{index}]"
        # With another key it is another share of that server.
        server = (backend.url, backend.model, backend.api_key, backend.headers)
        if backend.url is not None and server in servers:
            same = f"backends[{servers.index(server)}]"
            problems.add(where, f"is the same server as {same}; give that one more weight")
        servers.append(server)
        if not backend.name.isprintable():  # it is shown in logs, metrics and terminals
            problems.add(f"{where}.name", "must be a name of printable characters")
        if backend.name in names:
            problems.add(f"{where}.name", f"is the name of backends[{names[backend.name]}] already")
        names.setdefault(backend.name, index)
    for name in ("input", "cached_input", "output"):
        price = getattr(model.price, name)
        if price is not None and 0 < price < SMALLEST_PRICE:
            least = f"{SMALLEST_PRICE:.6f}"
            problems.add(
                f"{place}.price.{name}", f"must be 0 or at least {least} USD for 1M tokens, got {price:g}"
            )


def _check_fallbacks(gateway: GatewayConfig, problems: Problems) -> None:
    chains: dict[str, list[str]] = {}
    for model in gateway.models:
        place = f"models.{model.name}.fallbacks"
        for name in model.fallbacks:
            other = gateway.model(name)
            if other is None:
                problems.add(place, _unknown(name, gateway))
            elif other is model:
                problems.add(place, f"names {name!r}, which is the model itself")
            else:
                chains.setdefault(model.name, []).append(other.name)
    circle = _circle(chains)
    if circle:
        problems.add(f"models.{circle[0]}.fallbacks", f"goes in a circle: {' -> '.join(circle)}")


def _circle(chains: dict[str, list[str]]) -> list[str]:
    """A way from a model back to itself, if there is one."""
    try:
        graphlib.TopologicalSorter(chains).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))  # it tells who comes before whom
    return []


def _unknown(name: str, gateway: GatewayConfig) -> str:
    known = [known for model in gateway.models for known in (model.name, *model.aliases)]
    return f"names the model {name!r}, which there is not; the nearest is {nearest(name, known)!r}"


def _may(allowed: tuple[str, ...], model: ModelConfig) -> bool:
    return any(name in allowed for name in (model.name, *model.aliases))
