"""Errors on their way from a host to the engine: classed by what the engine should do, in words that a person reads."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError, Rejected, Retry, Stop
from penstock_protocol.interfaces import PluginError

_AGAIN = (
    "context canceled",
    "context deadline exceeded",
)  # a race in plugins that are built on the Go SDK: a new start helps


def classed(error: BaseException) -> PenstockError:
    """A plugin that is gone may come back; one that says no will say it again."""
    if isinstance(error, PenstockError) and not isinstance(error, Rejected):
        return error
    if not isinstance(error, PluginError):
        return Stop(f"{type(error).__name__}: {error}", code="host.connector")
    again = error.gone or any(text in str(error) for text in _AGAIN)
    return (Retry if again else Stop)(str(error), code="host.plugin")


def to_json(error: BaseException) -> dict[str, Any]:
    e = classed(error)
    return {"retry": isinstance(e, Retry), "code": e.code, "what": e.what, "why": e.why, "hint": e.hint}


def from_json(found: dict[str, Any]) -> PenstockError:
    cls = Retry if found["retry"] else Stop
    return cls(found["what"], code=found["code"], why=found["why"], hint=found["hint"])
