"""Which number comes when, and what its position is. Pure: the same for every start of the source."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.connectors.chaos.settings import ChaosSourceSettings

SCRAMBLE = 7


def order(settings: ChaosSourceSettings, start: int) -> Iterator[int]:
    """The numbers from place `start` on, counted from 0."""
    for place in range(start, settings.records):
        number = swapped(settings, place) + 1
        yield number
        if settings.duplicate and (place + 1) % settings.duplicate == 0:
            yield number


def swapped(settings: ChaosSourceSettings, place: int) -> int:
    """Groups from last to first. Done twice it is undone, so it also tells the place of a number."""
    if not settings.reorder:
        return place
    first = place - place % settings.reorder
    last = min(first + settings.reorder, settings.records) - 1
    return first + last - place


def position_of(settings: ChaosSourceSettings, number: int) -> bytes:
    match settings.positions:
        case "empty":
            return b""
        case "repeated":
            return b"1"
        case "scrambled":
            return b"%d" % (number ^ SCRAMBLE)
    return b"%d" % number


def place_after(settings: ChaosSourceSettings, position: bytes | None) -> int:
    """Where to go on. ValueError for what is no position of ours."""
    if position is None:
        return 0
    number = int(position)
    if settings.positions == "scrambled":
        number ^= SCRAMBLE
    return max(0, swapped(settings, number - 1) + 1 - settings.resend)
