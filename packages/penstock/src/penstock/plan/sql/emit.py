"""From the tree and the types of its references to Python source, the way Spark's analyzer and code generator would.

Types are known when code is made, so the code has no dispatch in it: `after.amount < 50` over an int is `v0 < 50`.
A type error of Spark's analyzer is an EvaluationError here: these records would not fit any typed column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from penstock.plan.sql import casts, values
from penstock.plan.sql.errors import Unmatched
from penstock.plan.sql.tree import Lit, Node, Op, Ref
from penstock.plan.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INT_MAX,
    INT_MIN,
    INTEGRAL,
    LONG_MAX,
    LONG_MIN,
    STRING,
    TIMESTAMP,
    VOID,
    Type,
    adjusted,
    as_decimal,
    is_decimal,
    is_nested,
    is_numeric,
    mismatch,
    promoted,
    tightest,
    wider_decimal,
)


@dataclass(frozen=True)
class Code:
    """Python source of one value. `null`: it may be None. `simple`: a name or literal, free to repeat."""

    src: str
    type: Type
    null: bool = False
    simple: bool = False
    literal: int | None = None  # an integer literal, which takes fewer digits beside a decimal
    where: str = ""  # the field it comes from, for errors


NULL = Code("None", VOID, null=True, simple=True)


class Emitter:
    """Makes one expression's source. `names` are what the source needs beside its variables."""

    def __init__(self, variables: Mapping[Ref, tuple[str, Type, bool]]) -> None:
        """`variables`: the Python name of each reference, its type, and whether it is a Hole."""
        self._variables = variables
        self._temporaries = 0
        self.names: dict[str, Any] = {}

    # --- small tools ---

    def bind(self, value: Any, hint: str = "c") -> str:
        """A name for an object in the generated source."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = f"{hint}{len(self.names)}"
        self.names[name] = value
        return name

    def call(self, function: Callable[..., Any], *sources: str) -> str:
        return f"{self.bind(function, 'f')}({', '.join(sources)})"

    def temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def strict(self, args: list[Code], to: Type, make: Callable[..., str], *, null: bool = False) -> Code:
        """NULL if any argument is, found from left to right; else `make` of their sources."""
        where = next((a.where for a in args if a.where), "")
        if not any(a.null for a in args):
            return Code(make(*[a.src for a in args]), to, null=null, where=where)
        checks, sources = [], []
        for a in args:
            if a.simple:
                sources.append(a.src)
                if a.null:
                    checks.append(f"{a.src} is None")
            else:
                name = self.temporary()
                sources.append(name)
                checks.append(f"({name} := {a.src}) is None")
        if any(a.src == "None" for a in args):  # what comes before it still has to be computed: it may raise
            if all(a.simple for a in args):
                return Code("None", to, null=True, simple=True, where=where)
            return Code(f"(None if {' or '.join(checks)} else None)", to, null=True, where=where)
        return Code(f"(None if {' or '.join(checks)} else {make(*sources)})", to, null=True, where=where)

    def cast(self, code: Code, to: Type, *, safe: bool = False) -> Code:
        if code.type == to:
            return code
        if code.type == VOID:
            return Code(code.src, to, null=True, simple=code.simple, where=code.where)
        if is_decimal(to) and code.literal is not None and code.type in INTEGRAL:
            made = casts.int_to_decimal(code.literal, to, "")
            return Code(self.bind(made), to, simple=True)
        function = casts.caster(code.type, to)
        if function is None:
            return Code(code.src, to, code.null, code.simple, None, code.where)
        if code.literal is not None and to == DOUBLE:
            return Code(repr(float(code.literal)), DOUBLE, simple=True, where=code.where)
        if to == DOUBLE and code.type in INTEGRAL and not safe:
            return self.strict([code], to, lambda v: f"float({v})")
        where = repr(code.where)
        if safe:
            return self.strict(
                [code], to, lambda v: self.call(values.try_cast, self.bind(function, "f"), v, where), null=True
            )
        unsure = code.type == DOUBLE and is_decimal(to)  # NaN and infinity become NULL
        return self.strict([code], to, lambda v: self.call(function, v, where), null=unsure)

    def string(self, code: Code, what: str) -> Code:
        if is_nested(code.type):
            raise mismatch(what, code.type)
        if code.type == BINARY:
            raise Unmatched(f"{what} of bytes", code.where)
        return self.cast(code, STRING)

    def integer(self, code: Code, what: str) -> Code:
        if not (is_numeric(code.type) or code.type in (STRING, VOID)):
            raise mismatch(what, code.type)
        return self.cast(code, INT)

    # --- the tree ---

    def emit(self, node: Node) -> Code:
        if isinstance(node, Ref):
            return self._reference(node)
        if isinstance(node, Lit):
            if node.type == VOID:
                return NULL
            if is_decimal(node.type):
                return Code(self.bind(node.value), node.type, simple=True)
            literal = node.value if node.type in INTEGRAL else None
            return Code(repr(node.value), node.type, simple=literal is None or literal >= 0, literal=literal)
        method = _METHODS.get(node.name)
        if method is not None:
            return method(self, node)
        return self._call(node)

    def _reference(self, ref: Ref) -> Code:
        name, kind, hole = self._variables[ref]
        where = ref.name
        if hole:
            return Code(self.call(values.reach, name, repr(where)), kind, null=kind == VOID, where=where)
        if kind == VOID:
            return Code("None", VOID, null=True, simple=True, where=where)
        if is_decimal(kind):
            return Code(self.call(Decimal, name), kind, where=where)
        if kind == TIMESTAMP:
            return Code(self.call(casts.to_utc, name, repr(where)), kind, where=where)
        return Code(name, kind, simple=True, where=where)

    # logic

    def _boolean(self, code: Code, what: str, *, strings: bool) -> Code:
        if code.type == BOOLEAN or code.type == VOID or (strings and code.type == STRING):
            return self.cast(code, BOOLEAN)
        raise mismatch(what, code.type)

    def _and(self, op: Op) -> Code:
        parts = [self.emit(a) for a in op.args]
        if parts[0].type == STRING and parts[1].type in (STRING, VOID):
            raise mismatch(op.name, parts[0].type, parts[1].type)
        if parts[1].type == STRING and parts[0].type == VOID:
            raise mismatch(op.name, parts[0].type, parts[1].type)
        parts = [self._boolean(p, op.name, strings=True) for p in parts]
        if not any(p.null for p in parts):
            return Code(f"({f' {op.name} '.join(p.src for p in parts)})", BOOLEAN)
        decisive, other = ("False", "True") if op.name == "and" else ("True", "False")
        tests, unknowns = [], []
        for p in parts:
            name = self.temporary()
            tests.append(f"({name} := {p.src}) is {decisive}")
            if p.null:
                unknowns.append(f"{name} is None")
        src = f"({decisive} if {' or '.join(tests)} else None if {' or '.join(unknowns)} else {other})"
        return Code(src, BOOLEAN, null=True)

    def _not(self, op: Op) -> Code:
        inner = self._boolean(self.emit(op.args[0]), "not", strings=True)
        return self.strict([inner], BOOLEAN, lambda v: f"(not {v})")

    def _isnull(self, op: Op) -> Code:
        inner = self.emit(op.args[0])
        if not inner.null and (inner.simple or inner.literal is not None):
            return Code("False", BOOLEAN, simple=True)
        if inner.src == "None":
            return Code("True", BOOLEAN, simple=True)
        return Code(f"(({self.temporary()} := {inner.src}) is None)", BOOLEAN)  # named: Python warns of `'a' is None`

    def _case(self, op: Op) -> Code:
        conditions = [self._boolean(self.emit(a), "case", strings=False) for a in op.args[:-1:2]]
        results = self._unified([self.emit(a) for a in [*op.args[1:-1:2], op.args[-1]]], "case")
        parts = "".join(
            f"{r.src} if {c.src}{' is True' if c.null else ''} else " for c, r in zip(conditions, results, strict=False)
        )
        return Code(f"({parts}{results[-1].src})", results[0].type, null=any(r.null for r in results))

    def _coalesce(self, op: Op) -> Code:
        parts = self._unified([self.emit(a) for a in op.args], "coalesce")
        made = parts[-1]
        for p in reversed(parts[:-1]):
            if not p.null:
                made = p
                continue
            name = self.temporary()
            made = Code(
                f"({name} if ({name} := {p.src}) is not None else {made.src})", p.type, made.null, where=p.where
            )
            # the condition of a conditional expression is evaluated first, so the name is bound when it is read
        return made

    def _nullif(self, op: Op) -> Code:
        value = self.emit(op.args[0])
        equal = self._compare("=", value, self.emit(op.args[1]))
        return Code(f"(None if {equal.src}{' is True' if equal.null else ''} else {value.src})", value.type, null=True)

    def _unified(self, parts: list[Code], what: str, *, strings: bool = True) -> list[Code]:
        ordered = sorted(parts, key=lambda p: p.type != STRING)
        joined = VOID
        for p in ordered:
            found = tightest(joined, p.type) or (promoted(joined, p.type) if strings else None)
            if found is None:
                raise mismatch(what, joined, p.type)
            if is_nested(found) and VOID not in (joined, p.type):
                raise Unmatched(f"{what} of {found}")
            joined = found
        return [self.cast(p, joined) for p in parts]

    # comparison

    def _comparison(self, op: Op) -> Code:
        return self._compare(op.name, self.emit(op.args[0]), self.emit(op.args[1]))

    def _compare(self, sign: str, a: Code, b: Code) -> Code:
        if is_nested(a.type) or is_nested(b.type):
            if VOID in (a.type, b.type):
                return self.strict([a, b], BOOLEAN, lambda *_: "None", null=True)
            raise Unmatched(f"{sign} of {a.type} and {b.type}", a.where)
        to = self._operand_type(a, b)
        if to is None:
            raise mismatch(sign, a.type, b.type)
        a, b = self.cast(a, to), self.cast(b, to)
        if sign == "<=>":
            return self._null_safe(a, b)
        return self.strict([a, b], BOOLEAN, lambda x, y: self._compared(sign, to, x, y))

    def _operand_type(self, a: Code, b: Code) -> Type | None:
        """Of two operands; an integer literal beside a decimal takes only its own digits."""
        if is_decimal(a.type) != is_decimal(b.type) and {a.type, b.type} & INTEGRAL:
            return wider_decimal(as_decimal(a.type, a.literal), as_decimal(b.type, b.literal))
        if BINARY in (a.type, b.type) and STRING in (a.type, b.type):
            raise Unmatched("a comparison of bytes and a string", a.where or b.where)
        return tightest(a.type, b.type) or promoted(a.type, b.type)

    def _compared(self, sign: str, to: Type, x: str, y: str) -> str:
        if to != DOUBLE:
            return f"({x} {_PYTHON[sign]} {y})"
        if _is_number(y):  # never NaN: a value that is NaN is greater, so > and >= are the opposite of <= and <
            return {">": f"(not {x} <= {y})", ">=": f"(not {x} < {y})"}.get(sign, f"({x} {_PYTHON[sign]} {y})")
        equal, less = values.double_eq, values.double_lt
        return {
            "=": lambda: self.call(equal, x, y),
            "<>": lambda: f"(not {self.call(equal, x, y)})",
            "<": lambda: self.call(less, x, y),
            ">": lambda: self.call(less, y, x) if not _raises(x, y) else self.call(_greater, x, y),
            "<=": lambda: f"(not {self.call(_greater, x, y)})",
            ">=": lambda: f"(not {self.call(less, x, y)})",
        }[sign]()

    def _null_safe(self, a: Code, b: Code) -> Code:
        if not a.null and not b.null:
            return Code(self._compared("=", a.type, a.src, b.src), BOOLEAN)
        x, y = self.temporary(), self.temporary()
        check = f"(({x} := {a.src}) is None) + (({y} := {b.src}) is None)"
        nulls = self.temporary()
        src = f"({nulls} == 2 if ({nulls} := {check}) else {self._compared('=', a.type, x, y)})"
        return Code(src, BOOLEAN)

    def _in(self, op: Op) -> Code:
        parts = self._unified([self.emit(a) for a in op.args], "in")
        value, *options = parts
        to = value.type
        if is_nested(to):
            raise Unmatched(f"in of {to}", value.where)
        if to == VOID:
            return self.strict([value], BOOLEAN, lambda _: "None", null=True)
        constants = all(isinstance(a, Lit) for a in op.args[1:]) and not any(o.null for o in options)
        if (
            constants
            and to in (BIGINT, INT, STRING, BOOLEAN)
            and all(o.simple or o.literal is not None for o in options)
        ):
            chosen = self.bind(frozenset(a.value for a in op.args[1:] if isinstance(a, Lit)))
            if all(isinstance(a, Lit) and type(a.value) is _PYTHON_TYPE[to] for a in op.args[1:]):
                return self.strict([value], BOOLEAN, lambda v: f"({v} in {chosen})")
        equal = self.bind(values.double_eq if to == DOUBLE else values.same, "f")
        listed = ", ".join(f"lambda: {o.src}" for o in options)
        return self.strict(
            [value],
            BOOLEAN,
            lambda v: self.call(values.one_of, v, f"[{listed}]", equal),
            null=any(o.null for o in options),
        )

    # arithmetic

    def _arithmetic(self, op: Op) -> Code:
        a, b = self.emit(op.args[0]), self.emit(op.args[1])
        sign = op.name
        if DATE in (a.type, b.type) or TIMESTAMP in (a.type, b.type):
            raise Unmatched(f"{sign} on dates and times: use date_add or datediff", a.where or b.where)
        if is_nested(a.type) or is_nested(b.type):
            raise mismatch(sign, a.type, b.type)
        if STRING in (a.type, b.type):
            to = promoted(a.type, b.type)
            if to == STRING and VOID in (a.type, b.type):
                return self.strict([a, b], DOUBLE, lambda *_: "None", null=True)
            if to not in (BIGINT, DOUBLE):
                raise mismatch(sign, a.type, b.type)
            a, b = self.cast(a, to), self.cast(b, to)
        if a.type == VOID and b.type == VOID:
            return self.strict([a, b], DOUBLE, lambda *_: "None", null=True)
        if not all(is_numeric(c.type) or c.type == VOID for c in (a, b)):
            raise mismatch(sign, a.type, b.type)
        if DOUBLE not in (a.type, b.type) and (is_decimal(a.type) or is_decimal(b.type)):
            return self._decimal(sign, a, b)
        to = DOUBLE if sign == "/" else (tightest(a.type, b.type) or DOUBLE)
        if sign in ("/", "%"):
            return self._divided(sign, self.cast(a, to), self.cast(b, to), to)
        a, b = self.cast(a, to), self.cast(b, to)
        if to == DOUBLE:
            return self.strict([a, b], DOUBLE, lambda x, y: f"({x} {sign} {y})")
        return self.strict([a, b], to, lambda x, y: self._checked(f"{x} {sign} {y}", to))

    def _checked(self, src: str, to: Type) -> str:
        low, high = (INT_MIN, INT_MAX) if to == INT else (LONG_MIN, LONG_MAX)
        name = self.temporary()
        return f"({name} if {low} <= ({name} := {src}) <= {high} else {self.call(values.overflow, repr(str(to)))})"

    def _divided(self, sign: str, a: Code, b: Code, to: Type) -> Code:
        """Spark computes the divisor first."""
        if to == DOUBLE:
            function: Callable[..., Any] = values.double_div if sign == "/" else values.double_mod
        else:
            function = values.long_mod
        if not (a.null or b.null):
            return Code(self.call(function, a.src, b.src), to, where=a.where)
        return self.strict([b, a], to, lambda y, x: self.call(function, x, y))

    def _decimal(self, sign: str, a: Code, b: Code) -> Code:
        if VOID in (a.type, b.type):
            other = b.type if a.type == VOID else a.type
            return self.strict([a, b], other, lambda *_: "None", null=True)
        ta, tb = as_decimal(a.type, a.literal), as_decimal(b.type, b.literal)
        a, b = self.cast(a, ta), self.cast(b, tb)
        (p1, s1), (p2, s2) = (ta.precision, ta.scale), (tb.precision, tb.scale)
        if sign in "+-":
            scale = max(s1, s2)
            to = adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
            function: Callable[..., Any] = values.decimal_add if sign == "+" else values.decimal_sub
        elif sign == "*":
            to, function = adjusted(p1 + p2 + 1, s1 + s2), values.decimal_mul
        elif sign == "/":
            scale = max(6, s1 + p2 + 1)
            to, function = adjusted(p1 - s1 + s2 + scale, scale), values.decimal_div
        else:
            to = adjusted(min(p1 - s1, p2 - s2) + max(s1, s2), max(s1, s2))
            function = values.decimal_mod
        kind = self.bind(to)
        return self.strict([a, b], to, lambda x, y: self.call(function, x, y, kind))

    def _negative(self, op: Op) -> Code:
        a = self._number(self.emit(op.args[0]), "-")
        if a.type == DOUBLE:
            return self.strict([a], DOUBLE, lambda v: f"(-{v})")
        if is_decimal(a.type):
            return self.strict([a], a.type, lambda v: self.call(values.decimal_negative, v))
        return self.strict([a], a.type, lambda v: self._checked(f"-({v})", a.type))

    def _number(self, a: Code, what: str) -> Code:
        if a.type in (STRING, VOID):
            return self.cast(a, DOUBLE)
        if not is_numeric(a.type):
            raise mismatch(what, a.type)
        return a

    # casts and functions

    def _cast(self, op: Op) -> Code:
        assert op.to is not None
        inner = self.emit(op.args[0])
        if inner.type == op.to:
            return Code(inner.src, inner.type, inner.null, inner.simple, None, inner.where)
        made = self.cast(inner, op.to, safe=op.name == "try_cast")
        return Code(made.src, made.type, made.null, made.simple, None, inner.where)

    def _call(self, op: Op) -> Code:
        from penstock.plan.sql.functions import FUNCTIONS

        return FUNCTIONS[op.name](self, op.name, [self.emit(a) for a in op.args])


_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PYTHON_TYPE: dict[Type, type] = {BIGINT: int, INT: int, STRING: str, BOOLEAN: bool}


def _is_number(src: str) -> bool:
    try:
        number = float(src)
    except ValueError:
        return False
    return number == number


def _raises(*sources: str) -> bool:
    """Whether the order in which they are computed may show."""
    return any("(" in s for s in sources)


def _greater(a: float, b: float) -> bool:
    return values.double_lt(b, a)


_METHODS: dict[str, Callable[[Emitter, Op], Code]] = {
    **dict.fromkeys(("and", "or"), Emitter._and),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), Emitter._comparison),
    **dict.fromkeys(("+", "-", "*", "/", "%"), Emitter._arithmetic),
    **dict.fromkeys(("cast", "try_cast"), Emitter._cast),
    "not": Emitter._not,
    "isnull": Emitter._isnull,
    "case": Emitter._case,
    "coalesce": Emitter._coalesce,
    "nullif": Emitter._nullif,
    "in": Emitter._in,
    "negative": Emitter._negative,
}
