"""What is said of the native kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.doctor import kernels
from penstock.doctor.finding import Finding
from penstock.doctor.kernels import Kernels, judge_kernels, look_at_kernels
from penstock.engine.native import build
from penstock.engine.native.build import VARIANTS

BEST = next(iter(VARIANTS))


def judged(
    *,
    loaded: bool | None = True,
    compiler: bool = True,
    device: str = "cpu",
    precision: str = "auto",
    **facts: Any,
) -> Finding:
    usual: dict[str, Any] = {
        "system": True,
        "suitable": ("fast",),
        "lacking": (),
        "built": ("fast", "other"),
        "outdated": (),
    }
    return judge_kernels(
        Kernels(**(usual | facts)), loaded=loaded, compiler=compiler, device=device, precision=precision
    )


def test_kernels_that_this_processor_can_use_are_well() -> None:
    finding = judged()
    assert (finding.status, finding.command) == ("ok", None)
    assert finding.sentence == "Built for fast and other; on this processor fast computes in int8."


@pytest.mark.parametrize(
    ("facts", "sentence", "commands"),
    [
        ({"built": ()}, "They are not built for fast, which this processor has", ("native.build",)),
        ({"built": ("other",)}, "They are not built for fast", ("native.build",)),
        ({"built": (), "compiler": False}, "takes a C compiler", ("apt-get install gcc", "native.build")),
        ({"loaded": False}, "kernels-fast.so is damaged, or of another version", ("rm ", "native.build")),
        ({"outdated": ("fast",)}, "built from other sources than those here", ("native.build",)),
    ],
)
def test_what_a_build_would_cure_is_a_warning_with_the_command(
    facts: dict[str, Any], sentence: str, commands: tuple[str, ...]
) -> None:
    finding = judged(**facts)
    assert finding.status == "warning"
    assert sentence in finding.sentence
    assert all(command in str(finding.command) for command in commands)


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"suitable": (), "lacking": ("avx512f", "fma")}, "This processor lacks avx512f and fma"),
        ({"system": False}, "There are none for"),
    ],
)
def test_what_no_build_would_cure_is_only_noted(facts: dict[str, Any], sentence: str) -> None:
    finding = judged(**facts)
    assert (finding.status, finding.command) == ("note", None)
    assert sentence in finding.sentence


@pytest.mark.parametrize(("asked", "status"), [("off", "warning"), ("avx2", "warning"), ("avx3", "problem")])
def test_who_turned_them_off_is_told_how_to_turn_them_on(asked: str, status: str) -> None:
    finding = judged(asked=asked)
    assert (finding.status, finding.command) == (status, "unset PENSTOCK_NATIVE")
    assert finding.sentence.startswith(f"PENSTOCK_NATIVE is {asked}, so this processor can use none")


def test_a_variant_that_is_asked_for_is_the_one_that_counts() -> None:
    facts = {"suitable": ("best", "fast"), "built": ("best", "fast"), "asked": "fast"}
    assert "on this processor fast computes in int8" in judged(**facts).sentence
    assert "not built for fast" in judged(**facts | {"built": ("best",)}).sentence


@pytest.mark.parametrize("facts", [{"built": ()}, {"suitable": ()}, {"system": False}])
def test_who_asks_for_int8_cannot_do_without(facts: dict[str, Any]) -> None:
    assert judged(precision="int8", **facts).status == "problem"
    assert judged(precision="int8").status == "ok"


def test_without_torch_nobody_tried_to_load_them() -> None:
    assert judged(loaded=None).status == "ok"


def test_on_a_gpu_nobody_misses_them() -> None:
    assert judged(built=(), device="cuda").status == "note"


def test_files_and_flags_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "library_path", lambda variant: tmp_path / f"{variant}.so")
    monkeypatch.setattr(build, "library_path", lambda variant, folder=None: tmp_path / f"{variant}.so")
    monkeypatch.setattr(kernels.machine, "cpu_flags", lambda: frozenset(VARIANTS[BEST]))
    assert look_at_kernels().built == ()
    (tmp_path / f"{BEST}.so").touch()
    found = look_at_kernels()
    assert (found.built, found.outdated, found.usable) == ((BEST,), (BEST,), None)
    (tmp_path / f"{BEST}.sources").write_text(build.mark(tmp_path / f"{BEST}.so"))
    found = look_at_kernels()
    assert (found.outdated, found.usable) == ((), BEST)
    monkeypatch.setenv("PENSTOCK_NATIVE", "off")
    assert look_at_kernels().usable is None
    monkeypatch.delenv("PENSTOCK_NATIVE")
    monkeypatch.setattr(kernels.machine, "cpu_flags", frozenset)
    found = look_at_kernels()
    assert (found.suitable, found.usable) == ((), None)
    assert found.lacking


def test_the_doctor_and_the_engine_are_of_one_mind() -> None:
    from penstock.engine.native.library import library

    assert (look_at_kernels().usable is None) == (library() is None)
