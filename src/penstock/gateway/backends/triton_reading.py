"""From a request's body to what a server that takes text is sent, once however often the request is tried."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.gateway.apart import INLINE_BYTES, Readers
from penstock.gateway.backends.triton_text import Prompts
from penstock.protocol.chat import ChatCompletionRequest, parse_chat
from penstock.protocol.completion import CompletionRequest, parse_completion
from penstock.protocol.embeddings import EmbeddingRequest, parse_embeddings
from penstock.text.tokenizer import Tokenizer

MAX_KEPT: Final = 16  # long bodies, for requests that failed and may be tried with another replica


@dataclass(frozen=True, slots=True)
class Reading:
    """A request, and its prompts, each with the number of its tokens."""

    request: ChatCompletionRequest | CompletionRequest | EmbeddingRequest
    prompts: list[tuple[str, int]]


class Readings:
    """Rendering and counting a long prompt takes seconds: in a thread, and not again at each try."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._readers = Readers()
        self._kept: OrderedDict[tuple[str, bytes], Reading] = OrderedDict()

    async def read(self, operation: str, body: bytes) -> Reading:
        found = self._kept.get((operation, body)) if len(body) > INLINE_BYTES else None
        if found is None:
            found = await self._readers.read(len(body), lambda: _READ[operation](self._prompts, body))
            if len(body) > INLINE_BYTES:
                self._kept[operation, body] = found
                while len(self._kept) > MAX_KEPT:
                    self._kept.popitem(last=False)
        return found

    def forget(self, operation: str, body: bytes) -> None:
        """It will not be tried again."""
        if len(body) > INLINE_BYTES:
            self._kept.pop((operation, body), None)


@lru_cache(maxsize=8)
def shared_readings(model: str, tokenizer: Tokenizer | None) -> tuple[Prompts, Readings]:
    """Those of a model, for all its replicas."""
    prompts = Prompts(model, tokenizer)
    return prompts, Readings(prompts)


def _chat(prompts: Prompts, body: bytes) -> Reading:
    request = parse_chat(body)
    return _counted(request, prompts, [prompts.of_chat(request)])


def _completion(prompts: Prompts, body: bytes) -> Reading:
    request = parse_completion(body)
    return _counted(request, prompts, [prompts.of_text(entry, "prompt") for entry in request.prompts()])


def _embeddings(prompts: Prompts, body: bytes) -> Reading:
    request = parse_embeddings(body)
    return _counted(request, prompts, [prompts.of_text(entry, where) for where, entry in request.inputs()])


def _counted(
    request: ChatCompletionRequest | CompletionRequest | EmbeddingRequest, prompts: Prompts, texts: list[str]
) -> Reading:
    return Reading(request, [(text, prompts.count(text)) for text in texts])


_READ: Final[dict[str, Callable[[Prompts, bytes], Reading]]] = {
    "createChatCompletion": _chat,
    "createCompletion": _completion,
    "createEmbedding": _embeddings,
}
