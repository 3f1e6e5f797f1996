"""Rules as users see and change them, including those that are not in use."""

from __future__ import annotations

import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from asterism.arguments import expect_string
from asterism.discovery.database import Database, parsed_url
from asterism.discovery.documents import WHOLE, YAML, Document, paths_at, read_document, read_file, unreadable, written
from asterism.discovery.rows import Row, called, flag, item_of, needs_parameters, version_of
from asterism.discovery.sql_table import TABLE, Table, parameter_rows
from asterism.discovery.url import Endpoint
from asterism.discovery.yaml_editing import REMOVED, edited
from asterism.errors import (
    AsterismError,
    PatternProcessorError,
    RuleNotFoundError,
    RuleSourceError,
    VersionConflictError,
)
from asterism.rules.durable_files import alone_in, replace_file
from asterism.rules.interfaces import is_shadow, promoted_item, without_flag
from asterism.rules.processor import PatternProcessor, Slot, timestamp_of
from asterism.rules.rule_templates import (
    ExpandedRule,
    expanded,
    is_shadow_template,
    is_template,
    with_decoded_pattern,
)
from asterism.text.strict_json import DocumentSyntaxError, decode, line_and_column, offset_of

ON, SHADOW, OFF, OLDER, WRONG = "on", "shadow", "off", "older", "wrong"
"""Enabled; enabled as a shadow; disabled; lower than an enabled version; undetermined."""
PAUSE = 0.2
"""Seconds between the changes of two files of a folder; a reader of the folder does not need as long to read the files."""

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
        return _named(self.id, self.processor.version, shadow=self.shadow)

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


def rules_at(source: str, table: str = TABLE, *, token: str | None = None, by: str | None = None) -> KeptRules:
    """The rules in a file, in a folder, in the database of a URL, or at the endpoint of a query.

    :param token: the token of the endpoint
    :param by: who makes changes, for a database table with the column ``changed_by``
    :raises PatternProcessorError: the URL cannot be parsed, the table name is invalid, or there is no token
    """
    if source.startswith(("http://", "https://")):
        return HttpRules(Endpoint(source, token))
    if "://" not in source:
        return FileRules(Path(source))
    expect_string(PatternProcessorError, table, "the table name must be a string", 'table="rules"')
    return SqlRules(Database(parsed_url(source)), table, by)


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


def _removed(id: str, version: int | None) -> str:
    return f"{id} removed" if version is None else f"{id} version {version} removed"


def _removed_slots(slots: Iterable[Slot]) -> list[str]:
    return [_removed(f"shadow of {id}" if shadow else id, None) for id, shadow in slots]


def _named(id: str, version: int, *, shadow: bool) -> str:
    return f"shadow of {id} version {version}" if shadow else f"{id} version {version}"


def _promoted(id: str, version: int | None) -> str:
    """:param version: None: of a template, which needs none"""
    return f"{id} promoted" if version is None else f"{id} version {version} promoted"


def _kind(*, shadow: bool) -> str:
    return "shadows" if shadow else "processors"


def _shadows_last(additions: Sequence[Addition]) -> list[Addition]:
    """A version becomes a shadow after another one has replaced it."""
    return sorted(additions, key=lambda new: new.shadow)


def _without_shadow(id: str) -> PatternProcessorError:
    return RuleNotFoundError(f"{id!r} has no shadow", hint='"shadow": true, in a version of it')


def _shown(found: Iterable[Rule]) -> list[Rule]:
    """The rules with the state of shadows."""
    return [replace(one, state=SHADOW) if one.state == ON and one.shadow else one for one in found]


def _unknown(id: str, version: int | None, template: str | None = None) -> PatternProcessorError:
    """:param template: the template of which it may be a rule"""
    hint = None if template is None else f"change the row of the template {template!r}, which can have enabled: false"
    problem = f"there is no processor {id!r}" + ("" if version is None else f" version {version}")
    return RuleNotFoundError(problem, hint=hint)


# ---------------------------------------------------------------------- items


@dataclass(slots=True)
class _EditedItems:
    """The items of a document that is being edited.

    :param where: the document
    :param items: the new items, with :data:`REMOVED` in place of each removed one
    """

    where: str
    items: list[Any]


class _ItemRules(KeptRules):
    """Rules as the items of documents. A document has one version of a rule that is enabled, and one shadow."""

    @abstractmethod
    def _documents(self) -> AbstractContextManager[Sequence[_EditedItems]]:
        """All documents, for editing. At the end all of them are written, or none if one of them cannot be."""

    @abstractmethod
    def _document(self, *, plan: bool) -> AbstractContextManager[_EditedItems]:
        """The document to which rules are added.

        :param plan: do not write it
        """

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        with self._document(plan=plan) as document:
            done = [self._add(document, new) for new in _shadows_last(additions)]
            for id, shadow in removed:
                for one in _find([document], id):
                    if one.shadow == shadow:
                        document.items[one.at] = REMOVED
        return [*done, *_removed_slots(removed)]

    def _add(self, document: _EditedItems, new: Addition) -> str:
        items = document.items
        same = [n for n, item in enumerate(items) if _id_of(item) == new.id]
        there = [n for n in same if (is_shadow(items[n]) is True) == new.shadow]
        if len(there) > 1:
            raise PatternProcessorError(
                f"{document.where} has {len(there):,} {_kind(shadow=new.shadow)} with the id {new.id!r}",
                hint="remove all but one",
            )
        others = [n for n in same if n not in there and new.has_rules_of(items[n])]
        if new.processor is not None:
            others = [n for n in same if n not in there and items[n].get("version") == new.version]
        for other in others:
            new.is_there(items[other], enabled=True)
            if new.shadow:
                raise new.in_force()
            items[other] = REMOVED  # it is promoted
        if not there:
            items.append(new.item)
            return f"{new} added"
        [at] = there
        version = items[at].get("version")
        if version == new.version and new.is_there(items[at], items[at].get("enabled") is not False):
            if new.item.get("tests") == items[at].get("tests"):
                return f"{new} already exists"
            fields = {name: value for name, value in items[at].items() if name != "tests"}
            tests = {"tests": new.item["tests"]} if "tests" in new.item else {}
            items[at] = {**fields, **tests}
            return f"{new}: tests changed"
        items[at] = new.item
        return f"{new} added, in place of " + ("another" if version is None else f"version {version}")

    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._documents() as documents:
            for one in [one for id in ids for one in _find(documents, id, version)]:
                one.document.items[one.at] = REMOVED
        return [_removed(id, version) for id in ids]

    def disable(self, ids: Sequence[str]) -> list[str]:
        with self._documents() as documents:
            # All processors with the id are disabled, because otherwise another one would come into use.
            for one in [one for id in ids for one in _find(documents, id)]:
                one.enable(False)
        return [f"{id} disabled" for id in ids]

    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._documents() as documents:
            for one in [one for id in ids for one in self._to_enable(documents, id, version)]:
                one.enable(True)
        return [f"{id} enabled" for id in ids]

    @staticmethod
    def _to_enable(documents: Sequence[_EditedItems], id: str, version: int | None) -> list[_EditedItem]:
        """The rule, its shadow, or both."""
        found, every = _find(documents, id, version), _find(documents, id)
        chosen: list[_EditedItem] = []
        for shadow in (False, True):
            mine = [one for one in found if one.shadow == shadow]
            if not mine:
                continue
            enabled = [one for one in every if one.shadow == shadow and one.item.get("enabled") is not False]
            others = [*mine[1:], *(one for one in enabled if not one.is_(version))]
            if others:
                hint = "disable them and enable one with --version, or remove all but one"
                raise _several(id, [mine[0], *others], hint, shadow=shadow)
            chosen.append(mine[0])
        return chosen

    def promote(self, ids: Sequence[str]) -> list[str]:
        with self._documents() as documents:
            promotions = [_Promotion.of(documents, id) for id in ids]
            for one in promotions:
                one.promote()
                one.remove_shadow()
        return [_promoted(one.id, one.version) for one in promotions]


class _EditedItem(NamedTuple):
    document: _EditedItems
    at: int

    @property
    def item(self) -> Any:
        return self.document.items[self.at]

    @property
    def shadow(self) -> bool:
        return is_shadow(self.item) is True

    def is_(self, version: int | None) -> bool:
        return version is None or self.item.get("version") == version

    def put(self, item: Any) -> None:
        self.document.items[self.at] = item

    def enable(self, enabled: bool) -> None:
        if self.item.get("enabled", True) is not enabled:
            self.put({**self.item, "enabled": enabled})


@dataclass(frozen=True, slots=True)
class _Promotion:
    """A shadow and the rule that it replaces, or None if there is none."""

    id: str
    version: int | None
    shadow: _EditedItem
    in_force: _EditedItem | None

    @classmethod
    def of(cls, documents: Sequence[_EditedItems], id: str) -> _Promotion:
        """:raises PatternProcessorError: there is no shadow that can be promoted"""
        found = _find(documents, id)
        shadows, others = ([one for one in found if one.shadow == shadow] for shadow in (True, False))
        if not shadows:
            raise _without_shadow(id)
        for those in (shadows, others):
            if len(those) > 1:
                raise _several(id, those, "remove all but one", shadow=those is shadows)
        return cls(id, promoted_item(shadows[0].item).get("version"), shadows[0], others[0] if others else None)

    @property
    def in_two_documents(self) -> bool:
        return self.in_force is not None and self.in_force.document is not self.shadow.document

    def promote(self) -> None:
        """Put the promoted version where the rule is, if that is another document, and otherwise where the shadow is."""
        item = promoted_item(self.shadow.item)
        if self.in_force is None:
            self.shadow.put(item)
        elif self.in_two_documents:
            self.in_force.put(item)
        else:
            self.shadow.put(item)
            self.in_force.put(REMOVED)

    def remove_shadow(self) -> None:
        if self.in_two_documents:
            self.shadow.put(REMOVED)


def _several(id: str, found: Sequence[_EditedItem], hint: str, *, shadow: bool) -> PatternProcessorError:
    where = ", ".join(dict.fromkeys(one.document.where for one in found))
    return PatternProcessorError(f"several {_kind(shadow=shadow)} have the id {id!r}", f"They are in {where}.", hint)


def _are_same(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether no item was replaced."""
    return len(before) == len(after) and all(map(is_, before, after))


def _find(documents: Sequence[_EditedItems], id: str, version: int | None = None) -> list[_EditedItem]:
    found = [_EditedItem(document, at) for document in documents for at in range(len(document.items))]
    templates = [one.item["id"] for one in found if is_template(one.item) and isinstance(_id_of(one.item), str)]
    found = [one for one in found if _id_of(one.item) == id and one.is_(version)]
    if not found:
        raise _unknown(id, version, next((one for one in templates if id.startswith(f"{one}/")), None))
    return found


def _rules_in(document: Document, where: str) -> Iterator[Rule]:
    for number, (item, pointer) in enumerate(zip(document.items, document.pointers, strict=True), 1):
        place = partial(_place_below, document, pointer)
        if is_template(item):
            yield from _rules_of(item, expanded(item), where, place)
            continue
        fields = item if isinstance(item, Mapping) else {}
        id, version = fields.get("id"), fields.get("version")
        yield Rule(
            id if isinstance(id, str) and id else f"#{number}",
            version if isinstance(version, int) else None,
            OFF if fields.get("enabled") is False else ON,
            where,
            item,
            place=place,
        )


def _rules_of(template: Mapping[str, Any], rules: Sequence[ExpandedRule], where: str, place: Locate) -> Iterator[Rule]:
    """The rules of a template."""
    for rule in rules:
        found = {} if rule.item is None else rule.item
        state = WRONG if rule.error is not None else OFF if found.get("enabled") is False else ON
        at = place if rule.row is None else partial(_below, place, f"/rows/{rule.row}")
        yield Rule(rule.id, found.get("version"), state, where, rule.item, None, rule.error, None, at, template)


def _below(place: Locate, pointer: str, rest: str) -> tuple[int, int]:
    return place(pointer + rest)


def _place_below(document: Document, pointer: str, rest: str) -> tuple[int, int]:
    return document.place(pointer + rest)


def _first_of_each(rules: Iterable[Rule]) -> list[Rule]:
    """Mark all but the first of several enabled rules with the same id, and of several shadows."""
    found: list[Rule] = []
    first: dict[Slot, Rule] = {}
    for rule in rules:
        counts = rule.state == ON and _id_of(rule.item) == rule.id
        other = first.setdefault(rule.slot, rule) if counts else rule
        if other is not rule:
            where = "" if other.where == rule.where else f", the other is in {other.where}"
            rule = replace(rule, state=WRONG, twice=f"two {_kind(shadow=rule.shadow)} have this id{where}")
        found.append(rule)
    in_force = {(id, rule.version) for (id, shadow), rule in first.items() if not shadow}
    return [
        replace(rule, state=WRONG, twice=f"version {rule.version} is in force, so it cannot be a shadow, too")
        if rule.state == ON
        and rule.shadow
        and (rule.id, rule.version) in in_force
        and not is_shadow_template(rule.template)
        else rule
        for rule in found
    ]


def _id_of(item: Any) -> Any:
    return item.get("id") if isinstance(item, Mapping) else None


# ---------------------------------------------------------------------- files


class FileRules(_ItemRules):
    """Rules in a file, or in the files of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Rule]:
        rules = (rule for path in paths_at(self.path) for rule in _rules_at(path, alone=path == self.path))
        return _shown(_first_of_each(rules))

    @contextmanager
    def _document(self, *, plan: bool) -> Iterator[_EditedItems]:
        if self.path.is_dir():
            raise RuleSourceError(f"{self.path} is a folder", hint="copy the file into it, or add to a file in it")
        with alone_in(self._folder()):
            file = _EditedFile.at(self.path) if os.path.lexists(self.path) else _EditedFile.new(self.path)
            yield file
            if not plan:
                _write([file])

    @contextmanager
    def _documents(self) -> Iterator[Sequence[_EditedItems]]:
        with alone_in(self._folder()):
            files = [_EditedFile.at(path) for path in paths_at(self.path)]
            yield files
            _write(files)

    def promote(self, ids: Sequence[str]) -> list[str]:
        with alone_in(self._folder()):
            files = [_EditedFile.at(path) for path in paths_at(self.path)]
            promotions = [_Promotion.of(files, id) for id in ids]
            for one in promotions:
                one.promote()
            contents = [_contents(files)]
            for one in promotions:
                one.remove_shadow()
            if any(one.in_two_documents for one in promotions):
                contents.append(_contents(files))
            # A shadow of the version in force has no effect, so shadows in other files can be removed later. Because of the
            # pause, no reader sees the last change without the first.
            for number, changed in enumerate(contents):
                time.sleep(PAUSE if number else 0)
                for file, content in changed:
                    replace_file(file.path, content)
        return [_promoted(one.id, one.version) for one in promotions]

    def _folder(self) -> Path:
        """The folder in which files are changed."""
        path = Path(os.path.realpath(self.path))
        return path if path.is_dir() else path.parent


@dataclass(slots=True)
class _EditedFile(_EditedItems):
    """A file that is being edited.

    :param document: the current content, or None if the file does not exist yet
    """

    path: Path
    document: Document | None

    @classmethod
    def at(cls, path: Path) -> _EditedFile:
        document = _read(path)
        return cls(str(path), list(document.items), path, document)

    @classmethod
    def new(cls, path: Path) -> _EditedFile:
        return cls(str(path), [], path, None)

    def content(self) -> bytes | None:
        """The new content, or None if nothing has changed.

        :raises PatternProcessorError: comments would be lost
        """
        yaml = self.path.suffix in YAML
        if self.document is not None:
            if _are_same(self.document.items, self.items):
                return None
            if yaml and (text := edited(self.document, self.items)) is not None:
                return text.encode()
            if yaml and re.search(r"(^|\s)#", self.document.text):
                raise PatternProcessorError(
                    f"{self.path} seems to have comments, which would be lost", hint="edit it by hand"
                )
        return written([item for item in self.items if item is not REMOVED], yaml=yaml)


def _write(files: Sequence[_EditedFile]) -> None:
    """Write all files, or none if comments would be lost in one of them."""
    for file, content in _contents(files):
        replace_file(file.path, content)


def _contents(files: Sequence[_EditedFile]) -> list[tuple[_EditedFile, bytes]]:
    """The files that have changed, with their new contents.

    :raises PatternProcessorError: comments would be lost in one of them
    """
    return [(file, content) for file in files if (content := file.content()) is not None]


def _rules_at(path: Path, *, alone: bool) -> Iterator[Rule]:
    """Yield the rules of a file. A file that cannot be read is reported as an invalid rule, unless it is *alone*, because
    there is then nothing else to show.
    """
    try:
        text = _bytes_of(path)
    except PatternProcessorError as error:
        if alone:
            raise
        yield Rule(WHOLE, None, WRONG, str(path), error=error)
        return
    try:
        document = read_document(text, path)
    except PatternProcessorError as error:
        yield Rule(WHOLE, None, WRONG, str(path), error=error)
        return
    yield from _rules_in(document, str(path))


def _bytes_of(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _read(path: Path) -> Document:
    text = _bytes_of(path)
    try:
        return read_document(text, path)
    except PatternProcessorError as error:
        raise PatternProcessorError(f"{path}: {error.message}", error.detail, error.hint) from None


# ---------------------------------------------------------------------- an endpoint


class HttpRules(_ItemRules):
    """Rules at the endpoint of a query. The set is replaced as a whole, and only if no other client has changed it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def all(self) -> list[Rule]:
        return _shown(_rules_in(self._read()[0], self.endpoint.shown))

    @contextmanager
    def _documents(self) -> Iterator[Sequence[_EditedItems]]:
        with self._document(plan=False) as document:
            yield [document]

    @contextmanager
    def _document(self, *, plan: bool) -> Iterator[_EditedItems]:
        document, tag = self._read()
        edited = _EditedItems(self.endpoint.shown, list(document.items))
        yield edited
        if not plan and not _are_same(document.items, edited.items):
            self.endpoint.put_set(written([item for item in edited.items if item is not REMOVED]), tag)

    def _read(self) -> tuple[Document, str | None]:
        text, tag = self.endpoint.get_set()
        try:
            return read_document(text), tag
        except PatternProcessorError as error:
            raise PatternProcessorError(f"{self.endpoint.shown}: {error.message}", error.detail, error.hint) from None


# ---------------------------------------------------------------------- a table


@dataclass(frozen=True, slots=True)
class _Target:
    """A table of the library's own format that is being changed."""

    connection: sa.Connection
    form: Table
    table: sa.Table

    def column(self, name: str) -> sa.Column[Any]:
        if name not in self.form.names:
            raise PatternProcessorError(f"the table {self.table.fullname!r} has no column {name}")
        return self.table.c[self.form.names[name]]

    def is_rule(self, id: str) -> sa.ColumnElement[bool]:
        return self.column("id") == id

    def versions(self, id: str) -> dict[int, Row]:
        return {version_of(row): row for row in self.form.rows(self.connection, [id])}

    def insert(self, values: Mapping[str, Any]) -> None:
        """Insert *values*, by the column names used here. A column may be missing if its value is the default."""
        usual = {"timed_out": False, "shadow": False, "enabled": True}
        wanted = {name: v for name, v in values.items() if name in self.form.names or v != usual.get(name)}
        columns = {name: self.column(name) for name in wanted}
        self.connection.execute(
            self.table.insert().values({columns[name].name: _stored(v, columns[name]) for name, v in wanted.items()})
        )

    def changed(self, by: str | None) -> dict[str, Any]:
        """The value that tells who changes a row, if the table has a column for it."""
        return {"changed_by": by} if "changed_by" in self.form.names else {}

    def set_flag(self, name: str, value: bool, by: str | None, *where: sa.ColumnElement[bool]) -> int:
        values = {name: value, **self.changed(by)}
        columns = {name: self.column(name) for name in values}
        change = self.table.update().where(*where)
        change = change.values({columns[name].name: _stored(value, columns[name]) for name, value in values.items()})
        return self.connection.execute(change).rowcount

    def disable(self, id: str, versions: Sequence[int], by: str | None) -> None:
        if versions:
            self.set_flag("enabled", False, by, self.is_rule(id), self.column("version").in_(versions))


class SqlRules(KeptRules):
    """Rules in a database table, which may have several versions of a rule."""

    def __init__(self, database: Database, table: str, by: str | None = None) -> None:
        self.database, self.table, self.by = database, table, by

    def all(self) -> list[Rule]:
        try:
            with self.database.read() as connection:
                form = Table.of(connection, self.table)
                form.check_size(connection)
                rows = form.rows(connection)
                parameters = parameter_rows(connection, self.table) if any(map(needs_parameters, rows)) else None
        finally:
            self.database.close()
        found = [self._called(row) for row in rows] if form.is_flip else list(self._rules(rows, parameters))
        slots = [rule.slot for rule in found]
        highest: dict[Slot, int] = defaultdict(lambda: -1)
        for rule, slot in zip(found, slots, strict=True):
            if rule.state == ON and rule.version is not None:
                highest[slot] = max(highest[slot], rule.version)
        found = [
            replace(rule, state=OLDER)
            if rule.template is None and rule.version is not None and rule.version < highest[slot]
            else rule
            for rule, slot in zip(found, slots, strict=True)
        ]
        often = Counter(slot for rule, slot in zip(found, slots, strict=True) if rule.state == ON and rule.call is None)
        found = [
            replace(rule, state=WRONG, twice=f"{often[slot]} rows have this version")
            if rule.state == ON and often[slot] > 1
            else rule
            for rule, slot in zip(found, slots, strict=True)
        ]
        return sorted(_shown(found), key=lambda rule: (rule.id, -1 if rule.version is None else rule.version))

    def _rules(self, rows: Sequence[Row], parameters: Mapping[str | None, Sequence[Row]] | None) -> Iterator[Rule]:
        templates: dict[Slot, list[Rule]] = defaultdict(list)
        for row in rows:
            rule = self._rule(row)
            if is_template(rule.item):
                templates[rule.slot].append(rule)
            else:
                yield rule
        for (id, _), versions in templates.items():
            # The versions of its rules are no versions of the template, so only those of the version in use are shown.
            used = max(versions, key=lambda rule: (rule.state == ON, rule.version))
            given = None if parameters is None else parameters.get(id, [])
            for rule in _rules_of(used.item, expanded(used.item, given), self.table, used.place):
                yield rule if used.state == ON or rule.state == WRONG else replace(rule, state=OFF)

    def _rule(self, row: Row) -> Rule:
        rule = Rule(row["id"] or "NULL", None, WRONG, self.table, place=_place_in(row.get("pattern") or ""))
        try:
            state = ON if flag(row, "enabled", default=True) else OFF
            return replace(rule, version=version_of(row), state=state, item=item_of(row))
        except PatternProcessorError as error:
            return replace(rule, error=error)

    def _called(self, row: Row) -> Rule:
        rule = Rule(row["uid"] or "NULL", None, WRONG, self.table)
        try:
            return replace(rule, state=ON, call=called(row))
        except PatternProcessorError as error:
            return replace(rule, error=error)

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        with self._target() as target:
            done = [self._add(target, new) for new in _shadows_last(additions)]
            for id, shadow in removed:
                versions = _versions(target.versions(id), shadow=shadow)
                if not versions:
                    raise _unknown(id, None)
                target.connection.execute(
                    target.table.delete().where(target.is_rule(id), target.column("version").in_(versions))
                )
            if plan:
                target.connection.rollback()
        return [*done, *_removed_slots(removed)]

    def _add(self, target: _Target, new: Addition) -> str:
        id, version = new.id, new.version
        if version is None:
            raise PatternProcessorError(f"{new} has no version", None, "in a database, a template needs one")
        there = target.versions(id)
        if version in there:
            if new.is_there(item_of(there[version]), flag(there[version], "enabled", default=True)):
                return f"{new} already exists"
            if new.shadow and version == max(_enabled(there, shadow=False), default=None):
                raise new.in_force(versioned=True)
            target.connection.execute(
                target.table.delete().where(target.is_rule(id), target.column("version") == version)
            )
            if not new.shadow and version in _versions(there, shadow=True):  # it is promoted
                target.disable(id, [number for number in _enabled(there, shadow=True) if number != version], self.by)
        in_force = max(_enabled(there, shadow=False), default=None)
        if new.shadow and in_force is not None and new.has_rules_of(item_of(there[in_force])):
            raise new.in_force()
        higher = [v for v in _enabled(there, shadow=new.shadow) if v > version]
        if higher:
            problem = f"{new} would not be used, because version {max(higher)} exists"
            raise PatternProcessorError(problem, hint="raise the version")
        item = without_flag(new.item)[0]
        pattern = item.get("pattern")
        if pattern is None and "pattern" in target.form.names and not target.column("pattern").nullable:
            pattern = ""
        times = {name: _time_of(new, name) for name in ("timestamp", "expires")}
        target.insert(
            {
                "id": id,
                "version": version,
                "timestamp": times["timestamp"],
                "key": item.get("key"),
                "pattern": decode(pattern) if isinstance(pattern, str) and pattern else pattern,
                "sql": item.get("sql"),
                "select": item.get("select"),
                "function": item.get("function"),
                "timed_out": _in_column(new, "timedOut") or False,
                "max_partial_matches": _in_column(new, "maxPartialMatches"),
                "suppress": item.get("suppress"),
                "expires": times["expires"],
                "shadow": new.shadow,
                "labels": item.get("labels") or None,
                "parameters": item.get("parameters"),
                "rows": item.get("rows"),
                "enabled": new.enabled,
                **target.changed(item.get("changedBy") or self.by),
            }
        )
        return f"{new} added"

    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._target() as target:
            for id in ids:
                self._remove(target, id, version)
        return [_removed(id, version) for id in ids]

    @staticmethod
    def _remove(target: _Target, id: str, version: int | None = None) -> None:
        where = [target.is_rule(id), *([] if version is None else [target.column("version") == version])]
        if target.connection.execute(target.table.delete().where(*where)).rowcount == 0:
            raise _unknown(id, version)

    def disable(self, ids: Sequence[str]) -> list[str]:
        with self._target() as target:
            for id in ids:
                # All versions are disabled, because otherwise a lower one would come into use.
                if target.set_flag("enabled", False, self.by, target.is_rule(id)) == 0:
                    raise _unknown(id, None)
        return [f"{id} disabled" for id in ids]

    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._target() as target:
            return [f"{name} enabled" for id in ids for name in self._enable(target, id, version)]

    def _enable(self, target: _Target, id: str, version: int | None) -> list[str]:
        rows = target.versions(id)
        done: list[str] = []
        for shadow in (False, True):
            versions = _versions(rows, shadow=shadow)
            wanted = max(versions, default=None) if version is None else version
            if wanted is None or wanted not in versions:
                continue
            target.set_flag("enabled", True, self.by, target.is_rule(id), target.column("version") == wanted)
            target.disable(id, [number for number in versions if number > wanted], self.by)
            done.append(_named(id, wanted, shadow=shadow))
        if not done:
            raise _unknown(id, version)
        return done

    def promote(self, ids: Sequence[str]) -> list[str]:
        with self._target() as target:
            return [_promoted(id, self._promote(target, id)) for id in ids]

    def _promote(self, target: _Target, id: str) -> int:
        rows = target.versions(id)
        if not rows:
            raise _unknown(id, None)
        shadows = _enabled(rows, shadow=True)
        if not shadows:
            raise _without_shadow(id)
        version = max(shadows)
        target.set_flag("shadow", False, self.by, target.is_rule(id), target.column("version") == version)
        # Otherwise another version would be in force, or another shadow would come into use.
        higher = [number for number in _enabled(rows, shadow=False) if number > version]
        target.disable(id, [*higher, *(number for number in shadows if number != version)], self.by)
        return version

    @contextmanager
    def _target(self) -> Iterator[_Target]:
        try:
            with self.database.begin() as connection:
                form = Table.of(connection, self.table)
                if form.is_flip:
                    raise PatternProcessorError(
                        f"the table {self.table!r} has the layout of FLIP-200", hint="change it with SQL"
                    )
                source = form.source
                table = sa.Table(source.name, sa.MetaData(), schema=source.schema, autoload_with=connection)
                yield _Target(connection, form, table)
        finally:
            self.database.close()


def _in_column(new: Addition, name: str) -> Any:
    """A field of a rule whose column has another type than text, so that it cannot have a parameter."""
    value = new.item.get(name)
    if new.processor is None and isinstance(value, str) and value.startswith(":"):
        problem = f"{new}: {name} has a parameter, which the column cannot store"
        raise PatternProcessorError(problem, hint="keep the template in a file")
    return value


def _time_of(new: Addition, name: str) -> datetime | None:
    if new.processor is not None:
        return new.processor.timestamp if name == "timestamp" else new.processor.expires
    value = _in_column(new, name)
    time = None if value is None else timestamp_of(value)
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _versions(rows: Mapping[int, Row], *, shadow: bool) -> list[int]:
    return [version for version, row in rows.items() if flag(row, "shadow", default=False) == shadow]


def _enabled(rows: Mapping[int, Row], *, shadow: bool) -> list[int]:
    return [version for version in _versions(rows, shadow=shadow) if flag(rows[version], "enabled", default=True)]


def _place_in(text: str) -> Locate:
    """Find positions in the pattern of a row; the other columns have no lines."""

    def place(pointer: str) -> tuple[int, int]:
        path = pointer.removeprefix("/pattern")
        if path == pointer:
            return 1, 1
        try:
            decode(text)
        except DocumentSyntaxError as error:
            return error.line, error.column
        return line_and_column(text, offset_of(text, path))

    return place


def _stored(value: Any, column: sa.Column[Any]) -> Any:
    """Convert a value to the type of a column, because tables that were created by others may have other types."""
    kind = column.type
    if value is None:
        return sa.null()
    if isinstance(kind, sa.JSON):
        return value
    if isinstance(value, datetime):
        if isinstance(kind, sa.DateTime):
            return value if kind.timezone else value.astimezone(UTC).replace(tzinfo=None)
        return round(value.timestamp() * 1000) if isinstance(kind, sa.Integer) else value.isoformat()
    if isinstance(value, bool):
        return value if isinstance(kind, sa.Boolean) else int(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
