"""The shared part of all places of rules: rules as users see and change them, including those that are not in use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from asterism.discovery.editing.rule_set import Addition, Change, ItemInSlot, RuleSet, kind_text
from asterism.errors import AsterismError, PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, Slot
from asterism.rules.definition.rule_templates import ExpandedRule, is_shadow_template
from asterism.rules.sets.interfaces import without_flag
from asterism.text.strict_json import Locate, nowhere

ON, SHADOW, OFF, OLDER, WRONG = "on", "shadow", "off", "older", "wrong"
"""Enabled; enabled as a shadow; disabled; lower than an enabled version; undetermined."""

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

    def processor(self) -> PatternProcessor:
        """The rule itself.

        :raises AsterismError: it is invalid
        """
        if self.error is not None:
            raise self.error
        return PatternProcessor.from_dict(without_flag(self.item)[0])


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

    def add(self, additions: Sequence[Addition]) -> list[str]:
        return self.change(lambda rules: rules.add(additions), {addition.id for addition in additions}, adds=True)

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        ids = {*(addition.id for addition in additions), *(id for id, _ in removed)}
        return self.change(lambda rules: rules.apply(additions, removed), ids, plan=plan, adds=not removed)

    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.remove(ids, version), ids)

    def disable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.disable(ids, version), ids)

    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        return self.change(lambda rules: rules.enable(ids, version), ids)

    def promote(self, ids: Sequence[str]) -> list[str]:
        return self.change(lambda rules: rules.promote(ids), ids)


def with_next_versions(additions: Sequence[Addition], stored: Sequence[Rule]) -> list[Addition]:
    """Rules from a language without versions: each has the version of the same stored rule, or the next one.

    :param stored: all rules of the place
    """
    last: dict[str, Rule] = {}
    for rule in stored:
        if rule.version is not None and (rule.id not in last or rule.version > (last[rule.id].version or 0)):
            last[rule.id] = rule
    return [_with_next_version(addition, last.get(addition.id)) for addition in additions]


def _with_next_version(addition: Addition, last: Rule | None) -> Addition:
    assert addition.processor is not None
    version = 1
    if last is not None and last.version is not None:
        there = last.item if isinstance(last.item, Mapping) else {}
        same = any(name in there and there[name] == addition.item.get(name) for name in ("sigma", "eql"))
        if not same:
            with suppress(AsterismError):
                same = last.processor().has_definition_of(replace(addition.processor, version=last.version))
        version = last.version if same else last.version + 1
    return Addition({**addition.item, "version": version}, replace(addition.processor, version=version))


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
