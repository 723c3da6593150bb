"""What goes wrong with a template: before anything starts (`TemplateError`), and on one record (`Failure`). Pure.

A `Failure` never leaves this package: `template` makes a nack of it.
"""

from __future__ import annotations

BAD = "config.bad-template"
UNSUPPORTED = "config.unsupported-template"


class TemplateError(Exception):
    """The template can't be used. BAD: Conduit refuses it, too. UNSUPPORTED: Conduit would take it."""

    def __init__(self, what: str, hint: str = "", code: str = BAD) -> None:
        super().__init__(what, hint, code)
        self.what = what
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}; {self.hint}" if self.hint else self.what


class Failure(Exception):
    """Evaluation stops here, for this record. The text names types and fields, never values: they may be secret."""


def unsupported(what: str, hint: str) -> TemplateError:
    return TemplateError(what, hint, UNSUPPORTED)
