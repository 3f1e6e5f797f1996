"""Triggers, which decide when a window fires: a small language of immutable values.

A policy reads like a sentence: "Fire when the watermark passes the end of the window; before that, ten seconds of processing
time after the first new element; after that, with every fifth late element; and discard the elements after each firing"::

    EventTimeTrigger.after_end_of_window()
        .with_early_trigger(ProcessingTimeTrigger.after_first_element(timedelta(seconds=10)))
        .with_late_trigger(CountTrigger.at_least(5))
        .discarding()

A trigger *waits* for its condition. It is *ready* from the moment when the condition holds until the window fires; then all its
parts wait again. ``All`` is ready when all its parts are, ``Any`` when one of them is. The window fires when its trigger is
ready.

============================  ==========================================================================================
trigger                       is ready
============================  ==========================================================================================
CountTrigger.at_least(n)      n elements after the last firing
EventTimeTrigger...           when the watermark passes the end of the window, and then with every late element
  .after_first_element(d)     when the watermark passes the time of the first element after the last firing, plus *d*
ProcessingTimeTrigger...      the same in processing time
ContinuousEventTimeTrigger    at all multiples of the interval that the watermark passes, at the end, with every late element
ContinuousProcessingTime...   at all multiples of the interval in processing time; at the end of windows in processing time
DeltaTrigger                  with an element that is too far from that of the last firing
NeverTrigger                  never
All(a, b), Any(a, b)          when all parts are; when one part is
Sequence(a, b)                with *a* until it has fired, then with *b*
a.until(b), a.once()          with *a*, until *b* has fired; until it has fired
============================  ==========================================================================================

Source: FLIP-9, "Trigger DSL"; Flink's "Windows", section "Triggers".
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any as Value
from typing import ClassVar, NamedTuple, NoReturn, Self

from asterism.arguments import expect
from asterism.errors import AsterismError, StreamDefinitionError
from asterism.spelling import PythonNames
from asterism.text.view import View
from asterism.windows.arguments import check_delta, code, duration, name_of

MAX_DEPTH = 100
"""Maximum nesting of triggers; Python could not print deeper ones."""


class Mode(enum.Enum):
    """Whether the elements of a window are kept after a firing."""

    ACCUMULATING = "accumulating"
    """Elements are kept, and are part of the next result again."""
    DISCARDING = "discarding"
    """Elements are dropped: each result contains only new elements."""


class TriggerResult(enum.Enum):
    """The result of a user-defined trigger: emit the result (FIRE), drop the elements (PURGE), both, or nothing."""

    CONTINUE = 0
    FIRE = 1
    PURGE = 2
    FIRE_AND_PURGE = 3

    @property
    def fires(self) -> bool:
        return self in (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE)

    @property
    def purges(self) -> bool:
        return self in (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)


class TimeSpan(NamedTuple):
    """The window of a call of a user-defined trigger or function, in UTC. A global window has no start and no end. Times outside
    the years 1 to 9999, the range of Python's datetime, are replaced by the first or last datetime.
    """

    start: datetime | None
    end: datetime | None


@dataclass(slots=True, eq=False, repr=False)
class TriggerContext:
    """The context of a user-defined trigger, for the current window.

    :ivar state: a separate dict for each key and window: strings, numbers, Booleans, None, times, and lists and dicts of them.
        It is kept as long as the window.
    :ivar watermark: the watermark; None before the first one
    :ivar processing_time: the processing time of this batch
    """

    state: dict[str, Value]
    event_timers: set[datetime]
    processing_time_timers: set[datetime]
    watermark: datetime | None
    processing_time: datetime

    def register_event_time_timer(self, time: datetime) -> None:
        """Call ``on_event_time`` when the watermark passes *time*. There is one timer per time.

        The end is not part of a window: a timer at ``window.end`` is due when the window ends, and its firing is "on_time".
        A later timer is due when the window is dropped, at the latest.

        :raises StreamDefinitionError: *time* is not a datetime with a time zone
        :raises OperatorError: the trigger has no method ``on_event_time``, or the windows are in processing time
        """
        self.event_timers.add(_moment(time))

    def register_processing_time_timer(self, time: datetime) -> None:
        """Call ``on_processing_time`` when processing time passes *time*; if that time has passed, directly after the element.

        :raises StreamDefinitionError: *time* is not a datetime with a time zone
        :raises OperatorError: the trigger has no method ``on_processing_time``
        """
        self.processing_time_timers.add(_moment(time))

    def delete_event_time_timer(self, time: datetime) -> None:
        self.event_timers.discard(_moment(time))

    def delete_processing_time_timer(self, time: datetime) -> None:
        self.processing_time_timers.discard(_moment(time))


class Trigger(View):
    """Base of all triggers, including user-defined ones.

    A subclass overrides :meth:`on_element`, and further methods if needed: a timer needs its callback, and only a trigger with
    ``on_processing_time`` makes a query in event time depend on processing time. The object is shared by all windows, so the
    state of a window belongs in ``ctx.state``. A user-defined trigger may be a part of ``All`` and ``Any``: FIRE makes it ready
    until the window fires. The mode of the outermost trigger decides whether elements are dropped, so PURGE has an effect only
    if this trigger is the outermost one. :meth:`on_fired` is called when the window has fired, whatever part was the reason.

    Unlike the built-in triggers, it is called from Python for each element.

    >>> class FireOnAlarm(Trigger):
    ...     def on_element(self, element, window, ctx):
    ...         ctx.state["seen"] = ctx.state.get("seen", 0) + 1
    ...         return TriggerResult.FIRE if element["kind"] == "alarm" else TriggerResult.CONTINUE
    >>> Any(FireOnAlarm(), CountTrigger.at_least(100)).discarding().mode
    <Mode.DISCARDING: 'discarding'>

    Source: Flink's ``Trigger``.
    """

    mode: Mode | None = None
    """Set by :meth:`discarding` and :meth:`accumulating`. The mode of the outermost trigger applies; None: accumulating."""

    def on_element(self, element: Mapping[str, Value], window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        """Called for each element that is added to the window."""
        raise NotImplementedError

    def on_event_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        """Called when the watermark passes a timer."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: datetime, window: TimeSpan, ctx: TriggerContext) -> TriggerResult:
        """Called when processing time passes a timer."""
        return TriggerResult.CONTINUE

    def on_fired(self, window: TimeSpan, ctx: TriggerContext) -> None:
        """Called when the window has fired, because of this trigger or another part of the policy. Built-in triggers begin to
        wait again at this point; a user-defined one resets ``ctx.state`` here. Not called while the trigger is inactive: as an
        early trigger after the end of the window, as a late one before it, or when it is not its turn in a :class:`Sequence`.
        """

    def on_merge(self, window: TimeSpan, states: list[dict[str, Value]], ctx: TriggerContext) -> None:
        """Called when windows were merged into *window*: *states* are the states of the merged windows. The new state,
        ``ctx.state``, is empty and keeps their timers. Then :meth:`on_element` is called for the element that caused the
        merge. A trigger without this method cannot be used with session windows.
        """

    def clear(self, window: TimeSpan, ctx: TriggerContext) -> None:
        """Called when the window is dropped."""

    def __repr__(self) -> str:
        # Without anything that depends on the process: the text is part of the fingerprint of the state.
        return f"{type(self).__name__}(...)" + (f".{self.mode.value}()" if self.mode is not None else "")

    def discarding(self) -> Self:
        """Return the trigger in discarding mode: each firing drops the elements of the window. Only the mode of the outermost
        trigger has an effect.

        >>> CountTrigger.at_least(3).discarding()
        CountTrigger.at_least(3).discarding()
        >>> EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(3).discarding()).purges
        False
        """
        return self._in_mode(Mode.DISCARDING)

    def accumulating(self) -> Self:
        """Return the trigger in accumulating mode, the default: the elements of the window are kept after a firing.

        >>> CountTrigger.at_least(3).accumulating()
        CountTrigger.at_least(3).accumulating()
        """
        return self._in_mode(Mode.ACCUMULATING)

    def until(self, end: Trigger) -> UntilTrigger:
        """Return a trigger that is ready when this one is or when *end* is. When the window has fired because of *end*, it is
        over, and never ready again. Other firings do not reset *end*: it counts, and waits, from the beginning.

        :raises StreamDefinitionError: *end* is not a trigger

        A result for every hundred elements, until an hour after the first one:

        >>> CountTrigger.at_least(100).until(EventTimeTrigger.after_first_element(timedelta(hours=1)))
        CountTrigger.at_least(100).until(EventTimeTrigger.after_first_element(timedelta(hours=1)))

        Source: Beam's ``OrFinally``.
        """
        return UntilTrigger(self, end)

    def once(self) -> OnceTrigger:
        """Return a trigger that is over, and never ready again, when the window has fired because of it.

        >>> EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(1).once())
        EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(1).once())

        Source: Beam, whose triggers fire once unless they are in a ``Repeatedly``.
        """
        return OnceTrigger(self)

    def _in_mode(self, mode: Mode) -> Self:
        changed = copy.copy(self)
        object.__setattr__(changed, "mode", mode)
        return changed

    @property
    def purges(self) -> bool:
        """Whether a firing drops the elements."""
        return self.mode is Mode.DISCARDING

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers that this one consists of."""
        return ()

    @property
    def is_user_defined(self) -> bool:
        """Whether it is a user-defined trigger."""
        return True

    @property
    def can_merge(self) -> bool:
        """Whether it supports merging windows; this trigger alone, without its parts."""
        return type(self).on_merge is not Trigger.on_merge


def walk(trigger: Trigger) -> Iterator[Trigger]:
    """Yield a trigger and all its parts, each trigger before its parts."""
    yield trigger
    for part in trigger.parts:
        yield from walk(part)


@dataclass(frozen=True, repr=False)
class BuiltIn(Trigger, metaclass=PythonNames):
    """Base of the built-in triggers. ``repr`` is the code that creates the trigger."""

    renderer: ClassVar[Callable[[Trigger], str]]
    """Draws the trigger; set by the package, because the drawing module imports this one."""

    mode: Mode | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        expect(
            StreamDefinitionError,
            self.mode,
            Mode | None,
            "the mode of a trigger must be a Mode or None",
            ".discarding()",
        )
        self._check()
        if _depth(self) > MAX_DEPTH:
            raise StreamDefinitionError(
                f"triggers are nested too deeply (limit {MAX_DEPTH:,} levels)",
                hint="All(a, b, c) takes any number of triggers: All(a, All(b, c)) means the same",
            )

    def _check(self) -> None:
        """Refuse invalid triggers."""

    def __repr__(self) -> str:
        return self._code() + (f".{self.mode.value}()" if self.mode is not None else "")

    def _code(self) -> str:
        raise NotImplementedError

    def to_svg(self) -> str:
        """Draw the trigger with the elements of two windows of ten seconds, with an allowed lateness of five if it has a late
        trigger. Use :func:`asterism.windows.drawing.draw` for other drawings. Notebooks draw a trigger that is the last line of
        a cell.

        :raises ExpressionError: the trigger reads other columns than those of the elements in the drawing: k, t and v
        """
        return BuiltIn.renderer(self)

    def _repr_svg_(self) -> str | None:
        try:
            return self.to_svg()
        except AsterismError:  # notebooks then show the code
            return None

    @property
    def parts(self) -> tuple[Trigger, ...]:
        values = (getattr(self, part.name) for part in fields(self))
        return tuple(value for value in values if isinstance(value, Trigger))

    @property
    def is_user_defined(self) -> bool:
        return False

    @property
    def can_merge(self) -> bool:
        return True


# ---------------------------------------------------------------------- counting, combining


@dataclass(frozen=True, repr=False)
class CountTrigger(BuiltIn):
    """Ready when enough elements have arrived after the last firing. Created by :meth:`at_least`.

    Source: FLIP-9; Flink's ``CountTrigger``.
    """

    _IN_FLINK: ClassVar = {"of": "CountTrigger.at_least(5)"}

    count: int

    @classmethod
    def at_least(cls, count: int) -> CountTrigger:
        """
        :param count: the number of new elements, at least 1
        :raises StreamDefinitionError: *count* is not such a number

        >>> CountTrigger.at_least(10)
        CountTrigger.at_least(10)
        """
        return cls(count)

    def _check(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise StreamDefinitionError(
                f"CountTrigger.at_least takes a number of elements, 1 or more, not {self.count!r}",
                "A window without elements does not exist, so it cannot fire.",
                "CountTrigger.at_least(1) fires with every element",
            )
        if self.count >= 2**62:
            raise StreamDefinitionError(
                f"CountTrigger.at_least: a window never has {self.count} elements", hint="NeverTrigger()"
            )

    def _code(self) -> str:
        return f"CountTrigger.at_least({self.count})"


@dataclass(frozen=True, repr=False, init=False)
class _Combination(BuiltIn):
    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        name = type(self).__name__
        if not triggers:
            raise StreamDefinitionError(
                f"{name}() needs at least one trigger",
                hint=f"{name}(CountTrigger.at_least(5), EventTimeTrigger.after_end_of_window())",
            )
        for trigger in triggers:
            check_trigger(trigger, f"{name}(...)")
        object.__setattr__(self, "triggers", triggers)
        object.__setattr__(self, "mode", None)
        self.__post_init__()

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.triggers

    def _code(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.triggers))})"


class All(_Combination):
    """Ready when all its parts are. A part that was ready remains ready until the window fires.

    :param triggers: one or more
    :raises StreamDefinitionError: no trigger, or an argument that is not a trigger

    This policy never emits a result of fewer than five elements, which might identify people:

    >>> All(EventTimeTrigger.after_end_of_window(), CountTrigger.at_least(5))
    All(EventTimeTrigger.after_end_of_window(), CountTrigger.at_least(5))

    Source: FLIP-9.
    """


class Any(_Combination):
    """Ready when one of its parts is. When the window fires, all parts wait again.

    :param triggers: one or more
    :raises StreamDefinitionError: no trigger, or an argument that is not a trigger

    >>> Any(CountTrigger.at_least(100), ProcessingTimeTrigger.after_first_element(timedelta(seconds=1)))
    Any(CountTrigger.at_least(100), ProcessingTimeTrigger.after_first_element(timedelta(seconds=1)))

    Source: FLIP-9.
    """


class Sequence(_Combination):
    """Its parts take turns: the first is used until the window has fired because of it, then the second, and so on. The last
    one is used for all further firings. A part with ``until`` has its turn until that has fired.

    A part gets only the elements of its turn. At the beginning of its turn, a part that waits for the end of the window, or for
    multiples of an interval, begins to wait without a further element.

    :param triggers: one or more
    :raises StreamDefinitionError: no trigger, or an argument that is not a trigger

    A first result with the first element, then one every minute:

    >>> Sequence(CountTrigger.at_least(1), ContinuousProcessingTimeTrigger.of(timedelta(minutes=1)))
    Sequence(CountTrigger.at_least(1), ContinuousProcessingTimeTrigger.of(timedelta(minutes=1)))

    Source: Beam's ``AfterEach``.
    """


@dataclass(frozen=True, repr=False)
class OnceTrigger(BuiltIn):
    """A trigger that is ready for a single firing. Created by :meth:`Trigger.once`.

    If sessions merge, and it is over in one of them, it is over in the merged one.
    """

    trigger: Trigger

    def _check(self) -> None:
        check_trigger(self.trigger, "once")

    def _code(self) -> str:
        return f"{self.trigger!r}.once()"


@dataclass(frozen=True, repr=False)
class UntilTrigger(BuiltIn):
    """A trigger that is used until another one has fired. Created by :meth:`Trigger.until`.

    If sessions merge, and it is over in one of them, it is over in the merged one.
    """

    trigger: Trigger
    end: Trigger

    def _check(self) -> None:
        check_trigger(self.trigger, "until")
        check_trigger(self.end, "until")

    def _code(self) -> str:
        return f"{self.trigger!r}.until({self.end!r})"


# ---------------------------------------------------------------------- time


@dataclass(frozen=True, repr=False)
class _TimeTrigger(BuiltIn):
    delay: timedelta | None = None
    """after_first_element; None: after_end_of_window"""
    early: Trigger | None = None

    def _check(self) -> None:
        name = type(self).__name__
        if self.delay is not None:
            duration(self.delay, f"{name}.after_first_element", zero=True)
        for phase in ("early", "late"):
            trigger = getattr(self, phase, None)
            if trigger is not None:
                _check_phase(type(self)(self.delay), None, trigger, phase)

    def _code(self) -> str:
        name = type(self).__name__
        if self.delay is not None:
            return f"{name}.after_first_element({code(self.delay)})"
        return f"{name}.after_end_of_window()" + (
            f".with_early_trigger({self.early!r})" if self.early is not None else ""
        )


@dataclass(frozen=True, repr=False)
class EventTimeTrigger(_TimeTrigger):
    """Waits for the watermark. Created by :meth:`after_end_of_window` or :meth:`after_first_element`.

    Source: FLIP-9; Flink's ``EventTimeTrigger``.
    """

    _IN_FLINK: ClassVar = {"create": "EventTimeTrigger.after_end_of_window()"}

    late: Trigger | None = None

    @classmethod
    def after_end_of_window(cls) -> EventTimeTrigger:
        """Ready when the watermark passes the end of the window; after that, with every late element within the lateness.

        >>> EventTimeTrigger.after_end_of_window()
        EventTimeTrigger.after_end_of_window()
        """
        return cls()

    @classmethod
    def after_first_element(cls, delay: timedelta) -> EventTimeTrigger:
        """Ready when the watermark passes the time of the first element after the last firing, plus *delay*; immediately if it
        has already passed when the element arrives.

        :raises StreamDefinitionError: *delay* is negative, or not a timedelta

        >>> EventTimeTrigger.after_first_element(timedelta(hours=1))
        EventTimeTrigger.after_first_element(timedelta(hours=1))
        """
        return cls(duration(delay, "EventTimeTrigger.after_first_element", zero=True))

    def with_early_trigger(self, trigger: Trigger) -> EventTimeTrigger:
        """Also fire before the watermark passes the end of the window, when *trigger* is ready.

        In a stream, elements first wait for the watermark, so firings are early in event time only. To change this, use a
        *trigger* in processing time, or ``in_order=False`` of ``window``.

        :raises StreamDefinitionError: this is not ``after_end_of_window()``, or it has an early trigger

        >>> EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(100))
        EventTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(100))
        """
        _check_phase(self, self.early, trigger, "early")
        return replace(self, early=trigger)

    def with_late_trigger(self, trigger: Trigger) -> EventTimeTrigger:
        """After the watermark has passed the end, fire when *trigger* is ready, not with every late element. *trigger* gets only
        elements after the firing at the end. It needs an allowed lateness, because windows are otherwise dropped at their end.

        :raises StreamDefinitionError: this is not ``after_end_of_window()``, or it has a late trigger

        >>> EventTimeTrigger.after_end_of_window().with_late_trigger(CountTrigger.at_least(5))
        EventTimeTrigger.after_end_of_window().with_late_trigger(CountTrigger.at_least(5))
        """
        _check_phase(self, self.late, trigger, "late")
        return replace(self, late=trigger)

    def _code(self) -> str:
        late = f".with_late_trigger({self.late!r})" if self.late is not None else ""
        return super()._code() + late


@dataclass(frozen=True, repr=False)
class ProcessingTimeTrigger(_TimeTrigger):
    """Waits for processing time. Created by :meth:`after_end_of_window` or :meth:`after_first_element`.

    On Spark, processing time advances with micro-batches: the trigger is ready in the first micro-batch that starts after its
    time.

    Source: FLIP-9; Flink's ``ProcessingTimeTrigger``.
    """

    _IN_FLINK: ClassVar = {"create": "ProcessingTimeTrigger.after_end_of_window()"}

    @classmethod
    def after_end_of_window(cls) -> ProcessingTimeTrigger:
        """Ready when processing time passes the end of the window.

        >>> ProcessingTimeTrigger.after_end_of_window().discarding()
        ProcessingTimeTrigger.after_end_of_window().discarding()
        """
        return cls()

    @classmethod
    def after_first_element(cls, delay: timedelta) -> ProcessingTimeTrigger:
        """Ready *delay* after the arrival of the first element after the last firing, in processing time.

        :raises StreamDefinitionError: *delay* is negative, or not a timedelta

        >>> ProcessingTimeTrigger.after_first_element(timedelta(seconds=10))
        ProcessingTimeTrigger.after_first_element(timedelta(seconds=10))
        """
        return cls(duration(delay, "ProcessingTimeTrigger.after_first_element", zero=True))

    def with_early_trigger(self, trigger: Trigger) -> ProcessingTimeTrigger:
        """Also fire before processing time passes the end of the window, when *trigger* is ready.

        :raises StreamDefinitionError: this is not ``after_end_of_window()``, or it has an early trigger

        >>> ProcessingTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(100))
        ProcessingTimeTrigger.after_end_of_window().with_early_trigger(CountTrigger.at_least(100))
        """
        _check_phase(self, self.early, trigger, "early")
        return replace(self, early=trigger)

    def with_late_trigger(self, trigger: Trigger) -> NoReturn:
        """Not supported: no element is late in processing time.

        :raises StreamDefinitionError: always

        >>> ProcessingTimeTrigger.after_end_of_window().with_late_trigger(CountTrigger.at_least(5))
        Traceback (most recent call last):
        ...
        asterism.errors.StreamDefinitionError: [STREAM_DEFINITION] a trigger in processing time has no late trigger
          An element's processing time is the time at which it arrives, so no element is late.
          Hint: use EventTimeTrigger.after_end_of_window() with an event-time column
        """
        raise StreamDefinitionError(
            "a trigger in processing time has no late trigger",
            "An element's processing time is the time at which it arrives, so no element is late.",
            "use EventTimeTrigger.after_end_of_window() with an event-time column",
        )


@dataclass(frozen=True, repr=False)
class _ContinuousTrigger(BuiltIn):
    interval: timedelta

    def _check(self) -> None:
        duration(self.interval, f"{type(self).__name__}.of")

    def _code(self) -> str:
        return f"{type(self).__name__}.of({code(self.interval)})"


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Ready whenever the watermark passes a multiple of the interval, even without new elements; at the end of the window; and
    with every late element. Created by :meth:`of`.

    Source: Flink's ``ContinuousEventTimeTrigger``.
    """

    @classmethod
    def of(cls, interval: timedelta) -> ContinuousEventTimeTrigger:
        """
        :param interval: multiples are counted from 1970-01-01 UTC
        :raises StreamDefinitionError: it is not positive, or not a timedelta

        >>> EventTimeTrigger.after_end_of_window().with_early_trigger(ContinuousEventTimeTrigger.of(timedelta(hours=1)))
        EventTimeTrigger.after_end_of_window().with_early_trigger(ContinuousEventTimeTrigger.of(timedelta(hours=1)))
        """
        return cls(interval)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Ready whenever processing time passes a multiple of the interval, even without new elements. Created by :meth:`of`.

    If several multiples have passed since the last micro-batch, as after a pause, it fires only once.

    Source: Flink's ``ContinuousProcessingTimeTrigger``, which fires once for each of them.
    """

    @classmethod
    def of(cls, interval: timedelta) -> ContinuousProcessingTimeTrigger:
        """
        :param interval: multiples are counted from 1970-01-01 UTC
        :raises StreamDefinitionError: it is not positive, or not a timedelta

        >>> ContinuousProcessingTimeTrigger.of(timedelta(minutes=1))
        ContinuousProcessingTimeTrigger.of(timedelta(minutes=1))
        """
        return cls(interval)


# ---------------------------------------------------------------------- the others


Delta = str | Callable[[Mapping[str, Value], Mapping[str, Value]], float]
"""A numeric Spark SQL expression, or a function of two elements."""


@dataclass(frozen=True, repr=False)
class DeltaTrigger(BuiltIn):
    """Ready with an element whose distance from the element of the last firing exceeds *threshold*; initially, from the first
    element. Created by :meth:`of`. Not for session windows: merged windows have two such elements.

    Source: Flink's ``DeltaTrigger``.
    """

    threshold: float
    delta: Delta

    @classmethod
    def of(cls, threshold: float, delta: Delta) -> DeltaTrigger:
        """
        :param threshold: the distance that must be exceeded
        :param delta: a Spark SQL expression, such as a column: the distance of two elements is the absolute difference of its
            values; elements for which it is NULL are ignored. Or a Python function of the previous and the new element
            (mappings from column to value) that returns a number: it is called once per element.
        :raises StreamDefinitionError: *threshold* is not a number; *delta* is not a string or a function, or is annotated with
            a return type other than a number

        >>> DeltaTrigger.of(0.5, "price")
        DeltaTrigger.of(0.5, 'price')
        """
        return cls(threshold, delta)

    def _check(self) -> None:
        check_delta(self.threshold, self.delta, "DeltaTrigger.of")

    @property
    def can_merge(self) -> bool:
        return False

    @property
    def is_user_defined(self) -> bool:
        return not isinstance(self.delta, str)

    def _code(self) -> str:
        return f"DeltaTrigger.of({self.threshold!r}, {name_of(self.delta)})"


@dataclass(frozen=True, repr=False)
class PurgingTrigger(BuiltIn):
    """Fires whenever *trigger* fires, and then drops the elements of the window. Inside another trigger, it does not drop
    elements, because only the mode of the outermost trigger applies. Created by :meth:`of`.

    Equivalent to ``trigger.discarding()``.

    Source: Flink's ``PurgingTrigger``.
    """

    trigger: Trigger

    @classmethod
    def of(cls, trigger: Trigger) -> PurgingTrigger:
        """
        :raises StreamDefinitionError: *trigger* is not a trigger

        >>> PurgingTrigger.of(CountTrigger.at_least(3))
        PurgingTrigger.of(CountTrigger.at_least(3))
        """
        return cls(trigger)

    def _check(self) -> None:
        check_trigger(self.trigger, "PurgingTrigger.of")

    def accumulating(self) -> NoReturn:
        raise StreamDefinitionError(
            "a PurgingTrigger cannot be accumulating",
            "It drops the elements with each firing.",
            "remove PurgingTrigger.of(...)",
        )

    @property
    def purges(self) -> bool:
        return True

    def _code(self) -> str:
        return f"PurgingTrigger.of({self.trigger!r})"


@dataclass(frozen=True, repr=False)
class NeverTrigger(BuiltIn):
    """Never ready. ``never`` is an instance.

    >>> EventTimeTrigger.after_end_of_window().with_late_trigger(never)
    EventTimeTrigger.after_end_of_window().with_late_trigger(NeverTrigger())

    Source: Flink's ``GlobalWindows.NeverTrigger``.
    """

    _IN_FLINK: ClassVar = {"create": "NeverTrigger()"}

    def _code(self) -> str:
        return "NeverTrigger()"


# ---------------------------------------------------------------------- checks, texts


def check_event_time(trigger: Trigger) -> None:
    """Refuse a trigger that waits for the watermark, for windows without one."""
    for part in walk(trigger):
        if isinstance(part, EventTimeTrigger | ContinuousEventTimeTrigger):
            raise StreamDefinitionError(
                f"{type(part).__name__} needs an event time",
                f"In: {trigger!r}\nWindows in processing time have no watermark, so it would never fire.",
                "set the event-time column of the stream, or use ProcessingTimeTrigger, ContinuousProcessingTimeTrigger",
            )


def check_lateness(trigger: Trigger) -> None:
    """Refuse a late trigger, for windows that are dropped at their end."""
    if any(isinstance(part, EventTimeTrigger) and part.late is not None for part in walk(trigger)):
        raise StreamDefinitionError(
            "a late trigger needs an allowed lateness",
            f"In: {trigger!r}\nWithout it a window is dropped at its end, so the late trigger would never fire.",
            "allowed_lateness=timedelta(hours=1), or remove with_late_trigger(...)",
        )


def check_merging(trigger: Trigger) -> None:
    """Refuse a trigger that does not support merging windows."""
    for part in walk(trigger):
        if not part.can_merge:
            is_user_defined = not isinstance(part, BuiltIn)
            raise StreamDefinitionError(
                f"{type(part).__name__} cannot be used with session windows",
                f"In: {trigger!r}\nSession windows merge, and this trigger cannot merge its state.",
                "define its method on_merge"
                if is_user_defined
                else "use tumbling, sliding or global windows, or another trigger",
            )


def check_trigger(trigger: object, where: str = "trigger") -> Trigger:
    """Return *trigger* if it is a complete trigger; otherwise, raise StreamDefinitionError."""
    if not isinstance(trigger, Trigger):
        made = isinstance(trigger, type) and issubclass(trigger, Trigger)
        raise StreamDefinitionError(
            f"{where}: not a trigger: {trigger!r}",
            hint=f"a {trigger.__name__}, not the class"  # type: ignore[attr-defined]
            if made
            else "CountTrigger.at_least(10), EventTimeTrigger.after_end_of_window(), or an instance of a subclass of Trigger",
        )
    if not isinstance(trigger, BuiltIn) and type(trigger).on_element is Trigger.on_element:
        raise StreamDefinitionError(
            f"{where}: {type(trigger).__name__} has no method on_element",
            hint="def on_element(self, element, window, ctx): return TriggerResult.FIRE",
        )
    return trigger


def _check_phase(whole: _TimeTrigger, present: Trigger | None, new: object, phase: str) -> None:
    """Check that *whole* may get an early or late trigger."""
    if present is not None:
        raise StreamDefinitionError(
            f"{'an early' if phase == 'early' else 'a late'} trigger is already set",
            f"In: {whole!r}",
            f"combine them: .with_{phase}_trigger(Any(...)), or All(...)",
        )
    if whole.delay is not None:
        raise StreamDefinitionError(
            f"after_first_element has no {phase} trigger",
            f"In: {whole!r}\nEarly and late refer to the end of the window, and this trigger does not wait for it.",
            f"{type(whole).__name__}.after_end_of_window().with_{phase}_trigger(...), or Any(...) for either",
        )
    check_trigger(new, f"with_{phase}_trigger")


def _depth(trigger: Trigger) -> int:
    """The nesting depth of a trigger. Its parts were checked when they were created, so this terminates."""
    level, depth = [trigger], 0
    while level and depth <= MAX_DEPTH:
        level, depth = [part for each in level for part in each.parts], depth + 1
    return depth


def _moment(time: object) -> datetime:
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise StreamDefinitionError(
            f"a timer needs a datetime with a time zone, not {time!r}",
            hint="window.end, the end of the window, or ctx.processing_time + timedelta(seconds=10)",
        )
    return time


never = NeverTrigger()
"""For windows that only collect, or late elements that must not fire."""
