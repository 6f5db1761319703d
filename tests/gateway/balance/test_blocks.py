"""Names of prompts' beginnings."""

from __future__ import annotations

from random import Random

import pytest

from penstock.engine.memory.digest import DigestChain, root_digest
from penstock.gateway.balance import byte_digests, token_digests
from penstock.gateway.balance.blocks import BYTES_PER_BLOCK, MAX_BLOCKS

TOKENS = [Random(3).randrange(50_000) for _ in range(16 * 400)]


def test_a_name_is_a_digest_of_the_engines_chain() -> None:
    engine = DigestChain(root_digest("salt"), 16).extend(TOKENS)
    names = token_digests(TOKENS, 16, "salt")
    assert names[:16] == engine[:16]
    places = [engine.index(name) for name in names]
    assert places == sorted(set(places))


@pytest.mark.parametrize("shared", [0, 1, 5, 16, 100, 399])
def test_prompts_share_the_names_of_what_they_share(shared: int) -> None:
    other = [*TOKENS[: shared * 16], *(token + 1 for token in TOKENS[shared * 16 :])]
    mine, theirs = token_digests(TOKENS, 16, ""), token_digests(other, 16, "")
    same = [a == b for a, b in zip(mine, theirs, strict=True)]
    assert same == sorted(same, reverse=True)
    named = sum(same)
    assert named == len(token_digests(TOKENS[: shared * 16], 16, ""))
    assert named >= min(shared, 16)


def test_only_whole_blocks_have_names() -> None:
    assert token_digests(TOKENS[:15], 16, "") == []
    assert len(token_digests(TOKENS[:47], 16, "")) == 2
    assert byte_digests(b"x" * (BYTES_PER_BLOCK - 1), "") == []


def test_another_tenants_prompts_have_other_names() -> None:
    assert not set(token_digests(TOKENS, 16, "a")) & set(token_digests(TOKENS, 16, "b"))
    assert not set(byte_digests(b"x" * 4096, "a")) & set(byte_digests(b"x" * 4096, "b"))


def test_bytes_share_the_names_of_what_they_share() -> None:
    first, second = (("grüezi " * 200 + tail * 200).encode() for tail in ("alice ", "bob "))
    mine, theirs = byte_digests(first, ""), byte_digests(second, "")
    same = sum(a == b for a, b in zip(mine, theirs, strict=False))
    assert same == 200 * 8 // BYTES_PER_BLOCK


def test_the_names_of_an_endless_prompt_are_few() -> None:
    longest = token_digests([1] * 16 * MAX_BLOCKS, 16, "")
    assert token_digests([1] * 16 * 3 * MAX_BLOCKS, 16, "") == longest
    assert len(longest) < 64
    assert len(byte_digests(b"x" * 10_000_000, "")) == len(longest)
