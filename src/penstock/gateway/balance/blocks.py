"""Names of a prompt's beginnings, by which replicas that have them cached are found again.

The chain is the engine's: where block size and salt are the same, these are digests of its prefix
tree. A server whose tokenizer is not known gets the same chain over the prompt's UTF-8 bytes.
"""

from __future__ import annotations

from hashlib import sha256

from penstock.engine.memory.digest import block_digest, root_digest

MAX_BLOCKS = 1024  # hashed of one prompt: 16,384 tokens in blocks of 16
BYTES_PER_BLOCK = 256  # about four of the engine's blocks
# Every block of the first few is named, later ones ever further apart: a chain's digest covers all
# before it, and a prompt of a thousand blocks need not have a thousand names.
_ALL_OF_FIRST = 16


def _named(limit: int) -> frozenset[int]:
    """How many blocks the prefixes have that get a name."""
    lengths, length = [], 1
    while length <= limit:
        lengths.append(length)
        length += 1 if length < _ALL_OF_FIRST else length // 8
    return frozenset(lengths)


_NAMED = _named(MAX_BLOCKS)


def token_digests(tokens: list[int], block_size: int, salt: str) -> list[bytes]:
    """Digests of prefixes of whole blocks of token ids, the shortest first."""
    parent, digests = root_digest(salt), []
    for number in range(1, min(len(tokens) // block_size, MAX_BLOCKS) + 1):
        parent = block_digest(parent, tokens[(number - 1) * block_size : number * block_size])
        if number in _NAMED:
            digests.append(parent)
    return digests


def byte_digests(text: bytes, salt: str) -> list[bytes]:
    """Digests of prefixes of whole blocks of bytes, the shortest first."""
    parent, digests = root_digest(salt), []
    for number in range(1, min(len(text) // BYTES_PER_BLOCK, MAX_BLOCKS) + 1):
        parent = sha256(parent + text[(number - 1) * BYTES_PER_BLOCK : number * BYTES_PER_BLOCK]).digest()
        if number in _NAMED:
            digests.append(parent)
    return digests
