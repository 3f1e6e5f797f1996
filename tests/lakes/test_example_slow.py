"""The example of Kafka and Delta, as `make example-kafka` runs it."""

from __future__ import annotations

import csv
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

from tests.discovery.servers import or_skipped
from tests.kit import EXAMPLES, ROOT
from tests.servers.jars import jars
from tests.servers.lakes import environment

CHANGE = datetime(2017, 4, 1)


def many_failures(times: list[datetime], count: int) -> list[datetime]:
    """When the last of so many failed logins within an hour was, by hand."""
    last, first = [], 0
    while first + count <= len(times):
        if times[first + count - 1] - times[first] <= timedelta(hours=1):
            last.append(times[first + count - 1])
            first += count
        else:
            first += 1
    return last


def table(name: str, printed: str) -> list[list[str]]:
    [rows] = re.findall(rf"^{name}: (.*?)\n\n", f"{printed}\n\n", re.MULTILINE | re.DOTALL)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in rows.splitlines() if line[:1] == "|"][1:]


def test_rules_change_over_events_of_a_topic(tmp_path: Path) -> None:
    with or_skipped():
        environment()
        for name in ("broker", "kafka_spark41"):
            jars(name)
    run = subprocess.run(
        ["sh", "scripts/kafka_demo.sh", tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}"
    failed: dict[str, list[datetime]] = {}
    with (EXAMPLES / "data" / "ssh_auth.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["event"] == "failed":
                failed.setdefault(row["ip"], []).append(datetime.fromisoformat(row["ts"]))
    expected = {("2017-03-30 16:01:36", "guessed", "1", "24.151.103.17")}
    for version, count in (("1", 100), ("2", 30)):
        for ip, times in failed.items():
            of_version = [time for time in times if (time >= CHANGE) == (version == "2")]
            expected |= {(str(last), "many failures", version, ip) for last in many_failures(of_version, count)}
    found = [(match_time, *rule) for _, match_time, *rule, _, _ in table("alarms", run.stdout)]
    assert sorted(found) == sorted(expected)
    assert len(found) == 10
    assert table("dead_letters", run.stdout) == [
        ["logins", "hello", "the value is not a JSON object"],
        ["logins", '{"ts": "yesterday", "ip": "127.0.0.1"}', "wrong type: ts"],
    ]
