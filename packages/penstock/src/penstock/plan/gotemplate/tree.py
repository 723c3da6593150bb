"""What a template is made of, after parsing. Pure; made by `parser`, read by `compiler`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Number:
    """A literal that may serve as more than one type: 5.0 is an integer where one is wanted."""

    text: str
    whole: int | None  # as int
    real: float | None  # as float64
    is_real: bool = False  # what it is where nothing is wanted
    overflows: bool = False  # an unsigned one that is no int


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class Nil:
    pass


@dataclass(frozen=True, slots=True)
class Dot:
    pass


@dataclass(frozen=True, slots=True)
class Field:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str  # with its $
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Name:
    """A function."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of something in parentheses, or of a function's result."""

    base: Node
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pipe:
    commands: tuple[Command, ...]
    variables: tuple[str, ...] = ()
    assigns: bool = False  # = instead of :=


Node = Number | Text | Bool | Nil | Dot | Field | Variable | Name | Chain | Pipe


@dataclass(frozen=True, slots=True)
class Plain:
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Branch:
    """if, with and range."""

    word: str
    pipe: Pipe
    body: Items
    otherwise: Items | None


@dataclass(frozen=True, slots=True)
class Call:
    """{{template "name" pipeline}}"""

    name: str
    pipe: Pipe | None


@dataclass(frozen=True, slots=True)
class Jump:
    """break or continue"""

    word: str


Item = Plain | Action | Branch | Call | Jump
Items = tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Tree:
    root: Items
    defined: dict[str, Items] = field(default_factory=dict)
