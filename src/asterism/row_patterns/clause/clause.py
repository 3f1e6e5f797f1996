"""The syntax tree of a MATCH_RECOGNIZE clause.

Each node has its position in the text of the clause, for error messages. Comparisons ignore positions. ``str`` of a pattern is
its text in a normal form.

>>> str(Quantified(Concatenation((Variable("A"), Variable("B"))), 1, None, greedy=False))
'(A B)+?'
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from asterism.arguments import shown
from asterism.errors import StreamDefinitionError

# ---------------------------------------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class PatternNode:
    """A part of a pattern."""

    start: int = field(default=0, compare=False, repr=False, kw_only=True)
    """where it begins in the text of the clause"""

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return ()

    def walk(self) -> Iterator[PatternNode]:
        """This node and all nodes below it, in the order of the text."""
        stack: list[PatternNode] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.parts))


@dataclass(frozen=True, slots=True)
class Variable(PatternNode):
    """A variable: one row that satisfies its condition."""

    name: str

    def __str__(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class EmptyPattern(PatternNode):
    """``()``: no row."""

    def __str__(self) -> str:
        return "()"


@dataclass(frozen=True, slots=True)
class PartitionStart(PatternNode):
    """``^``: no row; only before the first row of the partition."""

    def __str__(self) -> str:
        return "^"


@dataclass(frozen=True, slots=True)
class PartitionEnd(PatternNode):
    """``$``: no row; only after the last row of the partition."""

    def __str__(self) -> str:
        return "$"


@dataclass(frozen=True, slots=True)
class NotNext(PatternNode):
    """``[^B]``: no row; only if the next row does not satisfy the condition of a variable, which takes no row. After a gap (see
    :func:`gap_of`), no row of the gap may satisfy it either.

    :ivar implied: it is not in the text: in the dialect of Flink, it comes after each greedy loop that a row must follow
    """

    name: str
    implied: bool = False

    def __str__(self) -> str:
        return f"<not {quoted(self.name)}>" if self.implied else f"[^{quoted(self.name)}]"


@dataclass(frozen=True, slots=True)
class _Several(PatternNode):
    of: tuple[PatternNode, ...]

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return self.of


@dataclass(frozen=True, slots=True)
class Concatenation(_Several):
    """``A B``: one after the other."""

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Alternation) else str(part) for part in self.of)


@dataclass(frozen=True, slots=True)
class Alternation(_Several):
    """``A | B``: one of them, the first is preferred."""

    def __str__(self) -> str:
        return " | ".join(map(str, self.of))


@dataclass(frozen=True, slots=True)
class Permutation(_Several):
    """``PERMUTE(A, B)``: all of them in any order. The order of preference is lexicographic by their places in the list."""

    def __str__(self) -> str:
        return f"PERMUTE({', '.join(map(str, self.of))})"


@dataclass(frozen=True, slots=True)
class _Single(PatternNode):
    of: PatternNode

    @property
    def parts(self) -> tuple[PatternNode, ...]:
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Quantified(_Single):
    """``A{least,most}``: repetitions; *most* is None if there is no upper limit. As many as possible are preferred if *greedy*,
    otherwise as few as possible.

    :ivar until: ``A+{C}``: a variable whose condition no row of the repetitions satisfies
    """

    least: int
    most: int | None
    greedy: bool = True
    until: str | None = None

    def __str__(self) -> str:
        # Spark would replace ${1} by a setting.
        in_parentheses = isinstance(self.of, Concatenation | Alternation | Quantified | PartitionEnd)
        of = f"({self.of})" if in_parentheses else str(self.of)
        most = "" if self.most is None else str(self.most)
        braces = f"{{{self.least}}}" if self.least == self.most else f"{{{self.least},{most}}}"
        sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((self.least, self.most), braces)
        until = "" if self.until is None else f"{{{quoted(self.until)}}}"
        return of + sign + ("" if self.greedy else "?") + until


@dataclass(frozen=True, slots=True)
class Exclusion(_Single):
    """``{- A -}``: the rows belong to the match, but not to the output of ALL ROWS PER MATCH."""

    def __str__(self) -> str:
        return f"{{- {self.of} -}}"


def gap_of(node: PatternNode) -> Quantified | None:
    """The loop of a gap, ``{- X* -}`` or ``{- X*? -}``; None if the node is something else."""
    loop = node.of if isinstance(node, Exclusion) else None
    if not isinstance(loop, Quantified) or not isinstance(loop.of, Variable) or loop.until is not None:
        return None
    return loop if (loop.least, loop.most) == (0, None) else None


def quoted(name: str) -> str:
    """A name as it must be written.

    >>> quoted("A"), quoted("a b")
    ('A', '`a b`')
    """
    plain = re.fullmatch(r"(?!\d+\Z)\w+", name) and name == name.upper() and name != "PERMUTE"
    return name if plain else "`" + name.replace("`", "``") + "`"


# ---------------------------------------------------------------------------------------------------- the clause


@dataclass(frozen=True, slots=True)
class ExpressionText:
    """An SQL expression, or the value of an option, as it was written."""

    text: str
    start: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """An expression of PARTITION BY, and its name in the output: None is the name of the column."""

    expression: ExpressionText
    name: str | None = None


@dataclass(frozen=True, slots=True)
class OrderKey:
    """An expression of ORDER BY. NULL is less than all values, unless *nulls_first* says otherwise."""

    expression: ExpressionText
    descending: bool = False
    nulls_first: bool | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """``expression AS name``."""

    expression: ExpressionText
    name: str
    start: int = field(default=0, compare=False)
    """where the name begins"""


class RowsPerMatch(enum.Enum):
    """The rows of the output."""

    ONE = "ONE ROW PER MATCH"
    ALL_SHOW_EMPTY = "ALL ROWS PER MATCH SHOW EMPTY MATCHES"
    ALL_OMIT_EMPTY = "ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    ALL_WITH_UNMATCHED = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"


class SkipTo(enum.Enum):
    """Where the search for the next match begins."""

    PAST_LAST_ROW = "PAST LAST ROW"
    NEXT_ROW = "TO NEXT ROW"
    FIRST = "TO FIRST"
    LAST = "TO LAST"
    NO_SKIP = "NO SKIP"
    """all ways to match from a row, then those from the next row"""


@dataclass(frozen=True, slots=True)
class Skip:
    """AFTER MATCH SKIP; *variable* for FIRST and LAST."""

    to: SkipTo = SkipTo.PAST_LAST_ROW
    variable: str | None = None
    start: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Subset:
    """``SUBSET name = (member, ...)``: a name for the rows of several variables."""

    name: str
    members: tuple[str, ...]
    start: int = field(default=0, compare=False)
    member_starts: tuple[int, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """``DEFINE variable AS condition``."""

    variable: str
    condition: ExpressionText
    start: int = field(default=0, compare=False)


DialectName = Literal["standard", "flink"]


class ClauseDialect(enum.Enum):
    """How a clause is read: as SQL:2016 defines it, or as Flink SQL does."""

    STANDARD = "standard"
    FLINK = "flink"


def dialect_of(name: DialectName) -> ClauseDialect:
    """:raises StreamDefinitionError: there is no such dialect"""
    names = [dialect.value for dialect in ClauseDialect]
    if not isinstance(name, str) or name not in names:
        raise StreamDefinitionError(f"there is no dialect {shown(name)}", f"Dialects: {', '.join(names)}")
    return ClauseDialect(name)


@dataclass(frozen=True, slots=True)
class InputTable:
    """A table, a view or a subquery of the input, whose name can stand before the names of its columns.

    :ivar name: its alias; without an alias, its name, which may include its database and its catalog
    :ivar columns: (name in the table, name in the input) of each column that has another name in the input, because several
        tables of a join have a column with its name
    :ivar outer: whether it is a table of the query around the clause, which the clause cannot read
    """

    name: tuple[str, ...]
    columns: tuple[tuple[str, str], ...] = ()
    outer: bool = False

    def is_called(self, name: Sequence[str]) -> bool:
        """Whether *name* means this table: its name, with or without its database and its catalog, in upper or lower case."""
        lower = tuple(part.lower() for part in name)
        return lower == tuple(part.lower() for part in self.name[-len(lower) :])

    def __str__(self) -> str:
        return self.name[-1]


@dataclass(frozen=True, slots=True)
class DynamicClause:
    """A MATCH_RECOGNIZE_DYNAMIC clause: the key and the time of the events, and where the patterns come from."""

    partition_by: tuple[str, ...]
    order_by: str | None
    options: Mapping[str, ExpressionText]
    """names or strings"""


@dataclass(frozen=True, slots=True)
class Clause:
    """A MATCH_RECOGNIZE clause as it was written. Names of variables and subsets are in upper case unless they were quoted."""

    text: str
    """the whole text; all positions are positions in it"""
    pattern: PatternNode
    partition_by: tuple[PartitionKey, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    measures: tuple[Measure, ...] = ()
    rows: RowsPerMatch = RowsPerMatch.ONE
    skip: Skip = Skip()
    within: ExpressionText | None = None
    subsets: tuple[Subset, ...] = ()
    definitions: tuple[Definition, ...] = ()
    dialect: ClauseDialect = ClauseDialect.STANDARD
    tables: tuple[InputTable, ...] = ()
    """the tables of the input that have names"""
    constants: tuple[str, ...] = ()
    """columns of the input with the same value in all rows: those of subqueries"""
    timeouts: bool = False
    """SHOW TIMEOUT MATCHES"""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern, in the order of the text; also those that take no row."""
        return tuple(dict.fromkeys(_names_in(self.pattern)))

    @property
    def taking(self) -> frozenset[str]:
        """The variables that take rows, without those that occur only in ``[^B]`` or ``A+{B}``."""
        return frozenset(node.name for node in self.pattern.walk() if isinstance(node, Variable))

    @property
    def rows_text(self) -> str:
        """The rows of the output, as they are written."""
        if not self.timeouts:
            return self.rows.value
        rows = "ALL ROWS PER MATCH" if self.rows is RowsPerMatch.ALL_SHOW_EMPTY else self.rows.value
        return f"{rows} SHOW TIMEOUT MATCHES"


def _names_in(node: PatternNode) -> Iterator[str]:
    """The variables in a part of a pattern, in the order of the text."""
    if isinstance(node, Variable | NotNext):
        yield node.name
    for part in node.parts:
        yield from _names_in(part)
    if isinstance(node, Quantified) and node.until is not None:
        yield node.until
