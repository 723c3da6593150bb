"""Sizes and durations as people write them, for pipeline files and connectors' settings alike.

The texts of the errors never hold the value: a setting's value may have come from a secret.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SIZE = re.compile(r"([0-9]{1,15}) ?(?:([kmgt])i?)?b?", re.IGNORECASE)
_DURATION = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,9})?(?:us|µs|ms|s|m|h))+")
_PART = re.compile(r"([0-9.]+)([a-zµ]+)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_size(value: object) -> int:
    """Bytes. `64m`, `64MB` and `64MiB` are the same: units are powers of 1024, as in Spark."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        return int(match[1]) << 10 * " kmgt".index((match[2] or " ").lower())
    raise ValueError("must be a size such as 1048576, 64m, 512MB or 1g")


def parse_duration(value: object) -> float:
    """Seconds. A text needs a unit (`500ms`, `5s`, `1m`, `1h30m`); a float is taken for seconds already."""
    if isinstance(value, float) and 0 <= value < float("inf"):
        return value
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(part[1]) * _SECONDS[part[2]] for part in _PART.finditer(value))
    raise ValueError("must be a duration with a unit, such as 500ms, 5s or 1m")


Size = Annotated[int, BeforeValidator(parse_size)]
Duration = Annotated[float, BeforeValidator(parse_duration)]
