"""Rules without SQL: the usual shapes of rules as fields, and as the text of a MATCH_RECOGNIZE clause, in both directions.

Decision 153 (``docs/decisions/0153-forms-are-read-from-the-clause.md``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from asterism.console.rule_texts import with_fields, with_label
from asterism.errors import PatternProcessorError
from asterism.rules.definition.rule_templates import is_template
from asterism.text.printable import one_line, quoted_name
from asterism.text.sql import text_literal
from asterism.text.strict_json import DocumentSyntaxError
from asterism.text.strict_yaml import read_yaml

UNITS = ("SECOND", "MINUTE", "HOUR", "DAY")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
TEXT_OPERATORS = ("contains", "startswith")
NULL_OPERATORS = ("IS NULL", "IS NOT NULL")
KINDS = ("text", "number", "boolean", "date", "time")
TOTALS = {"sum": "SUM({})", "distinct": "COUNT(DISTINCT {})"}
MAX_KEYS = 5
MAX_COMPARISONS = 10
MAX_TIMES = 100
MAX_DURATION = 9_999
MAX_VALUE = 1_000
NOTES = ("title", "description")
"""The labels that say what a rule is for."""
_OTHER_KINDS_OF_RULE = ("pattern", "sigma", "eql", "key", "select", "function", "timedOut")
"""The fields that cannot stand beside ``sql``."""
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(
    r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`|\w+(?:\.[0-9]+)?|<>|<=|>=|\S",
    re.ASCII | re.DOTALL,
)
_CLAUSES = ("PARTITION", "ORDER", "MEASURES", "AFTER", "PATTERN", "WITHIN", "SUBSET", "DEFINE")
_WORDS = frozenset(
    (
        *_CLAUSES, *UNITS, "A", "B", "L", "S", "X", "ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "CAST",
        "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "DATE", "DISTINCT", "ELSE", "END", "FALSE", "FINAL",
        "FIRST", "FROM", "IN", "INTERVAL", "IS", "LAST", "LIKE", "MATCH", "NEXT", "NOT", "NULL", "ONE", "OR", "PER",
        "PREV", "ROW", "ROWS", "RUNNING", "SELECT", "SHOW", "SKIP", "THEN", "TIME", "TIMESTAMP", "TO", "TRUE", "WHEN",
        "WHERE", "WITH",
    )
)  # fmt: skip
"""Words that are quoted as names of columns."""
_UNQUOTED = frozenset(("TIME", "DATE", "TIMESTAMP", "SECOND", "MINUTE", "HOUR", "DAY"))
"""Those of them that people write without quotes, as names of columns."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition of a form: the value of a column, compared with a constant. *value* is a text for all kinds."""

    column: str
    operator: str
    kind: str = "text"
    value: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a rule. What a shape does not use has its default.

    :param shape: one of :data:`SHAPES`
    :param keys: the columns of PARTITION BY
    :param time: the event-time column
    :param first: the conditions of the first event, or of all events; none: any event
    :param second: the conditions of the event that follows, or is absent
    :param times: the least number of events
    :param total: ``"sum"``, or ``"distinct"``: the number of different values
    :param column: the column of the total, of the new value or of the change
    :param limit: the number that the total exceeds
    :param within: the duration, as a number and a unit of :data:`UNITS`
    :param repeats: how many first events a sequence has at least
    """

    shape: str
    keys: tuple[str, ...] = ()
    time: str | None = None
    first: tuple[Comparison, ...] = ()
    second: tuple[Comparison, ...] = ()
    times: int = 2
    total: str = "sum"
    column: str = ""
    limit: str = "0"
    within: tuple[int, str] | None = None
    repeats: int = 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


# ---------------------------------------------------------------------- texts of rules


def form_of_text(text: str) -> Form | None:
    """The form of the text of a rule; None: the text says more than a form can, or cannot be read.

    >>> form_of_text("id: a\\nversion: 1\\nsql: PATTERN (A+) DEFINE A AS true\\n") is None
    True
    """
    with suppress(DocumentSyntaxError, UnicodeEncodeError):
        item = read_yaml(text)[0]
        if isinstance(item, dict) and isinstance(item.get("sql"), str) and not is_template(item):
            return form_of(item["sql"])
    return None


def notes_of_text(text: str) -> dict[str, str] | None:
    """The title and the description of the text of a rule; None: the text cannot be read.

    >>> notes_of_text("id: a\\nlabels: {title: Large sums}\\n")
    {'title': 'Large sums', 'description': ''}
    """
    with suppress(DocumentSyntaxError, UnicodeEncodeError):
        item = read_yaml(text)[0]
        if isinstance(item, dict) and not is_template(item):
            labels = item.get("labels")
            texts = labels if isinstance(labels, dict) else {}
            return {name: str(texts.get(name) or "") for name in NOTES}
    return None


def text_with_form(text: str, form: Form) -> str:
    """The text of a rule with the clause of a form; all other fields stay as they are written.

    :raises PatternProcessorError: the text is not YAML, or that of a template or of several rules
    """
    item = _rule_of(text)
    removed = {name: None for name in _OTHER_KINDS_OF_RULE if name in item}
    return with_fields(text, {**removed, "sql": sql_of(form)})


def text_with_notes(text: str, notes: Any) -> str:
    """The text of a rule with another title and description, which are labels.

    :param notes: the JSON object with them
    :raises PatternProcessorError: they are not texts; or as for :func:`text_with_form`
    """
    if not isinstance(notes, Mapping):
        raise PatternProcessorError("notes must be an object")
    _rule_of(text)
    for name in NOTES:
        value = notes.get(name, "")
        if not isinstance(value, str) or len(value) > MAX_VALUE:
            raise PatternProcessorError(f"{name} must be a text of at most {MAX_VALUE:,} characters")
        try:
            value.encode()
            text = with_label(text, name, value)
        except (DocumentSyntaxError, UnicodeEncodeError):
            raise PatternProcessorError(f"{name} has a character that a rule cannot have") from None
    return text


def _rule_of(text: str) -> dict[str, Any]:
    """:raises PatternProcessorError: the text is not YAML, or that of a template or of several rules"""
    try:
        item = read_yaml(text)[0]
    except DocumentSyntaxError as error:
        raise PatternProcessorError(error.message, error.detail, error.hint) from None
    except UnicodeEncodeError:
        raise PatternProcessorError("the text has a character that is not Unicode") from None
    if not isinstance(item, dict) or is_template(item):
        raise PatternProcessorError("a form writes the text of one rule", "The text is a template, or a list of rules.")
    return item


def form_from(given: Any) -> Form:
    """The form of a JSON object.

    :raises PatternProcessorError: a field is missing or has a wrong value
    """
    if not isinstance(given, Mapping) or given.get("shape") not in SHAPES:
        raise PatternProcessorError("shape must be one of " + ", ".join(SHAPES))
    shape = str(given["shape"])
    uses = _USES[shape]
    within = given.get("within")
    return Form(
        shape,
        _keys(given.get("keys")),
        None if given.get("time") in (None, "") else _column(given["time"], "the event time"),
        _comparisons(given.get("first"), "first"),
        _comparisons(given.get("second"), "second") if "second" in uses else (),
        _whole(given.get("times"), "times", 2, MAX_TIMES) if "times" in uses else 2,
        _one_of(given.get("total"), "total", tuple(TOTALS)) if "total" in uses else "sum",
        _column(given.get("column"), "the value") if "column" in uses else "",
        _value(given.get("limit"), "number", "limit") if "limit" in uses else "0",
        None if "within" not in uses or (within is None and shape == "change") else _duration(within),
        _whole(given.get("repeats", 1), "repeats", 1, MAX_TIMES) if "repeats" in uses else 1,
    )


# ---------------------------------------------------------------------- from a form to a clause


def sql_of(form: Form) -> str:
    """The MATCH_RECOGNIZE clause of a form.

    >>> first, second = (Comparison("kind", "=", "text", kind) for kind in ("order", "refund"))
    >>> print(sql_of(Form("sequence", ("user",), "ts", (first,), (second,), within=(10, "MINUTE"))), end="")
    PARTITION BY user
    ORDER BY ts
    PATTERN (A {- X*? -} B)
    WITHIN INTERVAL '10' MINUTE
    DEFINE
      A AS kind = 'order',
      B AS kind = 'refund'
    """
    parts = SHAPES[form.shape](form)
    keys = [_name(key) for key in (*form.keys, *((form.column,) if form.shape == "first" else ()))]
    lines = [
        f"PARTITION BY {', '.join(keys)}" if keys else "",
        "" if form.time is None else f"ORDER BY {_name(form.time)}",
        f"MEASURES {parts.measures}" if parts.measures else "",
        parts.after,
        f"PATTERN ({parts.pattern})",
        "" if form.within is None or form.shape == "fast" else f"WITHIN {_interval(form.within)}",
        f"SUBSET {parts.subset}" if parts.subset else "",
        "DEFINE",
        ",\n".join(f"  {name} AS {condition}" for name, condition in parts.define.items()),
    ]
    return "\n".join(line for line in lines if line) + "\n"


@dataclass(frozen=True, slots=True)
class _ShapeParts:
    pattern: str
    define: Mapping[str, str]
    measures: str = ""
    after: str = ""
    subset: str = ""


def _sequence(form: Form) -> _ShapeParts:
    more = f" ({{- X*? -}} A){{{form.repeats - 1}}}" if form.repeats > 1 else ""
    return _ShapeParts(f"A{more} {{- X*? -}} B", {"A": _condition(form.first), "B": _condition(form.second)})


def _absence(form: Form) -> _ShapeParts:
    return _ShapeParts("A {- X*? -} [^B]", {"A": _condition(form.first), "B": _condition(form.second)})


def _count(form: Form) -> _ShapeParts:
    pattern = f"A ({{- X*? -}} A){{{form.times - 1}}}"
    return _ShapeParts(pattern, {"A": _condition(form.first)}, "COUNT(A.*) AS events")


def _total(form: Form) -> _ShapeParts:
    """Each event that counts is A or the last one, L. Others are X, because the pattern may not leave out what lowers a sum."""
    total = TOTALS[form.total].format(f"S.{_name(form.column)}")
    last = f"{total} > {form.limit}"
    if not form.first:
        return _ShapeParts("A*? L", {"A": "true", "L": last}, f"{total} AS total", subset="S = (A, L)")
    condition = _condition(form.first)
    define = {"A": condition, "X": _others(condition), "L": f"{condition} AND {last}"}
    return _ShapeParts("(A {- X* -})*? L", define, f"{total} AS total", subset="S = (A, L)")


def _fast(form: Form) -> _ShapeParts:
    if form.time is None or form.within is None:
        raise PatternProcessorError(
            "the rule needs a column with the event time, because it compares the times of events"
        )
    time, condition = _name(form.time), _condition(form.first)
    gap = f"{time} < LAST(S.{time}, 1) + {_interval(form.within)}"
    define = {"A": condition, "B": f"{condition} AND {gap}" if form.first else gap}
    return _ShapeParts(f"A ({{- X*? -}} B){{{form.times - 1}}}", define, "COUNT(S.*) AS events", subset="S = (A, B)")


def _first(form: Form) -> _ShapeParts:
    return _ShapeParts("^ {- X*? -} A" if form.first else "^ A", {"A": _condition(form.first)})


def _change(form: Form) -> _ShapeParts:
    """A match may begin with the last event of the one before, so that no change is left out."""
    column, condition = _name(form.column), _condition(form.first)
    measures, after = f"A.{column} AS before, B.{column} AS after", "AFTER MATCH SKIP TO NEXT ROW"
    differs = f"{column} <> A.{column}"
    if not form.first:
        return _ShapeParts("A B", {"A": "true", "B": differs}, measures, after)
    define = {"A": condition, "X": _others(condition), "B": f"{condition} AND {differs}"}
    return _ShapeParts("A {- X* -} B", define, measures, after)


SHAPES: Mapping[str, Callable[[Form], _ShapeParts]] = {
    "sequence": _sequence,
    "count": _count,
    "absence": _absence,
    "total": _total,
    "fast": _fast,
    "first": _first,
    "change": _change,
}
_USES: Mapping[str, frozenset[str]] = {
    "sequence": frozenset({"second", "within", "repeats"}),
    "count": frozenset({"times", "within"}),
    "absence": frozenset({"second", "within"}),
    "total": frozenset({"total", "column", "limit", "within"}),
    "fast": frozenset({"times", "within"}),
    "first": frozenset({"column"}),
    "change": frozenset({"column", "within"}),
}
"""The fields of each shape, besides the keys, the time and the first conditions."""


def _condition(comparisons: Sequence[Comparison]) -> str:
    return " AND ".join(map(_compared, comparisons)) or "true"


def _others(condition: str) -> str:
    """The events that do not satisfy a condition; a NULL does not."""
    return f"NOT COALESCE({condition}, false)"


def _compared(comparison: Comparison) -> str:
    column, operator = _name(comparison.column), comparison.operator
    if operator in NULL_OPERATORS:
        return f"{column} {operator}"
    if operator in TEXT_OPERATORS:
        return f"{operator}({column}, {text_literal(comparison.value)})"
    return f"{column} {operator} {_literal(comparison)}"


def _literal(comparison: Comparison) -> str:
    match comparison.kind:
        case "number" | "boolean":
            return comparison.value
        case "text":
            return text_literal(comparison.value)
        case _:
            return f"{'DATE' if comparison.kind == 'date' else 'TIMESTAMP'} '{comparison.value}'"


def _name(column: str) -> str:
    if _PLAIN_NAME.fullmatch(column) and column.upper() not in _WORDS:
        return column
    return quoted_name(column)


def _interval(duration: tuple[int, str]) -> str:
    return f"INTERVAL '{duration[0]}' {duration[1]}"


# ---------------------------------------------------------------------- from a clause to a form


def form_of(sql: str) -> Form | None:
    """The form of a clause, if its form gives the same clause again, up to spaces, the case of words, and the quotes of names
    such as ``time``; otherwise None.

    >>> form = Form("count", ("user",), "ts", times=3, within=(1, "HOUR"))
    >>> form_of(sql_of(form)) == form
    True
    """
    tokens = _TOKEN.findall(sql)
    with suppress(PatternProcessorError, LookupError, ValueError):
        form = form_from(_read(tokens))
        if _words(_TOKEN.findall(sql_of(form))) == _words(tokens):
            return form
    return None


def _words(tokens: Sequence[str]) -> list[str]:
    plain = (token[1:-1] if token[0] == "`" and token[1:-1].upper() in _UNQUOTED else token for token in tokens)
    return [token if token[0] in "'`" else token.casefold() for token in plain]


_PATTERNS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "sequence": r"\(A(?:\(\{-X\*\?-\}A\)\{([0-9]{1,3})\})?\{-X\*\?-\}B\)",
        "count": r"\(A\(\{-X\*\?-\}A\)\{([0-9]{1,3})\}\)",
        "absence": r"\(A\{-X\*\?-\}\[\^B\]\)",
        "total": r"\(\(A\{-X\*-\}\)\*\?L\)|\(A\*\?L\)",
        "fast": r"\(A\(\{-X\*\?-\}B\)\{([0-9]{1,3})\}\)",
        "first": r"\(\^(?:\{-X\*\?-\})?A\)",
        "change": r"\(A\{-X\*-\}B\)|\(AB\)",
    }.items()
}
"""The patterns of the shapes, without spaces."""


def _read(tokens: Sequence[str]) -> dict[str, Any]:
    """The fields of a clause, as far as it looks like that of a form.

    :raises LookupError: it does not
    """
    clauses = _clauses(tokens)
    pattern = "".join(clauses["PATTERN"]).upper()
    looks = [
        (name, found) for name, expression in _PATTERNS.items() if (found := expression.fullmatch(pattern)) is not None
    ]
    shape, found = looks[0]
    define = {part[0].upper(): part[2:] for part in _split(clauses["DEFINE"], ",")}
    keys = [_column_of(part) for part in _split(clauses.get("PARTITION", ())[1:], ",")]
    measures, order, within = clauses.get("MEASURES", []), clauses.get("ORDER"), clauses.get("WITHIN")
    form: dict[str, Any] = {
        "shape": shape,
        "keys": keys,
        "time": None if order is None else _column_of(order[1:]),
        "first": _comparisons_of(define["A"]),
        "within": None if within is None else _duration_of(within),
    }
    match shape:
        case "sequence" | "absence":
            form["second"] = _comparisons_of(define["B"])
            if shape == "sequence":
                form["repeats"] = int(found[1] or 0) + 1
        case "count" | "fast":
            form["times"] = int(found[1]) + 1
            if shape == "fast":
                form["within"] = _duration_of(define["B"][-3:])
        case "total":
            form["total"] = "sum" if measures[0].upper() == "SUM" else "distinct"
            form["column"] = _column_of(measures[measures.index(".") + 1 :][:1])
            last = define["L"]
            form["limit"] = "".join(last[len(last) - last[::-1].index(">") :])
        case "first":
            form["keys"], form["column"] = keys[:-1], keys[-1]
        case "change":
            form["column"] = _column_of(measures[2:3])
    return form


def _clauses(tokens: Sequence[str]) -> dict[str, list[str]]:
    """The tokens after the first word of each part of a clause."""
    clauses: dict[str, list[str]] = {}
    part: list[str] = []
    for token in tokens:
        if token.upper() in _CLAUSES:
            part = clauses.setdefault(token.upper(), [])
        else:
            part.append(token)
    return clauses


def _split(tokens: Sequence[str], separator: str) -> list[list[str]]:
    """The parts between separators that are not in parentheses."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token == "(") - (token == ")")
        if token.upper() == separator and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if tokens else []


def _comparisons_of(tokens: Sequence[str]) -> list[dict[str, str]]:
    if [token.upper() for token in tokens] == ["TRUE"]:
        return []
    return [_comparison_of(part) for part in _split(tokens, "AND")]


def _comparison_of(tokens: Sequence[str]) -> dict[str, str]:
    if tokens[1] == "(":
        return {
            "operator": tokens[0].lower(), "column": _column_of(tokens[2:3]), "kind": "text", "value": _text_of(tokens[4]),
        }  # fmt: skip
    column, rest = _column_of(tokens[:1]), [token.upper() for token in tokens[1:]]
    if rest[0] == "IS":
        return {"operator": " ".join(rest), "column": column, "kind": "text", "value": ""}
    last = tokens[-1]
    if last[0] == "'":
        kind = {"DATE": "date", "TIMESTAMP": "time"}.get(rest[1], "text")
        return {"operator": rest[0], "column": column, "kind": kind, "value": _text_of(last)}
    kind = "boolean" if last.lower() in ("true", "false") else "number"
    return {"operator": rest[0], "column": column, "kind": kind, "value": "".join(tokens[2:]).lower()}


def _column_of(tokens: Sequence[str]) -> str:
    [token] = tokens
    return token[1:-1].replace("``", "`") if token[0] == "`" else token


def _text_of(token: str) -> str:
    return re.sub(r"\\(u0024|.)", lambda found: "$" if found[1] == "u0024" else found[1], token[1:-1])


def _duration_of(tokens: Sequence[str]) -> list[Any]:
    return [int(_text_of(tokens[1])), tokens[2].upper()]


# ---------------------------------------------------------------------- values of a form


def _keys(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or len(given) > MAX_KEYS:
        raise PatternProcessorError(f"keys must be a list of at most {MAX_KEYS} columns")
    return tuple(_column(key, "the key") for key in given)


def _column(given: Any, what: str) -> str:
    if not given:
        raise PatternProcessorError(f"no column is chosen for {what}")
    if not isinstance(given, str) or len(given) > MAX_VALUE or not given.isprintable():
        raise PatternProcessorError(f"what is chosen for {what} is not the name of a column")
    return given


def _comparisons(given: Any, what: str) -> tuple[Comparison, ...]:
    if not isinstance(given, list) or len(given) > MAX_COMPARISONS:
        raise PatternProcessorError(f"{what} must be a list of at most {MAX_COMPARISONS} conditions")
    return tuple(_comparison(condition, what) for condition in given)


def _comparison(given: Any, what: str) -> Comparison:
    if not isinstance(given, Mapping):
        raise PatternProcessorError(f"{what} must be a list of objects")
    place = {"first": "a condition", "second": "a condition of the second event"}[what]
    column = _column(given.get("column"), place)
    operator = _one_of(
        given.get("operator"), f"the operator of {place}", (*OPERATORS, *TEXT_OPERATORS, *NULL_OPERATORS)
    )
    if operator in NULL_OPERATORS:
        return Comparison(column, operator)
    kind = "text" if operator in TEXT_OPERATORS else _one_of(given.get("kind"), f"the kind of {place}", KINDS)
    return Comparison(column, operator, kind, _value(given.get("value"), kind, f"the value of {column} in {place}"))


def _one_of(given: Any, what: str, allowed: Sequence[str]) -> str:
    if not isinstance(given, str) or given not in allowed:
        raise PatternProcessorError(f"{what} must be one of " + ", ".join(allowed))
    return given


def _whole(given: Any, what: str, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given <= most:
        raise PatternProcessorError(f"{what} must be a whole number from {least} to {most:,}")
    return given


def _duration(given: Any) -> tuple[int, str]:
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        raise PatternProcessorError("within must be a number and a unit")
    return _whole(given[0], "within", 1, MAX_DURATION), _one_of(given[1], "the unit of within", UNITS)


def _value(given: Any, kind: str, what: str) -> str:
    """A constant, as it is written in the clause, but for quotes."""
    if not isinstance(given, str) or len(given) > MAX_VALUE or not given.isprintable():
        raise PatternProcessorError(f"{what} must be a text of at most {MAX_VALUE:,} printable characters")
    if not _is_value(given, kind):
        expected = {
            "number": "a number, such as 12.5", "boolean": "true or false", "date": "a date, such as 2026-01-31",
            "time": "a time, such as 2026-01-31 12:00:00",
        }[kind]  # fmt: skip
        raise PatternProcessorError(f"{one_line(what, 100)} must be {expected}")
    return given


def _is_value(text: str, kind: str) -> bool:
    with suppress(ValueError):
        match kind:
            case "number":
                return _NUMBER.fullmatch(text) is not None
            case "boolean":
                return text in ("true", "false")
            case "date":
                return date.fromisoformat(text).isoformat() == text
            case "time":
                return _TIME.fullmatch(text) is not None and bool(datetime.fromisoformat(text))
            case _:
                return True
    return False
