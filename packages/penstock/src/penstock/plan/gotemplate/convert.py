"""How sprig makes numbers of anything: silently, with 0 for what is none. Pure; runs in Spark's tasks."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from penstock.plan.gotemplate.literals import real, whole
from penstock.plan.gotemplate.values import Operation

_ZERO_FRACTION = re.compile(r"\.0+$")
_LOW, _HIGH = -(2**63), 2**63


def wrapped(n: int) -> int:
    """As an int64 overflows."""
    return (n - _LOW) % (2 * _HIGH) + _LOW


def to_int(v: Any) -> int:
    """An int64. A text may have a base prefix, and a fraction of zeros."""
    if isinstance(v, Operation):
        return 0
    if isinstance(v, int):
        return wrapped(int(v)) if _LOW <= v < _HIGH else _LOW
    if isinstance(v, float | Decimal):
        x = float(v)
        return int(x) if math.isfinite(x) and _LOW <= x < _HIGH else _LOW
    if isinstance(v, str):
        n = whole(_ZERO_FRACTION.sub("", v))
        return n if n is not None and _LOW <= n < _HIGH else 0
    return 0


def to_float(v: Any) -> float:
    if isinstance(v, int | float | Decimal) and not isinstance(v, Operation):
        try:
            return float(v)
        except OverflowError:
            return math.inf if v > 0 else -math.inf
    return (real(v) or 0.0) if isinstance(v, str) else 0.0
