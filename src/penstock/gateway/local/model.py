"""The served model as the front door sees it: its names, its tokenizer, its chat template."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from penstock import __version__
from penstock.engine.config import EngineInfo, Task
from penstock.errors import ContextLengthError, InvalidRequestError
from penstock.gateway.apart import Readers, apart
from penstock.protocol.responses import Model
from penstock.text.chat import ChatTemplate
from penstock.text.reading import Reader
from penstock.text.reasoning import find_family
from penstock.text.tokenizer import Tokenizer

T = TypeVar("T")


class ServedModel:
    def __init__(
        self,
        names: tuple[str, ...],
        tokenizer: Tokenizer,
        info: EngineInfo,
        reasoning_parser: str = "auto",
    ) -> None:
        self.names = names
        self.info = info
        self.tokenizer = tokenizer
        self.context = info.max_model_len  # tokens
        self.tasks = info.tasks
        self.max_running = info.max_running
        self.block_size = info.block_size
        self.embedding_size = info.embedding_size
        self.reads_pairs = info.pooling == "score"  # a cross-encoder: two texts in, their score out
        self.reader = Reader(tokenizer, info.max_model_len)
        # The engine's table decides: a tokenizer may know ids that the model has no row for.
        self.vocab_size = info.vocab_size
        self.created = int(time.time())
        self.fingerprint = _fingerprint(names[0], info)
        longest = max(len(tokenizer.token_bytes(token)) for token in range(tokenizer.vocab_size))
        # Twice what the longest token could fill: normalizing and templates may shorten a text.
        self._max_characters = 2 * longest * self.context
        self._template = ChatTemplate(tokenizer.chat_template, tokenizer)
        # How the model marks its reasoning; None: it has none, or it is left in the text.
        self.reasoning = find_family(reasoning_parser, tokenizer.chat_template)
        self._readers = Readers()
        self._writers = ThreadPoolExecutor(max_workers=1, thread_name_prefix="write")

    def check_task(self, task: Task) -> None:
        """Refuse what this kind of model cannot do, with what it can."""
        if task in self.tasks:
            return
        name = self.names[0]
        if "generate" in self.tasks:
            message = f"{name} is a chat model; start it with --pooling mean (or last) to serve embeddings."
        elif self.reads_pairs:
            message = (
                f"{name} is a cross-encoder: it scores pairs of texts (/v1/rerank, /v1/score) and gives "
            )
            message += "no embeddings." if task == "embed" else "no text."
        else:
            message = (
                f"{name} gives embeddings and scores (/v1/embeddings, /v1/rerank, /v1/score) and no text."
            )
        raise InvalidRequestError(message, param="model", code="unsupported_task")

    def describe(self) -> list[Model]:
        return [
            Model(
                id=name,
                created=self.created,
                max_model_len=self.context,
                root=self.names[0],
                tasks=list(self.tasks),
            )
            for name in self.names
        ]

    def check_characters(self, text: str | list[dict[str, Any]], where: str) -> None:
        """Refuse at once what cannot fit the context however it is tokenized; that may take seconds."""
        if "generate" not in self.tasks:
            return  # an encoder's tokenizer may make one token of a word of any length
        characters = _characters(text)
        if characters > self._max_characters:
            raise ContextLengthError(
                f"{where} has {characters} characters, which cannot fit the model's context of "
                f"{self.context} tokens. Shorten the prompt.",
                param=where,
            )

    def check_messages(self, count: int) -> None:
        """Every message takes a token at least; an empty one has no characters, but must be rendered."""
        if count >= self.context:
            raise ContextLengthError(
                f"messages has {count} messages, which cannot fit the model's context of "
                f"{self.context} tokens. Shorten the conversation.",
                param="messages",
            )

    def encode_prompt(self, text: str, *, special: bool | None = None) -> list[int]:
        """As the model's main task reads a text; `special` False leaves away what it puts around it."""
        if "generate" not in self.tasks and special is not False:
            return self.tokenizer.encode_pair(text)[0]
        return self.tokenizer.encode(text, add_bos=special)

    def encode_chat(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> list[int]:
        return self._template.encode(messages, **options)

    async def apart(self, size: int, work: Callable[[], T]) -> T:
        """Read a body of `size` bytes with `work`: in a thread, unless it is small."""
        return await self._readers.read(size, work)

    async def written(self, size: int, work: Callable[[], T]) -> T:
        """Write an answer of about `size` bytes with `work`: in a thread, unless it is small.

        Never refused, as what it says has been computed. Others run between the steps of `work`, so none
        of them should be long.
        """
        return await apart(self._writers, size, work)


def _characters(value: Any) -> int:
    """Of all text in plain data: a template may print any of it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _characters(item) for key, item in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def _fingerprint(name: str, info: EngineInfo) -> str:
    """Changes when the same seed may give another answer: other weights, precision, device or version."""
    parts = (__version__, name, info.architecture, info.quantization, info.precision, info.device)
    return "fp_" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:10]
