"""The syntax tree of an EQL query."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class EqlNode:
    """A part of an expression."""

    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    """where it begins in the text of the query"""


@dataclass(frozen=True, slots=True)
class EqlLiteral(EqlNode):
    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class EqlFieldName(EqlNode):
    """A field, whose name has its parts between dots and brackets.

    :ivar optional: ``?user.id``: if there is no such column, its value is NULL
    """

    parts: tuple[str | int, ...]
    optional: bool = False

    @property
    def name(self) -> str:
        return ".".join(map(str, self.parts))


@dataclass(frozen=True, slots=True)
class EqlFunctionCall(EqlNode):
    """
    :ivar any_case: ``startsWith~``: letters of any case are equal
    """

    name: str
    arguments: tuple[EqlNode, ...]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class EqlOperation(EqlNode):
    """``left operator right``: arithmetic or a comparison."""

    operator: str
    left: EqlNode
    right: EqlNode


@dataclass(frozen=True, slots=True)
class EqlNegative(EqlNode):
    of: EqlNode


@dataclass(frozen=True, slots=True)
class EqlOneOf(EqlNode):
    """``of in (a, b)``.

    :ivar any_case: ``in~``
    """

    of: EqlNode
    values: tuple[EqlNode, ...]
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class EqlMatches(EqlNode):
    """``of : "a*"``, ``like``, ``like~``, ``regex`` or ``regex~`` with one or several patterns."""

    operator: str
    of: EqlNode
    patterns: tuple[EqlLiteral, ...]


@dataclass(frozen=True, slots=True)
class EqlNot(EqlNode):
    of: EqlNode


@dataclass(frozen=True, slots=True)
class EqlJunction(EqlNode):
    """
    :ivar word: ``and`` or ``or``
    """

    word: str
    parts: tuple[EqlNode, ...]


@dataclass(frozen=True, slots=True)
class EqlEventQuery(EqlNode):
    """``process where condition``.

    :ivar category: the event category; None: ``any``
    :ivar end: where it ends in the text of the query
    """

    category: str | None
    condition: EqlNode
    end: int = field(default=0, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class EqlStep(EqlNode):
    """An event of a sequence or a sample.

    :ivar by: the keys of this event, after those of the whole sequence
    :ivar absent: ``![ ]``: there is no such event
    """

    query: EqlEventQuery
    by: tuple[EqlNode, ...] = ()
    absent: bool = False


@dataclass(frozen=True, slots=True)
class EqlSequence(EqlNode):
    """``sequence by key with maxspan=5m [ ] [ ] until [ ]``; ``with runs=n`` has been written out."""

    by: tuple[EqlNode, ...]
    maxspan: timedelta | None
    steps: tuple[EqlStep, ...]
    until: EqlStep | None = None


@dataclass(frozen=True, slots=True)
class EqlSample(EqlNode):
    """``sample by key [ ] [ ]``: events in any order."""

    by: tuple[EqlNode, ...]
    steps: tuple[EqlStep, ...]


@dataclass(frozen=True, slots=True)
class EqlPipe(EqlNode):
    """``| head 5``."""

    name: str
    arguments: tuple[EqlNode, ...]


@dataclass(frozen=True, slots=True)
class EqlQuery:
    """A query with its text."""

    text: str
    of: EqlEventQuery | EqlSequence | EqlSample
    pipes: tuple[EqlPipe, ...] = ()
