"""A front door for tests: `penstock serve --config FILE`, its keys and its ledger as an operator has them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import tokenizers
import yaml
from tokenizers import decoders, models, pre_tokenizers
from typer.testing import CliRunner

from penstock.cli.app import app
from tests.engine.tiny import save_tiny_llama
from tests.server import Reply, Server, poll

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"
HI = {"messages": [{"role": "user", "content": "hi there"}]}


def chat(content: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def behind(*urls: str, **fields: Any) -> dict[str, Any]:
    """A model of the configuration with OpenAI-compatible servers behind it; `backend`: what each has."""
    each = {"kind": "openai_compatible", "model": "upstream", **fields.pop("backend", {})}
    return {"backends": [{**each, "url": url} for url in urls], **fields}


class Door(Server):
    """Started from a configuration that can be changed and read again."""

    def __init__(self, folder: Path, config: dict[str, Any], *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "penstock.yaml"
        self.state = folder / "log.state"
        self.write(config)
        super().__init__(None, "--config", str(self.config), *options, log=folder / "log")

    def write(self, config: dict[str, Any]) -> None:
        self.config.write_text(yaml.safe_dump(config, sort_keys=False))

    def reload(self, config: dict[str, Any] | None = None) -> None:
        """Have it read its configuration again, with this content. It does so on its own time."""
        if config is not None:
            self.write(config)
        self.signal(signal.SIGHUP)

    def key(self, tenant: str = "default", *options: str) -> dict[str, str]:
        """A new key, as the header that carries it."""
        return bearer(self.command("keys", "create", "test", "--tenant", tenant, *options).strip())

    def command(self, *arguments: str) -> str:
        """What `penstock ...` prints, about this server's keys and ledger."""
        done = CliRunner().invoke(app, arguments, env={"PENSTOCK_STATE_DIR": str(self.state)})
        assert done.exit_code == 0, done.output
        return done.stdout

    def usage(self, *arguments: str) -> list[dict[str, Any]]:
        return list(json.loads(self.command("usage", "--json", *arguments))["rows"])

    def billed(self, tenant: str, model: str, *, requests: int) -> dict[str, Any]:
        """The line of `penstock usage` about them, as soon as so many requests are in it."""
        found: list[dict[str, Any]] = []

        def written() -> bool:
            found[:] = self.usage("--tenant", tenant, "--model", model)
            return bool(found) and found[0]["requests"] >= requests

        poll(written)
        [row] = found
        assert row["requests"] == requests
        return row

    def ask(self, model: str | None, key: dict[str, str] | None = None, **fields: Any) -> Reply:
        body = {**HI, **fields} if model is None else {**HI, "model": model, **fields}
        return self.post(CHAT, body, key)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def id_of(key: dict[str, str]) -> str:
    """A key's public part, by which it is revoked."""
    return key["Authorization"].split("-")[2]


TEMPLATE = "{% for message in messages %}{{ message.role[0] }}{{ message.content }};{% endfor %}"


def save_tiny_chat(path: Path) -> Path:
    """A small random llama that can be talked to; each byte is a token, and its context 2,048 of them."""
    save_tiny_llama(path, max_position_embeddings=2048)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({text: i for i, text in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return path
