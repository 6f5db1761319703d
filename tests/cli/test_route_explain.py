"""`penstock route explain`: the shipped predictor, asked why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.app import run

Run = Callable[..., tuple[str, str]]

EASY = "What is the capital of France?"
TIERS = """
models:
  small: {backends: [{kind: vllm, url: "http://127.0.0.1:1"}], price: {input: 0.1, output: 0.4}}
  large: {backends: [{kind: vllm, url: "http://127.0.0.1:2"}], price: {input: 5, output: 15}}
tiers:
  quick: {model: small, capabilities: [json], prompt_budget: 1000}
  thorough: {model: large}
routing: {target: 0.9}
"""


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def run_explain(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["route", "explain", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_explain


def test_help_has_examples(explain: Run) -> None:
    assert "penstock route explain --file" in explain("--help")[0].split("Examples")[1]


def test_a_question_is_explained_on_the_example_tiers(explain: Run) -> None:
    out, _ = explain(EASY)
    assert out.startswith("No tiers are configured")
    assert EASY in out
    assert out.count("chosen") == 1
    for said in ("log-odds", "FEATURE", "WORD", "simple", "expert", "± ", "Target 95.0%"):
        assert said in out


def test_what_is_printed_for_people_is_there_for_programs(explain: Run) -> None:
    found = json.loads(explain(EASY, "--json")[0])
    assert found["ask"] == EASY
    assert found["chosen"] in [tier["tier"] for tier in found["tiers"]]
    assert found["tiers"][3]["cost_usd"] == "0.01"
    assert all(0 <= tier["quality"] <= 1 and tier["deviation"] > 0 for tier in found["tiers"])
    assert set(found["features"][0]["log_odds"]) == {"simple", "medium", "complex", "expert"}


def test_the_target_moves_the_choice(explain: Run) -> None:
    def chosen(target: str) -> float:
        found = json.loads(explain("Prove that e is irrational.", "--json", "--target", target)[0])
        (tier,) = [tier for tier in found["tiers"] if tier["tier"] == found["chosen"]]
        return float(tier["cost_usd"])

    assert chosen("0.5") < chosen("1.0")


def test_a_body_is_weighed_on_the_configured_tiers(explain: Run, tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(TIERS)
    body = {
        "model": "auto",
        "messages": [{"role": "user", "content": EASY}],
        "max_tokens": 20,
        "tools": [{"type": "function", "function": {"name": "look_up"}}],
    }
    (tmp_path / "body.json").write_text(json.dumps(body))
    found = json.loads(explain("--file", "body.json", "--json")[0])
    quick, thorough = found["tiers"]
    assert (quick["able"], quick["why_not"]) == (False, "it is not said to be capable of tools")
    assert (found["chosen"], found["target"]) == ("thorough", 0.9)
    assert thorough["output_tokens"] == 20
    assert float(thorough["cost_usd"]) == pytest.approx((20 * 15 + found["prompt_tokens"] * 5) / 1e6)


def test_a_cap_that_nobody_is_within_is_said(explain: Run) -> None:
    out, _ = explain(EASY, "--max-cost", "0.00001")
    assert "such a request is refused" in out
    assert out.count("it costs more than the request may") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give what is asked"),
        (["x", "--file", "y"], "Give what is asked"),
        (["x", "--target", "95"], "--target must be a share from 0 to 1, such as 0.95, got 95.0."),
        (["x", "--max-cost", "nan"], "--max-cost must be an amount of US dollars"),
        (["--file", "missing.json"], "missing.json cannot be read"),
        (["--file", "list.json"], "must hold a request's body"),
        (["--file", "broken.json"], "is not JSON"),
        (["--file", "other.json"], "none of the fields"),
    ],
)
def test_what_is_not_meant_is_refused(explain: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    assert said in explain(*arguments, code=2)[1]
