"""A pattern bound to a schema: each condition becomes a bit of the prepared events, a program of the kernel, or both.

A condition that reads only the current event is a bit, computed for whole batches by :meth:`BoundPattern.prepare`. A
condition that reads earlier events of the match is a program, evaluated for each partial match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from sqlglot import exp

from asterism.arguments import described, function_name
from asterism.caches import keep, recent
from asterism.columns.arrays import Mask, cast_to, from_numpy, to_numpy
from asterism.columns.groups import mask_of
from asterism.columns.time import micros
from asterism.errors import (
    AsterismError,
    ColumnNotFoundError,
    EvaluationFailedError,
    ExpressionError,
    ExpressionSyntaxError,
    ExpressionTypeError,
    MalformedPatternError,
    PatternTooLargeError,
    SkipStrategyError,
)
from asterism.expressions.computed_columns import visible
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import COLUMN, Scope, columns_of, has_aggregate, plain_column
from asterism.expressions.operators import conjunction
from asterism.expressions.parsing import conjuncts, sql_of
from asterism.expressions.ranges import Indexable, Ranges, RangeTests, orders_strings
from asterism.expressions.templates import Resolved, is_long_condition, quick_condition, resolved
from asterism.expressions.types import name_of as type_name
from asterism.expressions.values import Sql, UnsupportedError
from asterism.matching.condition_programs import add_condition
from asterism.matching.instructions import FIRST_EVENT, Op, Programs, kind_of
from asterism.matching.instructions import Kind as ValueKind
from asterism.matching.plan import MatchPlan
from asterism.matching.tables import BITS_PER_WORD, Completion, Evaluation, completion, longest_match, tables_of
from asterism.operators.rich_functions import close_all, ready, rich
from asterism.patterns.automaton import NfaStateKind
from asterism.patterns.conditions import (
    FOREIGN,
    AbsentBeforeCondition,
    Condition,
    FirstEventCondition,
    IterativeCondition,
    NamedCondition,
    PythonCondition,
    SqlCondition,
)
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.matching.kernels import Tables

BITS = "__bits"
LIMIT_HINT = 'bound them with within(...), raise max_partial_matches, or set on_limit="drop"; see docs/limits.md'


MAX_KNOWN = 4_000
_KNOWN: dict[tuple[Scope, str, str], tuple[Sql, Indexable | None]] = {}
"""Cache of translated conditions on current events, because rules often share them: maps a scope, its time zone and a text to the
value and its ranges.
"""


class BoundPattern:
    """An automaton whose conditions are bound to the schema of the events. Plain data, so that it can be sent to the workers.

    *event_schema* has the columns that partial matches keep of their events: those kept by the plan or read by per-event
    conditions (``e:``), and those that programs read and that are computed (``s:``).
    """

    def __init__(self, plan: MatchPlan, schema: pa.Schema) -> None:
        self.plan, self.nfa, self.semantics = plan, plan.nfa, plan.semantics
        self.scope = Scope(schema, self.nfa.stages, self.nfa.subsets)
        self.vectorized = Vectorized(schema)
        self.programs = Programs(self.scope, self.vectorized, can_ask=True)
        self.bit_sources: list[int | PythonCondition] = []
        """the source of each condition bit: the number of an expression of :attr:`vectorized`, or a function"""
        self._rich: dict[int, Any] = {}
        """functions of conditions that are opened and closed, by the ids of the functions"""
        self.per_event: list[int] = []
        """the conditions for which the kernel calls Python, by number"""
        self.per_event_conditions: list[IterativeCondition] = []
        places = []
        self.conditions = [self._openable(condition) for condition in self.nfa.conditions]
        """the conditions of the automaton; functions that are opened and closed are prepared for that"""
        for number, condition in enumerate(self.conditions):
            with ExpressionSyntaxError.if_too_deep(getattr(condition, "text", "")):
                places.append(self._bind(number, condition))
        self.evaluation = Evaluation([bit for bit, _ in places], [program for _, program in places])
        for absence in self.nfa.absences:
            if not self.evaluation.reads_event_only(absence.guard):
                raise MalformedPatternError(
                    f'the condition of begin_without("{absence.stage}") can read only the current event'
                )
        self.words = max(1, -(-len(self.bit_sources) // BITS_PER_WORD))
        names = visible(schema).names
        read = {name for c in self.per_event_conditions for name in (names if c.columns is None else c.columns)}
        self._kept_columns = [
            *plan.kept_columns,
            *(n for n in schema.names if n in read and n not in plan.kept_columns),
        ]
        fields = {"e:" + name: schema.field(name).with_name("e:" + name) for name in self._kept_columns}
        for previous in plan.previous:
            name = "e:" + previous.column
            fields[name] = schema.field(previous.name).with_name(name).with_nullable(True)
        for slot in self.programs.stored:
            name = self.slot_column(slot)
            fields.setdefault(name, pa.field(name, self.vectorized.types[slot]))
        self.event_schema = pa.schema(list(fields.values()))
        types = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
        bit_type = next((kind for kind in types if len(self.bit_sources) < kind.bit_width), pa.int64())
        self.bit_fields = [pa.field(f"{BITS}{word}", bit_type) for word in range(self.words)]

    @classmethod
    def of_pattern(
        cls, pattern: Pattern, schema: pa.Schema, semantics: Semantics = Semantics.DEFAULT, **options: Any
    ) -> Self:
        """Compile a pattern and bind it; *options*: see :class:`~asterism.matching.plan.MatchPlan`."""
        return cls(MatchPlan.of_pattern(pattern, semantics, **options), schema)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "tables"}

    @cached_property
    def tables(self) -> Tables:
        """The automaton for the kernel."""
        return tables_of(self.plan, self.evaluation, self.programs)

    # ------------------------------------------------------------------ binding

    def _bind(self, number: int, condition: Condition) -> tuple[int, int]:
        """The bit and the program of a condition."""
        if isinstance(condition, PythonCondition):
            return self._bit(condition), -1
        if isinstance(condition, IterativeCondition):
            for name in condition.columns or ():
                names = visible(self.scope.schema).names
                if name not in names:
                    raise ColumnNotFoundError.from_missing_and_available(name, names, f"in: {condition}")
            self.per_event.append(number)
            self.per_event_conditions.append(condition)
            return -1, self.programs.add((Op.PYTHON, len(self.per_event) - 1))
        if isinstance(condition, FirstEventCondition):
            return -1, self.programs.add((Op.FACT, FIRST_EVENT))
        if isinstance(condition, AbsentBeforeCondition):
            absence = [absence.stage for absence in self.nfa.absences].index(condition.stage)
            window = self.nfa.absences[absence].window
            never = (Op.FACT, absence), (Op.IS_NULL, 0)
            if window is None:
                return -1, self.programs.add(*never)
            return -1, self.programs.add(*never, (Op.CONST, micros(window)), (Op.FACT, absence), (Op.LE, 0), (Op.OR, 0))
        if isinstance(condition, NamedCondition):
            raise unregistered(condition)
        assert isinstance(condition, SqlCondition)
        key = self.scope, self.vectorized.zone, condition.text
        known = recent(_KNOWN, key)
        if known is not None:
            value, indexable = known
            return self._bit(self.vectorized.add_value(value, condition.text, indexable)), -1
        quick = quick_condition(self.scope, self.vectorized.zone, condition.text)
        if quick is not None:
            source = self.vectorized.add_value(quick, condition.text, is_harmless=True)
            self._keep(key, quick, source)
            return self._bit(source), -1
        replaced = False
        try:
            with resolved(self.scope, self.vectorized.zone, condition.text) as resolution:
                replaced = resolution.replaced
                return self._bind_sql(resolution, condition.text)
        except ExpressionError:
            if not replaced:
                raise
        # The positions in the message must be those in this text.
        return self._bind_sql(Resolved.of(self.scope, condition.text), condition.text)

    def _bind_sql(self, condition: Resolved, text: str) -> tuple[int, int]:
        if isinstance(condition.tree, exp.Alias):
            raise ExpressionSyntaxError.at("a condition cannot have a name", text)
        pure = condition.pure
        bit = program = -1
        if pure:
            values = []
            for place, part in enumerate(pure):
                value = condition.value(place)
                if value is None:
                    value = self.vectorized.translate(part, text)
                    condition.keep(place, value)
                values.append(value)
            joined = values[0]
            if len(values) > 1:
                for part, value in zip(pure, values, strict=True):
                    self._check_boolean(part, self.vectorized.type_of_value(value, text), text)
                try:
                    joined = conjunction(values)
                except UnsupportedError:
                    joined = self.vectorized.translate(_joined(pure), text)  # raises an error with the position
            source = self.vectorized.add_value(joined, text)
            if len(values) == 1:
                self._check_boolean(pure[0], self.vectorized.types[source], text)
            bit = self._bit(source)
            if not condition.iterative:
                self._keep((self.scope, self.vectorized.zone, text), joined, source)
        if condition.iterative:
            program = add_condition(self.programs, _joined(condition.iterative), text)
        return bit, program

    def _keep(self, key: tuple[Scope, str, str], value: Sql, source: int) -> None:
        # Without its parts, of which only the ranges are read again.
        whole = replace(value, operation=None, node=None)
        keep(_KNOWN, MAX_KNOWN, key, (whole, self.vectorized.indexable[source]))

    def _openable(self, condition: Condition) -> Condition:
        if not isinstance(condition, PythonCondition | IterativeCondition):
            return condition
        function = condition.function
        return replace(
            condition, function=self._rich.setdefault(id(function), rich(function, visible(self.scope.schema)))
        )

    def close(self) -> None:
        """Close the functions of conditions that were opened."""
        close_all(self._rich.values())

    def _check_boolean(self, part: exp.Expr, data_type: pa.DataType, text: str) -> None:
        if kind_of(data_type) is not ValueKind.BOOL and not isinstance(part, exp.Null):
            raise ExpressionTypeError.at(f"a condition must be BOOLEAN, not {type_name(data_type)}", text)

    def _bit(self, source: int | PythonCondition) -> int:
        if source not in self.bit_sources:
            self.bit_sources.append(source)
        return self.bit_sources.index(source)

    @cached_property
    def _starts_with_first_event(self) -> bool:
        return any(isinstance(condition, FirstEventCondition) for condition in self.nfa.conditions)

    @property
    def counts_keys(self) -> bool:
        """Whether the state of each key records that it had an event, or the number of its matches."""
        return self._starts_with_first_event or self.plan.counts_matches

    @cached_property
    def remembers_events(self) -> int:
        """The number of events before the current one that conditions and measures read (PREV)."""
        return max([self.programs.reads_previous, *(previous.before for previous in self.plan.previous)])

    @property
    def has_memory(self) -> bool:
        """Whether the state of a key records earlier events beside the partial matches."""
        return self.counts_keys or self.remembers_events > 0 or bool(self.nfa.absences)

    @cached_property
    def depends_on_all_events(self) -> bool:
        """Whether a visible event can matter without a living partial match, or if it is later than any match can last."""
        return (
            self.remembers_events > 0
            or bool(self.nfa.absences)
            or self._starts_with_first_event
            or any(state.kind is NfaStateKind.LAST for state in self.nfa.states)
        )

    def stages_with(self, bit: int) -> list[str]:
        """The stages whose conditions use a condition bit."""
        return self.plan.stages_with(
            *(number for number, used_bit in enumerate(self.evaluation.bit) if used_bit == bit)
        )

    def slot_column(self, number: int) -> str:
        """The column with the values of a slot: a kept column of the events (``e:``), or a computed one (``s:``)."""
        plain = plain_column(self.vectorized.texts[number])
        return f"s:{number}" if plain is None else "e:" + self.scope.schema.names[plain]

    @property
    def input_columns(self) -> list[str]:
        """The event columns that :meth:`prepare` reads."""
        names = set(self._kept_columns)
        for text in self.vectorized.texts:
            names |= {self.scope.schema.names[number] for number in columns_of(text)}
        if any(isinstance(source, PythonCondition) for source in self.bit_sources):
            names |= set(visible(self.scope.schema).names)  # a function may read any column
        return [name for name in self.scope.schema.names if name in names]

    # ------------------------------------------------------------------ conditions on current events

    def prepare(self, events: pa.Table, bits: Sequence[pa.ChunkedArray] | None = None) -> list[pa.ChunkedArray]:
        """The columns ``bit_fields`` and ``event_schema`` for events. *bits*: ``bit_fields``, if Spark has computed them."""
        values = self.vectorized.evaluate_some(events, self._evaluated) if bits is None else {}
        columns = [
            cast_to(word, field.type)
            for word, field in zip(self._words(events, values) if bits is None else bits, self.bit_fields, strict=True)
        ]
        computed = {self.slot_column(slot): slot for slot in self.programs.stored}
        later = self._of_earlier_events
        for field in self.event_schema:
            if field.name in later:
                columns.append(pa.chunked_array([pa.nulls(events.num_rows, field.type)]))
            elif field.name.startswith("e:"):
                columns.append(events.column(field.name[2:]))
            else:
                columns.append(values[computed[field.name]].cast(field.type))
        return columns

    def _words(self, events: pa.Table, values: Mapping[int, pa.ChunkedArray]) -> list[pa.ChunkedArray]:
        kind = self.bit_fields[0].type.to_pandas_dtype()
        words = np.zeros((self.words, events.num_rows), kind)
        masks = dict(zip(self._tested, self._range_tests.masks(events), strict=True))
        for bit, source in enumerate(self.bit_sources):
            if isinstance(source, PythonCondition):
                mask = python_mask(source, events.select(visible(events.schema).names))
            else:
                mask = masks[source] if source in masks else mask_of(values[source])
            words[bit // BITS_PER_WORD] |= mask.astype(kind) << kind(bit % BITS_PER_WORD)
        return [pa.chunked_array([from_numpy(word)]) for word in words]

    @cached_property
    def _tested(self) -> dict[int, Ranges]:
        """The conditions that are nothing but ranges of columns, by the numbers of their expressions. They are not evaluated."""
        known = {source: self.vectorized.indexable[source] for source in self.bit_sources if isinstance(source, int)}
        return {
            source: condition.ranges
            for source, condition in known.items()
            if condition is not None and condition.rest is None and not orders_strings(condition.ranges)
        }

    @cached_property
    def _range_tests(self) -> RangeTests:
        return RangeTests(self.scope.schema, [*self._tested.values()])

    @cached_property
    def _evaluated(self) -> list[int]:
        """The numbers of the expressions that :meth:`prepare` evaluates."""
        conditions = {source for source in self.bit_sources if isinstance(source, int)} - self._tested.keys()
        return sorted(
            conditions.union(slot for slot in self.programs.stored if self.slot_column(slot).startswith("s:"))
        )

    # ------------------------------------------------------------------ which events matter

    @cached_property
    def relevant_only(self) -> bool:
        """Whether events that satisfy no condition can be removed. No stage is strict, and the semantics are not Flink's."""
        return (
            self.semantics is not Semantics.FLINK
            and not self.remembers_events
            and bool(self.bit_sources)
            and self.evaluation.can_skip_events(self.nfa.states)
        )

    @cached_property
    def longest_match(self) -> int | None:
        """See :func:`~asterism.matching.tables.longest_match`."""
        return longest_match(self.nfa)

    @cached_property
    def completion(self) -> Completion | None:
        """See :func:`~asterism.matching.tables.completion`. None if earlier events or other matches of the key matter, too."""
        if self.remembers_events or self.nfa.preferred or self.nfa.absences or self.plan.counts_matches:
            return None
        return completion(self.nfa, self.evaluation, self.semantics)

    @cached_property
    def removed_within(self) -> int:
        """How long after its window or gap a partial match may remain in the state if nobody is told that it timed out, in
        microseconds: a quarter of the shortest of these times. 0: its end may complete a match. See docs/decisions/0173.
        """
        if self.semantics is Semantics.FLINK or any(state.kind is NfaStateKind.PENDING for state in self.nfa.states):
            return 0
        spans = map(micros, (self.nfa.window, *(state.gap for state in self.nfa.states)))
        return min((span for span in spans if span > 0), default=0) // 4

    def sees(self, events: pa.Table) -> Mask:
        """A mask of the prepared events that are visible to the pattern."""
        if not self.relevant_only:
            return np.ones(events.num_rows, np.bool_)
        seen = np.zeros(events.num_rows, np.bool_)
        for field in self.bit_fields:
            seen |= to_numpy(events.column(field.name)) != 0
        return seen

    def relevance_sql(self) -> str | None:
        """A Spark SQL condition that holds for every event that can matter; None if all events must be kept."""
        if not self.relevant_only or any(isinstance(source, PythonCondition) for source in self.bit_sources):
            return None
        # Conditions without a bit are left out: no guard depends on one alone, so an event that satisfies none of the others has
        # no effect.
        return " OR ".join(dict.fromkeys(f"({text})" for text in self._texts_of_bits))

    @cached_property
    def _conditions_with_ranges(self) -> list[Indexable] | None:
        """What each condition bit tests. None if one is not made of ranges of columns and a rest, which cannot fail, or if
        :meth:`prepare` computes other values, too.
        """
        if any(not self.slot_column(slot).startswith("e:") for slot in self.programs.stored):
            return None
        conditions: list[Indexable] = []
        for source in self.bit_sources:
            condition = None if isinstance(source, PythonCondition) else self.vectorized.indexable[source]
            if condition is None:
                return None
            conditions.append(condition)
        return conditions

    @cached_property
    def relevant_ranges(self) -> Ranges | None:
        """Alternatives, of which one holds for every event that can matter; None: other events may matter, too, or something that
        is computed for each event may fail.
        """
        conditions = self._conditions_with_ranges if self.relevant_only else None
        if conditions is None:
            return None
        return tuple(alternative for condition in conditions for alternative in condition.ranges)

    @cached_property
    def bits_sql(self) -> list[str] | None:
        """Spark SQL expressions for the columns ``bit_fields``, with which :meth:`prepare` needs only
        :attr:`columns_beside_bits`; None if a condition is more than ranges of columns, which cannot fail, or if
        :meth:`prepare` computes other values, too.
        """
        if self.bit_conditions is None:
            return None
        words: list[list[str]] = [[] for _ in range(self.words)]
        for bit, text in enumerate(self._texts_of_bits):
            words[bit // BITS_PER_WORD].append(f"IF({text}, {1 << bit % BITS_PER_WORD}L, 0L)")
        return [" + ".join(word) for word in words]

    @cached_property
    def bit_conditions(self) -> tuple[tuple[Ranges, ...], ...] | None:
        """For each of ``bit_fields`` what its bits test; None: see :attr:`bits_sql`."""
        names = {name.lower() for name in self.scope.schema.names}  # Spark replaces a column with the name in any case
        if not self.bit_sources or any(field.name in names for field in self.bit_fields):
            return None
        conditions = self._conditions_with_ranges
        if conditions is None or any(condition.rest is not None for condition in conditions):
            return None
        ranges = [condition.ranges for condition in conditions]
        firsts = range(0, len(ranges), BITS_PER_WORD)
        return tuple(tuple(ranges[first : first + BITS_PER_WORD]) for first in firsts)

    @property
    def columns_beside_bits(self) -> list[str]:
        """The event columns that :meth:`prepare` reads if the events have ``bit_fields``."""
        return [name[2:] for name in self.event_schema.names if name not in self._of_earlier_events]

    @cached_property
    def _of_earlier_events(self) -> set[str]:
        """The columns of ``event_schema`` that are known only when the events are in order."""
        return {"e:" + previous.column for previous in self.plan.previous}

    @cached_property
    def _texts_of_bits(self) -> list[str]:
        """Spark SQL for each condition bit, of which none is a function."""
        return self.texts_of_bits(str)

    def texts_of_bits(self, identity: Callable[[Any], str]) -> list[str]:
        """What each condition bit tests: Spark SQL, or the *identity* of a function."""
        texts: dict[int, str] = {}
        for condition, bit in zip(self.nfa.conditions, self.evaluation.bit, strict=True):
            if bit < 0 or bit in texts:
                continue
            if isinstance(condition, PythonCondition):
                texts[bit] = identity(condition.function)
                continue
            assert isinstance(condition, SqlCondition)
            if is_long_condition(condition.text):  # over columns alone, which it names as they are
                texts[bit] = condition.text
                continue
            tree = self.scope.resolve(self.scope.parse(condition.text), condition.text)
            texts[bit] = sql_of(_joined([part for part in conjuncts(tree) if not has_aggregate(part)]))
        return [text for _, text in sorted(texts.items())]

    @property
    def computed_texts(self) -> dict[str, str]:
        """The expression of each computed column (``s:``) of ``event_schema``."""
        names = self.scope.schema.names
        columns = {self.slot_column(slot): self.vectorized.texts[slot] for slot in self.programs.stored}
        return {
            name: COLUMN.sub(lambda found: repr(names[int(found[1])]) if found[1] else found[0], text)
            for name, text in columns.items()
            if name.startswith("s:")
        }

    # ------------------------------------------------------------------ failures

    def error(self, code: int, where: str, excess: int, hint: str) -> AsterismError:
        """The exception for an error code of the kernel; *hint* is the remedy for a limit."""
        from asterism.matching import kernels, stack_machine

        match code:
            case stack_machine.DIVISION_BY_ZERO:
                message = "division by zero in a condition"
                return EvaluationFailedError(message, where, "try_divide(a, b) gives NULL instead")
            case stack_machine.OVERFLOW:
                message = "overflow in a condition: a value does not fit into its type"
                return EvaluationFailedError(
                    message, where, "CAST the operands to a larger type, such as BIGINT or DOUBLE"
                )
            case kernels.SKIP_MISSED | kernels.SKIP_TO_OWN_FIRST:
                missed = code == kernels.SKIP_MISSED
                why = "the match has no such event" if missed else "it is the first event of the match"
                return SkipStrategyError(f'could not skip to "{self.plan.skip.stage}": {why}', where)
            case kernels.TOO_MANY_RUNS | kernels.TOO_MUCH_WORK | kernels.TOO_MANY_HELD:
                return self.plan.limits.error(code, where, excess, hint)
        return PatternTooLargeError("the pattern has too many ways to skip its optional stages", where)


def python_mask(condition: PythonCondition, events: pa.Table) -> Mask:
    """Call a vectorised condition.

    :raises EvaluationFailedError: it failed, or did not return one Boolean per event
    :raises UserFunctionError: it could not be opened
    """
    name = function_name(condition.function)
    function = ready(condition.function)
    try:
        answer = function(events)
    except Exception as error:
        raise EvaluationFailedError(f"condition {name} failed", described(error)) from error
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        column = answer if isinstance(answer, pa.ChunkedArray) else pa.chunked_array([answer])
        mask = mask_of(column) if pa.types.is_boolean(answer.type) else None
    else:
        array = np.asarray(answer)
        mask = array if array.dtype == np.bool_ and array.ndim == 1 else None
    if mask is None or len(mask) != events.num_rows:
        hint = 'it gets a table: lambda events: pyarrow.compute.greater(events["price"], 10)'
        raise EvaluationFailedError(f"condition {name} did not return one Boolean per event", hint=hint)
    return mask


def unregistered(condition: NamedCondition, known: Iterable[str] = ()) -> MalformedPatternError:
    """The error if a condition that is given by its name is not known."""
    return MalformedPatternError(
        f"the condition {condition.name!r:.120} is not registered",
        f"Registered: {', '.join(sorted(known)) or 'none'}",
        "conditions={name: function} in CEP.pattern_processors"
        + (', or write it as SQL: {"type": "SQL", "expression": text}' if condition.name in FOREIGN else ""),
    )


def _joined(parts: Sequence[exp.Expr]) -> exp.Expr:
    return parts[0] if len(parts) == 1 else exp.and_(*parts, copy=True)
