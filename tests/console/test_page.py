"""The page, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from asterism.console.samples import SampleSettings
from asterism.console.server import ConsoleServer
from asterism.discovery import create_pattern_processor_table
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.rules.definition.processor import PatternProcessor
from tests.console.accessibility import violations_everywhere
from tests.console.browser import NoBrowserError, browser, logged
from tests.console.kit import EVENTS, HOSTILE, READER, WRITER, console, graph, rule, token_file
from tests.kit import until

HOSTILE_LABELS = {"<b>owner</b>": '"><script>document.title="broken"</script>', "__proto__": "javascript:alert(1)"}


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    try:
        with browser() as found:
            yield found
    except NoBrowserError as error:
        pytest.fail(str(error), pytrace=False)


def added(url: str, *items: dict[str, Any]) -> None:
    rules_at(url).add([Addition(item, PatternProcessor.from_dict(item)) for item in items])


class Page:
    """What a person sees and does."""

    def __init__(self, chrome: Chrome, server: ConsoleServer, url: str) -> None:
        self.chrome, self.server, self.url = chrome, server, url

    def open(self, place: str = "#/") -> Page:
        self.chrome.get("about:blank")
        self.chrome.get(f"{self.server.address}/{place}")
        until(lambda: self.all("#list .rules") and not self.all("#detail > .loading"))
        return self

    def all(self, selector: str) -> list[WebElement]:
        return self.chrome.find_elements(By.CSS_SELECTOR, selector)

    def find(self, selector: str) -> WebElement:
        found: list[WebElement] = []

        def look() -> bool:
            with suppress(StaleElementReferenceException):  # the page draws it anew
                found[:] = [one for one in self.all(selector) if one.is_displayed()]
            return bool(found)

        until(look)
        return found[0]

    def click(self, selector: str) -> None:
        def click() -> bool:
            with suppress(StaleElementReferenceException):
                self.find(selector).click()
                return True
            return False

        until(click)

    def text(self, selector: str) -> str:
        self.find(selector)
        return str(self.script("return document.querySelector(arguments[0]).innerText", selector))

    def wait(self, selector: str, text: str) -> None:
        """Wait until an element has a text."""
        until(
            lambda: text in str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", selector)),
            seconds=20,
        )

    def script(self, text: str, *arguments: Any) -> Any:
        return self.chrome.execute_script(text, *arguments)  # type: ignore[no-untyped-call]

    def press(self, *keys: str) -> None:
        ActionChains(self.chrome).send_keys(*keys).perform()

    def write(self, selector: str, text: str) -> None:
        self.script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))",
            self.find(selector),
            text,
        )

    def wait_for_rule(self, id: str) -> None:
        until(lambda: self.script("return document.querySelector('h1')?.innerText") == id)

    def names(self) -> list[str]:
        return [one.text for one in self.all("#list .name")]

    def stored(self, id: str) -> list[tuple[int | None, str]]:
        return [(one.version, one.state) for one in rules_at(self.url).all() if one.id == id]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ConsoleServer, str]]:
    folder = tmp_path_factory.mktemp("console")
    (folder / "events.csv").write_text(EVENTS)
    url = f"sqlite:///{folder / 'rules.db'}"
    create_pattern_processor_table(url)
    settings = SampleSettings(None, (str(folder / "events.csv"),), (), "ts")
    with console(url, samples=settings, backtest_worker="tests.console.children") as found:
        yield found, url


@pytest.fixture
def page(chrome: Chrome, server: tuple[ConsoleServer, str]) -> Iterator[Page]:
    console, url = server
    kept = rules_at(url)
    ids = list(dict.fromkeys(one.stored_slot[0] for one in kept.all()))
    if ids:
        kept.remove(ids)
    added(url, rule(), graph(labels={"severity": "high"}))
    added(url, graph(version=2, suppress={"for": "1 hour"}, labels={"severity": "high"}))
    console.application.source._last_read = (0.0, [])
    logged(chrome)
    yield Page(chrome, console, url)
    assert logged(chrome) == []
    chrome.get("about:blank")


def test_rules_are_listed_and_shown(page: Page) -> None:
    page.open()
    assert page.names() == ["graph", "pair"]
    assert page.text("#list .filters") == "All 2\nIn use 2"
    page.press("j")
    page.wait("h1", "graph")
    assert page.find("#list a[aria-current=page] .name").text == "graph"
    assert page.find(".drawing img").get_attribute("alt") == "Drawing of the pattern"
    until(lambda: page.script("return document.querySelector('.drawing img').naturalWidth") > 100)
    assert "for 1 hour after a match" in page.text(".facts")
    page.press("j")
    page.wait("h1", "pair")
    page.press("/")
    page.press("high")
    assert page.names() == ["graph"]
    page.press(Keys.ENTER, Keys.ENTER)
    page.wait("h1", "graph")


def test_keys_in_quick_succession(page: Page) -> None:
    page.open()
    press = "document.body.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true}))"
    page.script(f"for (const key of arguments) {press}", "j", "j", "2")
    page.wait("h1", "pair")
    page.find("textarea.code")


def test_a_rule_is_written_validated_and_saved(page: Page) -> None:
    page.open("#/new")
    page.find("textarea.code")
    page.wait(".toolbar .primary", "Add the rule")
    text = json.dumps(rule("loud", 1))
    page.write("textarea.code", "id: loud\nversion: 1\nsql: |\n  PARTITION BY usr\n  PATTERN (A)\n")
    page.wait(".problems", "usr")
    assert page.text(".problems .at") == "4:16"
    assert page.find(".gutter .error").text == "4"
    assert not page.find(".toolbar .primary").is_enabled()
    page.click(".problems .place")
    assert page.script("return document.activeElement.selectionStart") == len(
        "id: loud\nversion: 1\nsql: |\n  PARTITION BY "
    )
    page.write("textarea.code", text)
    page.wait(".problems", "No problems.")
    page.find("textarea.code").send_keys(Keys.CONTROL, "s")
    page.wait("h1", "loud")
    assert page.stored("loud") == [(1, "on")]
    page.wait("#toasts", "loud version 1 added")
    # It is too loud: a suppression is a new version.
    page.press("2")
    page.write("textarea.code", json.dumps(rule("loud", 1, suppress={"for": "1 hour"})))
    page.wait(".toolbar .primary", "Save as version 2")
    assert page.text(".title .info") == "not saved"
    page.click(".toolbar .primary")
    page.wait(".title .version", "v2")
    # It is rolled back.
    page.press("5")
    page.wait(".versions", "Go back to it")
    assert page.text(".diff .came").endswith("version: 2")
    page.click(".versions .actions button:not(.danger)")
    page.wait("dialog", "Version 1 of loud replaces version 2")
    page.click("dialog .primary")
    page.wait(".title .version", "v1")
    assert page.stored("loud") == [(1, "on"), (2, "off")]
    assert page.text(".diff .gone").endswith("version: 2")
    # After it is disabled and enabled, it is still rolled back.
    page.click(".title button:not(.danger):not(.primary)")
    page.click("dialog .primary")
    page.wait(".title", "off")
    page.click(".title .primary")
    page.wait(".title", "on")
    assert page.stored("loud") == [(1, "on"), (2, "off")]
    page.click(".title .danger")
    page.click("dialog .danger")
    until(lambda: page.stored("loud") == [])


def test_columns_are_completed_with_the_keyboard(page: Page) -> None:
    assert page.server.application.source.schema(60.0) is not None
    page.open("#/new")
    page.wait(".problems", "No problems.")
    page.write("textarea.code", "id: new\nversion: 1\n")
    area = page.find("textarea.code")

    def write(*keys: str) -> str:
        """What is suggested after some keys, with a star before the chosen one."""
        area.send_keys(*keys)
        return str(
            page.script(
                "return [...document.querySelectorAll('.suggestion')].filter((one) => one.checkVisibility())"
                ".map((one) => (one.ariaSelected === 'true' ? '*' : '') + one.querySelector('bdi').innerText).join(' ')"
            )
        )

    def suggested(wanted: str, *keys: str) -> None:
        area.send_keys(*keys)
        with suppress(AssertionError):
            until(lambda: write() == wanted, seconds=10)
        assert write() == wanted, text()

    def text() -> str:
        return str(area.get_property("value"))

    # Fields of the rule: nothing is chosen until an arrow key chooses, so Enter makes a line.
    suggested("sql sigma select suppress shadow", "s")
    assert area.get_attribute("aria-activedescendant") is None
    suggested("*sql sigma select suppress shadow", Keys.ARROW_DOWN)
    suggested("sql sigma select suppress *shadow", Keys.ARROW_UP)
    suggested("*sql sigma select suppress shadow", Keys.ARROW_DOWN)
    assert area.get_attribute("aria-controls") == "suggestions"
    assert page.find(f"#{area.get_attribute('aria-activedescendant')}").get_attribute("role") == "option"
    suggested("", Keys.ENTER)
    assert text().endswith("version: 1\nsql: ")
    # A clause: columns, functions, and the variables of the pattern.
    suggested("", "|", Keys.ENTER)
    suggested("PARTITION BY", "PART")
    suggested("", Keys.ARROW_DOWN, Keys.TAB)
    suggested("*user", "us", Keys.ARROW_DOWN)
    suggested("", Keys.ENTER)
    suggested("ts user kind price", Keys.ENTER, "DEFINE Big AS Big.")
    suggested("price", "pr")
    # Escape closes the list, and the focus stays.
    suggested("", Keys.ESCAPE)
    assert page.script("return document.activeElement.className") == "code"
    assert page.all("#panel textarea.code"), "the page stays, too"
    suggested("*price", Keys.CONTROL, Keys.SPACE, Keys.NULL)
    suggested("", Keys.ENTER)
    suggested("Abc abs", " > 1, Abc AS ab")
    assert text().endswith("sql: |\n  PARTITION BY user\n  DEFINE Big AS Big.price > 1, Abc AS ab")


def test_axe_finds_nothing(page: Page) -> None:
    """``test_accessibility_slow.py`` has all pages and states, widths and themes."""
    page.open("#/rule/graph/source")
    page.wait(".problems", "No problems.")
    assert violations_everywhere(page.chrome, widths=[1360], themes=["light"]) == {}


def test_a_shadow_is_seen_everywhere(page: Page) -> None:
    page.open("#/rule/pair/source")
    page.find("textarea.code")
    page.write("textarea.code", json.dumps(rule(suppress={"for": "1 hour"}, shadow=True)))
    page.wait(".toolbar .primary", "Save as shadow, version 2")
    assert "The version in use continues" in page.text(".toolbar .note")
    page.click(".toolbar .primary")
    page.wait(".title", "shadow v2")
    assert page.stored("pair") == [(1, "on"), (2, "shadow")]
    page.wait("#list .filters", "Shadows 1")
    page.wait("#list", "shadow v2")
    page.click("#list [data-kind=info]")
    assert page.names() == ["pair"]
    page.press("1")
    page.wait(".facts", "Shadow")
    page.press("5")
    page.wait(".diff", "suppress")
    assert page.text(".versions .changes") == "suppress: for: 1 hour shadow: true"


def test_a_change_of_somebody_else_is_compared(page: Page) -> None:
    page.open("#/rule/pair/source")
    page.find("textarea.code")
    mine = json.dumps(rule(suppress={"for": "1 hour"}))
    page.write("textarea.code", mine)
    page.wait(".toolbar .primary", "Save as version 2")
    added(page.url, rule(version=2, labels={"owner": "ann"}))
    page.click(".toolbar .primary")
    page.wait("dialog", "Somebody else has changed this rule")
    page.click("dialog .primary")
    page.wait(".versions-tab", "As edited")
    page.wait(".diff", "owner: ann")
    assert (
        page.script("return document.querySelector('.versions-tab [aria-label=After]').selectedOptions[0].innerText")
        == "As edited"
    )
    page.press("2")
    page.wait(".toolbar .primary", "Save as version 3")
    page.click(".toolbar .primary")
    page.wait(".title .version", "v3")


def test_a_rule_is_tried_on_events(page: Page) -> None:
    page.open("#/rule/graph/try")
    page.find("textarea.events").send_keys(Keys.CONTROL, Keys.ENTER)
    page.wait(".result", "Paste some events first")
    page.write("textarea.events", EVENTS)
    page.click(".try-tab .primary")
    page.wait(".result h2", "1 match")
    assert page.text(".match-head").startswith("ann")
    assert page.text(".stages") == "first 1\nsecond 2"
    assert len(page.all("tr.used")) == 2
    page.script(
        "const s = document.querySelector('.trace-head select'); s.selectedIndex = 1; s.dispatchEvent(new Event('change'))"
    )
    page.wait(".trace", "kind='c'")
    assert "closest to a match" in page.text(".trace-summary")
    page.write("textarea.events", '{"ts": 1,\n')
    page.click(".try-tab .primary")
    page.wait(".error-box", "line 1")
    page.find(".take input[type=text]").send_keys("bob", Keys.ENTER)
    page.wait(".result h2", "No match")
    assert len(page.all("tbody tr")) == 2


def test_hostile_rules_are_text(page: Page) -> None:
    added(
        page.url, graph(HOSTILE, labels=HOSTILE_LABELS, condition="kind = '<img src=x onerror=alert(1)>'"), rule("..")
    )
    page.open()
    until(lambda: HOSTILE in page.names())
    for id in (HOSTILE, ".."):
        link = next(one for one in page.all("#list .rules a") if one.find_element(By.CSS_SELECTOR, ".name").text == id)
        link.click()
        page.wait_for_rule(id)
        for tab in "2345":
            page.press(tab)
            page.find("#panel > *")
        page.press("1")
        page.find(".drawing img")
        assert page.chrome.title.startswith(f"{id} ")
    assert (
        page.all("script:not([src])")
        == page.all("img:not([src^='blob:'])")
        == page.all("b.owner")
        == page.all("iframe")
        == []
    )
    names = set(page.script("return [...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())"))
    assert not {name for name in names if name.startswith("on") or name in ("style", "srcdoc")}
    page.press("5")
    page.find("#panel > *")
    next(one for one in page.all("#list .rules a") if HOSTILE in one.text).click()
    page.wait("h1", "<img")
    page.click(".title .danger")
    page.click("dialog .danger")
    until(lambda: page.stored(HOSTILE) == [])
    assert page.stored("..") == [(1, "on")]


def test_nothing_is_requested_from_elsewhere(page: Page) -> None:
    page.chrome.get_log("performance")  # type: ignore[no-untyped-call]
    page.open("#/rule/graph/overview")
    page.find(".drawing img")
    host = urlsplit(str(page.server.address)).netloc
    requested = set()
    for one in page.chrome.get_log("performance"):  # type: ignore[no-untyped-call]
        message = json.loads(one["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requested.add(message["params"]["request"]["url"])
    assert len(requested) > 10
    assert {urlsplit(url).netloc for url in requested if not url.startswith(("about:", "blob:", "data:"))} == {host}


def test_tokens_and_rights(chrome: Chrome, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps([rule(), graph()]))
    with console(str(path), tokens=token_file(tmp_path / "tokens.json")) as server:
        page = Page(chrome, server, str(path))
        chrome.get(f"{server.address}/")
        page.find("dialog input").send_keys("wrong" * 5, Keys.ENTER)
        page.wait("dialog", "The token is missing or wrong.")
        page.find("dialog input").send_keys(READER, Keys.ENTER)
        page.wait("#who", "dashboard")
        assert "read only" in page.text("#who")
        assert not any(one.is_displayed() for one in page.all("a.primary"))
        page.find("#list .rules a")
        page.press("j", "2")
        page.find("textarea.code[readonly]")
        assert not page.all(".title button")
        page.script("sessionStorage.clear()")
        chrome.get("about:blank")
        chrome.get(f"{server.address}/")
        page.find("dialog input").send_keys(WRITER, Keys.ENTER)
        page.wait("#who", "ann")
        assert page.find("a.primary").is_displayed()
    assert logged(chrome) == []
