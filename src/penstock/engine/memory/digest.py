"""Names of cached prefixes: SHA-256 chains over blocks of token ids, salted per tenant.

A block's digest covers its tokens, all tokens before them and the salt, so equal
digests mean equal prefixes of one tenant. SHA-256 because a collision would hand one
request's context to another.
"""

from __future__ import annotations

from array import array
from hashlib import sha256


def root_digest(salt: str) -> bytes:
    return sha256(b"penstock prefix\0" + salt.encode("utf-8", "surrogatepass")).digest()


def block_digest(parent: bytes, tokens: list[int]) -> bytes:
    return sha256(parent + array("I", tokens).tobytes()).digest()


class DigestChain:
    """Digests of the full blocks of one growing token list, computed once each."""

    __slots__ = ("_block_size", "_root", "digests")

    def __init__(self, root: bytes, block_size: int, digests: list[bytes] | None = None) -> None:
        self._block_size = block_size
        self._root = root
        self.digests: list[bytes] = digests or []

    def extend(self, tokens: list[int], blocks: int | None = None) -> list[bytes]:
        """Digests of all full blocks of `tokens`, which only ever grows; at least of its first `blocks`."""
        size = self._block_size
        parent = self.digests[-1] if self.digests else self._root
        end = len(tokens) if blocks is None else blocks * size
        for start in range(len(self.digests) * size, end - size + 1, size):
            parent = block_digest(parent, tokens[start : start + size])
            self.digests.append(parent)
        return self.digests

    def fork(self, blocks: int) -> DigestChain:
        """A chain for a sequence that shares the first `blocks` blocks and then goes its own way."""
        return DigestChain(self._root, self._block_size, self.digests[:blocks])
