"""Secure connections, with a certificate that only this test trusts."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from penstock.gateway.upstream import Origin, UpstreamError
from tests.gateway.upstream.raw import RawServer, always, chunked

CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"  # for "localhost", signed by itself


def serving() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


async def test_a_trusted_server_is_asked_over_one_kept_connection() -> None:
    async with RawServer(always(chunked(b"secret", b"ly")), tls=serving()) as server:
        origin = Origin(server.url, tls=ssl.create_default_context(cafile=str(CERTIFICATE)))
        for _ in range(2):
            with await origin.request(b"GET", b"/") as response:
                assert await response.read(100) == b"secretly"
        assert server.connections == 1
        origin.close()


async def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    async with RawServer(always(chunked(b"x")), tls=serving()) as server:
        with pytest.raises(UpstreamError) as caught:
            await Origin(server.url).request(b"GET", b"/")
        assert caught.value.kind == "tls"
        assert "CERTIFICATE_VERIFY_FAILED" in caught.value.detail
    assert not server.requests


async def test_a_certificate_for_another_name_is_refused() -> None:
    async with RawServer(always(chunked(b"x")), tls=serving()) as server:
        trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
        with pytest.raises(UpstreamError) as caught:
            await Origin(server.url.replace("localhost", "127.0.0.1"), tls=trusting).request(b"GET", b"/")
        assert caught.value.kind == "tls"
    assert not server.requests
