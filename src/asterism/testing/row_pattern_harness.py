"""Runs a MATCH_RECOGNIZE clause over a stream without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from asterism.arguments import expect
from asterism.errors import StreamDefinitionError
from asterism.expressions.names import plain_column
from asterism.expressions.routines.user_functions import checked as checked_functions
from asterism.matching.spec import OnLimit
from asterism.operators.key_group import check_pages
from asterism.operators.state.page_numbers import PageKind
from asterism.row_patterns.checking import check
from asterism.row_patterns.match_recognize import MatchRecognize
from asterism.row_patterns.operator import LATE_ROWS, MATCHES, MAX_ROWS, RowPatternOperator
from asterism.testing.event_harness import EventHarness
from asterism.testing.literals import EVENTS, WORDS, Literals, Row, checked_columns
from asterism.testing.operator_harness import python_rows
from asterism.testing.without_spark import without_spark


class RowPatternHarness(EventHarness):
    """Runs a clause over a stream step by step, with its state and time.

    :param clause: the clause, or its text; ORDER BY begins with the event time
    :param columns: the columns of the rows, as Spark SQL or an Arrow schema. Default: :data:`EVENTS`, those of event literals.
    :param literals: the format of event literals
    :param pages: a fixed number of pages of state per key group; *key_groups*: as on Spark. Results must not depend on them.
    :param udfs: the functions in Python that SQL can call, by name, as for :meth:`asterism.CEP.pattern_processors`. In a
        query, the session has registered them.
    :param max_rows: and *on_limit*: as for :func:`asterism.match_recognize`
    :raises ExpressionError: the clause is invalid, or does not fit the columns; with the position in the text
    :raises StreamDefinitionError: an argument is invalid

    >>> clause = \"\"\"
    ...     PARTITION BY key ORDER BY ts MEASURES A.value AS a, COUNT(B.*) AS bs
    ...     PATTERN (A B+) DEFINE A AS kind = 'a', B AS kind = 'b'
    ... \"\"\"
    >>> harness = RowPatternHarness(clause).send("ann.a1 ann.b2 ann.b3 |")
    >>> harness.matches, [len(rows) for rows in harness.waiting]
    ([], [3])
    >>> harness.send("ann.x4 |").matches
    [{'key': 'ann', 'a': 1, 'bs': 2}]
    """

    def __init__(
        self,
        clause: MatchRecognize | str,
        columns: str | pa.Schema = EVENTS,
        *,
        literals: Literals = WORDS,
        pages: int | None = None,
        key_groups: int = 1,
        max_rows: int = MAX_ROWS,
        on_limit: OnLimit = "error",
        udfs: Mapping[str, Any] | None = None,
    ) -> None:
        expect(StreamDefinitionError, literals, Literals, "literals must be Literals")
        schema = checked_columns(columns, "the rows")
        check_pages(pages)
        if not isinstance(clause, MatchRecognize):
            clause = MatchRecognize(clause)
        functions = checked_functions(udfs)
        with without_spark(functions):
            checked = check(clause.clause, schema)
        outputs = (MATCHES, LATE_ROWS)
        self.row_patterns = RowPatternOperator(
            checked, schema, outputs=outputs, pages=pages, max_rows=max_rows, on_limit=on_limit
        )
        places = [plain_column(checked.rows.values.texts[number]) for number in checked.partition_by]
        # The key group of a row does not matter for the result; rows are distributed if that needs no expression.
        keys = [schema.names[place] for place in places if place is not None]
        literals = replace(literals, time=self.row_patterns.time.name)
        super().__init__(
            self.row_patterns, schema, literals, keys=keys if None not in places else [], key_groups=key_groups
        )
        self._options = {
            "clause": clause, "columns": schema, "literals": literals, "pages": pages, "key_groups": key_groups,
            "max_rows": max_rows, "on_limit": on_limit, "udfs": functions,
        }  # fmt: skip

    @property
    def matches(self) -> list[Row]:
        """The rows of the result so far, in the order in which they were emitted."""
        return self.rows(MATCHES)

    @property
    def late(self) -> list[Row]:
        """The late rows and the rows without a time, in arrival order."""
        return self.rows(LATE_ROWS)

    @property
    def waiting(self) -> list[list[Row]]:
        """For each waiting partition, the rows from its first undecided row on, with the columns that are kept. Rows that the
        watermark has not passed are left out.
        """
        partitions = []
        for store in self.stores:
            for number, page in sorted(store.pages.items()):
                if number < PageKind.WAITING_EVENTS.first:
                    partitions += [python_rows(rows) for rows in self.row_patterns.waiting_rows(page)]
        return partitions
