"""Tiers, routing and the response cache in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import CacheConfig, GatewayConfig, examine, load_settings
from penstock.config.tiers import price_of, usual_cost

MODELS = """
models:
  small: {backends: [vllm: "http://a:1"], price: {input: 1, output: 2}}
  large: {backends: [vllm: "http://b:1"], price: {input: 10, output: 20}}
"""
LADDER = MODELS + "tiers: {low: {model: small}, high: {model: large}}\n"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str) -> GatewayConfig:
    Path("penstock.yaml").write_text(text, encoding="utf-8")
    return load_settings(environ={}).gateway


def problems(text: str) -> list[str]:
    Path("penstock.yaml").write_text(text, encoding="utf-8")
    return [str(problem) for problem in examine(environ={}).problems]


def test_tiers_keep_their_order_and_have_the_price_of_their_model_unless_they_say_otherwise() -> None:
    gateway = read(
        MODELS + "tiers: {low: {model: small}, high: {model: large, price: {input: 30, output: 60}}}"
    )
    assert [tier.name for tier in gateway.tiers] == ["low", "high"]
    assert [price_of(tier, gateway).input for tier in gateway.tiers] == [1, 30]


def test_a_tier_with_backends_is_a_model_of_its_own_name() -> None:
    gateway = read(
        MODELS + 'tiers: {low: {model: small}, top: {backends: [vllm: "http://c:1"], price: {output: 90}}}'
    )
    model = gateway.model("top")
    assert model is not None
    assert model.backends[0].url == "http://c:1"
    assert gateway.tiers[1].model == "top"
    assert usual_cost(price_of(gateway.tiers[1], gateway)) == pytest.approx(90 * 300 / 1e6)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("tiers: {low: {model: smal}, high: {model: large}}", "the nearest is 'small'"),
        ("tiers: {low: {}, high: {model: large}}", "names neither a model nor backends"),
        ("tiers: {high: {model: large}, low: {model: small}}", "order tiers by price"),
        ("tiers: {low: {model: small}}", "must be two at least"),
        ("tiers: {low: {model: small, sampling: {stream: true}}, high: {model: large}}", "request's own"),
        ("tiers: {low: {model: small, capabilities: [magic]}, high: {model: large}}", "got 'magic'"),
        ("tiers: {low: {model: small, speculation: 3}, high: {model: large}}", "llamacpp only"),
        (
            "tenants: {a: {tier: lo}}\ntiers: {low: {model: small}, high: {model: large}}",
            "nearest is 'low'",
        ),
        ("routing: {monitor: {rubric: top}}", "names the tier 'top'"),
        ("routing: {target: 1.5}", "a number from 0 to 1"),
        ("routing: {target: .nan}", "a number from 0 to 1"),
        ("tenants: {penstock: {}}", "name of the server's own requests"),
        ("tenants: {acme: {max_cost: -1}}", "an amount in US dollars"),
        ("cache: sometimes", "must be 'exact', 'semantic', false or a section"),
        ("cache: {ttl: 0}", "a time above 0"),
    ],
)
def test_what_contradicts_itself_is_said_with_its_place(text: str, complaint: str) -> None:
    found = problems(MODELS + text)
    assert any(complaint in each for each in found), found


def test_a_ladder_without_any_price_is_refused() -> None:
    free = MODELS.replace("price: {input: 1, output: 2}", "").replace("price: {input: 10, output: 20}", "")
    found = problems(free.replace(", }", "}") + "tiers: {low: {model: small}, high: {model: large}}")
    assert any("have no prices" in each for each in found), found


def test_the_cache_is_off_until_one_line_turns_it_on() -> None:
    assert not read(MODELS).cache.enabled
    assert read(MODELS + "cache: exact").cache == CacheConfig(exact=True)
    assert read(MODELS + "cache: semantic").cache == CacheConfig(exact=True, semantic=True)
    assert not read(MODELS + "cache: false").cache.enabled
    assert read(MODELS + "cache: {exact: true, ttl: 5m}").cache.ttl == 300.0


def test_a_tenant_may_be_given_the_choice_alone() -> None:
    assert read(LADDER + "tenants: {acme: {models: [auto]}}").tenants[0].models == ("auto",)
