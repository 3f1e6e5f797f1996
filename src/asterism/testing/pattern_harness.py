"""Runs a pattern without Spark."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import expect, expect_texts, shown
from asterism.columns.time import END_OF_TIME, TimeColumn
from asterism.errors import InvalidEventError, PatternWarning, StreamDefinitionError
from asterism.matching.operator import MAX_PARTIAL_MATCHES, CepOperator, OnLimit
from asterism.matching.outputs import MATCH_TIME, TIMEOUT_TIME, OutputKind, OutputSpec
from asterism.matching.page import Page
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.patterns.warnings import warn
from asterism.testing.literals import EVENTS, WORDS, Events, Literals, Part, Row, Time, check_table, table_of
from asterism.testing.operator_harness import OperatorHarness, python_rows

SELECTED = "selected"
"""The output that holds the measures of *select*."""


# ---------------------------------------------------------------------- patterns


@dataclass(frozen=True, slots=True)
class Finding:
    """A match, a timed-out partial match or a late event: *stages* has its events as words.

    *time* is in microseconds since the epoch: of the match, or the deadline that passed; a late event has none.
    """

    key: tuple[Any, ...]
    time: int | None
    stages: dict[str, list[str]]

    @property
    def text(self) -> str:
        """Its words, stage by stage."""
        return " ".join(word for words in self.stages.values() for word in words)


class PatternHarness(OperatorHarness):
    """A pattern with its state and time, to be fed step by step.

    :param schema: the columns of the events; by default :data:`EVENTS`, those of words
    :param keys: the key columns; by default the key column of *literals*, where there is one
    :param time: the event-time column; None: processing time, the clock is moved by hand and starts in 1970
    :param semantics: whose answers, see ``docs/differences_from_flink.md``
    :param select: measures, see :attr:`selected`
    :param order_by: secondary order of events with equal times, as in ``KeyedStream``
    :param literals: how events are written as words
    :param outputs: what is asked for, by name, instead of matches, timed-out partial matches and late events
    :param pages: pages of state per key group; *key_groups*: as on Spark. The answers must not depend on them
    :param max_partial_matches: and *on_limit*: see :class:`asterism.matching.operator.CepOperator`

    Warns with :class:`~asterism.errors.PatternWarning` where the pattern surely does not mean what it says.

    >>> from datetime import timedelta
    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("a").where("kind = 'a'").next("b").where("kind = 'b'").within(timedelta(seconds=10))
    >>> harness = PatternHarness(pattern).send("a1@1s b2@2s a3@3s").advance_watermark("12s")
    >>> harness.matches, harness.partial_matches
    (['a1 b2'], ['a3'])
    >>> harness.end().timed_out
    ['a3']
    """

    def __init__(
        self,
        pattern: Pattern,
        schema: pa.Schema = EVENTS,
        *,
        keys: Sequence[str] | None = None,
        time: str | None = "ts",
        semantics: Semantics = Semantics.DEFAULT,
        select: Sequence[str] | None = None,
        order_by: Sequence[str] = (),
        literals: Literals = WORDS,
        outputs: Mapping[str, OutputSpec] | None = None,
        pages: int = 1,
        key_groups: int = 1,
        max_partial_matches: int | None = MAX_PARTIAL_MATCHES,
        on_limit: OnLimit = "error",
    ) -> None:
        expect(StreamDefinitionError, literals, Literals, "how events are written as words is said by Literals")
        expect(StreamDefinitionError, schema, pa.Schema, "the schema of the events is a pyarrow.Schema")
        if keys is None:
            keys = [literals.key] if literals.key in schema.names else []
        expect_texts(StreamDefinitionError, keys, "keys is a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, time, str | None, "time is the name of a column, or None", 'time="ts"')
        expect(StreamDefinitionError, outputs, Mapping | None, "outputs are OutputSpecs by name")
        if len(keys) == 1:
            literals = replace(literals, key=keys[0])
        if time is not None:
            literals = replace(literals, time=time)
        if outputs is None:
            outputs = {kind.value: OutputSpec(kind) for kind in OutputKind}
        if select is not None:
            expect_texts(StreamDefinitionError, select, "select is a list of measures", 'select=["COUNT(a.*) AS n"]')
            outputs = {**outputs, SELECTED: OutputSpec(OutputKind.MATCHES, tuple(select))}
        options: dict[str, Any] = {
            "keys": keys, "time": time, "semantics": semantics, "order_by": order_by, "outputs": outputs, "pages": pages,
            "max_partial_matches": max_partial_matches, "on_limit": on_limit,
        }  # fmt: skip
        self.cep = CepOperator(pattern, schema, **options)
        warn(pattern)
        super().__init__(self.cep, keys=keys, key_groups=key_groups)
        self.literals = literals
        self._options = {
            **options,
            "schema": schema,
            "literals": literals,
            "key_groups": key_groups,
            "pattern": pattern,
        }

    def again(self, **changes: Any) -> PatternHarness:
        """A new harness for the same pattern, with the same options but for *changes*."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PatternWarning)  # it was said where the first one was made
            return PatternHarness(**self._options | changes)

    # ------------------------------------------------------------------ events and time

    def send(self, events: Events) -> Self:
        """Events arrive: words (see :class:`Literals`), dicts, or a table; each call is a batch.

        Columns that are missing are null.

        :raises InvalidEventError: what is sent are no events, or not of the schema's types, or the stream has ended
        :raises ColumnNotFoundError: what is sent has a column that is not in the schema
        """
        return self.deliver(self.parts(events))

    def parts(self, events: Events) -> list[Part]:
        """*events* as batches, with the times to move to that words say between them."""
        if not isinstance(events, str):
            table = table_of(events, self.cep.schema)
            return [table] if table.num_rows else []
        before = [time for table in self.sent[-1:] for time in self.times(table) if time is not None]
        return self.literals.parse(events, self.cep.schema, before[-1] if before else 0)

    def deliver(self, parts: Iterable[Part]) -> Self:
        """Batches arrive, and in between the watermark moves (in processing time: the clock)."""
        if isinstance(parts, str | bytes | Mapping) or not isinstance(parts, Iterable):
            raise InvalidEventError(f"parts are batches and times, not {shown(parts)}", hint="harness.parts(...)")
        for part in parts:
            if isinstance(part, pa.Table):
                self.feed(part)
            elif part == END_OF_TIME:
                self.end()
            elif not self.cep.event_time:
                if part is None:
                    raise InvalidEventError('"|" says no time', hint="in processing time, say to when: |10s")
                self.move(processing_time=part)
            elif part is None:
                self.advance_watermark()
            else:
                self.move(watermark=part)
        return self

    def times(self, events: pa.Table) -> list[int | None]:
        """The times of events, in microseconds since the epoch; None: it is null, or out of range."""
        check_table(events)
        if self.literals.time not in self.cep.schema.names:
            return [None] * events.num_rows
        column = TimeColumn.of(self.literals.time, self.cep.schema)
        times: list[int | None] = column.to_micros(events.column(column.name), lenient=True).to_pylist()
        return times

    def advance_watermark(self, to: Time | None = None) -> Self:
        """Event time has passed *to*; None: the latest time of the events so far. A lower one than before changes nothing.

        :param to: a text as in words, the time since 1970, or a datetime (without a zone: in UTC)
        """
        if to is None:
            times = [time for table in self.sent for time in self.times(table) if time is not None]
            return self.move(watermark=max(times, default=None))
        return self.move(watermark=self.literals.micros(to))

    def advance_processing_time(self, to: Time) -> Self:
        """The clock shows *to*, as in :meth:`advance_watermark`."""
        return self.move(processing_time=self.literals.micros(to))

    # ------------------------------------------------------------------ answers

    @property
    def matches(self) -> list[str]:
        """Each match as the words of its events, stage by stage; in order of time, equal times in that of their texts."""
        return _texts(self.found("matches"))

    @property
    def timed_out(self) -> list[str]:
        """The partial matches that ran out of time, likewise."""
        return _texts(self.found("timed_out"))

    @property
    def late(self) -> list[str]:
        """The late events, in order of arrival."""
        return [self.literals.text(row) for row in self.rows("late")]

    @property
    def selected(self) -> list[Row]:
        """The measures of each match, with its key."""
        return self.rows(SELECTED)

    def by_stage(self, output: str = "matches") -> list[dict[str, list[str]]]:
        """Each match as the words of its events by stage; stages without events are absent.

        >>> from asterism import Pattern
        >>> match(Pattern.begin("any").times(2).next("last"), "a1 b2 c3").by_stage()
        [{'any': ['a1', 'b2'], 'last': ['c3']}]
        """
        return [found.stages for found in in_order(self.found(output))]

    def found(self, output: str = "matches") -> list[Finding]:
        """Each match (or timed-out partial match, or late event) with its words, key and time, as they came out."""
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
        """The times of an output, in which the end of time is written as the largest value that the column can hold."""
        time = replace(self.cep.time, type=self.cep.time.written)
        last = time.from_micros(np.array([END_OF_TIME]))[0]
        ends = pc.equal(column, last).to_pylist()
        micros = time.to_micros(column, lenient=True).to_pylist()
        return [END_OF_TIME if end else each for end, each in zip(ends, micros, strict=True)]

    # ------------------------------------------------------------------ what is under way

    @property
    def partial_matches(self) -> list[str]:
        """The partial matches that are alive; events that the watermark has not passed take no part yet."""
        return sorted((" ".join(words) for words in self._alive("run_rows")), key=_natural)

    @property
    def held_matches(self) -> list[str]:
        """Finished matches that a skip strategy holds back while an earlier partial match is alive."""
        return sorted((" ".join(words) for words in self._alive("waiting_rows")), key=_natural)

    def _alive(self, rows: str) -> Iterator[list[str]]:
        for store in self.stores:
            for stored in store.pages.values():
                page = Page.from_bytes(stored, self.cep.key_schema, self.cep.pattern.event_schema)
                events = python_rows(
                    page.events.rename_columns([n.partition(":")[2] for n in page.events.column_names])
                )
                for node in getattr(page, rows)[:, 1]:
                    taken: list[tuple[int, str]] = []
                    while node >= 0:
                        event, stage, node = page.nodes[node]
                        taken.insert(0, (stage, self.literals.text(events[event])))
                    if taken:
                        yield [word for _, word in sorted(taken, key=lambda pair: pair[0])]


def in_order(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda one: (one.time or 0, _natural(one.text)))


def _texts(found: Iterable[Finding]) -> list[str]:
    return [one.text for one in in_order(found)]


def _natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts a2 before a10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def match(pattern: Pattern, events: Events, **options: Any) -> PatternHarness:
    """Run *pattern* over *events* to their end.

    :param events: words (see :class:`Literals`), dicts, a pyarrow table or a pandas DataFrame
    :param options: those of :class:`PatternHarness`; the schema of events that are no words is found out where it is not said
    :raises InvalidEventError, ColumnNotFoundError: as :meth:`PatternHarness.send`

    >>> from asterism import Pattern
    >>> pattern = Pattern.begin("low").where("price < 3").next("high").where("price > 5")
    >>> events = [{"ts": 1000, "price": 2.5}, {"ts": 2000, "price": 7.0}]
    >>> match(pattern, events, select=["LAST(high.price) - LAST(low.price) AS rise"]).selected
    [{'rise': 4.5}]
    """
    if not isinstance(events, str) and "schema" not in options:
        events = table_of(events)
        options["schema"] = events.schema
    return PatternHarness(pattern, **options).send(events).end()
