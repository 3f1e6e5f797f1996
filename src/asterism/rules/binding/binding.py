"""Pattern processors bound to the schema of a stream: their conditions, keys and outputs.

Source: FLIP-200.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa
from sqlglot import exp

from asterism.caches import IdentityCache
from asterism.columns.keys import KEY
from asterism.columns.time import TimeColumn
from asterism.errors import AsterismError, ExpressionError, PatternProcessorError
from asterism.expressions.aggregates import check_measure, parse_measure
from asterism.expressions.evaluation import TRIAL, Vectorized, tried_before
from asterism.expressions.functions import FUNCTIONS
from asterism.expressions.names import Scope, columns_of
from asterism.expressions.parsing import parse
from asterism.expressions.ranges import Indexable, Ranges
from asterism.expressions.routines.user_functions import RESERVED, Purpose, UserFunctions, checked, listed
from asterism.matching.binding import BoundPattern, python_mask
from asterism.matching.outputs import MatchOutput, OutputKind, OutputSpec
from asterism.matching.plan import Limits
from asterism.matching.process_function import MatchFunction, MatchFunctionLike, PatternProcessFunction
from asterism.operators.rich_functions import close_all, rich
from asterism.patterns.compiler import check_pattern
from asterism.patterns.conditions import PythonCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.clause.clause import RowsPerMatch
from asterism.row_patterns.clause.reading import read
from asterism.rules.binding.clauses import ClauseOfRule
from asterism.rules.definition.lookup_tables import LookupColumn, LookupVersion, table_of, with_lookups
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.registered_conditions import (
    RegisteredCall,
    RegisteredCondition,
    names_in,
    with_registered,
)
from asterism.rules.sets.sets import rarely_collected
from asterism.text.printable import quoted_name

TIMED_OUT = OutputKind.TIMED_OUT.value
MAX_TOGETHER = 16
MOST_IN_VAIN = 1_000
"""The maximum number of partial matches that are left out because they are in vain: far below every limit of results."""
_EPSILON = 1e-9
_CALL = re.compile(r"(\w+)\s*\(")
NO_KEY = "!"
"""Replaces the key text of an event whose key could not be computed."""


class Selector(NamedTuple):
    """The key expressions by which events are copied.

    :ivar number: identifies the selector
    :ivar seed: the seed of the hash of its keys, so that equal expressions send equal keys to the same key group
    :ivar instead_of_null: the expressions that replace *expressions* for an event for which all of these are NULL, if there are
        any
    """

    expressions: tuple[str, ...]
    number: int
    seed: int
    instead_of_null: tuple[str, ...] | None = None


def selector_of_stream(keys: Sequence[str]) -> Selector:
    expressions = tuple(map(_column_as_sql, keys))
    return Selector(expressions, number_of(*expressions), number_of(*expressions))


def selector_of(processor: PatternProcessor, keys: Sequence[str]) -> Selector:
    """The selector of the key of a processor, or of the key columns of the stream. If the key of the processor is NULL, the key
    of the stream applies (FLIP-200).
    """
    stream = selector_of_stream(keys)
    if processor.key is None or processor.key == stream.expressions:
        return stream
    number = number_of(*processor.key)
    return Selector(processor.key, number, number, stream.expressions if keys and processor.key else None)


def selector_of_partitions(partition_by: tuple[str, ...], keys: Sequence[str]) -> Selector:
    """The selector of PARTITION BY of a rule in SQL, where NULL is a value like any other, or of the key of the stream."""
    stream = selector_of_stream(keys)
    if not partition_by or partition_by == stream.expressions:
        return stream
    return Selector(partition_by, number_of("PARTITION BY", *partition_by), number_of(*partition_by))


def _column_as_sql(name: str) -> str:
    """A column as a rule would write it, so that both share the copies of events."""
    try:
        tree = parse(name)
    except ExpressionError:
        tree = None
    plain = isinstance(tree, exp.Column) and not tree.table and tree.name == name
    return name if plain else quoted_name(name)


@lru_cache(maxsize=1_000)
def number_of(*texts: str) -> int:
    """A 64-bit hash of strings that is the same in every process.

    >>> number_of("user_id")
    3704046387848550483
    """
    return int.from_bytes(hashlib.sha256(json.dumps(texts).encode()).digest()[:8], "big", signed=True)


def _parts_of(text: str, indexable: Indexable | None) -> tuple[Ranges | None, str | None]:
    """The ranges of a condition, and the SQL of its evaluated rest, if there is one."""
    if indexable is None:
        return None, text
    return indexable.ranges, None if indexable.rest is None else indexable.rest.text


def at_origin(error: ExpressionError, processor: PatternProcessor, schema: pa.Schema) -> ExpressionError:
    """An error of a rule over events with these columns, at its place in what the rule was translated from, if that is known."""
    if processor.origin is None:
        return error
    if processor.pattern is None:
        texts = [processor.sql or ""]
    else:
        conditions = (stage.condition for stage in processor.pattern.atoms())
        texts = [condition.text for condition in conditions if isinstance(condition, SqlCondition)]
    return processor.origin.located(error, [*texts, *(processor.key or ())], schema)


def _number_of_call(condition: PythonCondition) -> int:
    assert isinstance(condition.function, RegisteredCall), "the conditions of rules are SQL, or registered"
    named = condition.function.condition
    return number_of("condition", named.name, json.dumps(named.arguments))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class BoundProcessor:
    """A processor bound to the *schema* of the events.

    :param selector: the keys by which the processor groups events
    :param conditions: for each condition bit of the pattern, the number of its condition; equal conditions of all processors
        have the same number
    :param ranges: for each condition, its ranges of columns, if it has any; it may also have a rest
    :param evaluated: for each condition, the number of the expression that is evaluated before the exchange: the condition itself
        or its rest; None if it consists of ranges only
    :param needs_all: whether the processor must see events that satisfy none of its conditions
    :param lookups: for each condition, the lookups that its evaluated expression reads, sorted by name
    :param kept_lookups: the lookups that are read after the exchange: by other conditions, measures and clauses
    """

    processor: PatternProcessor
    schema: pa.Schema
    selector: Selector
    conditions: tuple[int, ...]
    ranges: tuple[Ranges | None, ...]
    evaluated: tuple[int | None, ...]
    needs_all: bool
    lookups: tuple[tuple[str, ...], ...]
    kept_lookups: frozenset[str]

    @property
    def number(self) -> int:
        return self.selector.number

    @property
    def name(self) -> str:
        return f'the pattern processor "{self.processor.id}" version {self.processor.version}'


@dataclass(frozen=True, slots=True)
class BoundPatternProcessor(BoundProcessor):
    """A processor with a pattern."""

    pattern: BoundPattern
    outputs: Mapping[str, MatchOutput]

    @property
    def completing(self) -> tuple[int, bool, frozenset[int]]:
        """How many events of a key may be *in vain* (see :func:`asterism.rules.binding.kernels.shares`), whether an event that
        begins a partial match can complete a match at once, and the condition bits of which an event must have one to complete
        a match.
        """
        of = self.pattern.completion
        if of is None or TIMED_OUT in self.outputs or self.pattern.programs.may_fail:
            return 0, True, frozenset()
        limit = min(self.pattern.plan.limits.partial_matches or MOST_IN_VAIN, MOST_IN_VAIN)
        return int(math.log(limit, 1 + of.ways) + _EPSILON), of.at_once, of.bits

    def stages_with(self, evaluated: int) -> str:
        """The stages that use a condition, given the number of its evaluated expression."""
        names = self.pattern.stages_with(self.evaluated.index(evaluated))
        return " and ".join(f'stage "{name}"' for name in names)


@dataclass(frozen=True, slots=True)
class BoundClauseProcessor(BoundProcessor):
    """A processor with a MATCH_RECOGNIZE clause, which sees all events. Its condition, if any: a match begins with the event."""

    clause: ClauseOfRule


class ProcessorCompiler:
    """Binds processors to the schema of a stream. The coordinator uses the same object, and refuses what cannot be bound.

    :param keys: the key of the stream
    :param functions: the functions that processors may name; each maps a table of matches to a table, see
        :class:`~asterism.rules.binding.function_rows.FunctionRows`, or is a :class:`asterism.PatternProcessFunction`
    :param conditions: the conditions that processors may name
    :param max_partial_matches: the maximum number of partial matches of a processor per key, for which a processor may set a
        lower value; None: unlimited
    :param udfs: the functions in Python that SQL of processors may call
    :param lookups: the lookups that processors may read, each a struct column after those of the events
    :param ids_by_events: whether the match ids depend only on the key and the events of a match, so that those of different
        processors can be compared; the events of clauses are the first and the last row
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        time: TimeColumn,
        semantics: Semantics,
        functions: Mapping[str, MatchFunctionLike],
        max_partial_matches: int | None = None,
        conditions: Mapping[str, RegisteredCondition] | None = None,
        *,
        udfs: UserFunctions | None = None,
        lookups: Sequence[LookupColumn] = (),
        ids_by_events: bool = False,
    ) -> None:
        self.udfs = checked(udfs, Purpose.RULES) if udfs is None or udfs.purpose is Purpose.NOTHING else udfs
        self.events, self.keys, self.time = schema, list(keys), time
        self.stream_selector = selector_of_stream(keys)
        self.lookups = {lookup.name: lookup for lookup in lookups}
        self.schema = with_lookups(schema, lookups)
        """The columns of the events, and the lookups."""
        self.semantics = semantics
        self.functions: dict[str, Any] = {
            name: MatchFunction(function, schema)
            if isinstance(function, PatternProcessFunction)
            else rich(function, schema)
            for name, function in functions.items()
        }
        """Functions that are opened and closed are :class:`~asterism.operators.rich_functions.RichFunction`."""
        self.conditions = {
            name: condition
            if (function := rich(condition.function, schema)) is condition.function
            else replace(condition, function=function)
            for name, condition in (conditions or {}).items()
        }
        self.max_partial_matches = max_partial_matches
        self.ids_by_events = ids_by_events
        self.keeps_tried = False
        """Whether :meth:`bind` uses what :meth:`try_out` has compiled: if the same process does both."""
        self._tried: dict[str, BoundPatternProcessor] = {}
        self._selectors: dict[tuple[str, ...], tuple[Vectorized, list[int]]] = {}
        self._on: dict[str, tuple[Vectorized, list[int]]] = {}
        columns = schema.to_string(show_schema_metadata=True)
        self.definition = repr((semantics, self.keys, time, columns, max_partial_matches, ids_by_events))
        if self.lookups:
            self.definition += repr(lookups)
        if self.conditions:
            self.definition += repr(
                sorted((name, id(condition.function), condition) for name, condition in self.conditions.items())
            )
        if self.udfs:
            self.definition += repr(sorted(function.registered for function in self.udfs.values()))

    @property
    def calls_python(self) -> bool:
        """Whether processors may call functions of the user, which need not be safe for threads."""
        return bool(self.functions or self.conditions or self.udfs)

    @property
    def match_functions(self) -> list[MatchFunction]:
        """The functions with additional outputs and metrics."""
        return [function for function in self.functions.values() if isinstance(function, MatchFunction)]

    def close(self) -> None:
        close_all([*self.functions.values(), *(condition.function for condition in self.conditions.values())])

    def with_lookups(self, lookups: Sequence[LookupColumn], events: pa.Schema | None = None) -> ProcessorCompiler:
        """:param events: the columns of the events in another order; None: in the same one"""
        return ProcessorCompiler(
            self.events if events is None else events.with_metadata(self.events.metadata),
            self.keys,
            self.time,
            self.semantics,
            self.functions,
            self.max_partial_matches,
            self.conditions,
            udfs=self.udfs,
            lookups=lookups,
            ids_by_events=self.ids_by_events,
        )

    def bind(self, processor: PatternProcessor) -> BoundProcessor:
        """As :meth:`compile`, for a processor that :meth:`try_out` has accepted. The result is cached per processor object,
        as long as it is used.

        (:func:`asterism.rules.sets.sets.processor_of` returns the same object for equal processors, because comparing patterns
        takes time.)
        """
        key = (self.definition, id(processor))
        bound = _BOUND.get(key)
        if bound is None or bound.processor is not processor:
            tried = self._tried.pop(processor.text, None) if self._tried else None
            if tried is not None:
                bound = _BOUND[key] = replace(tried, processor=processor)
                return bound
            with tried_before():
                bound = _BOUND[key] = self.compile(processor)
        return bound

    def binds(self, processor: PatternProcessor) -> bool:
        """Whether :meth:`bind` succeeds."""
        try:
            self.bind(processor)
        except AsterismError:
            return False
        return True

    def bind_all(self, processors: Iterable[PatternProcessor]) -> Sequence[BoundProcessor]:
        """:meth:`bind` each of them. Recent results are cached, because the first stage binds all rules in every batch."""
        given = tuple(processors)

        def bound() -> tuple[BoundProcessor, ...]:
            with rarely_collected():
                together = tuple([self.bind(processor) for processor in given])
            self._tried.clear()  # what is left belongs to rules that are not in force
            return together

        return _BOUND_TOGETHER.of(given, bound, self.definition)

    def compile(self, processor: PatternProcessor) -> BoundProcessor:
        """:raises AsterismError: the pattern, a key or a measure is invalid for the schema of the events"""
        with listed(self.udfs):
            return self._with_clause(processor) if processor.pattern is None else self._with_pattern(processor)

    def _with_pattern(self, processor: PatternProcessor) -> BoundPatternProcessor:
        assert processor.pattern is not None
        check_pattern(processor.pattern)
        selector = selector_of(processor, self.keys)
        self.key_expressions(selector.expressions)
        if processor.function is not None and processor.function not in self.functions:
            raise PatternProcessorError(
                f"the function {processor.function!r:.120} is not known",
                f"Known: {', '.join(sorted(self.functions)) or 'none'}",
                "functions={name: function} in CEP.pattern_processors",
            )
        outputs = self._outputs(processor, processor.pattern)
        pattern = BoundPattern.of_pattern(
            with_registered(processor.pattern, self.conditions),
            self.schema,
            self.semantics,
            limits=Limits(self._limit(processor)),
            counts_matches=any(output.counts_matches for output in outputs.values()),
            kept_columns=tuple(self.schema.names),
        )
        conditions = tuple(
            self._number_of_text(pattern.vectorized.texts[source])
            if isinstance(source, int)
            else _number_of_call(source)
            for source in pattern.bit_sources
        )
        vectorized = pattern.vectorized
        parts = [
            _parts_of(vectorized.texts[source], vectorized.indexable[source])
            if isinstance(source, int)
            else (None, None)
            for source in pattern.bit_sources
        ]
        ranges = tuple(indexed for indexed, _ in parts)
        evaluated = tuple(
            None if indexed is not None and text is None else number if text is None else self._number_of_text(text)
            for number, (indexed, text) in zip(conditions, parts, strict=True)
        )
        lookups = tuple(() if text is None else self._lookups_in([text]) for _, text in parts)
        kept = {name for output in outputs.values() if output.measures for name in output.kept_columns}
        kept |= {*self._lookups_in(vectorized.texts[slot] for slot in pattern.programs.stored)}
        return BoundPatternProcessor(
            processor,
            self.schema,
            selector,
            conditions,
            ranges,
            evaluated,
            not pattern.relevant_only,
            lookups,
            frozenset(kept & self.lookups.keys()),
            pattern,
            outputs,
        )

    def _outputs(self, processor: PatternProcessor, pattern: Pattern) -> dict[str, MatchOutput]:
        stages = [stage.name for stage in pattern.atoms()]
        kinds = [OutputKind.MATCHES, *([OutputKind.TIMED_OUT] if processor.timed_out else [])]
        measures = processor.select or None
        outputs = {
            kind.value: MatchOutput(
                OutputSpec(kind, measures=measures),
                self.events if measures is None else self.schema,
                (),
                self.time,
                stages,
                id_keys=[KEY],
                id_names=self._id_names(processor),
                subsets=pattern.subsets,
            )
            for kind in kinds
        }
        if any(output.previous for output in outputs.values()):
            # An event of several rules is stored once, but the event before it depends on the key of the rule.
            for text in processor.select:
                check_measure(parse_measure(text), (*stages, *dict(pattern.subsets)), text)
        return outputs

    def _lookups_in(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The sorted names of the lookups that translated expressions read."""
        if not self.lookups:
            return ()
        names = {self.schema.names[number] for text in texts for number in columns_of(text)}
        return tuple(sorted(names & self.lookups.keys()))

    def knows(self, processor: PatternProcessor) -> bool:
        """Whether all functions and conditions that a processor names are known."""
        if processor.function is not None and processor.function not in self.functions:
            return False
        called = {name.lower() for name in _CALL.findall(processor.text)} - FUNCTIONS.keys() - self.udfs.keys()
        # It may call a function that is not listed any more.
        if called - RESERVED - {"pattern"} and not self.binds(processor):
            return False
        return processor.pattern is None or names_in(processor.pattern) <= self.conditions.keys()

    def _number_of_text(self, text: str) -> int:
        """The number of a condition, which is stored with waiting events: it is the same in another run of the query."""
        for function in self.udfs.values():
            text = text.replace(function.registered, f"udf_{function.name.lower()}")
        return number_of(text)

    def _id_names(self, processor: PatternProcessor) -> list[str | int]:
        return [""] if self.ids_by_events else [processor.id, processor.version]

    def _limit(self, processor: PatternProcessor) -> int | None:
        limits = [limit for limit in (self.max_partial_matches, processor.max_partial_matches) if limit is not None]
        return min(limits, default=None)

    def _with_clause(self, processor: PatternProcessor) -> BoundClauseProcessor:
        assert processor.sql is not None
        written = read(processor.sql)
        for partition_key in written.partition_by:
            try:
                self.key_expressions((partition_key.expression.text,))
            except ExpressionError as error:
                raise error.moved(written.text, partition_key.expression.start) from None
        if processor.suppress is not None and written.rows is RowsPerMatch.ALL_WITH_UNMATCHED:
            raise PatternProcessorError(
                "suppress cannot be combined with WITH UNMATCHED ROWS, whose rows are no matches"
            )
        key = tuple(partition_key.expression.text for partition_key in written.partition_by)
        selector = selector_of_partitions(key, self.keys)
        clause = ClauseOfRule(written, self.schema, self.time, self._limit(processor), *self._id_names(processor))
        starts = () if clause.starts is None else (clause.starts,)
        conditions = tuple(number_of("starts", repr(start)) for start in starts)
        words = {word.lower() for word in re.findall(r"\w+", processor.sql)}
        kept = frozenset(name for name in self.lookups if name.lower() in words)
        return BoundClauseProcessor(
            processor,
            self.schema,
            selector,
            conditions,
            starts,
            (None,) * len(starts),
            True,
            ((),) * len(starts),
            kept,
            clause,
        )

    def try_out(self, processor: PatternProcessor) -> BoundProcessor:
        """As :meth:`compile`, also evaluating some generated events. It may take no longer than a rule may take.

        :raises AsterismError: as :meth:`compile`; an error of SQL has its place in what the rule was translated from
        """
        try:
            return self._tried_out(processor)
        except ExpressionError as error:
            raise at_origin(error, processor, self.schema) from None

    def _tried_out(self, processor: PatternProcessor) -> BoundProcessor:
        with tried_before():  # evaluated together below
            bound = self.compile(processor)
        expressions = [self.key_expressions(bound.selector.expressions)[0]]
        if isinstance(bound, BoundPatternProcessor):
            expressions.append(bound.pattern.vectorized.what_is_evaluated())
            for output in bound.outputs.values():
                if output.measures is not None:
                    expressions += output.measures.expressions
            try:
                for source in bound.pattern.bit_sources:
                    if not isinstance(source, int):
                        python_mask(source, self.events.empty_table())
            finally:
                self.close()
        elif isinstance(bound, BoundClauseProcessor):
            expressions += bound.clause.expressions
        left = TRIAL
        for vectorized in expressions:
            left -= vectorized.try_out(left)
        if self.keeps_tried and isinstance(bound, BoundPatternProcessor) and not self.functions and not self.conditions:
            self._tried[processor.text] = bound
        return bound

    def key_expressions(self, selector: tuple[str, ...]) -> tuple[Vectorized, list[int]]:
        """Return the distinct expressions of a selector, and for each of its expressions the index among them."""
        if selector not in self._selectors:
            with listed(self.udfs):
                expressions, scope = Vectorized(self.events), Scope(self.events)
            numbers = [expressions.add(scope.resolve(scope.parse(text), text), text) for text in selector]
            self._selectors[selector] = expressions, numbers
        return self._selectors[selector]

    def looked_up(
        self, events: pa.Table, versions: Iterable[LookupVersion], read: Callable[[LookupVersion], bytes]
    ) -> dict[str, pa.Array]:
        """The columns of lookups for events.

        :param versions: of the tables; a lookup without one is left out
        :param read: see :func:`~asterism.rules.definition.lookup_tables.table_of`
        """
        columns: dict[str, pa.Array] = {}
        for version in versions:
            lookup = self.lookups.get(version.name)
            if lookup is not None:
                if lookup.name not in self._on:
                    self._on[lookup.name] = lookup.key_expressions(self.events)
                keys = lookup.keys_of(events, self._on[lookup.name])
                columns[lookup.name] = table_of(lookup, version, read).of_keys(keys)
        return columns


_BOUND: WeakValueDictionary[tuple[str, int], BoundProcessor] = WeakValueDictionary()
_BOUND_TOGETHER = IdentityCache[tuple[BoundProcessor, ...]](MAX_TOGETHER)
"""The bound rules of a few sets. The cache keeps them in use from one micro-batch to the next."""
