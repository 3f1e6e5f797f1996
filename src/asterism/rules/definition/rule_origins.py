"""What a rule was translated from, so that an error of what it has become names a place in it.

A rule in EQL or Sigma is bound to the events as the pattern or the clause that it has become, whose SQL its author does not know.
See docs/decisions/0182.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from asterism.elastic.checking import problem_of_rule
from asterism.errors import ColumnNotFoundError, ExpressionError
from asterism.row_patterns.clause.reading import read
from asterism.text.printable import quoted_name

_COLUMN = re.compile(r"`(?:[^`]|``)+`(?:\.`(?:[^`]|``)+`)*")
_UNKNOWN = re.compile(r"unknown (?P<what>column|field|stage) '(?P<name>.*)'", re.DOTALL)
"""The message for a column, or a field of a STRUCT, that the events lack."""
SELECT = "select: "
"""How an error of a measure begins."""


@dataclass(frozen=True, slots=True)
class RuleOrigin:
    """
    :ivar eql: the query; None: the rule was not written in EQL
    :ivar fields: of a Sigma rule, the place of each column in it, by its name in SQL
    """

    eql: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)

    def located(self, error: ExpressionError, texts: Sequence[str], schema: pa.Schema) -> ExpressionError:
        """An error of a rule with its place in what the rule was translated from, if that is known, and not in the SQL.

        :param texts: the SQL that it may be an error of
        :param schema: the columns of the events
        """
        problem = None if self.eql is None else problem_of_rule(self.eql, schema)
        if problem is not None:
            return _with_line(problem)
        if self.eql is not None and texts and (selected := in_select(error, texts[0])) is not None:
            return selected
        columns = _columns_of(error, texts)
        place = next((self.fields[column] for column in columns if column in self.fields), None)
        if place is None:
            return type(error)(error.message, error.detail, error.hint)
        name = _UNKNOWN.fullmatch(error.message)
        if name is not None and name["what"] == "stage":  # a field with dots, of which the SQL could be that of a stage
            context = (error.detail or "").partition("\nStages:")[0]
            error = ColumnNotFoundError.from_missing_and_available(name["name"], schema.names, context)
        return type(error)(f"{place}: {error.message}", error.detail, error.hint)


def in_select(error: ExpressionError, sql: str) -> ExpressionError | None:
    """An error of the clause that a rule in EQL has become, at its place in ``select``, whose items are the measures of the
    clause; None: it is elsewhere.
    """
    try:
        measures = read(sql).measures
    except ExpressionError:
        return None
    for source in (measure.expression for measure in measures):
        at = -1 if error.position is None else error.position - source.start
        if 0 <= at <= len(source.text):
            return type(error).at(SELECT + error.message, source.text, at, error.hint)
    return None


def _columns_of(error: ExpressionError, texts: Sequence[str]) -> Iterator[str]:
    """The columns that an error may be about, as they are written in *texts*."""
    unknown = _UNKNOWN.fullmatch(error.message)
    for text in texts:
        if unknown is not None:
            yield from (column for column in _COLUMN.findall(text) if quoted_name(unknown["name"]) in column)
        elif error.position is not None and (column := _COLUMN.search(text, error.position)):
            yield column[0]


def _with_line(problem: ExpressionError) -> ExpressionError:
    """The error with its line and column, also if the query has one line."""
    if problem.position is None or not problem.detail or problem.detail.startswith("line "):
        return problem
    placed = type(problem)(problem.message, f"line 1, column {problem.position + 1}\n{problem.detail}", problem.hint)
    placed.position = problem.position
    return placed
