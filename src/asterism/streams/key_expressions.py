"""Keys that are expressions over one event: ``lower(name) AS user``. See docs/decisions/0114."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.errors import ExpressionSyntaxError, StreamDefinitionError, UnsupportedSyntaxError
from asterism.expressions.computed_columns import Names
from asterism.expressions.parsing import tokenize
from asterism.expressions.parts_for_spark import PartForSpark, check_of_event, check_queries
from asterism.expressions.structure import structure


def key_parts(keys: Sequence[str], columns: Sequence[str]) -> tuple[list[str], dict[str, PartForSpark]]:
    """(the names of the columns of all keys, those that are expressions, by name)

    :param keys: columns, expressions, or expressions with ``AS name``. The name of a column is this column.
    :param columns: those of the events
    :raises ExpressionError: a key is no expression of one event
    :raises StreamDefinitionError: the name after AS is that of another column
    """
    parts: dict[str, PartForSpark] = {}
    names = []
    for key in keys:
        named = None if key in columns else _key_expression(key, columns)
        names.append(key if named is None else named[0])
        if named is None:
            continue
        name, part = named
        if name.lower() in (column.lower() for column in (*columns, *parts)):
            raise StreamDefinitionError(
                f"the stream and the key {key!r:.100} have a column of the same name",
                "Spark treats names that differ in case as equal.",
                f"another name after AS: {part.sql[1:-1]:.100} AS other_key",
            )
        parts[name] = part
    return names, parts


def _key_expression(text: str, columns: Sequence[str]) -> tuple[str, PartForSpark] | None:
    """The name and the SQL of a key; None if it is a single word."""
    tokens = tokenize(text, "key")
    whole = structure(tokens)
    if len(tokens) < 2:
        return None
    if whole is None or not whole.is_expression or whole.end not in (len(tokens), len(tokens) - 2):
        raise ExpressionSyntaxError.at("a key must be a column or an expression", text, hint="lower(name) AS user")
    check_queries(tokens, text)
    check_of_event(tokens, whole.begin, whole.end, text, Names(frozenset(columns)))
    begin, end = tokens[whole.begin].start, tokens[whole.end - 1].end + 1
    # The parentheses refuse a name without AS, and several expressions.
    sql, starts = f"({text[begin:end]})", (begin, *range(begin, end), end - 1)
    refusal = UnsupportedSyntaxError.at("this key cannot be evaluated", text, begin)
    name = text.strip() if whole.end == len(tokens) else tokens[-1].text
    return name, PartForSpark(sql, text, starts, refusal)
