"""State whose key gets another name or a wider type: the rows are those of a replay with the new key."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from asterism import (
    CEP,
    Input,
    KeyedStream,
    Output,
    Pattern,
    StreamOperator,
    TumblingWindows,
    ValueState,
    connect,
    interval_join,
    match_recognize,
    window,
)
from asterism.errors import AsterismError, StateError
from asterism.live.snapshots import SnapshotFolder, SnapshotRecord, read_snapshot
from asterism.operators.state.page_numbers import HEADER
from asterism.operators.state.state_store import MemoryStore
from asterism.savepoints.changes.keys import KeyChange
from asterism.spark.savepoints.changing import change_of
from tests.kit import FACTOR
from tests.savepoints.regrouping import regrouped

SECOND, BEGIN = timedelta(seconds=1), datetime(2026, 1, 1, tzinfo=UTC)
Events = list[dict[str, Any]]


def schema_of(key: str, kind: pa.DataType) -> pa.Schema:
    fields = [pa.field(key, kind), ("ts", pa.timestamp("us", "UTC")), ("kind", pa.string()), ("v", pa.int64())]
    return pa.schema(fields)


def keyed(key: str, kind: pa.DataType) -> Any:
    return KeyedStream(schema_of(key, kind), key=key, time="ts", max_out_of_orderness=3 * SECOND)


def totals(key: str, kind: pa.DataType) -> Any:
    class Totals(StreamOperator):
        events = Input(pa.schema([(key, kind), ("v", pa.int64())]))
        total = ValueState("BIGINT")
        out = Output("who BIGINT, total BIGINT")

        @events.process_element
        def count(self, event: Any, ctx: Any) -> None:
            self.total.update((self.total.value() or 0) + event.v)
            self.out.collect(who=ctx.key, total=self.total.value())

    return connect(Totals(), events=keyed(key, kind)).open


def of_pattern(key: str, kind: pa.DataType) -> Any:
    pattern = Pattern.begin("a").where(f"kind = 'a' AND {key} >= 0").followed_by("b").where("kind = 'b' AND v > a.v")
    return CEP.pattern(keyed(key, kind), pattern.within(20 * SECOND)).open


def of_clause(key: str, kind: pa.DataType) -> Any:
    text = (
        f"PARTITION BY {key} ORDER BY ts MEASURES FIRST(v) AS f, COUNT(*) AS n ALL ROWS PER MATCH PATTERN (A B+ C) "
        f"WITHIN INTERVAL '20' SECOND DEFINE A AS kind = 'a' AND {key} >= 0, B AS v > A.v, C AS kind = 'b'"
    )
    return match_recognize(schema_of(key, kind), text, max_out_of_orderness=3 * SECOND).open


def of_windows(key: str, kind: pa.DataType) -> Any:
    stream = window(keyed(key, kind), TumblingWindows.of(7 * SECOND))
    return lambda folder, **options: stream.open(folder, aggregate=["SUM(v) AS v"], **options)


def of_join(key: str, kind: pa.DataType) -> Any:
    return interval_join(keyed(key, kind), keyed(key, kind), (timedelta(0), 9 * SECOND), prefix="r_").open


OPENED: dict[str, Callable[[str, pa.DataType], Any]] = {
    "pattern": of_pattern, "clause": of_clause, "windows": of_windows, "join": of_join, "operator": totals,
}  # fmt: skip


def with_key(events: Events, key: str) -> Events:
    return [
        {key: event["user"], **{name: value for name, value in event.items() if name != "user"}} for event in events
    ]


def play(engine: Any, events: Events, key: str) -> list[str]:
    """The rows of all calls, without what depends on the name of the key."""
    rows: list[str] = []
    inputs = engine._inputs
    for event in with_key(events, key):
        for name in inputs:
            for table in engine.process(event, input=name if len(inputs) > 1 else None).values():
                rows += as_texts(table, key)
    return rows


def as_texts(table: pa.Table, key: str) -> list[str]:
    return [str(row).replace(f"{key}'", "key'") for row in table.to_pylist()]


def changed_folder(tmp_path: Path, engine: Any, renamed: dict[str, str] | None) -> tuple[Path, Any]:
    """A folder with the state in another one, for the operator of an engine; and the change."""
    pages, changes = dict(read_snapshot(tmp_path / "old")[1]), list[Any]()
    manifest: Any = SimpleNamespace(watermark_of=lambda summary: summary.watermark, written_at=0)

    def change(definition: Any, summary: Any) -> Any:
        changes.append(change_of(manifest, summary, engine._operator, renamed or {}, ()))
        return changes[-1]

    groups = regrouped([MemoryStore(pages.pop(HEADER, None), pages)], 3)
    (store,) = regrouped(groups, 1, change)
    folder = SnapshotFolder(tmp_path / "new")
    folder.write({**store.pages, HEADER: store.header}, SnapshotRecord(zone="UTC"), lambda: None, pytest.fail)
    folder.close()
    return tmp_path / "new", changes[0]


@pytest.mark.parametrize("renamed", [False, True], ids=["wider", "renamed"])
@pytest.mark.parametrize("kind", OPENED)
def test_rows_are_those_of_a_replay(kind: str, renamed: bool, tmp_path: Path) -> None:
    for seed in range(FACTOR):
        rng = random.Random(f"{kind} {seed}")
        folder = tmp_path / str(seed)
        folder.mkdir()
        events = [
            {
                "user": rng.randrange(3),
                "ts": BEGIN + (n - rng.randrange(3)) * SECOND,
                "kind": rng.choice("aab"),
                "v": rng.randrange(9),
            }
            for n in range(40)
        ]
        stop, key = rng.randint(10, 30), "customer" if renamed else "user"
        before, now = OPENED[kind]("user", pa.int32()), OPENED[kind](key, pa.int64())
        with before(folder / "old") as engine:
            rows = play(engine, events[:stop], "user")
        with now(None) as other:
            new, change = changed_folder(folder, other, {"user": key} if renamed else None)
        assert change.notes[0].startswith("the key (user int32) is now (")
        with now(new) as engine:
            rows += play(engine, events[stop:], key)
            rows += [text for table in engine.finish().values() for text in as_texts(table, key)]
        with now(None) as engine:
            whole = play(engine, events, key)
            whole += [text for table in engine.finish().values() for text in as_texts(table, key)]
        assert whole
        assert sorted(rows) == sorted(whole), seed


@pytest.mark.parametrize(
    ("key", "kind", "renamed", "text"),
    [
        ("customer", pa.int32(), {}, "whether customer has the values of user is not known"),
        ("user", pa.int16(), {}, "user was int32 and is int16"),
        ("user", pa.string(), {}, "user was int32 and is string"),
        ("user", pa.decimal128(20, 2), {}, "user was int32 and is decimal128(20, 2)"),
        ("customer", pa.string(), {"user": "customer"}, "user was int32 and is string"),
    ],
)
def test_what_a_key_cannot_become(key: str, kind: pa.DataType, renamed: dict[str, str], text: str) -> None:
    with of_windows("user", pa.int32())(None) as old, of_windows(key, kind)(None) as new:
        definitions = old._operator.definition, new._operator.definition
    with pytest.raises(StateError, match="cannot be derived") as raised:
        KeyChange.of(*definitions, renamed)
    assert text in str(raised.value).replace("Whether", "whether").replace("User", "user")


def test_more_keys_are_refused() -> None:
    schema = schema_of("user", pa.int32())
    two: Any = KeyedStream(schema, key=["user", "v"], time="ts")
    stream: Any = window(two, TumblingWindows.of(7 * SECOND))
    with of_windows("user", pa.int32())(None) as old, stream.open(aggregate=["COUNT(*) AS n"]) as new:
        with pytest.raises(AsterismError, match="2 columns in place of 1"):
            KeyChange.of(old._operator.definition, new._operator.definition, {})
        assert KeyChange.of(old._operator.definition, old._operator.definition, {}) is None


def test_a_pattern_renames_its_key_and_a_stage() -> None:
    with of_pattern("user", pa.int32())(None) as old, of_pattern("customer", pa.int32())(None) as new:
        definitions = old._operator.definition, new._operator.definition
    change = KeyChange.of(*definitions, {"user": "customer", "a": "first"})
    assert change is not None
    assert change.renamed == {"a": "first"}
    assert change.note == "the key (user int32) is now (customer int32)"
