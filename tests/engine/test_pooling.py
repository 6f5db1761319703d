"""Which vectors a decoder gives, and whether it gives any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.engine.config import EngineConfig
from penstock.engine.core import EngineCore
from penstock.engine.opening import open_core
from penstock.engine.request import Request
from penstock.engine.vectors import vector
from penstock.errors import ConfigError, ModelError
from tests.engine.tiny import save_tiny_llama


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_tiny_llama(tmp_path / "llama")


def opened(folder: Path, pooling: str = "auto") -> EngineCore:
    options = {"device": "cpu", "precision": "float32", "kv_cache_memory": 1 << 22}
    core = open_core(EngineConfig(model=str(folder), pooling=pooling, **options))
    assert isinstance(core, EngineCore)
    return core


def write_pooling(folder: Path, switch: str) -> None:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({switch: True}))


def test_a_decoder_gives_vectors_only_when_told_to(folder: Path) -> None:
    info = opened(folder).info
    assert (info.tasks, info.pooling, info.embedding_size) == (("generate",), None, 0)
    info = opened(folder, "last").info
    assert (info.tasks, info.pooling, info.embedding_size) == (("generate", "embed", "score"), "last", 32)


def test_a_decoders_own_files_may_tell_it_to(folder: Path) -> None:
    write_pooling(folder, "pooling_mode_lasttoken")
    assert opened(folder).info.pooling == "last"
    assert opened(folder, "mean").info.pooling == "mean"
    assert opened(folder, "none").info.tasks == ("generate",)


def test_pooling_that_a_decoder_cannot_do_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="pooling is cls, but a decoder's vectors are made by last or mean"):
        opened(folder, "cls")
    write_pooling(folder, "pooling_mode_cls_token")
    with pytest.raises(ModelError, match="give --pooling last or mean for vectors, or none"):
        opened(folder)


def test_pooling_must_be_one_of_the_known_kinds() -> None:
    with pytest.raises(ConfigError, match="pooling must be one of auto, none, last, mean, cls, got 'max'"):
        EngineConfig(model="a", pooling="max")


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_a_decoders_vectors_are_those_of_transformers(folder: Path, pooling: Any) -> None:
    import torch
    from transformers import LlamaModel

    reference = LlamaModel.from_pretrained(folder, dtype=torch.float32).eval()
    core = opened(folder, pooling)
    texts = {"one": [7], "short": [5, 9, 200], "long": [i % 256 for i in range(3, 190)]}
    for name, ids in texts.items():
        core.submit(Request(id=name, prompt=ids, pooling=pooling))
    events = []
    while core.has_work:
        events += core.step()
    assert {event.request_id for event in events} == set(texts)
    for event in events:
        with torch.no_grad():
            states = reference(torch.tensor([texts[event.request_id]])).last_hidden_state[0]
        expected = states[-1] if pooling == "last" else states.mean(0)
        assert np.abs(vector(event.embedding) - expected.numpy()).max() <= 1e-4


def test_what_is_not_done_to_texts_is_said_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "config_sentence_transformers.json").write_text('{"default_prompt_name": "query"}')
    (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    opened(folder)  # gives no vectors, so the files do not matter
    assert caplog.messages == []
    opened(folder, "last")
    assert [("'query'" in text, "lower case" in text) for text in caplog.messages] == [
        (True, False),
        (False, True),
    ]
