"""Which language a question is in, as far as its letters and commonest words tell. Pure, and quick."""

from __future__ import annotations

import re
from typing import Final

_READ: Final = 600  # characters that are looked at
_WORDS: Final = re.compile(r"[^\W\d_]+")
# Scripts that belong to one language here, by the first and last letter of a block.
_SCRIPTS: Final = (
    ("ko", "\uac00", "\ud7a3"),
    ("ja", "\u3040", "\u30ff"),
    ("zh", "\u4e00", "\u9fff"),
    ("ru", "\u0400", "\u04ff"),
    ("ar", "\u0600", "\u06ff"),
    ("he", "\u0590", "\u05ff"),
    ("hi", "\u0900", "\u097f"),
    ("th", "\u0e00", "\u0e7f"),
    ("el", "\u0370", "\u03ff"),
)
_COMMON: Final = {
    "en": "the of and to in is what how why who when where which does do are was for with that it you my can",
    "de": "der die das und ist nicht was wie warum wer wann wo welche ein eine ich du sie mit für von zu auf",
    "fr": "le la les et est que qui quoi comment pourquoi quand où quel quelle un une des du je vous avec",
    "es": "el la los las y es qué que cómo por quién cuándo dónde cuál un una de en para con mi del está son",
    "it": "il lo la gli e è che cosa come perché chi quando dove quale un una di in per con mi si del sono",
    "pt": "o a os as e é que como por quem quando onde qual um uma de em para com meu se do da são não",
    "nl": "de het een en is niet wat hoe waarom wie wanneer waar welke ik je met voor van te op dat zijn",
    "pl": "i w na jest nie co jak dlaczego kto kiedy gdzie który się z do że to są czy",
    "tr": "ve bir bu ne nasıl neden kim zaman nerede hangi için ile mi mı değil olan çok",
}
_OF_WORD: Final[dict[str, tuple[str, ...]]] = {}
for _code, _line in _COMMON.items():
    for _word in _line.split():
        _OF_WORD[_word] = (*_OF_WORD.get(_word, ()), _code)


def language(text: str) -> str:
    """Its code, such as `en`, or nothing where one cannot tell: numbers, code, a word or two."""
    text = text[:_READ].lower()
    letters = sum(map(str.isalpha, text))
    if not letters:
        return ""
    if not text.isascii():
        for code, first, last in _SCRIPTS:
            found = sum(first <= letter <= last for letter in text)
            # Japanese mixes its own letters into many that are also Chinese.
            if found > letters * (0.1 if code == "ja" else 0.4):
                return code
    votes: dict[str, float] = {}
    for word in _WORDS.findall(text):
        codes = _OF_WORD.get(word, ())
        for code in codes:
            votes[code] = votes.get(code, 0.0) + 1 / len(codes)
    if not votes:
        return ""
    best, second = sorted([*votes.values(), 0.0], reverse=True)[:2]
    return max(votes, key=votes.__getitem__) if best >= 1.5 and best >= 1.3 * second else ""
