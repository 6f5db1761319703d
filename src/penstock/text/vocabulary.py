"""What a tokenizer is made of, however the model file spells it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import tokenizers

Spelling = Literal["byte_level", "sentencepiece", "wordpiece"]

# Control tokens that end a turn or a document. Model files often name only one of theirs as "eos".
_END_TOKENS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>",
    "<|end_of_turn|>", "<end_of_turn>", "<turn|>", "<end_of_utterance>", "<|return|>", "<|call|>",
    "<EOT>", "<|eot|>", "<|eom|>", "</s>", "<eos>",
    "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "[EOS]", "[EOT]",
)  # fmt: skip

_TURN_MARKERS = frozenset(_END_TOKENS) | {"<start_of_turn>", "<|im_start|>", "<|start_header_id|>", "<s>"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The parts of one model's tokenizer, ready to use."""

    backend: tokenizers.Tokenizer  # parses special tokens; adds none of its own when asked not to
    spelling: Spelling  # how a vocabulary entry stands for bytes
    special: Mapping[str, int]  # control tokens: never shown, never made from a user's text
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    add_bos: bool  # whether the model expects its begin token before every text
    chat_template: str | None
    named: Mapping[str, str] = field(default_factory=dict)  # "bos_token" and the like, for templates
    # Pre-tokenizer of text behind a control token, where it differs: it puts no space before a first word.
    continued: Any = None
    strips_leading_space: bool = False  # decoding drops the space that encoding put before the first word
    # A model in which no marker can be spelled, where the backend's own could.
    plain_model: Any = None
    unused: frozenset[int] = frozenset()  # ids that only fill the vocabulary up; they stand for no text
    add_eos: bool = False  # whether a text to be encoded as a whole, not continued, ends with the end token


def is_turn_marker(text: str) -> bool:
    """Whether a token marks turns whatever the file calls it: some call Gemma's ordinary."""
    return text in _TURN_MARKERS


def end_ids(known: Iterable[int | None], special: Mapping[str, int]) -> tuple[int, ...]:
    """Every id that ends generation: those the model names, and the control tokens known to mean it."""
    found = dict.fromkeys(token_id for token_id in known if token_id is not None)
    for text in _END_TOKENS:
        # Where a message's channels end with <|end|>, only <|return|> and <|call|> end the turn.
        if text == "<|end|>" and "<|return|>" in special and "<|call|>" in special:
            continue
        if text in special:
            found.setdefault(special[text])
    return tuple(found)
