"""Conditions on the current row, evaluated before the exchange, and the rows that therefore do not matter.

They are evaluated before the rows are sorted. A condition is a conjunction. A conjunct that reads only the current row, and
cannot fail, is a *bit* of the row. If a conjunct is a disjunction, each such disjunct is a bit. The bits of a row may show that a
condition holds, or that it does not hold, whatever the match is.

A row is *neutral* if the result is the same without it. No match can begin with a neutral row, and every match in progress can
only take the row and stay in a state with the same edges. In ``A X* B``, the rows that satisfy X, but neither A nor B, are
neutral. No expression may read the rows of X, or neighbours of rows. See
``docs/decisions/0045-conditions-on-the-current-row.md``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.columns.arrays import Ints, Mask, one_chunk
from asterism.columns.groups import mask_of
from asterism.errors import ExpressionError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.names import COLUMN, columns_of, plain_column
from asterism.expressions.parsing import conjuncts, sql_of
from asterism.expressions.ranges import Alternative, Ranges, complement
from asterism.expressions.types import TIME_ZONE
from asterism.expressions.values import UnsupportedError
from asterism.row_patterns.automaton import ACCEPT, AT_DEADLINE, Edge, RowAutomaton
from asterism.row_patterns.checking import CheckedClause, VariableCondition
from asterism.row_patterns.clause.clause import NotNext, RowsPerMatch, SkipTo
from asterism.row_patterns.resolution import AggregateValue, Leaf, RowValue, is_near

MAX_BITS = 63
"""Maximum number of expressions that are computed in advance. All others are computed later."""
MAX_TERMS = 200
"""Maximum terms of the neutral-row expression; above it, no row is treated as neutral."""
MAX_SQL = 50_000
"""Maximum length of an expression in Spark SQL, in characters; if it is longer, Spark does not evaluate it."""
WORDS = "__words"
"""The column with the bits of the rows."""


@dataclass(frozen=True, slots=True)
class ConditionBits:
    """How a condition is approximated by precomputed bits.

    :ivar possible: the condition holds only where all of these bits are set
    :ivar certain: the condition holds where at least one bit of each tuple is set
    :ivar parts: the numbers of the conjuncts that are bits
    :ivar whole: whether the bits are the whole condition
    """

    possible: tuple[int, ...] = ()
    certain: tuple[tuple[int, ...], ...] = ()
    parts: frozenset[int] = frozenset()
    whole: bool = True


class RangesOrNull(NamedTuple):
    """Rows for which one of the *ranges* of the columns of the input holds, or one of the *columns*, by number, is NULL."""

    ranges: Ranges
    columns: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class _Loop:
    """A way to take a neutral row: it satisfies the variable *taken*, and none of the *others* that could also take it."""

    taken: str
    others: frozenset[str]


class CurrentRow:
    """The bits of a clause.

    :ivar bits: for each variable with a condition
    """

    def __init__(self, clause: CheckedClause) -> None:
        self._clause = clause
        # Leaves have the numbers of columns of the input.
        schema = pa.schema(
            [field.with_name(f"leaf_{number}") for number, field in enumerate(clause.rows.schema)],
            metadata={TIME_ZONE: clause.rows.values.zone},
        )
        self._expressions = Vectorized(schema)
        self._trees: list[exp.Expr] = []
        self.bits: Mapping[str, ConditionBits] = {
            name: self._bits_of(condition) for name, condition in clause.conditions.items()
        }
        self._starts, self._loops = _neutral_rows(clause)
        most_terms = max(
            (1 + len(bits.possible) + sum(map(len, bits.certain)) for bits in self.bits.values()), default=0
        )
        variables = len(self._starts) + sum(1 + len(way.others) for ways in self._loops for way in ways)
        if most_terms * variables > MAX_TERMS:
            self._loops = ()

    # ------------------------------------------------------------------------------------------------ bits

    def _bits_of(self, condition: VariableCondition) -> ConditionBits:
        whole = self._add(condition.resolved.tree, condition)
        if whole is not None:
            return ConditionBits((whole,), ((whole,),))
        possible: list[int] = []
        certain: list[tuple[int, ...]] = []
        parts = []
        for number, part in enumerate(conjuncts(condition.resolved.tree)):
            bit = self._add(part, condition)
            if bit is not None:
                possible.append(bit)
                certain.append((bit,))
                parts.append(number)
                continue
            choices = part.flatten() if isinstance(part, exp.Or) else ()
            bits = (self._add(choice.unnest(), condition) for choice in choices)
            certain.append(tuple(bit for bit in bits if bit is not None))
        return ConditionBits(tuple(possible), tuple(certain), frozenset(parts), whole=False)

    def _add(self, tree: exp.Expr, condition: VariableCondition) -> int | None:
        """The bit of an expression over the leaves of a condition; None if it has none."""
        leaves, values = condition.resolved.leaves, self._clause.rows.values
        places: dict[str, int] = {}
        for column in tree.find_all(exp.Column):
            leaf = leaves[int(column.name.removeprefix("leaf_"))]
            if not is_near(leaf, condition.names) or leaf.place.steps:
                return None
            place = plain_column(values.texts[leaf.number])
            if place is None:
                return None
            places[column.name] = place
        holder = exp.Paren(this=tree.copy())
        for column in list(holder.find_all(exp.Column)):
            column.set("this", exp.to_identifier(f"leaf_{places[column.name]}", quoted=True))
        text, expressions = condition.resolved.source.text, self._expressions
        try:
            with tried_before():
                value = expressions.translate(holder.this, text)
                if value.raises or value.cost.growth or value.type != pa.bool_():
                    return None
                if value.text not in expressions.texts and len(expressions.texts) == MAX_BITS:
                    return None
                number = expressions.add_value(value, text)
        except (ExpressionError, UnsupportedError):
            return None
        if number == len(self._trees):
            self._trees.append(holder.this)
        return number

    @property
    def word_type(self) -> pa.DataType:
        """The type of a column of words: integers with a binary digit for each bit."""
        limits = ((7, pa.int8()), (15, pa.int16()), (31, pa.int32()), (63, pa.int64()))
        return next(kind for limit, kind in limits if len(self._expressions.texts) <= limit)

    @cached_property
    def columns(self) -> list[list[str]]:
        """For each bit the columns of the input that it reads."""
        names = self._clause.rows.schema.names
        return [[names[number] for number in sorted(columns_of(text))] for text in self._expressions.texts]

    @property
    def texts(self) -> list[str]:
        """What each bit tests, with the names of columns."""
        names = self._clause.rows.schema.names
        return [
            COLUMN.sub(lambda found: repr(names[int(found[1])]) if found[1] else found[0], text)
            for text in self._expressions.texts
        ]

    @cached_property
    def words_sql(self) -> str | None:
        """A column WORDS in Spark SQL, beside which :meth:`words` needs no column of the input. None if there are no bits, if a
        bit is more than ranges of columns, if the text would be too long, or if a column has this name.
        """
        indexable = self._expressions.indexable
        names = {
            name.lower() for name in self._clause.rows.schema.names
        }  # Spark replaces a column with the name in any case
        if not indexable or WORDS in names or any(known is None or known.rest is not None for known in indexable):
            return None
        terms = [f"IF({sql_of(self._bit_sql(bit))}, {1 << bit}L, 0L)" for bit in range(len(indexable))]
        text = f"CAST({' + '.join(terms)} AS {_INTEGERS[self.word_type]})"
        return text if len(text) <= MAX_SQL else None

    def words(self, rows: pa.Table) -> pa.Array:
        """The bits of *rows*, which have the columns of the input, or a column that Spark has computed by :attr:`words_sql`."""
        if WORDS in rows.column_names and self.words_sql is not None:
            return one_chunk(rows.column(WORDS))
        bits = np.zeros(rows.num_rows, self.word_type.to_pandas_dtype())
        if self._expressions.texts:
            for number, values in enumerate(self._expressions.evaluate(rows)):
                bits |= mask_of(values).astype(bits.dtype) << bits.dtype.type(number)
        return pa.array(bits)

    # ------------------------------------------------------------------------------------------------ rows

    def possible(self, name: str, words: Ints) -> Mask:
        """Where a condition may hold."""
        needed = words.dtype.type(sum(1 << bit for bit in set(self._of(name).possible)))
        return np.asarray(words & needed == needed)

    def certain(self, name: str, words: Ints) -> Mask:
        """Where a condition holds, whatever the match is."""
        holds = np.ones(len(words), np.bool_)
        for choices in self._of(name).certain:
            holds &= words & words.dtype.type(sum(1 << bit for bit in set(choices))) != 0
        return holds

    def _of(self, name: str) -> ConditionBits:
        return self.bits.get(name, _ANY_ROW)

    @property
    def has_neutral(self) -> bool:
        """Whether any row may be neutral."""
        return bool(self._loops)

    @property
    def neutral_rows(self) -> str:
        """A hash of the conditions under which a row is neutral."""
        loops = [
            [(way.taken, sorted(way.others)) for way in ways if all(self._of(way.taken).certain)]
            for ways in self._loops
        ]
        if not all(loops):  # somewhere no row is certain to be taken, so none is neutral
            loops = []
        return hashlib.sha256(repr((sorted(self._starts) if loops else [], loops)).encode()).hexdigest()[:16]

    def neutral(self, words: Ints) -> Mask:
        """Which rows are neutral."""
        if not self._loops:
            return np.zeros(len(words), np.bool_)
        is_neutral = np.ones(len(words), np.bool_)
        for name in self._starts:
            is_neutral &= ~self.possible(name, words)
        for ways in self._loops:
            is_taken = np.zeros(len(words), np.bool_)
            for way in ways:
                in_this_way = self.certain(way.taken, words)
                for other in way.others:
                    in_this_way &= ~self.possible(other, words)
                is_taken |= in_this_way
            is_neutral &= is_taken
        return is_neutral

    @cached_property
    def matter_sql(self) -> str | None:
        """A condition of Spark SQL that is TRUE or FALSE for each row: whether it is not neutral. None if all rows matter, or
        if the condition would be too long.
        """
        if not self._loops:
            return None
        terms: list[exp.Expr] = [exp.not_(self._possible_sql(name)) for name in sorted(self._starts)]
        for ways in self._loops:
            taken = [
                _all(
                    [
                        self._certain_sql(way.taken),
                        *(exp.not_(self._possible_sql(other)) for other in sorted(way.others)),
                    ]
                )
                for way in ways
            ]
            terms.append(_any(taken))
        text = sql_of(exp.not_(_all(terms)))
        return text if len(text) <= MAX_SQL else None

    @cached_property
    def matter_ranges(self) -> RangesOrNull | None:
        """Rows among which are all that are not neutral. None: any row may matter."""
        if not self._loops:
            return None
        starts = [self._ranges_of(name) for name in sorted(self._starts)]
        # A row that is taken in one way for certain does not matter.
        ends = (
            next((part for part in map(self._unless_taken, ways) if part is not None), None) for ways in self._loops
        )
        return _union([*starts, *ends])

    def _ranges_of(self, name: str) -> RangesOrNull | None:
        """Where the condition of a variable may hold."""
        indexed = (self._expressions.indexable[bit] for bit in self._of(name).possible)
        ranges = min((known.ranges for known in indexed if known is not None), key=len, default=None)
        return None if ranges is None else RangesOrNull(ranges)

    def _unless_taken(self, way: _Loop) -> RangesOrNull | None:
        """Where it is not certain that a row is taken in this way."""
        others = [self._ranges_of(name) for name in sorted(way.others)]
        return _union([*others, *map(self._unless_any, self._of(way.taken).certain)])

    def _unless_any(self, bits: Sequence[int]) -> RangesOrNull | None:
        """Where none of the *bits* is set."""
        least: RangesOrNull | None = None
        for known in (self._expressions.indexable[bit] for bit in bits):
            outside = None if known is None or known.rest is not None else complement(known.ranges)
            if known is not None and outside is not None and (least is None or len(outside) < len(least.ranges)):
                columns = (limits.column for alternative in known.ranges for limits in alternative)
                least = RangesOrNull(outside, frozenset(columns))
        return least

    def _possible_sql(self, name: str) -> exp.Expr:
        return _all([self._bit_sql(bit) for bit in self._of(name).possible])

    def _certain_sql(self, name: str) -> exp.Expr:
        return _all([_any([self._bit_sql(bit) for bit in choices]) for choices in self._of(name).certain])

    def _bit_sql(self, bit: int) -> exp.Expr:
        holder = exp.Paren(this=self._trees[bit].copy())
        for column in list(holder.find_all(exp.Column)):
            name = self._clause.rows.schema.names[int(column.name.removeprefix("leaf_"))]
            column.set("this", exp.to_identifier(name, quoted=True))
        return exp.Coalesce(this=holder.this, expressions=[exp.false()])


_ANY_ROW = ConditionBits()
_INTEGERS = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT"}


def _union(parts: Iterable[RangesOrNull | None]) -> RangesOrNull | None:
    """The rows of all *parts*; None if those of one are not known."""
    ranges, columns = dict[Alternative, None](), frozenset[int]()
    for part in parts:
        if part is None:
            return None
        ranges |= dict.fromkeys(part.ranges)
        columns |= part.columns
    return RangesOrNull(tuple(ranges), columns)


def _all(parts: Sequence[exp.Expr]) -> exp.Expr:
    return exp.and_(*dict.fromkeys(parts)) if parts else exp.true()


def _any(parts: Sequence[exp.Expr]) -> exp.Expr:
    return exp.or_(*dict.fromkeys(parts)) if parts else exp.false()


# ---------------------------------------------------------------------------------------------------- neutral rows


def _neutral_rows(clause: CheckedClause) -> tuple[frozenset[str], tuple[tuple[_Loop, ...], ...]]:
    """(the variables with which a match can begin, for each state the ways to take a neutral row); both empty if no row is
    neutral.
    """
    nothing: tuple[frozenset[str], tuple[tuple[_Loop, ...], ...]] = frozenset(), ()
    seen, automaton = _variables_seen(clause), clause.automaton
    first = [target for target, _, _ in automaton.edges_of(automaton.start)]
    if seen is None or ACCEPT in first or not _can_have_neutral_rows(clause):
        return nothing
    begins = frozenset(automaton.names[automaton.variables[state]] for state in first)
    # A match that times out, or ends at the deadline, loses the rows at its end that are not in the output.
    only_excluded = clause.clause.timeouts or bool((automaton.edges[:, 1] & AT_DEADLINE).any())
    edges = [automaton.edges_of(state) for state in range(automaton.start)]
    loops: dict[tuple[_Loop, ...], None] = {}
    for leading in map(list, dict.fromkeys(map(tuple, edges))):
        if not leading or leading == [(ACCEPT, 0, ())]:
            continue
        # With the row, a match that ends in this state would be longer, or would have another next row.
        if any(target == ACCEPT and guards != AT_DEADLINE for target, guards, _ in leading):
            return nothing
        targets = dict.fromkeys(target for target, _, _ in leading if target != ACCEPT)
        ways = [
            _loop_to(automaton, leading, target)
            for target in targets
            if edges[target] == leading and (automaton.excluded[target] or not only_excluded)
        ]
        ways = [way for way in ways if way.taken not in seen | way.others | begins]
        if not ways:
            return nothing
        loops[tuple(ways)] = None
    return begins, tuple(loops)


def _can_have_neutral_rows(clause: CheckedClause) -> bool:
    """Whether the output, the skip and the anchors allow that rows are dropped from matches."""
    written = clause.clause
    return (
        written.rows is RowsPerMatch.ONE
        and written.skip.to is not SkipTo.NO_SKIP
        and not (clause.automaton.edges[:, 1] & ~AT_DEADLINE).any()
        and not any(isinstance(node, NotNext) and node.implied for node in written.pattern.walk())
    )


def _loop_to(automaton: RowAutomaton, leading: Sequence[Edge], target: int) -> _Loop:
    """The way to take a row in state *target*, which has the same edges as the state before it: *leading*."""
    names, variables = automaton.names, automaton.variables
    others = {names[variables[other]] for other, _, _ in leading if other not in (ACCEPT, target)}
    negated = {names[variable] for other, _, unless in leading if other == target for variable in unless}
    return _Loop(names[variables[target]], frozenset(others | negated))


def _variables_seen(clause: CheckedClause) -> frozenset[str] | None:
    """The variables whose rows an expression reads. The first and the last row of a match, and the current row of a condition, do
    not count. None: an expression may read any row.
    """
    read: list[Leaf] = [leaf for measure in clause.measures for leaf in measure.leaves]
    for condition in clause.conditions.values():
        leaves = condition.resolved.leaves
        read += [leaf for leaf in leaves if not is_near(leaf, condition.names) or leaf.place.steps]
    names = [] if clause.clause.skip.variable is None else [clause.clause.skip.variable]
    for leaf in read:
        if isinstance(leaf, RowValue):
            place = leaf.place
            if place.steps or (place.variable is None and place.skip):
                return None
            names += [] if place.variable is None else [place.variable]
        elif isinstance(leaf, AggregateValue):
            if leaf.variable is None:
                return None
            names.append(leaf.variable)
    return frozenset(variable for name in names for variable in clause.names[name])
