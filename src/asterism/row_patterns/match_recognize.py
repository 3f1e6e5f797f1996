"""A MATCH_RECOGNIZE clause as an object that can be explained and drawn."""

from __future__ import annotations

from asterism.arguments import expect_string
from asterism.errors import StreamDefinitionError
from asterism.row_patterns.checking import check_without_columns
from asterism.row_patterns.clause.clause import Clause, DialectName, dialect_of
from asterism.row_patterns.clause.reading import read
from asterism.text.view import View


class MatchRecognize(View):
    """A MATCH_RECOGNIZE clause that has been read. :func:`asterism.match_recognize` takes it, as it takes the text.

    :param text: the clause, with or without the words ``MATCH_RECOGNIZE ( )`` around it
    :param dialect: "standard" or "flink", as for :func:`asterism.match_recognize`
    :raises ExpressionError: the clause is invalid; with the position in the text. Columns, types, and functions that Spark
        may have, are checked when the clause is applied to rows.
    :raises StreamDefinitionError: *text* is no string, or there is no such dialect

    >>> clause = "ORDER BY ts MEASURES LAST(ts) AS until PATTERN (TOP DOWN+) DEFINE DOWN AS price < PREV(price)"
    >>> MatchRecognize(clause)
    MatchRecognize('TOP DOWN+')
    """

    def __init__(self, text: str, dialect: DialectName = "standard") -> None:
        expect_string(StreamDefinitionError, text, "a clause must be a string", 'for example "ORDER BY ts ..."')
        self.clause: Clause = read(text, dialect_of(dialect))
        check_without_columns(self.clause, with_spark=True)

    @property
    def text(self) -> str:
        """The clause as it was written."""
        return self.clause.text

    def __repr__(self) -> str:
        return f"MatchRecognize({str(self.clause.pattern)!r:.200})"

    def explain(self) -> str:
        """Describe the clause as text: the steps of its pattern, its output, when a match is emitted on a stream, and its
        automaton.

        :raises ExpressionError: the automaton is too large

        >>> falls = "ORDER BY ts MEASURES LAST(ts) AS until PATTERN (TOP DOWN+) DEFINE DOWN AS price < PREV(price)"
        >>> print(MatchRecognize(falls).explain())
        1. TOP: once
             any row
        2. DOWN: 1 or more times, as many as possible
             where price < PREV(price)
        order: ts
        output: ONE ROW PER MATCH: one row for each match
          until = LAST(ts)
        after a match: SKIP PAST LAST ROW: the search continues after the last row of the match
        on a stream, a match is emitted
          after DOWN: with the first row that does not continue the match with DOWN, because a longer match is preferred
          without WITHIN, a search can wait for any number of rows, up to max_rows
        <BLANKLINE>
        automaton
        start: TOP0
        TOP0: DOWN1
        DOWN1: DOWN1, accept
        """
        from asterism.row_patterns.explain import explain

        return explain(self.clause)

    def to_svg(self) -> str:
        """Draw the pattern; notebooks show the drawing of a clause that is the last line of a cell.

        >>> MatchRecognize("ORDER BY ts MEASURES A.ts AS t PATTERN (A B+)").to_svg().startswith("<svg ")
        True
        """
        from asterism.row_patterns.drawing import pattern_svg

        return pattern_svg(self.clause)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        from asterism.row_patterns.drawing import to_html

        return to_html(self.clause)
