"""`penstock observe`: rules, dashboards and metrics on the screen and in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from penstock.cli.app import run
from penstock.observe.catalogue import specs
from penstock.observe.dashboards.boards import BOARDS


@pytest.fixture(autouse=True)
def clean_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)


def test_rules_are_of_the_objectives_in_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    Path("penstock.yaml").write_text("slo: {ttft: 0.2, ttft_target: 0.999}\n", encoding="utf-8")
    assert run(["observe", "rules"]) == 0
    text = capsys.readouterr().out
    found = {rule.get("alert"): rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]}
    assert "> 0.8\n" in found["PenstockTtftVeryHigh"]["expr"]
    assert "> 0.0144\n" in found["PenstockTtftBurn1h"]["expr"]


def test_rules_go_to_a_file_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["observe", "rules"]) == 0
    shown = capsys.readouterr().out
    assert run(["observe", "rules", "--output", "etc/rules.yml"]) == 0
    assert Path("etc/rules.yml").read_text(encoding="utf-8") == shown
    assert [file.name for file in Path("etc").iterdir()] == ["rules.yml"]
    assert capsys.readouterr().err == "wrote etc/rules.yml\n"


def test_rules_as_json_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["observe", "rules"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert run(["observe", "rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == shown


def test_a_wrong_configuration_and_a_wrong_path_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    Path("penstock.yaml").write_text("slo: {ttft_target: 1.5}\n", encoding="utf-8")
    assert run(["observe", "rules"]) == 2
    assert "slo.ttft_target" in capsys.readouterr().err
    Path("penstock.yaml").unlink()
    Path("folder").mkdir()
    assert run(["observe", "rules", "--output", "folder"]) == 2
    assert capsys.readouterr().err == (
        "penstock: folder cannot be written: Is a directory; give another --output.\n"
    )


def test_dashboards_are_listed_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["observe", "dashboards"]) == 0
    shown = capsys.readouterr().out
    assert all(board.name in shown for board in BOARDS)
    assert run(["observe", "dashboards", "--output", "dashboards"]) == 0
    written = {
        file.stem: json.loads(file.read_text(encoding="utf-8")) for file in Path("dashboards").iterdir()
    }
    assert set(written) == {board.name for board in BOARDS}
    capsys.readouterr()
    assert run(["observe", "dashboards", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == written


def test_metrics_are_those_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["observe", "metrics", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert len(listed) == len(specs())
    assert listed["penstock_requests_total"]["kind"] == "counter"
    assert run(["observe", "metrics"]) == 0
    assert "penstock_time_to_first_token_seconds  " in capsys.readouterr().out


def test_without_grafanas_builder_only_writing_is_refused() -> None:
    hide = "import sys; sys.modules['grafana_foundation_sdk'] = None; from penstock.cli.app import run; "
    for arguments, code in ((["observe", "dashboards"], 0), (["observe", "dashboards", "--json"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", f"{hide}sys.exit(run({arguments!r}))"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        assert ("install penstock[dashboards]" in done.stderr) == bool(code)
        assert "Traceback" not in done.stderr
