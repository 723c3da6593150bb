"""Settings of `stdout`, declared once."""

from __future__ import annotations

from typing import Literal

from penstock_sdk import Settings, setting


class StdoutSettings(Settings):
    """Writes one line of standard output per record."""

    format: Literal["payload", "opencdc"] = setting(
        "`payload`: raw data as it is, structured data as JSON, `null` where there is none. `opencdc`: the whole record as JSON.",
        default="payload",
    )
