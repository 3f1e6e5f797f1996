"""Patterns and processors looked at as a whole: what is wrong with them, as much as can be told at once, and where it stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError

from asterism.bound_processors import ProcessorCompiler
from asterism.compiler import Semantics, compile_pattern
from asterism.errors import AsterismError, ExpressionSyntaxError, PatternFormatError
from asterism.expressions import Scope, check_names, parse
from asterism.json_format import Reading, read_graph
from asterism.json_text import JsonTextError, decode, line_and_column, offset_of, text_of
from asterism.matcher import Matcher
from asterism.outputs import TimeColumn
from asterism.pattern import Pattern
from asterism.processors import PatternProcessor, without_flag
from asterism.words import duration, one_line, printable

MAX_PROBLEMS = 100
"""More are counted only: who has that many begins with the first."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and from which line and column (from 1) on."""

    line: int
    column: int
    message: str
    detail: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """As it is shown on a terminal, which must not obey what stands in the file."""
        lines = [f"{self.line}:{self.column}: {_in_one_line(self.message)}"]
        lines += ["  " + line for line in printable(self.detail or "").split("\n") if line]
        if self.hint:
            lines.append("  Hint: " + _in_one_line(self.hint))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Checked:
    """The pattern, or problems in the order of the text."""

    pattern: Pattern | None
    problems: Sequence[Problem]
    more: int = 0
    """How many problems there are besides."""


def check(source: str | bytes, schema: pa.Schema | None = None, semantics: Semantics = Semantics.DEFAULT) -> Checked:
    """Look for everything that is wrong with a pattern in JSON.

    :param source: the text, in UTF-8 if bytes
    :param schema: of the events: with it, the columns and types of conditions are checked too
    :param semantics: by which the pattern is to be compiled: the default refuses what Flink ignores

    >>> [problem] = check('{"type": "COMPOSITE",\\n "nodes": []}').problems
    >>> print(problem)
    2:11: root: a graph needs nodes
    """
    try:
        text = text_of(source)
        pattern, found = _in_pattern(decode(text), schema, semantics)
    except JsonTextError as error:
        return Checked(None, [Problem(error.line, error.column, error.message, error.detail, error.hint)])
    problems = _placed(found, lambda path: line_and_column(text, offset_of(text, path)))
    return Checked(None if problems else pattern, problems, len(found) - len(problems))


@dataclass(frozen=True, slots=True)
class CheckedProcessor:
    """The processor, or problems in the order of the text."""

    processor: PatternProcessor | None
    problems: Sequence[Problem]
    more: int = 0
    """How many problems there are besides."""


def check_processor(
    item: Any,
    place: Callable[[str], tuple[int, int]],
    schema: pa.Schema | None = None,
    semantics: Semantics = Semantics.DEFAULT,
) -> CheckedProcessor:
    """Look for everything that is wrong with a processor in its JSON form.

    :param place: line and column of what a JSON pointer leads to, from the item on
    :param schema: of the events: with it, the columns and types of all SQL are checked too

    >>> [problem] = check_processor({"id": "a", "version": -1, "pattern": {}}, lambda pointer: (1, 1)).problems[:1]
    >>> problem.message
    'a version is an integer from 0 to 2147483647, not -1'
    """
    found: list[Found] = []
    processor = None
    try:
        fields = without_flag(item)[0]
        if isinstance(fields, Mapping) and "pattern" in fields:
            # The fields are looked at with a pattern that is good.
            processor = PatternProcessor.from_dict({**fields, "pattern": _ANY})
            found += _in_expressions(processor)
        else:
            PatternProcessor.from_dict(fields)
    except AsterismError as error:
        found.append(("", "", error))
    if isinstance(item, Mapping) and "pattern" in item:
        pattern, wrong = _in_graph(item["pattern"], schema, semantics)
        found += [("/pattern" + path, "pattern: " + where, error) for path, where, error in wrong]
        if processor is not None and pattern is not None and not found:
            processor = replace(processor, pattern=pattern)
            found = _in_measures(processor) if schema is None else _for_schema(processor, schema, semantics)
    problems = _placed(found, place)
    return CheckedProcessor(None if problems else processor, problems, len(found) - len(problems))


def summary(pattern: Pattern) -> str:
    """A pattern in a few words.

    >>> from datetime import timedelta
    >>> summary(Pattern.begin("a").next("b").within(timedelta(minutes=5)))
    '2 stages (a, b), within 5 min, NO_SKIP'
    """
    names = [stage.name for stage in pattern.atoms()]
    words = [f"{len(names)} stage{'s' * (len(names) != 1)} ({one_line(', '.join(names), 80)})"]
    if pattern.time_bound is not None:
        words.append(f"within {duration(pattern.time_bound)}")
    skip = pattern.skip
    words.append(skip.kind.value + (f" {printable(skip.stage)}" if skip.stage is not None else ""))
    return ", ".join(words)


def arrow_type(text: str) -> pa.DataType:
    """The Arrow type in which Spark hands over columns of a type; ValueError, if there is no such type.

    >>> arrow_type("array<decimal(10, 2)>"), arrow_type("TIMESTAMP")
    (ListType(list<item: decimal128(10, 2)>), TimestampType(timestamp[us, tz=UTC]))
    """
    try:
        return _arrow_type(exp.DataType.build(text, dialect="spark"))
    except (ParseError, _UnknownTypeError):
        raise ValueError(f"{text!r} is not a type") from None


class _UnknownTypeError(Exception):
    pass


def _arrow_type(found: exp.Expr | None) -> pa.DataType:
    parts = [] if found is None else found.expressions
    match found.this if found is not None else None, len(parts):
        case (_KIND.ARRAY, 1):
            return pa.list_(_arrow_type(parts[0]))
        case (_KIND.MAP, 2):
            return pa.map_(_arrow_type(parts[0]), _arrow_type(parts[1]))
        case (_KIND.STRUCT, _) if parts:
            return pa.struct([(part.name, _arrow_type(part.args.get("kind"))) for part in parts])
        case (_KIND.DECIMAL, _):
            return pa.decimal128(*(int(part.name) for part in parts)) if parts else pa.decimal128(10)
        case (kind, _) if kind in _TYPES:
            return _TYPES[kind]
    raise _UnknownTypeError


_KIND = exp.DataType.Type
_TYPES = {
    _KIND.BOOLEAN: pa.bool_(),
    _KIND.TINYINT: pa.int8(),
    _KIND.SMALLINT: pa.int16(),
    _KIND.INT: pa.int32(),
    _KIND.BIGINT: pa.int64(),
    _KIND.FLOAT: pa.float32(),
    _KIND.DOUBLE: pa.float64(),
    _KIND.TEXT: pa.string(),
    _KIND.VARCHAR: pa.string(),
    _KIND.BINARY: pa.binary(),
    _KIND.DATE: pa.date32(),
    _KIND.TIMESTAMP: pa.timestamp("us", "UTC"),
    _KIND.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    _KIND.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    _KIND.TIMESTAMPNTZ: pa.timestamp("us"),
}

# ---------------------------------------------------------------------- what is looked at

Found = tuple[str, str, AsterismError]
"""The path of the JSON value, words before the message, what is wrong."""
_ANY = {"type": "COMPOSITE", "nodes": [{"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}]}


def _placed(found: Sequence[Found], place: Callable[[str], tuple[int, int]]) -> list[Problem]:
    problems = [Problem(*place(path), where + e.message, e.detail, e.hint) for path, where, e in found[:MAX_PROBLEMS]]
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _in_pattern(document: Any, schema: pa.Schema | None, semantics: Semantics) -> tuple[Pattern | None, list[Found]]:
    reading = read_graph(document)
    found: list[Found] = [(problem.path or "", "", problem) for problem in reading.problems]
    found += _in_conditions(reading, schema)
    if reading.pattern is not None and not found:
        found = _in_the_whole(reading, reading.pattern, schema, semantics)
    return reading.pattern, found


def _in_graph(graph: Any, schema: pa.Schema | None, semantics: Semantics) -> tuple[Pattern | None, list[Found]]:
    """The pattern of a processor: as JSON, or as its text."""
    try:
        document = decode(text_of(graph)) if isinstance(graph, str) else graph
    except JsonTextError as error:
        detail = ": ".join(part for part in (error.detail, error.place) if part) or None
        return None, [("", "", PatternFormatError(error.message, detail, error.hint))]
    return _in_pattern(document, schema, semantics)


def _in_expressions(processor: PatternProcessor) -> list[Found]:
    found: list[Found] = []
    for name, texts in (("key", processor.key or ()), ("select", processor.select)):
        for number, text in enumerate(texts):
            try:
                if isinstance(parse(text), exp.Alias) and name == "key":
                    raise ExpressionSyntaxError.at("a key has no name", text)
            except AsterismError as error:
                found.append((f"/{name}/{number}", f"{name}: ", error))
    return found


def _in_measures(processor: PatternProcessor) -> list[Found]:
    """Without a schema, what is named is there; only stages are known."""
    stages = [stage.name for stage in processor.pattern.atoms()]
    found: list[Found] = []
    for number, text in enumerate(processor.select):
        try:
            tree = parse(text)
            check_names(tree.this if isinstance(tree, exp.Alias) else tree, stages, text)
        except AsterismError as error:
            found.append((f"/select/{number}", "select: ", error))
    return found


def _for_schema(processor: PatternProcessor, schema: pa.Schema, semantics: Semantics) -> list[Found]:
    # Which functions there are, and the event time, the query knows.
    compiler = ProcessorCompiler(schema, (), TimeColumn("time", pa.timestamp("us", "UTC")), semantics, {})
    alone = replace(processor, key=(), select=(), function=None)
    parts = [
        (f"/key/{number}", "key: ", replace(alone, key=(text,))) for number, text in enumerate(processor.key or ())
    ]
    parts += [
        (f"/select/{number}", "select: ", replace(alone, select=(text,)))
        for number, text in enumerate(processor.select)
    ]
    found: list[Found] = []
    for path, where, part in [*parts, ("", "", replace(processor, function=None))]:
        try:
            if path or not found:
                compiler.compile(part)
        except AsterismError as error:
            found.append((path, where, error))
    return found


def _in_conditions(reading: Reading, schema: pa.Schema | None) -> list[Found]:
    # Which stages there are is known only if all of them could be read.
    stages = None if reading.pattern is None else [stage.name for stage in reading.pattern.atoms()]
    found: list[Found] = []
    for condition in reading.conditions:
        try:
            _look_at(condition.text, stages, schema)
        except AsterismError as error:
            found.append((condition.path, f"{condition.stage}: {condition.what}: ", error))
    return found


def _look_at(text: str, stages: Sequence[str] | None, schema: pa.Schema | None) -> None:
    tree = parse(text)
    if isinstance(tree, exp.Alias):
        raise ExpressionSyntaxError.at("a condition has no name", text)
    mentioned = sorted({column.table for column in tree.find_all(exp.Column) if column.table})
    if schema is None:
        check_names(tree, mentioned if stages is None else stages, text)
        return
    Scope(schema, tuple(mentioned if stages is None else stages)).resolve(tree, text)
    # Types are checked where a pattern meets a schema. Which of its stages has the condition does not matter to them.
    first, *others = mentioned or ["any"]
    pattern = Pattern.begin(first).where(text)
    for stage in others:
        pattern = pattern.next(stage)
    Matcher(pattern, schema)


def _in_the_whole(reading: Reading, pattern: Pattern, schema: pa.Schema | None, semantics: Semantics) -> list[Found]:
    try:
        if schema is None:
            compile_pattern(pattern, semantics)
        else:
            Matcher(pattern, schema, semantics=semantics)
    except AsterismError as error:
        named = (path for name, path in reading.places.items() if f'"{name}"' in error.message)
        return [(next(named, ""), "", error)]
    return []


def _in_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")
