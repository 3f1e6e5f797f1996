"""Every change that the page can make to a rule, in random order, against a model of what must be in force.

The query of the rules is a real coordinator, which reads the source after each change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from asterism.columns.schemas import schema_of
from asterism.columns.time import TimeColumn
from asterism.console.counts import WatchedStatus
from asterism.discovery import (
    FilePatternProcessorDiscovererFactory,
    SqlPatternProcessorDiscovererFactory,
    create_pattern_processor_table,
)
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets.set_store import FolderStore
from tests.console.kit import COLUMNS, EVENTS, Asker, application, rule

STEPS = 14
FORM: dict[str, Any] = {"shape": "sequence", "keys": ["user"], "time": "ts"}
for part, kind in (("first", "a"), ("second", "b")):
    FORM[part] = [{"column": "kind", "operator": "=", "kind": "text", "value": kind}]
InForce = tuple[int | None, int | None]
"""A version, and a shadow."""


@dataclass(slots=True)
class Version:
    enabled: bool = True
    shadow: bool = False
    was_used: bool = True
    """Whether it was enabled when the rule was disabled."""


@dataclass(slots=True)
class Model:
    """What a person expects: of the enabled versions the highest is in force, and a version that was rolled back stays so.

    :param keeps_versions: whether the versions that others have replaced stay, as in a table
    """

    keeps_versions: bool
    versions: dict[int, Version] = field(default_factory=dict)
    killed: set[int | None] = field(default_factory=set)
    """None: all versions."""
    in_set: dict[bool, int] = field(default_factory=dict)
    """The version, and the shadow, that the query has, in force or killed."""
    out: set[int] = field(default_factory=set)
    """The versions of these two that were killed: each stays out until the source has removed or disabled it."""
    accepted: set[int] = field(default_factory=set)
    """The versions that the query has ever had."""

    def of(self, *, shadow: bool) -> list[int]:
        return [number for number, version in self.versions.items() if version.enabled and version.shadow == shadow]

    @property
    def in_use(self) -> InForce:
        """What queries read."""
        return max(self.of(shadow=False), default=None), max(self.of(shadow=True), default=None)

    @property
    def in_force(self) -> InForce:
        """What the query uses."""
        used, shadow = (self.in_set.get(slot) for slot in (False, True))
        return (None if used in self.out else used), (None if shadow in self.out else shadow)

    def is_killed(self, number: int | None) -> bool:
        return None in self.killed or number in self.killed

    def read(self) -> None:
        """The query reads the source. What is killed is not accepted: what the query had in its place stays."""
        for shadow, number in zip((False, True), self.in_use, strict=True):
            if number is None:
                self.in_set.pop(shadow, None)
            elif not self.is_killed(number):
                self.in_set[shadow] = number
                self.accepted.add(number)
        if self.in_set.get(True) == self.in_set.get(False):
            self.in_set.pop(True, None)
        self.kill_out()

    def kill_out(self) -> None:
        self.out = {number for number in self.in_set.values() if number in self.out or self.is_killed(number)}

    @property
    def next(self) -> int:
        number = max(self.versions, default=0) + 1
        return max(self.accepted) + 1 if number in self.accepted else number

    @property
    def is_disabled(self) -> bool:
        return bool(self.versions) and not any(version.enabled for version in self.versions.values())

    def put(self, number: int, *, shadow: bool) -> None:
        """A new version. That of a disabled rule is disabled."""
        enabled = not self.is_disabled
        if not self.keeps_versions:
            self.drop(other for other, version in self.versions.items() if version.shadow == shadow)
        self.versions[number] = Version(enabled, shadow)

    def drop(self, numbers: Iterable[int]) -> None:
        for number in list(numbers):
            del self.versions[number]

    def use(self, number: int) -> None:
        """Go back or forward to a version: higher ones of its kind are no longer used, and it stays so."""
        chosen = self.versions[number]
        for other, version in self.versions.items():
            if version.shadow == chosen.shadow and other > number and version.enabled:
                version.enabled = version.was_used = False
        chosen.enabled = chosen.was_used = True

    def disable(self) -> None:
        if any(version.enabled for version in self.versions.values()):
            for version in self.versions.values():
                version.was_used = version.enabled
                version.enabled = False

    def enable(self) -> None:
        """Whatever was in use before it was disabled, without the versions that this had replaced."""
        in_use = {version.shadow for version in self.versions.values() if version.enabled}
        kept = {n: v for n, v in self.versions.items() if v.enabled or (v.was_used and v.shadow not in in_use)}
        again = (kept or self.versions) if self.keeps_versions else self.versions
        for shadow in (False, True):
            number = max((n for n, version in again.items() if version.shadow == shadow), default=None)
            if number is not None:
                self.use(number)

    def promote(self) -> None:
        number = max(self.of(shadow=True))
        if not self.keeps_versions:
            self.drop(other for other in self.versions if other != number)
        for other, version in self.versions.items():
            if version.enabled and other != number and (version.shadow or other > number):
                version.enabled = version.was_used = False
        self.versions[number].shadow = False

    def roll_back(self, number: int) -> None:
        """Bring a version back that the source does not have any more. It is enabled."""
        self.put(number, shadow=False)
        self.use(number)


@cache
def compiler() -> ProcessorCompiler:
    schema = schema_of(COLUMNS)
    return ProcessorCompiler(schema, ["user"], TimeColumn("ts", schema.field("ts").type), Semantics.DEFAULT, {})


class Clicks:
    """The page of one rule, as requests, and a query that reads the rules."""

    def __init__(self, folder: Path, seed: int, *, in_table: bool) -> None:
        if in_table:
            source = f"sqlite:///{folder / 'rules.db'}"
            create_pattern_processor_table(source)
            self.factory: Any = SqlPatternProcessorDiscovererFactory(source)
        else:
            source = str(folder / "rules.yaml")
            # Another rule, with comments that must stay.
            Path(source).write_text(
                "# ours\n- id: other\n  version: 1\n  # why\n  sql: PATTERN (A) DEFINE A AS kind = 'z'\n"
            )
            self.factory = FilePatternProcessorDiscovererFactory(source)
        self.source, self.random, self.number = source, Random(seed), 0
        self.query = Coordinator(compiler(), FolderStore(str(folder / "pattern_processors")), ())
        status = WatchedStatus(str(folder))
        self.client, self.model = Asker(application(source, status=status)), Model(in_table)
        self.done: list[str] = []

    # ------------------------------------------------------------------ requests

    @property
    def shown_rule(self) -> dict[str, Any]:
        status, answer = self.client.ask("POST", "/api/rule", {"id": "pair"})
        return dict(answer) if status == 200 else {"tag": None, "versions": []}

    def ask(self, path: str, **fields: Any) -> Any:
        self.done.append(f"{path} {fields.get('version', '')}")
        return self.client.good("POST", path, {"id": "pair", "tag": self.shown_rule["tag"], **fields})

    def text(self) -> str:
        """The text that the editor shows: of the version in use, or else of the highest."""
        versions = self.shown_rule["versions"]
        used = next((one for one in versions if one["state"] == "on"), versions[0])
        return str(used["text"])

    def rewrite(self, path: str, **fields: Any) -> None:
        """A change of the text by the form, or by a sample that becomes a test, which is then saved."""
        text = self.client.good("POST", path, {"id": "pair", "text": self.text(), **fields})["text"]
        self.done.append(path)
        self.ask("/api/save", text=text)

    def save(self, *, shadow: bool) -> None:
        self.number += 1
        text = self.edited(f"{self.number} minutes", shadow=shadow)
        effect = self.client.good("POST", "/api/check", {"text": text, "id": "pair"})["effect"]
        saved = self.ask("/api/save", text=text)
        assert saved["version"] == effect["version"] == self.model.next, (effect, saved)
        self.model.put(self.model.next, shadow=shadow)

    def edited(self, suppress: str, *, shadow: bool = False) -> str:
        """A changed text. In a file, that of a disabled rule says so."""
        more: dict[str, Any] = {"shadow": True} if shadow else {}
        more |= {"enabled": False} if self.model.is_disabled and not self.model.keeps_versions else {}
        return json.dumps(rule(version=1, suppress={"for": suppress}, **more))

    # ------------------------------------------------------------------ clicks

    def clicks(self) -> list[Callable[[], None]]:
        """What the page offers now."""
        model = self.model
        used, shadow = model.in_use
        if not model.versions:
            return [self.save_version]
        clicks = [self.save_version, self.save_version, self.change_title, self.save_test, self.write_form, self.label]
        clicks += [self.lose_a_race, self.remove_all, self.kill, *([self.admit] if model.killed else [])]
        if used is not None:
            clicks += [self.save_shadow, self.save_shadow]
        if used is not None or shadow is not None:
            clicks += [self.disable]
        else:
            clicks += [self.enable, self.enable]
        if shadow is not None:
            clicks += [self.promote, self.promote]
        if self.others:
            clicks += [self.use, self.use]
        if len(model.versions) > 1:
            clicks += [self.remove]
        if self.former:
            clicks += [self.go_back]
        return clicks

    @property
    def others(self) -> list[int]:
        """The versions that have a button *Use it* or *Go back to it*."""
        versions = self.shown_rule["versions"]
        states = {one["version"]: one["state"] for one in versions}
        return [number for number, state in states.items() if state not in ("on", "shadow") and len(states) > 1]

    @property
    def former(self) -> list[int]:
        """The versions that the history has, and the source does not."""
        entries = self.client.good("POST", "/api/history", {"id": "pair"})["entries"]
        return sorted({one["version"] for one in entries if "source" in one} - self.model.versions.keys())

    def save_version(self) -> None:
        self.save(shadow=False)

    def save_shadow(self) -> None:
        self.save(shadow=True)

    def change_title(self) -> None:
        """The version stays, and so does what is in force."""
        self.number += 1
        title = f"Title {self.number}"
        self.rewrite("/api/form", notes={"title": title, "description": "It's so.\nAsk ann."})
        assert f"title: {title}\n" in self.text()

    def label(self) -> None:
        self.number += 1
        fields = json.loads(json.dumps(self.client.good("POST", "/api/check", {"text": self.text(), "id": "pair"})))
        assert fields["effect"]["effect"] == "unchanged", fields
        lines = self.text().splitlines()
        kept = [line for line in lines if not line.startswith("expires:")]
        self.ask("/api/save", text="\n".join([*kept, f"expires: 20{self.number % 60 + 30}-01-01T00:00:00Z"]) + "\n")

    def save_test(self) -> None:
        self.number += 1
        self.rewrite("/api/test", events=EVENTS, name=f"test {self.number}")
        assert f"name: test {self.number}\n" in self.text()

    def write_form(self) -> None:
        self.number += 1
        is_shadow, number = "shadow: true" in self.text(), self.model.next
        self.rewrite("/api/form", form=FORM | {"within": [self.number, "MINUTE"]})
        self.model.put(number, shadow=is_shadow)

    def lose_a_race(self) -> None:
        """Somebody else saves first: nothing is saved, the texts are compared, and the text becomes the version after it."""
        tag = self.shown_rule["tag"]
        self.save(shadow=False)
        mine = self.edited(f"{self.number} hours")
        for path, more in (("/api/save", {"text": mine}), ("/api/disable", {}), ("/api/remove", {"version": None})):
            status, answer = self.client.ask("POST", path, {"id": "pair", "tag": tag, **more})
            assert status == 412, answer
        self.follow()
        number = self.model.next
        self.ask("/api/save", text=mine)
        self.model.put(number, shadow=False)

    def use(self) -> None:
        number = self.random.choice(self.others)
        self.ask("/api/enable", version=number)
        self.model.use(number)

    def disable(self) -> None:
        self.ask("/api/disable")
        self.model.disable()

    def enable(self) -> None:
        self.ask("/api/enable", version=None)
        self.model.enable()

    def promote(self) -> None:
        self.ask("/api/promote")
        self.model.promote()

    def remove(self) -> None:
        number = self.random.choice([*self.model.versions])
        self.ask("/api/remove", version=number)
        self.model.drop([number])

    def remove_all(self) -> None:
        self.ask("/api/remove", version=None)
        self.model.versions.clear()

    def go_back(self) -> None:
        number = self.random.choice(self.former)
        self.ask("/api/rollback", version=number)
        self.model.roll_back(number)

    def kill(self) -> None:
        listed = [number for number in self.model.in_set.values() if not self.model.is_killed(number)]
        number = self.random.choice([None, *listed])
        if number not in self.model.killed:
            self.ask("/api/kill", version=number, reason="too many alerts")
            self.model.killed.add(number)
            self.model.kill_out()

    def admit(self) -> None:
        number = self.random.choice([*self.model.killed])
        self.ask("/api/unkill", name="pair" if number is None else f"pair@{number}")
        self.model.killed.remove(number)

    # ------------------------------------------------------------------ the query

    def follow(self) -> None:
        """The query reads the kill list and the rules, and the model follows."""
        discovered = self.factory.create_pattern_processor_discoverer().initial_pattern_processors()
        self.query._apply_kill_list()
        self.query.on_pattern_processors_updated(discovered)
        self.query.planned(self.query.version, self.query.version)
        self.model.read()

    def in_force(self) -> InForce:
        """What the query uses, which refuses nothing."""
        states = [one for one in self.query.current_status().rules if one.id == "pair"]
        assert {one.state for one in states} <= {"in force", "shadow", "killed"}, states
        used, shadow = ([one.version for one in states if one.state == state] for state in ("in force", "shadow"))
        assert len(used) <= 1 >= len(shadow), states
        return (used or [None])[0], (shadow or [None])[0]

    def shown(self) -> InForce:
        """What the page says of the source."""
        rules = [one for one in self.client.good("GET", "/api/rules")["rules"] if one["id"] == "pair"]
        on, shadow = ([one["version"] for one in rules if one["state"] == state] for state in ("on", "shadow"))
        return (on or [None])[0], (shadow or [None])[0]

    def step(self) -> None:
        self.random.choice(self.clicks())()
        self.follow()
        assert self.shown() == self.model.in_use
        assert (self.in_force(), "query") == (self.model.in_force, "query"), self.query.current_status().rules
        if not self.model.keeps_versions:
            text = Path(self.source).read_text(encoding="utf-8")
            assert text.startswith("# ours\n")
            assert "# why\n" in text


def check_changes(folder: Path, seed: int, steps: int = STEPS, *, in_table: bool) -> None:
    (folder := folder / f"{seed}").mkdir()
    clicks = Clicks(folder, seed, in_table=in_table)
    clicks.save(shadow=False)
    clicks.follow()
    for _ in range(steps):
        try:
            clicks.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {clicks.done[-12:]}, {clicks.model}: {error}") from error
