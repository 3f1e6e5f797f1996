"""Finds the conditions that bound the time of a row by rows before it: ``B AS ts <= A.ts + INTERVAL '5' MINUTE``.

Once the watermark has passed a bound, no later row can satisfy the condition. The search then stops waiting for such a row
(:mod:`asterism.row_patterns.kernels`), and partial matches that need one have timed out.
See ``docs/decisions/0105-conditions-that-bound-times.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from asterism.errors import ExpressionError
from asterism.expressions.evaluation import Vectorized, tried_before
from asterism.expressions.parsing import conjuncts
from asterism.expressions.types import BIGINT, DATE
from asterism.expressions.values import UnsupportedError, is_fixed
from asterism.row_patterns.checking import CheckedClause, VariableCondition
from asterism.row_patterns.resolution import Place, RowValue, is_near

DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A conjunct ``time <= limit`` of the condition of a variable; *time* is the first expression of ORDER BY in the current row.

    :ivar limit: over the leaves of the condition
    :ivar strict: whether it is ``time < limit``
    :ivar reads: for each leaf that it reads, the place of its row before the current row is taken
    :ivar unit: of the time and the limit, in microseconds
    """

    variable: str
    limit: exp.Expr
    strict: bool
    reads: dict[int, Place]
    unit: int


def time_bounds(clause: CheckedClause) -> list[TimeBound]:
    """The bounds of a clause whose first expression of ORDER BY is an ascending time.

    >>> from asterism.row_patterns.checking import check
    >>> from asterism.row_patterns.clause.reading import read
    >>> rows = pa.schema({"ts": "int64", "kind": "string"})
    >>> text = "ORDER BY ts MEASURES A.ts AS a PATTERN (A B C) DEFINE B AS kind = 'b' AND ts - A.ts < 5, C AS PREV(ts) + 5 >= ts"
    >>> [(bound.variable, bound.limit.sql(), bound.strict) for bound in time_bounds(check(read(text), rows))]
    [('B', '"leaf_2" + 5', True), ('C', '"leaf_1" + 5', False)]
    """
    if not clause.order_by or clause.clause.order_by[0].descending:
        return []
    kind = clause.rows.values.types[clause.order_by[0]]
    if kind == BIGINT:
        unit = 1000  # milliseconds
    elif kind == DATE:
        unit = DAY
    elif pa.types.is_timestamp(kind) and kind.unit == "us":
        unit = 1
    else:
        return []
    bounds = []
    for variable, condition in clause.conditions.items():
        for part in conjuncts(condition.resolved.tree):
            for limit, strict in _limits(clause, condition, part, kind):
                reads = _reads(condition, limit)
                if reads and _type_of(condition, limit) == kind:
                    bounds.append(TimeBound(variable, limit, strict, reads, unit))
    return bounds


def _limits(
    clause: CheckedClause, condition: VariableCondition, part: exp.Expr, kind: pa.DataType
) -> list[tuple[exp.Expr, bool]]:
    """(limit, whether it is excluded) of a conjunct. The limit may read anything."""
    if isinstance(part, exp.Between):
        small, large, strict = part.this, part.args["high"], False
    elif isinstance(part, exp.LTE | exp.LT):
        small, large, strict = part.this, part.expression, isinstance(part, exp.LT)
    elif isinstance(part, exp.GTE | exp.GT):
        small, large, strict = part.expression, part.this, isinstance(part, exp.GT)
    else:
        return []
    small, large = small.unnest(), large.unnest()
    if _is_time(clause, condition, small):
        return [(large, strict)]
    # Spark subtracts local times, which go back at the end of daylight saving time.
    exact = not pa.types.is_timestamp(kind) or kind.tz is None or is_fixed(condition.resolved.body.zone)
    if exact and isinstance(small, exp.Sub) and _is_time(clause, condition, small.this.unnest()):
        taken, rest = small.expression.unnest(), large
        if taken.find(exp.Column) is None:  # ts - INTERVAL '5' MINUTE <= A.ts
            taken, rest = rest, taken
        return [(exp.Add(this=_enclosed(taken), expression=_enclosed(rest)), strict)]
    return []


def _enclosed(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node.copy()) if isinstance(node, exp.Binary) else node.copy()


def _leaf_number(column: exp.Expr) -> int:
    return int(column.name.removeprefix("leaf_"))


def _is_time(clause: CheckedClause, condition: VariableCondition, node: exp.Expr) -> bool:
    """Whether an expression is the time of the current row."""
    if not isinstance(node, exp.Column):
        return False
    leaf = condition.resolved.leaves[_leaf_number(node)]
    return is_near(leaf, condition.names) and not leaf.place.steps and leaf.number == clause.order_by[0]


def _reads(condition: VariableCondition, limit: exp.Expr) -> dict[int, Place] | None:
    """For each leaf of the limit the place of its row; None if it may depend on the current row, or on rows after it."""
    places: dict[int, Place] = {}
    for column in limit.find_all(exp.Column):
        number = _leaf_number(column)
        leaf = condition.resolved.leaves[number]
        if not isinstance(leaf, RowValue) or leaf.labelled or leaf.place.steps > 0:
            return None
        place = leaf.place
        if is_near(leaf, condition.names):  # from the current row, which comes after the last row that was taken
            if place.steps == 0:
                return None
            place = Place(None, last=True, steps=place.steps + 1)
        elif place.last and (place.variable is None or place.variable in condition.names):
            place = Place(place.variable, last=True, skip=place.skip - 1, steps=place.steps)
        places[number] = place
    return places


def _type_of(condition: VariableCondition, limit: exp.Expr) -> pa.DataType | None:
    resolved = condition.resolved
    expression = Vectorized(resolved.body.schema)
    try:
        with tried_before():
            return expression.types[expression.add(limit.copy(), resolved.source.text)]
    except (UnsupportedError, ExpressionError):
        return None
