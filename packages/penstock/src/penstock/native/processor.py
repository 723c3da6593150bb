"""The interface of processors. A processor never sees a DataFrame: it cannot lose a row, reorder, shuffle or run a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from penstock import record
from penstock.record import Shape
from penstock_sdk.record import Drop, Record, Reject

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

S = TypeVar("S")
Result = Record | Sequence[Record] | Drop | Reject


class Where(Enum):
    """Where a processor runs."""

    PYTHON = auto()  # `apply`, in Spark tasks, fused with its neighbours
    SPARK = auto()  # `compile`, as columns


class Unsuitable(Exception):
    """Raised by `Processor.where`: it can't work on payloads of this shape. Said before anything is started."""

    def __init__(self, what: str, hint: str = "", *, code: str = "config.shape") -> None:
        super().__init__(what)
        self.hint = hint
        self.code = code


@dataclass(frozen=True)
class Columns:
    """The record as columns, as far as the processors before this one have changed them."""

    by_name: Mapping[str, Column]
    shape: Shape
    schema: StructType  # of these columns

    def __getitem__(self, name: str) -> Column:
        return self.by_name[name]

    @property
    def after(self) -> Column:
        return self.by_name[record.AFTER]


@dataclass(frozen=True)
class Step:
    """What a processor does to every record its condition matches, as columns.

    An expression that raises for a record costs that record: the engine wraps each of them.
    """

    set: Mapping[str, Column] = field(default_factory=dict)
    drop: Column | None = None  # true = filtered on purpose; NULL is false
    reject: Column | None = None  # text = why the record is bad; NULL = it is not
    warn: Column | None = None  # true = it goes on, and is counted as one that something is wrong with; NULL is false


@dataclass(frozen=True)
class Example:
    """What a processor's page shows, and a test runs. Records are given by their fields: `{"after": {…}, "operation": …}`."""

    settings: Mapping[str, str]
    given: Mapping[str, Any]
    gives: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None  # None = dropped
    condition: str = ""
    rejects: str = ""  # instead of `gives`: what the dead letter says


class Inline:
    """A function of one payload for `on_payload`, and the same as statements, which saves its call in the loop over records.

    `source` works on `p`; `$name` in it is one of `names`. It ends with `p` set, raises, or drops the record by the two lines
    `filtered += 1` and `continue`. Made in Spark's tasks; never of text that a user wrote.
    """

    def __init__(self, function: Callable[[Any], Any], source: str, **names: Any) -> None:
        self.function = function
        self.source = source
        self.names = names

    def __call__(self, p: Any) -> Any:
        return self.function(p)


class Typed(Protocol):
    """What makes a typed column of what `apply` or `on_payload` of the last processor of a stage gave. Pickles."""

    def __hash__(self) -> int: ...

    @property
    def ddl(self) -> str:
        """The struct as Spark writes it: `STRUCT<…>`."""

    def column(self, values: Sequence[Any]) -> pa.StructArray:
        """In Spark's tasks. None is no payload."""


class Processor(Generic[S]):
    """One instance per place in a pipeline. Made in the engine process; the ones that run in Python are sent to Spark's tasks,
    so they must pickle. The engine adds condition, counts and order; what it raises for one record costs that record.
    """

    uses: ClassVar[frozenset[str]] = frozenset({record.AFTER})  # the record columns that `apply` looks at or changes
    sound: ClassVar[bool] = (
        False  # the payloads it gives are there and could be JSON: texts in UTF-8, numbers finite, on one line
    )
    code: ClassVar[str] = ""  # of its nacks, where it has one of its own
    raised: ClassVar[str] = ""  # the code where an expression of `compile` raises, if not `code`
    raises: ClassVar[str] = "it can't be done with this record"  # said where an expression of `compile` raises
    typed: Typed | None = None  # makes `after` typed in Python; it is the last of its stage then
    reshapes: ClassVar[bool] = False  # it takes fields away from a typed payload, or gives them another type
    example: ClassVar[Example | None] = None
    warned: int = 0  # see `warn`

    def __init__(self, settings: S, processor_id: str) -> None:
        """Called before Spark is there. No I/O."""
        self.settings = settings
        self.processor_id = processor_id

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        """Where it runs on payloads of this shape. No Spark and no user code: `validate` asks. Raise `Unsuitable` if nowhere."""
        return Where.PYTHON if type(self).apply is not Processor.apply else Where.SPARK

    def gives(self, shape: Shape) -> Shape:
        """The shape of `after` behind it."""
        return shape

    def fields(self) -> frozenset[str] | None:
        """Which fields of a typed `after` it looks at; None = it may be any. A source that can then reads no others."""
        return None

    def replaces(self) -> bool:
        """True where nothing of what `after` was is left in what it becomes."""
        return False

    def open(self) -> None:
        """Called once per task before the first record, in the task's process."""

    def warn(self) -> None:
        """For `apply`: this record goes on, and is counted as one that something is wrong with."""
        self.warned += 1

    def apply(self, r: Record) -> Result:
        """The meaning, record by record, in a Spark task. May change the record in place and return it.

        Returns what goes on: one record, several (parts of it), `DROP`, or `Reject`. None is a reject, never a filter. Any
        exception is a nack of this record alone.
        """
        raise NotImplementedError

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        """The same on `after` alone, given and returned (or `DROP`), where it looks at nothing else: saves making records.
        With `last` nobody in this stage looks at the result: structured payloads may be given as JSON text."""
        return None

    def on_batch(self) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        """Instead of `apply`: a whole Arrow batch, given and returned row for row. A boolean column `drop` and a text column
        `reject` in what it returns mean what they mean in `Step`."""
        return None

    def compile(self, columns: Columns) -> Step | None:  # noqa: ARG002
        """The same as columns; called once per attempt, on the engine's thread, with an active Spark session.

        Pure: equal columns give an equal step. Raising here stops the pipeline.
        """
        return None
