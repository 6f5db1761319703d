"""An SLO is read as it is written, and an answer keeps it or not."""

from __future__ import annotations

import pytest

from penstock.bench.slo import meets, parse_slo, seconds
from penstock.errors import ConfigError


def test_limits_are_read_in_their_units() -> None:
    assert parse_slo("ttft=500ms, tpot=0.05,e2e=2m") == {"ttft": 0.5, "tpot": 0.05, "e2e": 120.0}


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttf=5s", "ttft=", "ttft=0", "ttft=-1s", "e2e=5h", "ttft=1s,ttft=2s"]
)
def test_a_limit_that_cannot_be_read_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ConfigError, match="--slo"):
        parse_slo(text)


def test_a_time_names_its_option() -> None:
    with pytest.raises(ConfigError, match="--timeout takes a time such as 500ms, 5s or 2m, got 'soon'"):
        seconds("timeout", "soon")


def test_every_limit_must_be_kept() -> None:
    slo = {"ttft": 1.0, "tpot": 0.1}
    assert meets(slo, ttft=1.0, tpot=0.1, e2e=99.0)
    assert not meets(slo, ttft=1.1, tpot=0.1, e2e=1.0)
    assert not meets(slo, ttft=0.5, tpot=0.2, e2e=1.0)
    assert meets(slo, ttft=0.5, tpot=None, e2e=0.5)  # one token
