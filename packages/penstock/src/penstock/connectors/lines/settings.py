"""Settings of `lines`, declared once."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from penstock_sdk import Settings, setting


class LinesSettings(Settings):
    """Follows one file, as `tail -F` does, and gives every line once: over rotation, truncation and restarts."""

    path: Path = setting("The file to follow. It may be missing at first, and is waited for.")
    from_: Literal["beginning", "end"] = setting(
        "Where to begin when there is no position yet. A file that appears later is always read from its beginning.",
        default="beginning",
        name="from",
    )
    poll: timedelta = setting(
        "How long to wait before looking again for something new.",
        default=timedelta(milliseconds=200),
        least=timedelta(milliseconds=1),
    )
    rotation_grace: timedelta = setting(
        "A file that was rotated away is left for the next one when nothing was written to it for so long.",
        default=timedelta(seconds=2),
    )
    max_line_bytes: int = setting(
        "The longest line, without its end. `long-lines` says what happens beyond.", default=1 << 20, least=1
    )
    long_lines: Literal["stop", "split"] = setting(
        "A line that is too long: `stop` the source with an error, or `split` it into records of at most `max-line-bytes`, "
        "whose metadata say so (`lines.piece`: first, middle, last).",
        default="stop",
    )
    on_loss: Literal["stop", "continue"] = setting(
        "Lines may be lost, because the file with the position is neither at the path nor beside it, or was truncated before all of it "
        "was read: `stop` with an error that says what is missing, or `continue` with what there is, and a warning.",
        default="stop",
    )
