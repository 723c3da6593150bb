"""Settings of `chaos`, declared once. A setting with the name of a method holds its rules; see `modes`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from penstock.connectors.chaos.calls import record_call
from penstock.connectors.chaos.modes import Method, parse_rule
from penstock_sdk import Settings, setting


def rules(method: str) -> Any:
    return setting(
        f"What `{method}` does: `MODE[:DURATION] [after N, at N or every N [records]]`.", default=(), name=method
    )


class ChaosSettings(Settings):
    """What source and destination have in common."""

    calls: Path | None = setting(
        "A file that gets a JSON line for each call: method, time, pid, and more.", default=None
    )
    on_settings: list[str] = rules("settings")
    on_created: list[str] = rules("created")
    on_updated: list[str] = rules("updated")
    on_deleted: list[str] = rules("deleted")
    on_open: list[str] = rules("open")
    on_close: list[str] = rules("close")

    def check(self) -> Iterable[str]:
        """Called whenever settings come in: in Configure, and in the lifecycle calls before their own."""
        found = list(self._wrong())
        if not found:
            record_call(self.calls, "settings")
            try:
                Method("settings", self.on_settings)()
            except Exception as error:
                found.append(str(error))
        return found

    def _wrong(self) -> Iterable[str]:
        for attribute in self._settings:
            if attribute.startswith("on_"):
                for rule in getattr(self, attribute):
                    try:
                        parse_rule(rule)
                    except ValueError as error:
                        yield f"{attribute.removeprefix('on_')}: {error}"


class ChaosSourceSettings(ChaosSettings):
    """Numbers from 1 on, in whatever way a test needs them."""

    on_read: list[str] = rules("read")
    on_ack: list[str] = rules("ack")
    on_drain: list[str] = rules("drain")
    records: int = setting("How many there are.", default=10, least=0)
    size: int = setting("Bytes of each payload. 0: it is structured, with the number in it.", default=0, least=0)
    batch: int = setting("Records that one read gives.", default=10, least=1)
    rate: float = setting("Records per second. 0: as fast as they are read.", default=0, least=0)
    duplicate: int = setting("Every so many records one is given twice.", default=0, least=0)
    reorder: int = setting("Groups of so many are given from last to first.", default=0, least=0)
    resend: int = setting("Opened with a position, it gives so many again that came before.", default=0, least=0)
    positions: Literal["rising", "scrambled", "repeated", "empty"] = setting(
        "Positions in order, out of order, all the same, or none. Only the first two can be resumed from.",
        default="rising",
    )


class ChaosDestinationSettings(ChaosSettings):
    """Writes down what it gets, and answers in whatever way a test needs."""

    on_write: list[str] = rules("write")
    on_answer: list[str] = rules("answer")
    on_flush: list[str] = rules("flush")
    path: Path | None = setting("A file that gets a JSON line for each record that is not refused.", default=None)
    reject: int = setting("Every so many records one is refused.", default=0, least=0)
    silent: int = setting("Every so many records one is never answered.", default=0, least=0)
    answers: Literal["in-order", "reversed", "twice"] = setting(
        "How records of a batch are answered. Twice: the SDK refuses the second one.", default="in-order"
    )
