"""The state of rules as rows by key, and back.

The rules that group by the same expressions share the copies of events, so a row has the state of all of them for one key. The
partial matches of patterns, the rows of clauses and the suppressed matches are in pages of their own, and so in rows of their
own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, cast_to, one_chunk
from asterism.columns.groups import first_rows, group_codes, offsets_of
from asterism.columns.keys import KEY
from asterism.columns.schemas import type_of
from asterism.errors import StateError
from asterism.matching.key_rows import KeyRows
from asterism.matching.page import Page
from asterism.matching.stored_matches import lowest_state
from asterism.operators.operator import EVENTS
from asterism.operators.state.page_numbers import CLAUSES_PAGE, SUPPRESSIONS_PAGE
from asterism.operators.state.state_definition import StateDefinition
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.current_row import WORDS
from asterism.row_patterns.stored_searches import ROWS
from asterism.rules.binding.replication import SELECTOR, stored_columns
from asterism.rules.definition.processor import RuleName
from asterism.rules.matching.selections import ENTRY, KEYS
from asterism.rules.matching.state_pages import ClauseState, clauses_from, clauses_to, named_page, names_of_page
from asterism.rules.matching.stored_rules import automaton_of, clause_definition, memory_of
from asterism.rules.matching.suppression import suppressions_from, suppressions_to
from asterism.savepoints.key_states import (
    JoinedBuffer,
    KeyStates,
    RowPatternStates,
    State,
    moved_rows,
    numbers_in,
    places_of,
    separated,
    structs_of,
)
from asterism.savepoints.rows.nested import as_structs, as_table, list_of_rows, listed, sizes_of, unlisted
from asterism.savepoints.rows.references import check_progress, check_within
from asterism.savepoints.rule_sets import RuleSets

_RULE = pa.schema([("id", pa.string()), ("version", pa.int64()), ("since", pa.int64())])
_EVENT = pa.schema([("time", pa.int64()), ("position", pa.int64())])
_NODE = pa.schema([("event", pa.int64()), ("stage", pa.int64()), ("parent", pa.int64())])
_ROW = pa.schema([("rule", pa.int64()), ("event", pa.int64()), ("node", pa.int64()), ("state", pa.int64())])
_TIMER = pa.schema([("rule", pa.int64()), ("time", pa.int64())])
_SUPPRESSED = pa.schema([*_RULE, ("last", pa.int64()), ("suppressed", pa.int64()), ("deadline", pa.int64())])
_INTERNAL = ("key", "time", "position")
"""The columns of the rows of a clause beside those of events: the last words of their names."""
_CLAUSES, _RULES = 1_000, 10_000
_ANY_STAGE = 2**31
"""Each rule has stages of its own, so a node is compared with those of the rules whose rows lead to it."""


class RuleStates(KeyStates):
    """Rows of (selector, key), where the selector is the seed with which its keys are hashed.

    ``rules`` are those with a pattern that have state for the key; ``rule`` is a position among them.
    """

    NODES, RULES, PARTIAL, WAITING, TIMERS = "nodes", "rules", "partial_matches", "waiting_matches", "timers"
    CLAUSES, SUPPRESSIONS = "clauses", "suppressions"
    others = (CLAUSES_PAGE, SUPPRESSIONS_PAGE)

    def __init__(self, definition: StateDefinition, rules: RuleSets) -> None:
        super().__init__(definition)
        self.rules = rules
        self._semantics = Semantics(definition.details["semantics"])
        self.keys = pa.schema([("selector", pa.int64()), ("key", pa.string())])
        self.events = stored_columns(definition.tables[EVENTS])
        internal = [pa.field(f"internal:{name}", pa.string() if name == "key" else pa.int64()) for name in _INTERNAL]
        self.rows = pa.schema([(WORDS, pa.int64()), *internal, *self.events])
        progress = pa.schema([(name, pa.int64()) for name in ("next_start", "matches", "covered", "rows_before")])
        self.clauses = pa.schema(
            [*_RULE, ("deadline", pa.int64()), *progress, (ROWS, list_of_rows(self.rows))],
        )
        self.progress = progress
        self.fields = pa.schema(
            [
                (EVENTS, list_of_rows(pa.schema([*_EVENT, *self.events]))),
                (self.NODES, list_of_rows(_NODE)),
                (self.RULES, list_of_rows(_RULE)),
                (self.PARTIAL, list_of_rows(_ROW)),
                (self.WAITING, list_of_rows(_ROW)),
                (self.TIMERS, list_of_rows(_TIMER)),
                (self.CLAUSES, list_of_rows(self.clauses)),
                (self.SUPPRESSIONS, list_of_rows(_SUPPRESSED)),
            ]
        )

    # ------------------------------------------------------------------ keys

    def hashes(self, keys: pa.Table) -> Ints:
        return _hashes(keys.column("key"), keys.column("selector").to_numpy())

    def waiting_hashes(self, events: pa.Table) -> Ints:
        numbers = events.column(SELECTOR).to_numpy()
        distinct, place = np.unique(numbers, return_inverse=True)
        # The number of a selector is its seed, but for PARTITION BY.
        seeds = np.array([self.rules.seeds.get(number, number) for number in distinct.tolist()], np.int64)
        return _hashes(events.column(KEY), seeds[place])

    def in_pages(self, keys: pa.Table) -> pa.Table:
        return keys.select(["key"])

    def is_undivided(self, state: State) -> bool:
        """As :attr:`asterism.rules.matching.active_rules.ActiveRules.undivided`, of the rules that have state."""
        return any(len(state[name].flatten()) for name in (self.CLAUSES, self.SUPPRESSIONS))

    # ------------------------------------------------------------------ reading

    def read(self, page: bytes, number: int = 0) -> tuple[pa.Table, State]:
        if number == CLAUSES_PAGE:
            return self._read_clauses(page)
        return self._read_suppressions(page) if number == SUPPRESSIONS_PAGE else self._read_patterns(page)

    def _state(self, count: int, **columns: pa.Array) -> State:
        nothing = np.empty(0, np.int64)
        return {
            f.name: columns[f.name] if f.name in columns else listed(pa.nulls(0, f.type.value_type), nothing, count)
            for f in self.fields
        }

    def _read_patterns(self, value: bytes) -> tuple[pa.Table, State]:
        names, content = names_of_page(value)
        if not content:
            return self.keys.empty_table(), self._state(0)
        whole = Page.from_bytes(content, KEYS, self.events)
        rule = whole.keys.column(ENTRY).to_numpy()
        known = np.array([name in self.rules.selectors for name in names], np.bool_)[rule]
        whole = whole.of(np.flatnonzero(known))  # without what nothing refers to
        rule = whole.keys.column(ENTRY).to_numpy()
        seeds = np.array([self.rules.selectors.get(name, 0) for name in names], np.int64)
        keys, owners = _distinct(seeds[rule], whole.keys.column(KEY))
        count, of_rules = keys.num_rows, places_of(owners, keys.num_rows)
        rows = whole.rows
        page_key_of_runs, page_key_of_waiting, page_key_of_timers = (
            np.repeat(np.arange(len(owners)), np.diff(at)) for at, _ in rows.pairs()
        )
        of_runs, of_waiting = owners[page_key_of_runs], owners[page_key_of_waiting]
        of_events, of_nodes, event_place, node_place, nodes = separated(whole, of_runs, of_waiting, count)
        events = pa.table(
            [pa.array(whole.times), pa.array(whole.positions), *whole.events.columns],
            names=[*_EVENT.names, *self.events.names],
        )

        def rows_of(which: Ints, page_keys: Ints) -> pa.ListArray:
            moved = moved_rows(which, event_place, node_place)
            return listed(structs_of(np.column_stack([of_rules[page_keys], moved]), _ROW), owners[page_keys], count)

        timers = np.column_stack([of_rules[page_key_of_timers], rows.timer_rows[:, 0]])
        return keys, self._state(
            count,
            **{
                EVENTS: listed(as_structs(events), of_events, count),
                self.NODES: listed(structs_of(nodes, _NODE), of_nodes, count),
                self.RULES: listed(_named(names, rule), owners, count),
                self.PARTIAL: rows_of(rows.run_rows, page_key_of_runs),
                self.WAITING: rows_of(rows.waiting_rows, page_key_of_waiting),
                self.TIMERS: listed(structs_of(timers, _TIMER), owners[page_key_of_timers], count),
            },
        )

    def _read_clauses(self, value: bytes) -> tuple[pa.Table, State]:
        keys, parts = [], []
        for name, stored in clauses_from(value).items():
            if name not in self.rules.selectors:
                continue
            states = self._clause(name)
            key, state = states.read(stored.value)
            progress, lists = as_table(state[states.PROGRESS]), state[ROWS]
            count = key.num_rows
            whole = as_table(lists.flatten())
            columns = [self._internal_column(whole, f) for f in self.rows]
            rows = pa.ListArray.from_arrays(
                pa.array(offsets_of(sizes_of(lists)).astype(np.int32)),
                as_structs(pa.table(columns, schema=self.rows)),
            )
            entry = [pa.array([part] * count, f.type) for part, f in zip(name, _RULE, strict=True)]
            deadlines = pa.array(np.full(count, stored.deadline, np.int64))
            kept = [one_chunk(progress.column(f"p:{f.name}")) for f in self.progress]
            parts.append(pa.table([*entry, deadlines, *kept, rows], schema=self.clauses))
            seeds = np.full(count, self.rules.selectors[name], np.int64)
            keys.append(pa.table([seeds, one_chunk(key.column(0))], schema=self.keys))
        return self._by_key(keys, parts, self.CLAUSES, self.clauses)

    def _internal_column(self, rows: pa.Table, field: pa.Field) -> pa.Array:
        name = field.name
        if name.startswith("internal:"):
            role = name.removeprefix("internal:")
            others = [each for each in rows.column_names if each != WORDS and each not in self.events.names]
            name = next((each for each in others if _role_of(each) == role), "")
        if name not in rows.column_names:
            return pa.nulls(rows.num_rows, field.type)
        return cast_to(one_chunk(rows.column(name)), field.type)

    def _read_suppressions(self, value: bytes) -> tuple[pa.Table, State]:
        deadline, names, rows = suppressions_from(value)
        known = np.array([name in self.rules.selectors for name in names], np.bool_)
        rows = rows.filter(pa.array(known[rows.column("rule").to_numpy()]))
        rule = rows.column("rule").to_numpy()
        seeds = np.array([self.rules.selectors.get(name, 0) for name in names], np.int64)
        keys = pa.table([pa.array(seeds[rule]), one_chunk(rows.column("key"))], schema=self.keys)
        times = [one_chunk(rows.column(name)) for name in ("last", "suppressed")]
        part = pa.table(
            [*_named(names, rule).flatten(), *times, pa.array(np.full(len(rule), deadline))], schema=_SUPPRESSED
        )
        return self._by_key([keys], [part], self.SUPPRESSIONS, _SUPPRESSED)

    def _by_key(
        self, keys: list[pa.Table], parts: list[pa.Table], name: str, schema: pa.Schema
    ) -> tuple[pa.Table, State]:
        every = pa.concat_tables([self.keys.empty_table(), *keys])
        distinct, owners = _distinct(every.column("selector").to_numpy(), every.column("key"))
        rows = pa.concat_tables([schema.empty_table(), *parts])
        return distinct, self._state(distinct.num_rows, **{name: listed(as_structs(rows), owners, distinct.num_rows)})

    @cached_property
    def _key_of_caches(self) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        return self.definition.to_bytes(), tuple(self.rules.udfs.items())

    def _clause(self, name: RuleName) -> RowPatternStates:
        of_definition, udfs = self._key_of_caches
        definition = _clause_definition(of_definition, self.rules.texts[name], udfs)
        if definition is None:
            raise StateError(
                f'the state of the rule "{name[0]}" version {name[1]} cannot be read without the program',
                "Its clause calls functions in Python, of which the status of the query does not have the types.",
                "let the query run with this release, which writes its status, and stop it again",
            )
        return RowPatternStates(definition)

    # ------------------------------------------------------------------ writing

    def written(self, keys: pa.Table, state: State) -> bytes:
        rules, of_rules = unlisted(state[self.RULES])
        names, entries = _numbered(rules)
        sizes = sizes_of(state[self.RULES])
        rule_at = offsets_of(sizes)[:-1]
        events, _ = unlisted(state[EVENTS])
        buffer = JoinedBuffer.of(state, _ANY_STAGE)
        parts: list[Ints] = []
        for name in (self.PARTIAL, self.WAITING, self.TIMERS):
            rows, of_rows = numbers_in(state[name])
            check_progress("rule", rows[:, 0], sizes[of_rows] - 1)
            page_keys = rule_at[of_rows] + rows[:, 0]
            if name != self.TIMERS:
                buffer.refer(rows[:, 1:], of_rows, waiting=name == self.WAITING)
                self._check(buffer.nodes, names, entries[page_keys], rows[:, 1:], partial=name == self.PARTIAL)
            order = np.argsort(page_keys, kind="stable")
            parts += offsets_of(np.bincount(page_keys, minlength=len(entries))), rows[order, 1:]
        texts = keys.column("key").take(pa.array(of_rules))
        times, positions = (one_chunk(events.column(name)).to_numpy().astype(np.int64) for name in _EVENT.names)
        kept = pa.table([cast_to(events.column(f.name), f.type) for f in self.events], schema=self.events)
        page_keys = pa.table([pa.array(entries.astype(np.int32)), one_chunk(texts)], schema=KEYS)
        page = Page(page_keys, kept, times, positions, buffer.nodes, KeyRows(*parts))
        return named_page(json.dumps(names, ensure_ascii=False).encode(), page)

    def _check(self, nodes: Ints, names: list[RuleName], rule: Ints, rows: Ints, *, partial: bool) -> None:
        """Compare the rows of matches with the patterns of their rules.

        :param rule: the index of the rule of each row
        :param partial: whether their last numbers are states
        :raises StateError: there is no such rule, stage or state
        """
        stages, lowest, states = (np.zeros(len(names), np.int64) for _ in range(3))
        of_node, state = rows[:, 1], rows[:, 2]
        remember = set(rule[state < 0].tolist()) if partial else set()
        for number in np.unique(rule).tolist():
            text = self.rules.texts.get(names[number], "")
            automaton = automaton_of(text, self._semantics) if text else None
            if automaton is None:  # no rule that is in force, so no state either
                continue
            stages[number], states[number] = len(automaton["stages"]), len(automaton["states"])
            if number in remember:
                of_definition, udfs = self._key_of_caches
                lowest[number] = _lowest_state(of_definition, text, udfs)
        if partial:
            check_within("state", state, lowest[rule], states[rule])
        check_within("stage", nodes[:, 1], -1, _stages_of_nodes(nodes, of_node, stages[rule]))

    def other_pages(self, keys: pa.Table, state: State) -> Iterator[tuple[int, bytes]]:
        clauses = list(self._written_clauses(keys, state[self.CLAUSES]))
        if clauses:
            yield CLAUSES_PAGE, clauses_to(clauses)
        rows, owners = unlisted(state[self.SUPPRESSIONS])
        if rows.num_rows:
            names, rule = _numbered(rows)
            columns = [pa.array(rule), keys.column("key").take(pa.array(owners)), rows.column("last")]
            table = pa.table([*columns, rows.column("suppressed")], names=["rule", "key", "last", "suppressed"])
            deadline = int(one_chunk(rows.column("deadline")).to_numpy().min())
            yield SUPPRESSIONS_PAGE, suppressions_to(deadline, names, table)

    def _written_clauses(self, keys: pa.Table, lists: pa.ListArray) -> Iterator[ClauseState]:
        clauses, owners = unlisted(lists)
        names, numbers = _numbered(clauses)
        texts = one_chunk(keys.column("key"))
        for number, name in enumerate(names):
            chosen = np.flatnonzero(numbers == number)
            of_rule = clauses.take(pa.array(chosen))
            states = self._clause(name)
            key = pa.table([texts.take(pa.array(owners[chosen]))], schema=states.keys)
            rows = one_chunk(of_rule.column(ROWS))
            sizes = sizes_of(rows)
            starts = one_chunk(of_rule.column("next_start")).to_numpy()
            progress = [pa.array(sizes), *(one_chunk(of_rule.column(f.name)) for f in self.progress)]
            whole = as_table(rows.flatten())
            columns = [cast_to(one_chunk(whole.column(self._column_of(f.name))), f.type) for f in states.rows]
            value = states.written(
                key,
                {
                    states.PROGRESS: as_structs(pa.table(progress, schema=states.progress)),
                    ROWS: pa.ListArray.from_arrays(
                        pa.array(offsets_of(sizes).astype(np.int32)),
                        as_structs(pa.table(columns, schema=states.rows)),
                    ),
                },
            )
            deadline = int(one_chunk(of_rule.column("deadline")).to_numpy().min())
            yield ClauseState(name, value, deadline, int(np.maximum(sizes - starts, 0).sum()))

    def _column_of(self, name: str) -> str:
        if name == WORDS or name in self.events.names:
            return name
        return f"internal:{_role_of(name)}"


def _stages_of_nodes(nodes: Ints, ends: Ints, stages: Ints) -> Ints:
    """For each node the least number of stages of the rules whose rows lead to it; without one, _ANY_STAGE.

    :param ends, stages: the last node of each row, or a negative number, and the number of stages of its rule
    """
    least = np.full(len(nodes), _ANY_STAGE, np.int64)
    at, of_at = ends[ends >= 0], stages[ends >= 0]
    while len(at):
        is_less = of_at < least[at]
        np.minimum.at(least, at[is_less], of_at[is_less])
        children = np.unique(at[is_less])
        parents = nodes[children, 2]
        at, of_at = parents[parents >= 0], least[children[parents >= 0]]
    return least


def _role_of(column: str) -> str:
    """The last word of the name of an internal column, which begins with as many underscores as are needed."""
    return column.removeprefix("e:").lstrip("_")


def _hashes(keys: pa.ChunkedArray, seeds: Ints) -> Ints:
    """The hashes of keys, as those of the copies of events (:mod:`asterism.rules.binding.replication`)."""
    from asterism.columns.hashing import hash_strings

    hashes: Ints = (hash_strings(one_chunk(keys)) ^ seeds.view(np.uint64)).view(np.int64)
    return hashes


def _distinct(seeds: Ints, texts: pa.ChunkedArray) -> tuple[pa.Table, Ints]:
    """The distinct keys, and for each row the number of its key."""
    keys = pa.table([pa.array(seeds), one_chunk(texts)], names=["selector", "key"])
    codes, count = group_codes(keys)
    return keys.take(pa.array(first_rows(codes, count))), codes


def _named(names: list[RuleName], rule: Ints) -> pa.StructArray:
    """The rules with the indexes *rule*."""
    columns = [pa.array([name[place] for name in names], f.type) for place, f in enumerate(_RULE)]
    return pa.StructArray.from_arrays([column.take(pa.array(rule)) for column in columns], fields=list(_RULE))


def _numbered(rows: pa.Table) -> tuple[list[RuleName], Ints]:
    """The distinct rules of rows, and for each row the index of its rule."""
    rules = rows.select(_RULE.names)
    codes, count = group_codes(rules)
    distinct = rules.take(pa.array(first_rows(codes, count)))
    return list(zip(*(column.to_pylist() for column in distinct.columns), strict=True)), codes


@lru_cache(maxsize=_RULES)
def _lowest_state(definition: bytes, text: str, udfs: tuple[tuple[str, str], ...]) -> int:
    types = {name: type_of(kind) for name, kind in udfs}
    return lowest_state(memory_of(StateDefinition.from_bytes(definition), text, types))


@lru_cache(maxsize=_CLAUSES)
def _clause_definition(definition: bytes, text: str, udfs: tuple[tuple[str, str], ...]) -> StateDefinition | None:
    types = {name: type_of(kind) for name, kind in udfs}
    return clause_definition(StateDefinition.from_bytes(definition), text, types)
