"""How families of byte-level BPE models cut text into words before merging, by their GGUF names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import pre_tokenizers

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _cl100k(digits: str, letters: str = r"\p{L}", others: str = r"[^\s\p{L}\p{N}]") -> str:
    """The shape of GPT-4's pattern, which most models since have changed in a detail or two."""
    return (
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?[{letters}]+|{digits}"
        rf"| ?{others}+[\r\n]*|{_SPACES}"
    )  # fmt: skip


def _o200k(digits: str, contraction: str) -> str:
    """The shape of GPT-4o's: words also end where capitals follow small letters."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    return (
        rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{contraction}"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{contraction}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


_LLAMA3 = _cl100k(r"\p{N}{1,3}")
_QWEN2 = _cl100k(r"\p{N}")
_GROUPED_DIGITS = r"\d{1,3}(?=(?:\d{3})*\b)"  # by threes, counted from the end
_GPT4O = _o200k(r"\p{N}{1,3}", f"{_CONTRACTION}?")
_DEEPSEEK_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
# Ranges as the model's own tokenizer has them; they stand for letters with a case.
_CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_CJK = "[一-龥ࠀ-一가-퟿]+"
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_BLOOM = r" ?[^(\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True, slots=True)
class Style:
    """How a family of models cuts text into words before merging."""

    patterns: tuple[str, ...]  # each cuts further what the ones before it left, matched or not
    whole_words: bool = False  # a word that is in the vocabulary is taken whole, whatever the merges say
    nfc: bool = False
    add_bos: bool = False  # unless the file says otherwise


_WORDS = Style((_GPT2,))
_WORDS_AND_DIGITS = Style((r"\p{N}", _GPT2))
_THREE_DIGITS = Style((_LLAMA3,))
_LLAMA = Style((_LLAMA3,), whole_words=True, add_bos=True)
_QWEN = Style((_QWEN2,), nfc=True)
_CAPITALS = Style((_GPT4O,))
_DEEPSEEK3 = Style((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK_WORDS))
# What llama.cpp does with a file that does not say; such files come from converters that did not know.
_UNSAID = Style((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

STYLES: dict[str, Style] = {
    "default": _UNSAID,
    # GPT-2's own
    "gpt-2": _WORDS,
    "phi-2": _WORDS,
    "jais": _WORDS,
    "trillion": _WORDS,
    "granite-docling": _WORDS,
    "exaone4": _WORDS,
    "a.x-4.0": _WORDS,
    "gigachat": _WORDS,
    "mellum": _WORDS,
    "modern-bert": _WORDS,
    "roberta-bpe": _WORDS,
    "jina-v1-en": _WORDS,
    "jina-v2-code": _WORDS,
    "jina-v2-de": _WORDS,
    "jina-v2-es": _WORDS,
    "mpt": replace(_WORDS, nfc=True),
    "olmo": replace(_WORDS, nfc=True),
    # GPT-2's, digits one by one
    "refact": _WORDS_AND_DIGITS,
    "smollm": _WORDS_AND_DIGITS,
    "starcoder": _WORDS_AND_DIGITS,
    "codeshell": _WORDS_AND_DIGITS,
    "exaone": _WORDS_AND_DIGITS,
    "mellum2": _WORDS_AND_DIGITS,
    "minerva-7b": _WORDS_AND_DIGITS,
    "command-r": replace(_WORDS_AND_DIGITS, nfc=True),
    "falcon": Style((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    # GPT-4's, digits by threes
    "llama-bpe": _LLAMA,
    "llama-v3": _LLAMA,
    "llama3": _LLAMA,
    "falcon3": _LLAMA,
    "falcon-h1": _LLAMA,
    "lfm2": _LLAMA,
    "midm-2.0": _LLAMA,
    "pixtral": _LLAMA,
    "dbrx": _THREE_DIGITS,
    "smaug-bpe": _THREE_DIGITS,
    "chatglm-bpe": _THREE_DIGITS,
    "glm4": replace(_THREE_DIGITS, whole_words=True),
    "glm5": replace(_THREE_DIGITS, whole_words=True),
    "minicpm5": Style((r"\p{N}{1,3}", _cl100k(r"\p{N}+")), whole_words=True),
    # GPT-4's, digits one by one
    "qwen2": _QWEN,
    "deepseek-r1-qwen": _QWEN,
    "kormo": _QWEN,
    "megrez": _QWEN,
    "stablelm2": replace(_QWEN, nfc=False),
    "hunyuan": replace(_QWEN, nfc=False),
    "grok-2": replace(_QWEN, nfc=False),
    "solar-open": replace(_QWEN, nfc=False),
    "qwen35": Style((_cl100k(r"\p{N}", r"\p{L}\p{M}", r"[^\s\p{L}\p{M}\p{N}]"),), nfc=True),
    "seed-coder": Style((
        rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",
    )),
    "bailingmoe": Style((_BAILING,)),
    "bailingmoe2": Style((_BAILING,)),
    "llada-moe": Style((_BAILING,)),
    # GPT-4o's
    "gpt-4o": _CAPITALS,
    "llama4": _CAPITALS,
    "kanana2": _CAPITALS,
    "minimax-m2": _CAPITALS,
    "cohere2moe": Style((_GROUPED_DIGITS, _GPT4O)),
    "tiny_aya": Style((_GROUPED_DIGITS, _GPT4O)),
    "tekken": Style((_o200k(r"\p{N}", ""),), whole_words=True, add_bos=True),
    # DeepSeek's
    "deepseek-llm": Style((
        "[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _CJK, r"\p{N}+",
    )),
    "deepseek-coder": Style((
        "[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}",
    )),
    "deepseek-v3": _DEEPSEEK3,
    "hunyuan-dense": _DEEPSEEK3,
    "joyai-llm": _DEEPSEEK3,
    # BLOOM's
    "bloom": Style((_BLOOM,)),
    "poro-chat": Style((_BLOOM,)),
    "gpt3-finnish": Style((_BLOOM,)),
    "viking": Style((_BLOOM, r"\p{N}")),
}  # fmt: skip


def pre_tokenizer(style: Style) -> pre_tokenizers.PreTokenizer:
    from tokenizers import Regex, pre_tokenizers

    cuts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in style.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, to_bytes])
