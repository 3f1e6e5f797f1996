"""Pattern processors in a file that only one process changes."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.discovery.documents import MAX_BYTES, read_document, unreadable
from asterism.discovery.polling import Items
from asterism.errors import AsterismError, PatternProcessorError
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
from asterism.rules.rule_templates import ExpandedRule, expanded, is_template
from asterism.rules.used_versions import UsedVersions
from asterism.rules.validation import check_clause, parse_sql


class ConflictError(PatternProcessorError):
    """The version already exists with another content."""


class ChangedError(PatternProcessorError):
    """A change was made for a content that is not the current one."""


class TooLargeError(PatternProcessorError):
    """The set would be too large to be read again."""


Precondition = Callable[[bytes | None], bool]
"""Whether a change may be made to this content, or to None if there is none."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of putting a set."""

    accepted: Sequence[Slot]
    refused: Sequence[RefusedProcessor]
    removed: Sequence[Slot]


class RuleSet:
    """The processors in a file, and their shadows. A change takes effect after it has been written to disk, and is made only if
    the current content satisfies its condition.

    The file ``.<name>.versions`` beside it has a digest of each version, so that a version cannot be reused with another
    content.

    :raises PatternProcessorError: the file exists and cannot be read
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._versions = path.with_name(f".{path.name}.versions")
        self._lock = threading.Lock()
        self._is_certain = True
        """Whether the current content is certain to be on disk, even after a power failure."""
        self._items: dict[Slot, Any] = {}
        self._texts: dict[Slot, bytes] = {}
        """The items as text."""
        self._read = Items()
        self._usable: dict[Slot, tuple[bytes, list[PatternProcessor]]] = {}
        """The text of a valid item and its processors (one, unless it is a template), because most items of a set are put
        unchanged.
        """
        for item in _items_in(path):
            if not _id_of(item) or _slot_of(item) in self._items:
                raise PatternProcessorError(f"{path} has a processor without an id")
            self._items[_slot_of(item)] = item
            self._texts[_slot_of(item)] = _text_of(item)
        self.text = _written(self._texts)
        self._used = _used_in(self._versions).with_(self._good())

    def __len__(self) -> int:
        """The number of processors, including those of templates."""
        return sum(len(_rule_slots(item)) for item in self._items.values())

    def get(self, id: str, *, shadow: bool = False) -> bytes | None:
        """The text of a processor or a shadow, or None if it does not exist."""
        return self._texts.get((id, shadow))

    def processors(self) -> list[Discovered]:
        with self._lock:
            items = list(self._items.values())
        return self._read.processors(items, str(self.path))

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
        found = self._found(item)
        if any(one.shadow != shadow for one in found):
            raise PatternProcessorError(
                "this is no shadow" if shadow else "this is a shadow",
                hint="the path of a processor is /processors/{id}, that of its shadow /processors/{id}/shadow",
            )
        with self._lock:
            _require(condition, self.get(id, shadow=shadow))
            self._check(item, found)
            new = (id, shadow) not in self._items
            items = self._items | {(id, shadow): item}
            if shadow:
                _check_shadow(found[0], items)
            self._write(_without_promoted(items), found)
        return new

    def promote(self, id: str, condition: Precondition = lambda text: True) -> int | None:
        """Replace a processor by its shadow, and return the version; None: there is no shadow.

        :raises PatternProcessorError: the shadow is disabled
        """
        with self._lock:
            item = self._items.get((id, True))
            if item is None:
                return None
            _require(condition, self.get(id, shadow=True))
            promoted = promoted_item(item)
            found = _processors(promoted)
            self._write(_without_promoted(self._items | {(id, False): promoted}), found)
        return found[0].version

    def put_all(self, items: Sequence[Any], condition: Precondition = lambda text: True) -> Report:
        """Put a set. Refused items keep their current version. Items beyond the limit of a set are refused as one, and
        nothing is removed.
        """
        accepted: dict[Slot, Any] = {}
        taken: set[Slot] = set()
        usable: list[PatternProcessor] = []
        refused: list[RefusedProcessor] = []
        too_many = len(items) > MAX_PROCESSORS
        items = items[:MAX_PROCESSORS]
        # Validation may take long and does not depend on the current content, so it needs no lock.
        tried = [self._tried(item) for item in items]
        with self._lock:
            _require(condition, self.text)
            for number, (item, found) in enumerate(zip(items, tried, strict=True)):
                try:
                    if isinstance(found, AsterismError):
                        raise found
                    self._check(item, found)
                    slots = _rule_slots(item)
                    _refuse_duplicate([*slots, *taken.intersection(slots)])
                    taken.update(slots)
                    accepted[_slot_of(item)] = item
                    usable += found
                except AsterismError as error:
                    id, version = _id_of(item), item.get("version") if isinstance(item, Mapping) else None
                    version = version if isinstance(version, int) else None
                    wrong = RefusedProcessor(
                        id or f"#{number + 1}", error, version, unidentified=not id, shadow=is_shadow(item)
                    )
                    refused.append(wrong)
            for shadow in [one for one in usable if one.shadow]:
                try:
                    _check_shadow(shadow, accepted)
                except AsterismError as error:
                    refused.append(RefusedProcessor(shadow.id, error, shadow.version, shadow=True))
                    del accepted[shadow.slot]
                    usable.remove(shadow)
            if too_many:
                rest = PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
                refused.append(RefusedProcessor("…", rest, unidentified=True))
            # An unreadable item may be any processor, so none is removed.
            all_stay = any(one.unidentified for one in refused)
            stay = self._items.keys() if all_stay else {slot for one in refused for slot in slots_of(one)}
            items_ = _without_promoted({slot: item for slot, item in self._items.items() if slot in stay} | accepted)
            removed = [slot for slot in self._items if slot not in items_]
            self._write(items_, usable)
        return Report(list(accepted), refused, removed)

    def remove(self, id: str, condition: Precondition = lambda text: True, *, shadow: bool = False) -> bool:
        """Remove a processor or its shadow, and return whether it existed."""
        with self._lock:
            if (id, shadow) not in self._items:
                return False
            _require(condition, self.get(id, shadow=shadow))
            self._write({slot: item for slot, item in self._items.items() if slot != (id, shadow)})
        return True

    def _good(self) -> Iterator[PatternProcessor]:
        for item in self._items.values():
            with suppress(AsterismError):  # it is refused when it is used
                yield from _processors(item)

    def _check(self, item: Any, processors: Sequence[PatternProcessor]) -> None:
        """:raises ConflictError: the version of a processor was used for another definition"""
        for found in processors:
            if self._used.check(found) is None:
                continue
            there = (self._items.get((_id_of(item), shadow)) for shadow in (False, True))
            is_there = any(one is not None and one.get("version") == found.version for one in there)
            raise ConflictError(
                f"version {found.version} of {found.id!r} {'already exists' if is_there else 'existed before'}, "
                "with another definition",
                "The definition of a version cannot change."
                if is_there
                else "The definition of a version cannot change, even after its removal.",
                "raise the version",
            )

    def _tried(self, item: Any) -> list[PatternProcessor] | AsterismError:
        try:
            return self._found(item)
        except AsterismError as error:
            return error

    def _found(self, item: Any) -> list[PatternProcessor]:
        text, found = self._usable.get(_slot_of(item), (b"", None))
        return found if found is not None and text == _text_of(item) else _usable(item)

    def _write(self, items: dict[Slot, Any], found: Sequence[PatternProcessor] = ()) -> None:
        slots = [slot for item in items.values() for slot in _rule_slots(item)]
        if len(slots) > MAX_PROCESSORS:
            raise PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
        _refuse_duplicate(slots)
        texts = {
            slot: self._texts[slot] if item is self._items.get(slot) else _text_of(item) for slot, item in items.items()
        }
        text = _written(texts)
        if len(text) > MAX_BYTES:
            raise TooLargeError(
                f"the set would be too large: {len(text)} bytes (limit {MAX_BYTES})",
                hint="remove other processors first",
            )
        in_use = {(id, version) for (id, _), item in items.items() if isinstance(version := item.get("version"), int)}
        used = self._used.with_(found, in_use)
        if used is not self._used:
            replace_file(self._versions, used.to_bytes())
        if text != self.text or not self._is_certain:
            try:
                replace_file(self.path, text)
                self._is_certain = True
            except NotWrittenError:
                self._is_certain = False
                with suppress(OSError):
                    if self.path.read_bytes() == text:  # a restart would read this content, so it is the current one
                        self._items, self._texts, self.text, self._used = items, texts, text, used
                raise
        self._items, self._texts, self.text, self._used = items, texts, text, used
        usable = {one.slot: one for one in found}
        for slot, item in items.items():
            if (slot in usable or is_template(item)) and usable.keys() >= set(_rule_slots(item)):
                self._usable[slot] = texts[slot], [usable[one] for one in _rule_slots(item)]
        self._usable = {slot: one for slot, one in self._usable.items() if slot in items}


def _written(texts: Mapping[Slot, bytes]) -> bytes:
    """A set without indentation, one item per line, so that a set of the maximum request size fits."""
    return b'{"processors": [' + b",".join(b"\n" + texts[slot] for slot in sorted(texts)) + b"\n]}\n"


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


def _used_in(path: Path) -> UsedVersions:
    try:
        return UsedVersions.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return UsedVersions()
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, RecursionError) as error:
        raise PatternProcessorError(
            f"{path} cannot be read",
            f"{type(error).__name__}: {error}"[:200],
            "restore or remove it; if it is removed, versions that are no longer in use can return with another definition",
        ) from None


def _text_of(item: Any) -> bytes:
    # JSON can represent an unpaired surrogate, but UTF-8 cannot.
    return json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def _id_of(item: Any) -> str:
    id = item.get("id") if isinstance(item, Mapping) else None
    return id if isinstance(id, str) else ""


def _slot_of(item: Any) -> Slot:
    return _id_of(item), is_shadow(item) is True


def _version_in(items: Mapping[Slot, Any], slot: Slot) -> Any:
    return None if slot not in items else items[slot].get("version")


def _check_shadow(found: PatternProcessor, items: Mapping[Slot, Any]) -> None:
    """:raises ConflictError: the processor in force has the version of its shadow *found*"""
    if _version_in(items, (found.id, False)) == found.version:
        raise ConflictError(
            f"version {found.version} of {found.id!r} is in force, so it cannot be a shadow, too",
            hint="raise the version",
        )


def _without_promoted(items: Mapping[Slot, Any]) -> dict[Slot, Any]:
    """*items* without the shadows that have become the version in force."""
    return {
        (id, shadow): item
        for (id, shadow), item in items.items()
        if not shadow or _version_in(items, (id, False)) != item.get("version")
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
    return [(f"{_id_of(item)}/{_id_of(row)}", False) for row in rows] if isinstance(rows, list) else []


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
