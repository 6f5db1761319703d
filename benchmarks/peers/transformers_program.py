"""`transformers serve` with continuous batching, for the load generator: `python ... FOLDER HOST PORT`.

Its completions take text only, refuse `ignore_eos` and end a stream without [DONE]. What stands in front of
them here, in the same process, makes text of token ids that is as many tokens long, and adds that line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tokenizers import Tokenizer
from transformers.cli import serve
from transformers.cli.serving import server

BLOCKS = 128  # of 256 tokens: 1.5 GB for this model, ample for W2; by default it takes most of the memory
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Translated:
    def __init__(self, app: Any, tokenizer: Tokenizer) -> None:
        self._app = app
        self._tokenizer = tokenizer

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/v1/completions":
            await self._app(scope, receive, send)
            return
        body = await whole(receive)
        asked = json.loads(body)
        asked.pop("ignore_eos", None)
        if isinstance(asked.get("prompt"), list):
            asked["prompt"] = self.text(asked["prompt"])
        body = json.dumps(asked).encode()
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Message:
            return next(given, None) or await receive()

        async def ended(message: Message) -> None:
            if (
                message["type"] == "http.response.body"
                and not message.get("more_body")
                and asked.get("stream")
            ):
                message = {**message, "body": message.get("body", b"") + b"data: [DONE]\n\n"}
            await send(message)

        await self._app(scope, again, ended)

    def text(self, ids: list[int]) -> str:
        """Random ids, written out and read again, are not as many: cut or filled at the end."""
        read = self._tokenizer.encode(self._tokenizer.decode(ids), add_special_tokens=False).ids
        text = self._tokenizer.decode(read[: len(ids)])
        while len(self._tokenizer.encode(text, add_special_tokens=False).ids) < len(ids):
            text += " a"
        return str(text)


async def whole(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def main() -> None:
    folder, host, port = sys.argv[1:]
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    build = server.build_server
    server.build_server = lambda *given, **named: Translated(build(*given, **named), tokenizer)
    serve.Serve(
        force_model=folder,
        continuous_batching=True,
        cb_num_blocks=BLOCKS,
        device="cpu",
        dtype="float32",
        host=host,
        port=int(port),
    )


main()
