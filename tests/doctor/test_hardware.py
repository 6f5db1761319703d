"""What is said of processors, memory and disks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.finding import Finding
from penstock.doctor.hardware import judge_machine, look_at_machine
from tests.doctor.machines import GIB, machine


def judged(*, model_is_here: bool = True, **facts: Any) -> dict[str, Finding]:
    findings = judge_machine(machine(**facts), model_is_here=model_is_here)
    return {finding.name: finding for finding in findings}


def test_a_good_machine_has_nothing_but_good_findings() -> None:
    assert {finding.status for finding in judged(model_is_here=False).values()} == {"ok"}


def test_cpus_that_a_process_may_not_use_are_not_counted() -> None:
    assert judged()["processor"].sentence == "Some CPU (x86_64), 8 CPUs."
    sentence = judged(cpus=64, cpus_allowed=16, cpu_quota=2.5)["processor"].sentence
    assert sentence.endswith("16 CPUs of 64 allowed to this process, of which the container may use 2.5.")
    assert machine(cpus_allowed=16, cpu_quota=2.5).cpus_usable == 3


def test_features_are_told_apart() -> None:
    some = judged(features=("AVX2", "VNNI"))["features"]
    assert (some.status, some.sentence) == ("ok", "AVX2 and VNNI are there; AVX-512, bf16 and AMX are not.")
    assert judged()["features"].sentence == "AVX2, AVX-512, VNNI, bf16 and AMX are there."


def test_a_processor_without_wide_vectors_is_warned_of() -> None:
    none = judged(features=())["features"]
    assert none.status == "warning"
    assert "Without AVX2" in none.sentence
    assert judged(architecture="aarch64", features=("NEON", "dotprod"))["features"].status == "ok"
    assert judged(architecture="riscv64", features=())["features"].status == "note"


def test_memory_names_the_containers_limit() -> None:
    sentence = judged(memory_limit=4 * GIB, memory_available=3 * GIB)["memory"].sentence
    assert sentence == "32.0 GiB, of which the container may have 4.0 GiB; 3.0 GiB available now."
    assert judged(memory_available=GIB // 2)["memory"].status == "warning"


@pytest.mark.parametrize(
    "facts",
    [{"cache": None}, {"cache_writable": False}, {"disk_free": 1 << 20}],
    ids=lambda facts: next(iter(facts)),
)
def test_a_cache_that_cannot_take_the_default_model_prevents_serving_unless_it_is_there(
    facts: dict[str, Any],
) -> None:
    without = judged(model_is_here=False, **facts)["disk"]
    assert without.status == "problem"
    assert without.command is not None
    assert without.command.startswith("export PENSTOCK_HOME=")
    assert judged(model_is_here=True, **facts)["disk"].status in ("note", "warning")


def test_this_machine_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "not" / "yet"))
    facts = look_at_machine()
    assert facts.cache == str(tmp_path / "not" / "yet" / "models")
    assert facts.cache_writable
    assert facts.disk_free > 0
    assert 1 <= facts.cpus_usable <= facts.cpus_allowed <= facts.cpus
    assert 0 < facts.memory_available <= facts.memory_total
    assert not (tmp_path / "not").exists()


def test_a_machine_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "~nobody-of-this-name/cache")
    assert look_at_machine().cache is None
