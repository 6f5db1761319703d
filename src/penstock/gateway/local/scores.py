"""Log-probabilities as clients read them: token ids become text, bytes and ranks."""

from __future__ import annotations

from penstock.engine.request import TokenLogprobs
from penstock.protocol.responses import PromptLogprob, PromptLogprobs
from penstock.protocol.shapes import Position, ScoredToken, finite
from penstock.text.tokenizer import Tokenizer


class Scores:
    """How one answer writes its tokens."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids  # "token_id:5" instead of text, which need not be unique

    def position(self, token: int, scores: TokenLogprobs | None, offset: int, top: int) -> Position:
        """One token with its `top` likeliest alternatives; without scores it is a prompt's first."""
        if scores is None:
            return Position(self._scored(token, None), (), offset)
        likeliest = list(zip(scores.top_ids, scores.top, strict=True))[:top]
        alternatives = [self._scored(other, score) for other, score in likeliest]
        return Position(self._scored(token, scores.chosen), alternatives, offset)

    def prompt_positions(
        self, ids: list[int], scores: list[TokenLogprobs], text: str, top: int
    ) -> list[Position]:
        """The prompt's tokens as `echo` shows them in front of the answer's."""
        texts = [self._tokenizer.token_text(token) for token in ids]
        whole = "".join(texts)
        # Tokens may spell more than the text: a token of its beginning, the space before a first word.
        skipped = len(whole) - len(text) if whole.endswith(text) else 0
        positions, at = [], -skipped
        for token, spelled, each in zip(ids, texts, [None, *scores], strict=True):
            positions.append(self.position(token, each, max(0, at), top))
            at += len(spelled)
        return positions

    def prompt_logprobs(self, ids: list[int], scores: list[TokenLogprobs], top: int) -> PromptLogprobs:
        """In vLLM's shape: token ids to logprob, rank and text; null for the first token."""
        rows: PromptLogprobs = [None]
        for token, each in zip(ids[1:], scores, strict=True):
            row = {
                str(other): PromptLogprob(finite(score), rank, self._tokenizer.token_text(other))
                for rank, (other, score) in enumerate(zip(each.top_ids, each.top, strict=True), 1)
                if rank <= top
            }
            text = self._tokenizer.token_text(token)
            row.setdefault(str(token), PromptLogprob(finite(each.chosen), each.rank, text))
            rows.append(row)
        return rows

    def _scored(self, token: int, logprob: float | None) -> ScoredToken:
        text = f"token_id:{token}" if self._as_ids else self._tokenizer.token_text(token)
        return ScoredToken(text, self._tokenizer.token_bytes(token), logprob)
