"""The whole file: models, aliases, fallbacks, retries, keys; and the new one's text."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from penstock.config.litellm.deployments import read_models, usable_name
from penstock.config.litellm.notes import Notes, number, section_of

_STRATEGIES = {
    "simple-shuffle": "round_robin",
    "least-busy": "least_tokens",
    "usage-based-routing": "least_tokens",
    "usage-based-routing-v2": "least_tokens",
    "latency-based-routing": "two_choices",
}
_WHY = {
    "redis_host": "workers of one machine share their state without it",
    "redis_port": "workers of one machine share their state without it",
    "redis_password": "workers of one machine share their state without it",
    "allowed_fails": "when a server is out is decided by section 'health'",
    "cooldown_time": "when a server is out is decided by section 'health'",
    "context_window_fallbacks": "fallbacks answer for servers that cannot, not for prompts that are too long",
    "content_policy_fallbacks": "fallbacks answer for servers that cannot, not for answers that were refused",
    "drop_params": "fields that a backend does not know are relayed to it",
    "cache": "there is no cache of answers; prefixes are cached by engines",
    "cache_params": "there is no cache of answers; prefixes are cached by engines",
    "database_url": "keys and ledger are in state_dir",
    "success_callback": "metrics are at /metrics",
    "failure_callback": "metrics are at /metrics",
    "callbacks": "metrics are at /metrics",
    "set_verbose": "log_level says how much is logged",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    text: str
    notes: tuple[str, ...]  # what was not converted, or not quite


def convert(content: dict[str, Any], name: str) -> Converted:
    """A penstock.yaml that means the same, as far as it can."""
    notes = Notes()
    models = read_models(content.get("model_list"), notes)
    router = section_of(content, "router_settings", notes)
    lite = section_of(content, "litellm_settings", notes)
    general = section_of(content, "general_settings", notes)
    result: dict[str, Any] = {}
    if "master_key" in general:
        key = notes.secret("general_settings.master_key", general.pop("master_key"))
        result |= {"api_keys": [key]} if key is not None else {}
        notes.add(
            "general_settings.master_key", "calls are accepted with it; further keys: `penstock keys create`"
        )
    _add_aliases(models, router.pop("model_group_alias", None), notes)
    _add_fallbacks(models, router, lite, notes)
    _set_balance(models, router.pop("routing_strategy", None), notes)
    _set_timeout(models, router, lite, notes)
    if models:
        result["models"] = models
    for place, section in (("router_settings", router), ("litellm_settings", lite)):
        if (retries := section.pop("num_retries", None)) is not None:
            count = number(f"{place}.num_retries", retries, notes)
            if count is not None:
                result.setdefault("retry", {"attempts": int(count) + 1})
    unpriced = [model for model, section in models.items() if "price" not in section]
    if unpriced:
        notes.add("prices", f"LiteLLM has a list of its own; set `price` for {', '.join(unpriced)}")
    notes.rest("router_settings", router, _WHY)
    notes.rest("litellm_settings", lite, _WHY)
    notes.rest("general_settings", general, _WHY)
    known = ("model_list", "router_settings", "litellm_settings", "general_settings")
    for key in content:
        if key not in known:
            notes.add(str(key), "has no equivalent")
    return Converted(text=_written(result, name, notes), notes=tuple(notes.lines))


def _add_aliases(models: dict[str, dict[str, Any]], aliases: Any, notes: Notes) -> None:
    if aliases is not None and not isinstance(aliases, dict):
        notes.add("router_settings.model_group_alias", "is not a section")
        return
    taken = set(models)
    for alias, target in (aliases or {}).items():
        place = f"router_settings.model_group_alias.{alias}"
        if isinstance(target, dict):
            if target.get("hidden"):
                notes.add(place, "is listed among the models here; LiteLLM hid it")
            target = target.get("model")
        if not isinstance(target, str) or target not in models:
            notes.add(place, "names a model that there is not")
        elif alias in taken or not usable_name(str(alias)):
            notes.add(place, "is the name of a model already, or none that a model can have here")
        else:
            taken.add(alias)
            models[target].setdefault("aliases", []).append(str(alias))


def _add_fallbacks(
    models: dict[str, dict[str, Any]], router: dict[str, Any], lite: dict[str, Any], notes: Notes
) -> None:
    for place, section in (("router_settings", router), ("litellm_settings", lite)):
        for entry in _listed(section.pop("fallbacks", None)):
            if not isinstance(entry, dict):
                notes.add(f"{place}.fallbacks", "has an entry that does not say which model it is for")
                continue
            for source, targets in entry.items():
                for target in _listed(targets):
                    _add_fallback(models, source, target, f"{place}.fallbacks", notes)
    defaults = [
        (place, target)
        for place, section in (("router_settings", router), ("litellm_settings", lite))
        for target in _listed(section.pop("default_fallbacks", None))
    ]
    for place, target in defaults:
        for source in [name for name in models if name not in [each for _, each in defaults]]:
            _add_fallback(models, source, target, f"{place}.default_fallbacks", notes)


def _add_fallback(
    models: dict[str, dict[str, Any]], source: Any, target: Any, place: str, notes: Notes
) -> None:
    names = {name: name for name in models} | {
        alias: name for name, section in models.items() for alias in section.get("aliases", ())
    }
    unknown = [name for name in (source, target) if not isinstance(name, str) or name not in names]
    if unknown:
        notes.add(place, f"names the model {str(unknown[0])!r}, which there is not here")
        return
    source, target = names[source], names[target]
    if _reaches(models, target, source):
        notes.add(place, f"{source} to {target} is left out: it would go in a circle")
    elif target not in (chain := models[source].setdefault("fallbacks", [])):
        chain.append(target)


def _reaches(models: dict[str, dict[str, Any]], start: str, goal: str) -> bool:
    seen, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            todo.extend(models[name].get("fallbacks", ()))
    return False


def _set_balance(models: dict[str, dict[str, Any]], strategy: Any, notes: Notes) -> None:
    if strategy is None:
        return
    balance = _STRATEGIES.get(str(strategy))
    if balance is None:
        notes.add("router_settings.routing_strategy", "has no equivalent; the default is taken")
        return
    if strategy == "latency-based-routing":
        notes.add("router_settings.routing_strategy", "latency is not looked at; two_choices is the nearest")
    for section in models.values():
        section["balance"] = balance


def _set_timeout(
    models: dict[str, dict[str, Any]], router: dict[str, Any], lite: dict[str, Any], notes: Notes
) -> None:
    """The router's, else the library's, for backends that have none of their own."""
    for place, section, key in (
        ("router_settings", router, "timeout"),
        ("litellm_settings", lite, "request_timeout"),
    ):
        value = section.pop(key, None)
        seconds = None if value is None else number(f"{place}.{key}", value, notes, least=0.001)
        if seconds is not None:
            for model in models.values():
                for backend in model["backends"]:
                    backend.setdefault("timeouts", {"first_byte": seconds})


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _written(result: dict[str, Any], name: str, notes: Notes) -> str:
    import yaml

    lines = [f"# Made from LiteLLM's {' '.join(name.split())} by `penstock config from-litellm`."]
    if notes.variables:
        lines.append(f"# Environment variables it needs: {', '.join(notes.variables)}.")
    lines.append(
        "# LiteLLM listens on 0.0.0.0:4000 unless told otherwise; set host and port if clients expect that."
    )
    if notes.lines:
        lines += ["#", "# Not converted, or not quite:"]
        for note in notes.lines:
            lines += textwrap.wrap(
                note, 106, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False
            )
    body = yaml.safe_dump(result, sort_keys=False, allow_unicode=True, width=106) if result else ""
    return "\n".join(lines) + "\n\n" + body
