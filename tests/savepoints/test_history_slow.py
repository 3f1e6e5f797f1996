"""A query that begins with a history has the rows of one whose stream had all events."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import (
    bootstrap_savepoint,
    create_savepoint,
    forget_keys,
    read_savepoint,
    read_state,
    restore_savepoint,
)
from asterism.errors import StateError, StreamDefinitionError
from asterism.sinks import FileSink
from asterism.spark.session.history import StoredHistory
from tests.savepoints.test_savepoints_slow import EVENTS, SECOND, Query, of_clause, of_pattern, of_windows, parts

pytestmark = pytest.mark.spark
UNTIL = datetime(2025, 1, 1, tzinfo=UTC) + 75 * SECOND


class WithHistory(Query):
    """A query that begins with the events of some files, as a table."""

    def start(
        self, history: DataFrame | str | None, *, until: datetime | None = None, drain: bool, key_groups: int | None = 3
    ) -> None:
        reader = self.spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1)
        options = {} if key_groups is None else {"key_groups": key_groups}
        stream, outputs = self.make(reader.parquet(str(self.folder / "events")), options)
        run: dict[str, Any] = {"aggregate": ["SUM(v) AS v"]} if outputs == ["results"] else {}
        if history is not None:
            run["history"] = history
        if until is not None:
            run["history_until"] = until
        sinks = {output: FileSink(str(self.folder / output)) for output in outputs}
        stream.run(sinks, checkpoint=str(self.folder / "checkpoint"), drain=drain, **run)


@pytest.mark.parametrize("make", [of_pattern, of_clause, of_windows])
@pytest.mark.parametrize("by_time", [False, True], ids=["by position", "by time"])
def test_a_history_comes_before_the_stream(
    spark: SparkSession, tmp_path: Path, make: Any, by_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, query = Query(spark, tmp_path / "whole", make), WithHistory(spark, tmp_path / "query", make)
    table = Query(spark, tmp_path / "table", make)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 3:  # by time, the table has more than it should have, and the stream some of it again
            table.write(number, rows)
        if number == 2 and by_time:
            query.write(number, rows)
    whole.run("checkpoint", drain=True, key_groups=3)
    history = spark.read.schema(EVENTS).parquet(str(table.folder / "events"))
    query.write(3, parts()[3])
    options: dict[str, Any] = {"until": UNTIL if by_time else None}
    if make is of_pattern:
        with monkeypatch.context() as patch:  # the results are written, but not that they are
            write = StoredHistory._write
            patch.setattr(StoredHistory, "_write", lambda self, n, d: 1 / 0 if "batches" in d else write(self, n, d))
            with pytest.raises(ZeroDivisionError):
                query.start(history, drain=False, **options)
        assert sum(query.rows()["matches"].values())
        with pytest.raises(StateError, match="incomplete"):
            query.start(None, drain=False)
    query.start(history, drain=False, **options)
    query.write(4, parts()[4])
    query.start(history, drain=False, **options, key_groups=None)
    assert not (query.folder / "checkpoint" / "asterism_history").exists()
    if make is of_pattern:
        moved_to = str(tmp_path / "savepoint")
        create_savepoint(spark, str(query.folder / "checkpoint"), moved_to)
        (query.folder / "checkpoint").rename(tmp_path / "former")
        restore_savepoint(spark, moved_to, str(query.folder / "checkpoint"), key_groups=2)
    query.write(5, parts()[5])
    query.start(history, drain=True, **options, key_groups=None)
    assert query.rows() == whole.rows()
    assert all(query.rows().values())


def test_a_savepoint_of_a_table_is_used_by_several_queries(spark: SparkSession, tmp_path: Path) -> None:
    whole, table = Query(spark, tmp_path / "whole", of_pattern), Query(spark, tmp_path / "table", of_pattern)
    for number, rows in enumerate(parts()):
        whole.write(number, rows)
        if number < 3:
            table.write(number, rows)
    whole.run("checkpoint", drain=True, key_groups=3)
    history = spark.read.schema(EVENTS).parquet(str(table.folder / "events"))
    first = WithHistory(spark, tmp_path / "first", of_pattern)
    first.write(2, parts()[2])
    stream, outputs = of_pattern(spark.readStream.schema(EVENTS).parquet(str(first.folder / "events")), {})
    sinks = {output: FileSink(str(tmp_path / "history" / output)) for output in outputs}
    savepoint = str(tmp_path / "savepoint")
    with pytest.raises(ZeroDivisionError):
        bootstrap_savepoint(stream, history, savepoint, dict.fromkeys(outputs, lambda df, batch_id: 1 / 0), until=UNTIL)
    assert not Path(savepoint).exists()
    for name in ("job", "keys"):  # what a call leaves that is killed
        (Path(savepoint) / name).mkdir(parents=True)
        (Path(savepoint) / name / "part.parquet").write_text("?")
    (Path(savepoint) / "incomplete.json").write_text('{"checkpoint": null}')
    bootstrap_savepoint(stream, history, savepoint, sinks, until=UNTIL)
    assert not {"incomplete.json", "asterism_lease", "job"} & {path.name for path in Path(savepoint).iterdir()}
    with pytest.raises(StateError, match="is not empty"):
        bootstrap_savepoint(stream, history, savepoint, sinks, until=UNTIL)
    with pytest.raises(StateError, match="was made from a table"):
        restore_savepoint(spark, savepoint, str(tmp_path / "restored"))
    assert read_savepoint(spark, savepoint).partial_matches().count()
    folder = tmp_path / "history"
    of_history = {
        output: Counter(map(str, spark.read.parquet(str(folder / output)).drop("batch").collect()))
        for output in outputs
    }
    second = WithHistory(spark, tmp_path / "second", of_pattern)
    second.write(2, parts()[2])
    for query, key_groups in ((first, 2), (second, 5)):
        query.start(savepoint, drain=False, key_groups=key_groups)
        for number in range(3, 6):
            query.write(number, parts()[number])
        query.start(savepoint, drain=True, key_groups=None)
        rows = query.rows()
        assert {output: rows[output] + of_history[output] for output in outputs} == whole.rows()


def test_a_history_fits_its_stream(spark: SparkSession, tmp_path: Path) -> None:
    query = WithHistory(spark, tmp_path, of_pattern)
    query.write(0, parts()[0])
    history = spark.read.schema(EVENTS).parquet(str(tmp_path / "events"))
    with pytest.raises(StreamDefinitionError, match='differ in the column "v"'):
        query.start(history.withColumn("v", history.v.cast("int")), drain=False)
    with pytest.raises(StreamDefinitionError, match="must be a table"):
        query.start(spark.readStream.schema(EVENTS).parquet(str(tmp_path / "events")), drain=False)
    query.start(history.limit(0), drain=False)  # a history without events is none
    state = read_state(spark, str(tmp_path / "checkpoint"))
    assert Counter(row.key.user for row in state.partial_matches().collect())
    assert json.loads((tmp_path / "checkpoint" / "asterism_restored.json").read_text())["batches"] == 1
    forget_keys(spark, str(tmp_path / "checkpoint"), [{"user": "u1"}])
    query.start(None, drain=True, key_groups=None)
