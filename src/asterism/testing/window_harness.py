"""Runs windows without Spark, and compares their firings with expected ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self, Unpack

import pyarrow as pa

from asterism.arguments import expect, expect_options, expect_strings, shown
from asterism.columns.time import TimeColumn
from asterism.errors import InvalidEventError, StreamDefinitionError
from asterism.expressions.routines.user_functions import checked as checked_functions
from asterism.testing.event_harness import EventHarness
from asterism.testing.literals import EVENTS, WORDS, Literals, Row, checked_columns
from asterism.testing.operator_harness import python_rows
from asterism.testing.without_spark import without_spark
from asterism.windows.assigners import Windows
from asterism.windows.contents import FIRING, IS_LAST, KIND, OWN_COLUMNS, WINDOW_END, WINDOW_START
from asterism.windows.operator import LATE_ELEMENTS, WindowOperator
from asterism.windows.plan import FIRINGS, UNFIRED
from asterism.windows.session_ids import SESSION_COLUMNS
from asterism.windows.spec import ResultOptions, WindowFunction, WindowOptions, operator_results
from asterism.windows.triggers import Trigger

_ELEMENTS = "elements"
"""The column with the contents of a window, if no result is defined."""
_EXPECTED = re.compile(
    r"(?:(?P<key>[^\s\[]\S*) )?(?P<window>\[[^\s,]+,[^\s,]+\)|global)(?: #(?P<number>\d+))?(?: (?P<kind>early|on_time|late))?"
    r"(?P<last>!)?(?P<contents>:.*)?"
)
_FIRING = "[0s,10s) early: a1 b2, ann [0s,10s) #2 on_time!: total=3"
_STEPS = "in a1@3s b2@4s, watermark 10s, processing_time 12s, end, fires [0s,10s): a1 b2, late a7@1s, unfired 2"


@dataclass(frozen=True, slots=True)
class WindowFiring:
    """A firing of a window.

    :ivar key: the values of the key columns
    :ivar start: the start of the window in microseconds since the epoch, None for a global window; *end* likewise
    :ivar number: the number of the firing within its window, from 1
    :ivar kind: "early", "on_time" or "late"
    :ivar is_last: whether the window ends with this firing
    :ivar contents: the elements as literals, or the computed columns: ``a1 b2``, ``total=3 n=2``
    """

    key: tuple[Any, ...]
    start: int | None
    end: int | None
    number: int
    kind: str
    is_last: bool
    contents: str

    def text(self, literals: Literals = WORDS) -> str:
        """The firing as a string: ``ann [0s,10s) #1 on_time!: a1 b2``. The mark ``!`` means that it is the last one."""
        window = "global"
        if self.start is not None and self.end is not None:
            window = f"[{literals.time_text(self.start)},{literals.time_text(self.end)})"
        last = "!" if self.is_last else ""
        return f"{self._key_text}{window} #{self.number} {self.kind}{last}: {self.contents}".rstrip()

    @property
    def _key_text(self) -> str:
        return "".join(
            f"{value} " for value in [".".join(str(value) for value in self.key if value is not None)] if value
        )

    def fits(self, expected: str, literals: Literals = WORDS) -> bool:
        """Whether the firing is the *expected* one. What the string omits is not compared: the key, the number, the kind, the
        mark ``!`` of the last firing, or the contents.

        :raises StreamDefinitionError: *expected* is not the text of a firing
        """
        parts = _read(expected)
        if parts["window"] == "global":
            fits = self.start is None
        else:
            fits = [literals.micros(time) for time in parts["window"][1:-1].split(",")] == [self.start, self.end]
        return (
            fits
            and (parts["key"] is None or parts["key"] == self._key_text.rstrip())
            and (parts["number"] is None or int(parts["number"]) == self.number)
            and parts["kind"] in (None, self.kind)
            and (parts["last"] is None or self.is_last)
            and (parts["contents"] is None or parts["contents"][1:].split() == self.contents.split())
        )


def _read(expected: str) -> re.Match[str]:
    parts = _EXPECTED.fullmatch(expected.strip()) if isinstance(expected, str) else None
    if parts is None:
        raise StreamDefinitionError(f"not a firing: {shown(expected)}", hint=_FIRING)
    return parts


class WindowHarnessOptions(WindowOptions, ResultOptions, total=False):
    """The options of a :class:`WindowHarness`.

    :param schema: the columns that *process* returns, as Spark SQL or an Arrow schema
    :param udfs: the functions in Python that SQL can call, by name, as for :meth:`asterism.CEP.pattern_processors`. In a
        query, the session has registered them.
    """

    schema: str | pa.Schema | None
    udfs: Mapping[str, Any] | None


class WindowHarness(EventHarness):
    """Runs windows and their trigger step by step, with their state and time.

    :param windows: the window assigner
    :param trigger: and *allowed_lateness*, *in_order*: as for :func:`asterism.window`
    :param columns: the columns of the elements, as Spark SQL or an Arrow schema. Default: :data:`EVENTS`, those of event
        literals.
    :param keys: the key columns. Default: the key column of *literals*, if it is among the columns.
    :param time: the event-time column. None: processing time, which starts in 1970 and is advanced by the test.
    :param literals: the format of event literals
    :param key_groups: the number of key groups, as on Spark. Results must not depend on it, nor on *pages*.
    :param options: the options of windows (:class:`~asterism.windows.spec.WindowOptions`); what a firing contains
        (:class:`~asterism.windows.spec.ResultOptions`); and *schema*, the columns that *process* returns. Without *aggregate*,
        *process*, *reduce* and *fold*, the contents of a firing are the elements of its window, as literals.
    :raises StreamDefinitionError: an argument is invalid, or the arguments are incompatible
    :raises ExpressionError: an expression does not fit the columns

    >>> from asterism import CountTrigger, EventTimeTrigger, TumblingWindows
    >>> trigger = EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(2))
    >>> harness = WindowHarness(TumblingWindows.of(timedelta(seconds=10)), trigger)
    >>> harness.send("a1@1s a2@3s a4@12s a8@4s |10s").firings
    ['[0s,10s) #1 early: a1 a2', '[0s,10s) #2 on_time!: a1 a2 a8']
    >>> harness.end().firings[2:]
    ['[10s,20s) #1 on_time!: a4']
    """

    def __init__(
        self,
        windows: Windows,
        trigger: Trigger | None = None,
        columns: str | pa.Schema = EVENTS,
        *,
        allowed_lateness: timedelta = timedelta(0),
        in_order: bool | None = None,
        keys: Sequence[str] | None = None,
        time: str | None = "ts",
        literals: Literals = WORDS,
        key_groups: int = 1,
        **options: Unpack[WindowHarnessOptions],
    ) -> None:
        expect_options("WindowHarness", options, WindowHarnessOptions)
        expect(StreamDefinitionError, literals, Literals, "literals must be Literals")
        elements = checked_columns(columns, "the elements")
        if options.get("schema") is not None and options.get("process") is None:
            raise StreamDefinitionError(
                "a schema is that of the rows that process returns, and there is no process",
                hint='columns="ts TIMESTAMP, user STRING" for the columns of the elements',
            )
        expect(StreamDefinitionError, time, str | None, "time must be the name of a column or None", 'time="ts"')
        expect(StreamDefinitionError, in_order, bool | None, "in_order must be True, False or None")
        if keys is None:
            keys = [literals.key] if literals.key in elements.names else []
        expect_strings(StreamDefinitionError, keys, "keys must be a list of columns", 'keys=["user"]')
        literals = replace(literals, key=keys[0] if len(keys) == 1 else literals.key, time=time or literals.time)
        functions = checked_functions(options.get("udfs"))
        self._options = {
            "windows": windows, "trigger": trigger, "columns": elements, "allowed_lateness": allowed_lateness,
            "in_order": in_order, "keys": keys, "time": time, "literals": literals, "key_groups": key_groups, **options,
            "udfs": functions,
        }  # fmt: skip
        definition: dict[str, Any] = {**operator_results(options), "output": options.get("schema")}
        self._shows_elements = len(definition) == 1 and definition["output"] is None
        if self._shows_elements:
            definition |= {"function": _elements_of(literals), "output": f"{_ELEMENTS} ARRAY<STRING>"}
        definition |= {name: value for name, value in options.items() if name in WindowOptions.__annotations__}

        def operator(in_order: bool) -> WindowOperator:
            with without_spark(functions):
                return WindowOperator(
                    windows, elements, keys=keys, time=time, trigger=trigger, lateness=allowed_lateness, in_order=in_order,
                    late_output=True, **definition,
                )  # fmt: skip

        self.window_operator = operator(bool(in_order))
        if in_order is None and time is not None and not self.window_operator.processing_time:
            self.window_operator = operator(True)
        super().__init__(
            self.window_operator, elements, literals, keys=keys, key_groups=key_groups, event_time=time is not None
        )

    # ------------------------------------------------------------------ results

    @property
    def firings(self) -> list[str]:
        """The firings so far as strings (see :meth:`WindowFiring.text`), in the order of their output."""
        return [firing.text(self.literals) for firing in self.found()]

    @property
    def results(self) -> list[Row]:
        """The rows of the firings so far."""
        return self.rows(FIRINGS)

    @property
    def unfired(self) -> int:
        """The number of elements so far that were dropped with their windows before they were in a firing."""
        return self.metrics[UNFIRED]

    @property
    def late(self) -> list[str]:
        """The late elements as literals, in arrival order."""
        return [self.literals.text(row) for row in self.rows(LATE_ELEMENTS)]

    def found(self) -> list[WindowFiring]:
        """The firings so far, in the order of their output."""
        table = self.output(FIRINGS)
        bounds = []
        for name in (WINDOW_START, WINDOW_END):
            column = TimeColumn(name, table.schema.field(name).type)
            bounds.append(column.to_micros(table.column(name), lenient=True).to_pylist())
        others = (*OWN_COLUMNS, *self.keys, *(SESSION_COLUMNS if self.window_operator.spec.session_ids else ()))
        computed = [name for name in table.column_names if name not in others]
        firings = []
        for row, start, end in zip(python_rows(table), *bounds, strict=True):
            if self._shows_elements:
                contents = " ".join(row[_ELEMENTS])
            else:
                contents = " ".join(f"{name}={'null' if row[name] is None else row[name]}" for name in computed)
            key = tuple(row[name] for name in self.keys)
            firings.append(WindowFiring(key, start, end, row[FIRING], row[KIND], row[IS_LAST], contents))
        return firings

    # ------------------------------------------------------------------ transcripts

    def play(self, transcript: str) -> Self:
        """Execute the steps of a transcript, and compare what each of them emits. One step or result per line:

        ==========================  ====================================================================================
        line                        meaning
        ==========================  ====================================================================================
        ``in a1@3s b2@4s``          elements, as literals; one batch
        ``watermark 10s``           the watermark advances to this time
        ``processing_time 12s``     processing time advances to this time
        ``end``                     the input ends
        ``fires [0s,10s): a1 b2``   a firing that the step before emits (see :meth:`WindowFiring.fits`)
        ``late a7``                 a late element that the step before emits
        ``unfired 2``               elements that the step before drops and that never fired; compared only if it is given
        ==========================  ====================================================================================

        The firings and late elements of a step are complete, in any order. A comment begins with ``--``.

        :raises AssertionError: a step emits something else; the message has the step and the differences
        :raises InvalidEventError: a line is not understood

        >>> from asterism import TumblingWindows
        >>> WindowHarness(TumblingWindows.of(timedelta(seconds=10))).play('''
        ...     in a1@1s b2@12s
        ...     watermark 10s
        ...     fires [0s,10s) on_time: a1
        ...     in a3@2s            -- too late
        ...     late a3
        ...     end
        ...     fires [10s,20s): b2 b5
        ... ''')
        Traceback (most recent call last):
        ...
        AssertionError: step 4, "end": 1 missing, 1 unexpected
          - [10s,20s): b2 b5
          + [10s,20s) #1 on_time!: b2
        """
        __tracebackhide__ = True
        fired_before, late_before = len(self.found()), len(self.late)
        for number, (step, fires, late, unfired) in enumerate(_steps_of(transcript), 1):
            before = self.unfired
            self._step(step)
            all_firings, all_late = self.found(), self.late
            lines = _compared(fires, all_firings[fired_before:], self.literals)
            lines += _compared_late(late, all_late[late_before:])
            if unfired is not None and unfired != self.unfired - before:
                lines += [("-", f"unfired {unfired}"), ("+", f"unfired {self.unfired - before}")]
            _check(f'step {number}, "{step}"', lines)
            fired_before, late_before = len(all_firings), len(all_late)
        return self

    def _step(self, step: str) -> None:
        word, _, rest = step.partition(" ")
        if word == "in":
            self.send(rest.strip())
        elif word == "end":
            self.end()
        elif word == "watermark":
            self.advance_watermark(rest.strip())
        else:
            self.advance_processing_time(rest.strip())


def assert_firings(harness: WindowHarness, expected: Sequence[str]) -> None:
    """Assert that the firings of *harness* so far are the *expected* ones, in any order.

    :param expected: firings as strings; what they omit is not compared (see :meth:`WindowFiring.fits`)
    :raises AssertionError: they differ; the message has the differences

    >>> from asterism import TumblingWindows
    >>> harness = WindowHarness(TumblingWindows.of(timedelta(seconds=10)), aggregate="sum(value) AS total")
    >>> harness = harness.send("ann.a1@1s ann.a2@2s bob.a4@3s ann.a8@11s").end()
    >>> assert_firings(harness, ["ann [0s,10s): total=3", "bob [0s,10s) on_time: total=4", "ann [10s,20s) #1!"])
    >>> assert_firings(harness, ["ann [0s,10s): total=4", "bob [0s,10s)"])
    Traceback (most recent call last):
    ...
    AssertionError: firings: 1 missing, 2 unexpected
      - ann [0s,10s): total=4
        bob [0s,10s) #1 on_time!: total=4
      + ann [0s,10s) #1 on_time!: total=3
      + ann [10s,20s) #1 on_time!: total=8
    """
    __tracebackhide__ = True
    expect(StreamDefinitionError, harness, WindowHarness, "expected a WindowHarness")
    expect_strings(StreamDefinitionError, expected, "the expected firings must be a list of strings", f'["{_FIRING}"]')
    _check("firings", _compared(expected, harness.found(), harness.literals))


def _elements_of(literals: Literals) -> WindowFunction:
    def elements(rows: pa.Table, window: Any) -> dict[str, Any]:
        of_key = rows.drop_columns([literals.key]) if literals.key in rows.column_names else rows
        return {_ELEMENTS: [literals.text(row) for row in python_rows(of_key)]}

    return elements


def _steps_of(transcript: str) -> list[tuple[str, list[str], list[str], int | None]]:
    """Each step with the firings and the late elements that it must emit, and the number of elements that never fired."""
    expect(InvalidEventError, transcript, str, "a transcript must be a string", _STEPS)
    steps: list[tuple[str, list[str], list[str], int | None]] = []
    for number, line in enumerate(transcript.splitlines(), 1):
        line = line.partition("--")[0].strip()
        word, _, rest = line.partition(" ")
        if word in ("in", "watermark", "processing_time") or line == "end":
            steps.append((line, [], [], None))
        elif word == "fires" and steps:
            _read(rest)
            steps[-1][1].append(rest.strip())
        elif word == "late" and steps:
            steps[-1][2].extend(rest.split())
        elif word == "unfired" and steps and rest.strip().isdecimal():
            steps[-1] = (*steps[-1][:3], int(rest))
        elif line:
            raise InvalidEventError(f"line {number} of the transcript is not a step: {shown(line)}", hint=_STEPS)
    return steps


_Lines = list[tuple[str, str]]
"""(mark, text) of each line; the marks are - missing, + unexpected."""


def _compared(expected: Sequence[str], firings: Sequence[WindowFiring], literals: Literals) -> _Lines:
    left = list(firings)
    lines: list[tuple[str, str] | None] = [None] * len(expected)
    # The expected firings with the most details come first, because less detailed ones may fit the same firing.
    for place in sorted(
        range(len(expected)), key=lambda at: -sum(part is not None for part in _read(expected[at]).groups())
    ):
        fitting = next((firing for firing in left if firing.fits(expected[place], literals)), None)
        if fitting is not None:
            left.remove(fitting)
        lines[place] = ("-", expected[place]) if fitting is None else (" ", fitting.text(literals))
    return [line for line in lines if line is not None] + [("+", firing.text(literals)) for firing in left]


def _compared_late(expected: Sequence[str], late: Sequence[str]) -> _Lines:
    left, lines = list(late), []
    for literal in expected:
        lines.append((" " if literal in left else "-", f"late {literal}"))
        if literal in left:
            left.remove(literal)
    return lines + [("+", f"late {literal}") for literal in left]


def _check(title: str, lines: _Lines) -> None:
    """:raises AssertionError: something is missing or unexpected"""
    __tracebackhide__ = True
    marks = Counter(mark for mark, _ in lines)
    kinds = {"-": "missing", "+": "unexpected"}
    counts = ", ".join(f"{marks[mark]} {kind}" for mark, kind in kinds.items() if marks[mark])
    if counts:
        raise AssertionError("\n".join([f"{title}: {counts}", *(f"  {mark} {text}" for mark, text in lines)]))
