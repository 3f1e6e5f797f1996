"""A live engine in another process, which a handler of signals closes."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.live.test_failures import opened

SIGNALS = """
import json, os, signal, sys
from pathlib import Path
from tests.live.test_failures import event, opened

engine = opened(Path(sys.argv[1]), snapshot_every=3)
signal.signal(signal.SIGTERM, lambda number, frame: engine.close())
start = 0 if engine.position is None else engine.position + 1
try:
    for number in range(start, 10**6):
        rows = engine.process(event(number), position=number, watermark=1000 * number)
        with open(sys.argv[2], "a") as file:
            file.writelines(json.dumps(row["match_id"]) + "\\n" for row in rows["matches"].to_pylist())
        if number == start + 10:
            print("ready", flush=True)
except Exception as error:
    assert "closed" in str(error), error
print(number, flush=True)
"""


def test_a_handler_of_signals_closes_the_engine(tmp_path: Path) -> None:
    """Wherever the signal arrives, also within a call and while a snapshot is written."""
    counts = []
    for _ in range(3):
        arguments = [sys.executable, "-c", SIGNALS, str(tmp_path / "state"), str(tmp_path / "rows")]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                threading.Event().wait(random.random() / 5)
                process.send_signal(signal.SIGTERM)
                counts.append(int(process.communicate(timeout=60)[0]))
                assert process.returncode == 0
            finally:
                process.kill()
    with opened(tmp_path / "state") as engine:
        assert engine.position in (counts[-1] - 1, counts[-1] - 2)
    ids = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert len(set(ids)) == counts[-1] - 1 or len(set(ids)) == counts[-1]
