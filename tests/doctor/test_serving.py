"""What `penstock serve` would meet before it loads a model."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from penstock.doctor.finding import Finding
from penstock.doctor.serving import judge_serving, look_at_configuration


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def judged(config: str | None = None, **environ: str) -> dict[str, Finding]:
    environ.setdefault("PENSTOCK_PORT", "0")
    return {finding.name: finding for finding in judge_serving(look_at_configuration(config, environ))}


def test_the_sources_of_the_configuration_are_named_without_their_values() -> None:
    Path("penstock.yaml").write_text("max_running: 4\n")
    found = judged(PENSTOCK_API_KEYS="very-secret", PENSTOCK_HOME="/models", OTHER="x")
    sentence = found["configuration"].sentence
    assert sentence == "Taken from penstock.yaml, PENSTOCK_HOME, PENSTOCK_API_KEYS and PENSTOCK_PORT."
    assert "very-secret" not in repr(found)


def test_the_defaults_are_called_so() -> None:
    configuration = look_at_configuration(None, {})
    assert judge_serving(configuration)[0].sentence.startswith("The defaults")
    assert (configuration.file, configuration.variables, configuration.unknown) == (None, (), ())


def test_every_unknown_variable_is_named_and_hides_no_other_mistake() -> None:
    found = judged(PENSTOCK_PRT="1", PENSTOCK_MODLE="x", PENSTOCK_THREADS="many")
    assert found["variables"].status == "problem"
    assert "PENSTOCK_MODLE and PENSTOCK_PRT are no options" in found["variables"].sentence
    assert found["variables"].command == "unset PENSTOCK_MODLE PENSTOCK_PRT"
    assert found["configuration"].status == "problem"
    assert "PENSTOCK_THREADS" in found["configuration"].sentence


def test_a_file_that_is_named_and_not_there_is_a_problem() -> None:
    assert "--config names nowhere.yaml" in judged("nowhere.yaml")["configuration"].sentence


def test_a_public_address_without_keys_is_a_problem_as_serve_has_it() -> None:
    assert judged(PENSTOCK_HOST="0.0.0.0")["host"].status == "problem"
    assert "host" not in judged(PENSTOCK_HOST="0.0.0.0", PENSTOCK_API_KEYS="k")


def test_a_port_is_free_or_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        taken = judged(PENSTOCK_PORT=port)["port"]
    assert taken.status == "warning"
    assert taken.sentence == f"{port} on 127.0.0.1 is in use; choose another, 0 for any free one."
    assert taken.command == "penstock serve --port 0"
    assert judged(PENSTOCK_PORT=port)["port"].sentence == f"{port} on 127.0.0.1 is free."
    assert judged()["port"].status == "ok"


def test_an_address_of_another_machine_is_not_to_be_had() -> None:
    assert (
        judged(PENSTOCK_HOST="192.0.2.1", PENSTOCK_PORT="8000", PENSTOCK_API_KEYS="k")["port"].status
        == "warning"
    )


def test_a_name_is_not_asked_of_the_network() -> None:
    found = judged(PENSTOCK_HOST="some.name.invalid", PENSTOCK_PORT="8000", PENSTOCK_API_KEYS="k")
    assert found["port"].status == "note"
