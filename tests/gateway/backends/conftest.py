"""On the loop that serves: backends lean on what uvloop's transports do."""

from __future__ import annotations

from tests.gateway.upstream.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
