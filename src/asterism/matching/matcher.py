"""From automaton to arrays and back: binds a pattern to a schema, runs the kernel, keeps pages small.

:class:`Matcher` is built once per query (plain data, it travels to the workers). Its two verbs are :meth:`Matcher.prepare`,
stateless, which evaluates all conditions on current events for a batch, and :meth:`Matcher.advance`, which feeds prepared
events to the partial matches of many keys.
"""

from __future__ import annotations

import ctypes
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from asterism.arguments import described
from asterism.columns.arrays import Ints
from asterism.columns.groups import as_int64, group_codes, mask_of, offsets_of, positions_among_equals, rows_of
from asterism.columns.time import TIME, micros
from asterism.errors import (
    ColumnNotFoundError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    InvalidEventError,
    LimitExceededError,
    MalformedPatternError,
    SkipStrategyError,
)
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope, columns_of, has_aggregate, plain_column
from asterism.expressions.parsing import conjuncts, parse
from asterism.matching.condition_programs import add_condition
from asterism.matching.instructions import Kind as ValueKind
from asterism.matching.instructions import Op, Programs, kind_of
from asterism.matching.page import Loaded, Page
from asterism.matching.python_conditions import POINTER, Calls
from asterism.patterns.automaton import Action, Always, Both, Edge, Either, Guard, Not, State, StateKind, Test
from asterism.patterns.compiler import compile_pattern
from asterism.patterns.conditions import (
    AndCondition,
    Condition,
    IterativeCondition,
    NotCondition,
    OrCondition,
    PythonCondition,
    SqlCondition,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import PatternSequence, SkipKind, Stage

if TYPE_CHECKING:
    from asterism.matching.kernels import Tables


BITS = "__bits"
BITS_PER_WORD = 63
SLICE = 2**20
"""Results of a call come in slices, of about so many matches and new nodes of partial matches in the kernel, and of about so
many events in the matches that are made from them.
"""
SLICE_BYTES = 2**27
"""What these events have in bytes, about."""
STEPS_PER_PARTIAL_MATCH, HELD_PER_PARTIAL_MATCH, LEAST_PARTIAL_MATCHES = 1000, 10, 10_000
"""Where partial matches are limited, one event of a key may take so many steps (see ``kernels.MADE``) for each of the partial
matches that are allowed, and so many finished matches may wait for their emission; a limit below the least counts as that.
"""


NO_SLICES = 2**61
LIMIT_HINT = 'bound them with within(...), raise max_partial_matches, or say on_limit="drop"; docs/limits.md tells more'


@contextmanager
def enough_memory(heaviest: Callable[[], str]) -> Iterator[None]:
    """Where memory does not suffice for a call, say so in these words."""
    try:
        yield
    except MemoryError as error:
        raise LimitExceededError(
            "memory does not suffice for this call",
            f"The heaviest in it: {heaviest()}.\n{type(error).__name__}: {error}".rstrip(": "),
            "lower max_partial_matches, take more key_groups or smaller micro-batches, or give the workers more memory",
        ) from error


@dataclass(frozen=True, slots=True)
class Found:
    """Matches (or timed-out partial matches), columnar: row *i* took ``events[offsets[i]:offsets[i + 1]]``.

    Events are row numbers of :attr:`Step.events`, keys are row numbers of :attr:`Step.keys`, times are microseconds; the position
    of an event is that among the events of its key and time that the pattern can see (see :attr:`Matcher.relevant_only`).
    """

    key: Ints
    emitted: Ints
    offsets: Ints
    events: Ints
    positions: Ints
    stages: Ints

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, slots=True)
class Step:
    """What :meth:`Matcher.advance` gave."""

    keys: pa.Table
    events: pa.Table
    times: Ints
    matches: Found
    timeouts: Found
    pages: list[Page]
    wakes: list[int]
    dropped: int
    """partial matches that the limit cost"""
    last: bool = True
    """the last slice of its call, and the only one that has pages and wakes"""


class Matcher:
    """A pattern bound to the schema of the events.

    *carried* are the columns that matches need of their events; they are kept with partial matches, as are those that
    per-event conditions read. *zone* is that of the times that these see. Of more than *max_partial_matches* of a key those that
    began last are dropped, or it is an error. It is one, too, if an event takes more than ``max_steps``, or if more than
    ``max_held`` finished matches wait for their emission.
    """

    def __init__(
        self,
        pattern: Pattern,
        schema: pa.Schema,
        carried: Sequence[str] = (),
        semantics: Semantics = Semantics.DEFAULT,
        *,
        zone: str | None = "UTC",
        max_partial_matches: int | None = None,
        drop_at_limit: bool = False,
    ) -> None:
        self.pattern = pattern
        self.zone = zone
        self.max_partial_matches = max_partial_matches
        self.drop_at_limit = drop_at_limit
        counted = max(max_partial_matches or 0, LEAST_PARTIAL_MATCHES)
        self.max_steps = None if max_partial_matches is None else STEPS_PER_PARTIAL_MATCH * counted
        self.max_held = None if max_partial_matches is None else HELD_PER_PARTIAL_MATCH * counted
        self.semantics = semantics
        self.nfa = compile_pattern(pattern, semantics)
        self.scope = Scope(schema, self.nfa.stages)
        self.vectorized = Vectorized(schema)
        self.programs = Programs(self.scope, self.vectorized)
        self._bits: list[int | PythonCondition] = []
        self._condition_bit: list[int] = []
        self._condition_program: list[int] = []
        self._iterative: list[IterativeCondition] = []
        for condition in self.nfa.conditions:
            with ExpressionSyntaxError.if_too_deep(getattr(condition, "text", "")):
                self._bind(condition)
        self.words = max(1, -(-len(self._bits) // BITS_PER_WORD))
        read = {name for c in self._iterative for name in (schema.names if c.columns is None else c.columns)}
        self._carried = [*carried, *(name for name in schema.names if name in read and name not in carried)]
        self._slot_columns = [self.slot_column(number) for number in self.programs.slots]
        fields = [schema.field(name).with_name("e:" + name) for name in self._carried]
        for number, name in zip(self.programs.slots, self._slot_columns, strict=True):
            if name not in [f.name for f in fields]:
                fields.append(pa.field(name, self.vectorized.types[number]))
        self.event_schema = pa.schema(fields)
        self.bit_fields = [pa.field(f"{BITS}{word}", self._bit_type()) for word in range(self.words)]
        self._tables: Tables | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tables": None}

    # ------------------------------------------------------------------ binding

    def _bind(self, condition: Condition) -> None:
        bit = program = -1
        if isinstance(condition, PythonCondition):
            bit = self._bit(condition)
        elif isinstance(condition, IterativeCondition):
            for name in condition.columns or ():
                if name not in self.scope.schema.names:
                    raise ColumnNotFoundError.from_missing_and_available(
                        name, self.scope.schema.names, f"in: {condition}"
                    )
            program = self.programs.add_call(len(self._iterative))
            self._iterative.append(condition)
        else:
            assert isinstance(condition, SqlCondition)
            tree = parse(condition.text)
            if isinstance(tree, exp.Alias):
                raise ExpressionSyntaxError.at("a condition has no name", condition.text)
            parts = conjuncts(self.scope.resolve(tree, condition.text))
            pure = [part for part in parts if not has_aggregate(part)]
            iterative = [part for part in parts if has_aggregate(part)]
            if pure:
                for part in pure:
                    # A part that is all there is need not be looked at twice.
                    found = (
                        self.vectorized.types[self.vectorized.add(part, condition.text)]
                        if len(pure) == 1
                        else self.vectorized.type_of(part, condition.text)
                    )
                    if kind_of(found) is not ValueKind.BOOL and not isinstance(part, exp.Null):
                        raise ExpressionTypeError.at(
                            f"a condition must be Boolean, this one is {found}", condition.text
                        )
                bit = self._bit(self.vectorized.add(_joined(pure), condition.text))
            if iterative:
                program = add_condition(self.programs, _joined(iterative), condition.text)
        self._condition_bit.append(bit)
        self._condition_program.append(program)

    def _bit(self, source: int | PythonCondition) -> int:
        if source not in self._bits:
            self._bits.append(source)
        return self._bits.index(source)

    @property
    def bit_sources(self) -> list[int]:
        """What each condition bit asks, as the number of an expression of :attr:`vectorized`; there must be no Python
        conditions.
        """
        return [cast(int, source) for source in self._bits]

    def stages_with(self, bit: int) -> list[str]:
        """The stages that ask for a condition bit."""
        asked = [c for c, own in zip(self.nfa.conditions, self._condition_bit, strict=True) if own == bit]
        return [stage.name for stage in _all_stages(self.pattern) if any(_asks(stage, c) for c in asked)]

    def slot_column(self, number: int) -> str:
        """Where the values of a slot are: a carried column of the events (``e:``), or one that is computed (``s:``)."""
        plain = plain_column(self.vectorized.texts[number])
        return f"s:{number}" if plain is None else "e:" + self.scope.schema.names[plain]

    def _bit_type(self) -> pa.DataType:
        if self.words > 1:
            return pa.int64()
        return next(
            t
            for limit, t in ((7, pa.int8()), (15, pa.int16()), (31, pa.int32()), (63, pa.int64()))
            if len(self._bits) <= limit
        )

    @property
    def input_columns(self) -> list[str]:
        """The event columns that :meth:`prepare` reads."""
        names = set(self._carried)
        for text in self.vectorized.texts:
            names |= {self.scope.schema.names[number] for number in columns_of(text)}
        if any(isinstance(source, PythonCondition) for source in self._bits):
            names |= set(self.scope.schema.names)  # a function may look at anything
        return [name for name in self.scope.schema.names if name in names]

    # ------------------------------------------------------------------ conditions on current events

    def prepare(self, events: pa.Table) -> list[pa.ChunkedArray]:
        """The columns ``bit_fields`` and ``event_schema`` for a batch of events with the columns of the schema."""
        values = self.vectorized.evaluate(events)
        words = np.zeros((self.words, events.num_rows), np.int64)
        for bit, source in enumerate(self._bits):
            mask = self._python_mask(source, events) if isinstance(source, PythonCondition) else mask_of(values[source])
            words[bit // BITS_PER_WORD] |= mask.astype(np.int64) << (bit % BITS_PER_WORD)
        columns = [
            pa.chunked_array([pa.array(word).cast(f.type)]) for word, f in zip(words, self.bit_fields, strict=True)
        ]
        computed = dict(zip(self._slot_columns, self.programs.slots, strict=True))
        for field in self.event_schema:
            if field.name.startswith("e:"):
                columns.append(events.column(field.name[2:]))
            else:
                columns.append(values[computed[field.name]].cast(field.type))
        return columns

    def _python_mask(self, condition: PythonCondition, events: pa.Table) -> npt.NDArray[np.bool_]:
        name = getattr(condition.function, "__qualname__", repr(condition.function))
        try:
            answer = condition.function(events)
        except Exception as error:
            raise InvalidEventError(f"condition {name} failed", described(error)) from error
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            mask = (
                mask_of(answer if isinstance(answer, pa.ChunkedArray) else pa.chunked_array([answer]))
                if pa.types.is_boolean(answer.type)
                else None
            )
        else:
            array = np.asarray(answer)
            mask = array if array.dtype == np.bool_ and array.ndim == 1 else None
        if mask is None or len(mask) != events.num_rows:
            raise InvalidEventError(f"condition {name} did not return one Boolean per event")
        return mask

    # ------------------------------------------------------------------ partial matches

    def advance(self, *args: Any, **options: Any) -> Step:
        """:meth:`slices` in one."""
        (step,) = self.slices(*args, **options, most=NO_SLICES)
        return step

    def slices(
        self,
        pages: Sequence[Page],
        keys: pa.Table,
        page_of: npt.NDArray[Any] | None,
        events: pa.Table,
        horizon: int,
        *,
        processing_time: int = 0,
        last_key_open: bool = False,
        first_position: int = 0,
        most: int = 0,
    ) -> Iterator[Step]:
        """Feed prepared events (in order of arrival) to the partial matches of *pages* and advance to *horizon*.

        *events* has TIME, ``bit_fields`` and ``event_schema``; *keys* its key columns, row by row. *page_of* gives the
        position in *pages* for each event; None: there is one page. With *last_key_open* the key that appears last does
        not advance beyond its events. *processing_time* is for per-event conditions. So many events as *first_position*, of those
        that the pattern can see, had the key and time of the first of these before.

        What comes of it comes in slices (*most* as SLICE, which is the default), key by key and in order of time.
        """
        from asterism.matching import kernels

        n_state_keys = sum(page.keys.num_rows for page in pages)
        all_keys = pa.concat_tables([*(page.keys for page in pages), keys])
        codes, n_keys = group_codes(all_keys)
        first_row = np.empty(n_keys, np.int64)
        first_row[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
        event_codes = codes[n_state_keys:]

        times = events.column(TIME).to_numpy()
        order = np.argsort(times, kind="stable")
        narrow = event_codes.astype(np.uint16) if n_keys <= 2**16 else event_codes  # numpy sorts 16 bits by radix
        order = order[np.argsort(narrow[order], kind="stable")]

        n_state_events = sum(len(page.times) for page in pages)
        pool_times = np.concatenate([*(page.times for page in pages), times[order]])
        positions = positions_among_equals(event_codes[order], times[order], self.sees(events)[order])
        if first_position:
            positions[(event_codes[order] == event_codes[0]) & (times[order] == times[0])] += first_position
        pool_positions = np.concatenate([*(page.positions for page in pages), positions])
        pool_rows = np.concatenate([np.arange(n_state_events), n_state_events + order])
        pool = pa.concat_tables(
            [*(page.events for page in pages), events.select(self.event_schema.names)]
        ).combine_chunks()
        bits = np.zeros((len(pool_times), self.words), np.int64)
        for word, field in enumerate(self.bit_fields):
            bits[n_state_events:, word] = events.column(field.name).to_numpy()[order]
        event_at = n_state_events + np.concatenate([[0], np.cumsum(np.bincount(event_codes, minlength=n_keys))])
        loaded = Loaded.of(pages, n_keys)
        values, ranks = self._slot_values(pool, pool_rows)
        tables = self.tables()
        if len(ranks):
            tables = tables._replace(ops=with_strings(tables.ops, ranks))
        if self._iterative:
            stages = {name: number for number, name in enumerate(self.nfa.stages)}
            calls = Calls(
                self._iterative, stages, pool, pool_rows, pool_times, self.zone, processing_time,
                forgiving=self.semantics is Semantics.FLINK,
            )  # fmt: skip
            pointer = POINTER(calls.answer)  # alive while the kernel runs
            tables = tables._replace(ops=_with_address(tables.ops, pointer))
        horizons = np.full(n_keys, horizon, np.int64)
        if last_key_open:
            horizons[-1] = kernels.NO_ADVANCE
        row_times = np.empty(len(pool_times), np.int64)
        row_times[pool_rows] = pool_times
        keys_found = all_keys.take(pa.array(first_row))
        inputs = tables, np.zeros(n_keys, np.int64), pool_times, bits, values, event_at, horizons
        most = most or SLICE
        for made in slices_of(inputs, loaded.arrays(), most, go_on=False):
            code = int(made.failures[0, kernels.FAILED_HOW])
            if code != kernels.OK:
                key = keys_found.slice(int(made.failures[0, kernels.FAILED_KEY]), 1)
                where = "key " + ", ".join(f"{name}={values[0]!r}" for name, values in key.to_pydict().items())
                if code == kernels.PYTHON_FAILED:
                    self._raise_from(calls, where)
                self.raise_error(code, where, made.dropped)
            for matches, timeouts, complete in made.found(pool, pool_rows, pool_positions, most):
                dropped = made.dropped if complete else 0
                if not (complete and made.last):
                    yield Step(keys_found, pool, row_times, matches, timeouts, [], [], dropped, last=False)
        nodes, n_nodes, wakes = made.nodes, made.n_nodes, made.wakes
        run_at, runs, waiting_at, waiting, timer_at, timers = made.rows

        page_of_key = np.zeros(n_keys, np.int64)
        if page_of is not None:
            page_of_key[event_codes] = page_of
        page_of_key[:n_state_keys] = np.repeat(np.arange(len(pages)), [page.keys.num_rows for page in pages])
        alive = (np.diff(run_at) > 0) | (np.diff(waiting_at) > 0) | (np.diff(timer_at) > 0)
        new_pages, new_wakes = [], []
        for number in range(len(pages)):
            live = alive & (page_of_key == number)
            page_runs, page_run_at = rows_of(runs, run_at, live)
            page_waiting, page_waiting_at = rows_of(waiting, waiting_at, live)
            page_timers, page_timer_at = rows_of(timers, timer_at, live)
            page_nodes, kept = kernels.compact(len(pool_times), nodes, n_nodes, page_runs, page_waiting)
            new_pages.append(
                Page(
                    keys=all_keys.take(pa.array(first_row[live])),
                    events=pool.take(pa.array(pool_rows[kept])),
                    times=pool_times[kept],
                    positions=pool_positions[kept],
                    nodes=page_nodes,
                    run_at=page_run_at,
                    run_rows=page_runs,
                    waiting_at=page_waiting_at,
                    waiting_rows=page_waiting,
                    timer_at=page_timer_at,
                    timer_rows=page_timers,
                )
            )
            new_wakes.append(int(wakes[live].min(initial=kernels.NEVER)))
        yield Step(keys_found, pool, row_times, matches, timeouts, new_pages, new_wakes, dropped)

    def _slot_values(self, pool: pa.Table, rows: Ints) -> tuple[Ints, Ints]:
        columns = [pool.column(name) for name in self._slot_columns]
        return slot_values(columns, rows, self.programs.strings)

    def _raise_from(self, calls: Calls, where: str) -> None:
        """Raise what went wrong in a per-event condition."""
        assert calls.failure is not None
        number, error, answer = calls.failure
        if error is not None and not isinstance(error, Exception):
            raise error  # KeyboardInterrupt and its like
        condition = self._iterative[number]
        stages = ", ".join(f'"{stage.name}"' for stage in _all_stages(self.pattern) if _asks(stage, condition))
        what = f"condition {getattr(condition.function, '__qualname__', condition.function)} of stage {stages}"
        if error is not None:
            raise InvalidEventError(f"{what} failed", f"{described(error)}\n{where}") from error
        raise InvalidEventError(
            f"{what} did not return True or False",
            f"It returned {reprlib.repr(answer)}.\n{where}",
            "wrap it in bool(...)",
        )

    def raise_error(self, error: int, where: str, excess: int = 0, hint: str = LIMIT_HINT) -> None:
        """Raise what an error code of the kernel means; *hint*: what to do about a limit."""
        from asterism.matching import kernels

        if error == kernels.DIVISION_BY_ZERO:
            raise InvalidEventError("division by zero in a condition", where, "try_divide(a, b) gives NULL instead")
        if error == kernels.SKIP_MISSED:
            raise SkipStrategyError(
                f'could not skip to "{self.pattern.skip.stage}": the match has no such event', where
            )
        if error == kernels.SKIP_TO_OWN_FIRST:
            raise SkipStrategyError(
                f'could not skip to "{self.pattern.skip.stage}": it is the first event of the match', where
            )
        if error == kernels.TOO_MANY_RUNS:
            limit = self.max_partial_matches or 0
            count = (
                f"{limit + excess} partial matches (limit {limit})"
                if excess
                else f"more than {limit:,} partial matches"
            )
            raise LimitExceededError(f"a key has {count}", where, hint)
        if error == kernels.TOO_MUCH_WORK:
            raise LimitExceededError(
                f"an event takes more than {self.max_steps:,} steps for the partial matches of its key",
                f"{where}\nThe limit is {STEPS_PER_PARTIAL_MATCH} for each of the partial matches that are allowed.",
                hint,
            )
        if error == kernels.TOO_MANY_HELD:
            raise LimitExceededError(
                f"a key has more than {self.max_held:,} matches that the skip strategy holds back",
                f"{where}\nThe limit is {HELD_PER_PARTIAL_MATCH} for each of the partial matches that are allowed.",
                hint,
            )
        raise MalformedPatternError("the pattern has too many ways to skip its optional stages", where)

    # ------------------------------------------------------------------ tables

    def tables(self) -> Tables:
        """The automaton as flat arrays."""
        if self._tables is None:
            self._tables = self._make_tables()
        return self._tables

    def _make_tables(self) -> Tables:
        from asterism.matching import kernels

        nfa, programs, skip = self.nfa, self.programs, self.pattern.skip
        stages = {name: number for number, name in enumerate(nfa.stages)}
        guards: list[tuple[int, int, int]] = []
        guard_at: dict[Guard, int] = {}
        states: list[tuple[int, ...]] = []
        edges: list[tuple[int, ...]] = []
        outlooks = self._outlooks()
        for state in nfa.states:
            first_edge = len(edges)
            for edge in state.edges:
                if edge.guard not in guard_at:
                    guard_at[edge.guard] = _branches(edge.guard, kernels.HOLDS, kernels.FAILS, guards)
                care_want = self._bits_only(edge.guard)
                where = (
                    edge.action,
                    edge.target.number,
                    guard_at[edge.guard],
                    stages.get(state.stage, -1),
                    micros(edge.gap),
                )
                edges.append((*where, *(care_want or (0, 0)), int(care_want is not None)))
            outlook = outlooks[state]
            wake, plain = outlook.wake(state), int(outlook.plain)
            states.append((state.kind, micros(state.gap), wake, first_edge, len(edges), plain))
        conditions = []
        for bit, program_number in zip(self._condition_bit, self._condition_program, strict=True):
            begin, end = (
                (0, 0) if program_number < 0 else (programs.starts[program_number], programs.ends[program_number])
            )
            conditions.append((bit, begin, end))
        automaton = (
            0,
            nfa.start.number,
            micros(nfa.window),
            list(SkipKind).index(skip.kind),
            stages.get(skip.stage or "", -1),
            int(skip.throw_on_miss),
            self.max_partial_matches or 0,
            kernels.UNLIMITED if self.max_steps is None else self.max_steps,
            kernels.UNLIMITED if self.max_held is None else self.max_held,
        )
        return kernels.Tables(
            states=_rows(states, 6),
            edges=_rows(edges, 8),
            guards=_rows(guards, 3),
            conditions=_rows(conditions, 3),
            ops=_rows(programs.ops, 6),
            automata=np.array([automaton], np.int64),
            flink=self.semantics is Semantics.FLINK,
            drop=self.drop_at_limit,
        )

    def _bits_only(self, guard: Guard) -> tuple[int, int] | None:
        """(bits that must have a certain value, their values) if that is all the guard asks for."""
        match guard:
            case Always():
                return 0, 0
            case Test(condition) | Not(Test(condition)):
                bit = self._condition_bit[condition]
                if self._condition_program[condition] >= 0 or not 0 <= bit < BITS_PER_WORD:
                    return None
                return 1 << bit, 1 << bit if isinstance(guard, Test) else 0
            case Both(left, right):
                a, b = self._bits_only(left), self._bits_only(right)
                if a is None or b is None or (a[0] & b[0] & (a[1] ^ b[1])):
                    return None
                return a[0] | b[0], a[1] | b[1]
        return None

    def _outlooks(self) -> dict[State, _Outlook]:
        """What each state and those that PROCEED edges lead to from it ask of events."""
        outlooks: dict[State, _Outlook] = {}
        for state in _targets_first(self.nfa.states):
            outlook = outlooks[state] = _Outlook(quiet=state.kind is not StateKind.STOP)
            for edge in state.edges:
                outlook.plain &= self._bits_only(edge.guard) is not None
                for condition in _conditions_of(edge.guard):
                    if self._condition_bit[condition] >= 0:
                        outlook.bits |= 1 << (self._condition_bit[condition] % BITS_PER_WORD)
                low, high = self._if_nothing_is_met(edge.guard)
                outlook.quiet &= low == high and edge.gap is None
                if edge.action is Action.PROCEED:
                    beyond = outlooks[edge.target]
                    outlook.plain &= beyond.plain
                    outlook.bits |= beyond.bits
                    outlook.quiet &= beyond.quiet or not low
                    followed = beyond.followed
                else:
                    followed = (edge,)
                if low:
                    outlook.followed = (*outlook.followed, *followed)[:2]
                    outlook.passes &= beyond.passes if edge.action is Action.PROCEED else edge.action is Action.IGNORE
        return outlooks

    def _if_nothing_is_met(self, guard: Guard) -> tuple[bool, bool]:
        """Bounds of a guard's value for an event whose condition bits are all unset."""
        match guard:
            case Test(condition):
                if self._condition_bit[condition] >= 0:
                    return False, False
                return self._condition_program[condition] < 0, True
            case Not(inner):
                low, high = self._if_nothing_is_met(inner)
                return not high, not low
            case Both(left, right) | Either(left, right):
                a, b = self._if_nothing_is_met(left), self._if_nothing_is_met(right)
                return (a[0] and b[0], a[1] and b[1]) if isinstance(guard, Both) else (a[0] or b[0], a[1] or b[1])
        return True, True

    @cached_property
    def relevant_only(self) -> bool:
        """May events that meet no condition be left out altogether, because the pattern cannot see them? Not where a stage asks
        for the very next event, and not where Flink's answers depend on the times of such events.
        """
        if self.semantics is Semantics.FLINK:
            return False
        waiting = [item for item in self._outlooks().items() if item[0].kind not in (StateKind.STOP, StateKind.FINAL)]
        return bool(self._bits) and all(outlook.wake(state) >= 0 for state, outlook in waiting)

    def sees(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """Which prepared events the pattern can see."""
        if not self.relevant_only:
            return np.ones(events.num_rows, np.bool_)
        seen = np.zeros(events.num_rows, np.bool_)
        for field in self.bit_fields:
            seen |= events.column(field.name).to_numpy() != 0
        return seen

    def relevance_sql(self) -> str | None:
        """Spark SQL that holds for every event that can matter; None if all must be kept."""
        if not self.relevant_only or any(isinstance(source, PythonCondition) for source in self._bits):
            return None
        texts = []
        for condition, bit in zip(self.nfa.conditions, self._condition_bit, strict=True):
            if bit < 0:
                continue  # no guard that it decides alone: an event that meets none of the others changes nothing
            assert isinstance(condition, SqlCondition)
            tree = self.scope.resolve(parse(condition.text), condition.text)
            pure = [part for part in conjuncts(tree) if not has_aggregate(part)]
            texts.append("(" + _joined(pure).sql(dialect="spark", comments=False) + ")")
        return " OR ".join(dict.fromkeys(texts))


def slot_values(columns: Sequence[pa.ChunkedArray], rows: Ints, strings: Sequence[str]) -> tuple[Ints, Ints]:
    """(the values of slots at *rows* as the kernel wants them, the ranks of the string constants)"""
    values = np.zeros((len(rows), max(2 * len(columns), 1)), np.int64)
    texts: dict[int, pa.Array] = {}
    for slot, column in enumerate(columns):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        kind = kind_of(array.type)
        values[:, 2 * slot + 1] = array.is_null().to_numpy(zero_copy_only=False)[rows]
        if kind is ValueKind.STRING:
            texts[slot] = array.cast(pa.string())
        elif kind is ValueKind.FLOAT:
            doubles = pc.fill_null(array.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
            values[:, 2 * slot] = doubles.view(np.int64)[rows]
        elif kind is not ValueKind.NULL:
            values[:, 2 * slot] = as_int64(array)[rows]
    constants = pa.array(strings, pa.string())
    if not texts and not len(constants):
        return values, np.empty(0, np.int64)
    # Strings are compared by rank among all strings of this call: order and equality are those of the bytes.
    distinct = pc.unique(pa.chunked_array([*texts.values(), constants], pa.string())).drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    for slot, array in texts.items():
        values[:, 2 * slot] = pc.fill_null(pc.index_in(array, distinct), 0).to_numpy(zero_copy_only=False)[rows]
    return values, pc.index_in(constants, distinct).to_numpy(zero_copy_only=False).astype(np.int64)


def _rows(rows: Sequence[Sequence[int]], columns: int) -> Ints:
    return np.array(rows, np.int64).reshape(-1, columns)


def with_strings(ops: Ints, ranks: Ints) -> Ints:
    """The operations with every string constant as its rank."""
    ops = ops.copy()
    constant = ops[:, 0] == Op.STRING
    ops[constant, 0] = Op.CONST
    ops[constant, 1] = ranks[ops[constant, 1]]
    return ops


def _with_address(ops: Ints, pointer: Any) -> Ints:
    """The operations with the address of what answers for Python."""
    ops = ops.copy()
    ops[ops[:, 0] == Op.PYTHON, 2] = ctypes.cast(pointer, ctypes.c_void_p).value or 0
    return ops


@dataclass(slots=True)
class Sliced:
    """What the kernel made in a slice of a call. *rows* are partial matches, waiting matches and timers, each after where those
    of a key begin. If *failures* has one, the rest is of no use.
    """

    nodes: Ints
    n_nodes: int
    rows: tuple[Ints, ...]
    out: Ints
    lost: Ints
    dropped: int
    failures: Ints
    wakes: Ints
    last: bool

    def found(self, pool: pa.Table, pool_rows: Ints, positions: Ints, most: int) -> Iterator[tuple[Found, Found, bool]]:
        """Matches and timed-out partial matches, portion by portion (*most* as SLICE), at least one; is it the last?"""
        if most == SLICE and pool.num_rows:
            most = min(most, SLICE_BYTES * pool.num_rows // max(pool.nbytes, 1))
        found = [_Portions.of(rows, self.nodes, pool_rows, positions, most) for rows in (self.out, self.lost)]
        count = max(len(portions.cuts) for portions in found) - 1
        for number in range(count):
            matches, timeouts = (portions.unfolded(number) for portions in found)
            yield matches, timeouts, number == count - 1


@dataclass(slots=True)
class _Portions:
    """Matches as rows of the kernel, in portions that end at *cuts*."""

    rows: Ints
    nodes: Ints
    pool_rows: Ints
    positions: Ints
    offsets: Ints
    cuts: list[int]

    @classmethod
    def of(cls, rows: Ints, nodes: Ints, pool_rows: Ints, positions: Ints, most: int) -> _Portions:
        """Of matches that have *most* events together, or of one that has more."""
        from asterism.matching import kernels

        offsets = offsets_of(kernels.lengths(nodes, rows[:, 2]))
        cuts = [0]
        while cuts[-1] < len(rows) or len(cuts) == 1:
            end = int(np.searchsorted(offsets, offsets[cuts[-1]] + most, "right")) - 1
            cuts.append(min(max(end, cuts[-1] + 1), len(rows)))
        return cls(rows, nodes, pool_rows, positions, offsets, cuts)

    def unfolded(self, number: int) -> Found:
        from asterism.matching import kernels

        begin, end = (self.cuts[min(place, len(self.cuts) - 1)] for place in (number, number + 1))
        rows, offsets = self.rows[begin:end], self.offsets[begin : end + 1] - self.offsets[begin]
        events, stages = kernels.unfold(self.nodes, rows[:, 2], offsets)
        return Found(rows[:, 0], rows[:, 1], offsets, self.pool_rows[events], self.positions[events], stages)


def slices_of(
    inputs: tuple[Any, ...], stored: Sequence[Any], most: int, *, go_on: bool, patterns: int = 1
) -> Iterator[Sliced]:
    """Run the kernel, slice by slice.

    :param inputs: what is the same in all slices: the tables, the pattern of each key, times, bits and values of the events,
        where those of each key begin, and to when its time goes
    :param stored: the nodes, their number, and the rows of the keys
    :param go_on: find the earliest failure of each of the *patterns*; otherwise the first one is the end
    """
    from asterism.matching import kernels

    advance_keys: Any = kernels.advance_keys
    event_at, horizons = inputs[-2:]
    resume = np.array([0, event_at[0], -1], np.int64)
    wakes, failures = np.full(len(horizons), kernels.NEVER, np.int64), np.zeros((patterns, 4), np.int64)
    nodes, n_nodes, *rows = stored
    while True:
        nodes, n_nodes, *rows, out, lost, dropped = advance_keys(
            *inputs, resume, most, go_on, wakes, failures, nodes, n_nodes, *rows
        )
        last = bool(resume[kernels.RESUME_KEY] == len(horizons))
        yield Sliced(nodes, n_nodes, tuple(rows), out, lost, int(dropped), failures, wakes, last)
        if last:
            return
        nodes = kernels.without_unused(nodes, n_nodes, rows[1], rows[3])
        n_nodes = len(nodes)
        nodes = np.concatenate([nodes, np.empty((64, 3), np.int64)])


def _branches(guard: Guard, if_true: int, if_false: int, rows: list[tuple[int, int, int]]) -> int:
    """Append a guard for the kernel: rows of a condition and where to go on. The row where it begins."""
    match guard:
        case Always():
            return if_true
        case Test(condition):
            rows.append((condition, if_true, if_false))
            return len(rows) - 1
        case Not(inner):
            return _branches(inner, if_false, if_true, rows)
        case Both(left, right):
            return _branches(left, _branches(right, if_true, if_false, rows), if_false, rows)
        case Either(left, right):
            return _branches(left, if_true, _branches(right, if_true, if_false, rows), rows)
    raise AssertionError(guard)


@dataclass(slots=True)
class _Outlook:
    """What can happen to a partial match in a state, PROCEED edges included."""

    plain: bool = True
    """guards ask for condition bits only"""
    bits: int = 0
    """of the conditions that guards mention"""
    quiet: bool = True
    """is it certain what becomes of an event that meets none of these conditions, and is it not the end?"""
    followed: tuple[Edge, ...] = ()
    """the edges that such an event follows, if that is certain: the first two of them"""
    passes: bool = True
    """are all of them IGNORE edges?"""

    def wake(self, state: State) -> int:
        """Which events can matter to a partial match in *state*: bits of the conditions that one of them must meet, or -1.

        An event that meets none of the conditions mentioned may be passed over if the state would just ignore it.
        """
        stays = len(self.followed) == 1 and self.followed[0].target is state
        return self.bits if self.quiet and self.passes and (stays or state.kind is StateKind.START) else -1


def _targets_first(states: Sequence[State]) -> list[State]:
    """The states in an order in which PROCEED edges lead back; they make no circle."""
    order: dict[State, None] = {}
    for origin in states:
        todo = [origin]
        while todo:
            near = [e.target for e in todo[-1].edges if e.action is Action.PROCEED and e.target not in order]
            if near:
                todo += near
            else:
                order[todo.pop()] = None
    return list(order)


def _conditions_of(guard: Guard) -> set[int]:
    rows: list[tuple[int, int, int]] = []
    _branches(guard, -1, -1, rows)
    return {condition for condition, _, _ in rows}


def _all_stages(pattern: PatternSequence) -> Iterator[Stage]:
    for stage in pattern.stages:
        yield stage
        if stage.group is not None:
            yield from _all_stages(stage.group)


def _asks(stage: Stage, wanted: Condition) -> bool:
    """Is a condition among those of a stage?"""
    todo = [condition for condition in (stage.condition, stage.until) if condition is not None]
    for condition in todo:
        match condition:
            case AndCondition(left, right) | OrCondition(left, right):
                todo += [left, right]
            case NotCondition(inner):
                todo.append(inner)
    return any(condition == wanted for condition in todo)


def _joined(parts: Sequence[exp.Expr]) -> exp.Expr:
    return parts[0] if len(parts) == 1 else exp.and_(*parts, copy=True)
