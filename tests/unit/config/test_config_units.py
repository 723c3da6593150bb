"""Sizes and durations."""

from __future__ import annotations

import pytest

from penstock.config import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (7, 7),
        (0, 0),
        ("7", 7),
        ("7b", 7),
        ("2k", 2048),
        ("64m", 64 << 20),
        ("512MB", 512 << 20),
        ("64MiB", 64 << 20),
        ("1g", 1 << 30),
        ("1 GB", 1 << 30),
        ("3T", 3 << 40),
    ],
)
def test_a_size_is_a_number_of_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "m", "-1", -1, "1.5m", "64x", "64 mm", True, None, 1.5, "٣", "1m\n", "9" * 5000])
def test_what_is_no_size_is_refused_without_repeating_it(text: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a size such as 1048576, 64m, 512MB or 1g$"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("1m", 60.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("250us", 0.00025),
        ("0s", 0.0),
        (2.5, 2.5),
    ],
)
def test_a_duration_is_a_number_of_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "5", 5, "s", "-5s", "5 s", "5d", True, None, -1.0, float("inf"), float("nan"), "5s\n"]
)
def test_what_is_no_duration_is_refused_without_repeating_it(text: object) -> None:
    with pytest.raises(ValueError, match=r"^must be a duration with a unit, such as 500ms, 5s or 1m$"):
        parse_duration(text)
