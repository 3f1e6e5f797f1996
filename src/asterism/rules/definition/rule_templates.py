"""Templates: one rule with a table of parameters, of which each row gives a rule. ``docs/rules/writing.md`` describes the format.

A parameter is written ``:name``. In SQL it is replaced by a literal, and only where it is a separate token: not in strings, in
quoted names or in comments. The tokens around it stay the same for any value, so a value cannot change the structure of an
expression. Elsewhere, a parameter is the whole value of one of a few fields: a number, a flag, a time or a duration.
"""

from __future__ import annotations

import difflib
import enum
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from sqlglot.tokenizer_core import TokenType

from asterism.elastic.parsing import literal, parts_at_parameters
from asterism.errors import AsterismError, ExpressionSyntaxError, PatternProcessorError
from asterism.expressions.parsing import MAX_TEXT, tokenize
from asterism.rules.definition.processor import (
    DURATION_UNITS,
    MAX_ID,
    MAX_PROCESSORS,
    MAX_SQL,
    canonical_text,
    check_version,
    duration_of,
    timestamp_of,
)
from asterism.rules.definition.rule_tests import MAX_TESTS
from asterism.text.strict_json import MAX_BYTES, DocumentSyntaxError, decode, pointer_part, text_of

MAX_PARAMETERS = 50
MAX_NAME = 100
MAX_VALUE = 1_000
"""The maximum number of characters of a value."""
MAX_NUMBER = 38
"""The maximum number of digits of a number, as of a DECIMAL in Spark."""
MAX_TOTAL = 100_000_000
"""The maximum number of characters of all rules of a template."""
MAX_DEPTH = 200
"""The maximum nesting of the JSON of a template."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WHOLE = re.compile(r":([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_TOUCHING = re.compile(r"""[\w'"`:.$@#?\\]""")
"""A character next to a parameter with which a literal could form another token."""
_BEFORE_OPERAND = """( [ { , = == <> != < <= > >= <=> + - * / % & | ^ ~ || ! AND OR NOT BETWEEN LIKE ILIKE RLIKE REGEXP ESCAPE DIV
    CASE WHEN THEN ELSE INTERVAL FROM AS WITHIN BY MEASURES"""
_OPERAND_AFTER = frozenset(_BEFORE_OPERAND.split())
"""The tokens before an operand: whatever the value, the literal is then one operand."""
_OPERAND_HINT = "price > :limit"
_ROW_FIELDS = ("id", "enabled", "shadow", "changedBy", "tests")
_COLUMNS = {"id": "id", "enabled": "enabled", "shadow": "shadow", "changedBy": "changed_by"}
"""The fields of a row, and their columns in a table."""
_NOT_VERSIONED = (
    "id",
    "version",
    "labels",
    "expires",
    "enabled",
    "changedBy",
    "changedAt",
    "comment",
    "tests",
    "parameters",
    "rows",
    "adopt",
)
"""The fields of a rule on which its version does not depend."""
_UNQUOTED = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_ROWS_HINT = (
    "rows: [{id: eu, limit: 1000}]; those in a table beside that of rules are not known here: add the template by SQL"
)
_HINT = "parameters: {limit: number}, rows: [{id: eu, limit: 1000}]"


class ParameterKind(enum.Enum):
    NUMBER = "number"
    STRING = "string"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DURATION = "duration"


_KINDS = [kind.value for kind in ParameterKind]
_WORDS = {
    ParameterKind.NUMBER: "a number",
    ParameterKind.STRING: "a string",
    ParameterKind.BOOLEAN: "true or false",
    ParameterKind.TIMESTAMP: "a timestamp",
    ParameterKind.DURATION: "a duration",
}
_EXAMPLES = {
    ParameterKind.TIMESTAMP: '"2026-01-31T12:00:00Z", or milliseconds since 1970',
    ParameterKind.DURATION: '"10 minutes"',
}


@dataclass(frozen=True, slots=True)
class ParameterValue:
    """A value of a parameter: as a literal of SQL, as JSON, and a duration also as the JSON of patterns."""

    sql: str
    plain: Any
    in_pattern: Any


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    kind: ParameterKind
    default: ParameterValue | None = None


@dataclass(frozen=True, slots=True)
class ExpandedRule:
    """A rule of a template in its JSON form, or the reason why there is none.

    :param id: the id of the template, a slash, and the id of the row
    :param identified: whether the id is known
    :param size: about the number of characters of the JSON form
    :param row: the number of the row, from 0, if the error is in it
    :param shadow: whether the rule is a shadow
    """

    id: str
    item: Mapping[str, Any] | None = None
    error: AsterismError | None = None
    identified: bool = True
    size: int = 0
    row: int | None = None
    shadow: bool = False


def is_template(item: Any) -> bool:
    return isinstance(item, Mapping) and ("parameters" in item or "rows" in item)


def is_shadow_template(item: Any) -> bool:
    """Whether all rules of a template are shadows."""
    return is_template(item) and item.get("shadow") is True


def expanded(item: Mapping[str, Any], rows: Sequence[Mapping[str, Any]] | None = None) -> list[ExpandedRule]:
    """The rules of a template, which is not trusted. A row that cannot be used is reported without affecting others.

    :param rows: the rows of a table, for a template without rows: every value is a string, or None for NULL

    >>> template = {"id": "high", "version": 1, "parameters": {"limit": "number"}, "rows": [{"id": "eu", "limit": 500}],
    ...             "sql": "PATTERN (A) DEFINE A AS price > :limit"}
    >>> [rule] = expanded(template)
    >>> rule.id, rule.item["sql"]
    ('high/eu', 'PATTERN (A) DEFINE A AS price > 500')
    """
    fields = {name: value for name, value in item.items() if name != "rows"}
    from_text = "rows" not in item and rows is not None
    given = rows if from_text else item.get("rows")
    name = item["id"] if isinstance(item.get("id"), str) else ""
    try:
        template = RuleTemplate(fields, from_text=from_text)
        if given is None:
            raise PatternProcessorError("a template needs rows", None, _ROWS_HINT)
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise PatternProcessorError("rows must be a list of objects", None, _HINT)
        if len(given) > MAX_PROCESSORS:
            raise PatternProcessorError(f"it has {len(given):,} rows (limit {MAX_PROCESSORS:,})")
        return list(template.rules(given))
    except AsterismError as problem:
        error = _in_template(problem, name)
    shadow = is_shadow_template(item)
    return [
        ExpandedRule(id, error=error, identified=identified, shadow=shadow)
        for id, identified in _ids(name, given) or [(name or "template", False)]
    ]


def _ids(template: str, rows: Any) -> list[tuple[str, bool]]:
    """The ids of the rules of a template that cannot be used, and whether each is known."""
    if (
        not 0 < len(template) <= MAX_ID
        or not isinstance(rows, Sequence)
        or isinstance(rows, str)
        or len(rows) > MAX_PROCESSORS
    ):
        return []
    return [_id_of(template, number, row) for number, row in enumerate(rows, 1)]


def _id_of(template: str, number: int, row: Any) -> tuple[str, bool]:
    """The id of a rule, and whether it is known."""
    id = row.get("id") if isinstance(row, Mapping) else None
    known = isinstance(id, str) and id != ""
    return f"{template}/{id if known else f'#{number}'}", known


def _in_template(error: AsterismError, template: str, row: str = "") -> PatternProcessorError:
    where = f"template {template!r:.220}" + (f", row {row!r:.220}" if row else "")
    return PatternProcessorError(f"{where}: {error.message}", error.detail, error.hint)


class RuleTemplate:
    """A template, without its rows.

    :param fields: its JSON form
    :param from_text: whether the values in rows are strings, as in a table, whose other columns are ignored
    :raises AsterismError: it cannot be used with any rows
    """

    def __init__(self, fields: Mapping[str, Any], *, from_text: bool = False) -> None:
        self.id, self.from_text = fields.get("id"), from_text
        if not isinstance(self.id, str) or not 0 < len(self.id) <= MAX_ID:
            raise PatternProcessorError(f"a template needs an 'id', a string of up to {MAX_ID:,} characters")
        if not isinstance(fields.get("shadow"), bool | None):
            raise PatternProcessorError("shadow must be true or false")
        self.shadow = bool(fields.get("shadow"))
        if "version" in fields:
            check_version(fields["version"])
        self.parameters = _parameters(fields.get("parameters"))
        self._fields = with_decoded_pattern({name: value for name, value in fields.items() if name != "shadow"})
        try:
            self._size = len(json.dumps(self._fields, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError):
            raise PatternProcessorError("it is not JSON, or is nested too deeply") from None
        if self._size > MAX_BYTES:
            raise PatternProcessorError(f"it is too large: {self._size:,} characters of JSON (limit {MAX_BYTES:,})")
        finder = _Finder(self.parameters)
        _filled(self._fields, finder)
        self._texts = finder.texts
        unused = [name for name in self.parameters if name not in finder.used]
        if unused:
            raise PatternProcessorError(
                f"the parameter {unused[0]!r} is not used",
                hint=f"write :{unused[0]}, without quotation marks around it in SQL; or remove it",
            )

    def rules(self, rows: Sequence[Any]) -> Iterator[ExpandedRule]:
        """:raises PatternProcessorError: the rules are too large together"""
        total = 0
        known: dict[str, tuple[int, bool]] = {}
        for number, row in enumerate(rows, 1):
            id, identified = _id_of(str(self.id), number, row)
            try:
                item, size = self._rule(id, row)
                if not identified:
                    raise PatternProcessorError("a row needs an 'id', a string", hint=_HINT)
                new = item["version"], item.get("shadow", False)
                if known.setdefault(id, new) == (new[0], not new[1]):
                    raise PatternProcessorError("a row and its shadow have the same values")
            except AsterismError as error:
                shown = row["id"] if identified else f"#{number}"
                problem = _in_template(error, str(self.id), shown)
                shadow = self.shadow or (isinstance(row, Mapping) and row.get("shadow") is True)
                yield ExpandedRule(id, error=problem, identified=identified, row=number - 1, shadow=shadow)
                continue
            total += size
            if total > MAX_TOTAL:
                raise PatternProcessorError(f"its rules are too large: more than {MAX_TOTAL:,} characters together")
            yield ExpandedRule(id, item, size=size, shadow=item.get("shadow", False))

    def _rule(self, id: str, row: Any) -> tuple[dict[str, Any], int]:
        """A rule, and its size in characters."""
        if not isinstance(row, Mapping):
            raise PatternProcessorError("a row must be an object", hint=_HINT)
        if self.from_text:
            row = self._as_json(row)
        known = (*self.parameters, *_ROW_FIELDS)
        for name in row:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else None
                raise PatternProcessorError(f"there is no parameter {name!r:.60}", f"Fields: {', '.join(known)}", hint)
        values = {name: self._value(parameter, row.get(name)) for name, parameter in self.parameters.items()}
        filler = _Filler(values, self._texts, MAX_BYTES - self._size)
        item: dict[str, Any] = _filled(self._fields, filler)
        del item["parameters"]
        item |= {"id": id, "version": version_of(item)}
        for name in ("enabled", "shadow"):
            if not isinstance(row.get(name, True), bool):
                raise PatternProcessorError(f"{name} must be true or false")
        if row.get("shadow") and self.shadow:
            raise PatternProcessorError(
                "a row of a template that is a shadow is a shadow already", hint="remove shadow"
            )
        if row.get("shadow") or self.shadow:
            item["shadow"] = True
        if not row.get("enabled", True):
            item["enabled"] = False
        if row.get("changedBy") is not None:
            item["changedBy"] = row["changedBy"]
        if row.get("tests") is not None:
            item["tests"] = _tests(item.get("tests"), row["tests"])
        return item, MAX_BYTES - filler.left

    def _as_json(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of a table, in which only the values of parameters are still strings."""
        lower = {str(name).lower(): value for name, value in row.items()}  # databases may change the case of names
        converted = {name: row.get(name, lower.get(name.lower())) for name in self.parameters}
        converted |= {name: lower[column] for name, column in _COLUMNS.items() if lower.get(column) is not None}
        for name in {"enabled", "shadow"} & converted.keys():
            converted[name] = _UNQUOTED.get(str(converted[name]).lower(), converted[name])
        return converted

    def _value(self, parameter: Parameter, given: Any) -> ParameterValue:
        if given is None:
            if parameter.default is None:
                raise PatternProcessorError(f"the parameter {parameter.name!r} has no value")
            return parameter.default
        return _value_of(parameter.name, parameter.kind, given, from_text=self.from_text)


def version_of(item: Mapping[str, Any]) -> int:
    """The version of a rule of a template: a hash of its definition, so that it changes if and only if the rule does.

    >>> version_of({"id": "a/b", "sql": "PATTERN (A) DEFINE A AS x > 5", "labels": {"owner": "ann"}})
    511840823
    """
    # A file and a table may write the same rule differently.
    fields = {name: value for name, value in item.items() if name not in _NOT_VERSIONED}
    fields = {
        name: value for name, value in fields.items() if value not in (None, False) and (name, value) != ("select", [])
    }
    if "timestamp" in fields:
        with suppress(ValueError, OverflowError):
            fields["timestamp"] = _in_utc(timestamp_of(fields["timestamp"]))
    text = canonical_text(fields)
    return int.from_bytes(hashlib.sha256(text.encode(errors="backslashreplace")).digest()[:4], "big") >> 1


def _tests(common: Any, of_row: Any) -> Any:
    """The tests of the template and of the row. A value that is not a list is reported when the tests are read."""
    if common is None or not isinstance(common, list) or not isinstance(of_row, list) or len(common) > MAX_TESTS:
        return of_row if common is None or isinstance(common, list) else common
    return [*common, *of_row]


def with_decoded_pattern(fields: Mapping[str, Any]) -> dict[str, Any]:
    """:raises PatternProcessorError: the pattern is a string that is not JSON"""
    pattern = fields.get("pattern")
    return {**fields, **({"pattern": json_in(pattern, "pattern")} if isinstance(pattern, str) and pattern else {})}


def json_in(text: str, name: str) -> Any:
    """:raises PatternProcessorError: the string is not JSON"""
    try:
        return decode(text_of(text))
    except DocumentSyntaxError as error:
        detail = ": ".join(part for part in (error.detail, error.place) if part) or None
        raise PatternProcessorError(f"{name}: {error.message}", detail, error.hint) from None


# ---------------------------------------------------------------------- parameters and their values


def _parameters(given: Any) -> dict[str, Parameter]:
    if not isinstance(given, Mapping) or not given:
        raise PatternProcessorError("a template needs parameters, an object with their types", hint=_HINT)
    if len(given) > MAX_PARAMETERS:
        raise PatternProcessorError(f"it has {len(given):,} parameters (limit {MAX_PARAMETERS:,})")
    return {name: _parameter(name, value) for name, value in given.items()}


def _parameter(name: Any, given: Any) -> Parameter:
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise PatternProcessorError(
            f"the name of a parameter must be letters, digits and underscores, at most {MAX_NAME:,}, not {name!r:.60}"
        )
    if name.lower() in ("template", "changed_by", *map(str.lower, _ROW_FIELDS)):
        raise PatternProcessorError(f"a parameter cannot be named {name!r}")
    default = None
    if isinstance(given, Mapping):
        unknown = [field for field in given if field not in ("type", "default")]
        if unknown:
            raise PatternProcessorError(
                f"the parameter {name!r} has no field {unknown[0]!r:.60}", "Fields: type, default"
            )
        default, given = given.get("default"), given.get("type")
    if given not in _KINDS:
        raise PatternProcessorError(
            f"the parameter {name!r} has the unknown type {given!r:.60}", hint=", ".join(_KINDS)
        )
    kind = ParameterKind(given)
    return Parameter(name, kind, None if default is None else _value_of(name, kind, default, from_text=False))


def _value_of(name: str, kind: ParameterKind, given: Any, *, from_text: bool) -> ParameterValue:
    """The value of a parameter from JSON or, *from_text*, from a column of a table, read as a string."""
    try:
        if isinstance(given, str) and len(given) > MAX_VALUE:
            raise ValueError
        return _READERS[kind](given, from_text)
    except (ValueError, OverflowError, InvalidOperation):
        pass
    bound = f"at most {MAX_VALUE:,} characters" if kind is ParameterKind.STRING else None
    if kind is ParameterKind.NUMBER:
        bound = f"at most {MAX_NUMBER:,} digits"
    problem = f"the parameter {name!r} must be {_WORDS[kind]}, not {given!r:.60}"
    raise PatternProcessorError(problem, bound, _EXAMPLES.get(kind))


def _number(given: Any, from_text: bool) -> ParameterValue:
    if isinstance(given, bool) or not isinstance(given, str if from_text else int | float):
        raise ValueError
    text = str(given)
    if not re.fullmatch(r"[-+0-9.eE]+", text, re.ASCII):
        raise ValueError
    number = Decimal(text)
    number = number.normalize(Context(prec=MAX_VALUE))
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if len(digits) + abs(exponent) > MAX_NUMBER:
        raise ValueError
    text = f"{number:f}"
    plain = int(text) if exponent >= 0 else float(text)
    text = "0" if number == 0 else text
    return ParameterValue(f"({text})" if text.startswith("-") else text, plain, plain)


def _string(given: Any, from_text: bool) -> ParameterValue:
    if not isinstance(given, str) or "\0" in given:
        raise ValueError
    given.encode()  # a UnicodeEncodeError is a ValueError
    escaped = re.sub(r"""[\\'"]""", lambda special: "\\" + special[0], given)
    # Spark replaces ${...} by a setting, also in strings.
    return ParameterValue("'" + escaped.replace("$", "\\u0024") + "'", given, given)


def _boolean(given: Any, from_text: bool) -> ParameterValue:
    value = _UNQUOTED.get(given.lower()) if from_text and isinstance(given, str) else given
    if not isinstance(value, bool):
        raise ValueError
    return ParameterValue("TRUE" if value else "FALSE", value, value)


def _timestamp(given: Any, from_text: bool) -> ParameterValue:
    if from_text and isinstance(given, str) and re.fullmatch(r"-?[0-9]{1,19}", given):
        given = int(given)
    text = _in_utc(timestamp_of(given))
    return ParameterValue(f"TIMESTAMP '{text}'", text, text)


def _in_utc(time: datetime) -> str:
    return (time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)).isoformat(" ")


def _duration(given: Any, from_text: bool) -> ParameterValue:
    number, unit = duration_of(given)
    if number * DURATION_UNITS[unit] < timedelta(0):
        raise ValueError
    # A day is a calendar unit in SQL, so the unit stays.
    in_pattern = {"unit": f"{unit.upper()}S", "size": number}
    return ParameterValue(f"INTERVAL '{number}' {unit.upper()}", f"{number} {unit}s", in_pattern)


_READERS: dict[ParameterKind, Callable[[Any, bool], ParameterValue]] = {
    ParameterKind.NUMBER: _number,
    ParameterKind.STRING: _string,
    ParameterKind.BOOLEAN: _boolean,
    ParameterKind.TIMESTAMP: _timestamp,
    ParameterKind.DURATION: _duration,
}


# ---------------------------------------------------------------------- where parameters can be


_Parts = tuple[str, ...]
"""A text, of which every second part is the name of a parameter."""
_NUMBER, _BOOLEAN = (ParameterKind.NUMBER,), (ParameterKind.BOOLEAN,)
_TIME, _SPAN = (ParameterKind.TIMESTAMP,), (ParameterKind.DURATION,)
_VALUES: dict[str, tuple[ParameterKind, ...]] = {
    "timestamp": _TIME,
    "expires": _TIME,
    "maxPartialMatches": _NUMBER,
    "timedOut": _BOOLEAN,
}
"""The fields of a rule whose value can be a parameter, and its types."""
_VALUES_IN_PATTERN: dict[str, tuple[ParameterKind, ...]] = {
    "from": _NUMBER,
    "to": _NUMBER,
    "size": _NUMBER,
    "windowTime": _SPAN,
    "time": _SPAN,
    "inclusive": _BOOLEAN,
}
"""The same for the fields of a pattern."""


class _Finder:
    """Finds the parameters of a template. *texts*: the parts of each SQL text."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = parameters
        self.used: set[str] = set()
        self.texts: dict[str, _Parts] = {}

    def sql(self, text: str, place: str, limit: int) -> str:
        if text not in self.texts:
            try:
                self.texts[text] = parts = _parts(text, limit)
                for name in parts[1::2]:
                    self._use(name)
            except AsterismError as error:
                raise PatternProcessorError(f"{place}: {error.message}", error.detail, error.hint) from None
        return text

    def eql(self, text: str) -> str:
        try:
            self.texts[text] = parts = parts_at_parameters(text)
            for name in parts[1::2]:
                if self._use(name).kind is ParameterKind.TIMESTAMP:
                    raise PatternProcessorError(f"the parameter {name!r} is a timestamp, which EQL cannot write")
        except AsterismError as error:
            raise PatternProcessorError(f"eql: {error.message}", error.detail, error.hint) from None
        return text

    def sigma(self, text: str) -> str:
        for name in self.parameters:
            if re.search(rf"""[\s\[,:]["']?:{name}["']?([\s,\]}}]|$)""", text):
                raise PatternProcessorError(
                    f"sigma: a Sigma rule cannot have the parameter :{name}",
                    "Parameters are filled in sql, eql, and the fields beside sigma.",
                    "write the rule in sql or eql, or one Sigma rule for each row",
                )
        return text

    def value(self, text: str, place: str, kinds: Sequence[ParameterKind], in_pattern: bool) -> Any:
        name = text[1:]
        try:
            kind = self._use(name).kind
            if kinds and kind not in kinds:
                raise PatternProcessorError(f"the parameter {name!r} is {_WORDS[kind]}, but must be {_WORDS[kinds[0]]}")
        except PatternProcessorError as error:
            raise PatternProcessorError(f"{place}: {error.message}", error.detail, error.hint) from None
        return text

    def _use(self, name: str) -> Parameter:
        parameter = self.parameters.get(name)
        if parameter is None:
            close = difflib.get_close_matches(name, self.parameters, n=1)
            hint = f"did you mean {close[0]!r}?" if close else None
            known = ", ".join(self.parameters)
            raise PatternProcessorError(f"there is no parameter {name!r:.120}", f"Parameters: {known}", hint)
        self.used.add(name)
        return parameter


class _Filler:
    """Replaces parameters by their values. *left*: the number of characters that the values may still have."""

    def __init__(self, values: Mapping[str, ParameterValue], texts: Mapping[str, _Parts], left: int) -> None:
        self._values, self._texts, self.left = values, texts, left

    def sql(self, text: str, place: str, limit: int) -> str:
        parts = list(self._texts[text])
        parts[1::2] = [self._values[name].sql for name in parts[1::2]]
        self._take(sum(map(len, parts[1::2])))
        return "".join(parts)

    def eql(self, text: str) -> str:
        parts = list(self._texts[text])
        parts[1::2] = [_in_eql(self._values[name]) for name in parts[1::2]]
        self._take(sum(map(len, parts[1::2])))
        return "".join(parts)

    def sigma(self, text: str) -> str:
        return text

    def value(self, text: str, place: str, kinds: Sequence[ParameterKind], in_pattern: bool) -> Any:
        value = self._values[text[1:]]
        self._take(len(str(value.plain)))
        return value.in_pattern if in_pattern else value.plain

    def _take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise PatternProcessorError(f"the rule is too large (limit {MAX_BYTES:,} characters of JSON)")


def _in_eql(value: ParameterValue) -> str:
    """
    >>> _in_eql(_duration("10 minutes", False)), _in_eql(_number(5, False))
    ('10m', '5')
    """
    if isinstance(value.in_pattern, Mapping):
        unit = str(value.in_pattern["unit"]).lower()
        return f"{value.in_pattern['size']}{'ms' if unit.startswith('milli') else unit[0]}"
    return literal(value.plain)


def _parts(text: str, limit: int) -> _Parts:
    """
    >>> _parts("kind = ':no' AND price > :limit", 100)
    ("kind = ':no' AND price > ", 'limit', '')
    """
    parts, end = [], 0
    before = ""
    for token in tokenize(text, limit=limit):
        previous, before = before, text[token.start : token.end + 1].upper()
        if token.token_type is not TokenType.COLON or token.start < end:
            continue
        name = _NAME.match(text, token.end + 1)
        if name is None:
            raise ExpressionSyntaxError.at("a parameter must have a name", text, token.start, ":limit")
        neighbours = (token.start - 1, name.end())
        if any(0 <= at < len(text) and _TOUCHING.match(text, at) for at in neighbours):
            raise ExpressionSyntaxError.at("there must be a space before and after a parameter", text, token.start)
        if previous and previous not in _OPERAND_AFTER:
            raise ExpressionSyntaxError.at("a parameter must be an operand", text, token.start, _OPERAND_HINT)
        parts += [text[end : token.start], name[0]]
        end = name.end()
    return (*parts, text[end:])


def _filled(fields: Mapping[str, Any], fill: _Finder | _Filler) -> Any:
    """A copy of the JSON form of a rule in which *fill* has replaced parameters."""

    def whole(value: Any, place: str, kinds: Sequence[ParameterKind] = (), in_pattern: bool = False) -> Any:
        is_parameter = isinstance(value, str) and _WHOLE.fullmatch(value)
        return fill.value(value, place, kinds, in_pattern) if is_parameter else value

    def graph(value: Any, place: str, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise PatternProcessorError(f"{place[:200]}: the JSON is nested too deeply")
        if isinstance(value, list):
            return [graph(element, f"{place}/{number}", depth + 1) for number, element in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        filled: dict[str, Any] = {}
        for name, field in value.items():
            at = place + pointer_part(name)
            if name == "expression" and value.get("type") == "SQL" and isinstance(field, str):
                filled[name] = fill.sql(field, at, MAX_TEXT)
            elif name == "args" and value.get("type") == "CLASS" and isinstance(field, list):
                filled[name] = [whole(part, f"{at}/{number}") for number, part in enumerate(field)]
            elif name in _VALUES_IN_PATTERN and isinstance(field, str):
                filled[name] = whole(field, at, _VALUES_IN_PATTERN[name], in_pattern=True)
            else:
                filled[name] = graph(field, at, depth + 1)
        return filled

    def label_of(value: Any, place: str) -> Any:
        filled = whole(value, place)
        return filled if filled is value or isinstance(filled, str) else json.dumps(filled)

    def texts(value: Any, name: str) -> Any:
        if not isinstance(value, list):
            return value
        return [
            fill.sql(text, f"{name}/{n}", MAX_TEXT) if isinstance(text, str) else text for n, text in enumerate(value)
        ]

    filled = dict(fields)
    for name, value in fields.items():
        if name in ("key", "select"):
            filled[name] = texts(value, name)
        elif name in ("sql", "eql", "sigma") and isinstance(value, str):
            fillers = {"sql": lambda text: fill.sql(text, "sql", MAX_SQL), "eql": fill.eql, "sigma": fill.sigma}
            filled[name] = fillers[name](value)
        elif name == "pattern":
            filled[name] = graph(value, name)
        elif name in _VALUES:
            filled[name] = whole(value, name, _VALUES[name])
        elif name == "suppress" and isinstance(value, Mapping):
            filled[name] = {part: whole(given, f"suppress/{part}", _SPAN) for part, given in value.items()}
        elif name == "labels" and isinstance(value, Mapping):
            filled[name] = {label: label_of(text, f"labels{pointer_part(label)}") for label, text in value.items()}
    return filled
