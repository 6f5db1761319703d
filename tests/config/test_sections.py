"""What the sections of a file mean."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from penstock.config import (
    BackendConfig,
    DiscoverConfig,
    GatewayConfig,
    MetricsConfig,
    ModelConfig,
    ObjectivesConfig,
    PriceConfig,
    Settings,
    SloConfig,
    TenantConfig,
    engine_settings,
    examine,
    load_settings,
    models_of,
)
from penstock.config.checks import warnings_of
from penstock.config.sections import BALANCE_POLICIES, SERVICE_CLASSES

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, **environ: str) -> GatewayConfig:
    Path("penstock.yaml").write_text(text, encoding="utf-8")
    return load_settings(environ=environ).gateway


def one_backend(text: str, **environ: str) -> BackendConfig:
    gateway = read(f"models: {{chat: {{backends: [{text}]}}}}", **environ)
    return gateway.models[0].backends[0]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_documented_examples_are_right_and_without_warnings(example: Path) -> None:
    keys = {"DOOR_KEY": "a", "VLLM_KEY": "b", "ANTHROPIC_API_KEY": "c"}
    examined = examine(config=example, environ=keys)
    assert examined.problems == ()
    assert examined.settings is not None
    assert list(warnings_of(examined.settings)) == []


def test_a_model_has_backends_prices_limits_and_objectives() -> None:
    gateway = read(
        """
        models:
          chat:
            aliases: [small]
            backends:
              - engine: default
                replicas: 2
                max-num-seqs: 16
                chat_template: mine.jinja
              - vllm: http://10.0.0.5:8000/v1/
                model: org/name
                api_key: ${KEY}
                headers: {X-Team: a}
                vision: on
                weight: 2
                timeouts: {idle: 500ms}
            balance: least-tokens
            price: {input: 0.15, cached_input: 0.075, output: 0.60, request: 1e-3}
            fallbacks: big
            max_tokens: 4k
            prompt_budget: 8K
            slo: {ttft: 500ms, tpot: 50ms}
          big:
            backends: [{kind: sglang, discover: {dns: "sglang.svc:30000", every: 5s}}]
        """,
        KEY="secret",
    )
    chat, big = gateway.models
    engine, server = chat.backends
    assert (engine.kind, engine.engine, engine.replicas) == ("engine", "default", 2)
    assert engine.engine_options == {"max_running": 16, "chat_template": "mine.jinja"}
    assert (server.kind, server.url, server.model) == ("vllm", "http://10.0.0.5:8000", "org/name")
    assert (server.api_key, server.headers, server.vision, server.weight) == (
        "secret",
        {"X-Team": "a"},
        True,
        2,
    )
    assert (server.timeouts.idle, server.timeouts.connect) == (0.5, 5.0)
    assert (chat.aliases, chat.fallbacks, chat.balance) == (("small",), ("big",), "least_tokens")
    assert chat.price == PriceConfig(input=0.15, cached_input=0.075, output=0.6, request=0.001)
    assert (chat.max_tokens, chat.prompt_budget) == (4000, 8192)
    assert chat.slo == SloConfig(ttft=0.5, tpot=0.05)
    assert big.backends[0].discover == DiscoverConfig(dns="sglang.svc:30000", every=5.0)
    assert gateway.model("small") is chat
    assert gateway.model("none") is None


def test_a_tenant_has_limits_and_a_class() -> None:
    gateway = read(
        "tenants:\n"
        "  acme: {class: interactive, weight: 2, requests_per_minute: 60, tokens_per_minute: 100k,\n"
        "         concurrent: 8, monthly_budget: 99.5, max_tokens: 1024, prompt_budget: 4k,\n"
        "         trim_history: true}\n"
        "  other:\n"
    )
    acme, other = gateway.tenants
    assert acme == TenantConfig(
        name="acme",
        service_class="interactive",
        weight=2.0,
        requests_per_minute=60,
        tokens_per_minute=100_000,
        concurrent=8,
        monthly_budget=99.5,
        max_tokens=1024,
        prompt_budget=4000,
        trim_history=True,
    )
    assert other == TenantConfig(name="other")
    assert gateway.tenant("acme") is acme


def test_sections_that_are_left_out_or_empty_have_their_defaults() -> None:
    assert read("queue:\nretry: {}\nport: 1\n") == GatewayConfig()
    gateway = read("queue: {wait: 5}\nretry: {attempts: 1}\nhealth: {slow_start: 0}\n")
    assert (gateway.queue.wait, gateway.queue.max_requests) == (5.0, 1000)
    assert (gateway.retry.attempts, gateway.health.slow_start) == (1, 0.0)


@pytest.mark.parametrize(
    ("kind", "url"), [("openai", "https://api.openai.com"), ("anthropic", "https://api.anthropic.com")]
)
def test_a_provider_needs_no_address(kind: str, url: str) -> None:
    for text in (f"{{{kind}: , api_key: k}}", f"{{kind: {kind}, api_key: k}}"):
        backend = one_backend(text)
        assert (backend.kind, backend.url, backend.api_key) == (kind, url, "k")


def test_backends_have_names_of_their_own() -> None:
    gateway = read(
        "models: {m: {backends: [{engine: default}, {engine: default}, {engine: a/b.gguf}, "
        "{vllm: 'http://x:1'}, {sglang: 'http://x:1', model: n}, {tgi: 'http://y', name: mine}, "
        "{kind: vllm, discover: {register: true}}]}}"
    )
    names = [backend.name for backend in gateway.models[0].backends]
    assert names == ["engine", "engine-2", "b.gguf", "x:1", "x:1-2", "mine", "vllm"]


def test_secrets_are_in_no_representation() -> None:
    Path("penstock.yaml").write_text(
        "models: {m: {backends: [{vllm: 'http://x', api_key: topsecret, headers: {X-Key: alsosecret}}]}}"
    )
    shown = repr(load_settings(environ={}))
    assert "topsecret" not in shown
    assert "alsosecret" not in shown


def test_variables_are_filled_in_wherever_a_text_stands() -> None:
    text = "port: ${P:-8001}\nmodels: {m: {max_tokens: '${N}', backends: [{vllm: 'http://${HOST}:${P:-1}/v1'}]}}\n"
    Path("penstock.yaml").write_text(text)
    settings = load_settings(environ={"N": "4k", "HOST": "h"})
    (model,) = settings.gateway.models
    assert (settings.port, model.max_tokens, model.backends[0].url) == (8001, 4000, "http://h:1")
    assert one_backend("{vllm: 'http://x', api_key: '${K:-}'}").api_key is None
    assert one_backend("{vllm: 'http://x', api_key: '$${K}'}").api_key == "${K}"


def test_anchors_and_merged_sections_work() -> None:
    gateway = read(
        """
        tenants:
          a: &usual {class: batch, weight: 2}
          b: {<<: *usual, weight: 3}
          c: *usual
        """
    )
    assert [(tenant.service_class, tenant.weight) for tenant in gateway.tenants] == [
        ("batch", 2.0),
        ("batch", 3.0),
        ("batch", 2.0),
    ]


def test_names_are_taken_as_they_are_written() -> None:
    gateway = read("models: {on: {backends: [{engine: default}]}, 1.10: {backends: [{engine: default}]}}")
    assert [model.name for model in gateway.models] == ["on", "1.10"]


def test_without_models_the_flat_options_mean_one_model_with_one_engine() -> None:
    (model,) = models_of(Settings(model="a.gguf", served_model_names=("x", "y")))
    engine = BackendConfig(name="engine", kind="engine", engine="a.gguf")
    assert model == ModelConfig(name="x", aliases=("y",), backends=(engine,))
    assert models_of(Settings())[0].name == ""


def test_with_models_those_are_served() -> None:
    gateway = read("models: {m: {backends: [{engine: default}]}}")
    assert models_of(Settings(gateway=gateway)) == gateway.models


def test_a_model_named_on_the_spot_is_served_instead_of_the_files() -> None:
    Path("penstock.yaml").write_text("models: {m: {backends: [{engine: default}]}}\ntenants: {a: {}}\n")
    for settings in (
        load_settings({"model": ("MODEL", "b.gguf")}, environ={}),
        load_settings(environ={"PENSTOCK_MODEL": "b.gguf"}),
    ):
        (model,) = models_of(settings)
        assert model.backends[0].engine == "b.gguf"
        assert settings.gateway.tenants == (TenantConfig(name="a"),)


def test_an_engines_own_options_win_over_the_flat_ones() -> None:
    Path("penstock.yaml").write_text(
        "dtype: bfloat16\nmax_running: 4\n"
        "models: {m: {backends: [{engine: x.gguf, max_running: 8}, {kind: engine}]}}"
    )
    settings = load_settings(environ={})
    first, second = settings.gateway.models[0].backends
    config = engine_settings(settings, first).engine_config("x.gguf")
    assert (config.precision, config.max_running) == ("bfloat16", 8)
    assert engine_settings(settings, first).model == "x.gguf"
    assert engine_settings(settings, second).max_running == 4
    assert engine_settings(settings, second).model == "default"


def test_what_operators_see_has_sections_of_its_own() -> None:
    gateway = read(
        "slo: {ttft: 300ms, ttft_target: 0.95}\nmetrics: {vllm_names: off, label_values: 10}\n"
        "tracing: {endpoint: 'http://127.0.0.1:4318', sample: 0.1, headers: {x-key: secret-of-mine}}\n"
        "console: {enabled: false}\nslow: {e2e: 30s}\n"
    )
    assert gateway.slo == ObjectivesConfig(ttft=0.3, ttft_target=0.95)
    assert gateway.metrics == MetricsConfig(vllm_names=False, label_values=10)
    assert (gateway.tracing.endpoint, gateway.tracing.sample) == ("http://127.0.0.1:4318", 0.1)
    assert not gateway.console.enabled
    assert gateway.slow.e2e == 30
    assert "secret-of-mine" not in repr(gateway)


def test_policies_and_classes_are_those_of_the_gateway() -> None:
    from penstock.gateway.balance import POLICIES
    from penstock.gateway.queue import ServiceClass

    assert set(BALANCE_POLICIES) == set(POLICIES)
    assert get_args(ServiceClass) == SERVICE_CLASSES


def test_what_is_allowed_but_hardly_meant_is_a_warning() -> None:
    gateway = read(
        "models: {m: {backends: [{vllm: 'http://x/v1beta/openai'}],\n"
        "  price: {input: 1, cached_input: 2}}, free: {backends: [{engine: default}]}}\n"
        "tenants: {a: {monthly_budget: 1}, b: {monthly_budget: 1, models: [m]}}\n"
    )
    warnings = list(warnings_of(Settings(gateway=gateway)))
    assert len(warnings) == 3
    for part in (
        "http://x/v1beta/openai/v1/",
        "cached prompt tokens",
        "a monthly budget",
    ):
        assert any(part in warning for warning in warnings), part
    assert "tenants.a " in warnings[-1]
    assert warnings[-1].endswith(": free.")
