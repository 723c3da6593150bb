"""Which record columns an expression names. Works for all of Spark SQL that sqlglot parses, in the subset or not."""

from __future__ import annotations

from sqlglot import exp

from penstock.plan.sql.text import COLUMNS, parse_spark


def columns_of(text: str) -> frozenset[str]:
    """Names that are no columns of a record (functions, a lambda's own) are left out."""
    return frozenset(_heads(parse_spark(text))) & frozenset(COLUMNS)


def fields_of(text: str, column: str) -> frozenset[str] | None:
    """Which fields of a column an expression looks into; None where it names the column itself, and so all of them."""
    found: set[str] = set()
    for node in parse_spark(text).walk():
        if isinstance(node, exp.Column):
            parts = [part.name for part in node.parts]
        elif isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier):
            parts = [node.this.name, node.expression.name]
        else:
            continue
        if parts[0].lower() != column or _bound(node, parts[0]):
            continue
        if len(parts) == 1:
            return None
        found.add(parts[1])
    return frozenset(found)


def _heads(tree: exp.Expression) -> set[str]:
    found = set()
    for node in tree.walk():
        if isinstance(node, exp.Column):
            head = node.parts[0].name
        elif isinstance(node, exp.Dot) and isinstance(node.this, exp.Identifier):
            head = node.this.name
        else:
            continue
        if not _bound(node, head):
            found.add(head)
    return found


def _bound(node: exp.Expression, name: str) -> bool:
    """Whether a lambda around it has a parameter of this name."""
    scope = node.find_ancestor(exp.Lambda)
    while scope is not None:
        if any(parameter.name == name for parameter in scope.expressions):
            return True
        scope = scope.find_ancestor(exp.Lambda)
    return False
