"""Rules as users see and change them, including those that are not in use: what all places of rules have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from asterism.errors import AsterismError, PatternProcessorError, RuleNotFoundError, VersionConflictError
from asterism.rules.interfaces import is_shadow, without_flag
from asterism.rules.processor import PatternProcessor, Slot
from asterism.rules.rule_templates import ExpandedRule, is_shadow_template, is_template, with_decoded_pattern

ON, SHADOW, OFF, OLDER, WRONG = "on", "shadow", "off", "older", "wrong"
"""Enabled; enabled as a shadow; disabled; lower than an enabled version; undetermined."""

Locate = Callable[[str], tuple[int, int]]
"""Maps a JSON pointer, relative to a rule, to a line and column."""


class _InSlot:
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


@dataclass(frozen=True, slots=True)
class Rule(_InSlot):
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
    place: Locate = lambda pointer: (1, 1)
    template: Mapping[str, Any] | None = None

    @property
    def stored_slot(self) -> Slot:
        """The slot of the item in its place: of a rule of a template, that of the template."""
        return self.slot if self.template is None else (str(self.template.get("id")), is_shadow_template(self.template))


@dataclass(frozen=True, slots=True)
class Addition(_InSlot):
    """A checked rule, or template, that is to be added. A rule with the version of its shadow replaces both.

    :param processor: None for a template
    """

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

        :raises PatternProcessorError: it is another rule
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

    def in_force(self, *, versioned: bool = False) -> PatternProcessorError:
        """The error if its version is in force, and it is a shadow; of a template, if its rules are.

        :param versioned: whether versions of templates are distinct, as in a table
        """
        if self.processor is None and not versioned:
            problem = f"the template {self.id!r} is in force with the same rules, so it cannot be a shadow, too"
            return PatternProcessorError(problem, hint="change a row of it, or the rule")
        problem = f"version {self.version} of {self.id!r} is in force, so it cannot be a shadow, too"
        return PatternProcessorError(problem, hint="raise the version")


def _meaning(template: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a template that are not the default, so that a table and a file can be compared; without its version, which
    plays no part, and whether it is a shadow.
    """
    fields = with_decoded_pattern(without_flag(template)[0])
    return {
        name: value
        for name, value in fields.items()
        if value not in (None, False, [], {}) and name not in ("version", "changedBy", "shadow")
    }


class KeptRules(ABC):
    """A place where rules are stored. Methods with several rules, which must be distinct, change all rules or none, and return
    messages about what was done.

    All methods raise :class:`~asterism.errors.PatternProcessorError` if the place cannot be read or written, or if there is
    no such rule.
    """

    @abstractmethod
    def all(self) -> list[Rule]: ...

    def add(self, additions: Sequence[Addition]) -> list[str]:
        return self.apply(additions, [])

    @abstractmethod
    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        """Add rules, and remove those that *removed* names by id and shadow.

        :param plan: change nothing, but raise the errors that the change would raise
        """

    @abstractmethod
    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        """Remove rules, or one version of them."""

    @abstractmethod
    def disable(self, ids: Sequence[str]) -> list[str]: ...

    @abstractmethod
    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        """Use the highest version of each rule and its highest shadow, or *version* and none above it."""

    @abstractmethod
    def promote(self, ids: Sequence[str]) -> list[str]:
        """Replace rules by their shadows, which queries continue with their partial matches."""


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
    found = [rule for rule in there if rule.version == version]
    if any(rule.shadow for rule in found):
        raise PatternProcessorError(f"version {version} of {id!r:.220} is a shadow", hint="promote it")
    return bool(found)


def rules_of_template(
    template: Mapping[str, Any], rules: Sequence[ExpandedRule], where: str, place: Locate
) -> Iterator[Rule]:
    """The rules of a template."""
    for rule in rules:
        found = {} if rule.item is None else rule.item
        state = WRONG if rule.error is not None else OFF if found.get("enabled") is False else ON
        at = place if rule.row is None else partial(_below, place, f"/rows/{rule.row}")
        yield Rule(rule.id, found.get("version"), state, where, rule.item, None, rule.error, None, at, template)


def _below(place: Locate, pointer: str, rest: str) -> tuple[int, int]:
    return place(pointer + rest)


def with_shadows(found: Iterable[Rule]) -> list[Rule]:
    """The rules with the state of shadows."""
    return [replace(one, state=SHADOW) if one.state == ON and one.shadow else one for one in found]


def shadows_last(additions: Sequence[Addition]) -> list[Addition]:
    """A version becomes a shadow after another one has replaced it."""
    return sorted(additions, key=lambda new: new.shadow)


# ---------------------------------------------------------------------- texts


def version_text(id: str, version: int, *, shadow: bool) -> str:
    return f"shadow of {id} version {version}" if shadow else f"{id} version {version}"


def removed_text(id: str, version: int | None) -> str:
    return f"{id} removed" if version is None else f"{id} version {version} removed"


def removed_slots(slots: Iterable[Slot]) -> list[str]:
    return [removed_text(f"shadow of {id}" if shadow else id, None) for id, shadow in slots]


def promoted_text(id: str, version: int | None) -> str:
    """:param version: None: of a template, which needs none"""
    return f"{id} promoted" if version is None else f"{id} version {version} promoted"


def kind_text(*, shadow: bool) -> str:
    return "shadows" if shadow else "processors"


def no_shadow(id: str) -> PatternProcessorError:
    return RuleNotFoundError(f"{id!r} has no shadow", hint='"shadow": true, in a version of it')


def unknown_rule(id: str, version: int | None, template: str | None = None) -> PatternProcessorError:
    """:param template: the template of which it may be a rule"""
    hint = None if template is None else f"change the row of the template {template!r}, which can have enabled: false"
    problem = f"there is no processor {id!r}" + ("" if version is None else f" version {version}")
    return RuleNotFoundError(problem, hint=hint)
