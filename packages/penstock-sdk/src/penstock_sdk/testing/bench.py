"""What a check works with: fresh starts of the connector, the settings to give it, records to read and a way to see what was written.
One bench per check; at its end nothing that was started on it is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Literal, Self

from penstock_protocol.interfaces import Parameter, PluginError, Specification
from penstock_sdk.record import Record
from penstock_sdk.testing.lanes import Lanes
from penstock_sdk.testing.results import Failure, NotChecked, Refused
from penstock_sdk.testing.runs import DestinationRun, SourceRun, late
from penstock_sdk.testing.samples import Expected, creates, matches, text_of
from penstock_sdk.testing.subjects import Program, Running, Started, Subject

Role = Literal["source", "destination"]


class Setup:
    """What the kit can't know: where the connector finds records, and where it may write some. Made anew for each check, so that no check
    finds what another has left."""

    def source_settings(self) -> Mapping[str, str] | None:
        """None: the source is not tested beyond its settings."""
        return None

    def destination_settings(self) -> Mapping[str, str] | None:
        """None: the destination is not tested beyond its settings."""
        return None

    def fill(self, count: int) -> Sequence[Expected] | None:
        """Adds so many records to what the source reads. Gives what to expect, in order: payloads, texts that are in them, or records; None
        where it can't say. Not overridden: the connector's own destination does it, or the settings lead to enough records."""
        raise NotImplementedError

    def written(self) -> Sequence[Expected]:
        """Everything that the destination has written: payloads, texts or records. Not overridden: the connector's own source reads it."""
        raise NotImplementedError

    def together(self) -> bool:
        """Whether the source reads what the destination writes."""
        source, destination = self.source_settings() or {}, self.destination_settings() or {}
        return not {v for v in source.values() if v}.isdisjoint(destination.values())


@dataclass(frozen=True, slots=True)
class Filled:
    """What is there to read. `expected`: None where only the number is known."""

    count: int
    expected: Sequence[Expected] | None


class Bench:
    def __init__(self, subject: Subject, setup: Setup, *, records: int, patience: float) -> None:
        self.subject, self._setup, self.records, self.patience = subject, setup, records, patience
        self._started: list[Started] = []
        self._runs: list[SourceRun | DestinationRun] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for started in self._started:
            with suppress(Refused, PluginError):
                started.end() if error is None else started.kill()
            if isinstance(started, Running):
                started.clear()
        for run in self._runs:
            run.end()

    # -- starts -------------------------------------------------------------------------------------------------------------

    def start(self, dialects: Sequence[int] = ()) -> Started:
        started = self.subject.start(
            max(self.patience, 10.0), dialects
        )  # a busy machine may take its time to start a program
        self._started.append(started)
        return started

    def program(self) -> Program:
        if not isinstance(self.subject, Program):
            raise NotChecked("it runs in this process, not as a program of its own")
        return self.subject

    def run_program(self, dialects: Sequence[int] = ()) -> Running:
        self.program()
        started = self.start(dialects)
        assert isinstance(started, Running)
        return started

    @cached_property
    def specification(self) -> Specification:
        return self.specify(self.start())

    def specify(self, started: Started) -> Specification:
        lanes = Lanes()
        try:
            return lanes.begin("specify", lambda: started.specify(self.patience)).result(self.patience + 1)  # type: ignore[no-any-return]
        except PluginError as e:
            raise Refused("Specify", str(e), gone=e.gone) from e
        except TimeoutError:
            raise late("Specify", self.patience) from None
        finally:
            lanes.end()

    def source(self, started: Started | None = None) -> SourceRun:
        """Not configured yet."""
        run = SourceRun((started or self.start()).source(), self.patience)
        self._runs.append(run)
        return run

    def destination(self, started: Started | None = None) -> DestinationRun:
        run = DestinationRun((started or self.start()).destination(), self.patience)
        self._runs.append(run)
        return run

    def role(self, role: Role) -> SourceRun | DestinationRun:
        return self.source() if role == "source" else self.destination()

    def open_source(self, position: bytes = b"", started: Started | None = None) -> SourceRun:
        settings = self.source_settings()
        run = self.source(started)
        run.configure(settings)
        run.open(position)
        return run

    def open_destination(self, started: Started | None = None) -> DestinationRun:
        settings = self.destination_settings()
        run = self.destination(started)
        run.configure(settings)
        run.open()
        return run

    # -- settings -----------------------------------------------------------------------------------------------------------

    @cached_property
    def given(self) -> Mapping[Role, Mapping[str, str] | None]:
        return {"source": self._setup.source_settings(), "destination": self._setup.destination_settings()}

    def source_settings(self) -> Mapping[str, str]:
        return self._settings("source")

    def destination_settings(self) -> Mapping[str, str]:
        return self._settings("destination")

    def _settings(self, role: Role) -> Mapping[str, str]:
        found = self.given[role]
        if found is None:
            raise NotChecked(
                f"no settings for the {role}: give them with --{role} NAME=VALUE, or override {role}_settings"
            )
        return found

    def must_resume(self) -> None:
        """For checks that read something again."""
        connector = self.subject.connector
        if connector is not None and connector.source is not None and not connector.source.resumes:
            raise NotChecked("it says that what it has read can't be read again (`resumes = False`)")

    def parameters(self, role: Role) -> Mapping[str, Parameter]:
        return self.specification.source if role == "source" else self.specification.destination

    def roles(self) -> list[Role]:
        """Those that it says it has, and those that there are settings for."""
        every: list[Role] = ["source", "destination"]
        return [role for role in every if self.parameters(role) or self.given[role] is not None]

    # -- records ------------------------------------------------------------------------------------------------------------

    def prepare(self, count: int | None = None) -> Filled:
        """Records for the source: added now, or there already."""
        self.source_settings()
        try:
            return self.fill(count or self.records)
        except NotChecked:
            if self._setup.together():
                raise
            return Filled(count or self.records, None)

    def fill(self, count: int) -> Filled:
        """Adds records. `NotChecked` where nobody can."""
        try:
            expected = self._setup.fill(count)
        except NotImplementedError:
            if not self._setup.together():
                raise NotChecked(
                    "nothing can be added to what the source reads: override fill, or let the destination do it"
                ) from None
            expected = self._fill_by_destination(count)
        return Filled(count, expected)

    def _fill_by_destination(self, count: int) -> Sequence[Expected]:
        records, texts = creates(count)
        try:
            run = self.open_destination()
            run.write(records)
            run.collect()
            run.finish()
        except (Failure, Refused) as e:
            raise NotChecked(f"the destination, which should fill it, failed: {e}") from e
        if len(run.answers) != count or any(answer.error for answer in run.answers):
            raise NotChecked("the destination, which should fill it, did not acknowledge every record")
        return texts

    def read(self, run: SourceRun, filled: Filled) -> list[Record]:
        """All that was filled."""
        expected = filled.expected
        if expected is None:
            return run.take(filled.count)

        def enough(given: Sequence[Record]) -> bool:
            return len(given) >= len(expected) and not missing(given, expected)

        if not run.until(enough):
            lost = missing(run.given, expected)
            raise Failure(
                f"{len(lost)} of {len(expected)} records never came, the first of them {shown(lost[0])}; {len(run.given)} came",
                "every record that is there is read",
                "read from the very beginning where there is no position, and wait for what comes later",
            )
        return run.given

    def read_all(self) -> SourceRun:
        """A source that has given everything that was there when it was opened."""
        filled = self.prepare()
        run = self.open_source()
        self.read(run, filled)
        return run

    def read_back(self, looked_for: Sequence[str]) -> list[str]:
        """What the destination has written, as texts. By its own source if need be, until these are all found."""
        try:
            return [text_of(item) for item in self._setup.written()]
        except NotImplementedError:
            if not self._setup.together():
                raise NotChecked(
                    "what was written can't be seen: override written, or give settings of a source that reads it"
                ) from None
        try:
            run = self.open_source()
            run.until(lambda given: not missing(given, looked_for))
            found = [text_of(record) for record in run.given]
            run.teardown(ready=False)
        except (Failure, Refused) as e:
            raise NotChecked(f"the source, which should read it back, failed: {e}") from e
        return found


def missing(given: Sequence[Record], expected: Sequence[Expected]) -> list[Expected]:
    return [item for item in expected if not any(matches(record, item) for record in given)]


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
