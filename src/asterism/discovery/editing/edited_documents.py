"""Changes of rules in documents: the files of a folder, and the set at the endpoint of a query."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from pathlib import Path
from typing import Any, TypeVar

from asterism.discovery.editing.kept_rules import (
    OFF,
    ON,
    WRONG,
    KeptRules,
    Rule,
    below,
    rules_of_template,
    twice_text,
    with_shadows,
)
from asterism.discovery.editing.rule_set import Change, RuleSet, StoredRule, fits_others
from asterism.discovery.editing.yaml_editing import REMOVED, edited
from asterism.discovery.sources.documents import (
    WHOLE,
    YAML,
    Document,
    document_at,
    paths_at,
    read_document,
    written,
)
from asterism.discovery.sources.url import Endpoint
from asterism.errors import PatternProcessorError, RuleSourceError, located
from asterism.files.durable_files import alone_in, replace_file
from asterism.rules.definition.processor import Slot
from asterism.rules.definition.rule_templates import expanded, is_shadow_template, is_template

PAUSE = 0.2
"""Seconds between the changes of two files of a folder; a reader of the folder does not need as long to read the files."""
_R = TypeVar("_R")


def rules_in(document: Document, where: str) -> Iterator[Rule]:
    for number, (item, pointer) in enumerate(zip(document.items, document.pointers, strict=True), 1):
        place = partial(below, document.place, pointer)
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


def _id_of(item: Any) -> Any:
    return item.get("id") if isinstance(item, Mapping) else None


# ---------------------------------------------------------------------- files


class FileRules(KeptRules):
    """Rules in a file, or in the files of a folder.

    :param new_file: of a folder: the name of the file to which rules are added that are in no file
    """

    def __init__(self, path: Path, new_file: str | None = None) -> None:
        self.path, self._new_file = path, new_file

    def all(self) -> list[Rule]:
        rules = (rule for path in paths_at(self.path) for rule in _rules_at(path, alone=path == self.path))
        return with_shadows(first_of_each(rules))

    def rule_set(self, ids: Collection[str] | None = None) -> RuleSet:
        return self._set_of(self._files(skip=True))

    def change(
        self, change: Change[_R], ids: Collection[str] | None = None, *, plan: bool = False, adds: bool = False
    ) -> _R:
        with alone_in(self._folder()):
            is_new = adds and not os.path.lexists(self.path)
            files = [_EditedFile(self.path)] if is_new else self._files(skip=adds)
            before = self._set_of(files)
            after, result = change(before)
            if not plan:
                _save(files, before, after)
        return result

    def _files(self, *, skip: bool) -> list[_EditedFile]:
        """:param skip: whether to leave out files of a folder that cannot be read"""
        files = []
        for path in paths_at(self.path):
            try:
                files.append(_EditedFile.at(path))
            except PatternProcessorError:
                if not skip or path in (self.path, self._target):
                    raise
        return files

    @property
    def _target(self) -> Path:
        """To which rules are added."""
        return self.path if self._new_file is None or not self.path.is_dir() else self.path / self._new_file

    def _set_of(self, files: Sequence[_EditedFile]) -> RuleSet:
        rules = [rule for file in files for rule in file.rules()]
        return RuleSet(tuple(rules), str(self._target), is_folder=self._target.is_dir())

    def _folder(self) -> Path:
        """The folder in which files are changed."""
        path = Path(os.path.realpath(self.path))
        return path if path.is_dir() else path.parent


def first_of_each(rules: Iterable[Rule]) -> list[Rule]:
    """Mark enabled rules, and shadows, after the first of their id, unless they are versions that come into force in turn."""
    marked: list[Rule] = []
    used: dict[Slot, list[Rule]] = {}
    for rule in rules:
        if rule.state == ON and _id_of(rule.item) == rule.id:
            others = used.setdefault(rule.slot, [])
            if not fits_others(rule, others):
                rule = replace(rule, state=WRONG, twice=twice_text(rule, others[0]))
            else:
                others.append(rule)
        marked.append(rule)
    in_force = {(id, rule.version) for (id, shadow), some in used.items() if not shadow for rule in some}
    return [
        replace(rule, state=WRONG, twice=f"version {rule.version} is in force, so it cannot be a shadow, too")
        if rule.state == ON
        and rule.shadow
        and (rule.id, rule.version) in in_force
        and not is_shadow_template(rule.template)
        else rule
        for rule in marked
    ]


@dataclass(frozen=True, slots=True)
class _EditedFile:
    """:param document: its content, or None if the file does not exist yet"""

    path: Path
    document: Document | None = None

    @classmethod
    def at(cls, path: Path) -> _EditedFile:
        with located(path):
            return cls(path, document_at(path))

    def rules(self) -> Sequence[StoredRule]:
        return () if self.document is None else RuleSet.of(self.document.items, str(self.path)).rules

    def content(self, rules: Sequence[StoredRule]) -> bytes | None:
        """:raises PatternProcessorError: comments would be lost"""
        there = {rule.number: rule.item for rule in rules if rule.number is not None}
        before = () if self.document is None else self.document.items
        items = [there.get(number, REMOVED) for number in range(len(before))]
        items += [rule.item for rule in rules if rule.number is None]
        yaml = self.path.suffix in YAML
        if len(before) == len(items) and all(map(is_, before, items)):
            return None
        if self.document is not None:
            if yaml and (text := edited(self.document, items)) is not None:
                return text.encode()
            if yaml and re.search(r"(^|\s)#", self.document.text):
                raise PatternProcessorError(
                    f"{self.path} seems to have comments, which would be lost", hint="edit it by hand"
                )
        return written([item for item in items if item is not REMOVED], yaml=yaml)


def _save(files: Sequence[_EditedFile], before: RuleSet, after: RuleSet) -> None:
    """Write the files that have changed, or none if comments would be lost in one of them."""
    # A shadow of the version in force has no effect, so shadows in other files can be removed later. Because of the pause, no
    # reader sees the last change without the first.
    if all(str(file.path) != after.where for file in files):
        files = [*files, _EditedFile(Path(after.where))]
    late = _promoted_elsewhere(before, after)
    steps = [_contents(files, rules) for rules in ([[*after.rules, *late]] if late else []) + [[*after.rules]]]
    for number, contents in enumerate(steps):
        time.sleep(PAUSE if number else 0)
        for path, content in contents.items():
            replace_file(path, content)


def _contents(files: Sequence[_EditedFile], rules: Iterable[StoredRule]) -> dict[Path, bytes]:
    there = defaultdict(list)
    for rule in rules:
        there[rule.where].append(rule)
    contents = ((file.path, file.content(there[str(file.path)])) for file in files)
    return {path: content for path, content in contents if content is not None}


def _promoted_elsewhere(before: RuleSet, after: RuleSet) -> list[StoredRule]:
    """The shadows that are removed because they are promoted in other files."""
    known = {id(rule) for rule in before.rules}
    put = {rule.id: rule.where for rule in after.rules if not rule.shadow and id(rule) not in known}
    there = {(rule.where, rule.number) for rule in after.rules}
    removed = [rule for rule in before.rules if rule.shadow and (rule.where, rule.number) not in there]
    return [rule for rule in removed if put.get(rule.id, rule.where) != rule.where]


def _rules_at(path: Path, *, alone: bool) -> Iterator[Rule]:
    """The rules of a file. If it cannot be read, an invalid rule; or an error if it is *alone*, with nothing else to show."""
    try:
        document = document_at(path)
    except PatternProcessorError as error:
        if alone and isinstance(error, RuleSourceError):
            raise
        yield Rule(WHOLE, None, WRONG, str(path), error=error)
        return
    yield from rules_in(document, str(path))


# ---------------------------------------------------------------------- an endpoint


class HttpRules(KeptRules):
    """Rules at the endpoint of a query. The set is replaced as a whole, and only if no other client has changed it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def all(self) -> list[Rule]:
        return with_shadows(rules_in(self._read()[0], self.endpoint.shown))

    def rule_set(self, ids: Collection[str] | None = None) -> RuleSet:
        return RuleSet.of(self._read()[0].items, self.endpoint.shown)

    def change(
        self, change: Change[_R], ids: Collection[str] | None = None, *, plan: bool = False, adds: bool = False
    ) -> _R:
        document, tag = self._read()
        before = RuleSet.of(document.items, self.endpoint.shown)
        after, result = change(before)
        if not plan and not after.is_same(before):
            self.endpoint.put_set(after.text, tag)
        return result

    def _read(self) -> tuple[Document, str | None]:
        text, tag = self.endpoint.get_set()
        with located(self.endpoint.shown):
            return read_document(text), tag
