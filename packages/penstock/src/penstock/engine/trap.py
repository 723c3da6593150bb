"""The trap: an expression that raises costs one record, not the job. The only file that touches Catalyst.

Called by the engine while it builds a plan (driver side); what it returns is evaluated in Spark tasks. The session that
runs the plan needs SETTINGS: without them Spark computes parts of the expression ahead of the trap, outside of it.

What the trap catches is every Java `Exception` while a row is evaluated. It does not catch an `Error`: a stack overflow
(a regular expression like `(a|b)*` on a long text) or memory running out ends the JVM. That is a batch that kills.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import Stop
from penstock.testing.faults import safeguard

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SETTINGS = {
    # on: a part that two columns share is computed once, before both, where nothing catches
    "spark.sql.subexpressionElimination.enabled": "false",
    # false: the input of BETWEEN and NULLIF is computed in a projection of its own below the trap
    "spark.sql.alwaysInlineCommonExpr": "true",
    "spark.sql.ansi.enabled": "true",  # off: a bad cast is a silent NULL
}

# These keep a buffer from row to row and leave it half full when they raise: seen in 4.2 and 4.3, the record *after* the
# bad one got the bad one's keys, text or format, or the job died. Caught is therefore not enough.
UNSAFE = frozenset(
    {"map", "map_concat", "map_from_arrays", "map_from_entries", "str_to_map", "transform_keys", "to_xml"}
)
FORMAT_NUMBER = "format_number"  # likewise with a pattern; a literal number of digits cannot raise

# These become operators of their own in the plan, so whatever they raise is raised outside the trap.
ELSEWHERE = {
    "PLAN_EXPRESSION": "a subquery",
    "WINDOW_EXPRESSION": "a window function",
    "PYTHON_UDF": "a Python function",
}


def trap(value: Column) -> Column:
    """NULL struct where evaluating `value` raises, else struct<value: T>; `value` itself may be NULL.

    Raises Stop for an expression that would escape. 5 million rows, 2 cores, `cast(cast(id AS STRING) AS INT) % 7 = 3`:
    0.3 s bare, 0.5 to 1.0 s trapped with an outcome and a filter on it; as a column alone 0.25 to 0.35 and 0.3 to 0.4 s
    (one run on a machine that others used).
    """
    from pyspark.sql import Column, functions

    struct = functions.struct(value.alias("value"))
    if not safeguard("trap"):
        return struct
    try:
        sql, utils = _catalyst()
        _refuse(sql, value)
        made = utils.column(sql.catalyst.expressions.TryEval(utils.expression(_java(struct))))
    except (AttributeError, TypeError) as e:  # py4j takes a class that is not there for a package
        raise Stop(
            "This Spark cannot trap an expression that raises",
            code="spark.version",
            why=f"a class of Catalyst is missing or has changed ({e})",
            hint="use a Spark version that Penstock was tested with, without Spark Connect",
        ) from e
    return Column(made)  # type: ignore[no-any-return, unused-ignore]


def rehearse(rows: DataFrame, value: Column) -> None:
    """Runs `trap(value)` over no record with the schema of `rows`; to be called once, when the plan is made.

    A constant part that is wrong (`x + 1/0`, `x RLIKE '('`, a time zone that isn't) raises for every record, and in the
    planner, the code generator or the start of a task, where no trap helps. Here it is a Stop before anything is read.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    spark = rows.sparkSession
    nothing = no_rows(rows)
    for name, wanted in SETTINGS.items():
        if (given := spark.conf.get(name)) != wanted:
            raise Stop(
                f"The Spark setting {name}={given} lets errors escape", code="spark.setting", hint=f"set {wanted}"
            )
    try:
        nothing.select("*", trap(value).alias("_t")).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as e:
        raise Stop(
            "An expression cannot be evaluated for any record",
            code="processor.expression",
            why=_reason(e),
            hint="correct the expression",
        ) from e


def no_rows(rows: DataFrame) -> DataFrame:
    """No record of the same schema, but one task, over rows that the optimiser cannot see into."""
    from pyspark.sql import DataFrame

    spark: Any = rows.sparkSession
    empty = spark.sparkContext._jsc.parallelize(spark.sparkContext._jvm.java.util.ArrayList(), 1)
    return DataFrame(spark._jsparkSession.createDataFrame(empty, _schema(rows)), spark)


def _catalyst() -> tuple[Any, Any]:
    """The JVM's `org.apache.spark.sql` and its bridge between Column and Expression."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    sql = jvm.org.apache.spark.sql
    return sql, getattr(getattr(sql.classic, "ExpressionUtils$"), "MODULE$")


def _java(column: Column) -> Any:
    return column._jc  # type: ignore[attr-defined, unused-ignore]


def _schema(rows: DataFrame) -> Any:
    frame: Any = rows
    return frame._jdf.schema()


def _refuse(sql: Any, value: Column) -> None:
    """Stop for what the trap cannot hold."""
    converter = getattr(getattr(sql.classic, "ColumnNodeToExpressionConverter$"), "MODULE$")
    tree = converter.apply(_java(value).node())
    patterns = sql.catalyst.trees.TreePattern
    found = [what for pattern, what in ELSEWHERE.items() if tree.containsPattern(getattr(patterns, pattern)())]
    found += [f"the function {name}" for name in _unsafe_functions(tree, patterns.UNRESOLVED_FUNCTION())]
    if found:
        raise Stop(
            f"An expression uses {found[0]}, which Spark cannot confine to one record when it fails",
            code="processor.expression",
            why="an error in it would end the job or spoil the next record",
            hint="do this step in a Python processor",
        )


def _unsafe_functions(tree: Any, unresolved: Any) -> Iterator[str]:
    if not tree.containsPattern(unresolved):
        return
    children = [tree.children().apply(i) for i in range(tree.children().size())]
    if tree.nodeName() == "UnresolvedFunction":
        name = str(tree.nameParts().last()).lower()
        constant = all(child.nodeName() == "Literal" for child in children)  # e.g. the options of from_json
        digits = name == FORMAT_NUMBER and _is_int_literal(children[-1])
        if (name in UNSAFE and not constant) or (name == FORMAT_NUMBER and not digits):
            yield name
    for child in children:
        yield from _unsafe_functions(child, unresolved)


def _is_int_literal(tree: Any) -> bool:
    return bool(tree.nodeName() == "Literal" and tree.dataType().simpleString() == "int")


def _reason(error: Exception) -> str:
    """The first line that says something; Spark puts the cause of a failed task below the news that it failed."""
    lines = [line.strip() for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes or [line for line in lines if line] or [type(error).__name__])[-1 if causes else 0]
