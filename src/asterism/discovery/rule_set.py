"""Pattern processors in one file, which only one program changes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.discovery.documents import read_document, replace_file, written
from asterism.errors import AsterismError, PatternProcessorError
from asterism.processors import (
    MAX_PROCESSORS,
    Discovered,
    PatternProcessor,
    RefusedProcessor,
    processors_from,
    without_flag,
)


class ConflictError(PatternProcessorError):
    """There is this version already, with another content."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a new set."""

    accepted: Sequence[str]
    refused: Sequence[RefusedProcessor]
    removed: Sequence[str]


class RuleSet:
    """The processors in a file. A change is on disk before it counts.

    :raises PatternProcessorError: there is a file, and it cannot be read
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._items: dict[str, Any] = {}
        for item in _items_in(path):
            if not _id_of(item) or _id_of(item) in self._items:
                raise PatternProcessorError(f"{path} has a processor without an id of its own")
            self._items[_id_of(item)] = item
        self.text = self._written(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def get(self, id: str) -> Any:
        """As it was put; None, if it is not there."""
        return self._items.get(id)

    def processors(self) -> list[Discovered]:
        with self._lock:
            items = list(self._items.values())
        return processors_from(items, str(self.path))

    def put(self, id: str, item: Any) -> bool:
        """Put one processor; is it new?

        :raises AsterismError: it cannot be used; nothing has changed
        """
        if isinstance(item, dict) and item.setdefault("id", id) != id:
            raise PatternProcessorError(
                f"the id of the processor is {item['id']!r:.60}, and that of the path {id!r:.60}"
            )
        with self._lock:
            self._check(item)
            new = id not in self._items
            self._write(self._items | {id: item})
        return new

    def put_all(self, items: Sequence[Any]) -> Report:
        """Put a set; what is refused stays as it was."""
        accepted: dict[str, Any] = {}
        refused: list[RefusedProcessor] = []
        with self._lock:
            for number, item in enumerate(items):
                try:
                    self._check(item)
                    if item["id"] in accepted:
                        raise PatternProcessorError(f"two processors have the id {item['id']!r:.60}")
                    accepted[item["id"]] = item
                except AsterismError as error:
                    id, version = _id_of(item), item.get("version") if isinstance(item, Mapping) else None
                    version = version if isinstance(version, int) else None
                    refused.append(RefusedProcessor(id or f"#{number + 1}", error, version, unidentified=not id))
            # Whatever an unreadable one was meant to be, it is not removed.
            all_stay = any(one.unidentified for one in refused)
            stay = self._items.keys() if all_stay else {one.id for one in refused} & self._items.keys()
            items_ = {id: item for id, item in self._items.items() if id in stay} | accepted
            removed = [id for id in self._items if id not in items_]
            self._write(items_)
        return Report(list(accepted), refused, removed)

    def remove(self, id: str) -> bool:
        """Was it there?"""
        with self._lock:
            if id not in self._items:
                return False
            self._write({name: item for name, item in self._items.items() if name != id})
        return True

    def _check(self, item: Any) -> None:
        """:raises AsterismError: it cannot be used"""
        found = _checked(item)
        before = self._items.get(found.id)
        if before is None or before.get("version") != found.version:
            return
        try:
            same = _checked(before) == found
        except AsterismError:
            return  # nothing runs that could not be used
        if not same:
            raise ConflictError(
                f"version {found.version} of {found.id!r} is there already, and it is another one",
                "What runs keeps a version as it is.",
                "raise the version",
            )

    def _write(self, items: dict[str, Any]) -> None:
        if len(items) > MAX_PROCESSORS:
            raise PatternProcessorError(f"more than {MAX_PROCESSORS} processors")
        text = self._written(items)
        if text != self.text:
            replace_file(self.path, text)
            self._items, self.text = items, text

    @staticmethod
    def _written(items: Mapping[str, Any]) -> bytes:
        return written([items[id] for id in sorted(items)])


def _items_in(path: Path) -> Sequence[Any]:
    try:
        return read_document(path.read_bytes(), "set.json").items
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PatternProcessorError(f"{path} cannot be read", error.strerror) from None


def _id_of(item: Any) -> str:
    id = item.get("id") if isinstance(item, Mapping) else None
    return id if isinstance(id, str) else ""


def _checked(item: Any) -> PatternProcessor:
    return PatternProcessor.from_dict(without_flag(item)[0])
