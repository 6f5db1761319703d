"""What a user may type as a model, and what is said when it is nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from safetensors.numpy import save_file

from penstock.errors import ModelError
from penstock.hub import ModelFiles, home, resolve
from penstock.hub.known import DEFAULT
from penstock.hub.local import gguf_name
from tests.hub.test_gguf import write_split


def write_gguf(path: Path) -> Path:
    writer = GGUFWriter(path, arch="llama")
    writer.add_tensor("w", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"w": np.zeros(2, np.float32)}, folder / "model.safetensors")
    return folder


def test_a_gguf_file_is_a_model(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "My-Model.Q4_K_M.gguf")
    assert resolve(str(path)) == ModelFiles("My-Model", path, "gguf")


def test_a_gguf_file_needs_no_suffix(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "sha256-0123")
    assert resolve(str(path)).format == "gguf"


def test_a_folder_of_safetensors_is_a_model(tmp_path: Path) -> None:
    folder = write_safetensors(tmp_path / "My-Model")
    assert resolve(str(folder)) == ModelFiles("My-Model", folder, "safetensors")


def test_a_folder_with_one_gguf_is_that_gguf(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "one.gguf")
    assert resolve(str(tmp_path)).path == path
    write_gguf(tmp_path / "two.gguf")
    with pytest.raises(ModelError, match=r"several GGUF files; give one of them: one\.gguf, two\.gguf"):
        resolve(str(tmp_path))


def test_the_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write_gguf(tmp_path / "m.gguf")
    assert resolve("~/m.gguf").path == path


def test_a_path_that_looks_like_a_hub_id_is_a_path_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org").mkdir()
    write_safetensors(tmp_path / "org" / "name")
    assert resolve("org/name") == ModelFiles("name", Path("org/name"), "safetensors")


@pytest.mark.parametrize("suffix", [".bin", ".pth", ".pt", ".ckpt", ".pkl", ".pickle", ".PTH"])
def test_pickles_are_refused_by_name_with_the_reason(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    for _ in ("absent", "present"):
        with pytest.raises(ModelError, match=rf"model{suffix} is refused: .* pickles, which can run code"):
            resolve(str(path))
        path.write_bytes(b"GGUF")  # not even if it claims to be something else


def test_a_folder_of_pickles_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is refused: .* pickles"):
        resolve(str(tmp_path))


def test_pickles_beside_safetensors_do_no_harm(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    (tmp_path / "optimizer.pt").write_bytes(b"\x80\x02")
    assert resolve(str(tmp_path)).format == "safetensors"


def test_one_safetensors_file_points_to_its_folder(tmp_path: Path) -> None:
    write_safetensors(tmp_path)
    with pytest.raises(ModelError, match=f"give the folder that holds it and config.json: {tmp_path}"):
        resolve(str(tmp_path / "model.safetensors"))


def test_a_split_gguf_is_found_by_its_first_part_or_its_folder(tmp_path: Path) -> None:
    first = write_split(tmp_path, "big-Q8_0", 3)
    for given in (first, tmp_path):
        found = resolve(str(given))
        assert (found.path, found.name, found.format) == (first, "big", "gguf")


def test_a_gguf_without_tensors_is_no_model(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "vocab.gguf", arch="llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="holds no tensors, only metadata"):
        resolve(str(tmp_path / "vocab.gguf"))


def test_an_empty_folder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model: expected config\.json with"):
        resolve(str(tmp_path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(ModelError, match=r"notes\.txt is neither a GGUF file nor a folder"):
        resolve(str(path))


@pytest.mark.parametrize(
    "model",
    ["", "gpt", "./nothing", "/no/such/path", "~/nothing", "~nobody-here/x", "a/b.gguf", "x" * 5000, "a\0b"],
)
def test_what_is_nothing_gets_the_list_of_what_may_be_given(model: str) -> None:
    with pytest.raises(
        ModelError,
        match=r"Give a name \('default', 'all-minilm-l6-v2'\), a GGUF file, a folder .*, or a hub id",
    ):
        resolve(model)


def test_the_default_model_goes_by_its_names_in_any_case(default_model: Path) -> None:
    for name in (*DEFAULT.names, "Default", "SmolLM2-135M"):
        assert resolve(name) == ModelFiles("SmolLM2-135M-Instruct", default_model, "gguf")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Llama-3.2-1B-Instruct"),
        ("model-f16.gguf", "model"),
        ("model.BF16.gguf", "model"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "Qwen3-8B"),
        ("mistral-7b-iq2_xs.GGUF", "mistral-7b"),
        ("Q8_0.gguf", "Q8_0"),
        ("plain.gguf", "plain"),
    ],
)
def test_the_quantization_is_not_part_of_the_name(file: str, name: str) -> None:
    assert gguf_name(Path(file)) == name


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", "~/elsewhere")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / "elsewhere"
    monkeypatch.setenv("PENSTOCK_HOME", "")
    assert home() == tmp_path / ".cache" / "penstock"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_HOME", "here")
    assert home() == tmp_path / "here"
    monkeypatch.setenv("PENSTOCK_HOME", "~no-such-user/x")
    with pytest.raises(ModelError, match="set PENSTOCK_HOME to a folder"):
        home()
