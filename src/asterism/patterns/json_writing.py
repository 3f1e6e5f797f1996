"""Writes patterns in their JSON form, see :mod:`asterism.patterns.json_format`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from itertools import pairwise

from sqlglot import exp

from asterism.errors import ExpressionError, ExpressionSyntaxError, PatternFormatError
from asterism.expressions.parsing import MAX_DEPTH, parse
from asterism.patterns.conditions import (
    FOREIGN,
    AndCondition,
    Condition,
    NamedCondition,
    NotCondition,
    OrCondition,
    SqlCondition,
    leaves_of,
)
from asterism.patterns.json_format import ANCHORS, TAKING, UNITS, VERSION, Json
from asterism.patterns.json_reading import pattern_from_json
from asterism.patterns.sequence import (
    AfterMatchSkipStrategy,
    Combining,
    Contiguity,
    PatternSequence,
    QuantifierKind,
    Stage,
    WithinType,
)
from asterism.patterns.wording import condition_text, operands


def pattern_to_json(pattern: PatternSequence) -> str:
    """Write a pattern as a JSON graph for :func:`pattern_from_json` and dynamic Flink CEP.

    The pattern that is read back is equal to *pattern*, except that conditions combined by ``where``, ``or_`` and the like
    become one SQL expression with the same meaning. ``docs/pattern_json.md`` lists the extensions of Flink's format.

    :raises PatternFormatError: the format cannot express it: a condition that is not SQL, a group next to a stage with the
        same name, or more than the limits
    :raises MalformedPatternError: the pattern is not complete

    >>> pattern = PatternSequence.begin("a").where("x > 1").where("y = 2 OR z").followed_by("b").within(timedelta(minutes=5))
    >>> graph = json.loads(pattern_to_json(pattern))
    >>> graph["nodes"][0]["condition"]
    {'type': 'SQL', 'expression': '(x > 1) AND (y = 2 OR z)'}
    >>> graph["edges"], graph["window"]["time"]
    ([{'source': 'a', 'target': 'b', 'type': 'SKIP_TILL_NEXT'}], {'unit': 'MINUTES', 'size': 5})
    """
    text = json.dumps(graph_of(pattern), ensure_ascii=False, indent=2)
    pattern_from_json(type(pattern), text)  # its limits hold for what is written, too
    return text


def graph_of(pattern: PatternSequence) -> Json:
    """As :func:`pattern_to_json`, as an object, and it is not read again: for patterns that were read from JSON, which are within
    its limits, or that are read from it next.
    """
    pattern.validate()
    root: Json = {"name": "root", "type": "COMPOSITE", "version": VERSION}
    root["quantifier"] = {"consumingStrategy": Contiguity.SKIP_TILL_NEXT.value, "properties": ["SINGLE"]}
    # The window of the root is that of its last stage, which can therefore have two.
    *first, last = pattern.stages
    window = _window_json(replace(last, gap_window=None)) or _window_json(last)
    inner = replace(last, gap_window=None) if last.window is None else replace(last, window=None)
    root |= _graph_json((*first, inner))
    root |= window | {"afterMatchStrategy": _skip_json(pattern.skip)}
    root |= {name: True for name, holds in zip(ANCHORS, (pattern.from_first, pattern.to_last), strict=True) if holds}
    if pattern.subsets:
        root["subsets"] = [{"name": name, "stages": list(stages)} for name, stages in pattern.subsets]
    return root


def _graph_json(stages: Sequence[Stage]) -> Json:
    edges = []
    for source, target in pairwise(stages):
        # The first stage of a match always follows an absence by SKIP_TILL_NEXT.
        kind = source.contiguity if source.contiguity is Contiguity.NOT_BEFORE else target.contiguity
        edges.append({"source": source.name, "target": target.name, "type": kind.value})
    nodes = [
        _node_json(stage, after_greedy=previous is not None and previous.quantifier.greedy)
        for previous, stage in zip((None, *stages), stages, strict=False)
    ]
    return {"nodes": nodes, "edges": edges}


def _node_json(stage: Stage, *, after_greedy: bool) -> Json:
    group = stage.group
    node: Json = {"name": stage.name, "type": "ATOMIC" if group is None else "COMPOSITE"}
    node["quantifier"] = _quantifier_json(stage, after_greedy=after_greedy)
    if stage.condition is not None:
        node["condition"] = _condition_json(stage.condition, stage.name)
    if group is not None:
        if group.combination is Combining.SEQUENCE:
            node |= _graph_json(group.stages)
        else:
            node["combination"] = {"type": group.combination.value}
            if group.combination is Combining.IN_ANY_ORDER:
                node["combination"]["consumingStrategy"] = group.stages[0].contiguity.value
            node["nodes"] = [_node_json(element, after_greedy=False) for element in group.stages]
        if group.skip != AfterMatchSkipStrategy():
            node["afterMatchStrategy"] = _skip_json(group.skip)
    return node | _window_json(stage)


def _quantifier_json(stage: Stage, *, after_greedy: bool) -> Json:
    spec = stage.quantifier
    # After a greedy stage, optional() is refused and times(0, n) is not, as in Flink: so only the count can express it.
    from_zero = after_greedy and spec.optional
    properties = [spec.kind.value]
    properties += ["OPTIONAL"] if spec.optional and not from_zero else []
    properties += [name for name, taking in TAKING.items() if taking is spec.taking]
    quantifier: Json = {"consumingStrategy": spec.inner.value, "properties": properties}
    if spec.kind is not QuantifierKind.SINGLE:
        quantifier["times"] = {"from": 0 if from_zero else spec.at_least, "to": spec.at_most}
        if spec.gap is not None:
            quantifier["times"]["windowTime"] = _time_json(spec.gap)
    if stage.until is not None:
        quantifier["untilCondition"] = _condition_json(stage.until, stage.name)
    return quantifier


def _window_json(stage: Stage) -> Json:
    bounds = [(WithinType.FIRST_AND_LAST, stage.window), (WithinType.PREVIOUS_AND_CURRENT, stage.gap_window)]
    inclusive = {"inclusive": True} if stage.inclusive else {}
    windows = [
        {"type": kind.value, "time": _time_json(duration)} | inclusive
        for kind, duration in bounds
        if duration is not None
    ]
    return {"window": windows if len(windows) > 1 else windows[0]} if windows else {}


def _time_json(duration: timedelta) -> Json:
    unit = next((unit for unit, length in UNITS.items() if duration and not duration % length), "MILLISECONDS")
    return {"unit": unit, "size": duration // UNITS[unit]}


def _skip_json(skip: AfterMatchSkipStrategy) -> Json:
    spec: Json = {"type": skip.kind.value}
    if skip.stage is not None:
        spec["patternName"] = skip.stage
    if skip.throw_on_miss:
        spec["throwOnMiss"] = True
    return spec


# ---------------------------------------------------------------------- conditions as one SQL expression


def _condition_json(condition: Condition, where: str) -> Json:
    if isinstance(condition, SqlCondition):
        return {"type": "SQL", "expression": condition.text}
    if isinstance(condition, NamedCondition) and condition.name in FOREIGN and len(condition.arguments) == 1:
        return {"type": condition.name, "expression": condition.arguments[0]}
    has_named = any(isinstance(leaf, NamedCondition) for leaf in leaves_of(condition))
    if isinstance(condition, AndCondition | OrCondition | NotCondition) and has_named:
        parts = [condition.condition] if isinstance(condition, NotCondition) else operands(condition)
        return {
            "type": "CLASS",
            "className": f"org.apache.flink.cep.pattern.conditions.Rich{type(condition).__name__}",
            "nestedConditions": [_condition_json(part, where) for part in parts],
        }
    if isinstance(condition, NamedCondition):
        arguments = [list(argument) if isinstance(argument, tuple) else argument for argument in condition.arguments]
        return {"type": "CLASS", "className": condition.name} | ({"args": arguments} if arguments else {})
    text, tree = _joined(condition, where)
    try:
        same = parse(text) == tree
    except ExpressionError as error:
        raise PatternFormatError(
            f"{where}: its conditions cannot be combined into one expression: {error.message}", error.detail, error.hint
        ) from None
    if not same:  # a comment extends beyond its condition
        raise PatternFormatError(
            f"{where}: its conditions cannot be combined into one expression", text, "remove the comments"
        )
    return {"type": "SQL", "expression": text}


def _joined(condition: Condition, where: str, negated: bool = False, depth: int = 0) -> tuple[str, exp.Expr]:
    """SQL that is TRUE if *condition* is satisfied or, if *negated*, if it is not; and its tree.

    AND and OR of satisfied conditions are TRUE, so they can join SQL unchanged. But a condition that is NULL is not satisfied,
    and its NOT is NULL as well: the negation is therefore applied to each single SQL expression, with a check for NULL.
    """
    if depth > MAX_DEPTH:
        raise PatternFormatError(f"{where}: its conditions are nested more than {MAX_DEPTH:,} levels deep")
    if isinstance(condition, NotCondition):
        return _joined(condition.condition, where, not negated, depth + 1)
    if isinstance(condition, SqlCondition):
        text, tree = _single(condition, where)
        if not negated:
            return text, tree
        not_true = exp.Not(this=exp.paren(tree))
        is_null = exp.Is(this=exp.paren(tree), expression=exp.Null())
        return f"NOT ({text}) OR ({text}) IS NULL", exp.Or(this=not_true, expression=is_null)
    if not isinstance(condition, AndCondition | OrCondition):
        raise PatternFormatError(
            f"{where}: a condition of type {type(condition).__name__} cannot be written as JSON",
            condition_text(condition),
            "give it a stage of its own, or check the rest in its function"
            if isinstance(condition, NamedCondition)
            else "write it as SQL, or register the function with the query, conditions={name: function}, and name it in the rule",
        )
    parts = [_joined(part, where, negated, depth + 1) for part in operands(condition)]
    connector = exp.And if isinstance(condition, AndCondition) is not negated else exp.Or
    trees: list[exp.Expr] = [exp.paren(tree) for _, tree in parts]
    whole = reduce(lambda left, right: connector(this=left, expression=right), trees)
    return f" {connector.__name__.upper()} ".join(f"({text})" for text, _ in parts), whole


def _single(condition: SqlCondition, where: str) -> tuple[str, exp.Expr]:
    """Check that a text is a complete expression, so that brackets around it have the intended effect."""
    text = condition.text
    try:
        tree = parse(text)
        if isinstance(tree, exp.Alias):
            raise ExpressionSyntaxError.at("a condition cannot have a name", text)
    except ExpressionError as error:
        raise PatternFormatError(f"{where}: {error.message}", error.detail, error.hint) from None
    return text + "\n" if "--" in text else text, tree
