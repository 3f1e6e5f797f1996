"""The state of a pattern, continued with another pattern.

Partial matches continue by the names of their stages (:mod:`asterism.changes.partial_matches`). Events keep the columns that they
were stored with. What cannot be continued is dropped, and counted with the reason.

See docs/decisions/0132.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.changes.partial_matches import PREVIOUS_EVENTS, MatchesChange, too_little
from asterism.changes.plan import CONTINUES, DROPPED, Counts, PlanPart
from asterism.columns.arrays import Ints, one_chunk
from asterism.columns.time import BEFORE_TIME, TIME
from asterism.errors import StateError
from asterism.expressions.names import EVERY_STAGE, PREVIOUS, columns_of
from asterism.expressions.parsing import AGGREGATES
from asterism.expressions.templates import is_long_condition
from asterism.matching.binding import BoundPattern, python_mask
from asterism.matching.operator import CepOperator, identity_of_function
from asterism.matching.outputs import OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.matching.stored_matches import CHANGE
from asterism.matching.tables import BITS_PER_WORD
from asterism.operators.evolution import FIXED, check_evolution
from asterism.operators.operator import EVENTS
from asterism.operators.state.state_definition import KEYS_TABLE, StateDefinition
from asterism.operators.stored_state import aligned_column
from asterism.patterns.conditions import IterativeCondition, PythonCondition, SqlCondition
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import SkipKind
from asterism.savepoints.changes.change import SOON, StateChange, rows_of_state, written_page
from asterism.savepoints.kinds import key_states

_PATTERN, _LATE = "the pattern", "the use of the output late"
_NUMBERS = "the use of MATCH_NUMBER() in measures"
WAITING = "events that wait"


def operator_of_pattern(pattern: Pattern, old: StateDefinition, measures: Sequence[str] = ()) -> CepOperator:
    """The operator of *pattern* over the columns that the former pattern read.

    :raises ColumnNotFoundError: it reads another column, of which the type is not known
    """
    change = old.details.get(CHANGE, {})
    if "columns" not in change:
        raise StateError(
            "the savepoint does not say which columns the events have",
            hint="plan with the stream: CEP.pattern(stream, pattern)",
        )
    return CepOperator(
        pattern,
        pa.ipc.read_schema(pa.py_buffer(base64.b64decode(change["columns"]))),
        keys=old.keys.names,
        time=change["time"],
        outputs={OutputKind.MATCHES.value: OutputSpec(OutputKind.MATCHES, measures=tuple(measures))},
        semantics=Semantics(old.details[FIXED]["semantics"]),
        order_by=change["order_by"],
        pages=int(old.details[FIXED]["pages"]) if old.details[FIXED]["pages"] != "1" else None,
    )


class PatternChange(StateChange):
    """
    :param old: the definition of the state
    :param operator: that of the new pattern, with the measures of which the columns are wanted
    :param renamed: new names of stages, by their former names
    :param watermark: that of the state
    :raises StateError: the state cannot be continued at all
    """

    def __init__(
        self,
        old: StateDefinition,
        operator: CepOperator,
        renamed: Mapping[str, str] | None = None,
        watermark: int = BEFORE_TIME,
    ) -> None:
        self.old, self._operator, self._watermark = old, operator, watermark
        self._pattern: BoundPattern = operator.pattern
        self.new = _definition(old, operator)
        _check(old, self.new)
        names = _checked_names(renamed or {}, old.details["stages"], self.new.details["stages"])
        self._former_events = {name: _former(name, old, self.new) for name in self.new.tables[EVENTS].names}
        """for each column of events, its name in the former state; None: it has none"""
        self._matches = MatchesChange(old.details, self.new.details, self._pattern, names, self._lacking(), watermark)
        if self._pattern.remembers_events and None in self._former_events.values():
            raise too_little("PREV reads another column of earlier events", "other columns")

    @property
    def notes(self) -> list[str]:
        """What the counts of a plan do not show."""
        notes, automaton = [], self._matches.automaton
        removed = [stage for stage, number in zip(automaton.old.stages, automaton.stages, strict=True) if number < 0]
        added = [stage for number, stage in enumerate(automaton.new.stages) if number not in automaton.stages]
        if removed and added:
            notes.append(
                f"stages removed: {', '.join(removed)}; added: {', '.join(added)}. If one was renamed, say so: "
                f"renamed={{{removed[0]!r}: {added[0]!r}}} (--rename {removed[0]}={added[0]})"
            )
        before, after = self.old.details.get(CHANGE, {}), self.new.details[CHANGE]
        new_bits = [text for text in after["bits"] if text not in before.get("bits", ())]
        if new_bits and before.get("relevant_only", True):
            notes.append(
                "events that were ahead of the watermark, and that no condition of the former pattern accepted, were not kept: "
                f"they do not meet the new condition {new_bits[0]}"
            )
        if self._matches.first_match_only and SkipKind.FIRST_MATCH_ONLY.value not in self.old.details.get("skip", ""):
            notes.append("keys that have had a match can have another first match")
        return notes

    # ------------------------------------------------------------------ columns

    def _lacking(self) -> dict[str, str]:
        """Of each stage whose stored events lack a column that conditions or measures read of them, the reason."""
        missing = [name for name, former in self._former_events.items() if former is None]
        reads = _reads(self._operator)
        lacking: dict[str, str] = {}
        for name in missing:
            columns = [name[2:]] if name.startswith("e:") else [None]
            for stage in self._pattern.nfa.stages:
                if any((stage, column) in reads or column is None for column in columns):
                    shown = f'the column "{name[2:]}"' if name.startswith("e:") else "a value that a condition computes"
                    lacking.setdefault(stage, f'its events of "{stage}" were stored without {shown}')
        return lacking

    def _aligned(self, events: pa.Table, count: int) -> pa.Table:
        """The stored events with the new columns. *count*: of the events, which a table without columns does not have"""
        schema, columns = self.new.tables[EVENTS], []
        if not schema.names:
            return events.select([])
        for field in schema:
            former = self._former_events[field.name]
            if former is None:
                columns.append(pa.nulls(count, field.type))
            else:
                columns.append(aligned_column(events.select([former]).rename_columns([field.name]), field))
        return pa.table(columns, schema=schema)

    # ------------------------------------------------------------------ rows

    def rows(self, rows: pa.Table) -> tuple[pa.Table, Counts]:
        """The rows of the table ``keys`` of a savepoint that still have a state, and what became of all."""
        before, after = key_states(self.old), key_states(self.new)
        page, live, deadlines, counts = self.page(written_page(before, rows))
        keys, state = after.read(page.to_bytes())
        due = np.maximum(deadlines, max(self._watermark, 0) + SOON)
        return rows_of_state(after, rows.take(pa.array(live)), keys, state, due), counts

    def page(self, value: bytes) -> tuple[Page, Ints, Ints, Counts]:
        """As :meth:`MatchesChange.page`, of a page as it is stored."""
        page = Page.from_bytes(value, self.old.tables[KEYS_TABLE], self.old.tables[EVENTS])
        return self._matches.page(page, self._aligned)

    # ------------------------------------------------------------------ events that wait

    def waiting(self, name: str, events: pa.Table) -> tuple[pa.Table, Counts]:
        """Prepared events that wait, for the new conditions; none, if these read columns that the events lack."""
        schema = self.new.inputs[name]
        waiting = _FormerEvents(self.old, self._pattern, self._operator, events)
        columns, reason = [], None
        for field in schema:
            column = waiting.column(field)
            if isinstance(column, str):
                reason = column
                break
            columns.append(column)
        lacking = self._lacking()
        reason = reason or next(iter(lacking.values()), None)
        outcome = CONTINUES if reason is None else DROPPED
        counts = Counter({PlanPart(WAITING, "", "", outcome, reason or ""): events.num_rows} if events.num_rows else {})
        return (pa.table(columns, schema=schema) if reason is None else schema.empty_table()), counts


class _FormerEvents:
    """Prepared events of a former pattern."""

    def __init__(self, old: StateDefinition, pattern: BoundPattern, operator: CepOperator, events: pa.Table) -> None:
        change = old.details.get(CHANGE, {})
        self._events, self._pattern = events, pattern
        self._bits, self._computed = (
            change.get("bits", []),
            {text: name for name, text in change.get("computed", {}).items()},
        )
        self._columns: dict[str, Any] = {}
        """the columns of the stream that are known"""
        for name in events.column_names:
            if name[:2] in ("e:", "k:", "o:") and name[2:] in operator.schema.names:
                self._columns[name[2:]] = one_chunk(events.column(name))
        if not operator.processing_time:
            self._columns[operator.time.name] = operator.time.from_micros(events.column(TIME).to_numpy())
        self._schema = operator.schema
        self._values: list[pa.ChunkedArray] | None = None

    def column(self, field: pa.Field) -> pa.Array | str:
        """A prepared column, or why there is none."""
        name = field.name
        bits = [f.name for f in self._pattern.bit_fields]
        if name in bits:
            return self._word(bits.index(name), field)
        if name.startswith("s:"):
            text = self._pattern.computed_texts[name]
            if text in self._computed:
                return one_chunk(self._events.column(self._computed[text])).cast(field.type)
            return self._value(int(name[2:]), field.type)
        if name.startswith("e:"):
            return aligned_column(self._events, field)
        return one_chunk(self._events.column(name)).cast(field.type)

    def _word(self, word: int, field: pa.Field) -> pa.Array | str:
        made = np.zeros(self._events.num_rows, np.int64)
        texts = self._pattern.texts_of_bits(identity_of_function)
        for bit in range(word * BITS_PER_WORD, min((word + 1) * BITS_PER_WORD, len(texts))):
            if texts[bit] in self._bits:
                before = self._bits.index(texts[bit])
                words = self._events.column(f"__bits{before // BITS_PER_WORD}").to_numpy().astype(np.int64)
                holds = (words >> (before % BITS_PER_WORD)) & 1
            else:
                source = self._pattern.bit_sources[bit]
                value = self._python(source) if isinstance(source, PythonCondition) else self._value(source, pa.bool_())
                if isinstance(value, str):
                    return value
                holds = np.asarray(value.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.int64)
            made |= holds << (bit % BITS_PER_WORD)
        return pa.array(made).cast(field.type)

    def _value(self, number: int, kind: pa.DataType) -> pa.Array | str:
        """The value of an expression."""
        text, names = self._pattern.vectorized.texts[number], self._schema.names
        missing = [names[column] for column in sorted(columns_of(text)) if names[column] not in self._columns]
        if missing:
            return f'a new condition reads the column "{missing[0]}", which they were stored without'
        if self._values is None:
            self._values = self._pattern.vectorized.evaluate(self._whole())
        return one_chunk(self._values[number]).cast(kind)

    def _python(self, condition: PythonCondition) -> pa.Array | str:
        missing = [name for name in self._schema.names if name not in self._columns]
        if missing:
            return f'a new condition in Python reads all columns, and they were stored without "{missing[0]}"'
        return pa.array(python_mask(condition, self._whole()))

    def _whole(self) -> pa.Table:
        """The events with all columns of the stream; those that are not known are NULL."""
        count = self._events.num_rows
        columns = [
            self._columns[field.name].cast(field.type) if field.name in self._columns else pa.nulls(count, field.type)
            for field in self._schema
        ]
        return pa.table(columns, schema=self._schema)


# ---------------------------------------------------------------------- definitions


def _definition(old: StateDefinition, operator: CepOperator) -> StateDefinition:
    """The definition of the changed state: that of the new operator, with all columns that the former one has stored."""
    new = operator.definition
    fixed = dict(new.details[FIXED])
    before = old.details.get(FIXED, {})
    fixed[_LATE] = before.get(_LATE, fixed[_LATE])
    counts = bool(new.details[CHANGE]["counts_keys"])
    if before.get(_NUMBERS) == "True" and not any(output.measures for output in operator.match_outputs.values()):
        fixed[_NUMBERS], counts = "True", True  # which measures the query will have is not known
    details = {**new.details, FIXED: fixed, CHANGE: {**new.details[CHANGE], "counts_keys": counts}}
    tables = dict(new.tables)
    tables[EVENTS] = _with_stored(tables[EVENTS], old.tables[EVENTS])
    inputs = {EVENTS: _with_stored(new.inputs[EVENTS], old.inputs[EVENTS])}
    return replace(new, tables=tables, inputs=inputs, details=details)


def _with_stored(schema: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """A schema with the columns of events (``e:``) that were stored."""
    more = [field for field in stored if field.name.startswith("e:") and field.name not in schema.names]
    return pa.schema([*schema, *more])


def _check(old: StateDefinition, new: StateDefinition) -> None:
    """:raises StateError: more has changed than the pattern and the columns of events"""
    may_change = {name: new.details[FIXED][name] for name in (_PATTERN, PREVIOUS_EVENTS, _NUMBERS)}
    fixed = {**old.details.get(FIXED, {}), **may_change}
    inputs = {name: new.inputs.get(name, schema) for name, schema in old.inputs.items()}
    check_evolution(replace(old, inputs=inputs, details={**old.details, FIXED: fixed}), new)
    for field in new.tables.get(EVENTS, ()):
        if field.name.startswith("e:") and field.name in old.tables[EVENTS].names:
            before = old.tables[EVENTS].field(field.name).type
            if not before.equals(field.type):
                check_evolution(replace(old, inputs=old.inputs, details={**old.details, FIXED: fixed}), new)


def _checked_names(renamed: Mapping[str, str], before: Sequence[str], after: Sequence[str]) -> Mapping[str, str]:
    for old, new in renamed.items():
        for name, stages, which in ((old, before, "former"), (new, after, "new")):
            if name not in stages:
                raise StateError(
                    f'the {which} pattern has no stage "{name}"',
                    f"Stages: {', '.join(stages)}",
                    "name stages as renamed={former: new}, or --rename former=new",
                )
    names = [renamed.get(stage, stage) for stage in before]
    twice = next((name for name in names if names.count(name) > 1 and name in after), None)
    if twice is not None:
        raise StateError(
            f'two stages of the former pattern would be named "{twice}"', hint="rename the other one as well"
        )
    return renamed


def _former(name: str, old: StateDefinition, new: StateDefinition) -> str | None:
    """The name of a column of events in the former state."""
    stored = old.tables[EVENTS].names
    if not name.startswith("s:"):
        return name if name in stored else None
    texts = {text: column for column, text in old.details.get(CHANGE, {}).get("computed", {}).items()}
    column = texts.get(new.details[CHANGE]["computed"][name])
    return column if column in stored else None


def _reads(operator: CepOperator) -> set[tuple[str, str]]:
    """(stage, column) of what conditions and measures read of events that a partial match has accepted."""
    pattern = operator.pattern
    stages, every = pattern.nfa.stages, set[str]()
    subsets, reads = dict(pattern.nfa.subsets), set[tuple[str, str]]()
    for condition in pattern.nfa.conditions:
        if isinstance(condition, SqlCondition):
            if is_long_condition(condition.text):  # it has no aggregates
                continue
            scope = pattern.scope
            tree = scope.resolve(scope.parse(condition.text), condition.text)
            columns = (column for node in tree.find_all(*AGGREGATES) for column in node.find_all(exp.Column))
            for column in columns:
                if column.table == PREVIOUS:
                    continue
                of_stages = subsets.get(column.table, (column.table,) if column.table in stages else stages)
                reads |= {(stage, column.name) for stage in of_stages}
        elif isinstance(condition, IterativeCondition):
            every |= set(operator.event_schema.names if condition.columns is None else condition.columns)
    for output in operator.match_outputs.values():
        if output.measures is None:
            every |= set(output.kept_columns)
            continue
        for stage, read in output.measures.read_by_stage.items():
            of_stages = stages if stage == EVERY_STAGE else subsets.get(stage, (stage,))
            reads |= {(each, column) for each in of_stages for column in read}
    return reads | {(stage, column) for stage in stages for column in every}
