"""Matches that repeat an earlier one of their rule and key, and are not emitted.

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
from asterism.columns.time import END_OF_TIME

_HEAD = struct.Struct("<qI")
"""The deadline, and the length of the names."""
_SCHEMA = pa.schema([("rule", pa.int32()), ("key", pa.string()), ("last", pa.int64()), ("suppressed", pa.int64())])
Name = tuple[str, int, int]
"""The name of an entry: id, version, and the set that added it."""


class _Last(NamedTuple):
    """The time of the last emitted match of a key, and the number of matches that were suppressed since."""

    time: int
    suppressed: int


class Decided(NamedTuple):
    """For each match whether it is emitted, and how many were suppressed before it."""

    emitted: Mask
    suppressed: Ints


class Suppressions:
    """The suppressions of a key group, by rule and key.

    :param value: the result of :meth:`to_bytes`; None: there are none. It is read only if it is needed.
    """

    def __init__(self, value: bytes | None = None) -> None:
        self._value = value
        self._deadline = END_OF_TIME if value is None else _HEAD.unpack_from(value)[0]
        self._changes: dict[Name, dict[str, _Last]] = defaultdict(dict)

    @property
    def is_empty(self) -> bool:
        return self._value is None and not any(self._changes.values())

    def attempt(self) -> Attempt:
        return Attempt(self)

    def take(self, attempt: Attempt) -> None:
        """Use the decisions of *attempt*, which is for other rules than those before it."""
        self._changes.update(attempt.new)

    def after(
        self, spans: Mapping[Name, int], horizon: int, undecided: Callable[[Name], Collection[str]], *, changed: bool
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
        remaining: list[tuple[Name, dict[str, _Last]]] = []
        latest = horizon
        for name, span in spans.items():
            keys = self._of(name)
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

    def largest(self, names: Iterable[Name], first: Collection[Name] = ()) -> Name:
        """The rule with the most keys, or the one of *first* with the most, if one of them has any."""
        return max(names, key=lambda name: (name in first and bool(self._of(name)), len(self._of(name))))

    def _of(self, name: Name) -> dict[str, _Last]:
        return {**self.known.get(name, {}), **self._changes.get(name, {})}

    @cached_property
    def known(self) -> Mapping[Name, Mapping[str, _Last]]:
        """The suppressions at the beginning of the call."""
        if self._value is None:
            return {}
        _, length = _HEAD.unpack_from(self._value)
        begin = _HEAD.size + length
        names = [(id, version, since) for id, version, since in json.loads(self._value[_HEAD.size : begin])]
        known: list[dict[str, _Last]] = [{} for _ in names]
        table = pa.ipc.open_stream(pa.py_buffer(self._value)[begin:]).read_all()
        for rule, key, time, suppressed in zip(*(column.to_pylist() for column in table.columns), strict=True):
            known[rule][key] = _Last(time, suppressed)
        return dict(zip(names, known, strict=True))


class Attempt:
    """Decisions about the matches of a call, which may be repeated if a rule fails.

    :param before: the suppressions before the call
    """

    def __init__(self, before: Suppressions) -> None:
        self._before = before
        self.new: dict[Name, dict[str, _Last]] = defaultdict(dict)
        self._unfinished: dict[tuple[Name, str], tuple[tuple[int, ...], bool, int]] = {}
        """The last match of each key, whose rows may come in several parts, and what was decided."""

    def decide(
        self,
        name: Name,
        span: int,
        keys: Sequence[str],
        times: Sequence[int],
        matches: Sequence[tuple[int, ...]] | None = None,
    ) -> Decided:
        """Decide about the matches of a rule, in their order.

        :param span: in microseconds
        :param keys: the key texts of the matches
        :param times: their times
        :param matches: what identifies them, if a match can have several rows, which follow each other and are decided as one
        """
        known, new = self._before.known.get(name, {}), self.new[name]
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
        return Decided(emitted, suppressed)


def _written(remaining: Sequence[tuple[Name, Mapping[str, _Last]]], deadline: int) -> bytes:
    rows = [(number, key, *last) for number, (_, keys) in enumerate(remaining) for key, last in sorted(keys.items())]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        writer.write_table(pa.table(arrays, schema=_SCHEMA))
    names = json.dumps([name for name, _ in remaining], ensure_ascii=False).encode()
    return _HEAD.pack(deadline, len(names)) + names + bytes(sink.getvalue())


def _end(last: _Last, span: int) -> int:
    """The time from which a suppressed match no longer matters."""
    return last.time + (2 * span if last.suppressed else span)
