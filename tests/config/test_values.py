"""What a person writes becomes the value they meant, or is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.config import values


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("4096", 4096),
        (4096, 4096),
        (" 12 ", 12),
        ("1_000", 1000),
        ("-1", -1),
        ("32k", 32_000),
        ("32K", 32_768),
        ("25.6k", 25_600),
        ("1m", 1_000_000),
        ("1M", 1_048_576),
        ("2G", 2 * 1024**3),
    ],
)
def test_human_integers_are_decimal_in_lower_case_and_binary_in_upper_case(
    written: object, meant: int
) -> None:
    assert values.parse_integer(written) == meant


@pytest.mark.parametrize(
    "written",
    ["", "k", "1.5K", "1.2345k", "4x", "4 096", "1e3", "0x10", 4096.0, True, None, [], "9" * 400 + "k"],
)
def test_what_is_not_a_whole_number_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        values.parse_integer(written)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2GiB", 2 * 1024**3),
        ("1.5GiB", 1_610_612_736),
        ("500MB", 500_000_000),
        ("500 MB", 500_000_000),
        ("64M", 64 * 1024**2),
        ("64m", 64_000_000),
        ("10kB", 10_000),
        ("512B", 512),
        ("512", 512),
        (512, 512),
    ],
)
def test_sizes_are_bytes(written: object, meant: int) -> None:
    assert values.parse_size(written) == meant


@pytest.mark.parametrize("written", ["", "GiB", "2XB", "2iB", "-1GiB", 2.5, False, "9" * 400 + "GB"])
def test_what_is_not_a_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        values.parse_size(written)


@pytest.mark.parametrize(
    ("written", "meant"), [("30", 30), (30, 30), ("30s", 30), ("20ms", 0.02), ("2m", 120), (0.5, 0.5)]
)
def test_times_are_seconds(written: object, meant: float) -> None:
    assert values.parse_seconds(written) == pytest.approx(meant)


@pytest.mark.parametrize("parse", [values.parse_number, values.parse_seconds])
@pytest.mark.parametrize(
    "written", ["nan", "inf", "-inf", "1e999", float("nan"), float("inf"), "", "fast", True, None]
)
def test_what_is_not_a_finite_number_is_refused(parse: Callable[[object], float], written: object) -> None:
    with pytest.raises(ValueError):
        parse(written)


@pytest.mark.parametrize("written", [True, "true", "YES", "on", "1"])
def test_yes_has_several_spellings(written: object) -> None:
    assert values.parse_boolean(written) is True


@pytest.mark.parametrize("written", [False, "false", "No", "off", "0"])
def test_no_has_several_spellings(written: object) -> None:
    assert values.parse_boolean(written) is False


@pytest.mark.parametrize("written", ["maybe", "", 1, 0, None])
def test_what_is_neither_yes_nor_no_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        values.parse_boolean(written)


@pytest.mark.parametrize("written", ["a,b", ["a", "b"], ("a", "b"), ["a,b"], " a , b "])
def test_names_come_as_a_list_or_with_commas(written: object) -> None:
    assert values.parse_names(written) == ("a", "b")


@pytest.mark.parametrize("written", ["", "a,,b", ["a", ""], ["a", 1], 3, {"a": 1}])
def test_an_empty_or_odd_name_is_refused(written: object) -> None:
    with pytest.raises(ValueError):
        values.parse_names(written)


@pytest.mark.parametrize("value", ["a,b,a", ["a", "b", "a"], ["a,b", "b,a"]])
def test_a_name_given_twice_is_one_name(value: object) -> None:
    assert values.parse_names(value) == ("a", "b")
