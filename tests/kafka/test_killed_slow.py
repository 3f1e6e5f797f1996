"""Query and broker killed by ``kill -9``, partitions added meanwhile: a consumer that counts by id sees each match once."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kafka.victim import SELECT, SOURCE, TARGET, matches_of
from tests.kit import ROOT, spawned, until
from tests.servers.kafka import Broker, Topics

START = datetime(2025, 1, 1, tzinfo=UTC)
SECONDS = 180


def send(broker: Topics, users: Iterable[int], partitions: int) -> None:
    """Two events of each user, one user every ten minutes; one record in three is none."""
    records: list[tuple[int, bytes | None, bytes | None]] = []
    for user in users:
        for second, kind in enumerate("ab"):
            ts = (START + timedelta(minutes=10 * user, seconds=second)).isoformat()
            event = {"ts": ts, "user": f"user{user}", "kind": kind}
            records.append((user % partitions, None, json.dumps(event).encode()))
        records.append((user % partitions, None, b"poison"))
    broker.send(SOURCE, records)


class Victim:
    """The process of a query."""

    def __init__(self, broker: Topics, folder: Path, end: str) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        self.path = folder / f"log.{end}"
        with self.path.open("ab") as log:
            self.process = spawned(
                [sys.executable, "-m", "tests.kafka.victim", broker.address, str(folder / "checkpoint"), end],
                env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")[-3000:]

    def check(self) -> bool:
        """False, while it runs."""
        assert self.process.poll() is None, self.log
        return False

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ids(broker: Topics) -> list[bytes]:
    return [key or b"" for _, key, _ in broker.records(TARGET)]


def newest_offsets(folder: Path) -> str:
    return max((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name)).read_text()


@pytest.mark.timeout(900)
def test_each_match_once_for_a_consumer_by_id(spark: SparkSession, own_broker: Broker, tmp_path: Path) -> None:
    broker = own_broker
    broker.create_topic(SOURCE, 2)
    broker.create_topic(TARGET, 2)
    send(broker, range(120), 2)

    first = Victim(broker, tmp_path, "sent")
    try:
        assert first.process.wait(SECONDS) == -signal.SIGKILL, first.log
    finally:
        first.kill()
    before = ids(broker)
    assert before

    second = Victim(broker, tmp_path, "never")
    try:
        until(lambda: len(ids(broker)) > len(before) or second.check(), seconds=SECONDS)
        assert len(set(ids(broker))) < len(ids(broker))  # the micro-batch was sent again
        broker.add_partitions(SOURCE, 3)
        send(
            broker, range(122, 123), 3
        )  # to the new partition, which the query must have found before the others go on
        until(lambda: '"2":' in newest_offsets(tmp_path) or second.check(), seconds=SECONDS)
        broker.kill()
        broker.start()
        send(broker, (user for user in range(120, 240) if user != 122), 3)
        until(lambda: len(set(ids(broker))) >= 150 or second.check(), seconds=SECONDS)
    finally:
        second.kill()

    last = Victim(broker, tmp_path, "drained")
    try:
        assert last.process.wait(SECONDS) == 0, last.log
    finally:
        last.kill()
    seen = {(key or b"").decode(): json.loads(value or b"")["user"] for _, key, value in broker.records(TARGET)}
    assert sorted(seen.values()) == sorted(f"user{user}" for user in range(240))

    # The same ids as those of one micro-batch over all records.
    stored = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.address).option("subscribe", SOURCE)
    expected: list[str] = []
    matches_of(stored.load()).run(
        {"matches": lambda df, batch_id: expected.extend(row.match_id for row in df.collect())}, select=SELECT
    )
    assert sorted(seen) == sorted(expected)
