"""The state of a live engine in memory: what a call writes is kept apart until the call has succeeded, and what it has replaced
until the next one begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from asterism.operators.state.page_numbers import kind_of_page

HEADER = -1
"""The number of the header among the pages."""
Changes = dict[int, bytes | None]
"""Pages by number; None: the page is deleted."""


class LiveStore:
    """The pages of the only key group, a state store (:mod:`asterism.operators.state.state_store`).

    :param pages: those of a snapshot
    """

    def __init__(self, pages: Mapping[int, bytes] | None = None) -> None:
        self._pages = dict(pages or {})
        self._call: Changes = {}
        self._replaced: Changes = {}
        self._unsaved: set[int] = set()

    def read_header(self) -> bytes | None:
        return self._read(HEADER)

    def write_header(self, value: bytes | None) -> None:
        self._call[HEADER] = value

    def read_page(self, number: int) -> bytes | None:
        return self._read(number)

    def write_page(self, number: int, value: bytes | None) -> None:
        kind_of_page(number)  # only numbers of the table are stored
        self._call[number] = value

    def _read(self, number: int) -> bytes | None:
        return self._call[number] if number in self._call else self._pages.get(number)

    # ------------------------------------------------------------------ calls

    def commit(self) -> None:
        """Keep what the call has written. It can still be taken back."""
        self._replaced = {number: self._pages.get(number) for number in self._call}
        self._unsaved |= self._call.keys()
        self._put(self._call)
        self._call = {}

    def accept(self) -> None:
        """The last call cannot be taken back any more."""
        self._replaced = {}

    def take_back(self) -> None:
        """Forget what the call has written, also if it was committed, or interrupted while it was."""
        self._call = {}
        self._put(self._replaced)
        self._replaced = {}

    def _put(self, changes: Changes) -> None:
        for number, value in changes.items():
            if value is not None:
                self._pages[number] = value
            else:
                self._pages.pop(number, None)

    # ------------------------------------------------------------------ snapshots

    def taken(self) -> Changes:
        """The pages that have changed since the last call of this method."""
        changes = {number: self._pages.get(number) for number in self._unsaved}
        self._unsaved = set()
        return changes

    def put_back(self, numbers: Iterable[int]) -> None:
        """Pages that were taken have not been saved."""
        self._unsaved |= set(numbers)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(map(len, self._pages.values()))
