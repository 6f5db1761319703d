"""The alphabet of byte-level BPE: in a vocabulary every byte is written as one printable character."""

from __future__ import annotations


def _alphabet() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 stands for itself, the other bytes follow from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return table


BYTE_OF = _alphabet()


def to_bytes(token: str) -> bytes:
    """The bytes a vocabulary entry stands for; one that is not in the byte alphabet is plain text."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return token.encode("utf-8", errors="replace")
