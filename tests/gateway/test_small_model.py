"""A server of a model that came without a chat template, and with a tokenizer larger than its table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from tests.engine.tiny import TINY, save_tiny_llama
from tests.server import Server

ASK = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 2}
ROWS: int = TINY["vocab_size"]  # 256, so every byte has a row and nothing else does


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = save_tiny_llama(tmp_path_factory.mktemp("tiny"))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<beyond>"])
    backend.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def plain(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(str(folder), log=tmp_path_factory.mktemp("plain") / "log")
    yield server
    server.stop()


def test_chat_is_refused_with_the_way_out(plain: Server) -> None:
    reply = plain.post("/v1/chat/completions", ASK)
    assert reply.status == 400
    assert "no chat template" in reply.error["message"]
    assert "--chat-template" in reply.error["message"]


def test_text_is_completed_all_the_same(plain: Server) -> None:
    reply = plain.post("/v1/completions", {"prompt": "ab", "max_tokens": 2})
    assert reply.status == 200
    assert reply.json()["usage"]["completion_tokens"] == 2


def test_a_prompt_with_a_token_that_the_model_has_no_row_for_is_refused(plain: Server) -> None:
    assert f"{ROWS + 1} tokens" in plain.log()
    assert f"first {ROWS}" in plain.log()
    reply = plain.post("/v1/completions", {"prompt": "a<beyond>", "max_tokens": 2})
    assert reply.status == 400
    assert f"token id {ROWS}" in reply.error["message"]
    assert plain.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status == 200


def test_a_template_from_a_file_makes_it_chat(folder: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}")
    server = Server(str(folder), log=tmp_path / "log", env={"PENSTOCK_CHAT_TEMPLATE": str(template)})
    try:
        assert server.post("/v1/chat/completions", ASK).status == 200
        ids = server.post("/tokenize", {"messages": ASK["messages"]}).json()["tokens"]
        assert server.post("/detokenize", {"tokens": ids}).json()["prompt"] == "[user]ab"
    finally:
        server.stop()


def test_a_template_that_cannot_be_used_ends_the_start(folder: Path, tmp_path: Path) -> None:
    template = tmp_path / "bad.jinja"
    template.write_text("{% for m in messages %}")
    command = [sys.executable, "-m", "penstock", "serve", str(folder), "--chat-template", str(template)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    [line] = done.stderr.strip().splitlines()
    assert "bad.jinja has an error in line 1" in line
    assert line.endswith(".")
