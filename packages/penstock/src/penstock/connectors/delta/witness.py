"""What is in a Delta table, against what the ledger says was written to it: the note of each commit, by the log of the table. Runs
wherever `penstock reconcile` does; no Spark, so for tables on a local file system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.connectors.delta.log import Commit, Log
from penstock.connectors.delta.notes import Note, app_id
from penstock.native import Answer, DeliveryId, Finding, Receipt, Witnessed


def witness(
    root: Path, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId], *, appends: bool
) -> Iterator[Finding]:
    if deliveries:
        yield from _Table(root, deliveries, known, appends=appends).findings()


class _Table:
    """`appends`: the files of a commit hold its records and nothing else."""

    def __init__(
        self, root: Path, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId], *, appends: bool
    ) -> None:
        self._log, self._deliveries, self._known, self._appends = Log(root), deliveries, known, appends
        self._found: dict[str, tuple[Answer, str]] = {}
        self._extra: list[Finding] = []
        self._whole = False  # the log was read to its beginning

    def findings(self) -> Iterator[Finding]:
        try:
            self._read()
        except FileNotFoundError:
            yield Finding(Answer.MISSING, f"there is no Delta table in {self._log.root}")
            return
        for w in self._deliveries:
            yield Finding(*(self._found.get(w.id.hash) or self._without(w)), w.id.batch)
        yield from self._extra

    def _read(self) -> None:
        """From the newest commit on, as far back as there is something to look for. Within an epoch batches have rising numbers: what
        was not seen before an older one is not there."""
        known = {d.hash for d in self._known}
        oldest = min(d.batch for d in self._known)
        apps = {app_id(w.id): w.id.epoch for w in self._deliveries}
        wanted = {w.id.hash: w for w in self._deliveries if w.done}
        by_hash = {w.id.hash: w for w in self._deliveries}
        removed: set[str] = set()
        last = None
        for commit in self._log.commits():
            last = commit.version
            note = next((n for app in apps if (n := Note.read(commit.metadata, app)) is not None), None)
            if note is not None:
                if note.hash in by_hash:
                    self._found[note.hash] = self._of(by_hash[note.hash], note.receipt, commit, removed)
                elif note.hash not in known and note.batch >= oldest:
                    text = f"commit {commit.version} is of a delivery that the ledger does not know"
                    self._extra.append(Finding(Answer.EXTRA, text, note.batch))
                for w in list(wanted.values()):
                    if w.id.epoch == apps[note.app] and w.id.batch >= note.batch:
                        del wanted[w.id.hash]
                        if w.id.hash != note.hash and w.id.hash not in self._found:
                            self._found[w.id.hash] = Answer.MISSING, "the table has no commit of it"
            removed |= commit.removed
            if not wanted:
                return
        self._whole = last in (None, 0)

    def _of(self, w: Witnessed, theirs: Receipt, commit: Commit, removed: set[str]) -> tuple[Answer, str]:
        if w.receipt is None:
            return Answer.VISIBLE, "there, not yet noted in the ledger"
        if theirs.written != w.receipt.written:
            return Answer.DIFFERS, f"its commit says {theirs.written:,} written, the ledger {w.receipt.written:,}"
        if lost := self._log.lost(commit.added, removed):
            return Answer.MISSING, f"of commit {commit.version}: {lost}"
        rows = [a.rows for a in commit.added]
        if self._appends and None not in rows and (n := sum(r for r in rows if r is not None)) != w.receipt.written:
            return Answer.DIFFERS, f"the files of its commit have {n:,} rows, and {w.receipt.written:,} were written"
        return Answer.AGREES, ""

    def _without(self, w: Witnessed) -> tuple[Answer, str]:
        """Of a delivery whose commit was not seen."""
        if w.receipt is None:
            return Answer.WAITING, "prepared, and not there yet"
        if self._whole:
            return Answer.MISSING, "the table has no commit of it"
        newest = max(v.id.batch for v in self._deliveries if v.done)
        number = self._log.transaction(app_id(w.id)) if w.id.batch == newest else None
        if number == w.id.batch:
            return Answer.AGREES, "by its number; the log does not reach back to its commit any more"
        if number is not None and number < w.id.batch:
            return Answer.MISSING, f"the last batch of this source that the table has is {number}"
        return Answer.UNKNOWN, "the log of the table does not reach back so far any more"
