"""Runs a pattern without Spark."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import also_named, expect, expect_options, expect_strings, shown
from asterism.columns.schemas import schema_of
from asterism.columns.time import END_OF_TIME
from asterism.errors import PatternWarning, StreamDefinitionError
from asterism.expressions.routines.user_functions import checked
from asterism.matching.operator import CepOperator
from asterism.matching.outputs import MATCH_TIME, TIMEOUT_TIME, OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.matching.process_function import MatchFunctionLike, PatternProcessFunction, ProcessSpec
from asterism.matching.spec import MatchOptions
from asterism.operators.state.page_numbers import PageKind
from asterism.patterns.pattern import Pattern
from asterism.patterns.warnings import warn
from asterism.testing.event_harness import EventHarness
from asterism.testing.literals import EVENTS, WORDS, Events, Literals, Row, checked_columns, table_of
from asterism.testing.operator_harness import python_rows
from asterism.testing.without_spark import without_spark

SELECTED, PROCESSED = "selected", "processed"
"""The outputs with the measures of *select*, and with the rows that the match function *process* returns."""


# ---------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class Finding:
    """A match, a timed-out partial match or a late event. *stages* has its events as literals.

    *time* is the time of the match or the deadline of the partial match, in microseconds since the epoch; None for a late
    event.
    """

    key: tuple[Any, ...]
    time: int | None
    stages: dict[str, list[str]]

    @property
    def text(self) -> str:
        """The literals of its events, stage by stage."""
        return " ".join(word for words in self.stages.values() for word in words)


class PatternHarnessOptions(MatchOptions, total=False):
    """The options of a :class:`PatternHarness`.

    :param outputs: the outputs, by name. Default: matches, timed-out partial matches and late events
    :param select: measures, see :attr:`PatternHarness.selected`
    :param process: a match function, as for :meth:`asterism.PatternStream.run`, see :attr:`PatternHarness.processed`
    :param schema: the columns that *process* returns, as Spark SQL or an Arrow schema
    :param udfs: the functions in Python that SQL can call, by name, as for :meth:`asterism.CEP.pattern_processors`. In a
        query, the session has registered them.
    """

    outputs: Mapping[str, OutputSpec] | None
    select: Sequence[str] | None
    process: MatchFunctionLike | None
    schema: str | pa.Schema | None
    udfs: Mapping[str, Any] | None


class PatternHarness(EventHarness):
    """Runs a pattern step by step, with its state and time.

    :param columns: the columns of the events, as Spark SQL or an Arrow schema. Default: :data:`EVENTS`, those of event literals.
    :param keys: the key columns. Default: the key column of *literals*, if it is among the columns.
    :param time: the event-time column. None: processing time, which starts in 1970 and is advanced by the test.
    :param literals: the format of event literals
    :param key_groups: the number of key groups, as on Spark. Results must not depend on it, nor on *pages*.
    :param options: the options of patterns (:class:`~asterism.matching.spec.MatchOptions`), and *outputs*, *select*, *process*,
        *schema* and *udfs* (:class:`PatternHarnessOptions`)

    Issues a :class:`~asterism.errors.PatternWarning` if the pattern is most likely not what was intended.

    >>> from datetime import timedelta
    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'").within(timedelta(seconds=10))
    >>> harness = PatternHarness(pattern).send("a1@1s b2@2s a3@3s").advance_watermark("12s")
    >>> harness.matches, harness.partial_matches
    (['a1 b2'], ['a3'])
    >>> harness.end().timed_out
    ['a3']
    """

    @also_named("schema", "columns", StreamDefinitionError, unless="process")
    def __init__(
        self,
        pattern: Pattern,
        columns: str | pa.Schema = EVENTS,
        *,
        keys: Sequence[str] | None = None,
        time: str | None = "ts",
        literals: Literals = WORDS,
        key_groups: int = 1,
        **options: Unpack[PatternHarnessOptions],
    ) -> None:
        expect_options("PatternHarness", options, PatternHarnessOptions)
        expect(StreamDefinitionError, literals, Literals, "literals must be Literals")
        events = checked_columns(columns, "the events")
        if keys is None:
            keys = [literals.key] if literals.key in events.names else []
        expect_strings(StreamDefinitionError, keys, "keys must be a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, time, str | None, "time must be the name of a column or None", 'time="ts"')
        literals = replace(literals, key=keys[0] if len(keys) == 1 else literals.key, time=time or literals.time)
        outputs, process = _outputs_of(options)
        definition: dict[str, Any] = {
            "keys": keys, "time": time, "outputs": outputs,
            **{name: value for name, value in options.items() if name in MatchOptions.__annotations__},
        }  # fmt: skip
        udfs = checked(options.get("udfs"))
        with without_spark(udfs):
            self.cep = CepOperator(pattern, events, **definition, process=process)
        warn(pattern)
        super().__init__(self.cep, events, literals, keys=keys, key_groups=key_groups, event_time=self.cep.event_time)
        self._options = {
            **definition, "pattern": pattern, "columns": events, "literals": literals, "key_groups": key_groups,
            "udfs": udfs, **({} if process is None else {"process": process.function, "schema": process.schema}),
        }  # fmt: skip

    @also_named("schema", "columns", StreamDefinitionError, unless="process")
    def again(self, **changes: Any) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PatternWarning)  # already issued for the first harness
            return super().again(**changes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(repr(text) for text in self.matches) or 'no matches'}>"

    # ------------------------------------------------------------------ results

    @property
    def matches(self) -> list[str]:
        """The matches, each as the literals of its events, stage by stage; in the order of their times, then of their
        literals.
        """
        return _texts(self.found("matches"))

    @property
    def timed_out(self) -> list[str]:
        """The timed-out partial matches, in the same form."""
        return _texts(self.found("timed_out"))

    @property
    def late(self) -> list[str]:
        """The late events, in arrival order."""
        return [self.literals.text(row) for row in self.rows("late")]

    @property
    def selected(self) -> list[Row]:
        """The measures of each match, with its key."""
        return self.rows(SELECTED)

    @property
    def processed(self) -> list[Row]:
        """The rows that the match function *process* has returned. What it has emitted to an output is ``rows(name)``."""
        return self.rows(PROCESSED)

    def by_stage(self, output: str = "matches") -> list[dict[str, list[str]]]:
        """The matches, each as the literals of its events by stage. Stages without events are omitted.

        >>> from asterism import Pattern
        >>> match(Pattern.begin("any").times(2).next("last"), "a1 b2 c3").by_stage()
        [{'any': ['a1', 'b2'], 'last': ['c3']}]
        """
        return [finding.stages for finding in in_order(self.found(output))]

    def found(self, output: str = "matches") -> list[Finding]:
        """The matches (or timed-out partial matches, or late events) in output order, with their literals, keys and times."""
        table = self.output(output)
        spec = self.cep.outputs[output]
        if spec.kind is OutputKind.LATE:
            return [Finding((), None, {"": [self.literals.text(row)]}) for row in self.rows(output)]
        stages = self.cep.match_outputs[output].stages
        decided = TIMEOUT_TIME if spec.kind is OutputKind.TIMED_OUT else MATCH_TIME
        return [
            Finding(
                tuple(row[key] for key in self.keys),
                time,
                {stage: [self.literals.text(event) for event in row[stage]] for stage in stages if row[stage]},
            )
            for row, time in zip(python_rows(table), self._times_of(table.column(decided)), strict=True)
        ]

    def _times_of(self, column: pa.ChunkedArray) -> list[int]:
        """The times of an output, in which END_OF_TIME is represented by the largest value of the column's type."""
        time = replace(self.cep.time, type=self.cep.time.written)
        last = time.from_micros(np.array([END_OF_TIME]))[0]
        ends = pc.equal(column, last).to_pylist()
        micros = time.to_micros(column, lenient=True).to_pylist()
        return [END_OF_TIME if end else each for end, each in zip(ends, micros, strict=True)]

    # ------------------------------------------------------------------ partial matches

    @property
    def partial_matches(self) -> list[str]:
        """The current partial matches, without events that the watermark has not passed."""
        return sorted((" ".join(words) for words in self._alive("run_rows")), key=_natural)

    @property
    def held_matches(self) -> list[str]:
        """Complete matches that a skip strategy holds back until an earlier partial match is decided."""
        return sorted((" ".join(words) for words in self._alive("waiting_rows")), key=_natural)

    def _alive(self, rows: str) -> Iterator[list[str]]:
        for store in self.stores:
            for stored in (page for number, page in store.pages.items() if number < PageKind.WAITING_EVENTS.first):
                page = Page.from_bytes(stored, self.cep.key_schema, self.cep.pattern.event_schema)
                events = python_rows(
                    page.events.rename_columns([n.partition(":")[2] for n in page.events.column_names])
                )
                runs = getattr(page.rows, rows)
                for node in runs[runs[:, 2] >= 0, 1]:
                    taken: list[tuple[int, str]] = []
                    while node >= 0:
                        event, stage, node = page.nodes[node]
                        taken.insert(0, (stage, self.literals.text(events[event])))
                    if taken:
                        yield [word for _, word in sorted(taken, key=lambda pair: pair[0])]


def _outputs_of(options: PatternHarnessOptions) -> tuple[Mapping[str, OutputSpec], ProcessSpec | None]:
    """All outputs, with those for *select* and *process*, and the match function with outputs of its own."""
    outputs, select = options.get("outputs"), options.get("select")
    process, schema = options.get("process"), options.get("schema")
    expect(StreamDefinitionError, outputs, Mapping | None, "outputs must map names to OutputSpecs")
    if outputs is None:
        outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
    if select is not None:
        expect_strings(StreamDefinitionError, select, "select must be a list of measures", 'select=["COUNT(a.*) AS n"]')
        outputs = {**outputs, SELECTED: OutputSpec(OutputKind.MATCHES, tuple(select))}
    if isinstance(process, PatternProcessFunction):
        return outputs, ProcessSpec(process, None if schema is None else schema_of(schema), PROCESSED)
    if process is not None:
        hint = "process=function, schema='n BIGINT'"
        if not callable(process):
            raise StreamDefinitionError(f"process must be a match function, not {shown(process)}", hint=hint)
        if schema is None:
            raise StreamDefinitionError("a match function needs the schema of what it returns", hint=hint)
        called = OutputSpec(OutputKind.MATCHES, function=process, function_schema=schema_of(schema))
        outputs = {**outputs, PROCESSED: called}
    return outputs, None


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: (finding.time or 0, _natural(finding.text)))


def _texts(findings: Iterable[Finding]) -> list[str]:
    return [finding.text for finding in in_order(findings)]


def _natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts a2 before a10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


@also_named("schema", "columns", StreamDefinitionError, unless="process")
def match(pattern: Pattern, events: Events, **options: Any) -> PatternHarness:
    """Run *pattern* on all *events*, and end the input.

    :param events: literals (see :class:`Literals`), dicts, a pyarrow table or a pandas DataFrame
    :param options: those of :class:`PatternHarness`. The columns of events other than literals are inferred by default.
    :raises InvalidEventError, ColumnNotFoundError: as :meth:`PatternHarness.send`

    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("low").where("price < 3").next("high").where("price > 5")
    >>> events = [{"ts": 1000, "price": 2.5}, {"ts": 2000, "price": 7.0}]
    >>> match(pattern, events, select=["LAST(high.price) - LAST(low.price) AS rise"]).selected
    [{'rise': 4.5}]
    """
    if not isinstance(events, str) and "columns" not in options:
        events = table_of(events)
        options["columns"] = events.schema
    return PatternHarness(pattern, **options).send(events).end()
