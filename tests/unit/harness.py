"""Streams as text, and answers as text: ``found(pattern, "a1 b2 | c3")``.

A word is an event: its letter is its ``name``, the number its time in milliseconds, and its ``n``; ``a1=5`` has the
price 5, ``a1=null`` has none (which is the default), ``u.a1`` belongs to key ``u``, ``null.a1`` to the null key, ``a?``
has no time. ``/`` ends a call of the operator, ``|`` ends it with a watermark at the last time that came, ``|7`` with
one at 7. The end of time follows, unless the text ends in ``...``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

import pyarrow as pa

from asterism.cep import KEY_HASH, CepOperator
from asterism.compiler import Semantics
from asterism.operator import BEFORE_TIME, END_OF_TIME, Now
from asterism.outputs import OutputKind, OutputSpec
from asterism.pattern import Pattern
from asterism.state import MemoryStore

SCHEMA = pa.schema(
    [("key", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("n", pa.int64()), ("price", pa.float64())]
)
EVERYTHING = {kind.value: OutputSpec(kind) for kind in OutputKind}
WORD = re.compile(r"(?:(?P<key>\w+)\.)?(?P<name>[a-z])(?P<ts>-?\d+|\?)(?:=(?P<price>\S+))?")

Row = dict[str, Any]


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def stage(name: str) -> Pattern:
    """A pattern that begins with events of that name."""
    return Pattern.begin(name).where(f"name = '{name}'")


def chain(*names: str, by: str = "followed_by") -> Pattern:
    """One stage for each name, ``next``, ``followed_by`` or ``followed_by_any`` the one before."""
    pattern = stage(names[0])
    for name in names[1:]:
        pattern = getattr(pattern, by)(name).where(f"name = '{name}'")
    return pattern


def event(word: str) -> Row:
    match = WORD.fullmatch(word)
    assert match, f"not an event: {word}"
    ts = None if match["ts"] == "?" else int(match["ts"])
    key = {None: "k", "null": None}.get(match["key"], match["key"])
    price = None if match["price"] in (None, "null") else float(match["price"])
    return {"key": key, "ts": ts, "name": match["name"], "n": ts, "price": price}


def table(words: Sequence[str]) -> pa.Table:
    """Events, with a hash of their key for operators with several pages."""
    rows = [event(word) for word in words]
    hashes = [(sum((row["key"] or "").encode()) * 2654435761) << 32 & (2**63 - 1) for row in rows]
    return pa.Table.from_pylist(rows, SCHEMA).append_column(KEY_HASH, pa.array(hashes, pa.int64()))


class Run:
    """An operator with its state, and what came out so far."""

    def __init__(
        self,
        pattern: Pattern,
        outputs: Mapping[str, OutputSpec] = EVERYTHING,
        *,
        time: str | None = "ts",
        keys: Sequence[str] = ("key",),
        **options: Any,
    ) -> None:
        self.operator = CepOperator(pattern, SCHEMA, keys=keys, time=time, outputs=outputs, **options)
        self.store = MemoryStore()
        self.now = Now(BEFORE_TIME, 0)
        self.wake: int | None = None
        self.tables: dict[str, list[pa.Table]] = {name: [] for name in outputs}

    def feed(self, text: str) -> Self:
        """Events, cuts and watermarks; the end of time only if it is said (``|end``)."""
        words: list[str] = []
        last = BEFORE_TIME // 1000
        for word in text.replace("...", "").split():
            if word == "/":
                self.call(words)
            elif word.startswith("|"):
                self.call(words)
                time = last if word == "|" else None if word == "|end" else int(word[1:])
                self.at(END_OF_TIME if time is None else time * 1000)
            else:
                words.append(word)
                last = max(last, event(word)["ts"] or last)
                continue
            words = []
        if words:
            self.call(words)
        return self

    def call(self, words: Sequence[str]) -> None:
        prepared = [self.operator.prepare(table(words))] if words else []
        result = self.operator.process(self.store, prepared, self.now)
        self.wake = result.wake
        for name, rows in result.outputs.items():
            self.tables[name].append(rows)

    def at(self, watermark: int) -> None:
        self.now = Now(watermark, self.now.processing_time)
        self.call([])

    def clock(self, milliseconds: int) -> Self:
        """The processing time of the calls to come; the call that it makes itself is the timer's."""
        self.now = Now(self.now.watermark, milliseconds * 1000)
        self.call([])
        return self

    def output(self, name: str) -> pa.Table:
        return pa.concat_tables([self.operator.output_schemas[name].empty_table(), *self.tables[name]])

    def rows(self, name: str = "matches") -> list[Row]:
        rows: list[Row] = self.output(name).to_pylist()
        return rows

    def words(self, name: str) -> list[str]:
        """Each match as the words of its events, stage by stage, and ``@`` its time; each late event as its word."""
        return [_as_words(row) for row in self.rows(name)]

    @property
    def matches(self) -> list[str]:
        return self.words("matches")

    @property
    def timed_out(self) -> list[str]:
        return self.words("timed_out")

    @property
    def late(self) -> list[str]:
        return self.words("late")


def _as_words(row: Row) -> str:
    if "match_time" not in row and "timeout_time" not in row:
        return _word(row)
    events = [event for value in row.values() if isinstance(value, list) for event in value]
    decided = row["match_time"] if "match_time" in row else row["timeout_time"]
    return " ".join([*(_word(event) for event in events), f"@{decided}"])


def _word(event: Row) -> str:
    key = "" if event["key"] == "k" else f"{event['key']}."
    return f"{key}{event['name']}{'?' if event['ts'] is None else event['ts']}"


def run(pattern: Pattern, text: str, **options: Any) -> Run:
    """Feed a stream, to the end of time unless it ends in ``...``."""
    return Run(pattern, **options).feed(text if text.endswith("...") else text + " |end")


def found(pattern: Pattern, text: str, **options: Any) -> list[str]:
    """The matches, without their times, in order of time and then of text."""
    return [
        word.rpartition(" @")[0]
        for word in sorted(run(pattern, text, **options).matches, key=lambda w: (int(w.rpartition("@")[2]), w))
    ]


def in_flink(pattern: Pattern, text: str) -> Run:
    return run(pattern, text, semantics=Semantics.FLINK)
