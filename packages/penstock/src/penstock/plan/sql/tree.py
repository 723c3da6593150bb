"""The expression as a small tree of our own, made from sqlglot's. All refusals that do not depend on values are here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from sqlglot import exp

from penstock.plan.sql.errors import SCHEMA_HINT, EvaluationError, ExpressionError
from penstock.plan.sql.patterns import PatternRefused, java_regex, like_regex, never_empty
from penstock.plan.sql.text import COLUMNS
from penstock.plan.sql.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DIGITS,
    DOUBLE,
    INT,
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    decimal,
)

PAYLOADS = frozenset({"key", "before", "after"})
DEPTH = 40  # generated code nests brackets, and Python's parser takes 200


@dataclass(frozen=True)
class Ref:
    """A place in the record: column first, then names of fields and indexes of lists."""

    path: tuple[str | int, ...]

    @property
    def name(self) -> str:
        return str(self.path[0]) + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in self.path[1:])


@dataclass(frozen=True)
class Lit:
    value: Any
    type: Type


@dataclass(frozen=True)
class Op:
    """An operator or function by its name; `to` is the target of a cast."""

    name: str
    args: tuple[Node, ...]
    to: Type | None = None


Node = Ref | Lit | Op

# Functions and how many arguments they take.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "coalesce": (1, 99), "nullif": (2, 2), "if": (3, 3), "isnull": (1, 1), "isnotnull": (1, 1),
    "lower": (1, 1), "upper": (1, 1), "trim": (1, 1), "ltrim": (1, 1), "rtrim": (1, 1), "length": (1, 1),
    "substring": (2, 3), "concat": (1, 99), "concat_ws": (1, 99), "replace": (2, 3), "startswith": (2, 2),
    "endswith": (2, 2), "contains": (2, 2), "split": (2, 2), "lpad": (2, 3), "rpad": (2, 3), "reverse": (1, 1),
    "regexp_replace": (3, 3), "abs": (1, 1), "round": (1, 2), "floor": (1, 1), "ceil": (1, 1), "greatest": (2, 99),
    "least": (2, 99), "size": (1, 1), "element_at": (2, 2), "array_contains": (2, 2), "to_date": (1, 1),
    "to_timestamp": (1, 1), "year": (1, 1), "month": (1, 1), "day": (1, 1), "hour": (1, 1), "date_add": (2, 2),
    "datediff": (2, 2), "like": (2, 2), "rlike": (2, 2),
}  # fmt: skip
ALIASES = {
    "substr": "substring", "ifnull": "coalesce", "nvl": "coalesce", "char_length": "length", "len": "length",
    "character_length": "length", "lcase": "lower", "ucase": "upper", "ceiling": "ceil", "dayofmonth": "day",
    "date_diff": "datediff", "dateadd": "date_add", "regexp": "rlike", "regexp_like": "rlike", "cardinality": "size",
}  # fmt: skip
TWO_ARGUMENTS = frozenset({"nvl", "ifnull"})
_BINARY: dict[type[exp.Expression], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip
_COMPARISON = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_PREDICATE = (*_COMPARISON, exp.Is, exp.In, exp.Like, exp.RegexpLike, exp.Between, exp.Not, exp.And, exp.Or)
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod)
_TYPES = {
    "TEXT": STRING, "VARCHAR": None, "INT": INT, "BIGINT": BIGINT, "DOUBLE": DOUBLE, "BOOLEAN": BOOLEAN, "DATE": DATE,
    "TIMESTAMP": TIMESTAMP, "TIMESTAMPTZ": TIMESTAMP,
}  # fmt: skip


def refuse(what: str, node: exp.Expression, hint: str = SCHEMA_HINT) -> NoReturn:
    raise ExpressionError(what, hint=hint, column=column_of(node))


def column_of(node: exp.Expression) -> int | None:
    """Where the node begins, as far as sqlglot has kept it."""
    own = node.meta.get("start")
    if own is not None:
        return int(own) + 1
    starts = [n.meta["start"] for n in node.walk() if "start" in n.meta]
    return min(starts) + 1 if starts else None


def lower(node: exp.Expression, depth: int = 0) -> Node:
    """sqlglot's node as ours, or an ExpressionError."""
    if depth > DEPTH:
        raise ExpressionError(
            f"the expression is nested more than {DEPTH} deep", hint="split it", column=column_of(node)
        )
    deeper: Callable[[exp.Expression], Node] = lambda child: lower(child, depth + 1)  # noqa: E731
    if isinstance(node, exp.Paren):
        return deeper(node.this)
    if isinstance(node, exp.Literal):
        return Lit(node.this, STRING) if node.is_string else _number(node.this, node)
    if isinstance(node, exp.Boolean):
        return Lit(bool(node.this), BOOLEAN)
    if isinstance(node, exp.Null):
        return Lit(None, VOID)
    if isinstance(node, exp.Neg):
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return _number("-" + node.this.this, node)
        return Op("negative", (deeper(node.this),))
    if isinstance(node, exp.Column | exp.Dot | exp.Bracket):
        return _reference(node, deeper)
    if isinstance(node, exp.Anonymous):
        return _function(node, deeper)
    if isinstance(node, exp.And | exp.Or):
        kind: type[exp.Expression] = exp.And if isinstance(node, exp.And) else exp.Or
        return Op("and" if kind is exp.And else "or", tuple(deeper(part) for part in _chain(node, kind)))
    if type(node) in _BINARY:
        return _binary(node, deeper)
    if isinstance(node, exp.Cast):  # TryCast too: sqlglot reads Spark's cast as one, `safe` says which it was
        safe = bool(node.args.get("safe")) if isinstance(node, exp.TryCast) else False
        if node.args.get("format") or node.args.get("default"):
            refuse("a cast with a format is outside the subset", node)
        return Op("try_cast" if safe else "cast", (deeper(node.this),), _type(node.to))
    return _special(node, deeper)


def _special(node: exp.Expression, deeper: Callable[[exp.Expression], Node]) -> Node:
    if isinstance(node, exp.Not):
        return Op("not", (deeper(node.this),))
    if isinstance(node, exp.Is | exp.In | exp.Like | exp.RegexpLike | exp.Between):
        _refuse_inner(node, *node.iter_expressions())
    if isinstance(node, exp.Is):
        if isinstance(node.expression, exp.Null):
            return Op("isnull", (deeper(node.this),))
        if isinstance(node.expression, exp.Boolean):
            return Op("<=>", (deeper(node.this), Lit(bool(node.expression.this), BOOLEAN)))
    if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
        return _negated(node, Op("in", (deeper(node.this), *map(deeper, node.expressions))))
    if isinstance(node, exp.Between) and not node.args.get("symmetric"):
        low = Op(">=", (deeper(node.this), deeper(node.args["low"])))
        high = Op("<=", (deeper(node.this), deeper(node.args["high"])))
        return _negated(node, Op("and", (low, high)))
    if isinstance(node, exp.Like | exp.RegexpLike) and not isinstance(node.expression, exp.Any | exp.All):
        if node.args.get("flag"):
            refuse("a flag of a regular expression is outside the subset", node)
        name = "like" if isinstance(node, exp.Like) else "rlike"
        return _negated(node, _checked(Op(name, (deeper(node.this), deeper(node.expression))), node))
    if isinstance(node, exp.If):
        if node.args.get("false") is None:
            refuse("if takes three arguments", node, "if(condition, value, other)")
        return Op("case", (deeper(node.this), deeper(node.args["true"]), deeper(node.args["false"])))
    if isinstance(node, exp.Case):
        parts: list[Node] = []
        for branch in node.args["ifs"]:
            when = deeper(branch.this)
            parts += [
                Op("=", (deeper(node.this), when)) if node.this is not None else when,
                deeper(branch.args["true"]),
            ]
        default = node.args.get("default")
        return Op("case", (*parts, deeper(default) if default is not None else Lit(None, VOID)))
    if isinstance(node, exp.DPipe):
        if isinstance(node.this, _ARITHMETIC) or isinstance(node.expression, _ARITHMETIC):
            refuse("|| beside arithmetic without brackets", node, "add brackets, or use concat")
        return Op("concat", (deeper(node.this), deeper(node.expression)))
    refuse(f"{node.key.upper()} is outside the subset of SQL for open payloads", node)


def _negated(node: exp.Expression, made: Node) -> Node:
    return Op("not", (made,)) if node.args.get("negate") else made


def _chain(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """a AND b AND c as three, so that a long chain is not deep."""
    parts: list[exp.Expression] = []
    while isinstance(node, kind):
        parts.append(node.args["expression"])
        node = node.this
    return [node, *reversed(parts)]


def _binary(node: exp.Expression, deeper: Callable[[exp.Expression], Node]) -> Node:
    left, right = node.this, node.args["expression"]
    _refuse_inner(node, left, right)
    if isinstance(node, _ARITHMETIC) and (isinstance(left, exp.DPipe) or isinstance(right, exp.DPipe)):
        refuse("|| beside arithmetic without brackets", node, "add brackets, or use concat")
    return Op(_BINARY[type(node)], (deeper(left), deeper(right)))


def _refuse_inner(node: exp.Expression, *sides: exp.Expression) -> None:
    """Spark and sqlglot group these differently, or Spark does not parse them: a = b < c, a = NOT b, a IS NULL IS NULL."""
    for side in sides:
        inner = side.this if isinstance(side, exp.Paren) and not side.meta.get("written") else side
        if isinstance(inner, _COMPARISON) and isinstance(node, exp.Is) and inner is not side:
            continue  # a = b IS NULL is (a = b) IS NULL for both
        if isinstance(inner, _PREDICATE):
            refuse("one condition inside another without brackets", node, "add brackets")


def _number(text: str, node: exp.Expression) -> Lit:
    try:
        if "e" in text.lower():
            double = float(text)
            if double in (float("inf"), float("-inf")):
                refuse(f"{text} is too large for a double", node, "")
            return Lit(double, DOUBLE)
        if text.lstrip("-").isdecimal():
            n = int(text)
            if INT_MIN <= n <= INT_MAX:
                return Lit(n, INT)
            if LONG_MIN <= n <= LONG_MAX:
                return Lit(n, BIGINT)
        number = Decimal(text)
    except ArithmeticError:
        refuse(f"{text} is not a number of the subset", node, "")
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    significant = len("".join(map(str, digits)).lstrip("0")) or 1
    precision = max(significant, scale)
    if precision > DIGITS:
        refuse(f"{text} has more than {DIGITS} digits", node, "write it with an exponent for a double")
    return Lit(number or abs(number), decimal(precision, scale))


def _type(to: exp.DataType) -> Type:
    name = to.this.name if hasattr(to.this, "name") else str(to.this)
    parameters = [p.name for p in to.expressions]
    if name == "DECIMAL" and all(p.isdecimal() for p in parameters) and len(parameters) <= 2:
        precision, scale = [int(p) for p in [*parameters, *("10", "0")[len(parameters) :]]]
        if 1 <= precision <= DIGITS and scale <= precision:
            return decimal(precision, scale)
        refuse(f"decimal({precision},{scale}) is not a type of Spark", to, "")
    known = _TYPES.get(name)
    if known is None or parameters:
        refuse(
            f"a cast to {to.sql(dialect='spark').lower()} is outside the subset", to,
            "cast to string, int, bigint, double, boolean, decimal(p,s), date or timestamp; " + SCHEMA_HINT,
        )  # fmt: skip
    return known


def _reference(node: exp.Expression, deeper: Callable[[exp.Expression], Node]) -> Node:
    if isinstance(node, exp.Column):
        if isinstance(node.this, exp.Star):
            refuse("* is outside the subset", node)
        names = [part.name for part in node.parts]
        return _known(tuple(names), node)
    if isinstance(node, exp.Dot):
        if isinstance(node.expression, exp.Anonymous | exp.Func):
            refuse(f"the function {node.sql(dialect='spark').split('(')[0]} is outside the subset", node)
        base = deeper(node.this) if not isinstance(node.this, exp.Identifier) else _known((node.this.name,), node)
        if not isinstance(base, Ref):
            refuse("a field of a computed value is outside the subset", node)
        return _known((*base.path, node.expression.name), node)
    base = deeper(node.this)
    inside = node.expressions
    if len(inside) != 1 or node.args.get("offset") not in (None, 0):
        refuse("this index is outside the subset", node)
    index = deeper(inside[0])
    if isinstance(base, Ref) and isinstance(index, Lit):
        if index.type == STRING or index.type == INT:
            return _known((*base.path, index.value), node)
        refuse("an index is an integer or a string", node, "")
    if isinstance(base, Ref) and len(base.path) == 1 and base.path[0] in {*PAYLOADS, "metadata"}:
        refuse("a computed key of a payload is outside the subset", node)
    return Op("[]", (base, index))


def _known(path: tuple[str | int, ...], node: exp.Expression) -> Ref:
    head, rest = path[0], path[1:]
    if head not in COLUMNS:
        near = difflib.get_close_matches(str(head), COLUMNS, 1) or difflib.get_close_matches(
            str(head).lower(), COLUMNS, 1
        )
        hint = f"did you mean `{near[0]}`? " if near else f"a field of the payload is `after.{head}`; "
        refuse(f"there is no column {head!r} in a record", node, f"{hint}the columns are {', '.join(COLUMNS)}")
    if head not in PAYLOADS and rest:
        if head != "metadata":
            refuse(f"{head} has no fields", node, "")
        if len(rest) > 1 or not isinstance(rest[0], str):
            refuse("metadata maps a string to a string", node, "metadata['key']")
    return Ref(path)


def _function(node: exp.Anonymous, deeper: Callable[[exp.Expression], Node]) -> Node:
    written = str(node.this).lower()
    name = ALIASES.get(written, written)
    if name not in FUNCTIONS:
        refuse(f"the function {written} is outside the subset of SQL for open payloads", node)
    least, most = (2, 2) if written in TWO_ARGUMENTS else FUNCTIONS[name]
    if not least <= len(node.expressions) <= most:
        takes = str(least) if least == most else f"{least} to {most}" if most < 99 else f"at least {least}"
        refuse(f"{written} takes {takes} arguments in the subset, not {len(node.expressions)}", node)
    if any(isinstance(a, exp.Star | exp.Distinct | exp.Lambda | exp.Kwarg | exp.Query) for a in node.expressions):
        refuse(f"this argument of {written} is outside the subset", node)
    args = tuple(deeper(a) for a in node.expressions)
    if name == "isnotnull":
        return Op("not", (Op("isnull", args),))
    return _checked(Op("case" if name == "if" else name, args), node)


def _checked(op: Op, node: exp.Expression) -> Op:
    """What an operator asks of its literals."""
    if op.name == "like" and isinstance(op.args[1], Lit) and isinstance(op.args[1].value, str):
        try:
            like_regex(op.args[1].value)
        except EvaluationError as e:
            raise ExpressionError(e.what, hint="escape _, % and \\ only", column=column_of(node)) from None
    if op.name in ("rlike", "split", "regexp_replace"):
        pattern = op.args[1]
        if not isinstance(pattern, Lit) or pattern.type != STRING:
            refuse(f"the pattern of {op.name} has to be a string literal", node)
        try:
            made = java_regex(pattern.value)
        except PatternRefused as e:
            refuse(f"the regular expression may mean something else in Java: {e}", node)
        if op.name != "rlike" and not never_empty(made):
            refuse(f"the pattern of {op.name} matches the empty string", node)
    if op.name == "regexp_replace":
        new = op.args[2]
        if not isinstance(new, Lit) or new.type != STRING or "$" in new.value or "\\" in new.value:
            refuse("the replacement of regexp_replace has to be a string literal without $ and \\", node)
    if op.name == "round" and len(op.args) == 2:
        digits = op.args[1]
        if not isinstance(digits, Lit) or digits.type != INT or abs(digits.value) > 300:
            refuse("the digits of round have to be an integer literal", node)
    return op
