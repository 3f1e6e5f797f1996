"""Every page of the console and its main states, at three widths, light and dark: axe-core finds nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, Keys

from asterism.console.samples import SampleSettings
from asterism.console.server import ConsoleServer
from asterism.discovery import create_pattern_processor_table
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from tests.console import test_page
from tests.console.accessibility import sized, violations_everywhere
from tests.console.browser import logged
from tests.console.kit import EVENTS, READER, console, graph, rule, status_in, token_file
from tests.console.test_page import Page, added
from tests.kit import until

chrome = test_page.chrome
TEMPLATE = {
    "id": "large", "version": 1, "parameters": {"limit": {"type": "number", "default": 5}}, "rows": [{"id": "uk", "limit": 8}],
    "sql": "PARTITION BY user PATTERN (A) DEFINE A AS price > :limit",
}  # fmt: skip
LABELS = {"title": "A and then B", "description": "Why it matters.", "severity": "high"}
"""Of a rule with a title, a description and another label."""


@pytest.fixture(scope="module")
def page(chrome: Chrome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A console with all that it can have: a query with alerts, a history, a template, a shadow, a disabled rule."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "events.csv").write_text(EVENTS)
    url = f"sqlite:///{folder / 'rules.db'}"
    create_pattern_processor_table(url)
    added(url, rule(labels=LABELS), rule(version=2, suppress={"for": "1 hour"}, shadow=True), graph(), rule("off"))
    added(url, graph(version=2, suppress={"for": "1 hour"}), rule("later"))
    added(url, rule("later", 2, timestamp="2099-01-01T00:00:00Z"))
    rules_at(url).add([Addition(TEMPLATE)])
    rules_at(url).disable(["off"])
    place = status_in(folder / "checkpoint")
    settings = SampleSettings(None, (str(folder / "events.csv"),), (), "ts")
    options: dict[str, Any] = {"samples": settings, "checkpoint": place}
    with console(url, backtest_worker="asterism.cli.rules.backtest_worker", **options) as server:
        assert server.application.source.schema(60.0) is not None
        _with_alerts(server)
        logged(chrome)
        yield Page(chrome, server, url)
        assert logged(chrome) == []
        chrome.get("about:blank")


def _with_alerts(server: ConsoleServer) -> None:
    assert server.application.status is not None
    hours = server.application.status._by_hour
    assert hours.since is not None
    now = int(hours.since.timestamp()) // 3600
    hours.since -= timedelta(hours=30)
    for hour in range(30):
        hours._hours[now - hour] = Counter({"pair": hour % 5, "graph": hour % 3})


def check(page: Page) -> None:
    assert violations_everywhere(page.chrome) == {}


def test_lists_and_alerts(page: Page) -> None:
    page.open()
    page.wait(".alerts", "Alerts by rule")
    page.click(".alerts summary")
    check(page)
    assert not page.all(".to-alerts")[0].is_displayed()
    with sized(page.chrome, 360):
        assert page.find(".rules").is_displayed()
        page.click(".to-alerts")  # a telephone has them below the list
        until(lambda: 0 <= page.script("return document.querySelector('.alerts').getBoundingClientRect().top") < 430)
        assert page.script("return document.documentElement.scrollWidth") <= 360
    page.press("/", "nothing")
    page.wait("#list .foot", "No matching rules")
    check(page)


@pytest.mark.parametrize("id", ["pair", "graph", "later", "off", "large%2Fuk"])
def test_overviews(page: Page, id: str) -> None:
    page.open(f"#/rule/{id}/overview")
    page.find(".drawing img")
    page.script("for (const one of document.querySelectorAll('details')) one.open = true")
    check(page)


def test_sources(page: Page) -> None:
    page.open("#/new")
    page.wait(".problems", "No problems.")
    check(page)
    # Suggestions, and a form with conditions.
    area = page.find("textarea.code")
    area.send_keys(Keys.CONTROL, Keys.END)
    area.send_keys(" AND ")
    area.send_keys(Keys.CONTROL, Keys.SPACE)
    page.wait(".suggestions", "user")
    check(page)
    area.send_keys(Keys.ESCAPE)
    page.write("textarea.code", "id: x\nversion: 1\nsql: |\n  PARTITION BY usr\n  PATTERN (A)\n")
    page.wait(".problems", "usr")
    check(page)
    page.open("#/rule/pair/source")
    page.wait(".problems", "No problems.")
    page.script("for (const one of document.querySelectorAll('details')) one.open = true")
    page.wait(".rule-form", "events of the sample")
    page.write("textarea.code", json.dumps(rule(labels=LABELS, suppress={"for": "2 hours"})))
    page.wait(".toolbar .primary", "Save as version 3")
    check(page)
    page.script("document.querySelector('.source-tab .toolbar button:not(.primary)').click()")


def test_tried_events(page: Page) -> None:
    page.open("#/rule/pair/try")
    check(page)
    page.write("textarea.events", EVENTS)
    page.click(".try-tab .primary")
    page.wait(".result h2", "1 match")
    check(page)
    page.write("textarea.events", '{"ts": 1,\n')
    page.click(".try-tab .primary")
    page.wait(".error-box", "line 1")
    check(page)


def test_backtests(page: Page) -> None:
    page.open("#/rule/graph/backtest")
    check(page)
    page.find(".backtest-tab select").send_keys("price")
    page.click(".backtest-tab .primary")
    page.find(".found-matches .actions button")
    page.script("for (const one of document.querySelectorAll('details')) one.open = true")
    check(page)


def test_versions(page: Page) -> None:
    for id in ("pair", "graph", "later"):
        page.open(f"#/rule/{id}/versions")
        page.find(".versions-tab .history")
        check(page)


def test_dialogs(page: Page) -> None:
    page.open("#/rule/pair/overview")
    page.find(".drawing img")
    page.press("?")
    page.find("dialog")
    check(page)
    page.press(Keys.ESCAPE)
    for button in (".title .danger", ".title button:not(.danger):not(.primary)", ".title .primary"):
        page.click(button)
        page.find("dialog")
        check(page)
        page.press(Keys.ESCAPE)


def test_without_rights(chrome: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([rule(), {"id": "broken", "version": 1, "sql": "PATTERN"}]))
    with console(str(path), tokens=token_file(tmp_path / "tokens.json")) as server:
        page = Page(chrome, server, str(path))
        chrome.get(f"{server.address}/")
        page.find("dialog input")
        check(page)
        page.find("dialog input").send_keys(READER, Keys.ENTER)
        page.wait("#who", "read only")
        check(page)
        page.open("#/rule/pair/source")
        page.find("textarea.code[readonly]")
        check(page)
        page.open("#/rule/broken/overview")
        page.wait("#panel", "The rule is invalid")
        check(page)
        page.script("sessionStorage.clear()")
        chrome.get("about:blank")


def test_without_rules(chrome: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text("[]")
    with console(str(path)) as server:
        page = Page(chrome, server, str(path)).open()
        page.wait("#detail", "Write the first rule")
        check(page)
        chrome.get("about:blank")
