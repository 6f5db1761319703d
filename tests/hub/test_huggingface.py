"""Hub ids, through the real `huggingface_hub` package and a hub on loopback.

Each fetch is a process of its own, because the package reads its settings when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from penstock.errors import ModelError
from penstock.hub import resolve
from tests.hub.fake_hub import COMMIT, FakeHub
from tests.hub.test_resolve import write_gguf

pytest.importorskip("huggingface_hub")

ROOT = Path(__file__).parents[2]
FETCH = """
import json, sys
from penstock.errors import ModelError
from penstock.hub import resolve
stages = []
try:
    files = resolve(sys.argv[1], progress=lambda stage, done, total: stages.append((stage, total)))
except ModelError as error:
    sys.exit(str(error))
print(json.dumps({"name": files.name, "path": str(files.path), "format": files.format, "stages": stages}))
"""


def tensors(*names: str) -> bytes:
    return save({name: np.zeros(4, np.float32) for name in names})


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    gguf = write_gguf(tmp_path / "made.gguf").read_bytes()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    repositories = {
        "org/sharded": {
            "config.json": b'{"model_type": "llama"}',
            "tokenizer.json": b"{}",
            "chat_template.jinja": b"{{ messages }}",
            "model.safetensors.index.json": json.dumps(index).encode(),
            "model-1.safetensors": tensors("a"),
            "model-2.safetensors": tensors("b"),
            "consolidated.safetensors": tensors("a", "b"),
            "pytorch_model.bin": b"\x80\x02",
            "modeling_evil.py": b"raise SystemExit",
            "onnx/config.json": b"{}",
        },
        "org/encoder": {
            "config.json": b"{}",
            "model.safetensors": tensors("a"),
            "modules.json": b"[]",
            "tokenizer.model": b"spm",
            "1_Pooling/config.json": b'{"pooling_mode_cls_token": true}',
            "2_Dense/model.safetensors": tensors("b"),
        },
        "org/one-gguf": {"Only.Q8_0.gguf": gguf, "README.md": b"#"},
        "org/two-ggufs": {"A.Q4_0.gguf": gguf, "A.Q8_0.gguf": gguf},
        "org/split": {"A-00001-of-00002.gguf": gguf, "A-00002-of-00002.gguf": gguf},
        "org/pickles": {"config.json": b"{}", "pytorch_model.bin": b"\x80\x02"},
        "org/nothing": {"README.md": b"#"},
        "org/half": {"model.safetensors": tensors("a")},
    }
    with FakeHub(repositories).running() as running:
        yield running


@pytest.fixture
def environment(hub: FakeHub, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PENSTOCK_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT / "src"),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }


def fetch(model: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FETCH, model]
    folder = Path(environment["HF_HOME"]).parent  # not one with an "org" in it
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_repository_of_safetensors_is_fetched_without_what_could_run(
    hub: FakeHub, environment: dict[str, str]
) -> None:
    result = fetch("org/sharded", environment)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["name"], found["format"]) == ("org/sharded", "safetensors")
    assert found["path"].startswith(environment["HF_HOME"])
    assert (
        {path.name for path in Path(found["path"]).iterdir()}
        == set(hub.fetched)
        == {
            "config.json",
            "tokenizer.json",
            "chat_template.jinja",
            "model.safetensors.index.json",
            "model-1.safetensors",
            "model-2.safetensors",
        }
    )
    assert found["stages"][0][0] == "Downloading org/sharded"


def test_how_an_encoder_pools_is_fetched_with_it(hub: FakeHub, environment: dict[str, str]) -> None:
    result = fetch("org/encoder", environment)
    assert result.returncode == 0, result.stderr
    assert set(hub.fetched) == {
        "config.json",
        "model.safetensors",
        "modules.json",
        "tokenizer.model",
        "1_Pooling/config.json",
    }
    pooling = Path(json.loads(result.stdout)["path"]) / "1_Pooling" / "config.json"
    assert json.loads(pooling.read_bytes()) == {"pooling_mode_cls_token": True}


def test_what_was_fetched_serves_offline_and_when_the_hub_is_away(
    hub: FakeHub, environment: dict[str, str]
) -> None:
    online = json.loads(fetch("org/sharded", environment).stdout)["path"]
    forbidden = {**environment, "HF_HUB_OFFLINE": "1"}
    away = {**environment, "HF_ENDPOINT": "http://127.0.0.1:9"}
    for surroundings in (forbidden, away):
        result = fetch("org/sharded", surroundings)
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["path"] == online


def test_the_only_gguf_of_a_repository_is_taken(hub: FakeHub, environment: dict[str, str]) -> None:
    found = json.loads(fetch("org/one-gguf", environment).stdout)
    assert Path(found["path"]).name == "Only.Q8_0.gguf"
    assert (found["name"], found["format"]) == ("org/one-gguf", "gguf")
    assert hub.fetched == ["Only.Q8_0.gguf"]


def test_one_gguf_of_several_is_taken_by_name_and_revision(hub: FakeHub, environment: dict[str, str]) -> None:
    found = json.loads(fetch("org/two-ggufs@v2:A.Q8_0.gguf", environment).stdout)
    assert Path(found["path"]).name == "A.Q8_0.gguf"
    assert hub.fetched == ["A.Q8_0.gguf"]
    for revision in ("v2", COMMIT):
        offline = fetch(f"org/two-ggufs@{revision}:A.Q8_0.gguf", {**environment, "HF_HUB_OFFLINE": "1"})
        assert json.loads(offline.stdout)["path"] == found["path"], offline.stderr


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            "org/two-ggufs",
            "holds 2 GGUF files; give one of them: org/two-ggufs:A.Q4_0.gguf, org/two-ggufs:A.Q8_0",
        ),
        ("org/two-ggufs:Nope.gguf", "lacks a file that was asked for"),
        ("org/two-ggufs@nope", "has no revision 'nope'"),
        ("org/split", "only split GGUF files"),
        ("org/pickles", "pytorch_model.bin is refused"),
        ("org/sharded:pytorch_model.bin", "pytorch_model.bin is refused"),
        ("org/sharded:config.json", "names a file that is not a GGUF"),
        ("org/nothing", "neither safetensors nor GGUF"),
        ("org/half", "no config.json"),
        ("org/absent", "no model 'org/absent' on the hub"),
        ("org/gated", "is gated"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(
    hub: FakeHub, environment: dict[str, str], model: str, sentence: str
) -> None:
    result = fetch(model, environment)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert hub.fetched == []


def test_an_unreachable_hub_is_said_to_be_so(environment: dict[str, str]) -> None:
    result = fetch("org/sharded", {**environment, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert result.stderr.startswith("Cannot fetch org/sharded from the hub:")
    assert "Check the network" in result.stderr


def test_offline_and_never_fetched_names_the_setting(environment: dict[str, str]) -> None:
    result = fetch("org/sharded", {**environment, "HF_HUB_OFFLINE": "1"})
    assert "org/sharded is not in the hub's cache, and HF_HUB_OFFLINE forbids" in result.stderr


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # what an import finds when it is not installed
    with pytest.raises(
        ModelError, match=r"needs the huggingface_hub package: run `pip install 'penstock\[hub\]'`"
    ):
        resolve("org/name")
