"""User-defined triggers and delta functions, called from Python between the steps of :mod:`asterism.windows.kernels`.

The state of such triggers for a window is stored as JSON: a list with an entry per trigger, ``{"state", "event", "clock"}``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from asterism.arguments import described
from asterism.columns.arrays import Ints, Mask
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, EPOCH, MICROSECOND
from asterism.errors import OperatorError, UserFunctionError
from asterism.windows.panes import distance
from asterism.windows.trigger_table import COLUMN, KIND, NO_MOMENT, PARENT, WORD, TriggerPart, TriggerTable
from asterism.windows.triggers import DeltaTrigger, TimeSpan, Trigger, TriggerContext, TriggerResult
from asterism.windows.user_functions import called

READY, STATE = 1, 2
_WITHOUT_RESULT = ("on_fired", "on_merge", "clear")
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND


@dataclass(slots=True)
class _TriggerState:
    """The state of one trigger for one window."""

    state: dict[str, Any] = field(default_factory=dict)
    event_timers: set[datetime] = field(default_factory=set)
    processing_timers: set[datetime] = field(default_factory=set)


class UserDefinedTriggers:
    """The triggers of a call. The kernel calls :meth:`element` and the other methods; *purges* is set by a result with PURGE."""

    def __init__(
        self, table: TriggerTable, panes: Any, texts: list[str | None], elements: list[dict[str, Any]], rules: Any
    ) -> None:
        self.purges = False
        self._table, self._panes, self._elements, self._rules = table, panes, elements, rules
        self._rows = [row for row in range(len(table.rows)) if table.rows[row, KIND] == TriggerPart.USER_DEFINED]
        self._alone = bool(self._rows) and table.rows[self._rows[0], PARENT] < 0
        self._trigger_states = [None if text is None else _read(text) for text in texts]

    # -- the kernel calls

    def element(self, pane: int, element: int, watermark: int, live: Mask) -> None:
        for row in self._rows:
            if not live[row]:
                continue
            trigger, trigger_state = self._of(pane, row)
            if isinstance(trigger, DeltaTrigger):
                self._delta(trigger, trigger_state, pane, row, self._elements[element])
                continue
            new = dict(self._elements[element])
            self._call("on_element", pane, row, watermark, new, self._span(pane))
            # A timer in the past is due now, not at the next call.
            self._fire_timers(pane, row, int(self._rules.processing_time), event=False)

    def on_event_time(self, pane: int, time: int, live: Mask) -> None:
        self._timers(pane, time, live, event=True)

    def on_processing_time(self, pane: int, time: int, live: Mask) -> None:
        self._timers(pane, time, live, event=False)

    def fired(self, pane: int, watermark: int, active: Mask) -> None:
        """The window has fired."""
        for row in self._rows:
            trigger = self._table.user_defined[int(self._table.rows[row, COLUMN])]
            if active[row] and type(trigger).on_fired is not Trigger.on_fired:
                self._call("on_fired", pane, row, watermark, self._span(pane))

    def merge(self, pane: int, others: Ints) -> None:
        for row in self._rows:
            trigger_state = self._of(pane, row)[1]
            merged = [self._of(int(other), row)[1] for other in others]
            states = [trigger_state.state, *(other.state for other in merged)]
            trigger_state.state = {}
            for other in merged:
                trigger_state.event_timers |= other.event_timers
                trigger_state.processing_timers |= other.processing_timers
            self._call("on_merge", pane, row, int(self._panes.watermark[pane]), self._span(pane), states)
        for other in others.tolist():
            self._trigger_states[other] = None

    def clear(self, pane: int) -> None:
        for row in self._rows:
            if not isinstance(self._of(pane, row)[0], DeltaTrigger):
                self._call("clear", pane, row, int(self._panes.watermark[pane]), self._span(pane))
        self._trigger_states[pane] = None

    def texts(self) -> list[str | None]:
        """The state of each pane as JSON."""
        return [None if trigger_state is None else _written(trigger_state) for trigger_state in self._trigger_states]

    # -- how

    def _of(self, pane: int, row: int) -> tuple[Trigger, _TriggerState]:
        number = int(self._table.rows[row, COLUMN])
        trigger_states = self._trigger_states[pane]
        if trigger_states is None:
            trigger_states = self._trigger_states[pane] = [_TriggerState() for _ in self._table.user_defined]
        at = self._table.rows[row, WORD]
        if not self._panes.words[pane, at] & STATE:  # it is new, or was reset
            trigger_states[number] = _TriggerState()
            self._panes.words[pane, at] |= STATE
        return self._table.user_defined[number], trigger_states[number]

    def _timers(self, pane: int, time: int, live: Mask, *, event: bool) -> None:
        for row in self._rows:
            if live[row]:
                self._fire_timers(pane, row, time, event=event)

    def _fire_timers(self, pane: int, row: int, time: int, *, event: bool) -> None:
        """Call a trigger for its timers that are due at *time*."""
        trigger_state = self._of(pane, row)[1]
        timers = trigger_state.event_timers if event else trigger_state.processing_timers
        name = "on_event_time" if event else "on_processing_time"
        for due in sorted(timer for timer in timers if (self._due(pane, timer) if event else _micros(timer)) <= time):
            if due not in timers:  # deleted by a previous call
                continue
            timers.discard(due)
            watermark = time if event else int(self._panes.watermark[pane])
            self._call(name, pane, row, watermark, due, self._span(pane))

    def _due(self, pane: int, timer: datetime) -> int:
        """The watermark at which an event-time timer is due. The end is not part of a window: a timer there waits for the last
        time of the window. A timer after the window is dropped waits for that time.
        """
        time, last = _micros(timer), self._last(pane)
        return last if last < time <= self._panes.end[pane] else min(time, last + int(self._rules.lateness))

    def _last(self, pane: int) -> int:
        end = int(self._panes.end[pane])
        return end if end == END_OF_TIME else end - int(self._rules.resolution)

    def _delta(
        self, trigger: DeltaTrigger, trigger_state: _TriggerState, pane: int, row: int, element: dict[str, Any]
    ) -> None:
        assert not isinstance(trigger.delta, str)
        former = trigger_state.state.get("last")
        if former is None:
            trigger_state.state["last"] = element
        elif distance(trigger.delta, former, element) > trigger.threshold:
            trigger_state.state["last"] = element
            self._panes.words[pane, self._table.rows[row, WORD]] |= READY

    def _call(self, name: str, pane: int, row: int, watermark: int, *arguments: Any) -> None:
        """Call a method of a trigger."""
        trigger, trigger_state = self._of(pane, row)
        shown = None if watermark == BEFORE_TIME else _moment(watermark)
        ctx = TriggerContext(
            trigger_state.state,
            trigger_state.event_timers,
            trigger_state.processing_timers,
            shown,
            _moment(self._rules.processing_time),
        )
        where = f"{type(trigger).__name__}.{name}"
        result = called(where, getattr(trigger, name), *arguments, ctx)
        if name in _WITHOUT_RESULT:
            result = TriggerResult.CONTINUE
        if not isinstance(result, TriggerResult):
            raise UserFunctionError(
                f"{where} must return a TriggerResult, not {result!r}",
                hint="TriggerResult.FIRE, TriggerResult.CONTINUE",
            )
        trigger_state.state = ctx.state
        words, at = self._panes.words[pane], self._table.rows[row, WORD]
        if result.fires:
            words[at] |= READY
        if result.purges and self._alone:
            self.purges = True
        self._check_timers(trigger, where, trigger_state)
        due = min((self._due(pane, timer) for timer in trigger_state.event_timers), default=NO_MOMENT)
        # After the end of the window, a timer behind the watermark is due when it advances, and is late.
        words[at + 1] = max(due, min(watermark, END_OF_TIME - 1) + 1) if watermark >= self._last(pane) else due
        words[at + 2] = min(map(_micros, trigger_state.processing_timers), default=NO_MOMENT)

    def _check_timers(self, trigger: Trigger, where: str, trigger_state: _TriggerState) -> None:
        """Refuse timers without a method to call."""
        for timers, method, kind in (
            (trigger_state.event_timers, "on_event_time", "an event-time"),
            (trigger_state.processing_timers, "on_processing_time", "a processing-time"),
        ):
            if timers and getattr(type(trigger), method) is getattr(Trigger, method):
                raise UserFunctionError(
                    f"{where} registers {kind} timer, but {type(trigger).__name__} has no method {method}",
                    "Nothing would handle the timer.",
                    f"def {method}(self, time, window, ctx): return TriggerResult.FIRE",
                )
        if trigger_state.event_timers and not self._rules.event:
            raise UserFunctionError(
                f"{where} registers an event-time timer, but the windows are in processing time",
                "They have no watermark, so it would never fire.",
                "ctx.register_processing_time_timer(time), or set the event-time column of the stream",
            )

    def _span(self, pane: int) -> TimeSpan:
        if self._panes.end[pane] == END_OF_TIME:
            return TimeSpan(None, None)
        return span_of(int(self._panes.start[pane]), int(self._panes.end[pane]))


def _micros(timer: datetime) -> int:
    return (timer - EPOCH) // MICROSECOND


def span_of(start: int, end: int) -> TimeSpan:
    """A window with an end; in microseconds."""
    return TimeSpan(_moment(start), _moment(end))


def _moment(time: int) -> datetime:
    return EPOCH + max(_EARLIEST, min(time, _LATEST)) * MICROSECOND


# ---------------------------------------------------------------------- as text

_TAGS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "timedelta": (timedelta, lambda value: value // MICROSECOND, lambda value: timedelta(microseconds=value)),
    "decimal": (Decimal, str, Decimal),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
}
"""Types without a JSON form: {"$datetime": "2025-01-01T00:00:00+00:00"}."""


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    for tag, (kind, write, _) in _TAGS.items():
        if isinstance(value, kind):
            return {"$" + tag: write(value)}
    if isinstance(value, dict):
        if any(not isinstance(key, str) or key.startswith("$") for key in value):
            raise TypeError("the keys of a dict must be strings that do not begin with $")
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _rich(value: dict[str, Any]) -> Any:
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key.startswith("$") and key[1:] in _TAGS:
            return _TAGS[key[1:]][2](inner)
    return value


def _written(trigger_states: list[_TriggerState]) -> str:
    try:
        return json.dumps(
            [
                {
                    "state": _plain(m.state),
                    "event": _plain(sorted(m.event_timers)),
                    "clock": _plain(sorted(m.processing_timers)),
                }
                for m in trigger_states
            ]
        )
    except (TypeError, ValueError, RecursionError) as error:
        raise OperatorError(
            "the state of a trigger cannot be stored",
            described(error),
            "ctx.state may contain strings, numbers, Booleans, None, times, and lists and dicts of them",
        ) from None


def _read(text: str) -> list[_TriggerState]:
    return [
        _TriggerState(state["state"], set(state["event"]), set(state["clock"]))
        for state in json.loads(text, object_hook=_rich)
    ]
