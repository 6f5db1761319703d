"""What is said of torch, GPUs, packages and compilers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.ask import Gpu, Probe
from penstock.doctor.finding import Finding
from penstock.doctor.software import (
    Requirement,
    install_command,
    judge_software,
    look_at_compilers,
    look_at_packages,
)
from tests.doctor.machines import GPU, machine, probe, torch

ALL_COMPILERS = {"cc": "/usr/bin/cc", "nvcc": "/usr/bin/nvcc", "triton": "3.5"}


def judged(
    seen: Probe | None = None,
    packages: Sequence[Requirement] = (),
    driver: Sequence[Gpu] = (),
    compilers: dict[str, str | None] | None = None,
    threads: int | None = None,
    **facts: Any,
) -> dict[str, Finding]:
    findings = judge_software(
        seen or probe(), packages, compilers or dict(ALL_COMPILERS), driver, machine(**facts), threads
    )
    return {finding.name: finding for finding in findings}


def test_a_torch_that_works_is_described() -> None:
    finding = judged()["torch"]
    assert finding.status == "ok"
    assert finding.sentence == "torch 2.13.0+cpu (CPU build), AVX512 kernels, oneDNN, 8 threads."


def test_without_torch_nothing_is_served_and_the_extra_is_named() -> None:
    finding = judged(Probe())["torch"]
    assert finding.status == "problem"
    assert finding.command is not None
    assert "[engine]" in finding.command


def test_a_broken_torch_is_told_with_its_reason() -> None:
    finding = judged(Probe(error="OSError: libcudart.so.13 is missing."))["torch"]
    assert finding.status == "problem"
    assert finding.sentence == "torch is installed, but broken. OSError: libcudart.so.13 is missing."
    assert "--force-reinstall torch" in str(finding.command)


def test_a_torch_without_onednn_or_of_another_version_is_warned_of() -> None:
    assert judged(probe(torch=torch(onednn=False)))["torch"].status == "warning"
    wanted = Requirement("torch", ((">=", "2.11"), ("<", "2.14")), "engine", "2.9.1")
    finding = judged(packages=[wanted])["torch"]
    assert finding.status == "warning"
    assert str(finding.command).endswith("-m pip install 'torch>=2.11,<2.14'")


def test_gpus_that_torch_sees_are_named() -> None:
    seen = Gpu(name="NVIDIA Some", memory_total=GPU.memory_total, memory_free=1 << 30, capability="9.0")
    finding = judged(probe(torch=torch(cuda="13.0", version="2.13.0+cu130"), gpus=(seen,)))["GPUs"]
    assert finding.status == "ok"
    assert finding.sentence == "NVIDIA Some (compute capability 9.0, 1.0 GiB of 80.0 GiB free)."


def test_a_gpu_that_a_cpu_build_of_torch_cannot_use_is_warned_of() -> None:
    finding = judged(driver=[GPU])["GPUs"]
    assert finding.status == "warning"
    assert "NVIDIA Some, but this torch is a CPU build" in finding.sentence
    assert str(finding.command).endswith("-m pip install --force-reinstall torch==2.13.0")


def test_a_gpu_that_a_cuda_build_does_not_see_is_warned_of() -> None:
    assert "CUDA_VISIBLE_DEVICES" in judged(probe(torch=torch(cuda="13.0")), driver=[GPU])["GPUs"].sentence
    refused = judged(probe(torch=torch(cuda="13.0"), gpu_error="RuntimeError: the driver is too old."))[
        "GPUs"
    ]
    assert refused.status == "warning"
    assert "the driver is too old" in refused.sentence
    assert "no torch that works" in judged(Probe(), driver=[GPU])["GPUs"].sentence


def test_a_machine_without_a_gpu_is_a_good_machine() -> None:
    assert judged()["GPUs"].status == "ok"


def test_more_threads_than_cpus_are_warned_of() -> None:
    assert "threads" not in judged()
    assert "threads" not in judged(cpu_quota=1.5)
    assert "threads" not in judged(threads=2, cpu_quota=1.5)
    finding = judged(threads=8, cpu_quota=1.5)["threads"]
    assert finding.sentence == "The engine would start 8 threads, and this process has 2 CPUs for them."
    assert finding.command == "export PENSTOCK_THREADS=2"


def test_packages_that_are_missing_or_of_another_version_are_named_with_what_to_type() -> None:
    there = Requirement("starlette", ((">=", "1.0"), ("<", "2")), None, "1.2")
    assert judged(packages=[there])["packages"].status == "ok"
    missing = judged(packages=[there, Requirement("uvicorn", ((">=", "0.40"),), None, None)])["packages"]
    assert missing.status == "problem"
    assert missing.sentence == "uvicorn is missing, and Penstock cannot serve without."
    assert str(missing.command).endswith("-m pip install 'uvicorn>=0.40'")
    old = judged(packages=[there, Requirement("rich", ((">=", "13.9"), ("<", "16")), None, "12.1")])[
        "packages"
    ]
    assert (old.status, old.sentence) == ("warning", "Not versions Penstock was made for: rich 12.1.")


@pytest.mark.parametrize(
    ("version", "met"),
    [
        ("2.11", True),
        ("2.13.0+cpu", True),
        ("2.14", False),
        ("2.10.9", False),
        ("2.14.0", False),
        ("odd", True),
    ],
)
def test_a_version_is_held_to_its_bounds(version: str, met: bool) -> None:
    assert Requirement("torch", ((">=", "2.11"), ("<", "2.14")), "engine", version).met is met


def test_the_requirements_are_read_off_the_installed_package() -> None:
    packages = look_at_packages()
    if packages:  # nothing to read where the tests run from a folder alone
        by_name = {package.package: package for package in packages}
        assert by_name["starlette"].met
        assert by_name["torch"].extra == "engine"
        assert by_name["torch"].bounds


def test_compilers_are_a_matter_of_knowing() -> None:
    assert judged()["compilers"].status == "ok"
    finding = judged(compilers={"cc": None, "nvcc": None, "triton": None})["compilers"]
    assert finding.status == "note"
    assert finding.sentence.startswith("Not found: cc (")
    assert set(look_at_compilers()) == {"cc", "nvcc", "triton"}


def test_what_to_type_installs_into_this_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command("hub", folder=tmp_path) == (
        f"{sys.executable} -m pip install -c {tmp_path}/constraints.txt -e '{tmp_path}[hub]'"
    )
    monkeypatch.setattr("penstock.doctor.software._clone", lambda: None)
    assert install_command("hub") == f"{sys.executable} -m pip install 'penstock[hub]'"
