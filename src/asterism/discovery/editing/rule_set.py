"""The algebra of rule sets: what it means to add, remove, enable, disable and promote rules, without input and output. The places
of rules, which load and save sets, are in :mod:`~asterism.discovery.editing.kept_rules`.

A set has the versions of a rule that come into force in turn (:func:`~asterism.rules.definition.processor.fits`), and likewise
its shadows. A new version takes the place of those that it does not fit. A document then no longer has these; a database table
keeps them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from operator import is_
from typing import Any, TypeVar

from asterism.errors import (
    AsterismError,
    PatternProcessorError,
    RuleNotFoundError,
    RuleSourceError,
    VersionConflictError,
)
from asterism.rules.definition.processor import (
    MAX_PROCESSORS,
    PatternProcessor,
    RuleVersion,
    Slot,
    by_slot,
    fits,
    point_in_time,
)
from asterism.rules.definition.rule_templates import is_shadow_template, is_template, with_decoded_pattern
from asterism.rules.sets.interfaces import is_shadow, promoted_item, without_flag

_R = TypeVar("_R")


class ItemInSlot:
    """Something that is known by the id and the JSON form of a rule."""

    __slots__ = ()
    id: Any
    item: Any

    @property
    def shadow(self) -> bool:
        return is_shadow(self.item) is True

    @property
    def slot(self) -> Slot:
        return self.id, self.shadow

    @property
    def timestamp(self) -> datetime | None:
        """The event time from which it is in force; None: it has none that can be read."""
        with suppress(PatternProcessorError):
            return point_in_time(self.item.get("timestamp") if isinstance(self.item, Mapping) else None, "timestamp")
        return None


@dataclass(frozen=True, slots=True)
class Addition(ItemInSlot):
    """A checked rule, or a template (without *processor*), to be added. A rule with the version of its shadow replaces both."""

    item: Mapping[str, Any]
    processor: PatternProcessor | None = None

    @property
    def id(self) -> str:
        return str(self.item["id"])

    @property
    def version(self) -> int | None:
        return self.item.get("version")

    def __str__(self) -> str:
        if self.processor is None:
            return f"shadow of template {self.id}" if self.shadow else f"template {self.id}"
        return version_text(self.id, self.processor.version, shadow=self.shadow)

    def as_shadow(self) -> Addition:
        processor = None if self.processor is None else replace(self.processor, shadow=True)
        return Addition({**self.item, "shadow": True}, processor)

    @property
    def enabled(self) -> bool:
        return without_flag(self.item)[1]

    def is_there(self, item: Any, enabled: bool) -> bool:
        """Whether *item*, which has the same version, is this rule. It may be replaced if it cannot be used, or if its labels,
        *expires*, *shadow* or *enabled* differ.

        :raises VersionConflictError: it is another rule
        """
        if self.processor is None or is_template(item):
            is_same = self.has_rules_of(item) and item.get("version") == self.version
            return is_same and (is_shadow(item) is True) == self.shadow and enabled == self.enabled
        try:
            there = PatternProcessor.from_dict(without_flag(item)[0])
        except AsterismError:
            return False
        if not there.has_definition_of(self.processor):
            raise VersionConflictError(
                f"{self} already exists with another definition",
                "The definition of a version cannot change.",
                "raise the version",
            )
        return there == self.processor and enabled == self.enabled

    def has_rules_of(self, item: Any) -> bool:
        """Whether *item* is a template with the same rules, which may be shadows."""
        return self.processor is None and is_template(item) and _meaning(item) == _meaning(self.item)

    def in_force(self, *, versioned: bool = False) -> VersionConflictError:
        """The error if its version is in force, and it is a shadow; of a template, if its rules are.

        :param versioned: whether versions of templates are distinct, as in a table
        """
        if self.processor is None and not versioned:
            problem = f"the template {self.id!r} is in force with the same rules, so it cannot be a shadow, too"
            return VersionConflictError(problem, hint="change a row of it, or the rule")
        problem = f"version {self.version} of {self.id!r} is in force, so it cannot be a shadow, too"
        return VersionConflictError(problem, hint="raise the version")


def _meaning(template: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a template that are not the default, to compare a table with a file; without its version and *shadow*."""
    fields = with_decoded_pattern(without_flag(template)[0])
    return {
        name: value
        for name, value in fields.items()
        if value not in (None, False, [], {}) and name not in ("version", "changedBy", "changedAt", "comment", "shadow")
    }


@dataclass(frozen=True)
class StoredRule(ItemInSlot):
    """A rule, or a template, as it is stored; it may be invalid.

    :param item: its JSON form, with ``"enabled": false`` if it is disabled
    :param where: the document or the table
    :param number: its position there; None: it is new
    :param withdrawn: whether it was disabled while its rule stayed enabled; None: the place does not record it
    """

    item: Any
    where: str = ""
    number: int | None = None
    withdrawn: bool | None = None

    @cached_property
    def id(self) -> str:
        id = self.item.get("id") if isinstance(self.item, Mapping) else None
        return id if isinstance(id, str) else ""

    @property
    def version(self) -> Any:
        return self.item.get("version")

    @property
    def enabled(self) -> bool:
        return self.item.get("enabled") is not False

    @cached_property
    def text(self) -> bytes:
        """The JSON form as text, on one line."""
        # JSON can represent an unpaired surrogate, but UTF-8 cannot.
        return json.dumps(self.item, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")

    def has_version(self, version: int | None) -> bool:
        return version is None or self.version == version

    @cached_property
    def slot(self) -> Slot:
        return self.id, self.shadow

    @cached_property
    def slots(self) -> list[Slot]:
        """Those of its rules: one, unless it is a template."""
        if not is_template(self.item):
            return [self.slot]
        rows = self.item.get("rows")
        every = is_shadow_template(self.item)
        return [
            (f"{self.id}/{row.get('id')}", every or row.get("shadow") is True)
            for row in (rows if isinstance(rows, list) else ())
            if isinstance(row, Mapping)
        ]


@dataclass(frozen=True)
class RuleSet:
    """The rules at a place. A change returns another set, and what it has done, as messages; it changes all the rules that it
    names, or raises an error.

    :param where: the document or table to which rules are added that it does not have in another one
    :param is_folder: whether it is a folder instead, so that no rules can be added
    :param keeps_versions: whether the versions that others have replaced stay, as in a table
    :param keeps_tests: whether the place stores the tests of rules; a table may have no column for them

    >>> rules, _ = RuleSet().add([Addition({"id": "a", "version": 1}, PatternProcessor("a", 1, sql="PATTERN (A)"))])
    >>> rules, done = rules.disable(["a"])
    >>> done, rules.get(("a", False)).item
    (['a disabled'], {'id': 'a', 'version': 1, 'enabled': False})
    """

    rules: tuple[StoredRule, ...] = ()
    where: str = ""
    is_folder: bool = False
    keeps_versions: bool = False
    keeps_tests: bool = True

    @classmethod
    def of(cls, items: Iterable[Any], where: str, **options: bool) -> RuleSet:
        return cls(tuple(StoredRule(item, where, number) for number, item in enumerate(items)), where, **options)

    def used(self) -> Sequence[StoredRule]:
        """The rules without versions that other ones have replaced; disabled ones, too."""
        if not self.keeps_versions:
            return self.rules
        return [rule for versions in by_slot(self.rules).values() for rule in _used(versions)]

    def __len__(self) -> int:
        """The number of rules, including those of templates."""
        return sum(len(rule.slots) for rule in self.used())

    @cached_property
    def text(self) -> bytes:
        """The set as a document in JSON, with a line for each rule."""
        return b'{"processors": [' + b",".join(b"\n" + rule.text for rule in self.used()) + b"\n]}\n"

    def get(self, slot: Slot) -> StoredRule | None:
        """A rule, a template or a shadow, of several versions the last one; None: there is none."""
        versions = [rule for rule in self.of_id(slot[0]) if rule.shadow == slot[1]]
        return _used(versions)[-1] if versions else None

    def of_id(self, id: str) -> list[StoredRule]:
        return [rule for rule in self.rules if rule.id == id]

    def is_same(self, other: RuleSet) -> bool:
        """Whether a change that made one of them of the other one has changed nothing."""
        return len(self.rules) == len(other.rules) and all(map(is_, self.rules, other.rules))

    def tag(self, id: str) -> str | None:
        """Identifies what is stored with an id; None: there is nothing."""
        texts = [json.dumps(rule.where).encode() + rule.text for rule in self.of_id(id)]
        return hashlib.sha256(b"\n".join(texts)).hexdigest()[:32] if texts else None

    # ------------------------------------------------------------------ changes

    def add(self, additions: Sequence[Addition]) -> tuple[RuleSet, list[str]]:
        """Add versions of rules. Each takes the place of those that it does not fit, and one without a timestamp that of all."""
        return self._changed(additions, [])

    def put_all(self, additions: Sequence[Addition]) -> tuple[RuleSet, list[str]]:
        new = {addition.slot for addition in additions}
        return self.apply(additions, [slot for slot in dict.fromkeys(r.slot for r in self.rules) if slot not in new])

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot]) -> tuple[RuleSet, list[str]]:
        """Replace rules by *additions*, which are all their versions, and remove those that *removed* names by id and shadow."""
        return self._changed(additions, removed, is_complete=True)

    def _changed(
        self, additions: Sequence[Addition], removed: Sequence[Slot], *, is_complete: bool = False
    ) -> tuple[RuleSet, list[str]]:
        """:param is_complete: whether *additions* are all versions of their rules"""
        versions: dict[Slot, list[Addition]] = {}
        for addition in sorted(additions, key=lambda addition: addition.shadow):
            others = versions.setdefault(addition.slot, [])
            if others and not self._can_have(addition, others):
                raise two_rules(addition.slot)
            others.append(addition)
        if additions and self.is_folder:
            raise RuleSourceError(f"{self.where} is a folder", hint="copy the file into it, or add to a file in it")
        draft = _Draft(self, [*(addition.id for addition in additions), *(id for id, _ in removed)])
        leaving = frozenset(removed)
        add = draft.add_version if self.keeps_versions else draft.replace
        # A version becomes a shadow after another one has replaced it.
        done = [add(addition, leaving) for those in versions.values() for addition in sorted(those, key=_number)]
        for slot, those in versions.items() if is_complete else ():
            done += draft.withdraw_others(slot, {addition.version for addition in those})
        for id, shadow in removed:
            for at in [at for at, rule in draft.find(id).items() if rule.shadow == shadow]:
                draft.remove(at)
            done.append(done_text(f"shadow of {id}" if shadow else id, None, "removed"))
        after = draft.done()
        if not self.keeps_versions:
            _check_slots(after.rules, additions)
        return after, done

    def _can_have(self, new: Addition, others: Sequence[Addition]) -> bool:
        """Whether *new* can be added together with others of its slot."""
        if self.keeps_versions:
            return new.version not in {other.version for other in others}
        return not any(is_template(other.item) for other in (new, *others)) and fits_others(new, others)

    def remove(self, ids: Sequence[str], version: int | None = None) -> tuple[RuleSet, list[str]]:
        draft = _Draft(self, ids)
        for id in ids:
            for at in draft.find(id, version):
                draft.remove(at)
        return draft.done(), [done_text(id, version, "removed") for id in ids]

    def disable(self, ids: Sequence[str], version: int | None = None) -> tuple[RuleSet, list[str]]:
        """Disable rules, or one version of them. A table may then have an earlier version that is in use; if none is, it records
        which ones were.
        """
        draft = _Draft(self, ids)
        for id in ids:
            # All versions are disabled, because otherwise another one would come into use.
            draft.disable(id, version)
        return draft.done(), [done_text(id, version, "disabled") for id in ids]

    def enable(self, ids: Sequence[str], version: int | None = None) -> tuple[RuleSet, list[str]]:
        """Use *version* of each rule and none above it. Without *version*, use the versions that were in use when the rule was
        disabled: the highest version and the highest shadow that were not withdrawn, with the versions before them that come into
        force in turn.
        """
        draft, done = _Draft(self, ids), []
        for id in ids:
            named = [*draft.find(id, version).values()]
            if version is None and self.keeps_versions:
                named = _last_used(named)
            for shadow in (False, True):
                slot = draft.in_slot((id, shadow))
                wanted = [rule for rule in named if rule.shadow == shadow]
                if not wanted:
                    continue
                chosen = {_number(rule) for rule in _in_turn(wanted)}
                for at, rule in slot.items():
                    if _number(rule) in chosen or _number(rule) > max(chosen):
                        draft.enable(at, _number(rule) in chosen)
                enabled = [rule for rule in draft.in_slot((id, shadow)).values() if rule.enabled]
                if not self.keeps_versions and len(_in_turn(enabled)) < len(enabled):
                    raise _several(enabled, "disable them and enable one with --version, or remove all but one")
                if self.keeps_versions:
                    done += [f"{version_text(id, number, shadow=shadow)} enabled" for number in sorted(chosen)]
            done += [] if self.keeps_versions else [f"{id} enabled"]
        return draft.done(), done

    def bring_back(self, former: Addition) -> tuple[RuleSet, list[str]]:
        """Use a version that the set does not have any more, and none above it."""
        draft = _Draft(self, [former.id])
        for at, rule in draft.in_slot(former.slot).items() if self.keeps_versions else ():
            if _number(rule) > _number(former):
                draft.enable(at, False)
        return draft.done().apply([former], [])

    def promote(self, ids: Sequence[str]) -> tuple[RuleSet, list[str]]:
        """Replace rules by their shadows, which queries continue with their partial matches."""
        draft = _Draft(self, ids)
        done = [done_text(id, draft.promote(id), "promoted") for id in ids]
        return draft.done(), done


Change = Callable[[RuleSet], tuple[RuleSet, _R]]
"""A change of a set, with its result."""


@dataclass(slots=True)
class _Draft:
    """A set in which rules with *ids* are being changed. Positions stay the same until it is done."""

    before: RuleSet
    ids: Collection[str]
    rules: list[StoredRule | None] = field(init=False)
    positions: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.rules, self.positions = list(self.before.rules), {id: [] for id in self.ids}
        for at, rule in enumerate(self.before.rules):
            if rule.id in self.positions:
                self.positions[rule.id].append(at)

    def done(self) -> RuleSet:
        after = tuple(rule for rule in self.rules if rule is not None)
        return replace(self.before, rules=after)

    def remove(self, at: int) -> None:
        self.rules[at] = None

    def put(self, at: int, item: Any) -> None:
        rule = self.rules[at]
        assert rule is not None
        self.rules[at] = replace(rule, item=item)

    def append(self, new: Addition, withdrawn: bool | None = None) -> None:
        where = next((rule.where for rule in self.of_id(new.id).values()), self.before.where)
        self.positions[new.id].append(len(self.rules))
        self.rules.append(StoredRule(new.item, where, withdrawn=withdrawn))

    def enable(self, at: int, enabled: bool) -> None:
        rule = self.rules[at]
        assert rule is not None
        if rule.item.get("enabled", True) is not enabled:
            self.put(at, {**rule.item, "enabled": enabled})
            self.withdraw(at, not enabled)

    def withdraw(self, at: int, withdrawn: bool) -> None:
        rule = self.rules[at]
        assert rule is not None
        if rule.withdrawn is not None and rule.withdrawn is not withdrawn:
            self.rules[at] = replace(rule, withdrawn=withdrawn)

    def disable(self, id: str, version: int | None) -> None:
        leaving, there = self.find(id, version), self.of_id(id)
        were_enabled = {at for at, rule in there.items() if rule.enabled}
        for at in leaving:
            self.enable(at, False)
        if were_enabled and were_enabled <= leaving.keys():
            for at in there:
                self.withdraw(at, at not in were_enabled)

    def of_id(self, id: str) -> dict[int, StoredRule]:
        return {at: rule for at in self.positions[id] if (rule := self.rules[at]) is not None}

    def in_slot(self, slot: Slot) -> dict[int, StoredRule]:
        return {at: rule for at, rule in self.of_id(slot[0]).items() if rule.slot == slot}

    def find(self, id: str, version: int | None = None) -> dict[int, StoredRule]:
        """:raises RuleNotFoundError: there is none"""
        of_version = {at: rule for at, rule in self.of_id(id).items() if rule.has_version(version)}
        if not of_version:
            templates = (rule.id for rule in self.before.rules if is_template(rule.item))
            template = next((template for template in templates if id.startswith(f"{template}/")), None)
            hint = f"change the row of the template {template!r}, which can have enabled: false"
            problem = f"there is no processor {id!r}" + ("" if version is None else f" version {version}")
            raise RuleNotFoundError(problem, hint=None if template is None else hint)
        return of_version

    def withdraw_others(self, slot: Slot, versions: Collection[int | None]) -> list[str]:
        """Remove all versions but *versions* from a document; in a table, disable those that would be used."""
        done = []
        # Without a version, one before it may be used.
        while others := [at for at, rule in self._used_in(slot).items() if rule.version not in versions]:
            for at in others:
                rule = self.in_slot(slot)[at]
                done.append(f"{version_text(rule.id, _number(rule), shadow=rule.shadow)} withdrawn")
                if self.before.keeps_versions:
                    self.enable(at, False)
                else:
                    self.remove(at)
        return done

    def _used_in(self, slot: Slot) -> dict[int, StoredRule]:
        """The versions that may be used; in a document, all."""
        there = self.in_slot(slot)
        if not self.before.keeps_versions:
            return there
        used = _in_turn(rule for rule in there.values() if rule.enabled)
        return {at: rule for at, rule in there.items() if any(rule is used_rule for used_rule in used)}

    def replaced_by(self, new: Addition | StoredRule, there: Mapping[int, StoredRule]) -> list[int]:
        """Those of *there* that *new* does not fit. A new version without a timestamp takes effect at once, and withdraws all."""
        at_once = new.timestamp is None and all(rule.version != new.version for rule in there.values())
        return [
            at
            for at, rule in there.items()
            if at_once or is_template(rule.item) or is_template(new.item) or not fits_others(new, [rule])
        ]

    def replace(self, new: Addition, leaving: frozenset[Slot]) -> str:
        """Put a version in the place of those that it does not fit."""
        there, others = self.in_slot(new.slot), self.in_slot((new.id, not new.shadow))
        if len(_in_turn(there.values())) < len(there):
            where = ", ".join(dict.fromkeys(rule.where for rule in there.values()))
            raise PatternProcessorError(
                f"{where} has {len(there):,} {kind_text(shadow=new.shadow)} with the id {new.id!r}",
                hint="remove all but one",
            )
        for at, other in others.items():
            if new.has_rules_of(other.item) if new.processor is None else other.version == new.version:
                new.is_there(other.item, enabled=True)
                if not new.shadow:
                    self.remove(at)  # it is promoted
                elif other.slot not in leaving:
                    raise new.in_force()
        replaced = self.replaced_by(new, there)
        if not replaced:
            self.append(new)
            return f"{new} added"
        at = next((at for at in replaced if there[at].version == new.version), replaced[0])
        for former_at in replaced:
            if former_at != at:
                self.remove(former_at)
        rule = there[at]
        if rule.version == new.version and new.is_there(rule.item, rule.enabled):
            if new.item.get("tests") == rule.item.get("tests"):
                return f"{new} already exists"
            fields = {name: value for name, value in rule.item.items() if name != "tests"}
            changed = ("tests", "comment", "changedBy", "changedAt")
            self.put(at, fields | {name: new.item[name] for name in changed if name in new.item})
            return f"{new}: tests changed"
        self.put(at, new.item)
        former = sorted(there[at].version for at in replaced if there[at].version is not None)
        plural = "" if len(former) == 1 else "s"
        return f"{new} added, in place of " + (
            f"version{plural} {', '.join(map(str, former))}" if former else "another"
        )

    def add_version(self, new: Addition, leaving: frozenset[Slot]) -> str:
        if new.version is None:
            raise PatternProcessorError(f"{new} has no version", None, "in a database, a template needs one")
        same = {at: rule for at, rule in self.of_id(new.id).items() if rule.version == new.version}
        in_force = [*self._used_in((new.id, False)).values()]
        is_leaving = (new.id, False) in leaving
        withdrawn = None
        for at, rule in same.items():
            if new.is_there(rule.item, rule.enabled):
                if not self.before.keeps_tests or new.item.get("tests") == rule.item.get("tests"):
                    return f"{new} already exists"
                notes = {name: new.item[name] for name in ("comment", "changedBy", "changedAt") if name in new.item}
                self.put(at, {**rule.item, **notes, "tests": new.item.get("tests") or []})
                return f"{new}: tests changed"
            if new.shadow and not is_leaving and any(rule is used_rule for used_rule in in_force):
                raise new.in_force(versioned=True)
            if not new.shadow and rule.shadow:  # it is promoted
                for other, shadow in self.in_slot((new.id, True)).items():
                    self.enable(other, shadow.enabled and shadow.version == new.version)
            if not new.enabled and rule.slot == new.slot:
                withdrawn = rule.withdrawn  # it stays disabled, for the same reason
            self.remove(at)
        if new.shadow and not is_leaving and any(new.has_rules_of(used_rule.item) for used_rule in in_force):
            raise new.in_force()
        enabled = (rule for rule in self.in_slot(new.slot).values() if rule.enabled)
        highest = max(enabled, key=_number, default=None)
        if highest is not None and _number(highest) > new.version and not fits_others(new, [highest]):
            problem = f"{new} would not be used, because version {highest.version} exists"
            raise PatternProcessorError(problem, hint="raise the version")
        self.append(new, withdrawn)
        return f"{new} added"

    def promote(self, id: str) -> int | None:
        """Put a shadow in the place of its rule, and return its version."""
        self.find(id)
        shadows, others = self.in_slot((id, True)), self.in_slot((id, False))
        if self.before.keeps_versions:
            shadows = {at: rule for at, rule in shadows.items() if rule.enabled}
        if not shadows:
            raise no_shadow(id)
        if self.before.keeps_versions:
            chosen = max(shadows, key=lambda at: _number(shadows[at]))
            version = _number(shadows[chosen])
            self.put(chosen, promoted_item(shadows[chosen].item))
            # Otherwise another version would be in force, or another shadow would come into use.
            for at, rule in {**shadows, **others}.items():
                if rule.enabled and at != chosen and (rule.shadow or _number(rule) > version):
                    self.enable(at, False)
            return version
        for those in (shadows, others):
            if len(those) > (1 if those is shadows else len(_in_turn(those.values()))):
                raise _several(list(those.values()), "remove all but one")
        [(at, shadow)] = shadows.items()
        item = promoted_item(shadow.item)
        replaced = self.replaced_by(replace(shadow, item=item), others)
        self.put(at, item)
        if replaced and others[replaced[0]].where != shadow.where:
            self.put(replaced[0], item)
            replaced[0] = at
        for former in replaced:
            self.remove(former)
        return item.get("version")


def _number(rule: RuleVersion) -> int:
    """The version of a rule; -1: it cannot be read."""
    return rule.version if isinstance(rule.version, int) else -1


def _used(versions: Sequence[StoredRule]) -> list[StoredRule]:
    """The enabled versions that come into force in turn; if none is enabled, the highest version."""
    return _in_turn(rule for rule in versions if rule.enabled) or [max(versions, key=_number)]


def _last_used(versions: Sequence[StoredRule]) -> list[StoredRule]:
    """The versions of a rule in a table that are enabled, or were before the rule was disabled.

    :raises PatternProcessorError: the table does not record which ones
    """
    enabled = [rule for rule in versions if rule.enabled]
    if any(rule.withdrawn is None for rule in versions):
        if enabled or len(versions) == 1:
            return enabled or list(versions)
        numbers = ", ".join(str(number) for number in sorted(map(_number, versions)))
        raise PatternProcessorError(
            f"it is not known which of the versions {numbers} of {versions[0].id!r} was in use",
            f"The table {versions[0].where!r} has no column withdrawn, which records it.",
            "name the version; and add a column withdrawn BOOLEAN to the table",
        )
    in_use = {rule.shadow for rule in enabled}
    kept = [rule for rule in versions if rule.enabled or not (rule.withdrawn or rule.shadow in in_use)]
    return kept or list(versions)


def _in_turn(versions: Iterable[StoredRule]) -> list[StoredRule]:
    """The highest version, and those before it that come into force in turn, as in ``rows.processors_of``; the lowest first."""
    chosen: list[StoredRule] = []
    for rule in sorted(versions, key=_number, reverse=True):
        if fits_others(rule, chosen):
            chosen.insert(0, rule)
    return chosen


def fits_others(new: RuleVersion, others: Sequence[RuleVersion]) -> bool:
    """:func:`~asterism.rules.definition.processor.fits` for versions that may be invalid."""
    return not others or (
        all(isinstance(rule_version.version, int) for rule_version in (new, *others)) and fits(new, others)
    )


def _check_slots(rules: Sequence[StoredRule], additions: Sequence[Addition]) -> None:
    """:raises PatternProcessorError: there are too many rules, or a rule and one of a template have the same id"""
    if sum(len(rule.slots) for rule in rules) > MAX_PROCESSORS:
        raise PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
    # The versions of a rule have one slot, and fit each other.
    counts = Counter({rule.slot for rule in rules if not is_template(rule.item)})
    counts.update(slot for rule in rules if is_template(rule.item) for slot in rule.slots)
    for slot in (slot for new in additions for slot in StoredRule(new.item).slots):
        if counts[slot] > 1:
            raise two_rules(slot)


# ---------------------------------------------------------------------- texts


def version_text(id: str, version: int, *, shadow: bool) -> str:
    return f"shadow of {id} version {version}" if shadow else f"{id} version {version}"


def done_text(id: str, version: int | None, done: str) -> str:
    return f"{id} {done}" if version is None else f"{id} version {version} {done}"


def kind_text(*, shadow: bool) -> str:
    return "shadows" if shadow else "processors"


def two_rules(slot: Slot) -> PatternProcessorError:
    return PatternProcessorError(f"two {kind_text(shadow=slot[1])} have the id {slot[0]!r:.60}")


def _several(rules: Sequence[StoredRule], hint: str) -> PatternProcessorError:
    where = ", ".join(dict.fromkeys(rule.where for rule in rules))
    problem = f"several {kind_text(shadow=rules[0].shadow)} have the id {rules[0].id!r}"
    return PatternProcessorError(problem, f"They are in {where}.", hint)


def no_shadow(id: str) -> PatternProcessorError:
    return RuleNotFoundError(f"{id!r} has no shadow", hint='"shadow": true, in a version of it')
