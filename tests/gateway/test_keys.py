"""API keys, without a server."""

from __future__ import annotations

import pytest

from penstock.gateway.keys import ApiKeys
from penstock.protocol.errors import HTTPError


def test_without_keys_everybody_may_call() -> None:
    for header in (None, b"", b"Bearer anything", b"nonsense"):
        ApiKeys(()).check(header)


@pytest.mark.parametrize("header", [b"Bearer one", b"bearer one", b"Bearer two", b"Bearer  one "])
def test_a_configured_key_may_call(header: bytes) -> None:
    ApiKeys(("one", "two")).check(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer three",
        b"Bearer onetwo",
        b"Basic one",
        b"one",
        b"Bearer \xff",
    ],
)
def test_anything_else_is_a_401(header: bytes | None) -> None:
    with pytest.raises(HTTPError) as caught:
        ApiKeys(("one", "two")).check(header)
    assert caught.value.status == 401
    assert "one" not in str(caught.value)


def test_keys_may_have_any_characters() -> None:
    ApiKeys(("schlüssel 🔑",)).check("Bearer schlüssel 🔑".encode())


def test_every_key_is_a_tenant_of_its_own_and_its_name_does_not_give_the_key_away() -> None:
    keys = ApiKeys(("one", "two"))
    tenants = {keys.check(f"Bearer {key}".encode()) for key in ("one", "two", "one")}
    assert len(tenants) == 2
    assert "" not in tenants
    assert not any("one" in tenant or "two" in tenant for tenant in tenants)
    assert ApiKeys(()).check(b"Bearer one") == ApiKeys(()).check(None) == ""
