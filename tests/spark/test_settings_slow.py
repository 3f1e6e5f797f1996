"""Queries with unusual settings and several sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from asterism import CEP, read_state
from asterism.errors import StreamDefinitionError
from asterism.spark.session.settings import settings
from tests.spark import test_settings
from tests.spark.streams import FUNNEL, Collect, batch_matches, events, ids, stream_of, write_file, write_files
from tests.spark.test_settings import COMPRESSION, processes_of

pytestmark = pytest.mark.spark
default_session = test_settings.default_session


def compression_of(checkpoint: Path, batch: int) -> str:
    """The compression of state that the offset log has."""
    metadata: str = json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[1])["conf"][COMPRESSION]
    return metadata


@pytest.mark.parametrize(("setting", "expected"), [(None, "zstd"), ("lz4", "lz4")])
def test_a_checkpoint_keeps_the_compression_of_its_state(
    default_session: SparkSession, tmp_path: Path, setting: str | None, expected: str
) -> None:
    """That of the session in its first run, or Zstandard."""
    table, found = events(60), Collect()
    if setting is not None:
        default_session.conf.set(COMPRESSION, setting)
    for number, (begin, end) in enumerate([(0, 30), (30, 60)]):
        write_file(table.slice(begin, end - begin), tmp_path / "in", number)
        stream = CEP.pattern(stream_of(default_session, tmp_path / "in"), FUNNEL, key_groups=4)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=number == 1)
        assert compression_of(tmp_path / "cp", max(found.batches)) == expected
        default_session.conf.unset(COMPRESSION)
        if number == 0:
            assert read_state(default_session, str(tmp_path / "cp")).waiting_events().count()
    assert ids(found.rows) == batch_matches(default_session, table, FUNNEL)


PROGRESS, RECORDS = "spark.sql.streaming.numRecentProgressUpdates", "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.mark.parametrize("values", [{PROGRESS: "1", RECORDS: "0"}, {RECORDS: "-1"}], ids=["1 and 0", "-1"])
def test_a_query_runs_with_unusual_settings(spark: SparkSession, tmp_path: Path, values: dict[str, str]) -> None:
    table, found = events(50), Collect()
    write_files(table, tmp_path / "in", [])
    stream = CEP.pattern(stream_of(spark, tmp_path / "in"), FUNNEL, key_groups=1)
    with settings(spark, values):
        with pytest.raises(StreamDefinitionError, match="writeStream cannot start this DataFrame"):
            stream.matches  # noqa: B018
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"))
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


def test_streams_in_several_sessions_on_one_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """Of sessions that were created before and after the first stream. Spark may know the control source there already."""
    table, found = events(60), Collect()
    sessions = [spark.newSession(), spark, spark.newSession(), spark.newSession()]
    for number, session in enumerate(sessions):
        write_file(table.slice(15 * number, 15), tmp_path / "in", number)
        session.conf.set("spark.sql.session.timeZone", "UTC")
        stream = CEP.pattern(stream_of(session, tmp_path / "in"), FUNNEL, key_groups=1)
        stream.run({"matches": found}, checkpoint=str(tmp_path / "cp"), drain=session is sessions[-1])
    assert ids(found.rows) == batch_matches(spark, table, FUNNEL)


def test_no_process_looks_for_links(default_session: SparkSession, tmp_path: Path) -> None:
    """The log of a source of files is a part of the checkpoint, too; the source is created after the query has started."""
    write_files(events(50), tmp_path / "in", [])
    stream = CEP.pattern(stream_of(default_session, tmp_path / "in"), FUNNEL, key_groups=4)
    started = processes_of(
        default_session,
        lambda: stream.run({"matches": Collect()}, checkpoint=str(tmp_path / "cp"), drain=True),
        tmp_path / "recording.jfr",
    )
    assert any("chmod" in command and "/cp/sources/" in command for command in started)
    assert not [command for command in started if "readlink" in command]
