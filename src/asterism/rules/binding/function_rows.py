"""The rows that the function of a pattern processor returns for its matches: any number for each match."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.errors import PatternProcessorError, printable
from asterism.matching.outputs import MATCH_ID

RESULT = "result"
_HINT = "return a column match_id with the id of the match of each row"


@dataclass(frozen=True, slots=True)
class FunctionRows:
    """The rows of a function.

    :ivar match: for each row the number of its match, ascending
    :ivar number: for each row its number among those of its match, from 0
    :ivar results: the rows as JSON
    """

    match: Ints
    number: Ints
    results: pa.Array

    @classmethod
    def from_answer(
        cls, name: str, matches: pa.Table, answer: Any, texts_of: Callable[[pa.Table], pa.Array]
    ) -> FunctionRows:
        """
        :param name: the name of the function
        :param matches: the matches that the function received
        :param answer: the result of the function: a table with the column ``match_id``, or with a row for each match
        :param texts_of: writes each row of a table as JSON
        :raises PatternProcessorError: *answer* is neither
        """
        if not isinstance(answer, pa.Table):
            raise PatternProcessorError(
                f"the function {name!r} must return a pyarrow.Table, not {type(answer).__name__}"
            )
        if MATCH_ID in answer.column_names:
            places = {id: number for number, id in enumerate(matches.column(MATCH_ID).to_pylist())}
            numbers = [places.get(id, -1) for id in answer.column(MATCH_ID).to_pylist()]
            if -1 in numbers:
                wrong = printable(repr(answer.column(MATCH_ID)[numbers.index(-1)].as_py())[:60])
                raise PatternProcessorError(f"the function {name!r} returned a match_id that it did not get: {wrong}")
            match = np.array(numbers, np.int64)
        elif answer.num_rows == matches.num_rows:
            match = np.arange(matches.num_rows)
        else:
            problem = f"the function {name!r} must return a row for each match, or a column match_id"
            raise PatternProcessorError(problem, f"{answer.num_rows:,} rows for {matches.num_rows:,} matches", _HINT)
        order = np.argsort(match, kind="stable")
        match = match[order]
        first = np.searchsorted(match, match)
        return cls(match, np.arange(len(match)) - first, texts_of(answer.take(pa.array(order))))

    def of(self, rows: pa.Table) -> pa.Table:
        output = rows.take(pa.array(self.match))
        ids = output.column(MATCH_ID).to_pylist()
        ids = [_id_of(id, number) for id, number in zip(ids, self.number.tolist(), strict=True)]
        for name, column in ((MATCH_ID, pa.array(ids, pa.string())), (RESULT, self.results)):
            output = output.set_column(output.column_names.index(name), output.schema.field(name), column)
        return output


def _id_of(match_id: str, number: int) -> str:
    """The id of a row: that of the match for its first row, and an id derived from it for each other row."""
    return match_id if number == 0 else hashlib.sha256(f"{match_id} {number}".encode()).hexdigest()[:32]
