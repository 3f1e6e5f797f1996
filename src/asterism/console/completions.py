"""What the editor of a rule can complete besides columns: functions, words of clauses, and fields of rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.expressions.aggregates import FUNCTIONS as AGGREGATES
from asterism.expressions.functions import FUNCTIONS

NAVIGATION = (
    "first(value[, offset])",
    "last(value[, offset])",
    "prev(value[, offset])",
    "next(value[, offset])",
    "classifier([variable])",
    "match_number()",
    "match_rowtime()",
)
"""The functions that only clauses have."""
WORDS = (
    "PARTITION BY", "ORDER BY", "MEASURES", "ONE ROW PER MATCH", "ALL ROWS PER MATCH", "AFTER MATCH SKIP PAST LAST ROW",
    "AFTER MATCH SKIP TO NEXT ROW", "PATTERN", "WITHIN INTERVAL", "SUBSET", "DEFINE", "AND", "OR", "NOT", "AS", "BETWEEN", "IN",
    "IS NULL", "IS NOT NULL", "LIKE", "INTERVAL", "SECOND", "MINUTE", "HOUR", "DAY", "CASE WHEN", "THEN", "ELSE", "END",
    "DISTINCT", "FINAL", "RUNNING", "TRUE", "FALSE", "NULL", "DATE", "TIMESTAMP",
)  # fmt: skip
"""The words of clauses and expressions."""
FIELDS: Mapping[str, str] = {
    "id": "the name of the rule",
    "version": "an integer",
    "sql": "a MATCH_RECOGNIZE clause",
    "pattern": "a graph, as JSON",
    "sigma": "a Sigma rule",
    "eql": "a query in EQL",
    "key": "expressions that group the events",
    "select": "the columns of a match",
    "function": "a function of the query",
    "timestamp": "in force from this event time on",
    "expires": "in force before this event time",
    "suppress": "no further matches for a time",
    "shadow": "runs beside the version in force",
    "adopt": "continues partial matches",
    "labels": "title, description, owner and others",
    "timedOut": "also reports timed-out partial matches",
    "maxPartialMatches": "of a key",
    "tests": "events and the matches in them",
    "parameters": "makes it a template",
    "rows": "the rules of a template",
}
"""The fields of a rule that people write."""


def completions(udfs: Mapping[str, str]) -> dict[str, Any]:
    """The functions by name with their usage, the words, and the fields of rules with what they mean.

    :param udfs: the signatures of the functions that the query lists, by name
    """
    usages = {name: function.usage for table in (AGGREGATES, FUNCTIONS) for name, function in table.items()}
    usages |= {usage.partition("(")[0]: usage for usage in NAVIGATION}
    return {
        "functions": sorted((usages | dict(udfs)).items()),
        "words": list(WORDS),
        "fields": list(FIELDS.items()),
    }
