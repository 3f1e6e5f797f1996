"""Which matches of a call are emitted: those that repeat an earlier one of their rule and key may be suppressed.

The first match of a key is emitted. Further ones whose time is less than a span later are suppressed and counted, and the next
emitted match carries the number. A number is forgotten a second span later, so that the state does not grow with the keys that
never match again.

Decisions depend only on the sequence of the matches of a key, which does not depend on micro-batches: matches of a pattern
are in the order of their times, and those of a clause in the order of their first rows.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, Mask
from asterism.columns.keys import KEY
from asterism.columns.time import END_OF_TIME
from asterism.matching.matcher import MatchColumns, Step
from asterism.rules.binding.binding import BoundClauseProcessor
from asterism.rules.definition.processor import RuleName
from asterism.rules.matching.selections import ENTRY
from asterism.rules.sets.sets import Entry

_HEAD = struct.Struct("<qI")
"""The deadline, and the length of the names."""
_SCHEMA = pa.schema([("rule", pa.int32()), ("key", pa.string()), ("last", pa.int64()), ("suppressed", pa.int64())])


class _Last(NamedTuple):
    """The time of the last emitted match of a key, and the number of matches that were suppressed since."""

    time: int
    suppressed: int


class Suppressions:
    """The suppressions of a key group, by rule and key. *value* (None: there are none) is read only if it is needed."""

    def __init__(self, value: bytes | None = None) -> None:
        self._value = value
        self._deadline = END_OF_TIME if value is None else _HEAD.unpack_from(value)[0]
        self._changes: dict[RuleName, dict[str, _Last]] = defaultdict(dict)

    @property
    def is_empty(self) -> bool:
        return self._value is None and not any(self._changes.values())

    def take(self, emission: Emission) -> None:
        """Use the decisions of *emission*, which is for other rules than those before it."""
        for name, keys in emission.new.items():
            self._changes[name].update(keys)

    def adopt(self, new: RuleName, old: RuleName) -> None:
        """The new version of a rule continues with the suppressions of the former one."""
        if keys := self.of(old):
            self._changes[new].update(keys)

    def after(
        self,
        spans: Mapping[RuleName, int],
        horizon: int,
        undecided: Callable[[RuleName], Collection[str]],
        *,
        changed: bool,
    ) -> tuple[bytes | None, int]:
        """The state at the end of a call, and the time at which all of it can be forgotten: the end of time if there is none, or
        if it depends on the rows of clauses.

        :param spans: the rules that remain, in microseconds
        :param horizon: later matches have later times
        :param undecided: returns the keys of a rule whose later matches may have earlier times
        :param changed: whether rules have ended
        """
        if not changed and self._deadline > horizon and not any(self._changes.values()):
            return self._value, self._deadline
        remaining: list[tuple[RuleName, Mapping[str, _Last]]] = []
        latest = horizon
        for name, span in spans.items():
            keys = self.of(name)
            if any(_end(last, span) <= horizon for last in keys.values()):
                kept = undecided(name)
                keys = {key: last for key, last in keys.items() if _end(last, span) > horizon or key in kept}
            latest = max([latest, *(_end(last, span) for last in keys.values())])
            if keys:
                remaining.append((name, keys))
        if not remaining:
            return None, END_OF_TIME
        deadline = latest if horizon < latest < END_OF_TIME else END_OF_TIME
        return _written(remaining, deadline), deadline

    def largest(self, names: Iterable[RuleName], first: Collection[RuleName] = ()) -> RuleName:
        """The rule with the most keys, or the one of *first* with the most, if one of them has any."""
        return max(names, key=lambda name: (name in first and bool(self.of(name)), len(self.of(name))))

    def of(self, name: RuleName) -> Mapping[str, _Last]:
        if name not in self._changes:
            return self.known.get(name, {})
        return {**self.known.get(name, {}), **self._changes.get(name, {})}

    @cached_property
    def known(self) -> Mapping[RuleName, Mapping[str, _Last]]:
        if self._value is None:
            return {}
        _, names, table = suppressions_from(self._value)
        known: list[dict[str, _Last]] = [{} for _ in names]
        for rule, key, time, suppressed in zip(*(column.to_pylist() for column in table.columns), strict=True):
            known[rule][key] = _Last(time, suppressed)
        return dict(zip(names, known, strict=True))


class Emission:
    """Decides which matches of a call are emitted. If a rule fails, the call is repeated with another object.

    :param entries: the processors, by their numbers in the call
    :param before: the suppressions before the call
    :ivar suppressed: the number of rows that are not emitted, without those of shadows
    """

    def __init__(self, entries: Sequence[Entry], before: Suppressions) -> None:
        self._entries, self._before = entries, before
        self._suppressing = [number for number, entry in enumerate(entries) if entry.processor.suppress is not None]
        self.suppressed = 0
        self.new: dict[RuleName, dict[str, _Last]] = defaultdict(dict)
        self._unfinished: dict[tuple[RuleName, str], tuple[tuple[int, ...], bool, int]] = {}
        """The last match of each key, whose rows may come in several parts, and what was decided."""

    def matches_of(self, step: Step) -> tuple[MatchColumns, Ints]:
        """The matches that are emitted, and how many were suppressed before each. A suppressed match computes no measures."""
        matches = step.matches
        emitted, suppressed = np.ones(len(matches), np.bool_), np.zeros(len(matches), np.int64)
        entries = step.keys.column(ENTRY).to_numpy()[matches.key]
        for number in self._suppressing:
            of_entry = np.flatnonzero(entries == number)
            if of_entry.size:
                keys = step.keys.column(KEY).take(pa.array(matches.key[of_entry])).to_pylist()
                decided = self._decide(self._entries[number], keys, matches.emitted[of_entry].tolist())
                emitted[of_entry], suppressed[of_entry] = decided
        return (matches, suppressed) if emitted.all() else (some_of(matches, emitted), suppressed[emitted])

    def rows_of_clause(self, bound: BoundClauseProcessor, results: pa.Table) -> tuple[pa.Table, Ints]:
        """As :meth:`matches_of`, for the results of the only processor, which has a clause."""
        if not self._suppressing:
            return results, np.zeros(results.num_rows, np.int64)
        clause = bound.clause
        ends = [column.tolist() for column in clause.ends_of(results)]
        matches = None if clause.one_row else list(zip(*ends, strict=True))
        emitted, suppressed = self._decide(self._entries[0], clause.keys_of(results).to_pylist(), ends[2], matches)
        return results.filter(pa.array(emitted)), suppressed[emitted]

    def _decide(
        self,
        entry: Entry,
        keys: Sequence[str],
        times: Sequence[int],
        matches: Sequence[tuple[int, ...]] | None = None,
    ) -> tuple[Mask, Ints]:
        """:param matches: what identifies matches that can have several rows, which follow each other and are decided as one"""
        name, span = entry.name, entry.processor.suppress_micros
        assert span is not None
        known, new = self._before.of(name), self.new[name]
        emitted, suppressed = np.ones(len(keys), np.bool_), np.zeros(len(keys), np.int64)
        for number, (key, time) in enumerate(zip(keys, times, strict=True)):
            if matches is not None:
                before = self._unfinished.get((name, key))
                if before is not None and before[0] == matches[number]:
                    emitted[number], suppressed[number] = before[1:]
                    continue
            last = new.get(key) or known.get(key)
            if last is not None and time < last.time + span:
                new[key] = _Last(last.time, last.suppressed + 1)
                emitted[number] = False
            else:
                if last is not None and time < last.time + 2 * span:
                    suppressed[number] = last.suppressed
                new[key] = _Last(time, 0)
            if matches is not None:
                self._unfinished[name, key] = matches[number], bool(emitted[number]), int(suppressed[number])
        if not entry.processor.shadow:
            self.suppressed += int((~emitted).sum())
        return emitted, suppressed


def some_of(matches: MatchColumns, wanted: Mask) -> MatchColumns:
    counts = np.diff(matches.offsets)
    events = np.repeat(wanted, counts)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[wanted])])
    parts = (matches.events[events], matches.positions[events], matches.stages[events])
    numbers = None if matches.numbers is None else matches.numbers[wanted]
    return MatchColumns(matches.key[wanted], matches.emitted[wanted], offsets, *parts, numbers)


def _written(remaining: Sequence[tuple[RuleName, Mapping[str, _Last]]], deadline: int) -> bytes:
    rows = [(number, key, *last) for number, (_, keys) in enumerate(remaining) for key, last in sorted(keys.items())]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    return suppressions_to(deadline, [name for name, _ in remaining], pa.table(arrays, schema=_SCHEMA))


def suppressions_to(deadline: int, names: Sequence[RuleName], rows: pa.Table) -> bytes:
    """The state of a key group.

    :param rows: for each key the index of its rule in *names*, its text, the time of the last emitted match, and the number of
        matches that were suppressed since
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(rows.cast(_SCHEMA))
    written = json.dumps(names, ensure_ascii=False).encode()
    return _HEAD.pack(deadline, len(written)) + written + bytes(sink.getvalue())


def suppressions_from(value: bytes) -> tuple[int, list[RuleName], pa.Table]:
    """The arguments of :func:`suppressions_to`."""
    deadline, length = _HEAD.unpack_from(value)
    begin = _HEAD.size + length
    names = [(id, version, since) for id, version, since in json.loads(value[_HEAD.size : begin])]
    return deadline, names, pa.ipc.open_stream(pa.py_buffer(value)[begin:]).read_all()


def _end(last: _Last, span: int) -> int:
    """The time from which a suppressed match no longer matters."""
    return last.time + (2 * span if last.suppressed else span)
