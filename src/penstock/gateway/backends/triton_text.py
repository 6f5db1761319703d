"""Text for a server that takes and gives text only: prompts rendered here, stop strings found here, tokens
counted by whoever knows them.

The order of trust in counts: what the server says of its own answer, then the model's tokenizer where one
is configured, then `protocol.estimate`.
"""

from __future__ import annotations

from penstock.engine.request import SamplingParams
from penstock.errors import InvalidRequestError
from penstock.protocol.chat import ChatCompletionRequest
from penstock.protocol.common import Input
from penstock.protocol.estimate import Estimate, estimated_tokens
from penstock.protocol.responses import FinishReason
from penstock.protocol.shapes import UsageCount
from penstock.protocol.triton_answer import Piece
from penstock.text.chat import ChatTemplate
from penstock.text.stops import compiled
from penstock.text.tokenizer import Tokenizer


class Prompts:
    """From requests to the text of their prompts."""

    def __init__(self, model: str, tokenizer: Tokenizer | None) -> None:
        self._model = model
        self._tokenizer = tokenizer
        template = tokenizer.chat_template if tokenizer is not None else None
        self._template = None if tokenizer is None or template is None else ChatTemplate(template, tokenizer)

    def of_chat(self, request: ChatCompletionRequest) -> str:
        tokenizer = self._tokenizer
        if tokenizer is None or self._template is None:
            lacks = "no tokenizer" if tokenizer is None else "no chat template in the tokenizer"
            raise InvalidRequestError(
                f"The model {self._model} cannot chat: its server takes plain text, and there is {lacks} "
                "to turn messages into it. Set the model's `tokenizer` in the configuration to files that "
                "have one, or use /v1/completions.",
                code="unsupported_task",
            )
        ids = self._template.encode(request.template_messages(), **request.template_options())
        # The server puts the begin mark in front itself where the model's tokenizer does.
        if tokenizer.bos_token_id is not None and ids[:1] == tokenizer.encode("")[:1]:
            ids = ids[1:]
        text = tokenizer.decode(ids, skip_special=False)
        self._check_control(ids, text, tokenizer)
        return text

    def of_text(self, entry: Input, where: str) -> str:
        if isinstance(entry, str):
            return entry
        if self._tokenizer is None:
            raise InvalidRequestError(
                f"{where} has token ids, but the server of the model {self._model} takes text; send text.",
                param=where,
            )
        return self._tokenizer.decode(entry, skip_special=False)

    def count(self, text: str) -> int:
        """Tokens of a prompt."""
        return estimated_tokens(text) if self._tokenizer is None else len(self._tokenizer.encode(text))

    def count_output(self, text: str) -> int | None:
        """Tokens of a part of an answer; None: there is no tokenizer."""
        if self._tokenizer is None:
            return None
        return len(self._tokenizer.encode(text, parse_special=False, add_bos=False)) if text else 0

    def _check_control(self, ids: list[int], text: str, tokenizer: Tokenizer) -> None:
        """The server reads control tokens out of the text: only the template may have put them there."""
        special = tokenizer.special_ids
        read = tokenizer.encode(text, add_bos=False)
        if [token for token in read if token in special] != [token for token in ids if token in special]:
            raise InvalidRequestError(
                "The messages hold text that this model's server would read as a control token, such as an "
                "end of a turn; remove it.",
                param="messages",
            )


class Output:
    """One answer as it comes. `text` is what the client may see; it ends where a stop string begins."""

    def __init__(
        self,
        params: SamplingParams,
        prompts: Prompts,
        prompt: str,
        prompt_tokens: int,
        *,
        cumulative: bool = False,
    ) -> None:
        self.prompt = prompt
        self.text = ""
        self.tokens = 0
        self.prompt_tokens = prompt_tokens
        self.stop: str | None = None  # the stop string that was found
        self._limit = params.max_tokens
        self._prompts = prompts
        self._cumulative = cumulative
        self._seen = 0  # characters of a cumulative answer that have come before
        self._estimate = Estimate()
        self._reason: str | None = None
        self._stops = compiled(params.stop) if params.stop else None
        self._state = 0
        self._held = ""

    def feed(self, piece: Piece) -> tuple[str, int]:
        """What the client gains: text and tokens. Nothing any more once a stop string was found."""
        if piece.prompt_tokens is not None:
            self.prompt_tokens = piece.prompt_tokens
        self._reason = piece.finish_reason or self._reason
        if self.stop is not None:
            return "", 0
        text = piece.text
        if self._cumulative:
            text, self._seen = text[self._seen :], max(self._seen, len(text))
        tokens = self._count(piece.completion_tokens, text)
        self.tokens += tokens
        shown = self._shown(text)
        self.text += shown
        return shown, tokens

    def close(self) -> str:
        """What was held back in case it became a stop string."""
        rest, self._held = ("", "") if self.stop is not None else (self._held, "")
        self.text += rest
        return rest

    def add_to(self, usage: UsageCount) -> None:
        usage.prompt += self.prompt_tokens
        usage.completion += self.tokens

    @property
    def finish_reason(self) -> FinishReason:
        if self.stop is None and (
            self._reason == "length"
            or (self._reason is None and self._limit is not None and self.tokens >= self._limit)
        ):
            return "length"
        return "stop"

    def _count(self, told: int | None, text: str) -> int:
        counted = self._prompts.count_output(text) if told is None else told
        return self._estimate.add(text) if counted is None else counted

    def _shown(self, text: str) -> str:
        if self._stops is None:
            return text
        self._state, read, self.stop = self._stops.advance(self._state, text)
        whole = self._held + text[:read]
        if self.stop is not None:
            self._held = ""
            return whole[: len(whole) - len(self.stop)]
        kept = self._stops.depth[self._state]
        self._held = whole[len(whole) - kept :]
        return whole[: len(whole) - kept]
