"""No tenant fills the last places while others of its class are about."""

from __future__ import annotations

from penstock.gateway.queue.places import ABOUT_SECONDS, Places


def held_by(places: Places, tenant: str, total: float) -> int:
    """As many places as the tenant gets."""
    count = 0
    while count < total and places.may_take("standard", tenant, total):
        places.taken("standard", tenant, 1)
        count += 1
    return count


def test_who_is_alone_may_have_all_places() -> None:
    places = Places()
    places.asked("standard", "a", 0.0)
    assert held_by(places, "a", 8) == 8


def test_a_quarter_is_kept_for_others_while_they_are_about() -> None:
    places = Places()
    places.asked("standard", "b", 0.0)
    places.asked("standard", "a", 1.0)
    assert held_by(places, "a", 8) == 6
    assert held_by(places, "b", 2) == 2
    places.given_back("standard", "a", 1)
    assert places.may_take("standard", "a", 8)


def test_others_are_forgotten_after_a_while() -> None:
    places = Places()
    places.asked("standard", "b", 0.0)
    places.asked("standard", "a", ABOUT_SECONDS + 1)
    assert held_by(places, "a", 8) == 8


def test_tenants_of_another_class_keep_nobody_from_a_place() -> None:
    places = Places()
    places.asked("interactive", "b", 0.0)
    places.asked("standard", "a", 0.0)
    assert held_by(places, "a", 8) == 8


def test_one_place_can_always_be_had() -> None:
    places = Places()
    places.asked("standard", "b", 0.0)
    places.asked("standard", "a", 0.0)
    assert held_by(places, "a", 1) == 1
