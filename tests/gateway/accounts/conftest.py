"""The accounts' tests open the store's files."""

from tests.gateway.store.conftest import closed_connections

__all__ = ["closed_connections"]
