"""The rules of an endpoint, in a file that only one process changes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from asterism.discovery.editing.rule_set import Addition, Change, RuleSet, StoredRule
from asterism.discovery.rest.application import TooLargeError
from asterism.discovery.sources.documents import MAX_BYTES, read_document, read_file, unreadable
from asterism.discovery.sources.polling import Items
from asterism.errors import AsterismError, PatternProcessorError, RuleSourceError, located
from asterism.expressions.routines.user_functions import UserFunctions, listed
from asterism.files.durable_files import NotWrittenError, replace_file
from asterism.patterns.semantics import Semantics
from asterism.rules.checking.validation import checked_processors
from asterism.rules.definition.processor import PatternProcessor, Slot
from asterism.rules.definition.rule_templates import ExpandedRule, expanded, is_template
from asterism.rules.sets.interfaces import Discovered, without_flag
from asterism.rules.sets.used_versions import LOST, UsedVersions, Versions, versions_from_bytes

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _StoredSet:
    """A set, and the versions that were ever in use."""

    rules: RuleSet
    used: UsedVersions


class StoredRuleFile:
    """The rules of an endpoint, in a file. A change takes effect after it has been written to disk.

    Changes that arrive while the file is being written are then written together, in the order of their arrival. Each sees the
    changes before it, and its result is known when all of them are on disk.

    The files ``.<name>.versions`` and ``.<name>.recent_versions`` beside it have a digest of each version, so that a version
    cannot be reused with another content.

    :param columns: see :meth:`PatternProcessorManager.columns <asterism.rules.sets.interfaces.PatternProcessorManager.columns>`
    :param udfs: the functions in Python that rules can call
    :raises PatternProcessorError: the file exists and cannot be read
    """

    def __init__(
        self,
        path: Path,
        columns: Callable[[], tuple[pa.Schema, Semantics] | None] = lambda: None,
        udfs: Callable[[], UserFunctions] = UserFunctions,
    ) -> None:
        self.path, self._columns, self._udfs = path, columns, udfs
        self.changed = threading.Event()
        """Set when there may be another set."""
        self._versions = path.with_name(f".{path.name}.versions")
        self._recent_versions = path.with_name(f".{path.name}.recent_versions")
        self._lock = threading.Lock()
        """Held by the thread that makes the waiting changes."""
        self.waiting: deque[tuple[Change[Any], Future[Any]]] = deque()
        """Changes that have not been made, with the futures of their results."""
        self._is_certain = True
        """Whether the current content is certain to be on disk, even after a power failure."""
        self._checked: dict[bytes, list[PatternProcessor]] = {}
        """The processors of the items that were checked, by their texts."""
        self._items = Items()
        rules = _sorted(RuleSet.of(_items_in(path), str(path)))
        versions = {(rule.slot, rule.version) for rule in rules.rules if rule.id}
        if len(versions) < len(rules.rules):
            raise PatternProcessorError(f"{path} has a processor without an id")
        self._stored_used = UsedVersions(_versions_in(self._versions), _versions_in(self._recent_versions))
        """The versions that are on disk."""
        self._content = _StoredSet(rules, self._stored_used.with_(_valid_in(rules)))

    def rule_set(self) -> RuleSet:
        return self._content.rules

    def processors(self) -> list[Discovered]:
        return self._items.processors([rule.item for rule in self._content.rules.rules], str(self.path))

    def checked(self, item: Any, author: str | None = None) -> Addition:
        """:raises AsterismError: the item cannot be used with the columns or, if they are not known, with any columns"""
        # Most items of a set are put unchanged.
        text = StoredRule(item).text
        processors = self._checked.get(text)
        if processors is None:
            with listed(self._udfs()):
                processors = self._checked[text] = checked_processors(item, *self._columns() or ())
        return Addition(item, None if is_template(item) else processors[0])

    def change(
        self,
        change: Change[_R],
        author: str | None = None,
        ids: Collection[str] | None = None,
        *,
        adds: bool = False,
    ) -> _R:
        """Make a change, and return its result when it is on disk.

        :raises NotWrittenError: it cannot be written
        :raises VersionConflictError: a version was used for another definition
        :raises AsterismError: the change is refused
        """
        done = Future[_R]()
        self.waiting.append((change, done))
        with self._lock:
            if not done.done():  # the thread that held the lock may have made the change
                self._make_waiting()
        self.changed.set()  # also if it was not written completely, because the new content may count
        return done.result()

    def _make_waiting(self) -> None:
        """Make the changes that wait, and write them together."""
        content = self._content
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        while self.waiting:
            change, done = self.waiting.popleft()
            try:
                after, result = change(content.rules)
                content = self._after(content, after)
                results.append((done, result, None))
            except BaseException as error:
                results.append((done, None, error))
        try:
            self._write(content)
        except BaseException as error:
            # That of a refused change, too: it may have been refused because of a change that is not on disk.
            for done, _, _ in results:
                done.set_exception(error)
            return
        for done, result, problem in results:
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)

    def _after(self, before: _StoredSet, after: RuleSet) -> _StoredSet:
        if after.is_same(before.rules):
            return before
        known = {id(rule) for rule in before.rules.rules}
        new = [rule for rule in after.rules if id(rule) not in known]
        processors = [processor for rule in new for processor in self._checked.get(rule.text) or _processors(rule.item)]
        error = next((error for processor in processors if (error := before.used.check(processor)) is not None), None)
        if error is not None:
            raise error
        after = _sorted(after)
        if len(after.text) > MAX_BYTES:
            raise TooLargeError(
                f"the set would be too large: {len(after.text)} bytes (limit {MAX_BYTES})",
                hint="remove other processors first",
            )
        in_use = ((rule.id, rule.version) for rule in after.rules)
        return _StoredSet(after, before.used.with_(processors, in_use))

    def _write(self, new: _StoredSet) -> None:
        if new.used is not self._stored_used:
            new.used.write(
                self._stored_used, partial(replace_file, self._versions), partial(replace_file, self._recent_versions)
            )
            self._stored_used = new.used
        text = new.rules.text
        if text != self._content.rules.text or not self._is_certain:
            try:
                replace_file(self.path, text)
                self._is_certain = True
            except NotWrittenError:
                self._is_certain = False
                with suppress(OSError):
                    if self.path.read_bytes() == text:  # a restart would read this content, so it is the current one
                        self._content = new
                raise
        self._content = new
        there = {rule.text for rule in new.rules.rules}
        self._checked = {
            text: processors_of_text for text, processors_of_text in self._checked.items() if text in there
        }


def _sorted(rules: RuleSet) -> RuleSet:
    def order(rule: StoredRule) -> tuple[Slot, int]:
        return rule.slot, rule.version if rule.id and isinstance(rule.version, int) else -1

    return replace(rules, rules=tuple(sorted(rules.rules, key=order)))


def _valid_in(rules: RuleSet) -> Iterator[PatternProcessor]:
    for rule in rules.rules:
        with suppress(AsterismError):  # it is refused when it is used
            yield from _processors(rule.item)


def _items_in(path: Path) -> Sequence[Any]:
    try:
        text = read_file(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path, error) from None
    with located(path):
        return read_document(text, "set.json").items


def _versions_in(path: Path) -> Versions:
    try:
        return versions_from_bytes(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise RuleSourceError(f"{path} cannot be read", f"{type(error).__name__}: {error}"[:200], LOST) from None


def _processors(item: Any) -> list[PatternProcessor]:
    """:raises AsterismError: a processor cannot be used"""
    rules = expanded(item) if is_template(item) else [ExpandedRule("", item)]
    return [PatternProcessor.from_dict(without_flag(rule.item)[0]) for rule in rules if rule.error is None]
