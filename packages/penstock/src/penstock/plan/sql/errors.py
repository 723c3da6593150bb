"""What can go wrong with an expression: when it is compiled, and on one record.

ExpressionError        the text does not parse, or is outside the subset: `validate` shows it
Rejected (the SDK's)   this record is bad
└── EvaluationError    Spark would raise on these values, or refuse their types
    └── Unmatched      Spark may well answer, but not in a way that this package can promise to match
"""

from __future__ import annotations

from typing import NoReturn

from penstock_sdk.errors import Rejected

SCHEMA_HINT = "give the payload a schema (json.decode with `schema`) to use all of Spark SQL"


class ExpressionError(Exception):
    """Raised when compiling. `column` counts from 1 in the text as it was written; None when there is no one place."""

    def __init__(self, what: str, *, hint: str = "", column: int | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.column = column

    def __str__(self) -> str:
        place = f" (column {self.column})" if self.column is not None else ""
        return f"{self.what}{place}" + (f"\n  do: {self.hint}" if self.hint else "")


class EvaluationError(Rejected):
    """This record's values make the expression raise."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, code="sql.value", where=where)


class Unmatched(EvaluationError):
    """Raised where an answer could differ from Spark's."""

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(what, where)
        self.code = "sql.unmatched"
        self.hint = SCHEMA_HINT


def fail(what: str, where: str = "") -> NoReturn:
    """`raise` as an expression, for generated code."""
    raise EvaluationError(what, where)
