"""Kinds of servers: those that can be configured are those that can be spoken to."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.config import BackendConfig
from penstock.config.sections import BACKEND_KINDS
from penstock.errors import ConfigError
from penstock.gateway.backends.registry import SERVERS, check


def test_every_kind_that_can_be_configured_can_be_spoken_to_and_the_other_way_round() -> None:
    assert {"engine", *SERVERS} == set(BACKEND_KINDS)
    assert "engine" not in SERVERS  # it is built where it is started


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_wrong_options_are_found_without_building_anything(kind: str) -> None:
    check(BackendConfig(name="b", kind=kind, url="http://localhost:1"))
    with pytest.raises(ConfigError, match="backend 'b'"):
        check(BackendConfig(name="b", kind=kind, options={"no_such": 1}))


@pytest.mark.parametrize(
    ("kind", "options", "match"),
    [
        ("vllm", {"health": "/ü"}, "must begin with a slash"),
        ("vllm", {"prefix": "/a b"}, "must begin with a slash"),
        ("vllm", {"operations": ["chat"]}, "there are createChatCompletion"),
        ("triton", {"metrics_url": "localhost:8002"}, "metrics_url.*has no scheme"),
        ("triton", {"metrics_url": ""}, "metrics_url"),
        ("anthropic", {"max_tokens": 0}, "at least 1"),
    ],
)
def test_options_whose_values_cannot_be_are_refused(kind: str, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check(BackendConfig(name="b", kind=kind, options=options))


def test_an_engine_has_no_options_of_a_server() -> None:
    check(BackendConfig(name="b", kind="engine"))
