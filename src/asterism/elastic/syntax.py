"""The syntax tree of an EQL query."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression."""

    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    """where it begins in the text of the query"""


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class FieldName(Node):
    """A field, whose name has its parts between dots and brackets.

    :ivar optional: ``?user.id``: if there is no such column, its value is NULL
    """

    parts: tuple[str | int, ...]
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class FunctionCall(Node):
    """
    :ivar any_case: ``startsWith~``: letters of any case are equal
    """

    name: str
    arguments: tuple[Node, ...]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """``left operator right``: arithmetic or a comparison."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Negative(Node):
    of: Node


@dataclass(frozen=True, slots=True)
class OneOf(Node):
    """``of in (a, b)``.

    :ivar any_case: ``in~``
    """

    of: Node
    values: tuple[Node, ...]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Matches(Node):
    """``of : "a*"``, ``like``, ``like~``, ``regex`` or ``regex~`` with one or several patterns."""

    operator: str
    of: Node
    patterns: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Not(Node):
    of: Node


@dataclass(frozen=True, slots=True)
class Junction(Node):
    """
    :ivar word: ``and`` or ``or``
    """

    word: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class EventQuery(Node):
    """``process where condition``.

    :ivar category: the event category; None: ``any``
    """

    category: str | None
    condition: Node


@dataclass(frozen=True, slots=True)
class Step(Node):
    """An event of a sequence or a sample.

    :ivar by: the keys of this event, after those of the whole sequence
    :ivar absent: ``![ ]``: there is no such event
    """

    query: EventQuery
    by: tuple[Node, ...] = ()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Sequence(Node):
    """``sequence by key with maxspan=5m [ ] [ ] until [ ]``; ``with runs=n`` has been written out."""

    by: tuple[Node, ...]
    maxspan: timedelta | None
    steps: tuple[Step, ...]
    until: Step | None = None


@dataclass(frozen=True, slots=True)
class Sample(Node):
    """``sample by key [ ] [ ]``: events in any order."""

    by: tuple[Node, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Pipe(Node):
    """``| head 5``."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query with its text."""

    text: str
    of: EventQuery | Sequence | Sample
    pipes: tuple[Pipe, ...] = ()
