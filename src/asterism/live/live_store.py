"""The state of a live engine in memory: what a call writes is kept apart until the call has succeeded, and what it has replaced
until the next one begins.

Pages of keys that the last calls have written stay as their operator has made them. A snapshot encodes those that have changed.
See docs/decisions/0143.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import HEADER, PageKind, kind_of_page
from asterism.operators.state.state_store import KeptPage

Changes = dict[int, bytes | KeptPage | None]
"""Pages by number; None: the page is deleted."""
MAX_KEPT = 2**28
"""The number of bytes that the calls may have written since the oldest page that is not encoded yet. The pages of a call share
memory, which is free when all of them are replaced.
"""


class LiveStore:
    """The pages of the only key group, a state store (:mod:`asterism.operators.state.state_store`).

    :param pages: those of a snapshot
    """

    keeps_pages = True

    def __init__(self, pages: Mapping[int, bytes] | None = None) -> None:
        self._pages: dict[int, bytes | KeptPage] = dict(pages or {})
        self._call: Changes = {}
        self._replaced: Changes = {}
        self._unsaved: set[int] = set()
        self._kept: OrderedDict[int, int] = OrderedDict()
        """The pages that are not encoded, the oldest first, each with the value of *_written* before it."""
        self._written = 0
        """The bytes of all such pages, also former ones."""
        self._measure()

    def _measure(self) -> None:
        """Set the size of the pages of keys in the header: a page that is not encoded has another size than in a snapshot."""
        stored = self._pages.get(HEADER)
        if not isinstance(stored, bytes):
            return
        header = GroupHeader.from_bytes(stored)
        of_keys = (PageKind.FIXED_KEYS.value, PageKind.KEYS.value)
        header.size = sum(
            len(value) for number, value in self._pages.items() if any(number in kind for kind in of_keys)
        )
        self._pages[HEADER] = header.to_bytes()

    def read_header(self) -> bytes | None:
        value = self._read(HEADER)
        return None if value is None else encoded(value)

    def write_header(self, value: bytes | None) -> None:
        self._call[HEADER] = value

    def read_page(self, number: int) -> bytes | None:
        value: bytes | None = self._read(number)  # type: ignore[assignment] # the operator knows what it has written
        return value

    def write_page(self, number: int, value: bytes | KeptPage | None) -> None:
        if number not in self._pages:
            kind_of_page(number)  # only numbers of the table are stored
        self._call[number] = value

    def _read(self, number: int) -> bytes | KeptPage | None:
        return self._call[number] if number in self._call else self._pages.get(number)

    # ------------------------------------------------------------------ calls

    def commit(self) -> None:
        """Keep what the call has written. It can still be taken back."""
        self._replaced = {number: self._pages.get(number) for number in self._call}
        self._unsaved |= self._call.keys()
        self._put(self._call)
        self._call = {}

    def accept(self) -> None:
        """The last call cannot be taken back any more. The oldest pages are encoded if there are too many."""
        self._replaced = {}
        while self._kept and self._written - next(iter(self._kept.values())) > MAX_KEPT:
            number, _ = self._kept.popitem(last=False)
            self._pages[number] = encoded(self._pages[number])

    def take_back(self) -> None:
        """Forget what the call has written, also if it was committed, or interrupted while it was."""
        self._call = {}
        self._put(self._replaced)
        self._replaced = {}

    def _put(self, changes: Changes) -> None:
        for number, value in changes.items():
            self._kept.pop(number, None)
            if value is None:
                self._pages.pop(number, None)
                continue
            self._pages[number] = value
            if not isinstance(value, bytes):
                self._kept[number] = self._written
                self._written += len(value)

    # ------------------------------------------------------------------ snapshots

    def taken(self) -> Changes:
        """The pages that have changed since the last call of this method."""
        changes: Changes = {number: self._pages.get(number) for number in self._unsaved}
        self._unsaved = set()
        return changes

    def put_back(self, numbers: Iterable[int]) -> None:
        """Pages that were taken have not been saved."""
        self._unsaved |= set(numbers)

    @property
    def size(self) -> int:
        """The number of bytes. Any thread may ask, also during a call."""
        return sum(map(len, list(self._pages.values())))

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self._pages)


def encoded(value: bytes | KeptPage) -> bytes:
    """A page as it is stored."""
    return value if isinstance(value, bytes) else value.to_bytes()
