"""What a client says as text about tokens that may or must be generated, as token ids."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import InvalidRequestError
from penstock.text.tokenizer import Tokenizer

Ids = tuple[int, ...]


def bad_word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[Ids, ...]:
    """Token sequences that must not be generated: each word as it begins a text, and behind a space.

    Two spellings of a word, each as the tokenizer writes it in one go; the same letters put together from
    other tokens are not recognized.
    """
    found: dict[Ids, None] = {}
    for number, word in enumerate(words):
        bare = word.lstrip()
        if not bare:
            raise InvalidRequestError(f"bad_words[{number}] has no word in it.", param="bad_words")
        for spelling in (bare, f" {bare}"):
            found.setdefault(tuple(tokenizer.encode(spelling, add_bos=False)))
    return tuple(found)


def guided_ids(tokenizer: Tokenizer, choices: Sequence[str]) -> tuple[Ids, ...]:
    """The token sequences of which one will be the answer, in the order of the choices."""
    seen: set[str] = set()
    for choice in choices:
        if choice in seen:
            raise InvalidRequestError(
                f"guided_choice has {_shown(choice)} twice; each choice must be there once.",
                param="guided_choice",
            )
        seen.add(choice)
    return tuple(_exactly(tokenizer, choice) for choice in choices)


def _exactly(tokenizer: Tokenizer, text: str) -> Ids:
    """Tokens that spell the text and nothing else: some tokenizers put a space before a first word."""
    ids = tokenizer.encode(text, parse_special=False, add_bos=False)
    wanted = text.encode()
    if _spelled(tokenizer, ids) == wanted:
        return tuple(ids)
    # Behind a line break it is no first word any more.
    ids = tokenizer.encode(f"\n{text}", parse_special=False, add_bos=False)
    while ids and len(_spelled(tokenizer, ids)) > len(wanted):
        del ids[0]
    if not ids or _spelled(tokenizer, ids) != wanted:
        raise InvalidRequestError(
            f"guided_choice has {_shown(text)}, which this model's tokenizer cannot spell exactly.",
            param="guided_choice",
        )
    return tuple(ids)


def _spelled(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(map(tokenizer.token_bytes, ids))


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
