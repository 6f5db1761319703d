"""A configuration of LiteLLM's proxy becomes one of ours, and nothing of it is lost in silence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.config import GatewayConfig, load_settings
from penstock.config.litellm import Converted, convert

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
VARIABLES = {
    name: f"value-of-{name}"
    for name in (
        "ANTHROPIC_API_KEY",
        "AZURE_API_KEY_CA",
        "AZURE_API_KEY_EU",
        "GEMINI_API_KEY",
        "GROQ_API_KEY",
        "LITELLM_MASTER_KEY",
        "OPENAI_API_KEY",
        "OPENAI_ORG",
    )
} | {"THIRD_SERVER": "http://10.0.0.3:8000/v1"}


def source(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((Path(__file__).parent / name).read_text())
    return content


def converted(name: str, folder: Path) -> tuple[GatewayConfig, Converted]:
    done = convert(source(name), name)
    path = folder / "penstock.yaml"
    path.write_text(done.text)
    return load_settings(config=path, environ=VARIABLES).gateway, done


def noted(done: Converted, *parts: str) -> bool:
    return any(all(part in note for part in parts) for note in done.notes)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_the_result_is_a_right_configuration(file: Path, tmp_path: Path) -> None:
    gateway, _ = converted(file.name, tmp_path)
    assert gateway.models


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_value_shows_in_the_result_or_in_a_note(file: Path) -> None:
    content = source(file.name)
    done = convert(content, file.name)
    for path in leaves(content):
        if path[0] == "model_list" and noted(done, f"model_list[{path[1]}]", "left out"):
            continue  # the deployment is noted as a whole
        without = copy.deepcopy(content)
        parent: Any = without
        for key in path[:-1]:
            parent = parent[key]
        value = parent.pop(path[-1])
        as_written = str(value).removeprefix("os.environ/").rstrip("/") in done.text
        as_a_whole = any(noted(done, f"{key}: ") for key in path[:-1])
        changes = convert(without, file.name).text != done.text
        assert changes or as_written or as_a_whole, path


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_what_is_noted_stands_in_the_file_too_and_holds_no_secret(file: Path) -> None:
    done = convert(source(file.name), file.name)
    comments = " ".join(line.lstrip("# ") for line in done.text.splitlines() if line.startswith("#"))
    for note in done.notes:
        assert note in comments
    passwords = [f"{of}password" for of in ("db", "url", "cache", "redis", "header")]
    for secret in (*passwords, "sk-in-plain-text", "sk-environment", "HOME"):
        assert secret not in comments


def test_deployments_of_one_name_are_backends_of_one_model(tmp_path: Path) -> None:
    gateway, done = converted("providers.yaml", tmp_path)
    model = gateway.model("gpt-4o")
    assert model is not None
    europe, canada = model.backends
    # Azure's v1 API: the deployment is the model, and the key goes into a header of its own.
    assert europe.kind == canada.kind == "openai_compatible"
    assert (europe.url, europe.model) == ("https://example-eu.openai.azure.com/openai", "gpt-4o-eu")
    assert europe.headers == {"api-key": "value-of-AZURE_API_KEY_EU"}
    assert (europe.vision, canada.vision, canada.weight) == (True, False, 2.0)
    assert europe.timeouts.first_byte == 120.0
    assert noted(done, "rpm", "tenant's")


def test_prices_are_for_a_million_tokens_to_the_last_digit(tmp_path: Path) -> None:
    gateway, done = converted("providers.yaml", tmp_path)
    model = gateway.model("gpt-4o-mini")
    assert model is not None
    assert (model.price.input, model.price.cached_input, model.price.output) == (0.15, 0.075, 0.6)
    assert noted(done, "prices", "gpt-4o, claude, llama, gemini")


def test_providers_have_their_kinds_addresses_and_keys(tmp_path: Path) -> None:
    gateway, done = converted("providers.yaml", tmp_path)
    found = {model.name: model.backends[0] for model in gateway.models}
    assert (found["gpt-4o-mini"].kind, found["gpt-4o-mini"].api_key) == ("openai", "value-of-OPENAI_API_KEY")
    assert found["gpt-4o-mini"].headers == {"OpenAI-Organization": "value-of-OPENAI_ORG"}
    assert (found["claude"].kind, found["claude"].model) == ("anthropic", "claude-sonnet-4-5")
    assert found["llama"].url == "https://api.groq.com/openai"
    assert found["gemini"].url == "https://generativelanguage.googleapis.com"
    assert found["gemini"].options == {"prefix": "/v1beta/openai"}
    assert "nova" not in found
    assert noted(done, "'bedrock' has no equivalent")


def test_fallbacks_are_kept_unless_they_go_in_a_circle(tmp_path: Path) -> None:
    gateway, done = converted("providers.yaml", tmp_path)
    chains = {model.name: model.fallbacks for model in gateway.models}
    assert chains == {
        "gpt-4o": ("claude", "llama"),
        "gpt-4o-mini": ("llama",),
        "claude": ("llama",),
        "llama": (),
        "gemini": ("llama",),
    }
    assert noted(done, "claude to gpt-4o is left out: it would go in a circle")


def test_retries_keys_and_caps_have_their_places(tmp_path: Path) -> None:
    gateway, _ = converted("providers.yaml", tmp_path)
    assert gateway.retry.attempts == 4
    assert load_settings(config=tmp_path / "penstock.yaml", environ=VARIABLES).api_keys == (
        "value-of-LITELLM_MASTER_KEY",
    )
    claude = gateway.model("claude")
    assert claude is not None
    assert claude.max_tokens == 4096


def test_ones_own_servers_keep_their_addresses(tmp_path: Path) -> None:
    gateway, done = converted("own_servers.yaml", tmp_path)
    llama = gateway.model("gpt-3.5-turbo")  # by its alias
    assert llama is not None
    assert llama.name == "llama-8b"
    assert [(backend.kind, backend.url) for backend in llama.backends] == [
        ("vllm", "http://10.0.0.1:8000"),
        ("vllm", "http://10.0.0.2:8000"),
        ("openai_compatible", "http://10.0.0.3:8000"),
    ]
    first, second, third = llama.backends
    assert (first.max_concurrent, first.timeouts.first_byte) == (64, 300.0)
    assert (second.api_key, second.timeouts.first_byte) == ("sk-in-plain-text", 30.0)
    assert third.headers == {"X-Team": "research"}
    assert llama.balance == "least_tokens"
    assert noted(done, "api_key", "plain text")
    others = {model.name: model.backends[0] for model in gateway.models}
    assert others["phi"].url == "http://localhost:11434"
    assert (others["ranker"].kind, others["ranker"].url) == ("triton", "http://triton:8000")
    assert noted(done, "model_group_alias.nowhere", "names a model that there is not")
    assert noted(done, "fallbacks", "'missing'")


def test_odd_things_are_left_out_or_mended_and_noted(tmp_path: Path) -> None:
    gateway, done = converted("odd.yaml", tmp_path)
    assert [model.name for model in gateway.models] == ["twice", "priced", "dollars"]
    twice, priced, dollars = gateway.models
    assert [backend.weight for backend in twice.backends] == [2.0]
    assert priced.price.input == 1.0
    assert dollars.backends[0].api_key == "a${HOME}b"
    assert twice.fallbacks == ("priced",)
    assert noted(done, "another price than the first deployment")
    assert noted(done, "leaky", "holds a name or password")
    assert noted(done, "nowhere", "names no api_base")
    assert noted(done, "weight", "is not a number that makes sense")
    assert noted(done, "general_settings", "is not a section")
    # LiteLLM asks right behind the address.
    other = dollars.backends[1]
    assert (other.url, other.options) == ("https://example.org", {"prefix": "/api/openai"})
    assert (other.api_key, other.headers) == (None, {"X-Good": "yes"})
    assert noted(done, "input_cost_per_token", "too small")
    assert noted(done, "organization", "a header could carry")


def test_an_empty_file_becomes_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text(convert({}, "config.yaml").text)
    assert load_settings(config=path, environ={}).gateway == GatewayConfig()
