"""What is in the folder of `files`, against what the ledger says was written there. Reads names, sizes and the ends of Parquet files; runs
wherever `penstock reconcile` does."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.connectors.files.writing import Form, Parquet
from penstock.native import Answer, DeliveryId, Finding, Witnessed
from penstock.native.staging import lane_name
from penstock.native.witness import Noted, by_last

RECEIPT = "_penstock/…/receipt.json"
OWN = "_penstock"
_SHOWN = 3  # names of files in one finding


class Folder:
    """`nested`: records go to folders below it."""

    def __init__(self, root: Path, form: Form, *, nested: bool) -> None:
        self.root, self._form, self._nested = root, form, nested

    def witness(
        self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId], noted: Noted | None
    ) -> Iterator[Finding]:
        if not deliveries:
            return
        if not self.root.is_dir():
            yield Finding(Answer.MISSING, f"the folder {self.root} is not there")
            return
        there = self._named(lane_name(deliveries[0].id))
        for w, by_receipt in by_last(deliveries, known, noted, RECEIPT):
            by_files = self._files(w, there.get(w.id.hash[:12], ()))
            worse = by_receipt.answer.wrong and not by_files.answer.wrong
            yield by_receipt if worse else by_files
        yield from self._extra(known, there)

    def _named(self, lane: str) -> Mapping[str, Sequence[tuple[int, str]]]:
        """What has a name of the lane: by the beginning of its hash, batch and name."""
        pattern = re.compile(re.escape(lane) + r"-(\d{12})-\d{5}-([0-9a-f]{12})\.")
        found: dict[str, list[tuple[int, str]]] = {}
        for folder, below, names in os.walk(self.root, onerror=_say):
            if Path(folder) == self.root:
                below[:] = [name for name in below if name != OWN] if self._nested else []
            for name in names:
                if match := pattern.match(name):
                    path = str(Path(folder, name).relative_to(self.root))
                    found.setdefault(match[2], []).append((int(match[1]), path))
        return found

    def _files(self, w: Witnessed, there: Sequence[tuple[int, str]]) -> Finding:
        manifest: Any = w.staged.manifest
        sizes: dict[str, int] = {f["name"]: f["bytes"] for f in manifest} if isinstance(manifest, list) else {}
        names = w.receipt.made if w.receipt is not None else tuple(sizes)
        visible = {name for _, name in there}
        lost = [name for name in names if name not in visible]
        if w.receipt is None:
            if not visible:
                return Finding(Answer.WAITING, "prepared, and not visible yet", w.id.batch)
            part = f"{len(names) - len(lost)} of {len(names)} files are " if lost else ""
            return Finding(Answer.VISIBLE, f"{part}visible, not yet noted in the ledger", w.id.batch)
        if lost:
            return Finding(Answer.MISSING, f"{_listed(lost)} not there", w.id.batch)
        if more := sorted(visible - set(names)):
            return Finding(Answer.EXTRA, f"{_listed(more)} there, and not in its receipt", w.id.batch)
        return self._weighed(w, names, sizes)

    def _weighed(self, w: Witnessed, names: Sequence[str], sizes: Mapping[str, int]) -> Finding:
        assert w.receipt is not None
        for name in names:
            try:
                size = (self.root / name).stat().st_size
            except FileNotFoundError:  # just taken away
                return Finding(Answer.MISSING, f"{name} is not there", w.id.batch)
            if size != sizes.get(name, size):
                why = f"{name} has {size:,} bytes, and {sizes[name]:,} were written"
                return Finding(Answer.DIFFERS, why, w.id.batch)
        if isinstance(self._form, Parquet):
            return self._rows(w, names, w.receipt.written)
        return Finding(Answer.AGREES, "", w.id.batch)

    def _rows(self, w: Witnessed, names: Sequence[str], written: int) -> Finding:
        import pyarrow as pa

        try:
            rows = sum(self._form.weigh(self.root / name) for name in names)
        except (OSError, pa.ArrowException) as e:
            return Finding(Answer.DIFFERS, f"a file can't be read: {str(e).splitlines()[0]}", w.id.batch)
        if rows != written:
            return Finding(Answer.DIFFERS, f"its files have {rows:,} rows, and {written:,} were written", w.id.batch)
        return Finding(Answer.AGREES, "", w.id.batch)

    def _extra(self, known: Sequence[DeliveryId], there: Mapping[str, Sequence[tuple[int, str]]]) -> Iterator[Finding]:
        """Only among the batches that the ledger still has: what is older it can't tell from what was never its own."""
        ours = {d.hash[:12] for d in known}
        oldest = min((d.batch for d in known), default=0)
        found: dict[int, list[str]] = {}
        for hash_, files in there.items():
            for batch, name in files:
                if hash_ not in ours and batch >= oldest:
                    found.setdefault(batch, []).append(name)
        for batch, names in sorted(found.items()):
            text = f"{_listed(sorted(names))} there, and the ledger does not know it: of another state folder, or made by hand"
            yield Finding(Answer.EXTRA, text, batch)


def _listed(names: Sequence[str]) -> str:
    """With its verb."""
    shown = ", ".join(names[:_SHOWN])
    if len(names) > _SHOWN:
        return f"{shown} and {len(names) - _SHOWN:,} more files are"
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def _say(error: OSError) -> None:
    """A folder that can't be read must not look like one without files."""
    if not isinstance(error, FileNotFoundError):
        raise error
