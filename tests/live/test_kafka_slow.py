"""The consumers of Kafka of the examples, each with a part of the partitions, killed between two snapshots."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.kit import ROOT
from tests.servers.kafka import Broker

USERS = 20


def test_consumers_that_are_killed(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("live-logins", partitions=2)
    broker.create_topic("live-attacks", partitions=1)
    commands = [
        [
            sys.executable, "-m", "examples.live_kafka", broker.address, "live-logins", "live-attacks",
            "--part", f"{part}/2", "--folder", str(tmp_path / f"state {part}"),
        ]
        for part in (1, 2)
    ]  # fmt: skip

    def send(first: int, last: int) -> None:
        events = [
            {"user": f"u{user}", "ts": 1000 * second, "event": "accepted" if second % 5 == 4 else "failed"}
            for second in range(first, last)
            for user in range(USERS)
        ]
        # A partition has all events of a user, in their order.
        records = [(int(str(event["user"])[1:]) % 2, None, json.dumps(event).encode()) for event in events]
        broker.send("live-logins", records)

    def attacks() -> list[tuple[str, int, int, str]]:
        rows = [json.loads(value or b"") for _, _, value in broker.records("live-attacks")]
        return [(row["user"], row["at"], row["failures"], row["match_id"]) for row in rows]

    def running_until(count: int) -> None:
        processes = [subprocess.Popen(command, cwd=ROOT) for command in commands]
        end = time.monotonic() + 90
        try:
            while len({(user, at) for user, at, *_ in attacks()}) < count:
                assert [process.poll() for process in processes] == [None, None]
                assert time.monotonic() < end
                time.sleep(0.2)
        finally:
            for process in processes:
                process.kill()
                process.wait()

    send(0, 30)
    running_until(5 * USERS)  # the last attack waits for later events
    send(30, 60)
    running_until(11 * USERS)
    found = set(attacks())
    # Three and four failures before each login; the same match has the same id.
    assert len(found) == len({match[:3] for match in found})
    assert {match[:3] for match in found} >= {
        (f"u{user}", 1000 * (5 * n + 4), failures) for user in range(USERS) for n in range(11) for failures in (3, 4)
    }
