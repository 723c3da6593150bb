"""Settings of `stdin`, declared once."""

from __future__ import annotations

from penstock_sdk import Settings, setting


class StdinSettings(Settings):
    """Lines of standard input, for trying things out and for pipes. They can't be read again after a restart."""

    max_line_bytes: int = setting(
        "The longest line, without its end. A longer one comes in several records, whose metadata say so (`stdin.piece`: first, "
        "middle, last).",
        default=1 << 20,
        least=1,
    )
