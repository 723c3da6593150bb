"""The same text for Spark itself: only Conduit's spelling of references is changed."""

from __future__ import annotations

import re

from penstock.plan.sql.text import _PARTS, respelled


def spark_text(text: str) -> str:
    """`.Payload.After.x` becomes `after.x`; strings, names in backticks and comments stay as they are."""
    return respelled(text)


def looks_inside(text: str, column: str) -> bool:
    """True when the expression names a field of this column: `after.x`, `after['x']`."""
    plain = _PARTS.sub(lambda m: m[0] if m["other"] and not m[0].startswith(("`", "-", "/")) else " ", spark_text(text))
    return re.search(rf"(?<![\w.]){column}\s*(\.|\[)", plain, re.IGNORECASE) is not None
