"""`model_list`: entries of one name are the replicas of one model."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from penstock.config.backends import header_problem
from penstock.config.checks import MAX_NAME, RESERVED_NAMES, SMALLEST_PRICE
from penstock.config.litellm.notes import Notes, number, section_of
from penstock.config.litellm.providers import backend_of

_WHY = {
    "rpm": "limits are a tenant's here, not a deployment's: tenants.NAME.requests_per_minute",
    "tpm": "limits are a tenant's here, not a deployment's: tenants.NAME.tokens_per_minute",
    "stream_timeout": "streams have the same timeouts as other requests",
    "temperature": "defaults of sampling are the client's or the server's",
    "mode": "is not needed: what a backend can do is asked of it",
    "base_model": "is not needed",
    "id": "is not needed",
    "extra_headers": "is not a section of headers",
    "headers": "is not a section of headers",
    "organization": "is not a text that a header could carry",
    "drop_params": "fields that a backend does not know are relayed to it",
    "max_retries": "retries are set for all models: retry.attempts",
    "num_retries": "retries are set for all models: retry.attempts",
}
_COSTS = {
    "input_cost_per_token": "input",
    "cache_read_input_token_cost": "cached_input",
    "output_cost_per_token": "output",
}


def read_models(content: Any, notes: Notes) -> dict[str, dict[str, Any]]:
    """The models by name, each as a section of ours."""
    models: dict[str, dict[str, Any]] = {}
    if content is not None and not isinstance(content, list):
        notes.add("model_list", "is not a list")
        content = None
    for index, entry in enumerate(content or []):
        place = f"model_list[{index}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("litellm_params"), dict):
            notes.add(place, "has no litellm_params, so it is left out")
            continue
        name = str(entry.get("model_name") or "")
        if not usable_name(name):
            notes.add(f"{place}.model_name", "is no name that a model can have here, so it is left out")
            continue
        deployment = _deployment(f"{place} ({name})", entry, notes)
        if deployment is not None:
            _add(models.setdefault(name, {"backends": []}), deployment, f"{place} ({name})", notes)
    return models


def usable_name(name: str) -> bool:
    words = name.split()
    return words == [name] and len(name) <= MAX_NAME and name not in RESERVED_NAMES and "*" not in name


def _deployment(place: str, entry: dict[str, Any], notes: Notes) -> dict[str, Any] | None:
    """The backend, with what belongs to its model under `_model`."""
    params = dict(entry["litellm_params"])
    info = section_of(entry, "model_info", notes)
    where = f"{place}.litellm_params"
    backend = backend_of(where, params, notes)
    if backend is None:
        return None
    model: dict[str, Any] = {}
    for source in (params, info):
        _take_costs(source, model, where, notes)
    if (most := _popped(params, "max_tokens", where, notes, 1)) is not None:
        model["max_tokens"] = int(most)
        notes.add(f"{where}.max_tokens", "was what is asked for by default; here it is the most that may be")
    if (weight := _popped(params, "weight", where, notes, 1e-9)) is not None:
        backend["weight"] = weight
    if (most := _popped(params, "max_parallel_requests", where, notes, 1)) is not None:
        backend["max_concurrent"] = int(most)
    if (seconds := _popped(params, "timeout", where, notes, 0.001)) is not None:
        backend["timeouts"] = {"first_byte": seconds}
    for name in ("extra_headers", "headers"):
        if isinstance(params.get(name), dict):
            headers = params.pop(name)
            for header, value in headers.items():
                if (why := header_problem(str(header), str(value))) is not None:
                    notes.add(f"{where}.{name}.{header}", why)
                else:
                    backend.setdefault("headers", {})[str(header)] = notes.text(str(value))
    if info.pop("supports_vision", None) is True:
        backend["vision"] = True
    if (most := _popped(info, "max_input_tokens", where, notes, 1)) is not None:
        model["prompt_budget"] = int(most)
    notes.rest(where, params, _WHY)
    notes.rest(f"{place}.model_info", info, _WHY)
    others = {
        key: value
        for key, value in entry.items()
        if key not in ("model_name", "litellm_params", "model_info")
    }
    notes.rest(place, others, _WHY)
    backend["_model"] = model
    return backend


def _popped(
    section: dict[str, Any], name: str, place: str, notes: Notes, least: float, most: float = 1e9
) -> float | None:
    value = section.pop(name, None)
    return None if value is None else number(f"{place}.{name}", value, notes, least=least, most=most)


def _take_costs(source: dict[str, Any], model: dict[str, Any], place: str, notes: Notes) -> None:
    for theirs, ours in _COSTS.items():
        cost = _popped(source, theirs, place, notes, 0, 1000)
        if cost is None:
            continue
        # 1.5e-07 USD for one token is 0.15 USD for 1M, to the last digit.
        price = float(Decimal(repr(cost)) * 1_000_000)
        if 0 < price < SMALLEST_PRICE:
            notes.add(f"{place}.{theirs}", "is too small to be charged")
        else:
            model.setdefault("price", {})[ours] = price


def _add(model: dict[str, Any], backend: dict[str, Any], place: str, notes: Notes) -> None:
    for key, value in backend.pop("_model").items():
        if model.setdefault(key, value) != value:
            notes.add(place, f"has another {key} than the first deployment of that name, whose is taken")
    for other in model["backends"]:
        if {**other, "weight": 1} == {**backend, "weight": 1}:
            other["weight"] = other.get("weight", 1) + backend.get("weight", 1)
            notes.add(place, "is the same server as another deployment, which got its weight instead")
            return
    model["backends"].append(backend)
