"""MATCH_RECOGNIZE as SQL:2016 defines it (feature R010): a slow matcher that tries every way to match, in order of preference.

:func:`match_recognize` takes the text of a clause and rows as Python values. Expressions are the small SQL of
:mod:`tests.reference.sql` with the functions of row patterns.

The rules, where the standard leaves room:

* In a loop without an upper limit, a repetition beyond the least number that takes no row is the last one.
* WITHIN bounds the difference of the first ORDER BY value between the first and the last row of a match, inclusively.
* AFTER MATCH SKIP TO a variable without a row, also after an empty match, and to the first row of the match, is an error.
* A row is unmatched if no match begins at it and it is in no match.

Beyond the standard:

* ``[^B]`` takes no row. It holds if the next row that WITHIN allows does not satisfy B, or if there is none.
* ``{- X* -} [^B]`` is a gap of rows that satisfy X and not B; the row after it does not satisfy B either. If the match ends with
  it, the gap goes on until WITHIN allows no further row.
* Rows that the repetitions of ``A+{C}`` take do not satisfy C.
* NO SKIP gives every way to match from a row, in order of preference, and each assignment of variables to rows once.
* SHOW TIMEOUT MATCHES gives for a row without a match the preferred way to take all rows that WITHIN allows and to want another.
* Where conditions bound the time of a row by rows before it, that way may also end earlier: it takes all rows up to one that
  comes too late for every way to go on. It does if rows at its time, whatever else they are, cannot complete a match.
* Of such a way, and of a match that ends with a gap, the excluded rows at the end do not count, except for the first row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cmp_to_key
from itertools import permutations
from typing import Any

from .sql import SqlError, aggregate, both, calculate, compare, invert, truth

Row = dict[str, Any]
Mapping = tuple[tuple[int, str, bool], ...]
"""The rows of a match: (number of the row in its partition, variable, whether it is excluded from the output)."""

BUDGET = 300_000  # steps of one search
MORE_ROWS = 4
"""How many further rows complete a match, if any number does: patterns have no more variables."""


class ClauseError(ValueError):
    """The text is not a clause of this language."""


class SkipError(ValueError):
    """AFTER MATCH SKIP has no row to go to."""


class BudgetError(RuntimeError):
    """The search takes too long."""


# ---------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True, slots=True)
class Moment:
    """What an expression can see: the rows of the partition, a match, and how many of its rows are there already."""

    rows: Sequence[Row]
    mapping: Mapping
    visible: int
    number: int
    subsets: dict[str, frozenset[str]]

    def places(self, variable: str | None, *, final: bool) -> list[int]:
        """The rows of a variable, a subset, or of the whole match."""
        seen = self.mapping if final else self.mapping[: self.visible]
        if variable is None:
            return [at for at, _, _ in seen]
        names = self.subsets.get(variable, frozenset((variable,)))
        return [at for at, name, _ in seen if name in names]

    timed_out: bool = False

    def label(self, at: int) -> str | None:
        return next((name for place, name, _ in self.mapping if place == at), None)


Expression = Callable[[Moment], Any]
OfRow = Callable[[Moment, int], Any]
"""An expression over one row, whose number is given."""


def navigated(variable: str | None, last: bool, skip: int, final: bool, steps: int, of_row: OfRow) -> Expression:
    def value(moment: Moment) -> Any:
        places = moment.places(variable, final=final)
        if skip >= len(places):
            return None
        at = places[-1 - skip if last else skip] + steps
        return of_row(moment, at) if 0 <= at < len(moment.rows) else None

    return value


def aggregated(function: str, variable: str | None, final: bool, arguments: Sequence[OfRow]) -> Expression:
    def value(moment: Moment) -> Any:
        places = moment.places(variable, final=final)
        if not arguments:
            return len(places)
        columns = [[argument(moment, at) for at in places] for argument in arguments]
        if function in ("ARRAY_AGG", "COLLECT_LIST"):
            return [one for one in columns[0] if one is not None]
        if function in ("MAX_BY", "MIN_BY"):
            pairs = [pair for pair in zip(*columns, strict=True) if pair[1] is not None]
            best: Any = None
            for pair in pairs:
                if best is None or compare(">=" if function == "MAX_BY" else "<=", pair[1], best[1]):
                    best = pair
            return None if best is None else best[0]
        if function == "ANY_VALUE":
            return columns[0][0] if columns[0] else None
        return aggregate(function, columns[0])

    return value


# ---------------------------------------------------------------------------------------------------- the pattern


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A part of a pattern: *kind* with its parts, or the name of a variable."""

    kind: str
    parts: tuple[Node, ...] = ()
    name: str = ""
    least: int = 1
    most: int | None = 1
    greedy: bool = True
    unless: frozenset[str] = frozenset()
    """variables that a row must not satisfy: of a variable, and of a gap"""


class RowMustFollow(tuple):  # type: ignore[type-arg]  # a mapping
    """The mapping is that of a match only if it gets another row."""


class AtDeadline(tuple):  # type: ignore[type-arg]
    """After a gap: WITHIN allows no further row."""


class AtEnd(tuple):  # type: ignore[type-arg]
    """After ``$``."""


def shortened(mapping: Mapping) -> Mapping:
    """Without the excluded rows at the end, but with the first row."""
    while len(mapping) > 1 and mapping[-1][2]:
        mapping = mapping[:-1]
    return tuple(mapping)


@dataclass(slots=True)
class Search:
    """One search for a match that begins at a row.

    :ivar plain: no condition depends on the match so far, so ways that end at the same row have the same future, and only the
        first of them counts
    """

    clause: Clause
    rows: Sequence[Row]
    start: int
    number: int
    plain: bool
    steps: int = 0
    wanting: Mapping | None = None
    known: dict[tuple[int, int, bool], list[Mapping]] = field(default_factory=dict)

    def run(self) -> list[tuple[Mapping, bool]]:
        """The preferred match, or all of them, or what times out; each with whether it has timed out."""
        found: dict[tuple[str, ...], Mapping] = {}
        for way in self.ways(self.clause.pattern, (), excluded=False):
            if isinstance(way, RowMustFollow):
                continue
            mapping = shortened(way) if isinstance(way, AtDeadline) else tuple(way)
            found.setdefault(tuple(name for _, name, _ in mapping), mapping)
            if self.clause.skip[0] != "NO SKIP":
                break
        if not found and self.clause.timeouts and self.wanting:
            return [(shortened(self.wanting), True)]
        return [(mapping, False) for mapping in found.values()]

    def has_next(self, mapping: Mapping) -> bool:
        """Whether there is a next row that WITHIN allows."""
        at = self.at(mapping)
        if at >= len(self.rows):
            return False
        if self.clause.within is None:
            return True
        key = self.clause.order[0].column
        apart = self.rows[at][key] - self.rows[self.start][key]
        # A number counts milliseconds.
        return bool(abs(timedelta(milliseconds=apart) if isinstance(apart, int) else apart) <= self.clause.within)

    def at(self, mapping: Mapping) -> int:
        return self.start + len(mapping)

    def ways(self, node: Node, mapping: Mapping, *, excluded: bool) -> Iterable[Mapping]:
        """All ways to match *node* after *mapping*, the preferred first."""
        self.steps += 1
        if self.steps > BUDGET:
            raise BudgetError(f"more than {BUDGET:,} steps for a match that begins at row {self.start}")
        if not self.plain:
            return self.tried(node, mapping, excluded)
        key = id(node), len(mapping), excluded
        if key not in self.known:
            first: dict[int, Mapping] = {}
            for way in self.tried(node, mapping, excluded):
                first.setdefault(len(way), way[len(mapping) :])
            self.known[key] = list(first.values())
        return [mapping + added for added in self.known[key]]

    def tried(self, node: Node, mapping: Mapping, excluded: bool) -> Iterator[Mapping]:
        if node.kind in ("variable", "not next", "gap") and self.is_too_late(mapping):
            self.wanting = self.wanting or mapping
            return
        match node.kind:
            case "variable":
                if not self.has_next(mapping):
                    if self.wanting is None and not isinstance(mapping, AtEnd):
                        self.wanting = mapping
                elif not any(self.fits(name, mapping) for name in node.unless) and self.fits(node.name, mapping):
                    yield (*mapping, (self.at(mapping), node.name, excluded))
            case "not next":
                if not self.fits(node.name, mapping):
                    yield mapping
            case "gap":
                yield from self.gap(node, mapping)
            case "empty":
                yield mapping
            case "^":
                if self.at(mapping) == 0:
                    yield mapping
            case "$":
                if self.at(mapping) == len(self.rows):
                    yield AtEnd(mapping) if self.clause.timeouts and not isinstance(mapping, AtDeadline) else mapping
            case "concatenation":
                yield from self.one_after_the_other(node.parts, mapping, excluded)
            case "alternation":
                for part in node.parts:
                    yield from self.ways(part, mapping, excluded=excluded)
            case "permutation":
                # Lexicographically by the places of the parts in the list.
                for order in permutations(node.parts):
                    yield from self.one_after_the_other(order, mapping, excluded)
            case "exclusion":
                yield from self.ways(node.parts[0], mapping, excluded=True)
            case "quantified":
                yield from self.repeated(node, mapping, excluded, 0)

    def is_too_late(self, mapping: Mapping) -> bool:
        """Whether the next row comes too late for every way to go on."""
        if not self.clause.bounds or not mapping or not self.has_next(mapping):
            return False
        at = self.at(mapping)
        rows = [*self.rows[:at], *[self.rows[at]] * MORE_ROWS]
        return not any(
            True for _ in Possible(self.clause, rows, self.start, self.number, False, taken=mapping).all_ways()
        )

    def gap(self, node: Node, mapping: Mapping) -> Iterator[Mapping]:
        """The ways to match a gap."""
        if any(self.fits(name, mapping) for name in node.unless):
            return
        if node.greedy:
            yield from self.longer_gap(node, mapping)
        yield RowMustFollow(mapping) if self.has_next(mapping) else AtDeadline(mapping)
        if not node.greedy:
            yield from self.longer_gap(node, mapping)

    def longer_gap(self, node: Node, mapping: Mapping) -> Iterator[Mapping]:
        for way in self.ways(node.parts[0], mapping, excluded=True):
            yield from self.gap(node, way)

    def one_after_the_other(self, parts: Sequence[Node], mapping: Mapping, excluded: bool) -> Iterator[Mapping]:
        if not parts:
            yield mapping
            return
        for way in self.ways(parts[0], mapping, excluded=excluded):
            yield from self.one_after_the_other(parts[1:], way, excluded)

    def repeated(self, node: Node, mapping: Mapping, excluded: bool, times: int) -> Iterator[Mapping]:
        """The ways to match the repetitions after the first *times*."""
        if node.most is not None and times == node.most:
            yield mapping
            return
        enough = times >= node.least
        if enough and not node.greedy:
            yield mapping
        # Without an upper limit, how often a part was repeated does not matter once it is enough.
        next_times = times if enough and node.most is None else times + 1
        for way in self.ways(node.parts[0], mapping, excluded=excluded):
            if not enough or node.most is not None or len(way) > len(mapping):
                yield from self.again(node, way, excluded, next_times)
            else:
                yield way
        if enough and node.greedy:
            yield mapping

    def again(self, node: Node, mapping: Mapping, excluded: bool, times: int) -> Iterable[Mapping]:
        """:meth:`repeated`, as a node of its own."""
        rest = self.clause.rest_of(node, times)
        return self.ways(rest, mapping, excluded=excluded)

    def fits(self, variable: str, mapping: Mapping) -> bool:
        """Whether the next row can be mapped to a variable."""
        if not self.has_next(mapping):
            return False
        at = self.at(mapping)
        condition = self.clause.conditions.get(variable)
        if condition is None:
            return True
        # While it is tested, the row counts as a row of the variable.
        tentative = (*mapping, (at, variable, False))
        return condition(Moment(self.rows, tentative, len(tentative), self.number, self.clause.subsets)) is True


@dataclass(slots=True)
class Possible(Search):
    """A search that goes on from the rows that are taken with rows that satisfy all conditions but the bounds of times."""

    taken: Mapping = ()

    def all_ways(self) -> Iterable[Mapping]:
        return self.ways(self.clause.pattern, (), excluded=False)

    def is_too_late(self, mapping: Mapping) -> bool:
        return False

    def tried(self, node: Node, mapping: Mapping, excluded: bool) -> Iterator[Mapping]:
        if node.kind in ("not next", "$"):
            yield mapping
        elif node.kind == "variable" and self.fits(node.name, mapping):
            yield (*mapping, (self.at(mapping), node.name, excluded))
        elif node.kind == "gap":
            yield from self.gap(replace(node, unless=frozenset()), mapping)
        elif node.kind != "variable":
            yield from Search.tried(self, node, mapping, excluded)

    def fits(self, variable: str, mapping: Mapping) -> bool:
        at = self.at(mapping)
        if at >= len(self.rows):
            return False
        if len(mapping) < len(self.taken):
            return self.taken[len(mapping)][1] == variable
        bound = self.clause.bounds.get(variable)
        tentative = (*mapping, (at, variable, False))
        seen = Moment(self.rows, tentative, len(tentative), self.number, self.clause.subsets)
        return bound is None or bound(seen) is not False


# ---------------------------------------------------------------------------------------------------- the clause


@dataclass(frozen=True, slots=True)
class Order:
    column: str
    descending: bool = False
    nulls_first: bool = True


@dataclass(slots=True)
class Clause:
    pattern: Node = Node("empty")
    partition: list[str] = field(default_factory=list)
    order: list[Order] = field(default_factory=list)
    measures: list[tuple[str, Expression]] = field(default_factory=list)
    rows_per_match: str = "ONE"
    skip: tuple[str, str] = ("PAST LAST ROW", "")
    within: timedelta | None = None
    timeouts: bool = False
    subsets: dict[str, frozenset[str]] = field(default_factory=dict)
    conditions: dict[str, Expression] = field(default_factory=dict)
    bounds: dict[str, Expression] = field(default_factory=dict)
    plain: bool = True
    _rests: dict[tuple[int, int], Node] = field(default_factory=dict)

    def rest_of(self, node: Node, times: int) -> Node:
        """The repetitions of *node* that are left after *times*."""
        if times == 0:
            return node
        key = id(node), times
        if key not in self._rests:
            most = None if node.most is None else node.most - times
            self._rests[key] = replace(node, least=max(node.least - times, 0), most=most)
        return self._rests[key]


def match_recognize(text: str, rows: Sequence[Row], bounds: str = "") -> list[Row]:
    """The result of a clause: partition by partition, in the order in which the matches are found. Without rows, there is none.

    *bounds* is the same clause, with only those parts of the conditions that bound times.

    The name of a measure is in lower case unless it was quoted.

    >>> rows = [{"ts": 1, "price": 5}, {"ts": 2, "price": 3}, {"ts": 3, "price": 4}]
    >>> match_recognize("ORDER BY ts MEASURES A.ts AS t, B.price AS p PATTERN (A B) DEFINE B AS price < PREV(price)", rows)
    [{'t': 1, 'p': 3}]
    """
    if not rows:
        return []
    clause = _ClauseParser(text, list(rows[0])).clause()
    if bounds:
        clause.bounds = _ClauseParser(bounds, list(rows[0])).clause().conditions
    partitions: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        partitions.setdefault(tuple(row[name] for name in clause.partition), []).append(row)
    found: list[Row] = []
    for partition in partitions.values():
        found += _of_partition(clause, _ordered(partition, clause.order))
    return found


def _ordered(rows: list[Row], keys: Sequence[Order]) -> list[Row]:
    for key in reversed(keys):

        def order(left: Row, right: Row, key: Order = key) -> int:
            a, b = left[key.column], right[key.column]
            if a is None or b is None:
                return ((a is None) - (b is None)) * (-1 if key.nulls_first else 1)
            larger, smaller = bool(a > b), bool(a < b)
            return (larger - smaller) * (-1 if key.descending else 1)

        rows = sorted(rows, key=cmp_to_key(order))
    return rows


def _of_partition(clause: Clause, rows: list[Row]) -> list[Row]:
    found: list[Row] = []
    matched: set[int] = set()
    start, number = 0, 0
    while start < len(rows):
        mappings = Search(clause, rows, start, number + 1, clause.plain).run()
        if not mappings:
            if clause.rows_per_match == "WITH UNMATCHED" and start not in matched:
                found.append(_output(clause, rows[start], {name: None for name, _ in clause.measures}))
            start += 1
            continue
        for mapping, timed_out in mappings:
            number += 1
            matched |= {at for at, _, _ in mapping}
            found += _rows_of(clause, rows, start, mapping, number, timed_out)
        all_ways = timed_out or clause.skip[0] == "NO SKIP"
        start = start + 1 if all_ways else _next_start(clause, start, mapping)
    return found


def _rows_of(clause: Clause, rows: list[Row], start: int, mapping: Mapping, number: int, timed_out: bool) -> list[Row]:
    def measured(visible: int) -> Row:
        moment = Moment(rows, mapping, visible, number, clause.subsets, timed_out)
        return {name: measure(moment) for name, measure in clause.measures}

    if clause.rows_per_match == "ONE":
        return [{name: rows[start][name] for name in clause.partition} | measured(len(mapping))]
    if not mapping:
        return [] if clause.rows_per_match == "OMIT EMPTY" else [_output(clause, rows[start], measured(0))]
    return [_output(clause, rows[at], measured(n + 1)) for n, (at, _, excluded) in enumerate(mapping) if not excluded]


def _output(clause: Clause, row: Row, measures: Row) -> Row:
    """A row of ALL ROWS PER MATCH: the columns of PARTITION BY and ORDER BY, the measures, the other columns."""
    keys = [*clause.partition, *(key.column for key in clause.order)]
    return {name: row[name] for name in keys} | measures | {name: row[name] for name in row if name not in keys}


def _next_start(clause: Clause, start: int, mapping: Mapping) -> int:
    to, variable = clause.skip
    if to in ("FIRST", "LAST"):
        names = clause.subsets.get(variable, frozenset((variable,)))
        places = [at for at, name, _ in mapping if name in names]
        if not places:
            raise SkipError(f"no row of {variable} in the match that begins at row {start}")
        place = places[0 if to == "FIRST" else -1]
        if place == start:
            raise SkipError(f"{variable} is the first row of the match that begins at row {start}")
        return place
    return start + 1 if to == "TO NEXT ROW" or not mapping else start + len(mapping)


# ---------------------------------------------------------------------------------------------------- reading

_TOKEN = re.compile(
    r"""(?:\s|/\*.*?\*/|--[^\n]*)*(?:
        (?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+)
      | (?P<string>'(?:[^']|'')*')
      | (?P<quoted>`[^`]+`|"[^"]+")
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol>\{-|-\}|<>|!=|<=|>=|\|\||[-=<>+*/%(),.{}|^$?\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_AGGREGATES = frozenset(
    ("SUM", "COUNT", "AVG", "MIN", "MAX", "ARRAY_AGG", "COLLECT_LIST", "MAX_BY", "MIN_BY", "ANY_VALUE")
)
_SCALARS: dict[str, Callable[..., Any]] = {
    "ABS": lambda x: None if x is None else abs(x),
    "LOWER": lambda text: None if text is None else text.lower(),
    "UPPER": lambda text: None if text is None else text.upper(),
    "CONCAT_WS": lambda separator, *parts: separator.join(
        one for part in parts for one in (part if isinstance(part, list) else [part]) if one is not None
    ),
    "COALESCE": lambda *values: next((value for value in values if value is not None), None),
    "ARRAY": lambda *values: list(values),
}
_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}


class _Parser:
    """Tokens, and expressions. An expression yields its value at a :class:`Moment`.

    Inside of FIRST, PREV or an aggregate an expression is over one row: then ``self._of`` collects the variables that it names,
    and what is parsed is an :data:`OfRow`.
    """

    def __init__(self, text: str, columns: Sequence[str]) -> None:
        self._text, self._columns = text, {name.lower(): name for name in columns}
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        self._variables: set[str] = set()
        self._time = ""
        self._defines: str | None = None
        self._plain = True
        self._beyond = False
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise ClauseError(f"{text!r}: unexpected text at {place}")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    # --- tokens

    def _error(self, reason: str) -> ClauseError:
        return ClauseError(
            f"{reason} before {' '.join(word for _, word in self._tokens[self._next : self._next + 5])!r}"
        )

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._next + ahead
        kind, text = self._tokens[at] if at < len(self._tokens) else ("end", "")
        return kind, text.upper() if kind == "word" else text

    def _is(self, *texts: str) -> bool:
        return all(self._peek(n) in (("word", text), ("symbol", text)) for n, text in enumerate(texts))

    def _accept(self, *texts: str) -> bool:
        if not self._is(*texts):
            return False
        self._next += len(texts)
        return True

    def _expect(self, *texts: str) -> None:
        if not self._accept(*texts):
            raise self._error(f"expected {' '.join(texts)}")

    def _name(self) -> str:
        """A name, in upper case unless it is quoted."""
        kind, text = self._peek()
        if kind not in ("word", "quoted"):
            raise self._error("expected a name")
        self._next += 1
        return text if kind == "word" else text[1:-1]

    def _number(self) -> int | None:
        kind, text = self._peek()
        if kind != "number":
            return None
        self._next += 1
        return int(text)

    def _column_name(self) -> str:
        return self._known(self._name())

    def _known(self, name: str) -> str:
        if name.lower() not in self._columns:
            raise self._error(f"no column {name}")
        return self._columns[name.lower()]

    def _output_name(self) -> str:
        kind, _ = self._peek()
        name = self._name()
        return name if kind == "quoted" else name.lower()

    # --- expressions. An OfRow takes (moment, row); at the top the row is -1, and names stand for their last row.

    def expression(self) -> Expression:
        found: set[str | None] = set()
        whole = self._or(found, top=True)
        return lambda moment: whole(moment, -1)

    def _or(self, of: set[str | None], *, top: bool) -> OfRow:
        parts = [self._and(of, top=top)]
        while self._accept("OR"):
            parts.append(self._and(of, top=top))
        return parts[0] if len(parts) == 1 else lambda m, at: invert(_all(m, at, [_not(part) for part in parts]))

    def _and(self, of: set[str | None], *, top: bool) -> OfRow:
        parts = [self._not(of, top=top)]
        while self._accept("AND"):
            parts.append(self._not(of, top=top))
        return parts[0] if len(parts) == 1 else lambda m, at: _all(m, at, parts)

    def _not(self, of: set[str | None], *, top: bool) -> OfRow:
        if self._accept("NOT"):
            return _not(self._not(of, top=top))
        return self._predicate(of, top=top)

    def _predicate(self, of: set[str | None], *, top: bool) -> OfRow:
        left = self._sum(of, top=top)
        for symbol in ("=", "<>", "!=", "<=", ">=", "<", ">"):
            if self._accept(symbol):
                return _compared(symbol, left, self._sum(of, top=top))
        if self._accept("IS", "NOT", "NULL"):
            return lambda m, at: left(m, at) is not None
        if self._accept("IS", "NULL"):
            return lambda m, at: left(m, at) is None
        negated = self._is("NOT", "IN") or self._is("NOT", "BETWEEN")
        self._next += negated
        if self._accept("IN", "("):
            choices = self._arguments(of, top=top)
            equal = [_compared("<>", left, choice) for choice in choices]

            def member(m: Moment, at: int) -> Any:
                return invert(_all(m, at, equal))

            return _not(member) if negated else member
        if self._accept("BETWEEN"):
            low = self._sum(of, top=top)
            self._expect("AND")
            limits = [_compared(">=", left, low), _compared("<=", left, self._sum(of, top=top))]

            def between(m: Moment, at: int) -> Any:
                return _all(m, at, limits)

            return _not(between) if negated else between
        return left

    def _sum(self, of: set[str | None], *, top: bool) -> OfRow:
        left = self._term(of, top=top)
        while True:
            if self._accept("||"):
                left = _joined(left, self._term(of, top=top))
            elif self._is("+") or (self._is("-") and not self._is("-}")):
                symbol = self._peek()[1]
                self._next += 1
                left = _calculated(symbol, left, self._term(of, top=top))
            else:
                return left

    def _term(self, of: set[str | None], *, top: bool) -> OfRow:
        left = self._factor(of, top=top)
        while self._is("*") or self._is("%"):
            symbol = self._peek()[1]
            self._next += 1
            left = _calculated(symbol, left, self._factor(of, top=top))
        return left

    def _factor(self, of: set[str | None], *, top: bool) -> OfRow:
        if self._accept("-"):
            return _calculated("*", lambda m, at: -1, self._factor(of, top=top))
        if self._accept("("):
            inner = self._or(of, top=top)
            self._expect(")")
            return inner
        kind, text = self._peek()
        if kind in ("number", "string"):
            self._next += 1
            number = kind == "number"
            value: Any = (int(text) if text.isdigit() else float(text)) if number else text[1:-1].replace("''", "'")
            return lambda m, at: value
        constants = {"TRUE": True, "FALSE": False, "NULL": None}
        if kind == "word" and text in constants:
            self._next += 1
            constant = constants[text]
            return lambda m, at: constant
        if self._accept("CASE"):
            return self._case(of, top=top)
        if self._accept("CAST", "("):  # between texts only
            inner = self._or(of, top=top)
            self._expect("AS")
            self._name()
            if self._accept("("):
                self._number()
                self._expect(")")
            self._expect(")")
            return inner
        if kind == "word" and (
            self._peek(1) == ("symbol", "(") or (text in ("RUNNING", "FINAL") and self._peek(1)[0] == "word")
        ):
            return self._call(of, top=top)
        return self._column(of, top=top)

    def _case(self, of: set[str | None], *, top: bool) -> OfRow:
        branches = []
        while self._accept("WHEN"):
            condition = self._or(of, top=top)
            self._expect("THEN")
            branches.append((condition, self._or(of, top=top)))
        otherwise = self._or(of, top=top) if self._accept("ELSE") else lambda m, at: None
        self._expect("END")
        return lambda m, at: next((value(m, at) for when, value in branches if when(m, at) is True), otherwise(m, at))

    def _column(self, of: set[str | None], *, top: bool) -> OfRow:
        name, variable = self._name(), None
        if self._accept("."):
            variable, name = name, self._name()
            if variable not in self._variables:
                raise self._error(f"no variable {variable}")
        column = self._known(name)
        self._plain &= variable in (None, self._defines)
        of.add(variable)

        def of_row(moment: Moment, at: int) -> Any:
            return moment.rows[at][column]

        return _at_top(navigated(variable, True, 0, False, 0, of_row)) if top else of_row

    def _arguments(self, of: set[str | None], *, top: bool) -> list[OfRow]:
        found = []
        while not self._accept(")"):
            found.append(self._or(of, top=top))
            if not self._is(")"):
                self._expect(",")
        return found

    def _call(self, of: set[str | None], *, top: bool) -> OfRow:
        final = self._accept("FINAL")
        named = final or self._accept("RUNNING")
        function = self._name()
        self._expect("(")
        if function in _SCALARS and not named:
            scalar, arguments = _SCALARS[function], self._arguments(of, top=top)
            return lambda m, at: scalar(*(argument(m, at) for argument in arguments))
        if function == "MATCH_NUMBER":
            self._expect(")")
            self._plain = False
            return lambda m, at: m.number
        if function == "MATCH_TIMEOUT":
            self._expect(")")
            return lambda m, at: m.timed_out
        if function == "CLASSIFIER":
            variable = None if self._is(")") else self._name()
            self._expect(")")
            self._plain = False
            of.add(variable)

            def label(moment: Moment, at: int) -> Any:
                return moment.label(at)

            return _at_top(navigated(variable, True, 0, False, 0, label)) if top else label
        if not top:
            raise self._error(f"{function} inside of another call")
        if function == "MATCH_ROWTIME":
            self._expect(")")
            self._plain = False
            time = self._time
            return _at_top(navigated(None, True, 0, False, 0, lambda m, at: m.rows[at][time]))
        if function in _AGGREGATES:
            return self._aggregate(function, final)
        if function in ("PREV", "NEXT"):
            return self._physical(function)
        if function in ("FIRST", "LAST"):
            return self._logical(function, final, lambda: 0)
        raise self._error(f"no function {function}")

    def _one(self, names: set[str | None]) -> str | None:
        if len(names) > 1:
            raise self._error(f"rows of several variables: {names}")
        return next(iter(names), None)

    def _aggregate(self, function: str, final: bool) -> OfRow:
        self._plain = False
        names: set[str | None] = set()
        if self._accept("*", ")") or self._accept(")"):
            return _at_top(aggregated(function, None, final, ()))
        if self._peek(1) == ("symbol", ".") and self._peek(2) == ("symbol", "*"):
            variable = self._name()
            self._expect(".", "*", ")")
            return _at_top(aggregated(function, variable, final, ()))
        arguments = self._arguments(names, top=False)
        return _at_top(aggregated(function, self._one(names), final, arguments))

    def _offset(self, default: int) -> int:
        return int(self._tokens[self._next - 1][1]) if self._accept(",") and self._step() else default

    def _step(self) -> bool:
        self._next += 1
        return True

    def _logical(self, function: str, final: bool, steps: Callable[[], int]) -> OfRow:
        self._plain = False
        names: set[str | None] = set()
        argument = self._or(names, top=False)
        skip = self._offset(0)
        self._expect(")")
        return _at_top(navigated(self._one(names), function == "LAST", skip, final, steps(), argument))

    def _physical(self, function: str) -> OfRow:
        sign = -1 if function == "PREV" else 1

        def steps() -> int:
            found = sign * self._offset(1)
            self._expect(")")
            return found

        final = self._accept("FINAL")
        named = final or self._accept("RUNNING")
        if named or self._is("FIRST", "(") or self._is("LAST", "("):
            inner = self._name()
            self._expect("(")
            return self._logical(inner, final, steps)
        names: set[str | None] = set()
        argument = self._or(names, top=False)
        return _at_top(navigated(self._one(names), True, 0, False, steps(), argument))


def _at_top(value: Expression) -> OfRow:
    return lambda m, at: value(m)


def _all(moment: Moment, at: int, parts: Sequence[OfRow]) -> bool | None:
    whole: bool | None = True
    for part in parts:
        whole = both(whole, truth(part(moment, at)))
    return whole


def _not(part: OfRow) -> OfRow:
    return lambda m, at: invert(truth(part(m, at)))


def _compared(symbol: str, left: OfRow, right: OfRow) -> OfRow:
    return lambda m, at: compare(symbol, left(m, at), right(m, at))


def _joined(left: OfRow, right: OfRow) -> OfRow:
    def value(m: Moment, at: int) -> Any:
        a, b = left(m, at), right(m, at)
        return None if a is None or b is None else str(a) + str(b)

    return value


def _calculated(symbol: str, left: OfRow, right: OfRow) -> OfRow:
    def value(m: Moment, at: int) -> Any:
        a, b = left(m, at), right(m, at)
        if symbol != "%":
            return calculate(symbol, a, b)
        if a is None or b is None:
            return None
        if b == 0:
            raise SqlError("division by zero")
        return (abs(a) % abs(b)) * (-1 if a < 0 else 1)

    return value


class _ClauseParser(_Parser):
    """The sections of a clause, and patterns."""

    def clause(self) -> Clause:
        clause = Clause()
        # PATTERN and SUBSET first, because expressions need the names.
        begin = self._next
        while not self._is("PATTERN", "("):
            if self._peek()[0] == "end":
                raise self._error("no PATTERN")
            self._next += 1
        self._expect("PATTERN", "(")
        clause.pattern = self._alternation()
        self._expect(")")
        after_pattern = self._within(clause, begin)
        if self._accept("SUBSET"):
            after_pattern = self._subsets(clause)
        self._variables |= clause.subsets.keys()
        self._next = begin
        self._keys(clause)
        if self._accept("MEASURES"):
            clause.measures = self._measures()
        self._rows_and_skip(clause)
        self._expect("PATTERN")
        self._next = after_pattern
        self._plain = True
        if self._accept("DEFINE"):
            while True:
                self._defines = self._name()
                self._expect("AS")
                clause.conditions[self._defines] = self.expression()
                if not self._accept(","):
                    break
        clause.plain = self._plain and not self._beyond and not clause.timeouts and clause.skip[0] != "NO SKIP"
        if self._peek()[0] != "end":
            raise self._error("unexpected text")
        return clause

    def _within(self, clause: Clause, begin: int) -> int:
        if self._accept("WITHIN", "INTERVAL"):
            length = int(self._peek()[1].strip("'"))
            unit = self._peek(1)[1].removesuffix("S")
            self._next += 2
            clause.within = timedelta(seconds=length * _UNITS[unit])
        return self._next

    def _subsets(self, clause: Clause) -> int:
        while True:
            name = self._name()
            self._expect("=", "(")
            members = [self._name()]
            while self._accept(","):
                members.append(self._name())
            self._expect(")")
            clause.subsets[name] = frozenset(members)
            if not self._accept(","):
                return self._next

    def _keys(self, clause: Clause) -> None:
        if self._accept("PARTITION", "BY"):
            clause.partition.append(self._column_name())
            while self._accept(","):
                clause.partition.append(self._column_name())
        if self._accept("ORDER", "BY"):
            while True:
                column, descending = self._column_name(), self._accept("DESC")
                self._accept("ASC")
                first = not descending
                if self._accept("NULLS"):
                    first = self._accept("FIRST") or not self._accept("LAST")
                clause.order.append(Order(column, descending, first))
                if not self._accept(","):
                    break
            self._time = clause.order[0].column

    def _measures(self) -> list[tuple[str, Expression]]:
        measures = []
        while True:
            expression = self.expression()
            self._expect("AS")
            measures.append((self._output_name(), expression))
            if not self._accept(","):
                return measures

    def _rows_and_skip(self, clause: Clause) -> None:
        if self._accept("ONE", "ROW", "PER", "MATCH"):
            clause.timeouts = self._accept("SHOW", "TIMEOUT", "MATCHES")
        if self._accept("ALL", "ROWS", "PER", "MATCH"):
            clause.rows_per_match = "SHOW EMPTY"
            self._accept("SHOW", "EMPTY", "MATCHES")
            if self._accept("OMIT", "EMPTY", "MATCHES"):
                clause.rows_per_match = "OMIT EMPTY"
            elif self._accept("WITH", "UNMATCHED", "ROWS"):
                clause.rows_per_match = "WITH UNMATCHED"
            clause.timeouts = self._accept("SHOW", "TIMEOUT", "MATCHES")
        if self._accept("AFTER", "MATCH", "NO", "SKIP"):
            clause.skip = "NO SKIP", ""
        if self._accept("AFTER", "MATCH", "SKIP"):
            if self._accept("PAST", "LAST", "ROW"):
                clause.skip = "PAST LAST ROW", ""
            elif self._accept("TO", "NEXT", "ROW"):
                clause.skip = "TO NEXT ROW", ""
            else:
                self._expect("TO")
                to = "FIRST" if self._accept("FIRST") else "LAST"
                self._accept("LAST")
                clause.skip = to, self._name()

    # --- the pattern

    def _alternation(self) -> Node:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Node("alternation", tuple(parts))

    def _sequence(self) -> Node:
        parts = []
        while not any(self._is(end) for end in (")", "|", "-}", ",")):
            parts.append(self._element())
        for n in reversed(range(len(parts) - 1)):
            gap, absent = parts[n], parts[n + 1]
            if gap.kind == "exclusion" and absent.kind == "not next" and _is_gap_loop(gap.parts[0]):
                loop = gap.parts[0]
                parts[n] = Node("gap", loop.parts, greedy=loop.greedy, unless=frozenset((absent.name,)))
        if not parts:
            raise self._error("an empty alternative")
        return parts[0] if len(parts) == 1 else Node("concatenation", tuple(parts))

    def _element(self) -> Node:
        part = self._primary()
        limits: tuple[int, int | None] | None = None
        if self._accept("*"):
            limits = 0, None
        elif self._accept("+"):
            limits = 1, None
        elif self._accept("?"):
            limits = 0, 1
        elif self._accept("{"):
            least = self._number()
            if self._accept(","):
                limits = least or 0, self._number()
            else:
                limits = least or 0, least
            self._expect("}")
        if limits is None:
            return part
        greedy = not self._accept("?")
        if self._is("{") and self._peek(1)[0] == "word":
            self._expect("{")
            until = self._name()
            self._variables.add(until)
            self._expect("}")
            part = _until(until, part)
        return Node("quantified", (part,), "", *limits, greedy=greedy)

    def _primary(self) -> Node:
        for sign in ("^", "$"):
            if self._accept(sign):
                return Node(sign)
        if self._accept("(", ")"):
            return Node("empty")
        if self._accept("("):
            inner = self._alternation()
            self._expect(")")
            return inner
        if self._accept("{-"):
            inner = self._alternation()
            self._expect("-}")
            return Node("exclusion", (inner,))
        if self._accept("PERMUTE", "("):
            parts = [self._alternation()]
            while self._accept(","):
                parts.append(self._alternation())
            self._expect(")")
            return Node("permutation", tuple(parts))
        if self._accept("[", "^"):
            absent = self._name()
            self._expect("]")
            self._variables.add(absent)
            self._beyond = True
            return Node("not next", name=absent)
        name = self._name()
        self._variables.add(name)
        return Node("variable", name=name)


def _is_gap_loop(node: Node) -> bool:
    loop = node.kind == "quantified" and node.parts[0].kind == "variable" and not node.parts[0].unless
    return loop and (node.least, node.most) == (0, None)


def _until(name: str, node: Node) -> Node:
    """A part of a pattern whose rows do not satisfy a variable."""
    unless = node.unless | {name} if node.kind in ("variable", "gap") else node.unless
    return replace(node, parts=tuple(_until(name, part) for part in node.parts), unless=unless)
