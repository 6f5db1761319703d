"""Cached prefixes are named by SHA-256 chains, salted per tenant."""

from __future__ import annotations

from hashlib import sha256

from penstock.engine.memory.digest import DigestChain, block_digest, root_digest


def chain(salt: str, block_size: int) -> DigestChain:
    return DigestChain(root_digest(salt), block_size)


def test_a_digest_is_sha_256_of_the_parent_digest_and_the_tokens() -> None:
    def packed(tokens: list[int]) -> bytes:
        return b"".join(token.to_bytes(4, "little") for token in tokens)

    root = root_digest("acme")
    first = sha256(root + packed([1, 2])).digest()
    second = sha256(first + packed([3, 2**32 - 1])).digest()
    assert chain("acme", 2).extend([1, 2, 3, 2**32 - 1]) == [first, second]


def test_only_full_blocks_have_a_digest() -> None:
    digests = chain("", 4)
    assert digests.extend([1, 2, 3]) == []
    assert len(digests.extend([1, 2, 3, 4, 5, 6, 7])) == 1
    assert len(digests.extend([1, 2, 3, 4, 5, 6, 7, 8])) == 2


def test_growing_token_by_token_names_the_same_blocks_as_all_at_once() -> None:
    tokens = list(range(23))
    slowly = chain("", 4)
    for end in range(1, len(tokens) + 1):
        slowly.extend(tokens[:end])
    assert slowly.digests == chain("", 4).extend(tokens)


def test_equal_blocks_after_different_prefixes_have_different_digests() -> None:
    assert chain("", 2).extend([1, 2, 9, 9])[1] != chain("", 2).extend([3, 4, 9, 9])[1]


def test_how_tokens_fall_into_blocks_matters() -> None:
    assert block_digest(root_digest(""), [1, 2]) != block_digest(block_digest(root_digest(""), [1]), [2])


def test_tenants_share_no_digest() -> None:
    salts = ["", "a", "b", "ab", "a\0b", "\ud800", "tenant-é"]
    firsts = {chain(salt, 2).extend([1, 2])[0] for salt in salts}
    assert len(firsts) == len(salts)


def test_a_forked_chain_shares_the_beginning_and_goes_its_own_way() -> None:
    origin = chain("", 2)
    origin.extend([1, 2, 3, 4, 5, 6])
    fork = origin.fork(1)
    assert fork.extend([1, 2, 7, 8]) == chain("", 2).extend([1, 2, 7, 8])
    assert origin.digests == chain("", 2).extend([1, 2, 3, 4, 5, 6])


def test_a_chain_forked_from_an_empty_one_is_its_own() -> None:
    origin = chain("", 2)
    fork = origin.fork(0)
    fork.extend([1, 2])
    assert origin.digests == []
