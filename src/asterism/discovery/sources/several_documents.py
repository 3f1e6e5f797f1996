"""Pattern processors in several documents: the files of a folder, or the records of a topic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from asterism.discovery.sources.documents import WHOLE
from asterism.discovery.sources.polling import Items
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, Slot, fits
from asterism.rules.sets.interfaces import Discovered, RefusedProcessor, duplicate, good_first, slots_of

Name = TypeVar("Name", str, tuple[bytes, int])
"""What distinguishes the documents: the path of a file, or the key and the partition of a record."""


@dataclass(frozen=True, slots=True)
class WatchedDocument:
    """The processors of a document, and its ids when it was last readable, each with whether it is a shadow (None: unknown)."""

    place: str
    discovered: Sequence[Discovered]
    ids: tuple[tuple[str, bool | None], ...] | None
    items: Items

    @classmethod
    def of(
        cls, place: str, read: Callable[[], Sequence[Any]], last: WatchedDocument | None, whole: str = WHOLE
    ) -> WatchedDocument:
        """Read a document. If it cannot be read, each processor that it last had is refused, and so stays in force.

        :param read: returns the items, or raises PatternProcessorError
        :param last: the document as it was before
        :param whole: replaces the id if the document has never been readable
        """
        ids, items = (None, Items()) if last is None else (last.ids, last.items)
        discovered: list[Discovered]
        try:
            discovered = items.processors(read(), place)
        except PatternProcessorError as error:
            if ids is None:
                discovered = [RefusedProcessor(whole, error, place=place, unidentified=True)]
            else:
                discovered = [RefusedProcessor(id, error, place=place, shadow=shadow) for id, shadow in ids]
            return cls(place, discovered, ids, items)
        identified = ((processor.id, processor.shadow) for processor in discovered if not _is_unidentified(processor))
        return cls(place, discovered, tuple(dict.fromkeys(identified)), items)


class SeveralDocuments(Generic[Name]):
    """Combines documents, repeatedly."""

    def __init__(self) -> None:
        self._holders: dict[Slot, Name] = {}
        """For each id and shadow, the document whose processor counts."""

    def combined(self, documents: Mapping[Name, WatchedDocument]) -> list[Discovered]:
        """All processors. If several documents have an id, the first one that had it counts, even while it is invalid there,
        because otherwise a mistake would bring another rule into force. Others may have versions that come into force in turn
        with those of the first.
        """
        slots = {
            name: {
                slot
                for processor in documents[name].discovered
                if not _is_unidentified(processor)
                for slot in slots_of(processor)
            }
            for name in sorted(documents)
        }
        holders = {slot: name for slot, name in self._holders.items() if slot in slots.get(name, ())}
        for name, those in slots.items():
            for slot in those:
                holders.setdefault(slot, name)
        self._holders = holders
        accepted: dict[Slot, list[PatternProcessor]] = {}
        for name in slots:
            for processor in documents[name].discovered:
                if isinstance(processor, PatternProcessor) and holders[processor.slot] == name:
                    accepted.setdefault(processor.slot, []).append(processor)
        kept: list[Discovered] = []
        for name in slots:
            for processor in documents[name].discovered:
                if isinstance(processor, PatternProcessor) and holders[processor.slot] != name:
                    others = accepted.get(processor.slot, [])
                    if others and fits(processor, others):
                        others.append(processor)
                    else:
                        processor = duplicate(processor, others, documents[holders[processor.slot]].place)
                kept.append(processor)
        return good_first(kept)


def _is_unidentified(processor: Discovered) -> bool:
    return isinstance(processor, RefusedProcessor) and processor.unidentified
