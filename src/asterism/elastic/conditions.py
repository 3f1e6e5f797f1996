"""The conditions of EQL as SQL.

A comparison with a field that an event lacks is NULL, in EQL as in SQL, and so are AND, OR and NOT; ``== null`` is IS NULL.
Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-function-ref.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from itertools import islice
from operator import attrgetter

import pyarrow as pa

from asterism.elastic import syntax
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionSyntaxError,
    PatternProcessorError,
    UnknownFunctionError,
    UnsupportedSyntaxError,
)
from asterism.expressions.names import OPTIONAL, path_in
from asterism.text.printable import quoted_name
from asterism.text.sql import network_condition, number_literal, regex_text, text_literal

MAX_SQL = 20_000
"""The maximum number of characters of an expression in SQL."""
MAX_NAMES = 300
"""The maximum number of names of fields in an error."""
CATEGORY = "event.category"
"""The field of the event category."""
TIME = "@timestamp"
"""The field of the event time."""

_NULL = syntax.EqlLiteral(None)
_ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "modulo": "%"}


@dataclass(frozen=True)
class ConditionWriter:
    """Writes the conditions of a query.

    :param text: the query, for errors
    :param schema: the columns of the events; None: they are not known, and each field is a column, or a field of a STRUCT
    :param category: the field of the event category
    :param prefix: what comes before each field, such as ``s1_0.``
    :param in_rule: whether a field with dots is a field of a STRUCT, because the rule was read before the columns were known
    """

    text: str
    schema: pa.Schema | None = None
    category: str = CATEGORY
    prefix: str = ""
    in_rule: bool = False

    def event(self, query: syntax.EqlEventQuery) -> str:
        """An event query as a condition."""
        condition = self.sql(query.condition)
        if query.category is None:
            return condition
        column = self._column(
            tuple(self.category.split(".")), query.start, 'any where ...; or category="...", a column'
        )
        return f"{column} = {text_literal(query.category)} AND ({condition})"

    def sql(self, node: syntax.EqlNode) -> str:
        """
        :raises ExpressionError: it has an unknown field or function, or cannot be written; with the position
        """
        written = self._sql(node)
        if len(written) > MAX_SQL:  # functions repeat their arguments, so that nested ones grow
            problem = f"the condition has {len(written):,} characters in SQL (limit {MAX_SQL:,})"
            raise UnsupportedSyntaxError.at(problem, self.text, node.start, "write several rules")
        return written

    def _sql(self, node: syntax.EqlNode) -> str:
        match node:
            case syntax.EqlLiteral():
                return _literal(node.value)
            case syntax.EqlFieldName():
                return self._field(node)
            case syntax.EqlJunction():
                return "(" + f" {node.word.upper()} ".join(map(self.sql, node.parts)) + ")"
            case syntax.EqlNot():
                return f"NOT ({self.sql(node.of)})"
            case syntax.EqlNegative():
                return f"(-{self.sql(node.of)})"
            case syntax.EqlOperation():
                return self._operation(node)
            case syntax.EqlOneOf():
                return self._one_of(node)
            case syntax.EqlMatches():
                return self._matches(node)
            case syntax.EqlFunctionCall():
                return self._call(node)
        raise TypeError(node)

    # ------------------------------------------------------------------ fields

    def _field(self, node: syntax.EqlFieldName) -> str:
        if node.optional and self.schema is None:
            return self._optional(node.parts)
        if node.optional and not self.has_field(node):
            return "NULL"
        return self._column(node.parts, node.start)

    def _optional(self, parts: tuple[str | int, ...]) -> str:
        """A field that the events may lack, as an :func:`~asterism.expressions.names.optional_column`."""
        index = next((at for at, part in enumerate(parts) if isinstance(part, int)), len(parts))
        name = OPTIONAL + ".".join(map(str, parts[:index]))
        return self._path((name, *parts[index:]))

    def has_field(self, node: syntax.EqlFieldName) -> bool:
        """Whether the events may have this field."""
        return self.schema is None or path_in(self.schema, node.parts) is not None

    def _column(self, parts: tuple[str | int, ...], start: int, hint: str | None = None) -> str:
        if self.schema is None:
            return self._path(parts)
        known, with_dots = path_in(self.schema, parts), None
        if known is not None and self.in_rule and known != list(parts):
            with_dots = f"in a rule, a column with dots is written in backticks: `{known[0]}`"
            known = None
        if known is None:
            name, names = ".".join(map(str, parts)), list(islice(_field_names(self.schema), MAX_NAMES))
            marked = str(ColumnNotFoundError.at("", self.text, start).detail)
            error = ColumnNotFoundError.from_missing_and_available(name, names, marked, '"')
            error.hint = with_dots or error.hint or hint or f"?{name} is NULL where there is no such column"
            error.position = start
            raise error
        return self._path(known)

    def _path(self, parts: Sequence[str | int]) -> str:
        name, *others = parts
        written = self.prefix + quoted_name(str(name))
        for part in others:
            written = f"GET({written}, {part})" if isinstance(part, int) else f"{written}.{quoted_name(part)}"
        return written

    # ------------------------------------------------------------------ operators

    def _operation(self, node: syntax.EqlOperation) -> str:
        for one, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(one, syntax.EqlLiteral) and one.value is None and node.operator in ("==", "!="):
                return f"{self.operand(other)} IS {'NOT ' if node.operator == '!=' else ''}NULL"
        left, right = self.operand(node.left), self.operand(node.right)
        operator = {"==": "=", "!=": "<>"}.get(node.operator, node.operator)
        if operator == "/" and self._is_integer(node):
            operator = "DIV"
        written = f"{left} {operator} {right}"
        return f"({written})" if operator in ("+", "-", "*", "/", "DIV", "%") else written

    def _is_integer(self, node: syntax.EqlNode) -> bool:
        """Whether the value is known to be an integer: the quotient of two integers is one, too."""
        match node:
            case syntax.EqlLiteral():
                return type(node.value) is int
            case syntax.EqlFieldName():
                if self.schema is None or node.name not in self.schema.names:
                    return False
                return bool(pa.types.is_integer(self.schema.field(node.name).type))
            case syntax.EqlFunctionCall() if node.name.lower() in ("length", "indexof"):
                return True
            case syntax.EqlFunctionCall() if node.name.lower() in _ARITHMETIC:
                return all(map(self._is_integer, node.arguments))
            case syntax.EqlNegative():
                return self._is_integer(node.of)
            case syntax.EqlOperation(operator="+" | "-" | "*" | "/" | "%"):
                return self._is_integer(node.left) and self._is_integer(node.right)
        return False

    def operand(self, node: syntax.EqlNode) -> str:
        """An expression that can stand beside an operator."""
        sql = self.sql(node)
        is_atom = isinstance(node, syntax.EqlLiteral | syntax.EqlFieldName | syntax.EqlNegative)
        return sql if is_atom else f"({sql})"

    def _one_of(self, node: syntax.EqlOneOf) -> str:
        lower = node.any_case
        values = ", ".join(self._lowered(value, lower) for value in node.values)
        return f"{self._lowered(node.of, lower)} IN ({values})"

    def _lowered(self, node: syntax.EqlNode, lower: bool) -> str:
        if not lower:
            return self.operand(node)
        if isinstance(node, syntax.EqlLiteral) and isinstance(node.value, str):
            return text_literal(node.value.lower())
        if isinstance(node, syntax.EqlLiteral):
            return self.sql(node)
        return f"LOWER({self.sql(node)})"

    def _matches(self, node: syntax.EqlMatches) -> str:
        parts = [self._pattern(node, pattern) for pattern in node.patterns]
        return any_of(parts)

    def _pattern(self, node: syntax.EqlMatches, pattern: syntax.EqlLiteral) -> str:
        value, operator = pattern.value, node.operator
        if not isinstance(value, str):
            return (
                f"{self.operand(node.of)} IS NULL" if value is None else f"{self.operand(node.of)} = {_literal(value)}"
            )
        if operator.startswith("regex"):
            return self._regex(node.of, value, any_case=operator.endswith("~"))
        return self._wildcards(node.of, value, any_case=operator != "like")

    def _wildcards(self, of: syntax.EqlNode, pattern: str, *, any_case: bool) -> str:
        column = self._lowered(of, any_case)
        pattern = pattern.lower() if any_case else pattern
        if "*" not in pattern and "?" not in pattern:
            return f"{column} = {text_literal(pattern)}"
        for letter in ("\\", "%", "_"):
            pattern = pattern.replace(letter, "\\" + letter)
        return f"{column} LIKE {text_literal(pattern.replace('*', '%').replace('?', '_'))}"

    def _regex(self, of: syntax.EqlNode, pattern: str, *, any_case: bool) -> str:
        # $ also matches before a line break at the end, hence the letter after the value. In Lucene, a dot is any letter.
        try:
            written = regex_text(f"^(?:{pattern})x$", "is" if any_case else "s")
        except PatternProcessorError as error:
            raise UnsupportedSyntaxError.at(error.message, self.text, of.start) from None
        return f"CONCAT({self.sql(of)}, 'x') RLIKE {text_literal(written)}"

    # ------------------------------------------------------------------ functions

    def _call(self, node: syntax.EqlFunctionCall) -> str:
        name = node.name.lower()
        if name in _ARITHMETIC:
            left, right = self._arguments(node, 2, 2)
            return self._operation(syntax.EqlOperation(_ARITHMETIC[name], left, right, start=node.start))
        function = next((function for known, function in _FUNCTIONS.items() if known.lower() == name), None)
        if function is None:
            hint = f"functions: {', '.join(sorted([*_FUNCTIONS, *_ARITHMETIC]))}"
            raise UnknownFunctionError.at(f"unknown function {node.name}", self.text, node.start, hint)
        return function(self, node)

    def _arguments(self, node: syntax.EqlFunctionCall, least: int, most: int | None) -> Sequence[syntax.EqlNode]:
        count = len(node.arguments)
        if count < least or (most is not None and count > most):
            expected = str(least) if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            problem = f"{node.name} has {expected} argument{'' if expected == '1' else 's'}, not {count}"
            raise ExpressionSyntaxError.at(problem, self.text, node.start)
        return node.arguments

    def _literal_text(self, node: syntax.EqlFunctionCall, argument: syntax.EqlNode) -> str:
        if not isinstance(argument, syntax.EqlLiteral) or not isinstance(argument.value, str):
            raise UnsupportedSyntaxError.at(f"this argument of {node.name} must be a text", self.text, argument.start)
        return argument.value

    def _text_test(self, node: syntax.EqlFunctionCall, name: str) -> str:
        text, *others = self._arguments(node, 2, None)
        source = self._lowered(text, node.any_case)
        tests = [f"{name}({source}, {self._lowered(other, node.any_case)})" for other in others]
        return any_of(tests)

    def _index_of(self, node: syntax.EqlFunctionCall) -> str:
        text, other, *start = self._arguments(node, 2, 3)
        source, sought = self._lowered(text, node.any_case), self._lowered(other, node.any_case)
        first = f", GREATEST({self.operand(start[0])}, 0) + 1" if start else ""
        return f"(NULLIF(LOCATE({sought}, {source}{first}), 0) - 1)"

    def _length(self, node: syntax.EqlFunctionCall) -> str:
        [text] = self._arguments(node, 1, 1)
        return f"LENGTH({self.sql(text)})"

    def _string(self, node: syntax.EqlFunctionCall) -> str:
        [value] = self._arguments(node, 1, 1)
        return f"CAST({self.sql(value)} AS STRING)"

    def _number(self, node: syntax.EqlFunctionCall) -> str:
        text, *base = self._arguments(node, 1, 2)
        decimal = f"TRY_CAST({self.sql(text)} AS DOUBLE)"
        if base and base[0] == syntax.EqlLiteral(10):
            return decimal
        if base and base[0] not in (syntax.EqlLiteral(16), _NULL):
            raise UnsupportedSyntaxError.at("the base of number must be 10 or 16", self.text, base[0].start)
        digits = f"REGEXP_REPLACE({self.sql(text)}, '^0[xX]', '')"
        hexadecimal = f"CASE WHEN {digits} RLIKE '^[0-9a-fA-F]+$' THEN TRY_CAST(CONV({digits}, 16, 10) AS DOUBLE) END"
        if base and base[0] == syntax.EqlLiteral(16):
            return hexadecimal
        return f"CASE WHEN {self.sql(text)} RLIKE '^0[xX]' THEN {hexadecimal} ELSE {decimal} END"

    def _concat(self, node: syntax.EqlFunctionCall) -> str:
        values = self._arguments(node, 1, None)
        return f"CONCAT({', '.join(f'CAST({self.sql(value)} AS STRING)' for value in values)})"

    def _substring(self, node: syntax.EqlFunctionCall) -> str:
        text, start, *end = self._arguments(node, 2, 3)
        source = self.sql(text)
        if start == _NULL:
            return source
        first = self._index(start, source)
        if not end or end[0] == _NULL:
            return f"SUBSTRING({source}, {first} + 1)"
        return f"SUBSTRING({source}, {first} + 1, GREATEST({self._index(end[0], source)} - {first}, 0))"

    def _index(self, node: syntax.EqlNode, source: str) -> str:
        """An index into a text from 0, of which a negative one counts from the end."""
        if isinstance(node, syntax.EqlLiteral) and isinstance(node.value, int) and node.value >= 0:
            return str(node.value)
        index = self.operand(node)
        return f"(CASE WHEN {index} < 0 THEN GREATEST(LENGTH({source}) + {index}, 0) ELSE {index} END)"

    def _between(self, node: syntax.EqlFunctionCall) -> str:
        text, left, right, *greedy = self._arguments(node, 3, 4)
        if _NULL in (left, right):
            return "CAST(NULL AS STRING)"
        if syntax.EqlLiteral("") in (left, right):  # as in Elasticsearch
            return self.sql(text)
        source, low = self.sql(text), self._lowered(text, node.any_case)
        before, after = self._lowered(left, node.any_case), self._lowered(right, node.any_case)
        begin = f"(LOCATE({before}, {low}) + LENGTH({before}))"
        if greedy and greedy[0] == syntax.EqlLiteral(True):
            last = f"(LENGTH({source}) - LENGTH({after}) - LOCATE(REVERSE({after}), REVERSE({low})) + 2)"
            end = f"(CASE WHEN LOCATE({after}, {low}, {begin}) > 0 THEN {last} ELSE 0 END)"
        else:
            end = f"LOCATE({after}, {low}, {begin})"
        is_there = f"LOCATE({before}, {low}) > 0 AND {end} > 0"
        found = f"SUBSTRING({source}, {begin}, {end} - {begin})"
        return f"CASE WHEN {source} IS NOT NULL THEN CASE WHEN {is_there} THEN {found} ELSE '' END END"

    def _cidr_match(self, node: syntax.EqlFunctionCall) -> str:
        address, *networks = self._arguments(node, 2, None)
        tests = []
        for argument in networks:
            text = self._literal_text(node, argument)
            try:
                network = ip_network(text, strict=False)
            except ValueError:
                raise ExpressionSyntaxError.at(
                    f"{text!r:.60} is not a network", self.text, argument.start, '"10.0.0.0/8"'
                ) from None
            tests.append(network_condition(self.operand(address), network))
        return any_of(tests)

    def _wildcard(self, node: syntax.EqlFunctionCall) -> str:
        text, *patterns = self._arguments(node, 2, None)
        parts = [self._wildcards(text, self._literal_text(node, p), any_case=node.any_case) for p in patterns]
        return any_of(parts)

    def _match(self, node: syntax.EqlFunctionCall) -> str:
        text, *patterns = self._arguments(node, 2, None)
        parts = [self._regex(text, self._literal_text(node, p), any_case=node.any_case) for p in patterns]
        return any_of(parts)

    def _array_contains(self, node: syntax.EqlFunctionCall) -> str:
        array, *values = self._arguments(node, 2, None)
        source = self.sql(array)
        if source == "NULL":  # an optional field that the events lack
            return source
        tests = [f"ARRAY_CONTAINS({source}, {self.sql(value)})" for value in values]
        return any_of(tests)


def _field_names(schema: pa.Schema) -> Iterator[str]:
    """The columns, each followed by the fields of a STRUCT with their whole names."""
    for column in sorted(schema, key=attrgetter("name")):
        yield column.name
        if pa.types.is_struct(column.type):
            yield from (f"{column.name}.{name}" for name in _field_names(pa.schema(column.type.fields)))


def any_of(conditions: Sequence[str]) -> str:
    """The conditions joined by OR, as an operand."""
    return conditions[0] if len(conditions) == 1 else "(" + " OR ".join(conditions) + ")"


def _literal(value: str | float | bool | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return text_literal(value) if isinstance(value, str) else number_literal(value)


_FUNCTIONS: dict[str, Callable[[ConditionWriter, syntax.EqlFunctionCall], str]] = {
    "arrayContains": ConditionWriter._array_contains,
    "between": ConditionWriter._between,
    "cidrMatch": ConditionWriter._cidr_match,
    "concat": ConditionWriter._concat,
    "endsWith": partial(ConditionWriter._text_test, name="ENDSWITH"),
    "indexOf": ConditionWriter._index_of,
    "length": ConditionWriter._length,
    "match": ConditionWriter._match,
    "number": ConditionWriter._number,
    "startsWith": partial(ConditionWriter._text_test, name="STARTSWITH"),
    "string": ConditionWriter._string,
    "stringContains": partial(ConditionWriter._text_test, name="CONTAINS"),
    "substring": ConditionWriter._substring,
    "wildcard": ConditionWriter._wildcard,
}
"""Those of :data:`_ARITHMETIC` are operators."""
