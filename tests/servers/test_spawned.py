"""What tests start ends with them: when ``timeout`` ends them, and when they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT, until

PROGRAM = """
import threading, time
from tests.kit import clean_up_on_sigterm, spawned

clean_up_on_sigterm()
started = []
thread = threading.Thread(target=lambda: started.append(spawned(["sleep", "600"])))
thread.start()
thread.join()
try:
    print(started[0].pid, flush=True)
    time.sleep(600)
finally:
    print("cleaned up", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends what a process has started")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_ends_with_the_process_that_has_started_it(number: signal.Signals) -> None:
    """But not with the thread."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    try:
        assert process.stdout is not None
        program = Path("/proc", process.stdout.readline().strip())
        until(lambda: (program / "comm").read_text() == "sleep\n", seconds=30)
        process.send_signal(number)
        assert process.stdout.read() == ("cleaned up\n" if number == signal.SIGTERM else "")
        until(lambda: not runs(program), seconds=30)
    finally:
        process.kill()
        process.communicate()


def runs(process: Path) -> bool:
    try:
        return "\nState:\tZ" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
