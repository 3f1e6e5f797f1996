"""The shared part of all places of rules: rules as users see and change them, including those that are not in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from asterism.discovery.editing.rule_set import Addition, Change, ItemInSlot, RuleSet, StoredRule, kind_text
from asterism.errors import AsterismError, PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, Slot
from asterism.rules.definition.rule_templates import ExpandedRule, is_shadow_template
from asterism.rules.sets.interfaces import without_flag
from asterism.text.strict_json import Locate, nowhere

ON, SHADOW, OFF, OLDER, WRONG = "on", "shadow", "off", "older", "wrong"
"""Enabled; enabled as a shadow; disabled; lower than an enabled version; undetermined."""

_LANGUAGES = ("sigma", "eql")
"""The fields with a rule in a language that has no versions."""
_OF_A_VERSION = frozenset({"version", "enabled", "shadow", "adopt", "timestamp"})
"""The fields that the next version does not get."""

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Rule(ItemInSlot):
    """One stored rule.

    :param where: the file or the table
    :param item: its JSON form
    :param call: in a table of FLIP-200's format, the class name and its parameters instead
    :param error: why there is neither
    :param twice: why a valid rule is not used: another one has its id
    :param template: for a rule of a template, the JSON form of the template as it is stored
    """

    id: str
    version: int | None
    state: str
    where: str
    item: Any = None
    call: tuple[str, Sequence[Any]] | None = None
    error: AsterismError | None = None
    twice: str | None = None
    place: Locate = nowhere
    template: Mapping[str, Any] | None = None

    @property
    def stored_slot(self) -> Slot:
        """The slot of the item in its place: of a rule of a template, that of the template."""
        return self.slot if self.template is None else (str(self.template.get("id")), is_shadow_template(self.template))

    @property
    def definition(self) -> Any:
        """The JSON form without the flag that switches the rule off."""
        return without_flag(self.item)[0]

    def processor(self) -> PatternProcessor:
        """The rule itself.

        :raises AsterismError: it is invalid
        """
        if self.error is not None:
            raise self.error
        return PatternProcessor.from_dict(self.definition)


class KeptRules(ABC):
    """A place where rules are stored. Methods with several rules, which must be distinct, change all rules or none, and return
    messages about what was done.

    All methods raise :class:`~asterism.errors.PatternProcessorError` if the place cannot be read or written, or if there is
    no such rule.
    """

    @abstractmethod
    def all(self) -> list[Rule]: ...

    @abstractmethod
    def rule_set(self, ids: Collection[str] | None = None) -> RuleSet:
        """The rules as they are stored; those with *ids* suffice."""

    @abstractmethod
    def change(
        self, change: Change[_R], ids: Collection[str] | None = None, *, plan: bool = False, adds: bool = False
    ) -> _R:
        """Load the rules, apply *change*, and save the result. No other change is made in between.

        :param ids: of the rules that it depends on; None: of all
        :param plan: save nothing, but raise the errors that the change would raise
        :param adds: whether it only adds rules: a file that does not exist is then an empty one, and files of a folder that
            cannot be read do not matter
        """

    def add(self, additions: Sequence[Addition], *, as_shadows: bool = False, numbered: bool = True) -> list[str]:
        """
        :param as_shadows: whether they are added as shadows
        :param numbered: whether they have versions; otherwise they are from a language without, see :func:`with_next_versions`
        """

        def added(rules: RuleSet) -> tuple[RuleSet, list[str]]:
            new = additions if numbered else with_next_versions(additions, rules.rules)
            return rules.add([addition.as_shadow() for addition in new] if as_shadows else new)

        return self.change(added, {addition.id for addition in additions}, adds=True)

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        ids = {*(addition.id for addition in additions), *(id for id, _ in removed)}
        return self.change(lambda rules: rules.apply(additions, removed), ids, plan=plan, adds=not removed)

    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.remove(ids, version), ids)

    def disable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.disable(ids, version), ids)

    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.enable(ids, version), ids)

    def bring_back(self, former: Addition) -> list[str]:
        return self.change(lambda rules: rules.bring_back(former), [former.id], adds=True)

    def promote(self, ids: Sequence[str]) -> list[str]:
        return self.change(lambda rules: rules.promote(ids), ids)


class SeenRules(KeptRules):
    """A place whose rules are seen and checked here, and changed elsewhere. Methods that change rules raise RuleSourceError."""

    location: str

    @abstractmethod
    def _refuse(self) -> NoReturn: ...

    def rule_set(self, ids: Collection[str] | None = None) -> RuleSet:
        items: dict[int, tuple[Mapping[str, Any], str]] = {}
        for rule in self.all() if ids is None or ids else ():
            item = rule.item if rule.template is None else rule.template
            if item is not None:
                items.setdefault(id(item), (item, rule.where))  # a template once
        stored = [StoredRule(item, where, number) for number, (item, where) in enumerate(items.values())]
        return RuleSet(tuple(rule for rule in stored if ids is None or rule.id in ids), self.location, is_folder=True)

    def change(
        self, change: Change[_R], ids: Collection[str] | None = None, *, plan: bool = False, adds: bool = False
    ) -> _R:
        self._refuse()


def with_next_versions(additions: Sequence[Addition], stored: Iterable[ItemInSlot]) -> list[Addition]:
    """Rules from a language without versions: each has the version of the same stored rule, or the next one. What somebody has
    written beside the text of a stored rule, such as *suppress*, stays.

    :param stored: all rules of the place, or those with the ids of *additions*
    """
    last: dict[str, Mapping[str, Any]] = {}
    for rule in stored:
        item = rule.item if isinstance(rule.item, Mapping) else {}
        version = item.get("version")
        if type(version) is int and (rule.id not in last or version > last[rule.id]["version"]):
            last[rule.id] = item
    return [_with_next_version(addition, last.get(addition.id)) for addition in additions]


def _with_next_version(addition: Addition, last: Mapping[str, Any] | None) -> Addition:
    assert addition.processor is not None
    version, beside = 1, dict[str, Any]()
    if last is not None:
        language = next((name for name in _LANGUAGES if name in last and name in addition.item), None)
        same = language is not None and last[language] == addition.item[language]
        if not same:
            with suppress(AsterismError):
                there = PatternProcessor.from_dict(without_flag(last)[0])
                same = there.has_definition_of(replace(addition.processor, version=there.version))
        version = last["version"] if same else last["version"] + 1
        if language is not None:
            others = {*addition.item, *(_OF_A_VERSION - {"timestamp"} if same else _OF_A_VERSION)}
            beside = {name: value for name, value in last.items() if name not in others and value is not None}
    item = {**beside, **addition.item, "version": version}
    if not beside:
        return Addition(item, replace(addition.processor, version=version))
    return Addition(item, PatternProcessor.from_dict(without_flag(item)[0]))


def has_version(rules: Sequence[Rule], id: str, version: int) -> bool:
    """Whether *rules* have the version of a rule to which somebody wants to go back.

    :raises PatternProcessorError: it is a rule of a template, or the version is a shadow
    """
    there = [rule for rule in rules if rule.id == id]
    template = next((rule.stored_slot[0] for rule in there if rule.template is not None), None)
    if template is not None:
        raise PatternProcessorError(
            f"{id!r:.220} is a rule of the template {template!r:.220}",
            hint="change its row: the earlier values give the earlier version",
        )
    of_version = [rule for rule in there if rule.version == version]
    if any(rule.shadow for rule in of_version):
        raise PatternProcessorError(f"version {version} of {id!r:.220} is a shadow", hint="promote it")
    return bool(of_version)


def rules_of_template(
    template: Mapping[str, Any], rules: Sequence[ExpandedRule], where: str, place: Locate
) -> Iterator[Rule]:
    for rule in rules:
        fields = {} if rule.item is None else rule.item
        state = WRONG if rule.error is not None else OFF if fields.get("enabled") is False else ON
        at = place if rule.row is None else partial(below, place, f"/rows/{rule.row}")
        yield Rule(rule.id, fields.get("version"), state, where, rule.item, None, rule.error, None, at, template)


def below(place: Locate, pointer: str, rest: str, index: int = 0) -> tuple[int, int]:
    return place(pointer + rest, index)


def with_shadows(stored_rules: Iterable[Rule]) -> list[Rule]:
    return [replace(rule, state=SHADOW) if rule.state == ON and rule.shadow else rule for rule in stored_rules]


def twice_text(rule: Rule, other: Rule) -> str:
    """The problem of a rule that does not fit another one with its id."""
    where = "" if other.where == rule.where else f", the other is in {other.where}"
    return f"two {kind_text(shadow=rule.shadow)} have this id{where}"
