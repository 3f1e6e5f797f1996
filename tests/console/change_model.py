"""Every change that the page can make to a rule, in random order, against a model of what must be in force."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.rules.definition.processor import PatternProcessor
from tests.console.kit import EVENTS, Asker, application, rule

STEPS = 14
FORM: dict[str, Any] = {"shape": "sequence", "keys": ["user"], "time": "ts"}
for part, kind in (("first", "a"), ("second", "b")):
    FORM[part] = [{"column": "kind", "operator": "=", "kind": "text", "value": kind}]


@dataclass(slots=True)
class Version:
    enabled: bool = True
    shadow: bool = False
    was_used: bool = True
    """Whether it was enabled when the rule was disabled."""


@dataclass(slots=True)
class Model:
    """What a person expects: of the enabled versions the highest is in force, and a version that was rolled back stays so."""

    versions: dict[int, Version] = field(default_factory=dict)

    def of(self, *, shadow: bool) -> list[int]:
        return [number for number, version in self.versions.items() if version.enabled and version.shadow == shadow]

    @property
    def in_force(self) -> tuple[int | None, int | None]:
        """The version in force, and the shadow."""
        return max(self.of(shadow=False), default=None), max(self.of(shadow=True), default=None)

    def save(self, shadow: bool) -> None:
        self.versions[max(self.versions, default=0) + 1] = Version(shadow=shadow)

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
        again = kept or self.versions
        for shadow in (False, True):
            number = max((n for n, version in again.items() if version.shadow == shadow), default=None)
            if number is not None:
                self.use(number)

    def promote(self) -> None:
        number = max(self.of(shadow=True))
        for other, version in self.versions.items():
            if version.enabled and other != number and (version.shadow or other > number):
                version.enabled = version.was_used = False
        self.versions[number].shadow = False


class Clicks:
    """The page of one rule, as requests."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.url = f"sqlite:///{folder / f'rules{seed}.db'}"
        create_pattern_processor_table(self.url)
        self.client, self.model, self.random, self.number = Asker(application(self.url)), Model(), Random(seed), 0
        self.done: list[str] = []

    def ask(self, path: str, **fields: Any) -> None:
        shown = self.client.ask("POST", "/api/rule", {"id": "pair"})
        tag = shown[1].get("tag") if shown[0] == 200 else None
        self.done.append(f"{path} {fields.get('version', '')}")
        status, answer = self.client.ask("POST", path, {"id": "pair", "tag": tag, **fields})
        assert status == 200, (self.done, answer)

    def text(self) -> str:
        """The text that the editor shows: of the version in use, or else of the highest."""
        versions = self.client.good("POST", "/api/rule", {"id": "pair"})["versions"]
        used = next((one for one in versions if one["state"] == "on"), versions[0])
        return str(used["text"])

    def rewrite(self, path: str, **fields: Any) -> None:
        """A change of the text by the form, or by a sample that becomes a test, which is then saved."""
        text = self.client.good("POST", path, {"id": "pair", "text": self.text(), **fields})["text"]
        self.done.append(path)
        self.ask("/api/save", text=text)

    def save(self, *, shadow: bool) -> None:
        self.number += 1
        more: dict[str, Any] = {"shadow": True} if shadow else {}
        item = rule(version=1, suppress={"for": f"{self.number} minutes"}, **more)
        self.ask("/api/save", text=json.dumps(item))
        self.model.save(shadow)

    def step(self) -> None:
        """One of the clicks that the page offers now."""
        model, random = self.model, self.random
        used, shadow = model.in_force
        clicks = ["save", "save", "note", "test", "form"] if model.versions else ["save"]
        if used is not None:
            clicks += ["shadow", "use", "remove"]
        if used is not None or shadow is not None:
            clicks += ["disable"]
        elif model.versions:
            clicks += ["enable", "enable"]
        if shadow is not None:
            clicks += ["promote", "promote"]
        match random.choice(clicks):
            case "save":
                self.save(shadow=False)
            case "shadow":
                self.save(shadow=True)
            case "note":  # the version stays, and so does what is in force
                self.number += 1
                title = f"Title {self.number}"
                self.rewrite("/api/form", notes={"title": title, "description": "It's so.\nAsk ann."})
                assert f"title: {title}\n" in self.text()
            case "test":
                self.number += 1
                self.rewrite("/api/test", events=EVENTS, name=f"test {self.number}")
                assert f"name: test {self.number}\n" in self.text()
            case "form":
                self.number += 1
                is_shadow = "shadow: true" in self.text()
                self.rewrite("/api/form", form=FORM | {"within": [self.number, "MINUTE"]})
                model.save(is_shadow)
            case "use":
                number = random.choice([number for number, version in model.versions.items() if not version.shadow])
                self.ask("/api/enable", version=number)
                model.use(number)
            case "disable":
                self.ask("/api/disable")
                model.disable()
            case "enable":
                self.ask("/api/enable", version=None)
                model.enable()
            case "promote":
                self.ask("/api/promote")
                model.promote()
            case "remove":
                number = random.choice([*model.versions])
                self.ask("/api/remove", version=number)
                del model.versions[number]

    def in_force(self) -> tuple[int | None, int | None]:
        """What a query reads."""
        discoverer = SqlPatternProcessorDiscovererFactory(self.url).create_pattern_processor_discoverer()
        found = [one for one in discoverer.initial_pattern_processors() if isinstance(one, PatternProcessor)]
        plain, shadows = ([one.version for one in found if one.shadow is shadow] for shadow in (False, True))
        assert len(plain) <= 1 >= len(shadows)
        return max(plain, default=None), max(shadows, default=None)

    def shown(self) -> tuple[int | None, int | None]:
        """What the page says."""
        rules = self.client.good("GET", "/api/rules")["rules"]
        on, shadow = ([one["version"] for one in rules if one["state"] == state] for state in ("on", "shadow"))
        return (on or [None])[0], (shadow or [None])[0]


def check_changes(folder: Path, seed: int) -> None:
    clicks = Clicks(folder, seed)
    clicks.save(shadow=False)
    for _ in range(STEPS):
        clicks.step()
        assert clicks.in_force() == clicks.shown() == clicks.model.in_force, (seed, clicks.done, clicks.model)
