"""Checks pages with axe-core, which ``scripts/ensure_axe.sh`` downloads."""

from __future__ import annotations

import fcntl
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome

SCRIPT = Path(__file__).parents[2] / "scripts" / "ensure_axe.sh"
WIDTHS, THEMES = (360, 768, 1360), ("light", "dark")
_RUN = """
const done = arguments[0];
const told = ({ id, help, nodes }) =>
  `${id}: ${help}: ${nodes.map(({ target, failureSummary }) => `${target.join(" ")} ${failureSummary}`).join("; ")}`;
const report = ({ violations }) => done(violations.map(told));
axe.run(document, { resultTypes: ["violations"] }).then(report, (error) => done([String(error)]));
"""


@cache
def axe() -> str:
    """The script. AssertionError says in one line why it cannot be had."""
    with (Path(tempfile.gettempdir()) / "asterism-axe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr.strip()
    return Path(found.stdout.strip()).read_text(encoding="utf-8")


def violations(chrome: Chrome) -> list[str]:
    """What axe-core finds on the page, with all of its rules, as texts."""
    if chrome.execute_script("return window.axe === undefined"):  # type: ignore[no-untyped-call]
        chrome.execute_script(axe())  # type: ignore[no-untyped-call]
    found: list[str] = chrome.execute_async_script(_RUN)  # type: ignore[no-untyped-call]
    return found


@contextmanager
def sized(chrome: Chrome, width: int) -> Iterator[None]:
    size: dict[str, Any] = {"width": width, "height": 860, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[no-untyped-call]


def violations_everywhere(
    chrome: Chrome, widths: Sequence[int] = WIDTHS, themes: Sequence[str] = THEMES
) -> dict[tuple[int, str], list[str]]:
    """The violations of a page by width and theme, without those that have none."""
    found = {}
    for width in widths:
        with sized(chrome, width):
            for theme in themes:
                chrome.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)  # type: ignore[no-untyped-call]
                found[width, theme] = violations(chrome)
    chrome.execute_script("delete document.documentElement.dataset.theme")  # type: ignore[no-untyped-call]
    return {place: texts for place, texts in found.items() if texts}
