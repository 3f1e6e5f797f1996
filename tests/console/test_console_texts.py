"""The texts of the errors of the console."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asterism.console.access import access_from
from asterism.console.rule_views import ConsoleRules
from asterism.console.samples import Samples, SampleSettings, events_in
from asterism.console.server import ConsoleOptions
from asterism.http.application import ChangedError
from tests.console.kit import rule
from tests.kit import Golden

SECRET = "correct-horse-battery-staple"
ANN = {"name": "ann", "rights": ["read"], "secret": SECRET}
SETTINGS = SampleSettings()


def tokens(root: Any, mode: int = 0o600) -> Callable[[], object]:
    def read() -> object:
        path = Path("tokens.json")
        path.write_text(root if isinstance(root, str) else json.dumps(root))
        path.chmod(mode)
        return access_from(path)

    return read


def one(**fields: Any) -> Callable[[], object]:
    return tokens({"tokens": [{name: value for name, value in (ANN | fields).items() if value is not None}]})


def save(tag: str | None) -> object:
    Path("rules.json").write_text(json.dumps([rule("a")]))
    return ConsoleRules("rules.json", "").save(json.dumps(rule("a", 2)), tag, "ann")


TEXTS: dict[str, Callable[[], object]] = {
    "no_file": lambda: access_from(Path("nosuch.json")),
    "syntax": tokens(f'{{"tokens": [{{"secret": "{SECRET}"'),
    "not_tokens": tokens([]),
    "no_tokens": tokens({"tokens": []}),
    "token_is_text": tokens({"tokens": ["a"]}),
    "unknown_field": one(password="x"),
    "no_name": one(name=None),
    "unknown_right": one(rights=["read", "all"]),
    "only_write": one(rights=["write"]),
    "secret_and_hash": one(sha256="0" * 64),
    "short_secret": one(secret="short"),
    "no_hash": one(secret=None, sha256="0" * 63),
    "same_name": tokens({"tokens": [ANN, ANN | {"secret": SECRET + "2"}]}),
    "same_secret": tokens({"tokens": [ANN, ANN | {"name": "bob"}]}),
    "readable": tokens({"tokens": [ANN]}, 0o644),
    "all_addresses": lambda: ConsoleOptions("rules.json", "", SETTINGS, host="0.0.0.0"),
    "unencrypted": lambda: ConsoleOptions("rules.json", "", SETTINGS, host="0.0.0.0", tokens=Path("t.json")),
    "key_alone": lambda: ConsoleOptions("rules.json", "", SETTINGS, private_key=Path("key.pem")),
    "changed": lambda: save("0" * 32),
    "exists": lambda: save(None),
    "no_rule": lambda: ConsoleRules("rules.json", "").details("b"),
    "no_events": lambda: events_in(" ", None, None),
    "events_syntax": lambda: events_in('{"a": 1}\n{"a": 1,}', None, None),
    "event_is_number": lambda: events_in('[{"a": 1}, 2]', None, None),
    "no_header": lambda: events_in("ann,a,5\n", Samples(SampleSettings("user STRING, price DOUBLE")).schema(), None),
    "event_time": lambda: events_in(
        "user,ts\nann,2026-01-31\nbob,31/01/2026\n", Samples(SampleSettings("ts TIMESTAMP")).schema(), "ts"
    ),
    "event_type": lambda: events_in("price\ncheap\n", Samples(SampleSettings("price DOUBLE")).schema(), None),
    "no_history": lambda: Samples(SETTINGS).history(),
}


@pytest.fixture(scope="module", autouse=True)
def folder() -> Any:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.chdir(name)
        Path("rules.json").write_text("[]")
        yield


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    Golden(Path(__file__)).error(name, TEXTS[name])


def test_a_change_that_lost_is_told_apart() -> None:
    with pytest.raises(ChangedError):
        save("0" * 32)
