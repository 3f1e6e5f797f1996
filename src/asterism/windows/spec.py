"""The definition of a window operator: its windows, when they fire, and what their firings contain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, TypedDict

import pyarrow as pa

from asterism.arguments import expect, expect_strings, shown
from asterism.columns.time import TimeColumn, micros
from asterism.errors import ColumnNotFoundError, StreamDefinitionError
from asterism.windows import triggers
from asterism.windows.arguments import duration
from asterism.windows.assigners import GlobalWindows, Windows
from asterism.windows.evictors import Evictor
from asterism.windows.folds import Fold
from asterism.windows.process_function import ProcessWindowFunction

CLOSING = ("drop", "fire_if_non_empty", "fire_always")
"""The actions at the end of a window, by the numbers of the kernels; some elements may not have fired by then."""
ON_TIME = ("fire_if_non_empty", "fire_always")
"""Whether a window that is empty fires on time."""
PROCESSING_TIME = TimeColumn("processing time", pa.timestamp("us", "UTC"))
WindowFunction = Callable[[pa.Table, triggers.TimeSpan], Any] | ProcessWindowFunction
Reduce = Callable[[dict[str, Any], dict[str, Any]], Mapping[str, Any]]


class FiringOptions(TypedDict, total=False):
    """Options of the firings: their elements, and whether a window fires that is empty, or ends before its trigger has fired.

    :param evictor: removes elements when the window fires. Default: none.
    :param closing: what happens when a window ends, allowed lateness included, and its trigger does not fire then.
        ``"drop"`` (default): nothing; elements that have not been in a firing are dropped, and counted as
        ``unfired_elements``. ``"fire_if_non_empty"``: the window fires once more if there are such elements.
        ``"fire_always"``: it fires once more in any case, so each window has exactly one row with ``is_last``.
    :param on_time: ``"fire_always"``: if the trigger fires on time and the window is empty, because it is discarding and
        nothing is new, the window fires nevertheless. Default: ``"fire_if_non_empty"``.
    """

    evictor: Evictor | None
    closing: str
    on_time: str


class WindowOptions(FiringOptions, total=False):
    """The options of windows on Spark, in tests and as an operator: those of :class:`FiringOptions`, and these.

    :param pages: a fixed number of pages of state per key group, which cannot change during the lifetime of a checkpoint.
        Default: the number follows the size of the state. Needed only for a checkpoint that was created with a number.
    :param session_ids: session windows: whether results have the columns ``session_id`` and ``replaces``, with which a sink
        can keep one row per session although sessions merge. Default: False. See docs/windows.md.
    """

    pages: int | None
    session_ids: bool


class ResultOptions(TypedDict, total=False):
    """The contents of a firing: at most one of *aggregate*, *reduce* and *fold*, and *process*, which may follow one of them.

    :param aggregate: Spark SQL aggregates, a list or one string: ``sum(price) AS total``
    :param process: a window function, called for each firing. After *aggregate*, *reduce* or *fold*, it takes their result
        instead of the elements.
    :param reduce: combines two elements (dicts) into one: the results are the columns of the elements
    :param fold: aggregates the elements with an accumulator: the results are its columns
    """

    aggregate: Sequence[str] | str | None
    process: WindowFunction | None
    reduce: Reduce | None
    fold: Fold | None


class WindowOperatorOptions(WindowOptions, total=False):
    """The options of :class:`~asterism.windows.operator.WindowOperator`: those of :class:`WindowOptions`, and these.

    :param lateness: how long a window is kept after its end, in event time. Default: zero.
    :param in_order: whether elements wait until the watermark passes them, and are processed in the order of their times.
        Default: False.
    :param late_output: whether there is an output for late elements. Default: False.
    :param measures: Spark SQL aggregates, such as ``sum(price) AS total``
    :param function: takes the elements of the window (:class:`pyarrow.Table`) and the window
        (:class:`~asterism.windows.triggers.TimeSpan`), and returns a table, a DataFrame, a dict or a list of dicts with the
        columns *output*. After *measures*, *reduce* or *fold*, it takes their result instead of the elements: a table with one
        row, with the key.
    :param output: those columns, as Spark SQL or an Arrow schema
    :param reduce: combines two elements (dicts) into one: the results are the columns of the elements
    :param fold: aggregates the elements with an accumulator: the results are its columns
    """

    lateness: timedelta
    in_order: bool
    late_output: bool
    measures: Sequence[str] | None
    function: WindowFunction | None
    output: str | pa.Schema | None
    reduce: Reduce | None
    fold: Fold | None


def operator_results(options: ResultOptions) -> WindowOperatorOptions:
    """The contents of a firing that are given, as options of the operator."""
    aggregate = options.get("aggregate")
    contents: WindowOperatorOptions = {}
    if aggregate is not None:
        contents["measures"] = [aggregate] if isinstance(aggregate, str) else aggregate
    if options.get("process") is not None:
        contents["function"] = options["process"]
    if options.get("reduce") is not None:
        contents["reduce"] = options["reduce"]
    if options.get("fold") is not None:
        contents["fold"] = options["fold"]
    return contents


@dataclass(frozen=True, kw_only=True)
class WindowSpec:
    """The definition of a window operator, as it is given; the fields that have defaults are documented in
    :class:`WindowOperatorOptions`.

    :raises StreamDefinitionError: the fields do not match
    :raises ColumnNotFoundError: a key or the event time is not a column of the elements
    """

    windows: Windows
    schema: pa.Schema
    """the columns of the elements"""
    time: str | None
    """the event-time column; None: processing time"""
    keys: Sequence[str] = ()
    trigger: triggers.Trigger | None = None
    """None: windows fire at their end"""
    lateness: timedelta = timedelta(0)
    in_order: bool = False
    late_output: bool = False
    measures: Sequence[str] | None = None
    function: WindowFunction | None = None
    output: str | pa.Schema | None = None
    reduce: Reduce | None = None
    fold: Fold | None = None
    evictor: Evictor | None = None
    closing: str = "drop"
    on_time: str = "fire_if_non_empty"
    pages: int | None = None
    session_ids: bool = False

    def __post_init__(self) -> None:
        _check_windows(self.windows)
        expect(
            StreamDefinitionError,
            self.schema,
            pa.Schema,
            "the schema of a stream must be a pyarrow.Schema",
            'pa.schema({"ts": "int64"})',
        )
        expect_strings(StreamDefinitionError, self.keys, "keys must be a list of columns", 'keys=["user"]')
        expect(StreamDefinitionError, self.time, str | None, "the event time must be a column or None", 'time="ts"')
        check_zone(self.windows, self.time_column)
        for key in self.keys:
            _check_column(self.schema, key, "key")
        trigger = self.effective_trigger
        if not self.lateness_micros and not self.windows.is_global:
            triggers.check_lateness(trigger)
        if self.in_order and not self.is_event_time:
            raise StreamDefinitionError("in_order needs an event time: in processing time, elements arrive in order")
        _check_evictor(self.evictor)
        _check_choice("closing", self.closing, CLOSING)
        _check_choice("on_time", self.on_time, ON_TIME)
        expect(StreamDefinitionError, self.session_ids, bool, "session_ids must be True or False")
        if self.session_ids and not self.windows.merges:
            raise StreamDefinitionError(
                "only session windows have session ids",
                f"In: {self.windows!r}\nOther windows are identified by their key, start and end.",
                "SessionWindows.with_gap(timedelta(minutes=30)), or remove session_ids",
            )

    @property
    def is_event_time(self) -> bool:
        return self.time is not None

    @cached_property
    def time_column(self) -> TimeColumn:
        if self.time is None:
            return PROCESSING_TIME
        _check_column(self.schema, self.time, "event time")
        return TimeColumn.of(self.time, self.schema)

    @cached_property
    def effective_trigger(self) -> triggers.Trigger:
        """The trigger, or the default one."""
        if self.trigger is None:
            if isinstance(self.windows, GlobalWindows):
                raise StreamDefinitionError(
                    "a global window needs a trigger",
                    "It has no end at which it could fire.",
                    "CountTrigger.at_least(100), or NeverTrigger() if it must never fire",
                )
            if self.is_event_time:
                return triggers.EventTimeTrigger.after_end_of_window()
            return triggers.ProcessingTimeTrigger.after_end_of_window()
        checked = triggers.check_trigger(self.trigger)
        if not self.is_event_time:
            triggers.check_event_time(checked)
        if self.windows.merges:
            triggers.check_merging(checked)
        return checked

    @cached_property
    def lateness_micros(self) -> int:
        length = duration(self.lateness, "allowed lateness", zero=True)
        if length and not self.is_event_time:
            raise StreamDefinitionError(
                "windows in processing time have no allowed lateness",
                "An element's processing time is the time at which it arrives, so no element is late.",
                "remove it, or set the event-time column",
            )
        return micros(length)

    @property
    def evictor_calls_python(self) -> bool:
        """Whether the evictor may read all columns of the elements."""
        evictor = self.evictor
        return evictor is not None and (evictor.is_user_defined or callable(getattr(evictor, "distance", None)))


def _check_windows(windows: object) -> None:
    if not isinstance(windows, Windows):
        raise StreamDefinitionError(
            f"not windows: {windows!r}",
            hint="TumblingWindows.of(timedelta(hours=1)), SlidingWindows, SessionWindows or GlobalWindows()",
        )
    name = type(windows).__name__
    if type(windows).assign is Windows.assign:
        raise StreamDefinitionError(
            f"the windows {name} have no method assign",
            hint="def assign(self, times): return np.arange(len(times)), times, times + 10_000_000",
        )
    if windows.is_user_defined and (windows.merges or windows.is_global):
        raise StreamDefinitionError(
            f"the windows {name} cannot merge or have no end",
            "Only SessionWindows merge, and only GlobalWindows have no end.",
            "remove merges and is_global; a gap of SessionWindows may be an expression or a function",
        )


def _check_evictor(evictor: object) -> None:
    if evictor is None:
        return
    if not isinstance(evictor, Evictor):
        raise StreamDefinitionError(f"not an evictor: {evictor!r}", hint="Evictor.count(100)")
    if evictor.is_user_defined and type(evictor).keeps is Evictor.keeps:
        raise StreamDefinitionError(
            f"the evictor {type(evictor).__name__} has no method keeps",
            hint="def keeps(self, elements, window): return [True] * elements.num_rows",
        )
    expect(StreamDefinitionError, evictor.after, bool, f"{type(evictor).__name__}.after must be True or False")


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(f'"{choice}"' for choice in choices[:-1])
        raise StreamDefinitionError(
            f'{name} must be {listed} or "{choices[-1]}", not {shown(value)}', hint=f'{name}="fire_if_non_empty"'
        )


def check_zone(windows: Windows, time: TimeColumn) -> None:
    """:raises StreamDefinitionError: the windows follow a time zone, and the time has none"""
    zone = getattr(windows, "zone", None)
    if zone is not None and pa.types.is_timestamp(time.type) and time.type.tz is None:
        raise StreamDefinitionError(
            f'the event-time column "{time.name}" has no time zone, so its windows cannot have one',
            f"In: {windows!r}\nIts days and months are those of its local times.",
            "remove the zone, or CAST the column to TIMESTAMP",
        )


def _check_column(schema: pa.Schema, name: str, what: str) -> None:
    if name not in schema.names:
        raise ColumnNotFoundError.from_missing_and_available(name, schema.names, f"{what} column")
