"""Where there is no compiler, or what it built is of no use, models are computed in floats instead."""

from __future__ import annotations

import ctypes
import logging
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from penstock.engine.config import EngineConfig
from penstock.engine.native import build, library
from penstock.engine.native.build import VARIANTS
from penstock.engine.run.loading import load_model
from penstock.errors import ConfigError
from tests.engine.native.kernels import needs_kernels
from tests.engine.native.stepping import step_logits
from tests.engine.tiny import save_tiny_llama

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler here: cc, gcc or clang"
)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources that compile in no time, in place of the kernels' own."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "some.c").write_text('__attribute__((visibility("default"))) int answer(void) { return 1; }\n')
    monkeypatch.setattr(build, "SOURCE", folder)
    return folder


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Copies of the libraries, that a test may harm."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for variant in VARIANTS:
        path = build.library_path(variant)
        if path.exists():
            for file in (path, path.with_suffix(".sources")):
                shutil.copy(file, folder / file.name)
    original = build.library_path
    for module in (build, library):
        monkeypatch.setattr(module, "library_path", lambda variant, _=None: original(variant, folder))
    monkeypatch.delenv(library.VARIABLE, raising=False)
    library._library.cache_clear()
    yield folder
    library._library.cache_clear()


def replace(path: Path, content: bytes) -> None:
    """Another file under the name: the former may be open."""
    path.unlink()
    path.write_bytes(content)


def answer(path: Path) -> int:
    # Under another name each time: the system keeps a library that is open.
    copy = path.with_name(f"{len(list(path.parent.iterdir()))}-{path.name}")
    shutil.copy(path, copy)
    return int(ctypes.CDLL(str(copy)).answer())


@needs_compiler
def test_what_is_built_is_built_once_and_again_when_its_sources_change(sources: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    first = build.build(folder)
    assert [path.name for path in first] == [f"kernels-{variant}.so" for variant in VARIANTS]
    assert all(build.is_current(variant, folder) for variant in VARIANTS)
    assert answer(first[0]) == 1
    made = [path.stat().st_mtime_ns for path in first]
    assert build.build(folder) == first
    assert [path.stat().st_mtime_ns for path in first] == made
    (sources / "some.c").write_text((sources / "some.c").read_text().replace("1", "2"))
    assert not any(build.is_current(variant, folder) for variant in VARIANTS)
    assert build.build(folder) == first
    assert answer(first[0]) == 2
    # A header counts too, and so does a mark that got lost.
    (sources / "other.h").touch()
    assert not build.is_current(next(iter(VARIANTS)), folder)
    build.build(folder)
    first[0].with_suffix(".sources").unlink()
    assert not build.is_current(next(iter(VARIANTS)), folder)
    # Nothing half-built is left.
    assert all(path.suffix in (".so", ".sources") for path in folder.iterdir())


def test_without_a_compiler_nothing_is_built_and_it_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert build.build(tmp_path / "lib") == []
    said = capsys.readouterr().err
    assert said == (
        "Native kernels were not built: there is no C compiler (cc, gcc or clang). "
        "The engine works without, slower.\n"
    )


@pytest.mark.parametrize(
    ("compiler", "said"),
    [("false", "false failed"), ("/no/such/compiler --fast", "No such file or directory")],
)
def test_a_compiler_that_fails_is_named(
    compiler: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert build.build(tmp_path / "lib") == []
    assert said in capsys.readouterr().err
    assert not any(path.suffix == ".so" for path in (tmp_path / "lib").iterdir())


@needs_compiler
def test_one_variant_that_a_compiler_cannot_build_does_not_keep_it_from_the_others(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As old compilers do not know new instructions."""
    (sources / "some.c").write_text("#ifdef __AVX512VNNI__\n#error unknown\n#endif\nint answer(void);\n")
    assert build.build(tmp_path / "lib") == [tmp_path / "lib/kernels-avx2.so"]
    assert "unknown" in capsys.readouterr().err


@needs_kernels
def test_what_is_built_needs_no_compiler_any_more(
    libraries: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "false")
    assert build.build() == [build.library_path(variant) for variant in VARIANTS]
    assert capsys.readouterr().err == ""


@needs_compiler
def test_sources_that_do_not_compile_are_quoted(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sources / "some.c").write_text("int answer(void) { return nothing; }\n")
    assert build.build(tmp_path / "lib") == []
    assert "nothing" in capsys.readouterr().err


def test_the_script_needs_nothing_but_python() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(Path(build.__file__))],
        env={"CC": "false"},  # what is built already it finds
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    built = [str(build.library_path(variant)) for variant in VARIANTS if build.is_current(variant)]
    assert done.stdout.split() == built
    assert done.returncode == (0 if built else 1)
    assert built or "Native kernels were not built" in done.stderr


def test_the_script_fails_where_it_has_built_nothing(tmp_path: Path) -> None:
    script = tmp_path / "build.py"
    shutil.copy(build.__file__, script)
    shutil.copytree(build.SOURCE, tmp_path / "source")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script)],
        env={"CC": "false"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "Native kernels were not built" in done.stderr


@needs_kernels
def test_the_best_that_works_is_taken(libraries: Path) -> None:
    best, *others = [variant for variant in VARIANTS if build.library_path(variant).exists()]
    found = library.library()
    assert found is not None
    assert best in found._name
    library._library.cache_clear()
    replace(build.library_path(best), b"damaged")
    found = library.library()
    if not others:
        assert found is None
    else:
        assert found is not None
        assert others[0] in found._name


@needs_kernels
@pytest.mark.parametrize(
    "harm", ["missing", "damaged", "cut off", "outdated", "unmarked", "of another version"]
)
def test_kernels_of_no_use_leave_the_engine_to_floats(
    harm: str,
    libraries: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for path in list(libraries.glob("*.so")):
        mark = path.with_suffix(".sources")
        match harm:
            case "missing":
                path.unlink()
            case "damaged":
                replace(path, b"\x7fELF" + b"\0" * 100)
                mark.write_text(build.mark(path))
            case "cut off":
                replace(path, path.read_bytes()[:20_000])
            case "outdated":
                mark.write_text("0123456789abcdef")
            case "unmarked":
                mark.unlink()
    if harm == "of another version":
        monkeypatch.setattr(library, "Step", type("Step", (ctypes.Structure,), {"_fields_": ()}))
    save_tiny_llama(tmp_path / "model")
    with pytest.raises(ConfigError, match=r"precision is int8, but the native kernels are not built"):
        load_model(EngineConfig(model=str(tmp_path / "model"), precision="int8"), CPU)
    with caplog.at_level(logging.WARNING, logger="penstock.engine"):
        model, _ = load_model(EngineConfig(model=str(tmp_path / "model"), precision="auto"), CPU)
    assert model.precision == "float32"
    assert "computed in float32, which is slower than int8: the native kernels are not built" in caplog.text
    assert step_logits(model, [[1, 2, 3]], 3)[0].isfinite().all()


@needs_kernels
def test_the_environment_chooses_a_variant(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variant in VARIANTS:
        monkeypatch.setenv(library.VARIABLE, variant)
        found = library.library()
        if library.cpu_flags().issuperset(VARIANTS[variant]):
            assert found is not None
            assert variant in found._name
        else:
            assert found is None


def test_the_environment_turns_them_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(library.VARIABLE, "off")
    save_tiny_llama(tmp_path)
    with caplog.at_level(logging.WARNING, logger="penstock.engine"):
        model, _ = load_model(EngineConfig(model=str(tmp_path), precision="auto"), CPU)
    assert model.precision == "float32"
    assert "PENSTOCK_NATIVE is off" in caplog.text


def test_a_variant_that_nobody_knows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(library.VARIABLE, "avx3")
    with pytest.raises(ConfigError, match=r"^PENSTOCK_NATIVE must be auto, off, .* or avx2, got 'avx3'\.$"):
        library.library()
