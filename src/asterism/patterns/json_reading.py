"""Reads patterns from their JSON form, see :mod:`asterism.patterns.json_format`.

The input is not trusted: nothing in it is imported or evaluated as code, every name is checked, and unknown fields are refused.
"""

from __future__ import annotations

import difflib
import enum
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial, reduce
from operator import methodcaller
from typing import Any, Generic, TypeVar

from asterism.arguments import expect
from asterism.errors import MalformedPatternError, PatternError, PatternFormatError, PatternTooLargeError
from asterism.patterns.conditions import (
    FOREIGN,
    AndCondition,
    Condition,
    NamedCondition,
    NotCondition,
    OrCondition,
    SqlCondition,
)
from asterism.patterns.json_format import ANCHORS, TAKING, UNITS, VERSION
from asterism.patterns.sequence import (
    MAX_DURATION,
    MAX_GROUP_DEPTH,
    AfterMatchSkipStrategy,
    Combining,
    Contiguity,
    PatternSequence,
    SkipKind,
    Stage,
    Taking,
    WithinType,
    check_follows,
    stages_of,
)
from asterism.text.strict_json import DocumentSyntaxError, decode, pointer_part, text_of

MAX_STAGES = 20_000  # with each repetition counted: the automaton has a state for each, and is limited to this number

_KINDS = ("SINGLE", "LOOPING", "TIMES")
_TAKE: dict[Taking, Callable[[Any], Any]] = {
    Taking.GREEDY: PatternSequence.greedy,
    Taking.GIVING_BACK: partial(PatternSequence.greedy, give_back=True),
    Taking.LONGEST: PatternSequence.longest,
    Taking.RELUCTANT: PatternSequence.reluctant,
}
_GRAPH = (
    "name", "type", "version", "quantifier", "condition", "combination", "nodes", "edges", "window", "afterMatchStrategy",
    *ANCHORS, "subsets",
)  # fmt: skip
_ATOM = ("name", "type", "quantifier", "condition", "window")
_JOINED = {"RichAndCondition": AndCondition, "RichOrCondition": OrCondition}
_NEGATED, _SUBTYPE = "RichNotCondition", "SubtypeCondition"
"""The classes of Flink that consist of other conditions, or name the class of the events, without their package."""
MAX_NESTED = 50
"""The depth of nested conditions."""

_NAMED = '{"type": "CLASS", "className": name, "args": [...]}'
_SQL = '{"type": "SQL", "expression": text}'
_SUBSET = '{"name": "both", "stages": ["a", "b"]}'

E_ = TypeVar("E_", bound=enum.Enum)
P = TypeVar("P", bound=PatternSequence)


def pattern_from_json(kind: type[P], source: str | bytes | Mapping[str, Any]) -> P:
    """Read a pattern from a JSON graph.

    :param kind: the class of the pattern and of its groups
    :param source: a string, UTF-8 bytes, or the result of :func:`json.loads`
    :raises PatternFormatError: the text is not such a graph; the message names the stage, ``path`` the JSON value
    :raises MalformedPatternError: the graph is valid, but the pattern has no meaning; likewise

    The SQL of conditions is not checked here, but when the pattern is bound to a schema.

    >>> graph = '{"type": "COMPOSITE", "nodes": [{"name": "a", "type": "ATOMIC",' \\
    ...         ' "quantifier": {"properties": ["SINGLE"]}, "condition": {"type": "SQL", "expression": "x > 1"}}]}'
    >>> pattern_from_json(PatternSequence, graph) == PatternSequence.begin("a").where("x > 1")
    True
    """
    if isinstance(source, Mapping):
        document: Any = source
    else:
        what = "a pattern in JSON must be a string, bytes or the result of json.loads"
        expect(PatternFormatError, source, str | bytes, what)
        try:
            document = decode(text_of(source))
        except DocumentSyntaxError as error:
            detail = ": ".join(part for part in (error.detail, error.place) if part) or None
            raise PatternFormatError(error.message, detail, error.hint) from None
    reading = read_graph(kind, document)
    if reading.problems:
        raise reading.problems[0]
    assert reading.pattern is not None
    return reading.pattern


@dataclass(frozen=True, slots=True)
class ConditionText:
    """The SQL of a condition in a graph."""

    stage: str
    what: str
    text: str
    path: str


@dataclass(slots=True)
class Reading(Generic[P]):
    """The result of reading a graph: the pattern, or as many problems as one pass can detect."""

    pattern: P | None = None
    problems: list[PatternError] = field(default_factory=list)
    conditions: list[ConditionText] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """The paths of stages and groups, by name."""


def read_graph(kind: type[P], document: Any) -> Reading[P]:
    """Read a graph (the result of :func:`json.loads`) without stopping at the first problem."""
    reader = _GraphReader(kind)
    pattern = reader.root(_Value(document))
    reader.reading.pattern = None if reader.reading.problems else pattern
    return reader.reading


@dataclass(slots=True)
class _Value:
    """A JSON value, its position in the document, and its stage or graph. An absent value is null.

    The position is a name or an index *within* another value, so that a path is made only for messages. (The class is not
    frozen, because a rule has a hundred values and frozen ones take three times as long to make.)
    """

    value: Any
    within: _Value | None = None
    name: str | int = ""
    owner: str = "root"

    def __getitem__(self, name: str | int) -> _Value:
        return _Value(self.value.get(name) if isinstance(name, str) else self.value[name], self, name, self.owner)

    @property
    def path(self) -> str:
        return "" if self.within is None else self.within.path + pointer_part(self.name)

    def __iter__(self) -> Iterator[_Value]:
        return (self[number] for number in range(len(self.value)))

    @property
    def absent(self) -> bool:
        return self.value is None

    def fail(self, problem: str, hint: str | None = None) -> PatternFormatError:
        return PatternFormatError(f"{self.owner}: {problem}", hint=hint, path=self.path)

    def text(self, what: str) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.fail(what)
        try:
            self.value.encode()
        except UnicodeEncodeError:
            raise self.fail(f"{_shown(self.value)} contains an unpaired surrogate") from None
        return self.value

    def integer(self, what: str) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.fail(f"{what} must be an integer")
        return self.value

    def flag(self, what: str) -> bool:
        if not isinstance(self.value, bool | None):
            raise self.fail(f"{what} must be true or false")
        return bool(self.value)

    def one_of(self, names: Sequence[str], what: str) -> str:
        if self.absent:
            raise self.fail(f"the {what} is missing", ", ".join(names))
        if self.value not in names:
            raise self.fail(f"unknown {what} {_shown(self.value)}", ", ".join(names))
        return str(self.value)

    def member(self, kind: type[E_], what: str) -> E_:
        return kind(self.one_of([member.value for member in kind], what))


def _shown(value: Any) -> str:
    """A value in a message, of bounded length."""
    shortened = reprlib.Repr()
    shortened.maxstring = shortened.maxother = 80
    return shortened.repr(value)


@dataclass(frozen=True, slots=True)
class _Modifier:
    """A call of a builder method for a stage, and the JSON value that requires it."""

    at: _Value
    apply: Callable[[Any], Any]


@dataclass(slots=True)
class _ReadPart:
    """A block that reads a part of the graph, whose problem is recorded. Its type shows that it suppresses errors."""

    at: _Value
    problems: list[PatternError]

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, PatternError):
            return False
        if error.path is None:
            error.path = self.at.path
        self.problems.append(error)
        return True


class _GraphReader(Generic[P]):
    """Reads a graph part by part: problems of a part are recorded, and the other parts are read nevertheless."""

    def __init__(self, kind: type[P]) -> None:
        self.kind = kind
        self.reading = Reading[P]()
        self._stages: set[str] = set()

    def _part(self, at: _Value) -> _ReadPart:
        return _ReadPart(at, self.reading.problems)

    def _note(self, error: PatternError) -> None:
        self.reading.problems.append(error)

    def _object(self, at: _Value, what: str, known: Sequence[str], hint: str | None = None) -> None:
        """Check that *at* is an object (PatternFormatError: it is not) with *known* fields only."""
        if not isinstance(at.value, Mapping):
            raise at.fail(f"{what} must be an object", hint)
        self._fields(at, known)

    def _fields(self, at: _Value, known: Sequence[str]) -> None:
        """Check that *at* is an object with *known* fields only; an unknown field may be misspelt."""
        for name in at.value:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(known)}"
                place = _Value(None, at, name, at.owner)
                self._note(place.fail(f"unknown field {_shown(name)}", hint))

    # ------------------------------------------------------------------ graphs

    def root(self, at: _Value) -> P | None:
        if not isinstance(at.value, Mapping) or at.value.get("type") != "COMPOSITE":
            self._note(at.fail("a pattern must be an object of type COMPOSITE"))
            return None
        if not isinstance(at["name"].value, str | None):
            self._note(at["name"].fail("a name must be a string"))
        if not at["quantifier"].absent:
            self._quantifier(at["quantifier"])  # without effect, as in Flink
        if not at["combination"].absent:
            hint = "make it a node of type COMPOSITE, which can be the only node"
            self._note(at["combination"].fail("a whole pattern has no combination", hint))
        pattern = self._graph(at, 0)
        calls = [*self._window(at["window"]), *self._anchors(at)]
        subsets = self._subsets(at["subsets"])
        if pattern is None:
            return None
        assert isinstance(pattern, self.kind)
        for call in calls:
            with self._part(call.at):
                pattern = call.apply(pattern)
        if self.reading.problems:
            return None
        # Problems of the whole chain concern the last stage, the subsets, or the skip strategy.
        name = pattern.stages[-1].name
        with self._part(next(node for node in at["nodes"] if node["name"].value == name)):
            replace(pattern, skip=AfterMatchSkipStrategy()).validate()
        for call in subsets:
            with self._part(call.at):
                pattern = call.apply(pattern)
        if subsets and not self.reading.problems:
            with self._part(at["subsets"]):
                replace(pattern, skip=AfterMatchSkipStrategy()).validate()
        if pattern.skip.stage is not None and not self.reading.problems:
            with self._part(at["afterMatchStrategy"]["patternName"]):
                pattern.validate()
        with self._part(at):
            _refuse_too_large(pattern)
        return pattern

    def _anchors(self, at: _Value) -> list[_Modifier]:
        """Whether a match begins with the first, and ends with the last event of its key."""
        calls = []
        for name, method in ANCHORS.items():
            with self._part(at[name]):
                if at[name].flag(name):
                    calls.append(_Modifier(at[name], method))
        return calls

    def _subsets(self, at: _Value) -> list[_Modifier]:
        if at.absent:
            return []
        if not isinstance(at.value, list):
            self._note(at.fail("subsets must be a list", _SUBSET))
            return []
        calls = []
        for each in at:
            with self._part(each):
                self._object(each, "a subset", ("name", "stages"), _SUBSET)
                name = each["name"].text("a subset needs a name")
                if not isinstance(each["stages"].value, list) or not each["stages"].value:
                    raise each["stages"].fail("a subset needs stages", _SUBSET)
                stages = [stage.text("a subset must have names of stages") for stage in each["stages"]]
                calls.append(_Modifier(each, methodcaller("subset", name, *stages)))
        return calls

    def _graph(self, at: _Value, depth: int) -> PatternSequence | None:
        """A chain, or another combination of nodes."""
        if depth > MAX_GROUP_DEPTH:
            self._note(at.fail(f"groups are nested more than {MAX_GROUP_DEPTH:,} levels deep"))
            return None
        before = len(self.reading.problems)
        self._fields(at, _GRAPH)
        if not at["condition"].absent:
            self._note(at["condition"].fail("a group has no condition"))
        for name in (*ANCHORS, "subsets") if depth else ():
            if not at[name].absent:
                self._note(at[name].fail(f"{name} does not apply to a group", "apply it to the whole pattern"))
        version = at["version"]
        if not version.absent and (isinstance(version.value, bool) or version.value != VERSION):
            self._note(version.fail(f"unknown version {_shown(version.value)} of the format", f"use {VERSION}"))
        skip = AfterMatchSkipStrategy()
        with self._part(at["afterMatchStrategy"]):
            skip = self._skip(at["afterMatchStrategy"])
        nodes = self._nodes(at["nodes"])
        combination = at["combination"]
        if depth and not combination.absent:
            group: PatternSequence | None = None
            with self._part(combination):
                group = self._elements(at, nodes, *self._combination(combination), depth)
            return None if group is None or len(self.reading.problems) > before else replace(group, skip=skip)
        entered: dict[str, Contiguity] = {}
        chain = self._chain(at["edges"], nodes, entered, depth)
        stages: list[Stage | None] = []
        for name in chain or nodes:
            previous = stages[-1] if chain and stages else None
            stages.append(self._stage(nodes[name], entered.get(name), previous, depth))
        if len(self.reading.problems) > before:
            return None
        return self.kind(tuple(stage for stage in stages if stage is not None), skip)

    def _combination(self, at: _Value) -> tuple[Combining, Contiguity]:
        """The combination of the nodes, and the contiguity between them."""
        self._object(at, "a combination", ("type", "consumingStrategy"), '{"type": "ANY_OF"}')
        kind = Combining(at["type"].one_of([Combining.ANY_OF.value, Combining.IN_ANY_ORDER.value], "combination"))
        between = at["consumingStrategy"]
        if between.absent:
            return kind, Contiguity.STRICT if kind is Combining.ANY_OF else Contiguity.SKIP_TILL_NEXT
        if kind is Combining.ANY_OF:
            raise between.fail(
                "alternatives have no edges between them", "the edge to the node has the contiguity before them"
            )
        names = [Contiguity.STRICT.value, Contiguity.SKIP_TILL_NEXT.value]
        return kind, Contiguity(between.one_of(names, "consuming strategy"))

    def _elements(
        self, at: _Value, nodes: Mapping[str, _Value], combination: Combining, between: Contiguity, depth: int
    ) -> PatternSequence | None:
        """The group of alternatives, or of elements in any order."""
        if not at["edges"].absent and at["edges"].value != []:
            self._note(at["edges"].fail(f"the nodes of {combination.value} have no edges"))
        read = [self._stage(node, between, None, depth) for node in nodes.values()]
        stages = [stage for stage in read if stage is not None]
        if not stages or len(stages) < len(read):
            return None
        elements = [self.kind((stage,)) for stage in stages]
        with self._part(at["nodes"]):
            if combination is Combining.ANY_OF:
                return PatternSequence.any_of(*elements).stages[0].group
            return PatternSequence.in_any_order(*elements, consecutive=between is Contiguity.STRICT).stages[0].group
        return None

    def _nodes(self, at: _Value) -> dict[str, _Value]:
        """The nodes by name, in the order of the list."""
        nodes: dict[str, _Value] = {}
        if not isinstance(at.value, list) or not at.value:
            self._note(at.fail("a graph needs nodes"))
            return nodes
        for node in at:
            with self._part(node):
                if not isinstance(node.value, Mapping):
                    raise node.fail("a node must be an object")
                name = node["name"].text("a node needs a name")
                if name in nodes:
                    raise node["name"].fail(f"two nodes are named {_shown(name)}")
                nodes[name] = replace(node, owner=name)
        return nodes

    def _chain(
        self, at: _Value, nodes: Mapping[str, _Value], entered: dict[str, Contiguity], depth: int
    ) -> list[str] | None:
        """The names of the nodes in the order of the edges. Adds the contiguity before each node to *entered*."""
        before = len(self.reading.problems)
        after: dict[str, str] = {}
        absences: list[tuple[str, _Value]] = []
        if not isinstance(at.value, list | None):
            self._note(at.fail("edges must be a list"))
        else:
            for edge in at if at.value else ():
                with self._part(edge):
                    source, target, kind = self._edge(edge, nodes)
                    if source in after:
                        raise edge["source"].fail(f"two edges leave node {_shown(source)}")
                    if target in entered:
                        raise edge["target"].fail(f"two edges enter node {_shown(target)}")
                    after[source], entered[target] = target, kind
                    if kind is Contiguity.NOT_BEFORE:
                        if depth:
                            raise edge["type"].fail("a NOT_BEFORE edge is not supported in a group")
                        entered[target] = Contiguity.SKIP_TILL_NEXT
                        absences.append((source, edge))
        if not nodes or len(self.reading.problems) > before:
            return None
        begins = [name for name in nodes if name not in entered]
        chain = begins[:1]
        while chain and chain[-1] in after:
            chain.append(after[chain[-1]])
        if not begins:
            self._note(at.fail("the edges form a cycle"))
        elif len(begins) > 1:
            self._note(at.fail(f"a graph must have exactly one first node, not {len(begins):,}"))
        elif len(chain) < len(nodes):
            self._note(at.fail("the edges do not form a single chain of all nodes"))
        for source, edge in absences:
            if chain[:1] == [source]:
                entered[source] = Contiguity.NOT_BEFORE
            else:
                self._note(edge["type"].fail("a NOT_BEFORE edge must leave the first node"))
        return chain if len(self.reading.problems) == before else None

    def _edge(self, at: _Value, nodes: Mapping[str, _Value]) -> tuple[str, str, Contiguity]:
        self._object(at, "an edge", ("source", "target", "type"))
        ends = at["source"], at["target"]
        edge_name = f"edge {_shown(ends[0].value)} -> {_shown(ends[1].value)}"
        for end in ends:
            if not isinstance(end.value, str) or end.value not in nodes:
                raise end.fail(f"the {edge_name} refers to an unknown node")
        kind = replace(at["type"], owner=f"{at.owner}: {edge_name}").member(Contiguity, "edge type")
        return ends[0].value, ends[1].value, kind

    # ------------------------------------------------------------------ nodes

    def _stage(self, at: _Value, contiguity: Contiguity | None, previous: Stage | None, depth: int) -> Stage | None:
        before = len(self.reading.problems)
        name = at.owner
        stage = Stage(name, contiguity or Contiguity.STRICT)
        self.reading.places.setdefault(name, at.path)
        if ":" in name:
            error = f'stage name "{name}" contains a colon'
            self._note(MalformedPatternError(error, None, "use letters, digits and underscores", at["name"].path))
        if at["type"].value == "COMPOSITE":
            if stage.contiguity.negated:
                leads = "leave" if stage.contiguity is Contiguity.NOT_BEFORE else "lead to"
                self._note(at.fail(f"a {stage.contiguity.value} edge cannot {leads} a group"))
            # The settings of a group do not depend on its content, so they can be read nevertheless.
            stage = replace(stage, group=self._graph(at, depth + 1) or self.kind.begin("unknown"))
        elif at["type"].value == "ATOMIC":
            if name in self._stages:
                error, hint = f'two stages are named "{name}"', "stage names must be unique, including those in groups"
                self._note(MalformedPatternError(error, None, hint, at["name"].path))
            self._stages.add(name)
            self._fields(at, _ATOM)
            with self._part(at["condition"]):
                stage = replace(stage, condition=self._condition(at["condition"], "condition"))
        else:
            with self._part(at["type"]):
                at["type"].one_of(("ATOMIC", "COMPOSITE"), "node type")
        before_calls = len(self.reading.problems)
        calls = [*self._quantifier(at["quantifier"]), *self._window(at["window"])]
        if len(self.reading.problems) > before_calls:
            return None
        now = at
        try:
            # The previous stage matters: some stages may not follow an optional or greedy one.
            if previous is not None:
                check_follows(previous, stage)
            pattern = self.kind((stage,) if previous is None else (previous, stage))
            for call in calls:
                now = call.at
                pattern = call.apply(pattern)
        except MalformedPatternError as error:
            error.path = now.path
            self._note(error)
        return pattern.stages[-1] if len(self.reading.problems) == before else None

    def _condition(self, at: _Value, what: str, depth: int = 0) -> Condition | None:
        if at.absent:
            return None
        if not isinstance(at.value, Mapping):
            raise at.fail(f"the {what} must be an object", _SQL)
        kind = at["type"]
        if kind.value != "SQL":
            if kind.value in FOREIGN:
                self._fields(at, ("type", "expression"))
                return self._registered(at, kind.value, [at["expression"].text(f"the {what} has no expression")])
            kind.one_of(("SQL", "CLASS", *FOREIGN), "condition type")
            return self._named(at, what, depth)
        self._fields(at, ("type", "expression"))
        text = at["expression"].text(f"the {what} has no expression")
        if not text.strip():
            raise at["expression"].fail(f"the {what} has no expression")
        self.reading.conditions.append(ConditionText(at.owner, what, text, at["expression"].path))
        return SqlCondition(text)

    def _named(self, at: _Value, what: str, depth: int) -> Condition:
        name = at["className"].text(f"the {what} has no className")
        simple = name.rpartition(".")[2]
        if simple in (*_JOINED, _NEGATED) and not at["nestedConditions"].absent:
            return self._nested(at, what, simple, depth)
        if simple == _SUBTYPE and not at["subClassName"].absent:
            self._fields(at, ("type", "className", "subClassName"))
            return self._registered(at, at["subClassName"].text(f"the {what} has no subClassName"), [])
        self._fields(at, ("type", "className", "args"))
        arguments = at["args"].value
        if not isinstance(arguments, list | None):
            raise at["args"].fail("args must be a list", _NAMED)
        return self._registered(at, name, arguments or [])

    def _nested(self, at: _Value, what: str, name: str, depth: int) -> Condition:
        """AND, OR or NOT of conditions, as Flink prints them."""
        self._fields(at, ("type", "className", "nestedConditions"))
        nested = at["nestedConditions"]
        least, most, count = (1, 1, "one condition") if name == _NEGATED else (2, None, "at least two conditions")
        if not isinstance(nested.value, list) or not least <= len(nested.value) <= (most or len(nested.value)):
            raise nested.fail(f"the nestedConditions of {name} must be a list of {count}")
        if depth == MAX_NESTED:
            raise nested.fail(f"conditions are nested too deeply (limit {MAX_NESTED})")
        parts = []
        for part in nested:
            condition = self._condition(part, what, depth + 1)
            if condition is None:
                raise part.fail(f"a condition of {name} is missing")
            parts.append(condition)
        if name == _NEGATED:
            return NotCondition(parts[0])
        return reduce(_JOINED[name], parts)

    def _registered(self, at: _Value, name: str, arguments: Sequence[Any]) -> NamedCondition:
        """A condition that the query has registered under a name, which is never imported."""
        try:
            return NamedCondition(name, arguments)
        except MalformedPatternError as error:
            raise PatternFormatError(f"{at.owner}: {error.message}", error.detail, error.hint, at.path) from None

    def _quantifier(self, at: _Value) -> list[_Modifier]:
        """The calls for a quantifier, in Flink's order, which decides what is refused."""
        if not isinstance(at.value, Mapping):
            self._note(at.fail("a node needs a quantifier"))
            return []
        self._fields(at, ("consumingStrategy", "properties", "times", "untilCondition"))
        properties = at["properties"]
        if not isinstance(properties.value, list):
            self._note(properties.fail("a quantifier needs properties"))
            return []
        for spec in properties:
            with self._part(spec):
                spec.one_of((*_KINDS, "OPTIONAL", *TAKING), "quantifier property")
        if not any(kind in properties.value for kind in _KINDS):
            self._note(properties.fail(f"a quantifier needs one of {', '.join(_KINDS)}"))
        calls: list[_Modifier] = []
        with self._part(at):
            calls += self._repetition(at)
        if "OPTIONAL" in properties.value:
            calls.append(_Modifier(properties, PatternSequence.optional))
        calls += [_Modifier(properties, _TAKE[taking]) for name, taking in TAKING.items() if name in properties.value]
        inner = at["consumingStrategy"]
        with self._part(inner):
            kind = Contiguity.SKIP_TILL_NEXT if inner.absent else inner.member(Contiguity, "consuming strategy")
            if kind.negated:
                raise inner.fail(f"{kind.value} is not supported inside a loop")
            if kind is Contiguity.STRICT:
                calls.append(_Modifier(inner, PatternSequence.consecutive))
            elif kind is Contiguity.SKIP_TILL_ANY:
                calls.append(_Modifier(inner, PatternSequence.allow_combinations))
        with self._part(at["untilCondition"]):
            until = self._condition(at["untilCondition"], "until condition")
            if until is not None:
                calls.append(_Modifier(at["untilCondition"], lambda pattern: pattern.until(until)))
        return calls

    def _repetition(self, at: _Value) -> Iterator[_Modifier]:
        properties, times = at["properties"].value, at["times"]
        if times.absent:
            if "TIMES" in properties:
                raise times.fail("TIMES needs times")
            if "LOOPING" in properties:
                yield _Modifier(at["properties"], PatternSequence.one_or_more)
            return
        self._object(times, "times", ("from", "to", "windowTime"))
        gap = self._duration(times["windowTime"])
        low = times["from"].integer("times.from")
        high = low if times["to"].absent and "TIMES" not in properties else times["to"].integer("times.to")
        if "LOOPING" in properties:
            yield _Modifier(times, lambda pattern: pattern.times_or_more(low, within=gap))
        if "TIMES" in properties:
            yield _Modifier(times, lambda pattern: pattern.times(low, high, within=gap))

    # ------------------------------------------------------------------ time, skipping

    def _window(self, at: _Value) -> list[_Modifier]:
        """One window, or a list with one of each kind."""
        calls: dict[WithinType, _Modifier] = {}
        for each in at if isinstance(at.value, list) else [at]:
            with self._part(each):
                if at.absent:
                    return []
                self._object(each, "a window", ("type", "time", "inclusive"))
                kind = each["type"].member(WithinType, "window type")
                duration = self._duration(each["time"])
                if duration is None:
                    raise each["time"].fail("a window needs a time")
                if kind in calls:
                    raise each.fail(f"there are two windows of type {kind.value}")
                inclusive = each["inclusive"].flag("inclusive")
                within = partial(PatternSequence.within, duration=duration, within_type=kind, inclusive=inclusive)
                calls[kind] = _Modifier(each, within)
        return list(calls.values())

    def _duration(self, at: _Value) -> timedelta | None:
        if at.absent:
            return None
        self._object(at, "a time", ("unit", "size"), '{"unit": "SECONDS", "size": 5}')
        unit = UNITS[at["unit"].one_of(tuple(UNITS), "time unit")]
        size = at["size"].integer("time size")
        if size < 0:
            raise at["size"].fail("a time cannot be negative")
        if size > MAX_DURATION // unit:
            raise at["size"].fail("the time is out of range")
        return size * unit

    def _skip(self, at: _Value) -> AfterMatchSkipStrategy:
        if at.absent:
            return AfterMatchSkipStrategy()
        self._object(at, "an after match strategy", ("type", "patternName", "throwOnMiss"), '{"type": "NO_SKIP"}')
        kind = at["type"].member(SkipKind, "after match strategy")
        stage, throws = at["patternName"], at["throwOnMiss"]
        if not isinstance(stage.value, str | None):
            raise stage.fail("patternName must be the name of a stage")
        throws.flag("throwOnMiss")
        if kind in (SkipKind.SKIP_TO_FIRST, SkipKind.SKIP_TO_LAST):
            if not stage.value:
                raise stage.fail(f"{kind.value} needs a patternName")
            return AfterMatchSkipStrategy(kind, stage.value, bool(throws.value))
        if throws.value:
            raise throws.fail(f"throwOnMiss does not apply to {kind.value}")
        return AfterMatchSkipStrategy(kind)


def _refuse_too_large(pattern: PatternSequence) -> None:
    """Check the size before the compiler builds a state for each repetition: large numbers are short in JSON."""

    def size(pattern: PatternSequence) -> int:
        whole = sum(s.quantifier.at_most * (1 if s.group is None else size(s.group)) for s in pattern.stages)
        # Each element follows every subset of the others.
        orders = 2 ** (len(pattern.stages) - 1) if pattern.combination is Combining.IN_ANY_ORDER else 1
        return whole * orders

    stages = size(pattern)
    if stages > MAX_STAGES:
        groups = [stage.group for stage in stages_of(pattern) if stage.group is not None]
        has_orders = any(group.combination is Combining.IN_ANY_ORDER for group in groups)
        counted = "repetition and each order" if has_orders else "repetition"
        raise PatternTooLargeError(
            f"the pattern has {stages:,} stages, each {counted} counted (limit {MAX_STAGES:,})",
            hint="lower the counts of times",
        )
