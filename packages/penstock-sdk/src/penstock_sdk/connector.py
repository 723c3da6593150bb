"""A connector: what it is called, and what it is made of. The object that a package offers under the entry point `penstock.connectors`,
and that `serve` makes a program of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock_protocol.interfaces import Specification
from penstock_sdk.destination import Destination
from penstock_sdk.source import Source


@dataclass(frozen=True, slots=True)
class Connector:
    """Either of `source` and `destination` may be missing."""

    name: str
    version: str
    summary: str
    source: type[Source[Any]] | None = None
    destination: type[Destination[Any]] | None = None
    description: str = ""
    author: str = ""

    def specification(self) -> Specification:
        return Specification(
            self.name,
            self.version,
            self.summary,
            self.description or self.summary,
            self.author,
            source={} if self.source is None else self.source.settings_type.parameters(),
            destination={} if self.destination is None else self.destination.settings_type.parameters(),
        )
