"""The conformance kit: does a connector keep the rules of the protocol? For authors, in their own tests:

    from penstock_sdk.testing import ConnectorTests

    class TestTail(ConnectorTests):
        connector = tail.connector             # and, or instead: command = ["./tail"]

        def source_settings(self):
            return {"path": str(self.folder / "data")}

        def fill(self, count):
            ...                                # add records, return what to expect

For connectors in any language: `penstock connector test`. pytest is needed for the class alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock_sdk.testing.bench import Setup
from penstock_sdk.testing.kit import CHECKS, Kit, document, run
from penstock_sdk.testing.results import Check, Failure, NotChecked, Result
from penstock_sdk.testing.samples import Expected
from penstock_sdk.testing.subjects import Inside, Program, Subject

if TYPE_CHECKING:
    from penstock_sdk.testing.author import ConnectorTests

__all__ = [
    "CHECKS",
    "Check",
    "ConnectorTests",
    "Expected",
    "Failure",
    "Inside",
    "Kit",
    "NotChecked",
    "Program",
    "Result",
    "Setup",
    "Subject",
    "document",
    "run",
]


def __getattr__(name: str) -> Any:
    if name == "ConnectorTests":
        from penstock_sdk.testing.author import ConnectorTests

        return ConnectorTests
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
