"""Pattern processors in a file that only one process changes."""

from __future__ import annotations

import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from asterism.discovery.documents import MAX_BYTES, read_document, unreadable
from asterism.discovery.polling import Items
from asterism.errors import AsterismError, PatternProcessorError, RuleSourceError
from asterism.expressions.aggregates import check_measure
from asterism.expressions.names import check_names
from asterism.patterns.compiler import beyond_flink, compile_pattern
from asterism.patterns.conditions import SqlCondition
from asterism.patterns.semantics import Semantics
from asterism.patterns.sequence import PatternSequence
from asterism.rules.durable_files import NotWrittenError, replace_file
from asterism.rules.interfaces import (
    Discovered,
    RefusedProcessor,
    is_shadow,
    promoted_item,
    slots_of,
    without_flag,
)
from asterism.rules.processor import MAX_PROCESSORS, PatternProcessor, Slot
from asterism.rules.rule_templates import ExpandedRule, expanded, is_shadow_template, is_template
from asterism.rules.used_versions import LOST, UsedVersions, Versions, versions_from_bytes
from asterism.rules.validation import check_clause, parse_sql


class ConflictError(PatternProcessorError):
    """The version already exists with another content."""


class ChangedError(PatternProcessorError):
    """A change was made for a content that is not the current one."""


class TooLargeError(PatternProcessorError):
    """The set would be too large to be read again."""


Precondition = Callable[[bytes | None], bool]
"""Whether a change may be made to this content, or to None if there is none."""
_NO_PART_OF_TEMPLATES = ("version", "shadow", "changedBy")
"""Fields of a template that do not change its rules, apart from whether they are shadows."""
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of putting a set."""

    accepted: Sequence[Slot]
    refused: Sequence[RefusedProcessor]
    removed: Sequence[Slot]


@dataclass(frozen=True, slots=True)
class _StoredItem:
    """An item of a set.

    :param text: its JSON form as text
    :param slots: those of its processors: one, unless it is a template
    :param processors: None: the item has not been validated
    """

    item: Any
    text: bytes
    slots: Sequence[Slot]
    processors: Sequence[PatternProcessor] | None = None

    @classmethod
    def of(cls, item: Any, processors: Sequence[PatternProcessor] | None = None) -> _StoredItem:
        return cls(item, _text_of(item), _rule_slots(item), processors)

    @property
    def slot(self) -> Slot:
        return _slot_of(self.item)


_Items = Mapping[Slot, _StoredItem]


@dataclass(frozen=True, slots=True)
class _SetContent:
    """A set, and the versions that were ever in use."""

    items: _Items
    text: bytes
    used: UsedVersions

    def with_items(self, items: _Items, accepted: Iterable[_StoredItem] = ()) -> _SetContent:
        """Another set.

        :param accepted: the valid items among *items* that were put
        :raises PatternProcessorError: a slot is taken twice, or the set is too large
        """
        slots = [slot for one in items.values() for slot in one.slots]
        if len(slots) > MAX_PROCESSORS:
            raise PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
        _refuse_duplicate(slots)
        text = _written(items)
        if len(text) > MAX_BYTES:
            raise TooLargeError(
                f"the set would be too large: {len(text)} bytes (limit {MAX_BYTES})",
                hint="remove other processors first",
            )
        in_use = ((id, one.item.get("version")) for (id, _), one in items.items())
        found = [processor for one in accepted for processor in one.processors or ()]
        return _SetContent(items, text, self.used.with_(found, in_use))

    def text_of(self, slot: Slot) -> bytes | None:
        found = self.items.get(slot)
        return None if found is None else found.text

    def check(self, new: _StoredItem) -> None:
        """:raises ConflictError: the version of a processor was used for another definition"""
        for found in new.processors or ():
            if self.used.check(found) is None:
                continue
            is_there = found.version in [_version_in(self.items, (new.slot[0], shadow)) for shadow in (False, True)]
            raise ConflictError(
                f"version {found.version} of {found.id!r} {'already exists' if is_there else 'existed before'}, "
                "with another definition",
                "The definition of a version cannot change."
                if is_there
                else "The definition of a version cannot change, even after its removal.",
                "raise the version",
            )


class StoredRuleFile:
    """The processors in a file, and their shadows. A change takes effect after it has been written to disk, and is made only if
    the current content satisfies its condition.

    Changes that arrive while the file is being written are then written together, in the order of their arrival. Each sees the
    changes before it, and its result is known when all of them are on disk.

    The files ``.<name>.versions`` and ``.<name>.recent_versions`` beside it have a digest of each version, so that a version
    cannot be reused with another content.

    :raises PatternProcessorError: the file exists and cannot be read
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = path.with_name(f".{path.name}.versions")
        self._recent_versions = path.with_name(f".{path.name}.recent_versions")
        self._lock = threading.Lock()
        """Held by the thread that makes the waiting changes."""
        self.waiting: deque[tuple[Callable[[_SetContent], tuple[_SetContent, Any]], Future[Any]]] = deque()
        """Changes that have not been made, with the callbacks for their results."""
        self._is_certain = True
        """Whether the current content is certain to be on disk, even after a power failure."""
        self._read = Items()
        items: dict[Slot, _StoredItem] = {}
        for item in _items_in(path):
            if not _id_of(item) or _slot_of(item) in items:
                raise PatternProcessorError(f"{path} has a processor without an id")
            items[_slot_of(item)] = _StoredItem.of(item)
        self._stored_used = _used_in(self._versions, self._recent_versions)
        """The versions that are on disk."""
        self._content = _SetContent(items, _written(items), self._stored_used.with_(_valid_in(items)))

    def __len__(self) -> int:
        """The number of processors, including those of templates."""
        return sum(len(one.slots) for one in self._content.items.values())

    @property
    def text(self) -> bytes:
        """The content of the file."""
        return self._content.text

    def get(self, id: str, *, shadow: bool = False) -> bytes | None:
        """The text of a processor or a shadow, or None if it does not exist."""
        return self._content.text_of((id, shadow))

    def processors(self) -> list[Discovered]:
        return self._read.processors([one.item for one in self._content.items.values()], str(self.path))

    def put(self, id: str, item: Any, condition: Precondition = lambda text: True, *, shadow: bool = False) -> bool:
        """Put one processor or its shadow, and return whether it is new. A processor with the version of its shadow replaces
        both.

        :raises AsterismError: it cannot be used; nothing has changed
        """
        if isinstance(item, dict) and item.setdefault("id", id) != id:
            raise PatternProcessorError(
                f"the id of the processor is {item['id']!r:.60}, but the id in the path is {id!r:.60}"
            )
        if isinstance(item, dict) and shadow:
            item.setdefault("shadow", True)
        new = self._validated(item)
        if new.slot[1] != shadow:
            raise PatternProcessorError(
                "this is no shadow" if shadow else "this is a shadow",
                hint="the path of a processor is /processors/{id}, that of its shadow /processors/{id}/shadow",
            )

        def change(content: _SetContent) -> tuple[_SetContent, bool]:
            _require(condition, content.text_of((id, shadow)))
            content.check(new)
            items = {**content.items, (id, shadow): new}
            if shadow:
                _check_shadow(new, items)
            return content.with_items(_without_promoted(items), [new]), (id, shadow) not in content.items

        return self._changed(change)

    def promote(self, id: str, condition: Precondition = lambda text: True) -> Mapping[str, Any] | None:
        """Replace a processor by its shadow, and return it; None: there is no shadow.

        :raises PatternProcessorError: the shadow is disabled
        """

        def change(content: _SetContent) -> tuple[_SetContent, Mapping[str, Any] | None]:
            there = content.items.get((id, True))
            if there is None:
                return content, None
            _require(condition, there.text)
            item = promoted_item(there.item)
            new = _StoredItem.of(item, _processors(item))
            items = _without_promoted({**content.items, (id, False): new})
            return content.with_items(items, [new]), item

        return self._changed(change)

    def put_all(self, items: Sequence[Any], condition: Precondition = lambda text: True) -> Report:
        """Put a set. Refused items keep their current version. Items beyond the limit of a set are refused as one, and
        nothing is removed.
        """
        too_many = len(items) > MAX_PROCESSORS
        items = items[:MAX_PROCESSORS]
        # Validation may take long and does not depend on the current content, so nobody waits for it.
        tried = [self._tried(item) for item in items]

        def change(content: _SetContent) -> tuple[_SetContent, Report]:
            _require(condition, content.text)
            accepted: dict[Slot, _StoredItem] = {}
            taken: set[Slot] = set()
            refused: list[RefusedProcessor] = []
            for number, (item, new) in enumerate(zip(items, tried, strict=True)):
                try:
                    if isinstance(new, AsterismError):
                        raise new
                    content.check(new)
                    _refuse_duplicate([*new.slots, *taken.intersection(new.slots)])
                    taken.update(new.slots)
                    accepted[new.slot] = new
                except AsterismError as error:
                    id, version = _id_of(item), item.get("version") if isinstance(item, Mapping) else None
                    version = version if isinstance(version, int) else None
                    wrong = RefusedProcessor(
                        id or f"#{number + 1}", error, version, unidentified=not id, shadow=is_shadow(item)
                    )
                    refused.append(wrong)
            for shadow in [one for (_, is_one), one in accepted.items() if is_one]:
                try:
                    _check_shadow(shadow, accepted)
                except AsterismError as error:
                    id, version = shadow.slot[0], shadow.item.get("version")
                    refused.append(RefusedProcessor(id, error, version, shadow=True))
                    del accepted[shadow.slot]
            if too_many:
                rest = PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
                refused.append(RefusedProcessor("…", rest, unidentified=True))
            # An unreadable item may be any processor, so none is removed.
            all_stay = any(one.unidentified for one in refused)
            stay = content.items.keys() if all_stay else {slot for one in refused for slot in slots_of(one)}
            kept = {slot: one for slot, one in content.items.items() if slot in stay}
            new_items = _without_promoted(kept | accepted)
            removed = [slot for slot in content.items if slot not in new_items]
            report = Report(list(accepted), refused, removed)
            return content.with_items(new_items, accepted.values()), report

        return self._changed(change)

    def remove(self, id: str, condition: Precondition = lambda text: True, *, shadow: bool = False) -> bool:
        """Remove a processor or its shadow, and return whether it existed."""

        def change(content: _SetContent) -> tuple[_SetContent, bool]:
            if (id, shadow) not in content.items:
                return content, False
            _require(condition, content.text_of((id, shadow)))
            return content.with_items({s: one for s, one in content.items.items() if s != (id, shadow)}), True

        return self._changed(change)

    def _validated(self, item: Any) -> _StoredItem:
        """:raises AsterismError: it cannot be used"""
        # Most items of a set are put unchanged.
        known = self._content.items.get(_slot_of(item))
        if known is not None and known.processors is not None and known.text == _text_of(item):
            return known
        return _StoredItem.of(item, _usable(item))

    def _tried(self, item: Any) -> _StoredItem | AsterismError:
        try:
            return self._validated(item)
        except AsterismError as error:
            return error

    # ------------------------------------------------------------------ changes

    def _changed(self, change: Callable[[_SetContent], tuple[_SetContent, _R]]) -> _R:
        """Make a change, and return its result when it is on disk.

        :raises NotWrittenError: it cannot be written
        :raises AsterismError: the change is refused
        """
        done = Future[_R]()
        self.waiting.append((change, done))
        with self._lock:
            if not done.done():  # the thread that held the lock may have made the change
                self._make_waiting()
        return done.result()

    def _make_waiting(self) -> None:
        """Make the changes that wait, and write them together."""
        content = self._content
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        while self.waiting:
            change, done = self.waiting.popleft()
            try:
                content, result = change(content)
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

    def _write(self, new: _SetContent) -> None:
        if new.used is not self._stored_used:
            new.used.write(
                self._stored_used, partial(replace_file, self._versions), partial(replace_file, self._recent_versions)
            )
            self._stored_used = new.used
        if new.text != self._content.text or not self._is_certain:
            try:
                replace_file(self.path, new.text)
                self._is_certain = True
            except NotWrittenError:
                self._is_certain = False
                with suppress(OSError):
                    if (
                        self.path.read_bytes() == new.text
                    ):  # a restart would read this content, so it is the current one
                        self._content = new
                raise
        self._content = new


def _written(items: _Items) -> bytes:
    """A set without indentation, one item per line, so that a set of the maximum request size fits."""
    return b'{"processors": [' + b",".join(b"\n" + items[slot].text for slot in sorted(items)) + b"\n]}\n"


def _valid_in(items: _Items) -> Iterator[PatternProcessor]:
    for one in items.values():
        with suppress(AsterismError):  # it is refused when it is used
            yield from _processors(one.item)


def _items_in(path: Path) -> Sequence[Any]:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        return read_document(text, "set.json").items
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path, error) from None
    except PatternProcessorError as error:
        raise PatternProcessorError(f"{path}: {error.message}", error.detail, error.hint) from None


def _used_in(earlier: Path, recent: Path) -> UsedVersions:
    return UsedVersions(_versions_in(earlier), _versions_in(recent))


def _versions_in(path: Path) -> Versions:
    try:
        return versions_from_bytes(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise RuleSourceError(
            f"{path} cannot be read",
            f"{type(error).__name__}: {error}"[:200],
            LOST,
        ) from None


def _text_of(item: Any) -> bytes:
    # JSON can represent an unpaired surrogate, but UTF-8 cannot.
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def _id_of(item: Any) -> str:
    id = item.get("id") if isinstance(item, Mapping) else None
    return id if isinstance(id, str) else ""


def _slot_of(item: Any) -> Slot:
    return _id_of(item), is_shadow(item) is True


def _version_in(items: _Items, slot: Slot) -> Any:
    """The version of a processor; of a template, whose version plays no part, the text of what it consists of."""
    item = items[slot].item if slot in items else {}
    if not is_template(item):
        return item.get("version")
    return _text_of({name: value for name, value in sorted(item.items()) if name not in _NO_PART_OF_TEMPLATES})


def _check_shadow(new: _StoredItem, items: _Items) -> None:
    """:raises ConflictError: the processor in force has the version of its shadow *new*"""
    id, version = new.slot[0], new.item.get("version")
    if _version_in(items, (id, False)) != _version_in({new.slot: new}, new.slot):
        return
    if is_template(new.item):
        problem = f"the template {id!r} is in force with the same rules, so it cannot be a shadow, too"
        raise ConflictError(problem, hint="change a row of it, or the rule")
    raise ConflictError(
        f"version {version} of {id!r} is in force, so it cannot be a shadow, too", hint="raise the version"
    )


def _without_promoted(items: _Items) -> dict[Slot, _StoredItem]:
    """*items* without the shadows that have become the version in force."""
    return {
        (id, shadow): one
        for (id, shadow), one in items.items()
        if not shadow or _version_in(items, (id, False)) != _version_in(items, (id, True))
    }


def _require(condition: Precondition, text: bytes | None) -> None:
    if not condition(text):
        raise ChangedError(
            "the current state is not the one that the change was based on", hint="read it again, and repeat the change"
        )


def _processors(item: Any) -> list[PatternProcessor]:
    """:raises AsterismError: a processor cannot be used"""
    found = []
    for rule in expanded(item) if is_template(item) else [ExpandedRule("", item)]:
        if rule.error is not None:
            raise rule.error
        with _of_rule(rule):
            found.append(PatternProcessor.from_dict(without_flag(rule.item)[0]))
    return found


@contextmanager
def _of_rule(rule: ExpandedRule) -> Iterator[None]:
    """Name a rule of a template in errors."""
    try:
        yield
    except AsterismError as error:
        if not rule.id:
            raise
        raise PatternProcessorError(f"{rule.id:.220}: {error.message}", error.detail, error.hint) from None


def _rule_slots(item: Any) -> list[Slot]:
    """Those of the processors of a valid item."""
    if not is_template(item):
        return [_slot_of(item)]
    rows = item.get("rows")
    if not isinstance(rows, list):
        return []
    every = is_shadow_template(item)
    return [(f"{_id_of(item)}/{_id_of(row)}", every or is_shadow(row) is True) for row in rows]


def _refuse_duplicate(slots: Sequence[Slot]) -> None:
    if len(set(slots)) < len(slots):
        id, shadow = next(slot for slot, count in Counter(slots).items() if count > 1)
        raise PatternProcessorError(f"two {'shadows' if shadow else 'processors'} have the id {id!r:.60}")


# ---------------------------------------------------------------------- validation


def _usable(item: Any) -> list[PatternProcessor]:
    """:raises AsterismError: it cannot be used with any columns of events"""
    found = _processors(item)
    for one in found:
        with _of_rule(ExpandedRule(one.id if is_template(item) else "")):
            _check_texts(one)
    return found


def _check_texts(found: PatternProcessor) -> None:
    if found.pattern is None:
        assert found.sql is not None
        check_clause(found.sql)
        return
    # Queries with the default semantics refuse what Flink ignores, those with Flink's what it lacks.
    compile_pattern(found.pattern, Semantics.FLINK if beyond_flink(found.pattern) is None else Semantics.DEFAULT)
    stages = tuple(stage.name for stage in found.pattern.atoms()) + tuple(name for name, _ in found.pattern.subsets)
    texts = [
        *(("key", "key", text) for text in found.key or ()),
        *(("select", "select", text) for text in found.select),
        *_conditions(found.pattern),
    ]
    for what, kind, text in texts:
        try:
            # The columns are known only to the query.
            tree = parse_sql(text, kind)
            if kind == "select":
                check_measure(tree, stages, text)
            else:
                check_names(tree, () if kind == "key" else stages, text)
        except AsterismError as error:
            raise PatternProcessorError(f"{what}: {error.message}", error.detail, error.hint) from None


def _conditions(pattern: PatternSequence) -> Iterator[tuple[str, str, str]]:
    for stage in pattern.stages:
        for what, condition in (("condition", stage.condition), ("until condition", stage.until)):
            if isinstance(condition, SqlCondition):
                yield f"{stage.name}: {what}", "condition", condition.text
        if stage.group is not None:
            yield from _conditions(stage.group)
