"""More of the page, in a real browser."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from selenium.webdriver import Chrome, Keys

from asterism.console import application
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.discovery_status import RuleState, Status
from asterism.rules.sets.set_store import FolderStore
from tests.console import test_page
from tests.console.browser import logged
from tests.console.kit import EVENTS, HOSTILE, console, rule, status_in
from tests.console.test_page import Page, added
from tests.kit import until

chrome = test_page.chrome
server = test_page.server
page = test_page.page


def test_somebody_else_changes_the_rule(page: Page) -> None:
    page.open("#/rule/pair/source")
    page.write("textarea.code", json.dumps(rule(suppress={"for": "1 hour"})))
    page.wait(".toolbar .primary", "Save as version 2")
    added(page.url, rule(version=2, suppress={"for": "2 hours"}))
    page.click(".toolbar .primary")
    assert page.text("dialog h2") == "Somebody else has changed this rule"
    page.click("dialog .danger")
    page.wait(".title .version", "v2")
    assert "2 hours" in str(page.find("textarea.code").get_property("value"))
    added(page.url, rule(version=3, timestamp="2099-01-01T00:00:00Z"))
    page.open("#/rule/pair/versions")
    page.wait(".versions", "waiting from 2099-01-01 00:00:00")
    assert "v2" in page.text(".title")
    assert "v3 from 2099-01-01 00:00:00" in page.text(".title")
    page.wait(".rules", "v3 from 2099")


def test_texts_that_are_not_saved_stay(page: Page) -> None:
    page.open("#/rule/pair/source")
    page.write("textarea.code", "id: pair\nversion: 1\nsql: broken")
    page.wait(".problems", "Error")
    page.script("location.hash = '#/rule/graph/source'")
    page.wait("h1", "graph")
    page.script("location.hash = '#/rule/pair/source'")
    page.wait(".title", "not saved")
    assert page.find("textarea.code").get_property("value") == "id: pair\nversion: 1\nsql: broken"


def test_a_backtest_reports_progress(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    backtests = page.server.application.backtests
    assert backtests is not None
    counts = {
        "matches": 3,
        "keys": 2,
        "matches_per_day": 1.5,
        "most_in_a_day": 2,
        "timed_out": None,
        "errors": 0,
        "error": None,
    }
    old = {
        "old_version": 2,
        "old_matches": 4,
        "old_keys": 2,
        "old_matches_per_day": 2.0,
        "old_most_in_a_day": 3,
        "old_timed_out": None,
        "old_errors": 0,
    }
    example = {
        "difference": "removed", "version": 2, "key": [HOSTILE], "start": "2026-01-31", "end": "2026-01-31",
        "events": [["first", HOSTILE]], "moreEvents": 0, "measures": {"<i>": HOSTILE},
    }  # fmt: skip
    report = {
        "compared": True, "events": 100, "late": 1, "first": "2026-01-30", "last": "2026-01-31", "days": 2, "examples": [example],
        "label": None, "labelled": None, "daily": [["2026-01-30", 1, 2]], "listed": 4, "ofMatches": 5,
        "rule": {"id": "graph", "version": 3, "refused": None, "added": 1, "removed": 2, "kept": 2, **counts, **old},
    }  # fmt: skip
    ask = backtests._worker.ask

    def answer(request: Any, **options: Any) -> Any:
        ask(request, **options)
        match = {name: example[name] for name in ("difference", "version", "key", "start", "end")}
        pq.write_table(pa.Table.from_pylist([match | {"true": None} | example["measures"]]), request["file"])
        return report  # the child of the tests knows no Spark: this is a report as Spark gives it

    monkeypatch.setattr(backtests._worker, "ask", answer)
    page.open("#/rule/graph/backtest")
    page.click(".backtest-tab .primary")
    page.wait(".legend", "2 kept")
    assert page.find(".bar-chart").get_attribute("aria-label") == "2 kept, 1 added, 2 removed"
    assert HOSTILE in page.text(".found-matches table")
    assert len(page.all(".found-matches tbody tr")) == 1
    page.click(".found-matches td summary")
    assert HOSTILE in page.text(".found-matches .event-list")
    assert "Only the first 4 of 5 matches" in page.text(".found-matches .notice")
    assert page.text(".daily-chart .legend") == "as edited\nin use"
    assert "Matches\t4\t3" in page.text("table.numbers")


def test_controls_have_names(page: Page) -> None:
    for place in (
        "#/",
        "#/new",
        *(f"#/rule/graph/{tab}" for tab in ("overview", "source", "try", "backtest", "versions")),
    ):
        page.open(place)
        page.find("#detail > *")
        nodes = page.chrome.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]  # type: ignore[no-untyped-call]
        roles = (
            "button",
            "link",
            "textbox",
            "searchbox",
            "combobox",
            "spinbutton",
            "tab",
            "checkbox",
            "image",
            "navigation",
            "region",
        )
        unnamed = [
            node for node in nodes
            if node.get("role", {}).get("value") in roles and not node.get("ignored") and not node.get("name", {}).get("value")
        ]  # fmt: skip
        assert unnamed == [], place


def test_themes_and_narrow_screens(page: Page) -> None:
    def background() -> str:
        return str(page.script("return getComputedStyle(document.body).backgroundColor"))

    page.open("#/rule/graph/source")
    light = background()
    page.press("t", "t")
    assert page.find("#theme").get_attribute("title") == "Theme: dark (t)"
    dark = background()
    assert dark != light
    page.open()
    assert background() == dark  # it is remembered
    page.press("t")
    scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)  # type: ignore[no-untyped-call]
    assert background() == dark
    page.chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})  # type: ignore[no-untyped-call]
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # type: ignore[no-untyped-call]
    try:
        for place in (
            "#/",
            "#/new",
            *(f"#/rule/graph/{tab}" for tab in ("overview", "source", "try", "backtest", "versions")),
        ):
            page.open(place)
            assert page.script("return document.documentElement.scrollWidth") <= 360, place
        page.click(".back")
        assert page.find("#list").is_displayed()
        assert not page.all("#detail")[0].is_displayed()
    finally:
        page.chrome.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[no-untyped-call]


def test_a_template_is_shown_and_edited(page: Page) -> None:
    item = {
        "id": "large", "version": 1, "parameters": {"limit": {"type": "number", "default": 5}},
        "rows": [{"id": "uk", "limit": 8}, {"id": HOSTILE}],
        "sql": "PARTITION BY user PATTERN (A) DEFINE A AS price > :limit",
    }  # fmt: skip
    rules_at(page.url).add([Addition(item)])
    page.server.application.source._last_read = (0.0, [])
    page.open("#/rule/large%2Fuk")
    assert page.text(".template").split("\n\n") == [
        "Template large", "limit number = 5", f"Row\tlimit\nuk\t8\n{HOSTILE}\tdefault"
    ]  # fmt: skip
    until(lambda: page.script("return document.querySelector('.drawing img')?.naturalWidth ?? 0") > 50)
    page.press("2")
    page.wait(".toolbar .primary", "Saved")
    text = page.script("return document.querySelector('textarea.code').value")
    page.write("textarea.code", text.replace("limit: 8", "limit: eight"))
    page.wait(".problems", "the parameter 'limit' must be a number, not 'eight'")
    page.write("textarea.code", text.replace("limit: 8", "limit: 9"))
    page.wait(".toolbar .primary", "Save as version 2")
    page.click(".toolbar .primary")
    page.wait("#toasts", "template large added")
    page.press("1")
    page.wait(".template", "uk\t9")
    # Its shadow replaces it as a whole.
    rules_at(page.url).add(
        [Addition({**item, "version": 3, "shadow": True, "rows": [{"id": "uk", "limit": 7}, {"id": HOSTILE}]})]
    )
    page.server.application.source._last_read = (0.0, [])
    page.open("#/").open("#/rule/large%2Fuk")
    page.wait(".title .primary", "Promote the template")
    page.click(".title .primary")
    page.click("dialog .primary")
    page.wait("#toasts", "large version 3 promoted")
    page.wait(".template", "uk\t7")
    page.click(".template a")
    page.wait("h1", HOSTILE)


def test_everything_is_reached_with_the_keyboard(page: Page) -> None:
    page.open("#/rule/graph/overview")
    page.find(".drawing img")
    reached: list[str] = []
    for _ in range(40):
        page.press(Keys.TAB)
        found = page.script(
            "const a = document.activeElement; const s = getComputedStyle(a);"
            "const shows = s.outlineStyle !== 'none' || a.matches('input, textarea, body');"
            "return [a.innerText || a.getAttribute('aria-label') || a.id, shows]"
        )
        reached.append(found[0])
        assert found[1], f"{found[0]} shows no focus"
    words = "\n".join(reached)
    for wanted in (
        "Skip to the rule",
        "Search rules",
        "New rule",
        "All 2",
        "graph",
        "pair",
        "Disable",
        "Remove",
        "Overview",
        "In words",
    ):
        assert wanted in words, wanted
    page.press("?")
    assert page.text("dialog h2") == "Keyboard shortcuts"
    page.press(Keys.ESCAPE)
    until(lambda: not page.all("dialog"))


def test_a_shadow_is_promoted_and_a_rule_killed(chrome: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    kept = rules_at(str(path))
    for item in (rule(), rule(version=2, suppress={"for": "1 hour"}, shadow=True)):
        kept.add([Addition(item, PatternProcessor.from_dict(item))])
    place = status_in(tmp_path / "checkpoint")
    store = FolderStore(f"{place}/pattern_processors")
    with console(str(path), checkpoint=place) as server:
        page = Page(chrome, server, str(path)).open("#/rule/pair/versions")
        assert page.text("table.versions tbody tr:first-child td:last-child").startswith("Promote")
        page.click("table.versions .actions button:not(.danger)")
        page.click("dialog .primary")
        page.wait(".title .version", "v2")
        assert page.stored("pair") == [(2, "on")]
        page.press("1")
        page.click(".title button.danger")
        page.press("too loud")
        page.script("document.querySelector('dialog select').value = '1'")
        assert "version 1, in force" in page.text("dialog select")
        page.click("dialog .danger")
        page.wait("#toasts", "pair@1 killed")
        assert {name: one.reason for name, one in store.killed().items()} == {"pair@1": "too loud"}
        store.write_status(replace(store.read_status(), killed={"pair@1": "too loud"}))
        page.wait(".overview .notice", "pair@1")
        page.click(".overview .notice button")
        page.click("dialog .primary")
        page.wait("#toasts", "pair@1 is admitted again")
        assert store.killed() == {}
        assert logged(chrome) == []
        chrome.get("about:blank")  # so that it asks no server that is being stopped


def chosen(page: Page, label: str, value: str) -> None:
    """Choose or write a value of the form."""
    page.script(
        "arguments[0].value = arguments[1]; for (const kind of ['input', 'change']) arguments[0].dispatchEvent(new Event(kind))",
        page.find(f".rule-form [aria-label='{label}']"),
        value,
    )


def test_events_of_the_history_become_a_test_with_those_of_the_match(page: Page) -> None:
    """Those of a key without a match are left out, unless a person has written them."""
    page.open("#/rule/pair/try")
    for is_written, count in ((False, 2), (True, 4)):
        page.click(".take button")
        page.wait(".result h2", "1 match")
        if is_written:
            page.write("textarea.events", EVENTS)
        page.click(".try-tab .toolbar > button:last-child")
        assert page.find("dialog input[type=checkbox]").is_selected() != is_written
        page.click("dialog .primary")
        page.wait(".tests", "1 test passed" if not is_written else "2 tests passed")
        [tests] = [stored.item["tests"] for stored in rules_at(page.url).all() if stored.id == "pair"]
        assert len(tests[-1]["events"]) == count


def test_the_matches_of_former_versions_are_listed(chrome: Chrome, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    (tmp_path / "rules.json").write_text(json.dumps([rule(version=2)]))
    place = status_in(folder)
    store = FolderStore(str(folder / "pattern_processors"))
    store.write_status(Status("valid", 2, {"pair": 2}, rules=[RuleState("pair", 2, "in force", added=2)]))
    with console(str(tmp_path / "rules.json"), checkpoint=place) as server:
        page = Page(chrome, server, str(tmp_path / "rules.json")).open("#/rule/pair")
        page.wait("#list .count", "5 matches (0 of v2)")
        page.wait(".cards", "and 5 of earlier versions")


def test_a_check_says_that_it_takes_long(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """While others are checked, and when the console had no time for it."""
    source = page.server.application.source
    check, free = source.check, threading.Event()

    def waits(*arguments: Any) -> Any:
        assert free.wait(60)
        return check(*arguments)

    monkeypatch.setattr(source, "check", waits)
    monkeypatch.setattr(application, "CHECK_TIMEOUT", 4.0)
    page.open("#/rule/pair/source")
    page.wait(".toolbar .note", "This takes longer than usual")
    page.wait(".toolbar .note", "The console is busy")
    free.set()
    page.wait(".toolbar .primary", "Saved")
    assert all("503" in line for line in logged(page.chrome))


def test_a_rule_has_a_title_and_a_description(page: Page) -> None:
    """In the form and in the text, also of a rule that a form cannot show."""
    page.open("#/rule/graph/source")
    page.click(".rule-form summary")
    page.wait(".rule-form", "The text says more than a form can show")
    page.find(".rule-form label:nth-child(1) input").send_keys("A and ")
    page.find(".rule-form label:nth-child(1) input").send_keys("then B")

    def text() -> str:
        return str(page.find("textarea.code").get_property("value"))

    until(lambda: "title: A and then B" in text(), seconds=20)
    page.find(".rule-form textarea").send_keys("It's bad: ask", Keys.ENTER, "ann. ")
    until(lambda: "It's bad: ask" in text() and "    ann." in text(), seconds=20)
    assert "severity: high" in text()
    page.write("textarea.code", text().replace("A and then B", "A, then B"))
    field = page.find(".rule-form label:nth-child(1) input")
    until(lambda: field.get_property("value") == "A, then B", seconds=20)
    page.wait(".toolbar .primary", "Save, version 2")
    page.click(".toolbar .primary:enabled")
    page.wait(".rule-head .rule-title", "A, then B")
    page.wait(".rule-head .description", "ann.")
    page.wait("#list .rule-title", "A, then B")
    assert page.stored("graph") == [(1, "older"), (2, "on")]


def test_a_rule_is_written_with_a_form(page: Page) -> None:
    assert page.server.application.source.schema(60.0) is not None
    page.open("#/new")
    page.wait(".rule-form", "events within")
    chosen(page, "Shape of the rule", "sequence")
    chosen(page, "Key", "user")
    page.click("[aria-label='Add a condition']")
    chosen(page, "Column of condition 1", "kind")
    chosen(page, "Value of condition 1", "a")
    page.click("[aria-label='Add a condition of the second event']")
    chosen(page, "Column of condition 1 of the second event", "kind")
    chosen(page, "Value of condition 1 of the second event", "b")
    until(lambda: "B AS kind = 'b'" in str(page.find("textarea.code").get_property("value")), seconds=20)
    page.wait(".problems", "No problems.")
    page.wait(".form-live", "1 match in 4 events")
    # What cannot be a value is said, and the text stays.
    chosen(page, "Duration", "0")
    page.wait(".form-status", "within must be a whole number from 1")
    assert "INTERVAL '10' MINUTE" in str(page.find("textarea.code").get_property("value"))
    # The text changes the form, and says more than a form can.
    text = str(page.find("textarea.code").get_property("value"))
    page.write("textarea.code", text.replace("'10' MINUTE", "'3' HOUR"))
    duration = "return document.querySelector(\"[aria-label='Duration']\").value"
    until(lambda: page.script(duration) == "3", seconds=20)
    page.write("textarea.code", text.replace("'b'", "lower('B')"))
    page.wait(".rule-form", "The text says more than a form can show")
    page.click(".form-fields button")
    page.wait(".rule-form", "events within")
    until(lambda: "COUNT(A.*)" in str(page.find("textarea.code").get_property("value")), seconds=20)
    chosen(page, "Shape of the rule", "sequence")
    chosen(page, "Number of first events", "3")
    until(lambda: "A ({- X*? -} A){2} {- X*? -} B" in str(page.find("textarea.code").get_property("value")), seconds=20)
    # The id of another rule would replace it.
    identified(page, "pair")
    page.wait(".note.bad", "There is a rule pair, which this one replaces.")
    identified(page, "three, then one")
    page.wait(".toolbar .primary", "Add the rule")
    page.click(".toolbar .primary:enabled")
    page.wait("h1", "three, then one")
    assert page.stored("three, then one") == [(1, "on")]


def identified(page: Page, id: str) -> None:
    page.write(".form-note input", id)
    until(lambda: f'id: "{id}"' in str(page.find("textarea.code").get_property("value")), seconds=20)


def test_rules_in_eql_and_sigma_are_shown_as_they_are_written(page: Page) -> None:
    until_c = '  until [any where kind == "c"]\n'
    eql = f'sequence by user with maxspan=5m\n  [any where kind == "a"]\n  [any where kind == "b"]\n{until_c}'
    sigma = (
        "title: Price\nlogsource: {product: shop}\ndetection:\n"
        "  cheap:\n    kind|startswith: a\n  condition: cheap and not 1 of other*\n"
        "  other: {price: 1}\n"
    )
    added(page.url, {"id": "eql", "version": 1, "eql": eql}, {"id": "sigma", "version": 1, "sigma": sigma})
    page.open("#/rule/eql/overview")
    page.find(".drawing img")
    assert "a sequence by user, within 5 min" in page.text(".facts")
    page.press("2")
    page.find("textarea.code")
    words = page.script("return [...document.querySelectorAll('.layer .t-word')].map((one) => one.innerText)")
    assert words[:6] == ["sequence", "by", "with", "maxspan", "any", "where"]
    until(lambda: page.script("return document.querySelector('.preview img').naturalWidth") > 100)
    assert page.text(".explanation").startswith("a sequence by user")
    page.press("3")
    events = EVENTS + "2026-01-31 12:00:05,bob,b,1\n"
    page.write("textarea.events", events)
    page.click(".try-tab .primary")
    page.wait(".result h2", "1 match")
    assert page.text(".stages") == "event 1 1\nevent 2 2"
    page.script(
        "const s = document.querySelector('.trace-head select'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))"
    )
    page.wait(".trace", 'row 2 ends the sequence, until any where kind == "c"')
    page.open("#/rule/sigma/source")
    page.find("textarea.code")
    marks = page.script("return [...document.querySelectorAll('.layer .t-mark')].map((one) => one.innerText)")
    assert marks == ["|startswith"]
    until(lambda: page.script("return document.querySelector('.preview img').naturalWidth") > 100)
    page.press("3")
    page.write("textarea.events", events)
    page.click(".try-tab .primary")
    page.wait(".result h2", "1 match")
    page.wait(".trace", "kind|startswith: 'a' is false")
