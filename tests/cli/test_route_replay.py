"""`penstock route replay`: what if, from the log of a server or from requests alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.aio.decision import Candidate, Decision, Price
from penstock.cli.app import run
from penstock.gateway.store.decisions import DecisionLog

Run = Callable[..., tuple[str, str]]
LADDER = (("simple", "Phi-3-mini", 0.5, 10**8), ("expert", "gemini-1.5-pro", 0.9, 10**10))


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def run_replay(*arguments: str, code: int = 0) -> tuple[str, str]:
        assert run(["route", "replay", *arguments]) == code
        output = capsys.readouterr()
        return output.out, output.err

    return run_replay


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four hard requests that the expert has answered."""
    path = tmp_path / "decisions.jsonl"
    decisions = DecisionLog(path)
    for number in range(4):
        decisions.add(
            Decision(
                request=f"r{number}",
                at=0.0,
                tenant="acme",
                region="general",
                model_version="1",
                target=1.0,
                candidates=[
                    Candidate(
                        tier=tier, reference=like, quality=quality, price=Price(request=cost), cost=cost
                    )
                    for tier, like, quality, cost in LADDER
                ],
                chosen="expert",
                answered="expert",
                outcome="ok",
                prompt_tokens=20,
                output_tokens=100,
                cost=10**10,
            )
        )
    assert decisions.flush()
    return path


def test_help_has_examples(replay: Run) -> None:
    assert "penstock route replay decisions.jsonl --target" in replay("--help")[0].split("Examples")[1]


def test_a_lower_target_would_have_been_cheaper(replay: Run, log: Path) -> None:
    found = json.loads(replay(str(log), "--target", "0.1", "--json")[0])
    assert found["before"]["cost_usd"] == "0.04"
    assert found["after"]["cost_usd"] == "0.0004"
    assert found["after"]["tiers"] == {"simple": {"requests": 4, "cost_usd": "0.0004"}}
    assert (found["to_cheaper"], found["to_dearer"]) == (4, 0)
    assert found["after"]["predicted_share_of_expert"] == pytest.approx(5 / 9)
    out, err = replay(str(log), "--target", "0.1")
    assert "$0.0396 less (-99.0%) for answers; 4 requests to cheaper tiers, 0 to dearer ones." in out
    assert err == ""


def test_damaged_lines_are_named_and_the_rest_goes_on(replay: Run, log: Path) -> None:
    lines = log.read_bytes().splitlines()
    lines[1] = lines[1][:-20]
    lines[2] = b'{"candidates": []}'
    lines[3:3] = [b"", b"[]", b"\xff", b'{"messages": ' + b"[" * 100_000]
    log.write_bytes(b"\n".join(lines))
    out, err = replay(str(log), "--target", "0.1")
    named = [line.split(",")[1].split(":")[0] for line in err.splitlines()[:-1]]
    assert named == [" line 2", " line 3", " line 5", " line 6", " line 7"]
    assert err.splitlines()[-1] == "5 damaged lines were left out."
    assert "2 requests" in out
    assert len(json.loads(replay(str(log), "--json")[0])["damaged"]) == 5


def test_requests_that_were_never_routed(replay: Run, tmp_path: Path) -> None:
    requests = [
        {"text": "What is 2 + 2?"},
        {"messages": [{"role": "user", "content": "Why is the sky blue?"}]},
        {"input": "Translate 'tree' into French."},
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, requests)))
    found = json.loads(replay("requests.jsonl", "--json", "--tiers", "simple,expert")[0])
    assert found["before"] is None
    assert found["after"]["requests"] == 3
    assert found["after"]["always_expert_usd"] == "0.03"
    assert set(found["after"]["tiers"]) <= {"simple", "expert"}


def test_another_predictor_needs_texts(replay: Run, log: Path) -> None:
    _, err = replay(str(log), "--predictor", "light", code=2)
    assert "4 requests were left out: its text was not kept" in err
    assert "can be routed again" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "The log missing.jsonl cannot be read"),
        (["decisions.jsonl", "--target", "2"], "--target must be a share"),
        (["decisions.jsonl", "--tiers", "nobody"], "none of the tiers nobody is on its ladder"),
    ],
)
def test_what_is_not_meant_is_refused(replay: Run, log: Path, arguments: list[str], said: str) -> None:
    assert said in replay(*arguments, code=2)[1]
