"""Pattern processors in rows of a table: every value is a string, or None for NULL.

See docs/decisions/0149 for the columns that no query reads.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from asterism.discovery.sources.polling import Items
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import point_in_time
from asterism.rules.definition.rule_templates import json_in
from asterism.rules.definition.rule_tests import read_tests
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor

TABLE = "pattern_processors"
"""The name of a table of rules, if it is not given."""
PARAMETER_TABLE_SUFFIX = "_rows"
"""Added to the name of a table of rules, the name of the table with the rows of its templates."""
FLIP_COLUMNS = ("uid", "class_name", "constructor_params")
LONG = {
    "pattern",
    "sql",
    "sigma",
    "eql",
    "key",
    "select",
    "labels",
    "parameters",
    "rows",
    "comment",
    "tests",
    "constructor_params",
}
"""The columns that may contain long strings."""
_TEXTS = ("sql", "sigma", "eql")
"""The columns that a rule can have instead of a pattern."""
MAX_SHORT = 1_000  # characters in the other columns

Row = Mapping[str, str | None]

_INTEGERS = {"byte": 2**7, "short": 2**15, "int": 2**31, "integer": 2**31, "long": 2**63}
"""The integer types of Java, with the first number that is too large."""
_FLOATS = {"float": (2 - 2**-23) * 2.0**127, "double": sys.float_info.max}
"""The floating-point types of Java, with the largest number."""
_OTHERS = {"string": str, "java.lang.string": str, "boolean": bool}


def processors_of(
    rows: Sequence[Row], place: str | None, items: Items, parameters: Sequence[Row] | None = None
) -> list[Discovered]:
    """The processors in the rows of one id, and the rows that cannot be read.

    The processors are the enabled versions, and the enabled shadows, that come into force in turn: the highest version, and
    lower versions with earlier timestamps. The lowest of them may have no timestamp.

    :param items: reads the items; it has read the last ones of this id
    :param parameters: of a template without rows, those of the table of rows; None: there is no such table
    """
    refused: list[Discovered] = []
    enabled: dict[bool, dict[int, list[Row]]] = {False: defaultdict(list), True: defaultdict(list)}
    for row in rows:
        try:
            if flag(row, "enabled", default=True):
                enabled[flag(row, "shadow", default=False)][version_of(row)].append(row)
        except PatternProcessorError as error:
            refused.append(_refused(row, error, None, place))
    definitions: list[dict[str, Any]] = []
    for versions in filter(None, enabled.values()):
        before: datetime | None = None
        for version in sorted(versions, reverse=True):
            row, *others = versions[version]
            try:
                if others:
                    raise PatternProcessorError(f"{1 + len(others)} rows have this version")
                begins = point_in_time(_number_or_text(row.get("timestamp")), "timestamp")
                if before is not None and begins is not None and begins >= before:
                    continue  # replaced before its time
                definitions.append(item_of(row))
            except PatternProcessorError as error:
                refused.append(_refused(row, error, version, place))
                begins = None
            if begins is None:
                break
            before = begins
    return [*items.processors(definitions, place, parameters), *refused]


def _refused(row: Row, error: PatternProcessorError, version: int | None, place: str | None) -> RefusedProcessor:
    shadow = None
    with suppress(PatternProcessorError):
        shadow = flag(row, "shadow", default=False)
    # The ids of the rules of a template are not known.
    return RefusedProcessor(str(row["id"]), error, version, place, unidentified=is_template_row(row), shadow=shadow)


def is_template_row(row: Row) -> bool:
    return bool(row.get("parameters") or row.get("rows"))


def needs_parameters(row: Row) -> bool:
    """Whether it is a template whose rows are in the table of rows."""
    return bool(row.get("parameters")) and not row.get("rows")


def item_of(row: Row) -> dict[str, Any]:
    """:raises PatternProcessorError: a column has an invalid value"""
    for name, value in row.items():
        try:
            (value or "").encode()
        except UnicodeEncodeError:
            raise PatternProcessorError(f"{name} is not valid UTF-8") from None
        if value is not None and len(value) > MAX_SHORT and name not in LONG:
            raise PatternProcessorError(f"{name} is longer than {MAX_SHORT:,} characters")
    fields = {
        "id": row["id"],
        "version": version_of(row),
        "timestamp": _number_or_text(row.get("timestamp")),
        "key": _expressions(row, "key"),
        "pattern": row.get("pattern") or (None if any(map(row.get, _TEXTS)) else ""),
        **{name: row.get(name) or None for name in _TEXTS},
        "select": _expressions(row, "select"),
        "function": row.get("function") or None,
        "timedOut": flag(row, "timed_out", default=False),
        "maxPartialMatches": _integer(row, "max_partial_matches"),
        "suppress": _suppress(row),
        "expires": _number_or_text(row.get("expires")),
        "shadow": flag(row, "shadow", default=False) or None,
        "adopt": _adopt(row),
        "labels": _object(row, "labels"),
        "parameters": _object(row, "parameters"),
        "rows": _object(row, "rows"),
        "changedBy": row.get("changed_by") or None,
        **_notes(row),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _notes(row: Row) -> dict[str, Any]:
    """The fields that no query reads. A table that was made before they were known may have such columns with anything else."""
    notes: dict[str, Any] = {"comment": (row.get("comment") or "")[:MAX_SHORT] or None}
    with suppress(PatternProcessorError):
        changed_at = _number_or_text(row.get("changed_at"))
        notes["changedAt"] = changed_at if point_in_time(changed_at, "changed_at") is not None else None
    with suppress(PatternProcessorError):
        tests = _object(row, "tests")
        read_tests(tests)
        notes["tests"] = tests or None
    return notes


def version_of(row: Row) -> int:
    version = _number_or_text(row["version"] or "NULL")
    if not isinstance(version, int):
        raise PatternProcessorError(f"a version must be an integer, not {version!r:.60}")
    return version


def _number_or_text(text: str | None) -> int | str | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,19}", text) else text


def _adopt(row: Row) -> bool | int | None:
    """A version, or true: any."""
    text = row.get("adopt")
    number = None if text is None else _number_or_text(text)
    return number if isinstance(number, int) else flag(row, "adopt", default=False) or None


def _integer(row: Row, name: str) -> int | None:
    number = _number_or_text(row.get(name))
    if isinstance(number, str):
        raise PatternProcessorError(f"{name} must be an integer, not {number!r:.60}")
    return number


def flag(row: Row, name: str, *, default: bool) -> bool:
    text = row.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "t", "1", "false", "f", "0"):
        raise PatternProcessorError(f"{name} must be true or false, not {text!r:.60}")
    return text.lower() in ("true", "t", "1")


def _expressions(row: Row, name: str) -> Any:
    """Parse a JSON list of SQL expressions, or a single expression."""
    text = row.get(name)
    if text is None or not text.strip():
        return None
    return json_in(text, name) if text.lstrip().startswith("[") else [text]


def _suppress(row: Row) -> Any:
    """Parse a JSON object, or a duration."""
    text = row.get("suppress")
    if text is None or text.lstrip()[:1] in ("", "{"):
        return _object(row, "suppress")
    return {"for": text}


def _object(row: Row, name: str) -> Any:
    text = row.get(name)
    return None if text is None or not text.strip() else json_in(text, name)


def called(row: Row) -> tuple[str, list[Any]]:
    """The class name and the parameters in a row of FLIP-200's format."""
    parameters = json_in(row["constructor_params"] or "[]", "constructorParams")
    wanted = '[{"type": "int", "value": 0}]'
    if not isinstance(parameters, list):
        raise PatternProcessorError("constructorParams must be a list", hint=wanted)
    values = []
    for number, parameter in enumerate(parameters, 1):
        if not isinstance(parameter, dict) or parameter.keys() != {"type", "value"}:
            raise PatternProcessorError(f"parameter {number} must have a type and a value", hint=wanted)
        kind, value = parameter["type"], parameter["value"]
        known = kind.lower() if isinstance(kind, str) else ""
        if known not in (*_INTEGERS, *_FLOATS, *_OTHERS):
            raise PatternProcessorError(f"parameter {number} has the unknown type {kind!r:.60}", hint=wanted)
        if not _is_of(known, value):
            shown = json.dumps(value)
            raise PatternProcessorError(
                f"parameter {number} is of type {kind}, but its value is {shown:.60}", _bounds(known)
            )
        values.append(float(value) if known in _FLOATS else value)
    # FLIP-200 shows class names in quotation marks.
    return (row["class_name"] or "").strip('"'), values


def _is_of(kind: str, value: Any) -> bool:
    """Whether *value* is of the type *kind* (in lower case) of FLIP-200's constructor parameters."""
    if kind in _OTHERS:
        return isinstance(value, _OTHERS[kind])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind in _INTEGERS:
        return isinstance(value, int) and -_INTEGERS[kind] <= value < _INTEGERS[kind]
    return abs(value) <= _FLOATS[kind]  # 1e400 is parsed as infinity


def _bounds(kind: str) -> str | None:
    if kind in _INTEGERS:
        return f"{kind}: integers from {-_INTEGERS[kind]} to {_INTEGERS[kind] - 1}"
    return f"{kind}: numbers from {-_FLOATS[kind]} to {_FLOATS[kind]}" if kind in _FLOATS else None
