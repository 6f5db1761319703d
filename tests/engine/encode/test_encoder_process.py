"""An encoder in a process of its own: loaded, proved, asked, cancelled like any engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from penstock.engine.config import EngineConfig
from penstock.engine.process import EngineClient
from penstock.engine.request import Request
from penstock.engine.vectors import vector
from penstock.errors import InvalidRequestError, ModelError
from tests.engine.encode.encoders import core, encode, save


def config(path: Path) -> EngineConfig:
    return EngineConfig(model=str(path), device="cpu", threads=1)


@pytest.mark.parametrize("task", ["Model", "ForSequenceClassification"])
async def test_an_encoder_is_loaded_proved_and_asked(task: str, tmp_path: Path) -> None:
    save(tmp_path, "Bert", task, **({} if task == "Model" else {"num_labels": 1}))
    client = await EngineClient.start(config(tmp_path))
    try:
        pooling = client.info.pooling
        assert pooling == ("mean" if task == "Model" else "score")
        before = client.last_token
        assert await client.probe(within=30)
        assert client.last_token > before
        with client.submit(Request(id="text", prompt=[5, 6, 7], pooling=pooling)) as events:
            [event] = [event async for event in events]
        expected = encode(core(tmp_path, threads=1), {"text": [5, 6, 7]}, pooling)["text"]
        assert np.array_equal(vector(event.embedding), expected)
        with (
            client.submit(Request(id="chat", prompt=[5])) as events,
            pytest.raises(InvalidRequestError, match="does not generate"),
        ):
            await anext(events)
        assert client.stats.prompt_tokens >= 4
    finally:
        await client.kill()


async def test_an_encoder_that_computes_no_numbers_is_not_called_loaded(tmp_path: Path) -> None:
    save(tmp_path, "Bert")
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["embeddings.LayerNorm.bias"].fill_(torch.nan)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=r"does not compute: .* is not a number"):
        await EngineClient.start(config(tmp_path))
