"""A live engine becomes a savepoint and a live engine again: the rows are those of an engine that was never stopped."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from asterism import (
    CEP,
    BroadcastInput,
    BroadcastMapState,
    BroadcastStream,
    FilePatternProcessorDiscovererFactory,
    Input,
    KeyedStream,
    ListState,
    Output,
    Pattern,
    PatternProcessor,
    StreamOperator,
    connect,
    create_live_savepoint,
    restore_live_savepoint,
)
from asterism.cli.main import main
from asterism.errors import CheckpointInUseError, StateError
from asterism.operators.row_hashes import row_hashes
from asterism.savepoints.key_groups import KEY_HASH, THE_KEY
from asterism.savepoints.manifest import ROWS
from tests.savepoints.test_key_changes import BEGIN, OPENED, SECOND, keyed

CLAUSE = (
    "PARTITION BY user MEASURES COUNT(*) AS n PATTERN (A B+ C) WITHIN INTERVAL '20' SECOND "
    "DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'a'"
)
PAIR = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b' AND v > a.v").within(20 * SECOND)


class Limited(StreamOperator):
    """Keyed lists, broadcast state, and timers."""

    events = Input("user INT, ts TIMESTAMP, kind STRING, v BIGINT")
    limits = BroadcastInput("name STRING, v BIGINT")
    seen = ListState("BIGINT")
    limit = BroadcastMapState("STRING", "BIGINT")
    out = Output("who BIGINT, seen ARRAY<BIGINT>, most BIGINT")

    @limits.process_element
    def change(self, row: Any, ctx: Any) -> None:
        self.limit.put(row.name, row.v)

    @events.process_element
    def count(self, event: Any, ctx: Any) -> None:
        self.seen.add(event.v)
        if not event.v % 3:
            ctx.register_event_time_timer("due", event.ts + 4 * SECOND)
        self.out.collect(who=ctx.key, seen=list(self.seen.get()), most=self.limit.get(event.kind))

    def on_event_time_timer(self, timer: Any, ctx: Any) -> None:
        self.out.collect(who=ctx.key, seen=[-1], most=None)


def of_operator() -> Any:
    limits: Any = BroadcastStream(pa.schema([("name", pa.string()), ("v", pa.int64())]))
    return connect(Limited(), events=keyed("user", pa.int32()), limits=limits).open


def of_rules(tmp_path: Path) -> Any:
    path = tmp_path / "rules.json"
    rules = [
        PatternProcessor("pair", 1, PAIR, suppress=timedelta(seconds=5)),
        PatternProcessor("clause", 1, sql=CLAUSE),
        PatternProcessor("all", 1, Pattern.begin("x").where("v > 6"), key=("kind",)),
    ]
    path.write_text(json.dumps([rule.to_dict() for rule in rules]), encoding="utf-8")
    return CEP.pattern_processors(keyed("user", pa.int32()), FilePatternProcessorDiscovererFactory(path)).open


KINDS: dict[str, Callable[[Path], Any]] = {
    **{name: lambda path, name=name: OPENED[name]("user", pa.int32()) for name in OPENED if name != "operator"},  # type: ignore[misc]
    "operator": lambda path: of_operator(),
    "rules": of_rules,
}


def random_events(rng: random.Random, count: int = 40) -> list[dict[str, Any]]:
    return [
        {
            "user": rng.randrange(5),
            "ts": BEGIN + (n - rng.randrange(3)) * SECOND,
            "kind": rng.choice("aab"),
            "v": rng.randrange(9),
        }
        for n in range(count)
    ]


def play(engine: Any, events: list[dict[str, Any]], first: int = 0) -> list[str]:
    rows: list[str] = []
    for number, event in enumerate(events, start=first):
        for name in engine._inputs:
            batch = {"name": event["kind"], "v": event["v"]} if name == "limits" else event
            of_call = engine.process(batch, input=name, position=number)
            rows += [str(row) for table in of_call.values() for row in table.to_pylist()]
    return rows


def ended(engine: Any) -> list[str]:
    return [str(row) for table in engine.finish().values() for row in table.to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_becomes_another_one(kind: str, tmp_path: Path) -> None:
    """Twice: the second savepoint is that of an engine that was itself made from one."""
    rng = random.Random(kind)
    events, (first, second) = random_events(rng), sorted(rng.sample(range(5, 35), 2))
    opened, rows = KINDS[kind](tmp_path), list[str]()
    with opened(tmp_path / "0") as engine:
        rows += play(engine, events[:first])
    for number, (begin, end) in enumerate([(first, second), (second, len(events))]):
        savepoint, folder = tmp_path / f"savepoint-{number}", tmp_path / str(number + 1)
        positions = create_live_savepoint(tmp_path / str(number), savepoint)
        assert {*positions.values()} == {begin - 1}
        assert restore_live_savepoint(savepoint, folder) == positions
        with opened(folder) as engine:
            assert engine.position == (begin - 1 if len(positions) == 1 else positions)
            rows += play(engine, events[begin:end], begin)
            rows += ended(engine) if end == len(events) else []
    with opened(tmp_path / "whole") as engine:
        whole = play(engine, events) + ended(engine)
    assert whole
    assert sorted(rows) == sorted(whole)


def test_keys_have_the_hashes_of_spark(tmp_path: Path) -> None:
    """So a query on Spark divides them over any number of key groups."""
    with OPENED["pattern"]("user", pa.int32())(tmp_path / "live") as engine:
        play(engine, random_events(random.Random(1)))
    create_live_savepoint(tmp_path / "live", tmp_path / "savepoint")
    rows = ds.dataset(tmp_path / "savepoint" / ROWS).to_table()
    assert rows.num_rows
    users = pa.array([key["user"] for key in rows.column(THE_KEY).to_pylist()], pa.int32())
    assert rows.column(KEY_HASH).to_pylist() == row_hashes(pa.table({"user": users})).tolist()
    # SELECT xxhash64('a', 1)
    both = pa.table({"user": ["a"], "item": pa.array([1], pa.int32())})
    assert row_hashes(both).tolist() == [-4810547614043336770]


def test_what_is_refused(tmp_path: Path) -> None:
    opened = OPENED["pattern"]("user", pa.int32())
    live, savepoint = tmp_path / "live", tmp_path / "savepoint"
    with pytest.raises(StateError, match="is not that of a live engine"):
        create_live_savepoint(live, savepoint)
    with opened(live) as engine:
        play(engine, random_events(random.Random(1), 5))
        engine.snapshot()
        with pytest.raises(CheckpointInUseError):
            create_live_savepoint(live, savepoint)
    create_live_savepoint(live, savepoint)
    with pytest.raises(StateError, match="is not empty"):
        create_live_savepoint(live, savepoint)
    with pytest.raises(StateError, match="there is no savepoint"):
        restore_live_savepoint(tmp_path / "none", tmp_path / "new")
    with pytest.raises(StateError, match="has the state of a live engine"):
        restore_live_savepoint(savepoint, live)
    with opened(live) as engine:
        engine.finish()
    with pytest.raises(StateError, match="has ended"):
        create_live_savepoint(live, tmp_path / "another")
    restore_live_savepoint(savepoint, tmp_path / "of_pattern")
    with pytest.raises(StateError, match="belongs to a pattern"):
        OPENED["clause"]("user", pa.int32())(tmp_path / "of_pattern")


def test_commands(tmp_path: Path) -> None:
    with OPENED["pattern"]("user", pa.int32())(tmp_path / "live") as engine:
        play(engine, random_events(random.Random(1)))
    run = CliRunner().invoke
    arguments = ["savepoint", "create", str(tmp_path / "live"), str(tmp_path / "savepoint")]
    assert run(main, arguments, catch_exceptions=False).output == 'the state has everything up to {"events": 39}\n'
    shown = run(main, ["savepoint", "show", str(tmp_path / "savepoint")], catch_exceptions=False)
    assert "keys: 5 rows" in shown.output
    arguments = ["savepoint", "restore", "--live", str(tmp_path / "savepoint"), str(tmp_path / "new")]
    assert run(main, arguments, catch_exceptions=False).output == 'the state has everything up to {"events": 39}\n'
    refused = run(main, [*arguments[:4], str(tmp_path / "other"), "--tasks", "3"])
    assert refused.exit_code == 2
    assert "--live" in refused.output


def test_a_stream_with_bigint_times(tmp_path: Path) -> None:
    schema = pa.schema([("user", pa.string()), ("ts", pa.int64())])
    stream: Any = KeyedStream(schema, key="user", time="ts")
    pattern = Pattern.begin("a").followed_by("b").within(timedelta(seconds=9))
    with CEP.pattern(stream, pattern).open(tmp_path / "live") as engine:
        engine.process({"user": "ann", "ts": 1000}, position="one")
    create_live_savepoint(tmp_path / "live", tmp_path / "savepoint")
    assert restore_live_savepoint(tmp_path / "savepoint", tmp_path / "new") == {"events": "one"}
    with CEP.pattern(stream, pattern).open(tmp_path / "new") as engine:
        engine.process({"user": "ann", "ts": 2000})
        assert engine.finish()["matches"].num_rows == 1
