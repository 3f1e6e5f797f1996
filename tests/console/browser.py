"""A real browser for the tests of the page, without a window."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_browser.sh"
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--no-first-run", "--window-size=1280,860",
)  # fmt: skip


class NoBrowserError(Exception):
    """In one line, why there is no browser."""


@contextmanager
def browser() -> Iterator[Chrome]:
    """:raises NoBrowserError: there is none, and none can be installed"""
    with (Path(tempfile.gettempdir()) / "asterism-browser.lock").open("w") as lock:
        # Tests run in several processes, and a package is installed by one at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, timeout=600, check=False)
    if found.returncode != 0:
        raise NoBrowserError((found.stderr.strip().splitlines() or ["the tests need a browser"])[-1])
    program, driver = found.stdout.splitlines()[-2:]
    options = ChromeOptions()
    options.binary_location = program
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = Chrome(options=options, service=Service(driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def logged(chrome: Chrome) -> list[str]:
    """The errors since the last call: exceptions of scripts, and violations of the policy."""
    found: list[dict[str, Any]] = chrome.get_log("browser")
    lines = [f"{one['level']}: {one['message']}" for one in found if one["level"] in ("SEVERE", "WARNING")]
    # The browser also logs each response that is not a success.
    return [line for line in lines if "the server responded with a status of 4" not in line]
