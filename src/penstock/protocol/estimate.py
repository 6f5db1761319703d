"""How many tokens a text has when nobody has said so.

The one place of this guess. It is used for servers that report no counts: before a request is sent, and
for what was delivered of a stream whose own count never came because the client left or the server
failed. A count that a server or a tokenizer gives always replaces it.
"""

from __future__ import annotations

# Tokens of prompt and answer of a usual request, by which prices are compared.
USUAL_PROMPT, USUAL_OUTPUT = 500, 300
BYTES_PER_TOKEN = 4  # of UTF-8; about right for English, and a little low for most other languages


class Estimate:
    """Tokens of a text that arrives in pieces: the same whole, however it is cut."""

    __slots__ = ("_bytes", "tokens")

    def __init__(self) -> None:
        self._bytes = 0
        self.tokens = 0

    def add(self, text: str) -> int:
        """How many tokens `text` adds."""
        self._bytes += len(text.encode("utf-8", "surrogatepass"))
        before, self.tokens = self.tokens, -(-self._bytes // BYTES_PER_TOKEN)
        return self.tokens - before


def estimated_tokens(text: str) -> int:
    return Estimate().add(text)
