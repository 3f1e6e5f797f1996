"""Matches many patterns, which can change while the stream runs, in one operator.

The events are a keyed input, and the sets of pattern processors are a broadcast input. Before the exchange, an event is copied
for each key by which some processor groups (:mod:`asterism.rules.binding.replication`). In a key group, a set takes effect at
the watermark before the call that brings it: each processor in force sees the copies of its selector whose times it covers,
also those that arrived before it and still wait (docs/decisions/0087). All processors with a pattern are matched in one call
(:mod:`asterism.rules.matching.selections`, docs/decisions/0010), those with a clause one by one
(:mod:`asterism.rules.binding.clauses`).

Source: FLIP-200.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.caches import IdentityCache
from asterism.changes.partial_matches import PARTIAL
from asterism.changes.plan import CONTINUES, DROPPED, Counts
from asterism.columns.arrays import Ints, Mask, cast_to
from asterism.columns.groups import offsets_of
from asterism.columns.keys import KEY
from asterism.columns.schemas import small_type
from asterism.columns.sort_keys import SortKey, check_order, order_of
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, NO_TIME, TIME, Described, TimeColumn
from asterism.errors import AsterismError, LimitExceededError, PatternProcessorError
from asterism.expressions.ranges import Ranges
from asterism.expressions.routines.user_functions import UserFunctions
from asterism.matching.matcher import Step, enough_memory
from asterism.matching.operator import event_times
from asterism.matching.page import Page, resident
from asterism.matching.process_function import MatchFunctionLike, check_names, declared_by
from asterism.matching.spec import PROCESSING_TIME, check_limit
from asterism.operators.counted import Counted
from asterism.operators.evolution import FIXED, aligned, aligned_tables, check_evolution, mismatch
from asterism.operators.key_group import LATE as LATE_ELEMENTS
from asterism.operators.key_group import Group, KeyGroupOperator, late_table
from asterism.operators.operator import EVENTS, Arrival, InputSpec
from asterism.operators.state.page_numbers import CLAUSES_PAGE, SETS_PAGE, SUPPRESSIONS_PAGE
from asterism.operators.state.pages import Pages
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import KeptPage
from asterism.operators.state.waiting_events import WaitingEvents
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import (
    NO_KEY,
    BoundClauseProcessor,
    BoundPatternProcessor,
    BoundProcessor,
    ProcessorCompiler,
    Selector,
)
from asterism.rules.binding.clause_events import ClauseEvents
from asterism.rules.binding.clauses import ClauseOutcome
from asterism.rules.binding.replication import (
    FAILED,
    FIRST,
    MET,
    SELECTOR,
    SINCE,
    CopyFilter,
    RuleConditions,
    copies_of,
    copies_schema,
    failure_of,
    flattened,
    ranges_needed,
    selectors_of_rules,
    stored_columns,
    to_evaluate_again,
    with_numbers,
)
from asterism.rules.definition.lookup_tables import LookupColumn, keep_versions
from asterism.rules.definition.processor import PatternProcessor, RuleName
from asterism.rules.definition.registered_conditions import RegisteredCondition
from asterism.rules.matching.active_rules import ActiveRules, selectors_of
from asterism.rules.matching.adoption import Adoption, adoptions_of
from asterism.rules.matching.lookup_changes import LookupConversion, check_lookups, unusable_rules
from asterism.rules.matching.result_rows import (
    ERRORS,
    LATE,
    MATCHES,
    SHADOW,
    TIMED_OUT,
    TIMED_OUT_OF_SHADOWS,
    OutputRows,
    RuleResults,
)
from asterism.rules.matching.selections import ENTRY, KEYS, RuleFailure
from asterism.rules.matching.state_pages import (
    NO_SETS,
    SET_SCHEMA,
    ClauseState,
    KnownSelector,
    ResidentRulePage,
    SetState,
    clauses_from,
    clauses_to,
    entries_of_page,
    entries_to,
    joined,
    page_parts,
    page_to,
    set_from,
)
from asterism.rules.matching.suppression import Emission, Suppressions
from asterism.rules.sets import rule_counts
from asterism.rules.sets.kill_list import is_named
from asterism.rules.sets.rule_counts import metric
from asterism.rules.sets.sets import (
    Entries,
    Entry,
    ProcessorSet,
    ProcessorSource,
    Span,
    adopted_at_once,
)

PROCESSORS = "processors"
SUPPRESSED = "suppressed"
"""The metric that counts the rows of suppressed matches."""
MAX_PARTIAL_MATCHES = 10_000
"""The default for the maximum number of partial matches of a processor per key."""
MAX_STATE = 2**30
"""The maximum size in bytes of the partial matches of a key group and their events, at the end of a call, and of the rows of the
processors with a clause. Beyond it, the processor with the most of them is disabled, a shadow first. The limit protects the
query, because Spark cannot store more than twice that.
"""
_ROOM = 2**22
"""A page is at most so many bytes larger than its arrays in memory."""
_COLUMNS = "a column of the events"
"""The name of the hash of the columns in the fixed part of a definition."""
_NAMED = IdentityCache[tuple[tuple[PatternProcessor, ...], bool]](8)
"""The results of :meth:`DynamicCepOperator._named`."""
_log = logging.getLogger("asterism.rules.processor")


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOptions:
    keys: Sequence[str] = ()
    """The key of the stream: columns or SQL expressions; if empty, processors without a key have one key for all events."""
    time: str | None
    """The event-time column; None: processing time."""
    order_by: Sequence[str] = ()
    """The order of events with equal times, as in :class:`asterism.KeyedStream`."""
    semantics: Semantics = Semantics.DEFAULT
    functions: Mapping[str, MatchFunctionLike] = field(default_factory=dict)
    """See :class:`~asterism.rules.binding.binding.ProcessorCompiler`, as *conditions*, *udfs*, *lookups* and *ids_by_events*."""
    conditions: Mapping[str, RegisteredCondition] = field(default_factory=dict)
    udfs: UserFunctions | None = None
    lookups: Sequence[LookupColumn] = ()
    ids_by_events: bool = False
    max_partial_matches: int | None = MAX_PARTIAL_MATCHES
    """The maximum number of partial matches of a processor per key after each of its events, None: unlimited; it also limits
    the cost of a single event, see docs/limits.md.
    """
    disable_on_limit: bool = True
    """A processor that exceeds a limit is disabled as with *disable_on_error*."""
    disable_on_error: bool = False
    """A processor that fails is disabled in the key group where it failed, from the event at which it failed, and reported in
    the output ``errors``; otherwise the query fails. A shadow is always disabled.
    """
    wants_late: bool = False
    """Whether the output ``late`` is consumed; it then receives events without a time, which otherwise make the query fail."""
    wants_shadow: bool = True
    """Whether the output ``shadow`` is consumed; otherwise, the matches of shadows are only counted."""
    waiting_time: int | None = None
    """How long before the latest event of a batch an event must be so that it cannot wait for the watermark, in microseconds:
    the maximum out-of-orderness, and a millisecond; None: any event may wait; 0: the rules do not change. If each partition has a
    watermark, this is about the events of a partition.
    """
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Names of processors (``id`` or ``id@version``) that are disabled in every key group and for which nothing is compiled or
    evaluated; each with the number of the last set to which this applies.
    """


@dataclass(slots=True)
class _RuleGroup(Group):
    """A key group during a call, with its sets of rules."""

    stored: SetState = field(init=False)
    """The sets before the call."""
    sets: SetState = field(init=False)
    """The sets as changed by the call."""
    of_pages: Entries = field(init=False)
    """The entries to which the stored pages belong: those before the call, or before a switch within it."""
    adoptions: list[Adoption] = field(default_factory=list)
    """What the processors adopt that have come into force since."""
    expired: int = NO_TIME
    """The last time at which a processor was found to have expired."""

    def __post_init__(self) -> None:
        self.stored = self.sets = entries_of_page(self.store.read_page(SETS_PAGE))
        self.of_pages = self.stored.entries

    def change(self, **parts: Any) -> None:
        self.sets = self.sets._replace(**parts)

    def pass_time(self, time: int) -> None:
        entries = self.sets.entries
        # At the end of the stream, event time has not reached the times of the remaining processors.
        if time != END_OF_TIME and entries.has_expired(time):
            self.expired = time
        self.change(entries=entries.passed(time))

    def begin(self, pairs: Sequence[tuple[Entry, Entry]], compiler: ProcessorCompiler, passed: int) -> None:
        """Let entries of :attr:`sets` adopt the partial matches of others (see :func:`adopted_at_once`).

        :param passed: the time up to which these have processed everything
        """
        self.adoptions += adoptions_of(pairs, self.sets.entries, compiler, passed)

    def disable(self, names: Collection[RuleName]) -> None:
        if names:
            entries = self.sets.entries
            self.change(entries=Entries.of(replace(e, disabled=True) if e.name in names else e for e in entries))

    @property
    def has_new_timed(self) -> bool:
        """Whether a processor with a timestamp is new in this call, or was a shadow before it."""
        if self.sets.version == self.stored.version or not self.sets.entries.are_scheduled:
            return False
        before = {(entry.name, entry.processor.shadow) for entry in self.stored.entries}
        return any(
            entry.begins is not None and (entry.name, entry.processor.shadow) not in before
            for entry in self.sets.entries
        )


def _call_of(group: Group) -> _RuleGroup:
    assert isinstance(group, _RuleGroup)
    return group


class DynamicCepOperator(KeyGroupOperator):
    """Pattern processors over one stream of events.

    :param schema: the columns of the events
    :param source: provides the sets for :meth:`prepare`
    """

    group_type = _RuleGroup

    def __init__(self, schema: pa.Schema, source: ProcessorSource, options: RuleOptions) -> None:
        check_limit(options.max_partial_matches)
        self.schema, self.source, self.options = schema, source, options
        self.order_by = [SortKey.of(text) for text in options.order_by]
        check_order(schema, self.order_by)
        self.processing_time = options.time is None
        self.time = PROCESSING_TIME if options.time is None else TimeColumn.of(options.time, schema)
        self.compiler = ProcessorCompiler(
            schema,
            options.keys,
            self.time,
            options.semantics,
            options.functions,
            options.max_partial_matches,
            options.conditions,
            udfs=options.udfs,
            lookups=options.lookups,
            ids_by_events=options.ids_by_events,
        )
        self.fixed_pages, self.pages = False, 1
        usual = (MATCHES, TIMED_OUT, SHADOW, ERRORS, SUPPRESSED, LATE_ELEMENTS)
        declared = declared_by(self.compiler.match_functions)
        self.metrics = (*usual, f"{rule_counts.FAMILY}/*", *declared.counters)
        self.gauges = {name: gauge.aggregate for name, gauge in declared.gauges.items()}
        self.histograms = {name: histogram.buckets for name, histogram in declared.histograms.items()}
        prepared = copies_schema(self.compiler.schema)
        self.inputs = {
            PROCESSORS: InputSpec(pa.schema([]), SET_SCHEMA, broadcast=True, timed=False),
            EVENTS: InputSpec(schema, prepared, timed=not self.processing_time),
        }
        self.results = RuleResults(schema, self.time, self.compiler, wants_shadow=options.wants_shadow)
        for function in self.compiler.match_functions:
            check_names(function, self.results.schemas, (*usual, rule_counts.FAMILY))
        self.output_schemas = {**self.results.schemas, **declared.outputs}
        self.fingerprint = self._hash_of(prepared, {lookup.name: lookup.key for lookup in options.lookups})

    @property
    def definition(self) -> StateDefinition:
        return StateDefinition(
            OperatorKind.RULES,
            pa.schema([(KEY, pa.string())]),
            {EVENTS: self.compiler.schema},
            {name: spec.prepared for name, spec in self.inputs.items()},
            {
                "keys": self.compiler.keys,
                "semantics": self.compiler.semantics.value,
                "time": None if self.processing_time else self.time.name,
                "unit": self.time.unit,
                "lookups": {lookup.name: list(lookup.key) for lookup in self.compiler.lookups.values()},
                FIXED: {
                    "the key of the stream": ", ".join(self.compiler.keys) or "none",
                    "semantics": self.compiler.semantics.value,
                    "the event time": repr(Described(self.time)),
                    _COLUMNS: "#" + self._hash_of(copies_schema(self.schema)).hex(),
                },
            },
        )

    def _hash_of(self, prepared: pa.Schema, lookups: Mapping[str, Sequence[str]] | None = None) -> bytes:
        """:param lookups: the keys of lookups, if they count"""
        parts = (self.compiler.semantics, list(self.compiler.keys), Described(self.time), str(prepared))
        keys = [(name, list(key)) for name, key in (lookups or {}).items()]
        return hashlib.sha256(repr((*parts, keys) if keys else parts).encode()).digest()[:16]

    # ------------------------------------------------------------------ state of a former definition

    def check_state(self, old: StateDefinition, group: Group | None = None) -> None:
        self._check_columns(old)
        check_evolution(self._without_lookups(old), self._without_lookups(self.definition))
        self._conversion(old, NO_SETS.entries if group is None else _call_of(group).sets.entries)

    def _check_columns(self, old: StateDefinition) -> None:
        """:raises CheckpointMismatchError: the columns of the events are different; their order does not matter"""
        if old.kind is not OperatorKind.RULES:
            return
        before, now = self._former_events(old), self.schema
        changes = [f'"{name}" was added' for name in now.names if name not in before.names]
        changes += [f'"{name}" was removed' for name in before.names if name not in now.names]
        changes += [
            f'"{field.name}" was {field.type} and is {now.field(field.name).type}'
            for field in before
            if field.name in now.names and small_type(now.field(field.name).type) != small_type(field.type)
        ]
        if changes:
            raise mismatch(
                "the columns of the events changed",
                f"The column {'; the column '.join(changes)}.\nRules keep all columns of an event in their state.",
                f"select the columns that the query had before: {', '.join(before.names)}",
            )

    def _former_events(self, old: StateDefinition) -> pa.Schema:
        """The columns of the events of a former definition, without lookups."""
        lookups = {lookup.name for lookup in self._former_lookups(old)}
        return pa.schema([field for field in old.tables[EVENTS] if field.name not in lookups])

    def check_rules(self, old: StateDefinition, processors: Iterable[PatternProcessor]) -> None:
        """:raises StateError: a rule in state with the definition *old* reads a column that a lookup no longer has"""
        check_lookups(processors, self._former_lookups(old), self.compiler)

    def _former_lookups(self, old: StateDefinition) -> list[LookupColumn]:
        columns, keys = old.tables[EVENTS], dict[str, Sequence[str]](old.details.get("lookups", {}))
        return [
            LookupColumn(name, tuple(key), (), pa.schema(list(columns.field(name).type))) for name, key in keys.items()
        ]

    def _without_lookups(self, definition: StateDefinition) -> StateDefinition:
        """The part of a definition that cannot change."""
        if definition.kind is not OperatorKind.RULES:
            return definition
        # The hash of the columns depends on their order: see _check_columns.
        fixed = {**definition.details.get(FIXED, {}), _COLUMNS: ""}
        lookups = {f"e:{lookup.name}" for lookup in self._former_lookups(definition)}
        events = pa.schema([field for field in definition.inputs[EVENTS] if field.name not in lookups])
        inputs, details = {**definition.inputs, EVENTS: events}, {**definition.details, FIXED: fixed}
        return replace(definition, inputs=inputs, details=details)

    def _conversion(self, old: StateDefinition, entries: Entries) -> LookupConversion:
        return LookupConversion.of(self._former_events(old), self._former_lookups(old), entries, self.compiler)

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        before, now = (stored_columns(schema) for schema in (old.tables[EVENTS], self.compiler.schema))
        names, content = page_parts(page)
        if not content or before.equals(now):
            return page
        decoded = Page.from_bytes(content, KEYS, before)
        return names + replace(decoded, events=aligned(decoded.events, now)).to_bytes()

    def converted_events(self, group: Group, old: StateDefinition, name: str, events: pa.Table) -> pa.Table:
        events = super().converted_events(group, old, name, events)
        if name != EVENTS:
            return events
        conversion = self._conversion(old, _call_of(group).sets.entries)
        return to_evaluate_again(with_numbers(events, conversion.written, conversion.numbers))

    def evolved(self, group: Group, old: StateDefinition) -> None:
        stored = group.store.read_page(CLAUSES_PAGE)
        if stored is None:
            return
        clauses = self._conversion(old, _call_of(group).sets.entries).clauses
        states = [
            replace(state, value=aligned_tables(state.value, *clauses[state.name])) if state.name in clauses else state
            for state in clauses_from(stored).values()
        ]
        group.store.write_page(CLAUSES_PAGE, clauses_to(states))

    def close(self) -> None:
        self.compiler.close()

    # ------------------------------------------------------------------ before the exchange

    def latest(self, name: str, events: pa.Table, prepared: pa.Table) -> int:
        # Includes events that are relevant to no processor.
        if self.processing_time or name != EVENTS:
            return NO_TIME
        times = self.time.to_micros(events.column(self.time.name), lenient=self.options.wants_late)
        known = times.drop_null() if times.null_count else times
        return int(known.to_numpy().max(initial=NO_TIME))

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The copies of the events, with KEY_HASH."""
        if name == PROCESSORS:
            raise AssertionError("sets must be created by prepared_set")
        full = pa.table([cast_to(events.column(f.name), f.type) for f in self.schema], schema=self.schema)
        times = event_times(full, self.time, self.processing_time, self.options.wants_late)
        first = NO_TIME if self.processing_time or times.null_count else pc.min(times).as_py()
        retained = self.source.retained()
        named, timeless = self._named(retained)
        processors = named
        if not timeless:
            used = {id(p) for processor_set in retained for p in processor_set.used_from(first)}
            processors = tuple([p for p in named if id(p) in used])
        bound = self._bound(processors, retained)
        kept = self._may_wait(times)
        selectors: dict[int, Selector] = {}
        if kept is not None:
            stream = self.compiler.stream_selector
            selectors = {stream.number: stream, **selectors_of_rules(self._bound(named, retained))}
        versions = [{version.name: version for version in processor_set.lookups} for processor_set in retained]
        for lookup in self.compiler.lookups.values():
            keep_versions(lookup, {known[lookup.name].digest for known in versions if lookup.name in known})
        return copies_of(
            full, times, bound, self.compiler, versions, self.source.read_lookup, kept=kept, selectors=selectors
        )

    def ranges_needed(self) -> Ranges | None:
        """See :func:`~asterism.rules.binding.replication.ranges_needed`, of all events of a table."""
        if not self.processing_time and self.options.waiting_time != 0:
            return None
        retained = self.source.retained()
        return ranges_needed(self._bound(self._named(retained)[0], retained))

    def _named(self, retained: Sequence[ProcessorSet]) -> tuple[tuple[PatternProcessor, ...], bool]:
        """The processors of sets without those that are left out, and whether all are in force at any event time."""
        killed = [{*each.killed, *self._left_out(each.version)} for each in retained]

        def named() -> tuple[tuple[PatternProcessor, ...], bool]:
            found = {
                id(p): p
                for names, processor_set in zip(killed, retained, strict=True)
                for p in processor_set.all_processors
                if not is_named(p, names)
            }
            return tuple(found.values()), all(processor_set.is_timeless for processor_set in retained)

        return _NAMED.of(retained, named, *map(frozenset, killed))

    def _may_wait(self, times: pa.Array | pa.ChunkedArray) -> Mask | None:
        """Which events may wait for the watermark. None: none."""
        if self.processing_time or self.options.waiting_time == 0 or not len(times):
            return None
        values = times.to_numpy()
        timed: Mask = values != NO_TIME
        if self.options.waiting_time is not None and not self.inputs[EVENTS].watermark_by:
            timed &= values > int(values.max()) - self.options.waiting_time
        return timed

    def _bound(
        self, processors: Collection[PatternProcessor], retained: Sequence[ProcessorSet]
    ) -> Sequence[BoundProcessor]:
        """The processors, but none of older sets that read a removed lookup: a key group that has one does not continue."""
        try:
            return self.compiler.bind_all(processors)
        except AsterismError:
            newest = {id(processor) for processor in retained[-1].all_processors}
            return self.compiler.bind_all(
                processor for processor in processors if id(processor) in newest or self.compiler.binds(processor)
            )

    def _left_out(self, version: int) -> set[str]:
        """The names of processors that are left out while the set *version* is the newest."""
        return {name for name, last in self.options.left_out.items() if version <= last}

    # ------------------------------------------------------------------ with state

    def arrived(self, group: Group, arrivals: Sequence[Arrival], time: int) -> Sequence[Arrival]:
        """Apply the newest set, and return the copies of events that a processor requires, or that wait. Copies for sets that are
        not announced yet, or that an earlier attempt at this call did not know, are left out.
        """
        sets = [
            set_from(value)
            for arrival in arrivals
            if arrival.input == PROCESSORS and arrival.events is not None
            for value in arrival.events.column("set").to_pylist()
        ]
        newest = max(sets, key=lambda processor_set: processor_set.version, default=None)
        call = _call_of(group)
        call.change(waiting_time=self._longest_wait(call, time))
        if call.sets.version and call.sets.selectors is None:
            self._convert_waiting(call)
        due = [pair for pair in call.sets.entries.in_turn if pair[0].first_time <= time]
        call.pass_time(time)
        call.begin(due, self.compiler, time)
        if newest is not None and newest.version > call.sets.version:
            if any(p.effective_until is not None and p.effective_until <= time for p in newest.all_processors):
                call.expired = time
            before, entries = call.sets.entries, call.sets.entries.after(newest, time)
            call.change(version=newest.version, lookups=newest.lookups, entries=entries)
            call.begin(adopted_at_once(before, entries, time), self.compiler, time)
        call.change(entries=call.sets.entries.without(self._left_out(call.sets.version)))
        selectors = self._known_selectors(call, newest, time)
        call.change(selectors=selectors)
        copy_filter = self._copy_filter(call)
        arrivals = [arrival for arrival in arrivals if arrival.input == EVENTS]
        arrived = [arrival.events for arrival in arrivals if arrival.events is not None]
        if not arrived:
            return arrivals
        late, passes = NO_TIME, END_OF_TIME
        if not self.processing_time:
            late, passes = time, max(time, group.watermark)
        until_of = {number: until for number, _, until in selectors}
        copies = copy_filter.of_arrivals(pa.concat_tables(arrived), call.sets.version, late, passes, until_of)
        # One table, because each table takes time.
        whole = Arrival(EVENTS, copies)
        return [whole, *(replace(arrival, events=None) for arrival in arrivals)]

    def _convert_waiting(self, call: _RuleGroup) -> None:
        """Give events that have waited since an earlier release the selectors of clauses, once those of others with their key."""
        known = [entry.processor for entry in call.sets.entries if not entry.killed]
        bound = [self.compiler.bind(processor) for processor in known if self.compiler.binds(processor)]
        numbers = {rule.selector.seed: rule.number for rule in bound if rule.number != rule.selector.seed}
        if not numbers:
            return

        def with_copies(copies: pa.Table) -> pa.Table:
            parts = [copies]
            for before, number in numbers.items():
                selected = copies.filter(pc.equal(copies.column(SELECTOR), before))
                column = pa.array(np.full(selected.num_rows, number))
                parts.append(selected.set_column(0, copies.schema.field(SELECTOR), column))
            return pa.concat_tables(parts)

        place = list(self.inputs).index(EVENTS)
        WaitingEvents(call.store, call.header, place, self.inputs[EVENTS].prepared).replace(with_copies)

    def _copy_filter(self, call: _RuleGroup) -> CopyFilter:
        return CopyFilter.of(self._in_force(call).bound, {version.name: version for version in call.sets.lookups})

    def _known_selectors(self, call: _RuleGroup, new: ProcessorSet | None, time: int) -> tuple[KnownSelector, ...]:
        """The selectors of which every event that may wait has a copy.

        :param new: the set that has arrived, if there is one
        :param time: the watermark before the call
        """
        before, left_out = call.stored.selectors, self.options.left_out
        if before is not None and new is None and not left_out:
            return before
        stream = self.compiler.stream_selector.number
        numbers = {stream, *(bound.number for bound in self._in_force(call).bound)}
        known = {stream: KnownSelector(stream, 0)} | {each.number: each for each in before or ()}
        if before is None:  # an earlier release has written the state; events that arrive from now on have all copies
            former = [entry.processor for entry in call.stored.entries if not entry.killed]
            former_numbers = (bound.number for bound in map(self.compiler.bind, filter(self.compiler.binds, former)))
            known |= {number: KnownSelector(number, 0) for number in former_numbers}
        if new is not None and not left_out:
            # Rules of the set that have expired can be extended. Nothing is copied for rules that are left out.
            numbers |= selectors_of(new, self.compiler)
        elif not left_out:
            numbers |= known.keys()
        latest = self._latest_arrived(call, time)
        return tuple(known.get(number, KnownSelector(number, call.sets.version, latest)) for number in sorted(numbers))

    def _longest_wait(self, call: _RuleGroup, time: int) -> int:
        """How far the latest event that has arrived can be after *time*, or after the watermark of its partition."""
        longest = max(call.sets.waiting_time, self.options.waiting_time or 0)
        place = list(self.inputs).index(EVENTS)
        if call.partitions_before.get(place) is not call.header.partitions.get(place) and time != BEFORE_TIME:
            # The partitions of a former run are forgotten, but not how far the fastest was ahead.
            longest += max(0, call.latest_before.get(place, time) - time)
        return longest

    def _latest_arrived(self, call: _RuleGroup, time: int) -> int:
        """The latest time of the events that have arrived before this call. It is not known if the watermark comes from other
        operators.

        :param time: the watermark before the call
        """
        if time == BEFORE_TIME or not self.options.waiting_time:
            return BEFORE_TIME
        place = list(self.inputs).index(EVENTS)
        return max(time, call.latest_before.get(place, BEFORE_TIME)) + call.sets.waiting_time

    def _in_force(self, call: _RuleGroup) -> ActiveRules:
        """:raises StateError: an entry was in force in a former definition of the query, and cannot be used with this one"""
        try:
            return ActiveRules.of(call.sets.entries, self.compiler)
        except AsterismError as error:
            # Without events that wait and partial matches, a key group has no definition to compare.
            before = [entry.processor for entry in call.stored.entries if not entry.killed]
            unusable = [processor for processor in before if not self.compiler.binds(processor)]
            if not unusable:
                raise
            raise unusable_rules(unusable, error) from error

    def _passed(self, sets: SetState, copies: pa.Table, copy_filter: CopyFilter) -> pa.Table:
        """The copies that the watermark has passed and that a processor requires, with the bits and lookups of the newest set."""
        whole = copies.column(FIRST).to_numpy()
        if whole.any():
            copies = self._that_waited(sets, copies, whole, copy_filter)
        return self._with_lookups(sets, copies, copy_filter)

    def _that_waited(self, sets: SetState, copies: pa.Table, whole: Mask, copy_filter: CopyFilter) -> pa.Table:
        """:param whole: the copies that were kept regardless of processors; all others stay unchanged"""
        known = sets.selectors or (KnownSelector(0, 0),)
        numbers, first_sets, _ = (np.array(column, np.int64) for column in zip(*known, strict=True))
        selectors, since = copies.column(SELECTOR).to_numpy(), copies.column(SINCE).to_numpy()
        at = np.minimum(np.searchsorted(numbers, selectors), len(numbers) - 1)
        kept = ~whole | ((numbers[at] == selectors) & (since >= first_sets[at]))
        if not kept.all():
            copies, whole, since = copies.filter(pa.array(kept)), whole[kept], since[kept]
        changed = whole & ((since < sets.version) | copies.column(MET).is_null().to_numpy())
        if changed.any():
            versions = {version.name: version for version in sets.lookups}
            again = copies.filter(pa.array(changed))
            again = copy_filter.evaluated_again(again, sets.version, self.compiler, versions, self.source.read_lookup)
            order = np.concatenate([np.flatnonzero(~changed), np.flatnonzero(changed)])
            copies = pa.concat_tables([copies.filter(pa.array(~changed)), again]).take(pa.array(np.argsort(order)))
        wanted = ~whole | copy_filter.required(copies, whole)
        return copies if wanted.all() else copies.filter(pa.array(wanted))

    def _with_lookups(self, sets: SetState, copies: pa.Table, copy_filter: CopyFilter) -> pa.Table:
        """The copies with the lookups that are read after the exchange, also in messages about events that failed."""
        if not sets.lookups or not copies.num_rows:
            return copies
        failed = pc.list_value_length(copies.column(FAILED)).to_numpy() > 0
        selectors = copies.column(SELECTOR).to_numpy()
        # Events that have waited since an earlier release, and a set of it, keep what they have seen.
        now = copies.column(SINCE).to_numpy() == sets.version
        for version in sets.lookups:
            needed = now & (failed | np.isin(selectors, copy_filter.kept_lookups.get(version.name, ())))
            if version.name not in self.compiler.lookups or not needed.any():
                continue
            rows = np.flatnonzero(needed)
            selected = copies.take(pa.array(rows))
            events = pa.table([selected.column(f"e:{name}") for name in self.schema.names], schema=self.schema)
            column = self.compiler.looked_up(events, [version], self.source.read_lookup)[version.name]
            place = np.full(copies.num_rows, -1, np.int64)
            place[rows] = np.arange(len(rows))
            number = copies.column_names.index(f"e:{version.name}")
            column = pc.if_else(pa.array(needed), column.take(pa.array(place, mask=~needed)), copies.column(number))
            copies = copies.set_column(number, copies.schema.field(number), column)
        return copies

    def must_advance(self, group: Group) -> bool:
        call = _call_of(group)
        # The state of removed processors must be deleted.
        return call.sets[:3] != call.stored[:3] or bool(self._switches(call, self._horizon(call)))

    def _horizon(self, call: _RuleGroup) -> int:
        return call.watermark if self.event_time else call.processing_time

    def _switches(self, call: _RuleGroup, horizon: int) -> list[int]:
        """The times until *horizon* at which a processor comes into force that adopts partial matches."""
        return sorted({new.first_time for new, _ in call.sets.entries.in_turn if new.first_time <= horizon})

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE_ELEMENTS] += events.num_rows
        group.emit(LATE, late_table(self.schema, events))

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None]:
        call = _call_of(group)
        copies = ready[EVENTS] if EVENTS in ready else self.inputs[EVENTS].prepared.empty_table()
        if copies.num_rows:
            copies = self._passed(call.sets, copies, self._copy_filter(call))
        if self.order_by:  # rules keep this order among equal times
            order = order_of(copies, [key._replace(name="e:" + key.name) for key in self.order_by])
            copies = copies.take(pa.array(order))
        # Before a switch at which partial matches are adopted, everything is processed as if the call ended there.
        over, expired = call.over, call.expired
        while switches := self._switches(call, horizon):
            begin, call.over = switches[0], False
            earlier = pc.less(copies.column(TIME), begin)
            yield from self._advance(call, copies.filter(earlier), begin - 1)
            copies, call.of_pages = copies.filter(pc.invert(earlier)), call.sets.entries
            pairs = [pair for pair in call.of_pages.in_turn if pair[0].first_time <= begin]
            call.pass_time(begin)
            call.begin(pairs, self.compiler, begin - 1)
        call.over = over
        if over:  # event time has not reached the times of all switches
            call.expired = expired
        yield from self._advance(call, copies, horizon)

    def _advance(self, call: _RuleGroup, copies: pa.Table, horizon: int) -> Iterator[None]:
        group, in_force = call, self._in_force(call)
        # State of processors that are removed or end is deleted. If there is much, it is checked against the limit.
        an_entry_ends = in_force.first_end is not None and in_force.first_end <= horizon
        everything = self.must_advance(group) or an_entry_ends or group.header.size > MAX_STATE // 2
        everything |= bool(call.adoptions)

        def load(*, everything: bool) -> Pages:
            events = [copies] if in_force.with_pattern or in_force.with_clause else []
            return group.load(events, [KEY], horizon, everything=everything, undivided=in_force.undivided)

        pages = load(everything=everything)
        failed: set[RuleName] = set()
        stored_suppressions = group.store.read_page(SUPPRESSIONS_PAGE) if call.of_pages.suppress else None
        suppressions = Suppressions(stored_suppressions)
        for adoption in call.adoptions:
            if adoption.change is not None:
                suppressions.adopt(adoption.new, adoption.old)
        if in_force.with_pattern:
            pages, remaining, failed = yield from self._match(
                group, in_force, pages, load, copies, suppressions, horizon
            )
        else:
            remaining = _Remaining.nothing(self.inputs[EVENTS].prepared)
            if call.adoptions:  # clauses do not adopt partial matches
                fates = dict[RuleName, Counts]()
                joined(pages, in_force, stored_columns(self.compiler.schema), call.adoptions, fates)
                _count_adopted(call, call.adoptions, fates)
        states, others = yield from self._match_clauses(call, in_force, copies, suppressions, horizon)
        call.adoptions = []
        call.disable(failed | others)
        call.pass_time(horizon)
        suppressed, forgets = self._forget(call, suppressions, states, horizon)
        if suppressed != stored_suppressions:
            group.store.write_page(SUPPRESSIONS_PAGE, suppressed)
        next_switch = [new.first_time for new, _ in call.sets.entries.in_turn]
        first = min([forgets, *next_switch, *(state.deadline for state in states)])
        keys = remaining.page.keys.select([KEY])
        if not keys.num_rows and (states or suppressed is not None):
            keys = pa.table({KEY: [NO_KEY]})  # the page exists

        def encoded(parts: Sequence[Ints]) -> Iterator[tuple[bytes | KeptPage, int, int]]:
            if not remaining.page.keys.num_rows:
                yield page_to(in_force, remaining.page), first, END_OF_TIME
                return
            deadlines = remaining.deadlines_of(parts, exact=pages.is_one)
            for deadline, content in zip(deadlines, resident(remaining.page, parts), strict=True):
                value = ResidentRulePage(in_force, content)
                yield value if pages.keeps else value.to_bytes(), min(first, deadline), END_OF_TIME

        pages.rewrite(lambda: keys, pages.of_keys(keys), encoded)

    def finish(self, group: Group, horizon: int) -> None:
        call = _call_of(group)
        entries = call.sets.entries
        replaced = entries.replaced_later
        # Includes a version that is replaced within the call.
        if replaced != call.stored.entries.replaced_later or call.has_new_timed:
            self.source.replaced_later(call.sets.version, replaced)
        if call.expired != NO_TIME:
            self.source.expired(call.expired)
        if group.over:
            if call.stored.version:
                group.store.write_page(SETS_PAGE, None)
            # A later run begins without this state.
            ended = [entry.name for entry in entries if entry.disabled and not entry.killed]
            group.metrics |= dict.fromkeys((metric(rule_counts.ENABLED, name) for name in ended), 1)
        elif call.sets.version and call.sets != call.stored:
            group.store.write_page(SETS_PAGE, entries_to(call.sets))
        if entries.are_scheduled and BEFORE_TIME < horizon < END_OF_TIME:
            group.metrics[rule_counts.WATERMARK] = horizon

    def _forget(
        self, call: _RuleGroup, suppressions: Suppressions, states: Sequence[ClauseState], horizon: int
    ) -> tuple[bytes | None, int]:
        """The suppressions on which later matches depend, and when they end. If they are too large, rules are disabled."""
        if suppressions.is_empty and not call.sets.entries.suppress:
            return None, END_OF_TIME
        before = {entry.name for entry in call.of_pages if not entry.disabled}
        page_of = {state.name: state.value for state in states}
        while True:
            entries = {} if call.over else {entry.name: entry for entry in call.sets.entries if not entry.disabled}
            spans = {
                name: span for name, entry in entries.items() if (span := entry.processor.suppress_micros) is not None
            }

            def undecided(name: RuleName, entries: Mapping[RuleName, Entry] = entries) -> set[str]:
                """The keys of a processor with a clause for which later matches may have earlier times."""
                if name not in page_of:
                    return set()
                bound = _with_clause(self.compiler.bind(entries[name].processor))
                return set(bound.clause.waiting_keys(page_of[name]).to_pylist())

            value, deadline = suppressions.after(spans, horizon, undecided, changed=not before <= entries.keys())
            if value is None or len(value) <= MAX_STATE:
                return value, deadline
            shadows = {name for name in spans if entries[name].processor.shadow}
            largest = entries[suppressions.largest(spans, shadows)]
            bound = self.compiler.bind(largest.processor)
            problem = f"the keys with suppressed matches have more than {MAX_STATE:,} bytes in a key group"
            detail = f"{len(value):,} bytes in all; {bound.name} has more of them than"
            failure = _too_large(bound, horizon, problem, detail, "suppress for a shorter time")
            self._check_disabling(bound, failure)
            self._report(call, largest, failure)
            call.disable({largest.name})

    def _match(
        self,
        group: Group,
        in_force: ActiveRules,
        pages: Pages,
        load: Callable[..., Pages],
        copies: pa.Table,
        suppressions: Suppressions,
        horizon: int,
    ) -> Generator[None, None, tuple[Pages, _Remaining, set[RuleName]]]:
        """Match *copies* against the processors with a pattern.

        :param load: loads all pages in place of *pages*
        :returns: the pages that were loaded, their remaining partial matches, and the names of the processors that failed
        """
        entries, bound = in_force.with_pattern, in_force.patterns
        selections, spans = in_force.selections, in_force.spans
        assert selections is not None
        adoptions, fates = _call_of(group).adoptions, dict[RuleName, Counts]()
        page = joined(pages, in_force, selections.event_schema, adoptions, fates)
        failures: dict[int, RuleFailure] = {}
        failed = self._failed_before(copies, bound, spans)
        common = self.compiler.ids_by_events
        events = np.zeros(len(bound), np.int64)

        def advanced(limited: Sequence[Span]) -> Iterator[Step | list[RuleFailure]]:
            return selections.advance(page, copies, limited, horizon, common_positions=common, counts=events)

        with enough_memory(lambda: _heaviest(bound, page, copies)):
            while True:
                self._note(bound, failures, failed)
                if failures and not pages.has_all:  # all partial matches of a processor that fails are deleted
                    pages = load(everything=True)
                    fates.clear()
                    page = joined(pages, in_force, selections.event_schema, adoptions, fates)
                limited = _until_failures(spans, failures)
                emission = Emission(entries, suppressions)
                step, made, failed = self._tried(bound, advanced(limited), emission, group.processing_time)
                if not failed:
                    break
            if made is None:  # the results are too large to be kept, so they are computed again now that nothing fails
                emission = Emission(entries, suppressions)
                step = yield from self._emit_steps(group, in_force, advanced(limited), emission)
            else:
                self._emit(group, made, entries)
            suppressions.take(emission)
            if emission.suppressed:
                group.metrics[SUPPRESSED] += emission.suppressed
            assert isinstance(step, Step)
            assert step.page is not None
            remaining = _Remaining(step.page, step.deadlines, step.latest_deadlines)
            while pages.has_all and (size := remaining.size_beyond(MAX_STATE, in_force)):
                failure = _too_much_state(bound, remaining.page, size, horizon)
                self._note(bound, failures, [failure])
                remaining = remaining.without(failure.entry)
        for number, failure in failures.items():
            self._report(group, entries[number], failure)
        _count_adopted(group, adoptions, fates)
        _count_partial_matches(group, in_force, page, remaining.page, failures)
        _count_events(group, in_force.metrics(rule_counts.EVENTS), events)
        return pages, remaining, {entries[number].name for number in failures}

    def _emit_steps(
        self, group: Group, in_force: ActiveRules, steps: Iterator[Step | list[RuleFailure]], emission: Emission
    ) -> Generator[None, None, Step | None]:
        last = None
        for step in steps:
            assert isinstance(step, Step)
            made, failed = self.results.of_step(in_force.patterns, step, emission, group.processing_time)
            if failed:
                error = min(failed, key=attrgetter("time")).error
                name = in_force.patterns[failed[0].entry].name
                raise PatternProcessorError(
                    f"{name} failed, but did not fail before on the same events", str(error)
                ) from error
            self._emit(group, made, in_force.with_pattern)
            last = step
            if not step.last:
                yield
        return last

    def _match_clauses(
        self, call: _RuleGroup, in_force: ActiveRules, copies: pa.Table, suppressions: Suppressions, horizon: int
    ) -> Generator[None, None, tuple[list[ClauseState], set[RuleName]]]:
        """:returns: the remaining states, and the names of the processors that failed"""
        entries, had_some = in_force.with_clause, bool(call.of_pages.with_clause)
        if not entries and not had_some:
            return [], set()
        before = clauses_from(call.store.read_page(CLAUSES_PAGE) if had_some else None)
        _adopt_searches(call, before)
        states: list[ClauseState] = []
        failures: dict[RuleName, RuleFailure] = {}
        bound = {entry.name: _with_clause(self.compiler.bind(entry.processor)) for entry in entries}
        events = ClauseEvents(copies, [*bound.values()])
        searched = np.zeros(len(entries), np.int64)
        for number, entry in enumerate(entries):
            rule, known = bound[entry.name], before.get(entry.name)
            state, failure, searched[number] = yield from self._match_clause(
                call, entry, rule, known, events, suppressions, horizon
            )
            if failure is not None:
                failures[entry.name] = failure
            elif state is not None:
                states.append(state)
        while sum(len(state.value) for state in states) > MAX_STATE:
            largest = max(states, key=lambda state: (bound[state.name].processor.shadow, len(state.value)))
            problem = f"the rows of the processors with a clause have more than {MAX_STATE:,} bytes in a key group"
            rule, hint = bound[largest.name], "bound its matches with WITHIN"
            detail = f"{len(largest.value):,} are of {rule.name}, more than of"
            failures[largest.name] = _too_large(rule, horizon, problem, detail, hint)
            states.remove(largest)
        for entry in entries:
            if entry.name in failures:
                self._check_disabling(bound[entry.name], failures[entry.name])
                self._report(call, entry, failures[entry.name])
        waiting = {state.name: state.waiting for state in states}
        for entry in entries:
            known = before.get(entry.name)
            change = waiting.get(entry.name, 0) - (0 if known is None else known.waiting)
            if change:
                call.metrics[metric(rule_counts.PARTIAL_MATCHES, entry.name)] += change
        _count_events(call, in_force.metrics(rule_counts.EVENTS, of_clauses=True), searched)
        if states or had_some:
            call.store.write_page(CLAUSES_PAGE, clauses_to(states) if states else None)
        return states, set(failures)

    def _match_clause(
        self,
        group: Group,
        entry: Entry,
        bound: BoundClauseProcessor,
        state: ClauseState | None,
        events: ClauseEvents,
        suppressions: Suppressions,
        horizon: int,
    ) -> Generator[None, None, tuple[ClauseState | None, RuleFailure | None, int]]:
        """:returns: the remaining state of the processor, the reason of its failure, and the number of searched events"""
        span = Span(entry.since, entry.first_time, entry.end_time)
        seen = events.of(bound, span)
        failure = next(iter(self._failed_before(seen.copies, [bound], [span])), None) if seen.has_failures else None
        ends = span.until <= horizon
        waiting = None if state is None else bound.clause.waiting_keys(state.value)
        needed = events.needed(bound, seen, waiting) if failure is None else None
        due = state is not None and (state.deadline <= horizon or ends or group.over)
        if not due and failure is None and not (seen.copies.num_rows if needed is None else needed.any()):
            return state, None, 0
        until = span.until if failure is None else failure.time
        rows = bound.clause.rows_of(seen.copies, seen.positions, needed)
        search = bound.clause.search(None if state is None else state.value, rows, until, horizon, over=group.over)
        emission = Emission([entry], suppressions)
        with enough_memory(lambda: f"{bound.name} with {rows.num_rows:,} events"):
            while True:
                try:
                    results = next(search)
                except StopIteration as end:
                    outcome: ClauseOutcome = end.value
                    break
                made = self.results.of_clause(bound, *emission.rows_of_clause(bound, results))
                if made.num_rows:
                    last = pc.max(self.time.to_micros(made.column("match_time"))).as_py()
                    output = SHADOW if entry.processor.shadow else MATCHES
                    self._emit(group, [OutputRows(output, made, {0: (made.num_rows, last)})], [entry])
                yield
        suppressions.take(emission)
        if emission.suppressed:
            group.metrics[SUPPRESSED] += emission.suppressed
        if outcome.error is not None:
            limit = isinstance(outcome.error, LimitExceededError)
            failure = RuleFailure(0, outcome.failed_at, outcome.error, limit)
        if failure is not None or ends or outcome.state is None:
            return None, failure, rows.num_rows
        waiting = bound.clause.waiting_rows(outcome.state)
        return ClauseState(entry.name, outcome.state, outcome.deadline, waiting), None, rows.num_rows

    def _tried(
        self,
        bound: Sequence[BoundPatternProcessor],
        slices: Iterator[Step | list[RuleFailure]],
        emission: Emission,
        processing_time: int,
    ) -> tuple[Step | None, list[OutputRows] | None, list[RuleFailure]]:
        """Try to compute all slices. Return the last step, its results if it is the only slice, and the failures."""
        failures: list[RuleFailure] = []
        step, made = None, None
        for number, each in enumerate(slices):
            if isinstance(each, list):
                return None, None, each
            step = each
            whole = step.last and number == 0
            rows, failed = self.results.of_step(bound, step, emission, processing_time, only_try=not whole)
            made = rows if whole else None
            failures += failed
        return step, made, failures

    def _emit(self, group: Group, made: Sequence[OutputRows], entries: Sequence[Entry]) -> None:
        for name, table, counts, emitted in made:
            for by_function in emitted:
                by_function.add_to(group)
            if table is not None and (name != SHADOW or self.options.wants_shadow):
                group.emit(name, table)
            if name in self.output_schemas:
                rows = sum(count for count, _ in counts.values()) if table is None else table.num_rows
                group.metrics[name] += rows
            what = TIMED_OUT if name == TIMED_OUT_OF_SHADOWS else name
            for number, (count, last) in counts.items():
                rule = entries[number].name
                group.metrics[metric(what, rule)] += count
                if what != TIMED_OUT:
                    known = metric(rule_counts.LAST_MATCH, rule)
                    group.metrics[known] = max(group.metrics.get(known, last), last)

    def _note(
        self, bound: Sequence[BoundProcessor], failures: dict[int, RuleFailure], new: Sequence[RuleFailure]
    ) -> None:
        """Add the first failure of each processor to *failures*, or raise an error if processors are not disabled."""
        known = {number: failure.time for number, failure in failures.items()}
        for failure in sorted(new, key=attrgetter("time"), reverse=True):
            self._check_disabling(bound[failure.entry], failure)
            before = known.get(failure.entry, END_OF_TIME)
            # An earlier time ensures that the loop terminates.
            failures[failure.entry] = replace(failure, time=min(failure.time, before - 1))

    def _check_disabling(self, bound: BoundProcessor, failure: RuleFailure) -> None:
        if bound.processor.shadow:
            return
        error = failure.error
        if failure.limit and not self.options.disable_on_limit:
            assert isinstance(error, LimitExceededError)
            raise type(error)(f"{bound.name}: {error.message}", error.detail, error.hint) from error
        if not failure.limit and not self.options.disable_on_error:
            raise PatternProcessorError(f"{bound.name} failed", str(error)) from error

    def _failed_before(
        self, copies: pa.Table, bound: Sequence[BoundProcessor], spans: Sequence[Span]
    ) -> list[RuleFailure]:
        """Find the processors for which a condition or the key could not be computed, with the time of the first such event."""
        failed_rows, failed = flattened(copies.column(FAILED))
        if not len(failed):
            return []
        times, since = copies.column(TIME).to_numpy(), copies.column(SINCE).to_numpy()
        selectors = copies.column(SELECTOR).to_numpy()
        failures = []
        for entry, (rule, span) in enumerate(zip(bound, spans, strict=True)):
            sees = (selectors == rule.number) & (since >= span.since) & (times >= span.begins) & (times < span.until)
            evaluated = [number for number in rule.evaluated if number is not None]
            of_rule = (np.isin(failed, evaluated) | (failed == rule.number)) & sees[failed_rows]
            if of_rule.any():
                # The key may fail for an event that the processor does not require.
                of_rule[of_rule] = RuleConditions([rule]).required(copies.take(pa.array(failed_rows[of_rule])))
            if of_rule.any():
                rows, numbers = failed_rows[of_rule], failed[of_rule]
                first = int(np.argmin(times[rows]))
                schema = self.compiler.schema
                event = copies.slice(int(rows[first]), 1).select(["e:" + name for name in schema.names])
                event = pa.table(event.columns, schema=schema)
                error = failure_of(rule, int(numbers[first]), event, self.compiler)
                failures.append(RuleFailure(entry, int(times[rows[first]]), error))
        return failures

    def _report(self, group: Group, entry: Entry, failure: RuleFailure) -> None:
        _log.error("pattern processor %s version %s is disabled: %s", *entry.name[:2], failure.error)
        time = self.time.from_micros(np.array([failure.time], np.int64))
        error = f"{type(failure.error).__name__}: {failure.error}"
        row = [[entry.processor.id], [entry.processor.version], time, [error]]
        group.emit(ERRORS, pa.table(row, schema=self.output_schemas[ERRORS]))
        group.metrics[ERRORS] += 1
        group.metrics[rule_counts.error_metric(entry.name, error, group.number)] += 1


@dataclass(frozen=True, slots=True)
class _Remaining:
    """The partial matches that remain after a call.

    :ivar deadlines, latest_deadlines: for each key, see :class:`~asterism.matching.matcher.Step`
    """

    page: Page
    deadlines: Ints
    latest_deadlines: Ints

    @classmethod
    def nothing(cls, events: pa.Schema) -> _Remaining:
        return cls(Page.empty(KEYS, events), np.empty(0, np.int64), np.empty(0, np.int64))

    def size_beyond(self, limit: int, in_force: ActiveRules) -> int:
        """The size of a page with all partial matches, if it is more than *limit*; otherwise 0."""
        page = self.page
        arrays = (page.times, page.positions, page.nodes, *page.rows)
        if page.keys.nbytes + page.events.nbytes + sum(array.nbytes for array in arrays) + _ROOM <= limit:
            return 0
        size = len(page_to(in_force, page))
        return size if size > limit else 0

    def deadlines_of(self, parts: Sequence[Ints], *, exact: bool) -> list[int]:
        """When each of *parts* of the keys must be processed.

        :param exact: otherwise, partial matches that have ended may remain for a while: see docs/decisions/0173
        """
        if not parts:
            return []
        deadlines = self.deadlines if exact else self.latest_deadlines
        begins = offsets_of([len(part) for part in parts])[:-1]  # no part is empty
        first: list[int] = np.minimum.reduceat(deadlines[np.concatenate(parts)], begins).tolist()
        return first

    def without(self, entry: int) -> _Remaining:
        kept = np.flatnonzero(self.page.keys.column(ENTRY).to_numpy() != entry)
        return _Remaining(self.page.of(kept), self.deadlines[kept], self.latest_deadlines[kept])


def _with_clause(bound: BoundProcessor) -> BoundClauseProcessor:
    assert isinstance(bound, BoundClauseProcessor)
    return bound


def _of_entries(page: Page, least: int = 1) -> Ints:
    """The number of partial matches of each processor, of at least so many processors."""
    begun = (page.rows.run_rows[:, 1] >= 0) & (page.rows.run_rows[:, 2] >= 0)
    of_keys = np.diff(offsets_of(begun)[page.rows.run_at])
    return np.bincount(page.keys.column(ENTRY).to_numpy(), of_keys, minlength=least).astype(np.int64)


def _count_partial_matches(
    group: Group, in_force: ActiveRules, before: Page, after: Page, failed: Collection[int]
) -> None:
    new = _of_entries(after, len(in_force.patterns))
    new[[*failed]] = 0
    changes = new - _of_entries(before, len(in_force.patterns))
    _count(group, in_force.metrics(rule_counts.PARTIAL_MATCHES), np.flatnonzero(changes), changes)


def _count(group: Group, names: Sequence[str], which: Ints, counts: Ints) -> None:
    """Add some of the *counts* of processors to the metrics with these *names*."""
    group.counted.append(Counted(names, which, counts[which]))


def _adopt_searches(call: _RuleGroup, states: dict[RuleName, ClauseState]) -> None:
    """Give the versions that adopt the states of others with a clause, and count that."""
    adoptions = [adoption for adoption in call.adoptions if adoption.old in states]
    fates = dict[RuleName, Counts]()
    for adoption in adoptions:
        former = states[adoption.old]
        value, fates[adoption.new] = adoption.of_searches(former.value)
        if value is not None:  # it is searched at once
            states[adoption.new] = ClauseState(adoption.new, value, BEFORE_TIME, former.waiting)
            call.metrics[metric(rule_counts.PARTIAL_MATCHES, adoption.new)] += former.waiting
        if not adoption.keeps:
            call.metrics[metric(rule_counts.PARTIAL_MATCHES, adoption.old)] -= former.waiting
            del states[adoption.old]
    _count_adopted(call, adoptions, fates)


def _count_adopted(group: Group, adoptions: Sequence[Adoption], fates: Mapping[RuleName, Counts]) -> None:
    for adoption in adoptions:
        counts = fates.get(adoption.new, Counter())
        adoption.report(counts)
        kept = sum(count for part, count in counts.items() if part.outcome == CONTINUES)
        dropped = sum(count for part, count in counts.items() if part.outcome == DROPPED)
        begun = {part: count for part, count in counts.items() if part.what == PARTIAL}
        metrics = {
            metric(rule_counts.ADOPTED, adoption.new): kept,
            metric(rule_counts.NOT_ADOPTED, adoption.new): dropped,
            metric(rule_counts.PARTIAL_MATCHES, adoption.new): sum(
                count for part, count in begun.items() if part.outcome == CONTINUES
            ),
            metric(rule_counts.PARTIAL_MATCHES, adoption.old): 0 if adoption.keeps else -sum(begun.values()),
        }
        for name, count in metrics.items():
            if count:
                group.metrics[name] += count


def _count_events(group: Group, names: Sequence[str], events: Ints) -> None:
    counted = np.flatnonzero(events)
    if len(counted) > rule_counts.MAX_WITH_EVENTS:
        counted = counted[np.argsort(-events[counted], kind="stable")[: rule_counts.MAX_WITH_EVENTS]]
    _count(group, names, counted, events)


def _too_much_state(bound: Sequence[BoundProcessor], page: Page, size: int, time: int) -> RuleFailure:
    counts = _of_entries(page, len(bound))
    of_shadows = np.where([rule.processor.shadow for rule in bound], counts, 0)
    # A shadow must not affect other processors.
    entry = int(of_shadows.argmax() if of_shadows.any() else counts.argmax())
    problem = f"the partial matches of a key group have {size:,} bytes (limit {MAX_STATE:,})"
    detail = f"{int(counts[entry]):,} are of {bound[entry].name}, more than of"
    return _too_large(bound[entry], time, problem, detail, "bound them with within(...)", entry)


def _too_large(bound: BoundProcessor, time: int, problem: str, detail: str, hint: str, entry: int = 0) -> RuleFailure:
    # If there are shadows, only these are candidates for being disabled.
    detail = f"{detail} any other{' shadow' if bound.processor.shadow else ''}."
    error = LimitExceededError(problem, detail, f"{hint}, or use more key_groups; see docs/limits.md")
    return RuleFailure(entry, time, error, limit=True)


def _until_failures(spans: Sequence[Span], failures: Mapping[int, RuleFailure]) -> Sequence[Span]:
    """A processor that fails at some time is in force until then, no matter where the micro-batch began."""
    if not failures:
        return spans
    return [
        replace(span, until=failures[number].time) if number in failures else span for number, span in enumerate(spans)
    ]


def _heaviest(bound: Sequence[BoundProcessor], page: Page, copies: pa.Table) -> str:
    counts = _of_entries(page)
    if not counts.any():
        return f"{copies.num_rows:,} copies of events, and no partial matches before them"
    entry = int(counts.argmax())
    return f"{bound[entry].name} with {int(counts[entry]):,} partial matches before it"
