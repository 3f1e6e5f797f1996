"""Validates the clauses of a text, with the positions of problems."""

from __future__ import annotations

import re

import pyarrow as pa

from asterism.errors import ExpressionError
from asterism.row_patterns.automaton import compiled_pattern
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import DialectName
from asterism.row_patterns.statements import clauses_in
from asterism.row_patterns.wording import summary
from asterism.rules.checking.validation import Problem
from asterism.text.strict_json import DocumentSyntaxError, line_and_column, text_of


def check_text(
    source: str | bytes, schema: pa.Schema | None = None, dialect: DialectName = "standard"
) -> tuple[list[str], list[Problem]]:
    """Summarize each clause of a statement, or the clause that is the whole text; or return the first problem.

    :param source: the text, in UTF-8 if bytes
    :param schema: the columns of the rows; with it, names and types in expressions are checked, otherwise their syntax

    >>> check_text("PATTERN (A B+) DEFINE B AS price > PREV(price)")
    (['PATTERN (A B+), ONE ROW PER MATCH, SKIP PAST LAST ROW'], [])
    >>> [problem] = check_text("PATTERN (A B+)\\nDEFINE B AS price >")[1]
    >>> problem.line, problem.column
    (2, 13)
    """
    try:
        text = text_of(source, language="SQL")
    except DocumentSyntaxError as error:
        return [], [Problem(error.line, error.column, error.message, error.detail, error.hint)]
    try:
        clauses = clauses_in(text, dialect)
        for begin, match_recognize in clauses:
            try:
                if schema is not None:
                    check(match_recognize.clause, schema)
                compiled_pattern(match_recognize.clause)
            except ExpressionError as error:
                raise error.moved(text, begin) from None
    except ExpressionError as error:
        line, column = line_and_column(text, error.position or 0)
        detail = re.sub(r"\Aline \d+, column \d+\n", "", error.detail or "")
        return [], [Problem(line, column, error.message, detail, error.hint)]
    return [summary(match_recognize.clause) for _, match_recognize in clauses], []
