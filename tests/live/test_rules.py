"""Rules in a live engine: the answers are those of tables, and rules change between two calls."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asterism import CEP, FilePatternProcessorDiscovererFactory, KeyedStream, Pattern, PatternProcessor
from asterism.discovery import status_of
from asterism.discovery.sources.sources import GivenPatternProcessorDiscovererFactory
from asterism.errors import PatternProcessorError, StateError, StreamDefinitionError
from asterism.live.engine import LiveEngine
from asterism.rules.binding.binding import BoundProcessor, ProcessorCompiler
from asterism.rules.sets.set_store import STORE
from tests.embedded.rule_cases import EVENTS, RULE_CASES, chain
from tests.kit import examples, until
from tests.live.driver import in_order, killed, play

TICK = timedelta(milliseconds=20)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", RULE_CASES)
def test_cases(name: str, tmp_path: Path) -> None:
    case = RULE_CASES[name]
    expected = case.rows(case.table)
    found = play(
        lambda folder: case.stream_of(case.table.schema).open(folder, outputs=[case.output], snapshot_every=None),
        {"events": case.table},
        tmp_path,
        seed=6,
    )[case.output]
    assert found.schema.equals(expected.schema)
    key = [name for name in found.column_names if name not in ("match_time",)]
    assert in_order(found.select(key)) == in_order(expected.select(key))


class RuleFile:
    """A file of rules, and the engine of a query with them."""

    def __init__(self, folder: Path) -> None:
        self.path, self.state = folder / "rules.json", folder / "state"

    def write(self, *rules: PatternProcessor) -> None:
        self.path.write_text(json.dumps([rule.to_dict() for rule in rules]), encoding="utf-8")

    def open(self, **options: Any) -> LiveEngine:
        factory = FilePatternProcessorDiscovererFactory(self.path, interval=TICK)
        stream: Any = KeyedStream(EVENTS.schema, key="user", time="ts")
        return CEP.pattern_processors(stream, factory).open(self.state, **options)


def event(second: float, kind: str, user: str = "ann") -> dict[str, Any]:
    return {"ts": NOON + timedelta(seconds=second), "user": user, "item": 1, "kind": kind, "price": None}


def ids(rows: Any, output: str = "matches") -> list[str]:
    return sorted(f"{row['processor_id']}@{row['processor_version']}" for row in rows[output].to_pylist())


def test_rules_change_between_two_calls_all_at_once(tmp_path: Path) -> None:
    files = RuleFile(tmp_path)
    files.write(PatternProcessor("x", 1, chain("a")), PatternProcessor("y", 1, chain("b")))
    engine = files.open(outputs=["matches", "shadow"])
    at = NOON + timedelta(seconds=2)
    assert ids(engine.process([event(1, "a"), event(2, "b")], watermark=at)) == ["x@1", "y@1"]
    files.write(
        PatternProcessor("x", 2, chain("b")), PatternProcessor("y", 2, chain("a")),
        PatternProcessor("x", 3, chain("a"), shadow=True),
    )  # fmt: skip
    until(lambda: engine.status().processors == {"x": 2, "y": 2})
    rows = engine.process([event(3, "a"), event(4, "b")], watermark=NOON + timedelta(seconds=4), position=4)
    assert (ids(rows), ids(rows, "shadow")) == (["x@2", "y@2"], ["x@3"])
    assert {(rule.id, rule.version): rule.state for rule in engine.status().rules}["x", 2] == "in force"
    engine.snapshot()
    counted = {(rule.id, rule.version): rule.matches for rule in status_of(str(files.state)).rules}
    assert counted["x", 2] == counted["y", 2] == 1
    killed(engine)
    files.write()  # the newest set of the snapshot stays until the file has rules again
    engine = files.open()
    assert engine.position == 4
    engine.close()
    assert status_of(str(files.state)).state == "off"


def test_partial_matches_survive_a_restart(tmp_path: Path) -> None:
    files = RuleFile(tmp_path)
    files.write(PatternProcessor("ab", 1, chain("a", "b")))
    with files.open() as engine:
        engine.process(event(1, "a"), watermark=NOON + timedelta(seconds=1))
    with files.open() as engine:
        assert ids(engine.process(event(2, "b"), watermark=NOON + timedelta(seconds=2))) == ["ab@1"]
        assert engine.progress["observedMetrics"]["asterism"] == {"matches": 1}


def test_a_new_version_adopts_partial_matches(tmp_path: Path) -> None:
    files = RuleFile(tmp_path)
    files.write(PatternProcessor("ab", 1, chain("a", "b")), PatternProcessor("other", 1, chain("a", "b")))
    with files.open() as engine:
        engine.process(event(1, "a"), watermark=NOON + timedelta(seconds=1))
        files.write(
            PatternProcessor("ab", 2, chain("a", "b", "c"), adopt=True), PatternProcessor("other", 2, chain("a", "b"))
        )
        until(lambda: engine.status().processors == {"ab": 2, "other": 2})
        events = [event(2, "b"), event(3, "c")]
        assert ids(engine.process(events, watermark=NOON + timedelta(seconds=3))) == ["ab@2"]


CLAUSE = (
    "PARTITION BY user MEASURES COUNT(*) AS n, LAST(kind) AS last AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{} C) "
    "WITHIN INTERVAL '60' SECOND DEFINE A AS kind = 'a', B AS kind = 'b', C AS kind = 'c'"
)


@pytest.mark.parametrize("seed", range(examples(2, usual=4)))
def test_a_new_version_adopts_the_search_of_a_clause(seed: int, tmp_path: Path) -> None:
    """With an equal clause, at a random place and after a kill: the rows are those of a rule that was never replaced."""
    rng = random.Random(seed)
    events = [event(second, rng.choice("abbc"), rng.choice(["ann", "bob"])) for second in range(40)]
    first = PatternProcessor("ab", 1, sql=CLAUSE.format("+"))
    second = PatternProcessor("ab", 2, sql=CLAUSE.format("{1,}"), adopt=1)

    def run(folder: Path, place: int) -> list[str]:
        folder.mkdir()
        files, rows = RuleFile(folder), []
        files.write(first)
        for part, versions in ((events[:place], {"ab": 1}), (events[place:], {"ab": 2} if place < 40 else {"ab": 1})):
            with files.open() as engine:
                until(lambda engine=engine, versions=versions: engine.status().processors == versions)  # type: ignore[misc]
                for each in part:
                    rows += engine.process(each, watermark=each["ts"])["matches"].to_pylist()
            if place < 40:
                files.write(second)
        return sorted(f"{row['key']} {row['start_time']} {row['end_time']} {row['result']}" for row in rows)

    whole = run(tmp_path / "whole", 40)
    assert whole
    assert run(tmp_path / "changed", rng.randint(5, 35)) == whole


def test_what_is_wrong(tmp_path: Path) -> None:
    files = RuleFile(tmp_path)
    with pytest.raises(PatternProcessorError, match="no pattern processors could be discovered"):
        files.open()
    files.write(
        PatternProcessor("x", 1, chain("a")), PatternProcessor("bad", 1, Pattern.begin("a").where("nothing > 1"))
    )
    engine = files.open()
    assert list(engine.status().refused) == ["bad"]
    engine.process(event(1, "a"))
    engine.close()
    with pytest.raises(StreamDefinitionError, match="the engine is closed"):
        engine.process(event(2, "a"))
    for path in (files.state / STORE / "sets").iterdir():
        path.unlink()
    (files.state / STORE / "retained.json").unlink()
    files.write(PatternProcessor("x", 1, chain("b")))
    with pytest.raises(StateError, match="set 1 of pattern processors is not the one that the snapshot has used"):
        files.open()
    stream: Any = KeyedStream(EVENTS.schema, key="user", time="ts")
    with CEP.pattern(stream, chain("a")).open() as plain, pytest.raises(StreamDefinitionError, match="no rules"):
        plain.status()


def test_counts_of_a_new_folder_begin_anew(tmp_path: Path) -> None:
    """Although the store of the rules has counts of another folder, whose snapshots had higher numbers."""
    rule = PatternProcessor("a", 1, Pattern.begin("x").where("kind = 'a'"))
    stream: Any = KeyedStream(pa.schema([("ts", pa.int64()), ("kind", pa.string())]), time="ts")
    factory = GivenPatternProcessorDiscovererFactory((rule,))

    times = iter(range(100))

    def matches(folder: str, snapshots: int) -> int | None:
        rules = CEP.pattern_processors(stream, factory, store=str(tmp_path / "rules"))
        with rules.open(tmp_path / folder, snapshot_every=None) as engine:
            for _ in range(snapshots):
                engine.process({"ts": (ts := next(times)), "kind": "a"}, watermark=ts)
                engine.snapshot()
            return engine.status().rules[0].matches

    assert [matches("one", 5), matches("two", 2), matches("two", 1), matches("one", 1)] == [5, 2, 3, 1]


def test_rules_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """When they are checked; the first call uses the results."""
    compiled: list[str] = []

    def compile_rule(compiler: ProcessorCompiler, processor: PatternProcessor) -> BoundProcessor:
        compiled.append(processor.id)
        return original(compiler, processor)

    original = ProcessorCompiler.compile
    monkeypatch.setattr(ProcessorCompiler, "compile", compile_rule)
    rules = tuple(PatternProcessor(f"over {n}", 1, Pattern.begin("a").where(f"n > {n}")) for n in range(3))
    events = pa.table({"n": [1, 2]})
    with CEP.pattern_processors(
        KeyedStream(events.schema), GivenPatternProcessorDiscovererFactory(rules)
    ).open() as engine:
        assert engine.process(events)["matches"].num_rows == 3
    assert sorted(compiled) == ["over 0", "over 1", "over 2"]
