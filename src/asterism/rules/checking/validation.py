"""Validation of whole patterns and processors: reports as many problems as possible at once, with their positions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from sqlglot import exp

from asterism.errors import (
    AsterismError,
    ExpressionError,
    ExpressionSyntaxError,
    PatternError,
    PatternFormatError,
    PatternProcessorError,
    printable,
)
from asterism.expressions.aggregates import check_measure, parse_measure
from asterism.expressions.names import Scope, check_names
from asterism.expressions.parsing import parse
from asterism.expressions.routines.user_functions import listed_functions
from asterism.expressions.templates import is_long_condition
from asterism.matching.binding import BoundPattern
from asterism.patterns.compiler import beyond_flink, compile_pattern
from asterism.patterns.json_reading import Reading, read_graph
from asterism.patterns.json_writing import graph_of
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import Contiguity, Stage
from asterism.patterns.warnings import costs, diagnose
from asterism.row_patterns import wording
from asterism.row_patterns.checking import check_without_columns
from asterism.row_patterns.clause.reading import read
from asterism.rules.binding.binding import ProcessorCompiler, at_origin
from asterism.rules.binding.clauses import ANY_TIME
from asterism.rules.definition.processor import PatternProcessor, missing_fields
from asterism.rules.definition.registered_conditions import without_named
from asterism.rules.definition.rule_origins import SELECT, in_select
from asterism.rules.definition.rule_templates import ExpandedRule, expanded, is_template
from asterism.rules.sets.interfaces import without_flag
from asterism.text.printable import duration, one_line
from asterism.text.strict_json import DocumentSyntaxError, Locate, decode, nowhere, place_in, pointer_part, text_of

MAX_PROBLEMS = 100
"""Further problems are only counted."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and the line and column (from 1) where it begins."""

    line: int
    column: int
    message: str
    detail: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        """Format the problem for a terminal, with control characters of the file escaped."""
        lines = [f"{self.line}:{self.column}: {_in_one_line(self.message)}"]
        lines += ["  " + line for line in printable(self.detail or "").split("\n") if line]
        if self.hint:
            lines.append("  Hint: " + _in_one_line(self.hint))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Checked:
    """The pattern, or the problems in the order of the text."""

    pattern: Pattern | None
    problems: Sequence[Problem]
    more: int = 0
    """The number of further problems."""
    warnings: Sequence[Problem] = ()
    """Places where the pattern certainly does not do what it seems to do, and what it costs on a stream without a bound; the
    pattern can still be used.
    """


def check(source: str | bytes, schema: pa.Schema | None = None, semantics: Semantics = Semantics.DEFAULT) -> Checked:
    """Find all problems of a pattern in JSON.

    :param source: the text, in UTF-8 if bytes
    :param schema: the schema of the events; with it, the columns and types of conditions are also checked
    :param semantics: the semantics for compiling the pattern; the default refuses what Flink ignores

    >>> [problem] = check('{"type": "COMPOSITE",\\n "nodes": []}').problems
    >>> print(problem)
    2:11: root: a graph needs nodes
    """
    try:
        text = text_of(source)
        pattern, findings, diagnostics = _in_pattern(decode(text), schema, semantics)
    except DocumentSyntaxError as error:
        return Checked(None, [Problem(error.line, error.column, error.message, error.detail, error.hint)])

    place = partial(place_in, text)
    problems = _placed(findings, place)
    return Checked(None if problems else pattern, problems, len(findings) - len(problems), _placed(diagnostics, place))


@dataclass(frozen=True, slots=True)
class CheckedProcessor:
    """The processor, or the problems in the order of the text."""

    processor: PatternProcessor | None
    problems: Sequence[Problem]
    more: int = 0
    """The number of further problems."""
    warnings: Sequence[Problem] = ()
    """See :attr:`Checked.warnings`."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "problems": [asdict(problem) for problem in self.problems],
            "more": self.more,
            "warnings": [asdict(warning) for warning in self.warnings],
        }


class InvalidProcessorError(PatternProcessorError):
    """A processor is invalid; the message is that of the first problem, and *checked* has all of them."""

    checked: CheckedProcessor

    @classmethod
    def of(cls, checked: CheckedProcessor, id: str = "") -> InvalidProcessorError:
        """:param id: the id of a rule of a template"""
        first = checked.problems[0]
        error = cls(f"{id:.220}: {first.message}" if id else first.message, first.detail, first.hint)
        error.checked = checked
        return error


def checked_processors(
    item: Any, schema: pa.Schema | None = None, semantics: Semantics | None = None
) -> list[PatternProcessor]:
    """The processors of an item of a set: the processor of a rule, or all rules of a template.

    :param schema, semantics: see :func:`check_processor`
    :raises AsterismError: one is invalid
    """
    processors = []
    for rule in expanded(item) if is_template(item) else [ExpandedRule("", item)]:
        if rule.error is not None:
            raise rule.error
        checked = check_processor(rule.item, nowhere, schema, semantics)
        if checked.processor is None:
            raise InvalidProcessorError.of(checked, rule.id)
        processors.append(checked.processor)
    return processors


def check_processor(
    item: Any,
    place: Locate,
    schema: pa.Schema | None = None,
    semantics: Semantics | None = Semantics.DEFAULT,
) -> CheckedProcessor:
    """Find all problems of a processor in its JSON form.

    :param place: where the values of the item stand
    :param schema: the schema of the events; with it, the columns and types of all SQL are also checked
    :param semantics: the semantics for compiling the pattern; None: it must be valid with one of them

    >>> [problem] = check_processor({"id": "a", "version": -1, "pattern": {}}, nowhere).problems[:1]
    >>> problem.message
    'a version must be an integer from 0 to 2147483647, not -1'
    """
    findings: list[Finding] = []
    diagnostics: list[Finding] = []
    processor = None
    try:
        fields = without_flag(item)[0]
        processor, findings = _in_fields(fields)
    except AsterismError as error:
        findings.append(("", "", error))
    if processor is not None and processor.sql is not None:
        field = next((name for name in ("eql", "sigma") if item.get(name) is not None), "sql")
        findings += _in_clause(processor, schema, semantics, field)
    elif processor is not None and item.get("sigma") is not None and processor.pattern is not None:
        graph = _Graph.of(graph_of(processor.pattern), schema, semantics)
        for finding in (*graph.findings, *_in_expressions(processor, graph, schema, semantics)):
            path, _, problem = finding
            is_of_sigma = not path.startswith("/select/")  # which is written beside the Sigma rule
            findings.append(("/sigma", "sigma: ", _in_sigma(problem, processor, schema)) if is_of_sigma else finding)
        diagnostics = [("/sigma", "sigma: ", _elsewhere(problem)) for _, _, problem in graph.diagnostics]
    elif isinstance(item, Mapping) and "pattern" in item:
        graph = _Graph.of(item["pattern"], schema, semantics)
        pattern = graph.pattern
        findings += [("/pattern" + path, "pattern: " + where, error) for path, where, error in graph.findings]
        diagnostics = [("/pattern" + path, "pattern: " + where, error) for path, where, error in graph.diagnostics]
        if processor is not None:
            findings += _in_expressions(processor, graph, schema, semantics)
            if pattern is not None and not findings:
                processor = replace(processor, pattern=pattern)
                findings = _together(processor, schema, semantics)
    problems = _placed(findings, place)
    warnings = _placed(diagnostics, place)
    return CheckedProcessor(None if problems else processor, problems, len(findings) - len(problems), warnings)


def summary(pattern: Pattern) -> str:
    """Summarize a pattern.

    >>> from datetime import timedelta
    >>> summary(Pattern.begin("a").next("b").within(timedelta(minutes=5)))
    '2 stages (a, b), within 5 min, NO_SKIP'
    """
    names = [stage.name for stage in pattern.atoms()]
    words = [f"{len(names):,} stage{'s' * (len(names) != 1)} ({one_line(', '.join(names), 80)})"]
    if pattern.time_bound is not None:
        words.append(f"within {duration(pattern.time_bound)}")
    skip = pattern.skip
    words.append(skip.kind.value + (f" {printable(skip.stage)}" if skip.stage is not None else ""))
    return ", ".join(words)


def summary_of(processor: PatternProcessor) -> str:
    """Summarize the pattern of a processor.

    >>> summary_of(PatternProcessor("rise", 1, sql="PATTERN (A B+) DEFINE B AS x > PREV(x)"))
    'MATCH_RECOGNIZE, PATTERN (A B+), ONE ROW PER MATCH, SKIP PAST LAST ROW'
    """
    if processor.pattern is not None:
        return summary(processor.pattern)
    assert processor.sql is not None
    return f"MATCH_RECOGNIZE, {wording.summary(read(processor.sql))}"


def key_and_measures(processor: PatternProcessor) -> tuple[Sequence[str] | None, Sequence[str]]:
    """The key of a processor, if it has one, and its measures.

    >>> key_and_measures(PatternProcessor("rise", 1, sql="PARTITION BY user MEASURES A.x AS x PATTERN (A) DEFINE A AS x > 1"))
    (('user',), ('A.x AS x',))
    """
    if processor.sql is None:
        return processor.key, processor.select
    clause = read(processor.sql)
    measures = tuple(f"{measure.expression.text} AS {measure.name}" for measure in clause.measures)
    return tuple(column.expression.text for column in clause.partition_by) or None, measures


# ---------------------------------------------------------------------- checks

Finding = tuple[str, str, AsterismError]
"""The path of the JSON value, a prefix of the message, and the error."""
_ANY_CLAUSE = "PATTERN (a)"
_ANY_QUERY = "any where true"
_ANY = {"type": "COMPOSITE", "nodes": [{"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}]}


def _placed(findings: Sequence[Finding], place: Locate) -> list[Problem]:
    problems = []
    for path, where, error in findings[:MAX_PROBLEMS]:
        at, detail = place(path), error.detail
        position = error.position if isinstance(error, ExpressionError) else None
        if position and (inside := place(path, position)) != at:
            # The line and column in the document replace those in the text of the expression.
            at, detail = inside, re.sub(r"\Aline \d+, column \d+\n", "", detail or "") or None
        problems.append(Problem(*at, where + error.message, detail, error.hint))
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def _in_pattern(
    document: Any, schema: pa.Schema | None, semantics: Semantics | None
) -> tuple[Pattern | None, list[Finding], list[Finding]]:
    """Return the pattern, its problems and its warnings."""
    reading = read_graph(Pattern, document)
    findings: list[Finding] = [(problem.path or "", "", problem) for problem in reading.problems]
    findings += _in_conditions(reading, schema)
    if reading.pattern is not None and not findings:
        findings = _in_the_whole(reading, reading.pattern, schema, semantics)
    diagnostics: list[Finding] = []
    if reading.pattern is not None and not findings:
        diagnostics = [
            (reading.places.get(each.stage, ""), "", PatternError(each.message, each.detail, each.hint))
            for each in (*diagnose(reading.pattern), *costs(reading.pattern))
        ]
    return reading.pattern, findings, diagnostics


@dataclass(frozen=True, slots=True)
class _Graph:
    """The pattern of a processor. *stages* and *subsets* may be known even if the pattern is invalid."""

    pattern: Pattern | None
    findings: list[Finding]
    diagnostics: list[Finding]
    stages: tuple[str, ...] | None = None
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, graph: Any, schema: pa.Schema | None, semantics: Semantics | None) -> _Graph:
        """:param graph: the pattern in JSON, as a value or as a string"""
        try:
            document = decode(text_of(graph)) if isinstance(graph, str) else graph
        except DocumentSyntaxError as error:
            detail = ": ".join(part for part in (error.detail, error.place) if part) or None
            return cls(None, [("", "", PatternFormatError(error.message, detail, error.hint))], [])
        pattern, findings, diagnostics = _in_pattern(document, schema, semantics)
        if pattern is None:
            return cls(None, findings, diagnostics)
        return cls(pattern, findings, diagnostics, tuple(s.name for s in pattern.atoms()), pattern.subsets)


def _in_fields(fields: Any) -> tuple[PatternProcessor, list[Finding]]:
    """A processor of the valid fields, with a placeholder pattern. Each is checked with valid values of the required ones."""
    with suppress(AsterismError):
        return PatternProcessor.from_dict(fields), []
    if not isinstance(fields, Mapping):
        PatternProcessor.from_dict(fields)
    has_sql = fields.get("sql") is not None
    has_eql = fields.get("eql") is not None
    required = {"id": "a", "version": 0}
    good = required | ({"sql": _ANY_CLAUSE} if has_sql else {"eql": _ANY_QUERY} if has_eql else {"pattern": _ANY})
    findings: list[Finding] = []
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        try:
            if name in ("sigma", "eql") and value is not None and not has_sql:
                PatternProcessor.from_dict({**required, name: value})  # in place of the placeholder
            elif name != "pattern" or has_sql or not isinstance(value, Mapping | str):
                PatternProcessor.from_dict({**good, name: value})
                kept[name] = value
        except AsterismError as error:
            findings.append((pointer_part(name), "", error))
    if kept.get("select") and kept.get("function") is not None:
        both = PatternProcessorError("a processor can have measures (select) or a function, not both")
        findings.append(("/function", "", both))
        del kept["function"]
    if {"timestamp", "expires"} <= kept.keys():
        try:
            PatternProcessor.from_dict({**good, **{name: kept[name] for name in ("timestamp", "expires")}})
        except AsterismError as error:
            findings.append(("/expires", "", error))
            del kept["expires"]
    findings += [("", "", PatternProcessorError(f"a processor needs {name}")) for name in missing_fields(fields)]
    if "sigma" in kept:
        good = required
    if has_eql and "eql" not in kept:  # its events are not known
        kept.pop("select", None)
    return PatternProcessor.from_dict({**good, **kept}), findings


def _in_clause(
    processor: PatternProcessor, schema: pa.Schema | None, semantics: Semantics | None, field: str
) -> list[Finding]:
    """:param field: that of the clause, or of what it was translated from"""
    assert processor.sql is not None
    try:
        if schema is None:
            check_without_columns(read(processor.sql))
        else:
            _compiler(schema, semantics).try_out(processor)
    except AsterismError as error:
        if field == "eql" and schema is None and isinstance(error, ExpressionError):
            error = in_select(error, processor.sql) or error
        if field == "eql" and error.message.startswith(SELECT):
            return [("/select", "", error)]
        is_of_sql = field != "sql" and schema is None  # with a schema, it has its place in what is written
        return [(f"/{field}", f"{field}: ", _elsewhere(error) if is_of_sql else error)]
    return []


def _in_sigma(error: AsterismError, processor: PatternProcessor, schema: pa.Schema | None) -> AsterismError:
    if schema is None or not isinstance(error, ExpressionError):
        return _elsewhere(error)
    return at_origin(error, processor, schema)


def _elsewhere(error: AsterismError) -> AsterismError:
    """A problem of a translation, whose position is not one in the text of the rule."""
    if isinstance(error, ExpressionError):
        error.position = None
    return error


def _in_expressions(
    processor: PatternProcessor, graph: _Graph, schema: pa.Schema | None, semantics: Semantics | None
) -> list[Finding]:
    """Check each key and measure separately, even if the pattern is invalid, provided that its stages are known."""
    findings: list[Finding] = []
    for name, texts in (("key", processor.key or ()), ("select", processor.select)):
        for number, text in enumerate(texts):
            try:
                tree = parse_sql(text, name)
                stages = () if name == "key" else graph.stages
                if stages is not None and schema is None:
                    names = stages if name == "key" else (*stages, *(subset for subset, _ in graph.subsets))
                    (check_measure if name == "select" else check_names)(tree, names, text)
                if schema is not None and (name == "key" or graph.stages is not None):
                    # The conditions of the stages do not affect the types of keys and measures.
                    chain = tuple(Stage(stage, Contiguity.STRICT) for stage in graph.stages or ("any",))
                    pattern = Pattern(chain, subsets=graph.subsets)
                    alone = replace(processor, pattern=pattern, key=(), select=(), function=None)
                    _compiler(schema, semantics).compile(
                        replace(alone, key=(text,)) if name == "key" else replace(alone, select=(text,))
                    )
            except AsterismError as error:
                findings.append((f"/{name}/{number}", f"{name}: ", error))
    return findings


def _together(processor: PatternProcessor, schema: pa.Schema | None, semantics: Semantics | None) -> list[Finding]:
    try:
        data = processor.as_data()
        if schema is not None:
            assert data.pattern is not None
            _compiler(schema, semantics).try_out(replace(data, pattern=without_named(data.pattern), function=None))
    except AsterismError as error:
        return [("", "", error)]
    return []


def _compiler(schema: pa.Schema, semantics: Semantics | None) -> ProcessorCompiler:
    # The functions and the event-time column are known only to the query.
    udfs = listed_functions()
    return ProcessorCompiler(schema, (), ANY_TIME, semantics or Semantics.DEFAULT, {}, udfs=udfs)


def _in_conditions(reading: Reading[Pattern], schema: pa.Schema | None) -> list[Finding]:
    # The stages are known only if all of them could be read.
    pattern = reading.pattern
    names = None
    if pattern is not None:
        names = [*(stage.name for stage in pattern.atoms()), *(name for name, _ in pattern.subsets)]
    findings: list[Finding] = []
    for condition in reading.conditions:
        try:
            _check_condition(condition.text, names, schema)
        except AsterismError as error:
            findings.append((condition.path, f"{condition.stage}: {condition.what}: ", error))
    return findings


def parse_sql(text: str, what: str) -> exp.Expr:
    """Parse the expression in *text*, and remove the alias of a measure.

    :param what: the kind of expression: ``condition``, ``key`` or ``select``
    :raises AsterismError: the text is not an expression, or it has an alias and is not a measure
    """
    tree = parse_measure(text) if what == "select" else parse(text)
    if not isinstance(tree, exp.Alias):
        return tree
    if what != "select":
        raise ExpressionSyntaxError.at(f"a {what} cannot have a name", text)
    unnamed: exp.Expr = tree.this
    return unnamed


def _check_condition(text: str, stages: Sequence[str] | None, schema: pa.Schema | None) -> None:
    """:param stages: all stages and subsets, if they are known"""
    if is_long_condition(text):
        if schema is not None:
            BoundPattern.of_pattern(Pattern.begin("any").where(text), schema)
        return
    tree = parse_sql(text, "condition")
    mentioned = sorted({column.table for column in tree.find_all(exp.Column) if column.table})
    if schema is None:
        check_names(tree, mentioned if stages is None else stages, text)
        return
    Scope(schema, tuple(mentioned if stages is None else stages)).resolve(tree, text)
    # Types are checked when a pattern is bound to a schema. It does not matter for them which of its stages has the
    # condition.
    first, *others = mentioned or ["any"]
    pattern = Pattern.begin(first).where(text)
    for stage in others:
        pattern = pattern.next(stage)
    BoundPattern.of_pattern(pattern, schema)


def _in_the_whole(
    reading: Reading[Pattern], pattern: Pattern, schema: pa.Schema | None, semantics: Semantics | None
) -> list[Finding]:
    if semantics is None:
        # The default semantics refuse what Flink ignores. Flink's semantics refuse what Flink lacks.
        semantics = Semantics.FLINK if beyond_flink(pattern) is None else Semantics.DEFAULT
    try:
        if schema is None:
            compile_pattern(pattern, semantics)
        else:
            # Only the query knows the conditions that are given by name.
            BoundPattern.of_pattern(without_named(pattern), schema, semantics)
    except AsterismError as error:
        named = (path for name, path in reading.places.items() if f'"{name}"' in error.message)
        return [(next(named, ""), "", error)]
    return []


def _in_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")
