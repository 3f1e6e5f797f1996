"""Changes of rules in documents: the files of a folder, and the set at the endpoint of a query."""

from __future__ import annotations

import os
import re
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple

from asterism.discovery.documents import WHOLE, YAML, Document, paths_at, read_document, read_file, unreadable, written
from asterism.discovery.kept_rules import (
    OFF,
    ON,
    WRONG,
    Addition,
    KeptRules,
    Rule,
    kind_text,
    no_shadow,
    promoted_text,
    removed_slots,
    removed_text,
    rules_of_template,
    shadows_last,
    unknown_rule,
    with_shadows,
)
from asterism.discovery.url import Endpoint
from asterism.discovery.yaml_editing import REMOVED, edited
from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.rules.durable_files import alone_in, replace_file
from asterism.rules.interfaces import is_shadow, promoted_item
from asterism.rules.processor import Slot
from asterism.rules.rule_templates import expanded, is_shadow_template, is_template

PAUSE = 0.2
"""Seconds between the changes of two files of a folder; a reader of the folder does not need as long to read the files."""


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
            done = [self._add(document, new) for new in shadows_last(additions)]
            for id, shadow in removed:
                for one in _find([document], id):
                    if one.shadow == shadow:
                        document.items[one.at] = REMOVED
        return [*done, *removed_slots(removed)]

    def _add(self, document: _EditedItems, new: Addition) -> str:
        items = document.items
        same = [n for n, item in enumerate(items) if _id_of(item) == new.id]
        there = [n for n in same if (is_shadow(items[n]) is True) == new.shadow]
        if len(there) > 1:
            raise PatternProcessorError(
                f"{document.where} has {len(there):,} {kind_text(shadow=new.shadow)} with the id {new.id!r}",
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
        return [removed_text(id, version) for id in ids]

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
        return [promoted_text(one.id, one.version) for one in promotions]


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
            raise no_shadow(id)
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
    return PatternProcessorError(
        f"several {kind_text(shadow=shadow)} have the id {id!r}", f"They are in {where}.", hint
    )


def _are_same(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether no item was replaced."""
    return len(before) == len(after) and all(map(is_, before, after))


def _find(documents: Sequence[_EditedItems], id: str, version: int | None = None) -> list[_EditedItem]:
    found = [_EditedItem(document, at) for document in documents for at in range(len(document.items))]
    templates = [one.item["id"] for one in found if is_template(one.item) and isinstance(_id_of(one.item), str)]
    found = [one for one in found if _id_of(one.item) == id and one.is_(version)]
    if not found:
        raise unknown_rule(id, version, next((one for one in templates if id.startswith(f"{one}/")), None))
    return found


def _rules_in(document: Document, where: str) -> Iterator[Rule]:
    for number, (item, pointer) in enumerate(zip(document.items, document.pointers, strict=True), 1):
        place = partial(_place_below, document, pointer)
        if is_template(item):
            yield from rules_of_template(item, expanded(item), where, place)
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


def _place_below(document: Document, pointer: str, rest: str) -> tuple[int, int]:
    return document.place(pointer + rest)


def _id_of(item: Any) -> Any:
    return item.get("id") if isinstance(item, Mapping) else None


# ---------------------------------------------------------------------- files


class FileRules(_ItemRules):
    """Rules in a file, or in the files of a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all(self) -> list[Rule]:
        rules = (rule for path in paths_at(self.path) for rule in _rules_at(path, alone=path == self.path))
        return with_shadows(_first_of_each(rules))

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
        return [promoted_text(one.id, one.version) for one in promotions]

    def _folder(self) -> Path:
        """The folder in which files are changed."""
        path = Path(os.path.realpath(self.path))
        return path if path.is_dir() else path.parent


def _first_of_each(rules: Iterable[Rule]) -> list[Rule]:
    """Mark all but the first of several enabled rules with the same id, and of several shadows."""
    found: list[Rule] = []
    first: dict[Slot, Rule] = {}
    for rule in rules:
        counts = rule.state == ON and _id_of(rule.item) == rule.id
        other = first.setdefault(rule.slot, rule) if counts else rule
        if other is not rule:
            where = "" if other.where == rule.where else f", the other is in {other.where}"
            rule = replace(rule, state=WRONG, twice=f"two {kind_text(shadow=rule.shadow)} have this id{where}")
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
        return with_shadows(_rules_in(self._read()[0], self.endpoint.shown))

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
