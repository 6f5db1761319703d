"""One choice of an answer, from the engine's events to text: what to show, and when it is over."""

from __future__ import annotations

from penstock.engine.request import FinishReason, SamplingParams, TokenEvent, TokenLogprobs
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer


class Choice:
    """Fed the engine's events until `finish_reason` is set.

    The engine ends a choice on token ids and lengths; stop strings are found here, and then the
    engine must be told to stop (`cut` is True).
    """

    def __init__(self, index: int, tokenizer: Tokenizer, params: SamplingParams) -> None:
        self.index = index
        self.token_ids: list[int] = []  # everything generated, the token that ended it included
        self.logprobs: list[TokenLogprobs] = []  # of the tokens that are shown
        self.shown_ids: list[int] = []
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None  # the client's own stop token or string that ended it
        self._params = params
        self._stream = TextStream(tokenizer, params)

    def __repr__(self) -> str:
        return f"Choice(index={self.index}, text={self.text!r}, finish_reason={self.finish_reason!r})"

    @property
    def text(self) -> str:
        return self._stream.text

    @property
    def cut(self) -> bool:
        """Whether a stop string ended it, which the engine cannot know."""
        return self._stream.stopped is not None

    def take(self, event: TokenEvent) -> str:
        """The text that this event adds. Tokens after the end are ignored."""
        if self.finish_reason is not None:
            return ""
        added = ""
        for number, token in enumerate(event.token_ids):
            self.token_ids.append(token)
            last = number == len(event.token_ids) - 1
            if last and token == event.stop_token and not self._shows(token):
                break
            self.shown_ids.append(token)
            self.logprobs.extend(event.logprobs[number : number + 1])
            added += self._stream.push(token)
            if self._stream.stopped is not None:
                self.finish_reason, self.stop_reason = "stop", self._stream.stopped
                return added
        if event.finish_reason is not None:
            added += self._stream.finish()
            self.finish_reason = event.finish_reason
            if event.stop_token in self._params.stop_token_ids:
                self.stop_reason = event.stop_token
        return added

    def _shows(self, token: int) -> bool:
        """A stop token of the client's own choosing is shown if stops are to be included."""
        return self._params.include_stop_str_in_output and token in self._params.stop_token_ids
