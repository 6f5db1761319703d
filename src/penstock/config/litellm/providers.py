"""From LiteLLM's `provider/model` to a kind of backend, its address and its key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.config.backends import header_problem
from penstock.config.litellm.notes import Notes, variable_in
from penstock.config.values import UnfitError, parse_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    kind: str
    url: str | None = None  # where it is unless `api_base` says otherwise; None: `api_base` must
    key: str | None = None  # the variable its key is in unless `api_key` says otherwise


def _compatible(url: str | None = None, key: str | None = None) -> Provider:
    return Provider(kind="openai_compatible", url=url, key=key)


_OPENAI = Provider(kind="openai", url="https://api.openai.com/v1", key="OPENAI_API_KEY")
_VLLM = Provider(kind="vllm")
_OLLAMA = _compatible("http://localhost:11434/v1")
_AZURE = "azure"
PROVIDERS = {
    "openai": _OPENAI,
    "text-completion-openai": _OPENAI,
    "anthropic": Provider(kind="anthropic", url="https://api.anthropic.com", key="ANTHROPIC_API_KEY"),
    "hosted_vllm": _VLLM,
    "vllm": _VLLM,
    "triton": Provider(kind="triton"),
    "huggingface": Provider(kind="tgi"),
    "azure": _compatible(key="AZURE_API_KEY"),
    "ollama": _OLLAMA,
    "ollama_chat": _OLLAMA,
    "openai_like": _compatible(),
    "custom_openai": _compatible(),
    "litellm_proxy": _compatible(),
    "lm_studio": _compatible(),
    "llamafile": _compatible(),
    "groq": _compatible("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": _compatible("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": _compatible("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "together_ai": _compatible("https://api.together.xyz/v1", "TOGETHERAI_API_KEY"),
    "fireworks_ai": _compatible("https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY"),
    "openrouter": _compatible("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "xai": _compatible("https://api.x.ai/v1", "XAI_API_KEY"),
    "cerebras": _compatible("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepinfra": _compatible("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "gemini": _compatible("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "nvidia_nim": _compatible("https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY"),
}
# Models that LiteLLM knows without a provider before them.
_KNOWN_NAMES = (
    (re.compile(r"(gpt-|chatgpt-|o\d(-|$)|text-embedding-|ft:gpt-)"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
)
_TRITON_PATH = re.compile(r"/v2/models/.*$")


def backend_of(place: str, params: dict[str, Any], notes: Notes) -> dict[str, Any] | None:
    """Kind, url, model and key of a deployment, taken out of `params`; None where it has no equivalent."""
    model = params.pop("model", None)
    if not isinstance(model, str) or not model.strip():
        notes.add(f"{place}.model", "is missing, so the deployment is left out")
        return None
    base = params.pop("api_base", None) or params.pop("base_url", None)
    stated = params.pop("custom_llm_provider", None)
    name, model = _split(model, stated, has_base=base is not None)
    provider = PROVIDERS.get(name)
    if provider is None or "*" in model:
        what = f"the provider {name!r}" if provider is None else "a wildcard model"
        notes.add(f"{place}.model", f"{what} has no equivalent, so the deployment is left out")
        return None
    url = provider.url if base is None else _url(f"{place}.api_base", base, notes)
    if url is None:
        if base is None:
            notes.add(place, f"names no api_base, which {name!r} needs, so the deployment is left out")
        return None
    kind = "openai_compatible" if provider is _OPENAI and base is not None else provider.kind
    backend: dict[str, Any] = {kind: url, "model": notes.text(model)}
    _adapt(name, backend, kind, params, place, notes)
    _add_key(name, backend, kind, provider, params, place, notes)
    return backend


def _split(model: str, stated: Any, *, has_base: bool) -> tuple[str, str]:
    provider, slash, rest = model.partition("/")
    if isinstance(stated, str):
        return stated, rest if slash and provider == stated else model
    if slash and (provider in PROVIDERS or not has_base):
        return provider, rest
    for pattern, known in _KNOWN_NAMES:
        if pattern.match(model):
            return known, model
    return ("openai_like" if has_base else model), model


def _url(place: str, base: Any, notes: Notes) -> str | None:
    """The address, or what names the variable that holds it."""
    if variable_in(base) is not None:
        return notes.text(base)
    try:
        return parse_url(base)
    except UnfitError as error:
        notes.add(place, f"{error}; the deployment is left out")
    except ValueError:
        notes.add(place, "is not an address; the deployment is left out")
    return None


def _adapt(
    name: str, backend: dict[str, Any], kind: str, params: dict[str, Any], place: str, notes: Notes
) -> None:
    """What differs in an address between LiteLLM's way to write it and ours."""
    url = backend[kind]
    if name == _AZURE:
        if "/openai" not in url:
            backend[kind] = f"{url}/openai/v1"
        version = params.pop("api_version", None)
        if version is not None:
            notes.add(
                f"{place}.api_version", "is not needed: Azure's v1 API is used, by the deployment's name"
            )
    elif name in ("ollama", "ollama_chat") and not url.endswith("/v1"):
        backend[kind] = f"{url}/v1"
    elif name == "triton":
        backend[kind] = _TRITON_PATH.sub("", url)
    elif kind == "openai_compatible" and not url.startswith("$"):
        # LiteLLM puts endpoints right behind the address; here they are under /v1 unless told otherwise.
        path = urlsplit(url).path
        if path and not path.endswith("/v1"):
            backend |= {kind: url.removesuffix(path), "options": {"prefix": path}}
    organization = params.get("organization")
    if isinstance(organization, str) and header_problem("OpenAI-Organization", organization) is None:
        backend.setdefault("headers", {})["OpenAI-Organization"] = notes.text(params.pop("organization"))


def _add_key(
    name: str,
    backend: dict[str, Any],
    kind: str,
    provider: Provider,
    params: dict[str, Any],
    place: str,
    notes: Notes,
) -> None:
    given = params.pop("api_key", None)
    key = None if given is None else notes.secret(f"{place}.api_key", given)
    if (
        key is None and provider.key and not (provider is _OPENAI and kind != "openai")
    ):  # one's own server may want none
        key = notes.variable(provider.key)
    if key is None:
        return
    if name == _AZURE:
        backend.setdefault("headers", {})["api-key"] = key
    else:
        backend["api_key"] = key
