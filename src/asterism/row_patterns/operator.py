"""MATCH_RECOGNIZE over a stream as an operator.

Conditions on the current row are evaluated before the exchange (:mod:`asterism.row_patterns.current_row`); columns that only such
conditions read are not exchanged, and neutral rows are dropped. The state of a key contains the rows that an undecided or later
match can still contain or read, in order, and the progress of the search (see
:func:`asterism.row_patterns.kernels.find_matches`), but nothing of the automaton. Rows that the watermark has passed are appended
in the order of ORDER BY, and the search continues. A match is emitted as soon as no later row can change it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa

from asterism.arguments import expect_number, shown
from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.groups import consecutive, first_rows, group_codes, offsets_of
from asterism.columns.time import END_OF_TIME, TIME, Described, TimeColumn
from asterism.errors import ExpressionSyntaxError, StreamDefinitionError
from asterism.expressions.computed_columns import is_computed, visible
from asterism.expressions.names import plain_column
from asterism.expressions.types import is_temporal
from asterism.matching.operator import event_times
from asterism.matching.spec import OnLimit
from asterism.operators.evolution import FIXED, aligned_tables
from asterism.operators.key_group import LATE, Group, KeyGroupOperator, complete, key_schema_of, late_table
from asterism.operators.operator import EVENTS, InputSpec
from asterism.operators.state.pages import PAGE
from asterism.operators.state.state_definition import KEYS_TABLE, UNKNOWN_COLUMNS, OperatorKind, StateDefinition
from asterism.operators.state.state_store import tables_from_bytes, tables_to_bytes
from asterism.row_patterns.automaton import AT_START
from asterism.row_patterns.checking import CheckedClause
from asterism.row_patterns.clause.clause import Clause, RowsPerMatch
from asterism.row_patterns.current_row import WORDS, CurrentRow
from asterism.row_patterns.ordered_rows import (
    OrderedRows,
    columns_beside_words,
    columns_kept,
    complete_with_words,
    evaluated,
    partition_keys,
)
from asterism.row_patterns.resolution import MatchNumber
from asterism.row_patterns.stored_searches import ROWS

if TYPE_CHECKING:
    from asterism.row_patterns.match_conditions import ClauseConditions
    from asterism.row_patterns.search import SearchState

MATCHES, LATE_ROWS = "matches", "late"
"""The outputs."""
DROPPED = "starts_dropped"
"""The metric that counts the rows from which no match is searched because of ``on_limit="drop"``."""
MAX_ROWS = 100_000
"""The default maximum number of rows of a key with which a search waits for more."""
LARGEST_LIMIT = 10**9
_PROGRESS = ("rows", "next_start", "matches", "covered", "rows_before")


def check_limit(max_rows: Any, on_limit: Any) -> None:
    """:raises StreamDefinitionError: these are not a valid limit and behavior"""
    expect_number(StreamDefinitionError, max_rows, "max_rows", least=1, most=LARGEST_LIMIT)
    if not isinstance(on_limit, str) or on_limit not in get_args(OnLimit):
        raise StreamDefinitionError(f'on_limit must be "error" or "drop", not {shown(on_limit)}')


def event_time_of(clause: CheckedClause) -> str:
    """The column of the event time, which must be the first expression of ORDER BY of a clause over a stream.

    :raises asterism.errors.ExpressionSyntaxError: ORDER BY begins with something else
    """
    written, values = clause.clause, clause.rows.values
    must, hint = "over a stream, ORDER BY must begin with the event time", "ORDER BY ts"
    if not written.order_by:
        raise ExpressionSyntaxError.at(f"{must}; it is missing", written.text, written.pattern.start, hint)
    first, number = written.order_by[0], clause.order_by[0]
    column, kind = plain_column(values.texts[number]), values.types[number]
    if column is None or is_computed(values.schema.names[column]) or not (is_temporal(kind) or pa.types.is_int64(kind)):
        problem = f"{must}: a TIMESTAMP, DATE or BIGINT column"
        hint = "compute it before, as in FROM (SELECT *, to_timestamp(time) AS ts FROM events)"
        raise ExpressionSyntaxError.at(problem, written.text, first.expression.start, hint)
    if first.descending:
        raise ExpressionSyntaxError.at(f"{must} in ascending order", written.text, first.expression.start, hint)
    return str(clause.rows.schema.names[column])


class RowPatternOperator(KeyGroupOperator):
    """A clause over one input, with the partitions as keys.

    :param schema: the columns of the rows, and those that Spark computes, for which the clause was checked
    :param outputs: the requested outputs, of MATCHES and LATE_ROWS
    :param pages: a fixed number of pages of state per key group; None: as many as the size of the state requires
    :param max_rows: the maximum number of rows of a key with which a search waits for more
    :param on_limit: what happens beyond the maximum. With "error", :class:`~asterism.errors.LimitExceededError` is raised. With
        "drop", the search continues with the next row as if no match began at the first of these rows; the metric DROPPED counts
        such rows.
    """

    metrics: Sequence[str] = (MATCHES, LATE, DROPPED)
    processing_time = False

    def __init__(
        self,
        clause: CheckedClause,
        schema: pa.Schema,
        *,
        outputs: Collection[str] = (MATCHES,),
        pages: int | None = None,
        max_rows: int = MAX_ROWS,
        on_limit: OnLimit = "error",
    ) -> None:
        check_limit(max_rows, on_limit)
        self.set_pages(pages)
        self.clause, self.schema = clause, schema
        self.current_row = CurrentRow(clause)
        self.time = TimeColumn.of(event_time_of(clause), schema)
        self.max_rows, self.drop = max_rows, on_limit == "drop"
        self.wants_late = LATE_ROWS in outputs
        self._margin = max(clause.reach_of_conditions[0], clause.reach_of_measures[0])
        self._numbered = _uses_match_number(clause)
        self.is_anchored = bool((clause.automaton.edges[:, 1] & AT_START).any())
        ordering = clause.rows.columns_of(clause.order_by)
        kept = {*columns_kept(clause, self.current_row), *ordering}
        kept_fields = [field for field in schema if field.name in kept]
        words = pa.field(WORDS, self.current_row.word_type)
        self.row_schema = pa.schema([words, *(field.with_name("e:" + field.name) for field in kept_fields)])
        self.row_input = visible(schema)
        is_sent = {*kept, *(self.row_input.names if self.wants_late else ())}
        sent = pa.schema([field for field in schema if field.name in is_sent])
        types = [clause.rows.values.types[number] for number in clause.partition_by]
        names = [str(place) for place in range(len(types))]
        fields = [pa.field(name, of) for name, of in zip(names, types, strict=True)]
        self.key_schema = key_schema_of(fields)
        self._page_schemas = [
            keys_schema(self.key_schema),
            self.row_schema,
        ]
        prepared = pa.schema(
            [
                *(field.with_name("k:" + field.name) for field in self.key_schema),
                pa.field(TIME, pa.int64()),
                *([pa.field(PAGE, pa.uint8())] if self.pages > 1 else []),
                words,
                *(field.with_name("e:" + field.name) for field in sent),
            ]
        )
        needed = columns_read(clause).union(self.row_input.names if self.wants_late else ())
        taken = pa.schema([field for field in schema if field.name in needed])
        self.inputs = {EVENTS: InputSpec(taken, prepared)}
        self._sent, self._kept = sent.names, [field.name for field in kept_fields]
        schemas = {MATCHES: clause.output, LATE_ROWS: self.row_input}
        self.output_schemas = {name: schemas[name] for name in outputs}
        self._fixed = {
            **parts_of(clause.clause),
            "the event time": repr(Described(self.time)),
            "the number of earlier rows that PREV() reads": str(self._margin),
            "the use of MATCH_NUMBER()": str(self._numbered),
            "the rows that measures need": "#" + self.current_row.neutral_rows,
            "pages": str(self.pages),
        }
        self.fingerprint = hashlib.sha256(repr((*_described(clause), self.pages, str(prepared))).encode()).digest()[:16]

    @cached_property
    def conditions(self) -> ClauseConditions:
        from asterism.row_patterns.match_conditions import ClauseConditions

        return ClauseConditions(self.clause, self.current_row)

    @property
    def definition(self) -> StateDefinition:
        texts = [key.expression.text for key in self.clause.clause.partition_by]
        fields = zip(texts, self.key_schema, strict=False)  # without keys, there is a single one
        return StateDefinition(
            OperatorKind.ROW_PATTERN,
            pa.schema([field.with_name(text.strip("`")) for text, field in fields]),
            {KEYS_TABLE: self._page_schemas[0], ROWS: self.row_schema},
            {name: spec.prepared for name, spec in self.inputs.items()},
            {
                "time": self.time.name,
                "unit": self.time.unit,
                "within": self.clause.within or 0,
                "drops_rows": self.current_row.has_neutral,
                "bits": self.current_row.texts,
                FIXED: self._fixed,
            },
        )

    def converted(self, old: StateDefinition, page: bytes) -> bytes:
        return aligned_tables(page, old.tables, self.definition.tables)

    @property
    def columns_beside_words(self) -> list[str]:
        """The columns of the input that :meth:`prepare` reads if the events have a column WORDS."""
        names = columns_beside_words(self.clause, self.current_row).union(self._sent)
        return [name for name in self.schema.names if name in names]

    def prepare(self, name: str, events: pa.Table) -> pa.Table:
        """The values of PARTITION BY, the event time, the bits of the current row, and the columns that are read later.

        :param events: they may have a column WORDS, if Spark has evaluated the conditions (:attr:`CurrentRow.words_sql`)
        """
        full = complete_with_words(events, self.schema)
        keys = partition_keys(self.clause, full)
        times = event_times(full, self.time, False, self.wants_late)
        columns = self.first_columns(events, [keys[number] for number in self.clause.partition_by], times)
        columns.append(self.current_row.words(full))
        columns += [full.column(name) for name in self._sent]
        return pa.table(columns, schema=self.inputs[name].prepared)

    def late(self, group: Group, name: str, events: pa.Table) -> None:
        group.metrics[LATE] += events.num_rows
        if self.wants_late:
            group.emit(LATE_ROWS, late_table(self.row_input, events))

    def advance(self, group: Group, ready: Mapping[str, pa.Table], horizon: int) -> Iterator[None]:
        from asterism.row_patterns.result_rows import match_ordered
        from asterism.row_patterns.search import SearchState, no_progress

        events = ready.get(EVENTS, self.inputs[EVENTS].prepared.empty_table())
        if self.current_row.has_neutral:  # Spark may have dropped some of them already
            neutral = self.current_row.neutral(events.column(WORDS).to_numpy())
            if neutral.any():
                events = events.filter(pa.array(~neutral))
        names = ["k:" + name for name in self.key_schema.names]
        pages = group.load([events], names, horizon)
        stored = [self._page_of(value) for value in pages.stored]
        page = _RowPage.concat(stored or [self._page_of(None)])
        keys = pa.table([events.column(name) for name in names], schema=self.key_schema)
        keys = pa.concat_tables([page.keys, keys])
        codes, count = group_codes(keys)
        known = page.keys.num_rows
        arrived = events.select(self.row_schema.names)
        key_rows = np.concatenate([np.repeat(np.arange(known), page.sizes), np.arange(known, len(codes))])
        ordered = self._ordered(pa.concat_tables([page.rows, arrived]), keys, key_rows, codes, count)
        progress = no_progress(count)
        progress[:known, : page.progress.shape[1]] = page.progress
        state = SearchState(progress, group.processing_time, group.over, horizon, self.max_rows, self.drop)
        for result_rows in match_ordered(self.conditions, ordered, state):
            if MATCHES in self.output_schemas:
                group.emit(MATCHES, result_rows)
            yield
        for metric, number in (
            (MATCHES, progress[:, 1].sum() - page.progress[:, 1].sum()),
            (DROPPED, progress[:, 4].sum()),
        ):
            if number:
                group.metrics[metric] += int(number)
        if group.over:
            pages.discard()
            return
        first = first_rows(codes, count)
        sizes = [stored_page.keys.num_rows for stored_page in stored]
        page_of_key = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), pages.of_events[0]])[first]
        left, deadlines, kept = self._left(keys.take(pa.array(first)), ordered, state)

        def encoded(selected: Ints) -> tuple[bytes, int, int]:
            part = left if len(selected) == left.keys.num_rows else left.of(selected)
            return part.to_bytes(self._page_schemas), int(deadlines[selected].min()), END_OF_TIME

        pages.rewrite(lambda: left.keys, page_of_key[kept], partial(map, encoded))

    def _ordered(self, rows: pa.Table, keys: pa.Table, key_of: Ints, codes: Ints, count: int) -> OrderedRows:
        """
        :param key_of: for each row, its row of *keys*
        :param codes: for each row of *keys*, the number of its partition
        :param count: the number of partitions
        """
        clause, words = self.clause, rows.column(WORDS).to_numpy()
        rows = self._input_of(rows)
        by = evaluated(clause.rows.values, clause.order_by, complete(rows, self.schema))
        keys = keys.take(pa.array(key_of))
        by |= {number: one_chunk(column) for number, column in zip(clause.partition_by, keys.columns, strict=False)}
        return OrderedRows.sorted(clause, rows, by, codes[key_of], count, words)

    def _left(self, keys: pa.Table, ordered: OrderedRows, state: SearchState) -> tuple[_RowPage, Ints, Ints]:
        """(the page of the remaining keys, for each of them the time at which its first undecided match is decided without
        further rows, the numbers of the remaining *keys*)
        """
        progress, sizes = state.progress, np.diff(ordered.offsets)
        deadlines = np.full(len(sizes), END_OF_TIME, np.int64)
        if self.clause.within is not None:
            waiting = np.flatnonzero(progress[:, 0] < sizes)
            begun = ordered.times()[ordered.offsets[waiting] + progress[waiting, 0]]
            passes = begun + self.clause.within
            deadlines[waiting] = np.where(passes > state.horizon, passes, END_OF_TIME)
        bounds = progress[:, -1]
        deadlines = np.minimum(deadlines, np.where(bounds > state.horizon, bounds, END_OF_TIME))
        gone = np.maximum(progress[:, 0] - self._margin, 0)
        sizes = sizes - gone
        begins = ordered.offsets[:-1] + gone
        progress = np.column_stack(
            [progress[:, 0] - gone, progress[:, 1], np.maximum(progress[:, 2] - gone, 0), progress[:, 3] + gone]
        )
        needed = sizes > 0
        if self._numbered:
            needed |= progress[:, 1] > 0
        if self.is_anchored:
            needed |= progress[:, 3] > 0
        kept = np.flatnonzero(needed)
        at = consecutive(begins[kept], sizes[kept])
        assert ordered.words is not None
        columns = [pa.array(ordered.words[at]), *(ordered.rows.column(name).take(pa.array(at)) for name in self._kept)]
        rows = pa.table(columns, schema=self.row_schema)
        return _RowPage(keys.take(pa.array(kept)), rows, sizes[kept], progress[kept]), deadlines[kept], kept

    def keys_in(self, value: bytes) -> pa.Table:
        """The keys in a page of state."""
        return self._page_of(value).keys

    def waiting_rows(self, value: bytes) -> list[pa.Table]:
        """For each waiting key in a page of state, the rows from its first undecided row on."""
        page = self._page_of(value)
        begins, starts = offsets_of(page.sizes), page.progress[:, 0]
        waiting = np.flatnonzero(starts < page.sizes)
        rows = self._input_of(page.rows)
        return [rows.slice(int(begins[at] + starts[at]), int(page.sizes[at] - starts[at])) for at in waiting]

    def count_waiting(self, value: bytes) -> int:
        """The number of these rows."""
        page = self._page_of(value)
        return int(np.maximum(page.sizes - page.progress[:, 0], 0).sum())

    def _input_of(self, rows: pa.Table) -> pa.Table:
        """The columns of the input that rows have."""
        return rows.drop_columns([WORDS]).rename_columns(self._kept)

    def _page_of(self, value: bytes | None) -> _RowPage:
        if value is None:
            nothing = np.zeros((0, len(_PROGRESS)), np.int64)
            return _RowPage(self.key_schema.empty_table(), self.row_schema.empty_table(), nothing[:, 0], nothing[:, 1:])
        keys, rows = tables_from_bytes(value, self._page_schemas)
        numbers = np.column_stack([keys.column("p:" + name).to_numpy() for name in _PROGRESS])
        return _RowPage(keys.select(self.key_schema.names), rows, numbers[:, 0], numbers[:, 1:])


# ---------------------------------------------------------------------- state


@dataclass(slots=True)
class _RowPage:
    """Keys, their rows key by key, and the progress of their searches."""

    keys: pa.Table
    rows: pa.Table
    sizes: Ints
    progress: Ints

    @classmethod
    def concat(cls, pages: Sequence[_RowPage]) -> _RowPage:
        """The keys of all *pages*, which are distinct."""
        return cls(
            pa.concat_tables([page.keys for page in pages]),
            pa.concat_tables([page.rows for page in pages]),
            np.concatenate([page.sizes for page in pages]),
            np.concatenate([page.progress for page in pages]),
        )

    def of(self, keys: Ints) -> _RowPage:
        """A page of some of the keys."""
        at = consecutive(offsets_of(self.sizes)[keys], self.sizes[keys])
        which = pa.array(keys)
        return _RowPage(self.keys.take(which), self.rows.take(pa.array(at)), self.sizes[keys], self.progress[keys])

    def to_bytes(self, schemas: Sequence[pa.Schema]) -> bytes:
        numbers = [pa.array(self.sizes), *(pa.array(column) for column in self.progress.T)]
        keys = pa.table([*self.keys.columns, *numbers], schema=schemas[0])
        return tables_to_bytes([keys, self.rows])


def keys_schema(keys: pa.Schema) -> pa.Schema:
    """The schema of the table of keys in a page, which is followed by that of their rows."""
    return pa.schema([*keys, *(pa.field("p:" + name, pa.int64()) for name in _PROGRESS)])


def count_searches(value: bytes, keys: pa.Schema) -> int:
    """The number of keys whose search waits, in the page of any clause with such keys."""
    table, _ = tables_from_bytes(value, [keys_schema(keys), UNKNOWN_COLUMNS])
    return int((table.column("p:next_start").to_numpy() < table.column("p:rows").to_numpy()).sum())


# ---------------------------------------------------------------------- what a clause reads


def columns_read(clause: CheckedClause) -> set[str]:
    """The columns of the input that the clause reads or returns."""
    names = clause.rows.read
    if clause.clause.rows is not RowsPerMatch.ONE:
        names |= set(visible(clause.rows.input).names)
    return names & set(clause.rows.input.names)


def _uses_match_number(clause: CheckedClause) -> bool:
    expressions = [*clause.measures, *(condition.resolved for condition in clause.conditions.values())]
    return clause.rows.match_number in clause.rows.read or any(
        isinstance(leaf, MatchNumber) for expression in expressions for leaf in expression.leaves
    )


_NULLS = {None: "", True: " NULLS FIRST", False: " NULLS LAST"}


def parts_of(clause: Clause) -> dict[str, str]:
    """The parts of a clause on which its state depends, as texts."""
    skip = [clause.skip.to.value, *([] if clause.skip.variable is None else [clause.skip.variable])]
    return {
        "PARTITION BY": ", ".join(key.expression.text for key in clause.partition_by) or "none",
        "ORDER BY": ", ".join(
            key.expression.text + " DESC" * key.descending + _NULLS[key.nulls_first] for key in clause.order_by
        ),
        "ROWS PER MATCH": clause.rows_text,
        "AFTER MATCH SKIP": " ".join(skip),
        "PATTERN": str(clause.pattern),
        "WITHIN": "none" if clause.within is None else clause.within.text,
        "SUBSET": ", ".join(f"{subset.name} = ({', '.join(subset.members)})" for subset in clause.subsets) or "none",
        "DEFINE": ", ".join(
            f"{definition.variable} AS {definition.condition.text}" for definition in clause.definitions
        )
        or "none",
    }


def _described(clause: CheckedClause) -> tuple[Any, ...]:
    """The text that identifies a clause, independent of its position in a statement."""
    written = clause.clause
    return (
        str(written.pattern),
        [key.expression.text for key in written.partition_by],
        [(key.expression.text, key.descending, key.nulls_first) for key in written.order_by],
        [(measure.expression.text, measure.name) for measure in written.measures],
        written.rows_text,
        (written.skip.to.value, written.skip.variable),
        clause.within,
        [(subset.name, subset.members) for subset in written.subsets],
        [(definition.variable, definition.condition.text) for definition in written.definitions],
    )
