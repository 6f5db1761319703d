"""Text and token ids: tokenizer, incremental detokenizer with stop strings, chat templates.

Knows vocabularies and templates; must not know torch, scheduling, HTTP or wire formats.
Everything read from a model file, its template above all, is untrusted.
"""

from penstock.text.chat import RESERVED_KWARGS, ChatTemplate
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer

__all__ = ["RESERVED_KWARGS", "ChatTemplate", "TextStream", "Tokenizer"]
