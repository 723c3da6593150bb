"""A source, as its author writes it. Runs in a connector host, or in a plugin program.

The host calls `open`, then `read` and `ack` at the same time, each from one thread; after a stop `drain` until it gives nothing, then the
last acks, then `close`. Any method may be `async def`. `Retry` from `open` or `read`: it is called again after a while. Any other exception
ends the source, and the host says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from penstock_sdk.context import Context
from penstock_sdk.record import Record
from penstock_sdk.settings import Settings

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a record. `error` is empty where all is well: delivered, or filtered on purpose."""

    position: bytes
    error: str = ""


class Source(Generic[S]):
    """Override `read`, and `open` and `close` if there is something to open. Records that were read and not acked must be readable again
    after a restart."""

    settings_type: ClassVar[type[Settings]] = Settings
    resumes: ClassVar[bool] = True  # False: what was read is nowhere else, and a position only tells records apart

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.settings_type = declared(cls, Source) or cls.settings_type

    def __init__(self, settings: S, context: Context) -> None:
        """No I/O here: it is also made to check settings."""
        self.settings = settings
        self.context = context

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        """Start right after `position`; None: from the beginning. `last`: the last record of each namespace that was delivered everywhere,
        where the host knows it."""

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        """At most so many; waits at most so many seconds for the first, then gives none. Positions are unique and never empty."""
        raise NotImplementedError(f"{type(self).__name__} has no read")

    def drain(self) -> Sequence[Record]:
        """After a stop: what was fetched and not given yet. Called until it gives nothing. Nothing new is fetched."""
        return ()

    def ack(self, positions: Sequence[bytes]) -> None:
        """These are safe: in the order of the records, each at most once. Not overridden: the source has nobody to tell."""

    def settle(self, settled: Sequence[Settled]) -> None:
        """For a source that answers somebody: outcomes, also bad ones. By default the good ones are acked."""
        if good := [s.position for s in settled if not s.error]:
            self.ack(good)

    def close(self) -> None:
        """The last call, also after an error, also if `open` has failed."""

    @classmethod
    def created(cls, settings: S) -> None:
        """Once in the life of the connector in its pipeline, before it is opened for the first time."""

    @classmethod
    def updated(cls, before: S, after: S) -> None:
        """Before it is opened with other settings than the last time."""

    @classmethod
    def deleted(cls, settings: S) -> None:
        """After it was taken out of its pipeline."""


def declared(cls: type, base: type) -> type[Settings] | None:
    """The settings that a class names: `class Tail(Source[TailSettings])`."""
    for origin in vars(cls).get("__orig_bases__", ()):  # its own: those of a base may be overridden
        if getattr(origin, "__origin__", None) is base and isinstance(origin.__args__[0], type):
            found: type[Settings] = origin.__args__[0]
            return found
    return None
