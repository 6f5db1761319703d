"""Asking one model on a Triton server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator

import msgspec

from penstock.engine.request import SamplingParams
from penstock.gateway.backends import BackendError
from penstock.gateway.backends.relay_errors import Words, failed
from penstock.gateway.backends.server import MAX_ANSWER_BYTES, MAX_ERROR_BYTES
from penstock.gateway.backends.triton_options import TritonOptions
from penstock.gateway.upstream import Origin, Response
from penstock.protocol.foreign import ForeignAnswerError
from penstock.protocol.sse_reader import EventError, EventReader
from penstock.protocol.triton_answer import Piece, read_generated, read_inferred, refusal
from penstock.protocol.triton_model import TritonModel, ensemble_steps, read_model
from penstock.protocol.triton_request import generate_request, infer_request, model_path


class TritonClient:
    """`learned` is what its configuration says, once that has been read."""

    def __init__(self, origin: Origin, headers: bytes, model: str, options: TritonOptions) -> None:
        self.learned: TritonModel | None = None
        self._origin = origin
        self._headers = headers
        self._model = model
        self._options = options
        self._learning = asyncio.Lock()

    async def learn(self) -> TritonModel:
        """The model's configuration; asked for once, until `forget`."""
        async with self._learning:
            if self.learned is None:
                config = await self._config(self._model, self._options.version)
                steps = {name: await self._config(name, None) for name in ensemble_steps(config)}
                self.learned = read_model(config, steps)
            return self.learned

    def forget(self) -> None:
        """A server that was gone may come back with another configuration."""
        self.learned = None

    async def whole(self, text: str, params: SamplingParams, context: bytes = b"") -> Piece:
        """All of the answer. A prompt that comes back in front of it is taken off. `context`: further header
        lines, here and below."""
        model, options = await self.learn(), self._options
        if options.endpoint == "infer":
            data = await self.infer(infer_request(model, options.names, text, params), context)
            piece = read_inferred(data, options.names)
        else:
            request = generate_request(model, options.names, text, params, stream=False)
            piece = read_generated(await self._post("generate", request, context), options.names)
        echoes = model.echoes if options.prompt_in_output is None else options.prompt_in_output
        return dataclasses.replace(piece, text=piece.text.removeprefix(text)) if echoes else piece

    async def pieces(
        self, text: str, params: SamplingParams, context: bytes = b""
    ) -> AsyncGenerator[Piece, None]:
        """The answer as it comes. Close the iterator: that hangs up, and the server stops computing."""
        if self._options.endpoint == "infer":
            yield await self.whole(text, params, context)
            return
        model, names = await self.learn(), self._options.names
        request = generate_request(model, names, text, params, stream=True)
        reader, any_came = EventReader(), False
        with await self._open("generate_stream", msgspec.json.encode(request), context) as response:
            async for data in response:
                try:
                    events = reader.feed(data)
                except EventError as error:
                    raise ForeignAnswerError(str(error)) from None
                for event in events:
                    any_came = True
                    yield read_generated(event.data, names)
            # Nothing marks the end of the stream but the end of its body.
            if not any_came or reader.pending:
                raise ForeignAnswerError("The server's stream ended before its answer did.")

    async def infer(self, request: object, context: bytes = b"") -> bytes:
        return await self._post("infer", request, context)

    async def _post(self, action: str, request: object, context: bytes) -> bytes:
        with await self._open(action, msgspec.json.encode(request), context) as response:
            return await response.read(MAX_ANSWER_BYTES)

    async def _open(self, action: str, body: bytes, context: bytes) -> Response:
        """Send it; what is not 200 is raised."""
        path = model_path(self._model, self._options.version, action)
        response = await self._origin.request(b"POST", path, self._headers + context, body)
        if response.status == 200:
            return response
        with response:
            said = refusal(await response.read(MAX_ERROR_BYTES))
        raise failed(response.status, Words(said), {}, response.header(b"retry-after"))

    async def _config(self, model: str, version: str | None) -> bytes:
        path = model_path(model, version, "config")
        with await self._origin.request(b"GET", path, self._headers) as response:
            data = await response.read(MAX_ANSWER_BYTES)
        if response.status != 200:
            raise BackendError(
                "The server behind this model does not show the model's configuration "
                f"(status {response.status}); whoever runs the gateway must check the backend's model."
            )
        return data
