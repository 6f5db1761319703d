"""What headers and tenants ask of the router."""

from __future__ import annotations

import pytest

from penstock.aio.decision import PINNED_BY_HEADER, PINNED_BY_TENANT
from penstock.config import TenantConfig
from penstock.errors import InvalidRequestError
from penstock.gateway.routing.wish import Wish, wish_of
from penstock.protocol.errors import HTTPError

TIERS = ("low", "high")
DOLLAR = 10**12


def wish(tenant: TenantConfig | None = None, **headers: str) -> Wish:
    given = {
        f"x-penstock-{name.replace('_', '-')}".encode(): value.encode() for name, value in headers.items()
    }
    return wish_of(given, tenant or TenantConfig(name="acme"), 0.95, TIERS)


def test_without_wishes_the_configured_target_holds() -> None:
    assert wish() == Wish(target=0.95)


def test_a_header_pins_a_tier_sets_a_target_and_caps_the_cost() -> None:
    assert wish(tier="high") == Wish(target=0.95, tier="high", forced=PINNED_BY_HEADER)
    assert wish(quality="0.8").target == 0.8
    assert wish(max_cost="0.002").max_cost == DOLLAR // 500


def test_a_tenants_target_yields_to_the_header_but_its_cap_does_not() -> None:
    tenant = TenantConfig(name="acme", quality_target=0.9, max_cost=0.001)
    assert wish(tenant).target == 0.9
    assert wish(tenant, quality="0.5").target == 0.5
    assert wish(tenant, max_cost="5").max_cost == DOLLAR // 1000
    assert wish(tenant, max_cost="0.0005").max_cost == DOLLAR // 2000


def test_a_tenants_tier_is_not_the_clients_to_change() -> None:
    tenant = TenantConfig(name="acme", tier="low")
    assert wish(tenant) == Wish(target=0.95, tier="low", forced=PINNED_BY_TENANT)
    assert wish(tenant, tier="low").forced == PINNED_BY_TENANT
    with pytest.raises(HTTPError) as refused:
        wish(tenant, tier="high")
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tier", "medium"),
        ("tier", ""),
        ("quality", "nan"),
        ("quality", "1.01"),
        ("quality", "-0.1"),
        ("quality", "high"),
        ("max_cost", "nan"),
        ("max_cost", "inf"),
        ("max_cost", "-1"),
        ("max_cost", "1" * 1000),
        ("max_cost", ""),
        ("max_cost", "1_0"),
        ("max_cost", "1e-3"),
        ("max_cost", "+1"),
        ("max_cost", "."),
        ("max_cost", "\u0663"),
        ("max_cost", "0.0001, 1000"),
        ("quality", "0.5, 0.6"),
        ("tier", "low, high"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_by_the_headers_name(name: str, value: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        wish(**{name: value})
    assert refused.value.param == f"x-penstock-{name.replace('_', '-')}"
