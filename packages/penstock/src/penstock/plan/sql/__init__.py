"""SQL conditions and expressions over open payloads, without Spark, and equal to what Spark would answer.

Parsed by sqlglot (`text`), made a small tree (`tree`: what is refused), then Python source per types (`emit`, `functions`).
"""

from penstock.plan.sql.columns import columns_of, fields_of
from penstock.plan.sql.errors import EvaluationError, ExpressionError, Unmatched
from penstock.plan.sql.expression import Expression, compile_condition, compile_expression

__all__ = [
    "EvaluationError",
    "Expression",
    "ExpressionError",
    "Unmatched",
    "columns_of",
    "compile_condition",
    "compile_expression",
    "fields_of",
]
