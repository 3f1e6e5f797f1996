"""Measures of a clause of which only Spark can evaluate the outer part: see :mod:`asterism.expressions.outer_parts`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from asterism.errors import ExpressionError
from asterism.expressions.outer_parts import DividedMeasures, InnerMeasures, OuterMeasure, divided
from asterism.row_patterns.checking import CheckedClause, check, checked_names
from asterism.row_patterns.clause.clause import Clause, ExpressionText, Measure, RowsPerMatch
from asterism.row_patterns.resolution import Resolver, row_names


@dataclass(frozen=True, slots=True)
class DividedClause:
    """A clause whose measures have been divided.

    :ivar checked: the clause of the operator
    :ivar measures: what Spark computes after it; None: nothing
    """

    checked: CheckedClause
    measures: DividedMeasures | None


def check_divided(clause: Clause, schema: pa.Schema) -> DividedClause:
    """:func:`~asterism.row_patterns.checking.check`, for a clause over rows in Spark.

    :raises ExpressionError: also if a measure has no outer part

    >>> from asterism.row_patterns.clause.reading import read
    >>> clause = read("ORDER BY ts MEASURES f(FIRST(x)) AS a, a + SUM(x) AS b PATTERN (A+)")
    >>> divided = check_divided(clause, pa.schema({"ts": "int64", "x": "int64"}))
    >>> [measure.part.sql.replace("__asterism_", "") for measure in divided.measures.outer.values()]
    ['f(`measure_0`)', '(f(`measure_0`)) + `measure_1`']
    >>> [f"{measure.expression.text} AS {measure.name}" for measure in divided.checked.clause.measures]
    ['TRUE AS a', 'TRUE AS b', 'FIRST(x) AS __asterism_measure_0', 'SUM(x) AS __asterism_measure_1']
    """
    try:
        return DividedClause(check(clause, schema), None)
    except ExpressionError as error:
        refusal = error
    measures, divided_measures = _divided(clause, schema)
    if not divided_measures.outer:
        raise refusal
    return DividedClause(check(replace(clause, measures=measures), schema), divided_measures)


def _divided(clause: Clause, schema: pa.Schema) -> tuple[tuple[Measure, ...], DividedMeasures]:
    variables = checked_names(clause)
    resolver, names = Resolver(clause, schema, variables), row_names(clause, schema, variables).of_measures()
    inner, outer, kept = InnerMeasures(), dict[str, OuterMeasure](), list[Measure]()
    starts: dict[str, int] = {}
    for measure in clause.measures:
        source = measure.expression
        try:
            resolver.measure(source, measure.name)
        except ExpressionError as error:
            refusal = error
        else:
            kept.append(measure)
            continue
        others = [other.name.lower() for other in clause.measures[: len(kept)]]
        earlier = {name.lower(): other for name, other in outer.items()}
        try:
            result = divided(source.text, refusal, names, inner, others, earlier)
        except ExpressionError as error:
            raise error if error is refusal else error.moved(clause.text, source.start) from None
        for part in result.inner:
            starts.setdefault(part.text, source.start + part.start)
            resolver.measure(ExpressionText(part.text, starts[part.text]), inner.name_of(part.text))
        part_for_spark = result.part.moved(clause.text, source.start)._replace(refusal=refusal)
        outer[measure.name] = replace(result, name=measure.name, part=part_for_spark)
        kept.append(replace(measure, expression=ExpressionText("TRUE", source.start)))
    kept += [Measure(ExpressionText(text, starts[text]), name, starts[text]) for text, name in inner.names.items()]
    only_matched = clause.rows is RowsPerMatch.ALL_WITH_UNMATCHED
    return tuple(kept), DividedMeasures(outer, frozenset(inner.names.values()), only_matched)
