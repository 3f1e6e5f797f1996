"""What needs no Spark works where its packages are not installed (docs/install.md): in one process that cannot import them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from datetime import timedelta
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from asterism.errors import OF_SPARK

ROOT = Path(__file__).parents[2]
SECOND = timedelta(seconds=1)


class Refusal:
    """A finder of modules for which the packages of Spark are not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in ("pyspark", "pandas", "google.protobuf", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def events() -> Any:
    import pyarrow as pa

    return pa.table({"user": ["a", "a", "b"], "ts": [1000, 2000, 3000], "kind": ["x", "y", "x"], "n": [1, 2, 3]})


def pattern() -> Any:
    from asterism import Pattern

    return Pattern.begin("x").where("kind = 'x'").followed_by("y").where("kind = 'y'").within(10 * SECOND)


def tables() -> None:
    import duckdb
    import polars as pl

    from asterism import CEP, KeyedStream, timeline

    frame = pl.from_arrow(events())
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet("events.parquet")
    frame.write_csv("events.csv")
    frame.write_ndjson("events.jsonl")
    relation = duckdb.sql("SELECT * FROM frame")
    for given in (events(), frame, frame.lazy(), relation, "events.parquet", "events.csv", Path("events.jsonl")):
        found = CEP.pattern(KeyedStream(given, key="user", time="ts"), pattern())
        assert found.select("y.n AS n").to_pylist() == [{"user": "a", "n": 2}]
    times = pl.DataFrame({"start_time": [1, 2], "end_time": [2, 3]}).cast(pl.Datetime("us"))
    assert "<svg" in timeline(times).to_svg()


def queries() -> None:
    import pyarrow as pa

    import asterism
    from asterism import (
        KeyedStream,
        Side,
        TumblingWindows,
        as_of_join,
        eql,
        interval_join,
        match_recognize,
        multi_broadcast_join,
        multi_join,
        window,
        window_join,
    )

    stream, other = (KeyedStream(events(), key="user", time="ts") for _ in range(2))
    clause = "PARTITION BY user ORDER BY ts MEASURES B.n AS n PATTERN (A B) DEFINE B AS n > A.n"
    assert match_recognize(events(), clause).matches.num_rows == 1
    assert asterism.sql(f"SELECT n FROM t MATCH_RECOGNIZE ({clause})", t=events()).to_pylist() == [{"n": 2}]
    windows = TumblingWindows.of(10 * SECOND)
    assert window(stream, windows).aggregate("sum(n) AS s").select(["s"]).num_rows == 2
    within = (timedelta(0), SECOND)
    for joined in (
        interval_join(stream, other, within, prefix="r_"),
        as_of_join(stream, other, prefix="r_"),
        window_join(stream, other, windows, prefix="r_"),
        multi_join({"l": stream, "r": other}, {("l", "r"): within}, prefix={"r": "r_"}),
    ):
        assert joined.results.num_rows > 2
    sides = pa.table({"user": ["a"], "name": ["Ann"]})
    assert multi_broadcast_join(events(), users=Side(sides, on="user")).num_rows == 2
    query = 'sequence by user [any where kind == "x"] [any where kind == "y"]'
    assert eql(query, events(), time="ts").num_rows == 2  # its events


def operators() -> None:
    from asterism import Input, KeyedStream, Output, StreamOperator, ValueState, connect
    from asterism.testing import StreamOperatorHarness

    class Sums(StreamOperator):
        numbers = Input("user STRING, ts BIGINT, n BIGINT")
        last = ValueState("BIGINT")
        out = Output("user STRING, s BIGINT")

        @numbers.process_element
        def add(self, element: Any, ctx: Any) -> None:
            self.last.update((self.last.value() or 0) + element.n)
            self.out.collect(user=ctx.key, s=self.last.value())

    rows = connect(Sums(), numbers=KeyedStream(events().drop_columns(["kind"]), key="user", time="ts")).output("out")
    assert rows.column("s").to_pylist() == [1, 3, 3]
    assert StreamOperatorHarness is not None
    schema = events().drop_columns(["kind"]).schema
    with connect(Sums(), numbers=KeyedStream(schema, key="user", time="ts")).open("operator") as engine:
        engine.process({"user": "a", "ts": 1, "n": 5}, input="numbers", position=1)
        assert engine.finish()["out"].to_pylist() == [{"user": "a", "s": 5}]


def rules() -> None:
    from asterism import (
        CEP,
        FilePatternProcessorDiscovererFactory,
        KeyedStream,
        PatternProcessor,
        SqlPatternProcessorDiscovererFactory,
    )
    from asterism.sinks import SqlSink

    rule = PatternProcessor("r", 1, pattern(), key=("user",), select=("twice(y.n) AS n",))
    Path("rules.json").write_text(json.dumps([rule.to_dict()]), "utf-8")
    factory, udfs = FilePatternProcessorDiscovererFactory("rules.json"), {"twice": twice}
    stream = KeyedStream(events(), time="ts")
    found = CEP.pattern_processors(stream, factory, udfs=udfs).output("matches")
    assert found["measures"].to_pylist() == [[("n", "4")]]
    assert CEP.backtest(stream, factory, udfs=udfs).matches.num_rows == 1
    assert SqlPatternProcessorDiscovererFactory("sqlite:///rules.db") is not None
    with CEP.pattern_processors(KeyedStream(events().schema, time="ts"), factory, udfs=udfs).open("rules") as engine:
        assert engine.process(events())["matches"].num_rows == 1
    with sqlite3.connect("out.db") as database:
        database.execute("CREATE TABLE out (ts BIGINT PRIMARY KEY)")
    with CEP.pattern(KeyedStream(events().schema, time="ts"), pattern()).open(
        "sink", select={"matches": ["x.ts AS ts"]}, sinks={"matches": SqlSink("sqlite:///out.db", "out", key=["ts"])}
    ) as engine:
        engine.process(events())


def twice(n: int) -> int:
    return 2 * n


def engines() -> None:
    from asterism import (
        CEP,
        Batch,
        KeyedStream,
        TumblingWindows,
        create_live_savepoint,
        export_metrics,
        interval_join,
        restore_live_savepoint,
        window,
    )

    stream = KeyedStream(events().schema, key="user", time="ts")
    query = CEP.pattern(stream, pattern())
    with query.open("engine") as engine:
        engine.process(events(), position=3)
        assert 'query="q"' in export_metrics({"q": engine}).text()
    assert create_live_savepoint("engine", "savepoint") == {"events": 3}
    restore_live_savepoint("savepoint", "engine2")

    async def streamed() -> int:
        with query.open("engine2") as engine:
            assert engine.position == 3
            return sum([rows["matches"].num_rows async for rows in engine.astream([Batch(events(), 6)])])

    assert asyncio.run(streamed()) == 0
    with window(stream, TumblingWindows.of(SECOND)).open(aggregate=["count(*) AS n"]) as engine:
        assert engine.process(events())["results"].num_rows + engine.finish()["results"].num_rows == 3
    with interval_join(stream, stream, (timedelta(0), SECOND), prefix="r_").open() as engine:
        engine.process(events(), input="left")
        results = engine.process(events(), input="right"), engine.finish()
        assert sum(rows["results"].num_rows for rows in results) == 4


def commands() -> None:
    """Those that need Spark fail with one error."""
    from click.testing import CliRunner

    import asterism
    from asterism.cli.common import terminal
    from asterism.cli.main import main
    from asterism.errors import MissingPackageError
    from asterism.testing import match

    terminal.SLOW = 3600.0  # what a command prints does not depend on how long it takes

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(main, arguments)

    assert match(pattern(), "x1 y2").matches == ["x1 y2"]
    Path("pattern.json").write_text(pattern().to_json(), "utf-8")
    with (ROOT / "tests" / "corpus" / "contiguity.jsonl").open(encoding="utf-8") as cases:
        Path("case.jsonl").write_text(next(cases), "utf-8")
    table = ("--input", "events.parquet", "--key", "user", "--time", "ts")
    for arguments in (
        ("match", "pattern.json", *table),
        ("trace", "pattern.json", "--input", "events.parquet", "--key-column", "user", "--key", "a", "--time", "ts"),
        ("explain", "pattern.json"),
        ("validate", "pattern.json"),
        ("sql", "SELECT count(*) AS n FROM t", "--table", "t=events.parquet"),
        ("rules", "validate", "rules.json", "--udf", "twice:bigint"),
        ("conformance", "case.jsonl"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stderr) == (0, ""), arguments
    sys.stdout.write(run("state", "checkpoint").stderr + run("match", "pattern.json", *table, "--spark").stderr)
    try:
        _ = asterism.read_state
    except MissingPackageError as error:
        sys.stdout.write(f"{error}\n")


def test_without_the_packages_of_spark(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__]
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path, env=environment
    )
    assert result.stderr == ""
    problem = "needs Spark, and its packages are not installed\n  No module named 'pyspark'\n  Hint: "
    problem += "pip install 'pandas' 'protobuf' 'pyspark'; docs/install.md says what works without them\n"
    assert re.sub("[<>=][^']*'", "'", result.stdout) == (
        f"Error: [MISSING_PACKAGE] this command {problem}" * 2 + f"[MISSING_PACKAGE] asterism.read_state {problem}"
    )


def test_the_documented_command_has_the_other_dependencies() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    (command,) = re.findall(r"^pip install ('click.*)$", page, re.MULTILINE)
    needed = map(Requirement, metadata.requires("asterism") or ())
    others = [need for need in needed if need.marker is None and need.name not in OF_SPARK]
    assert {Requirement(text) for text in shlex.split(command)} == set(others)


if __name__ == "__main__":
    sys.meta_path.insert(0, Refusal())  # type: ignore[arg-type]
    for part in (tables, queries, operators, rules, engines, commands):
        part()
