"""The class of a request: its tenant's, what the body wishes, what the header orders."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequestError
from penstock.gateway.queue import ServiceClass, choose_class
from penstock.protocol.errors import HTTPError


@pytest.mark.parametrize("own", ["interactive", "standard", "batch"])
def test_a_request_that_asks_for_nothing_has_its_tenants_class(own: ServiceClass) -> None:
    assert choose_class(own) == own
    assert choose_class(own, service_tier="auto") == own


@pytest.mark.parametrize(
    ("own", "tier", "served"),
    [
        ("interactive", "priority", "interactive"),
        ("interactive", "default", "standard"),
        ("interactive", "flex", "batch"),
        ("standard", "default", "standard"),
        ("standard", "flex", "batch"),
        ("batch", "flex", "batch"),
    ],
)
def test_a_tier_chooses_a_class_up_to_the_tenants(own: ServiceClass, tier: str, served: str) -> None:
    assert choose_class(own, service_tier=tier) == served


@pytest.mark.parametrize(
    ("own", "tier"), [("standard", "priority"), ("batch", "priority"), ("batch", "default")]
)
def test_a_tier_above_the_tenants_class_is_lowered(own: ServiceClass, tier: str) -> None:
    assert choose_class(own, service_tier=tier) == own


def test_the_header_decides_over_the_body() -> None:
    assert choose_class("interactive", service_tier="priority", header=" Batch ") == "batch"


@pytest.mark.parametrize(("own", "header"), [("standard", "interactive"), ("batch", "standard")])
def test_a_header_above_the_tenants_class_is_refused(own: ServiceClass, header: str) -> None:
    with pytest.raises(HTTPError, match=f"tenant's best is {own}") as refused:
        choose_class(own, header=header)
    assert refused.value.status == 403


@pytest.mark.parametrize("tier", ["", "Priority", "scale", "x" * 1000])
def test_an_unknown_tier_is_refused_with_the_known_ones(tier: str) -> None:
    with pytest.raises(InvalidRequestError, match="auto, default, flex, priority") as refused:
        choose_class("interactive", service_tier=tier)
    assert refused.value.param == "service_tier"
    assert len(str(refused.value)) < 200


def test_an_unknown_tier_is_refused_even_where_the_header_decides() -> None:
    with pytest.raises(InvalidRequestError):
        choose_class("interactive", service_tier="scale", header="batch")


@pytest.mark.parametrize("header", ["", "urgent", "x" * 1000])
def test_an_unknown_class_is_refused_with_the_known_ones(header: str) -> None:
    with pytest.raises(InvalidRequestError, match="interactive, standard, batch") as refused:
        choose_class("interactive", header=header)
    assert refused.value.param == "x-penstock-class"
    assert len(str(refused.value)) < 200
