"""The numbers under which a key group stores its pages. They are part of the format of checkpoints: a number keeps its meaning.

A range belongs to each kind of page, and no two ranges overlap. The pages from OPERATOR on have a meaning of
their own in each operator: a checkpoint belongs to one operator, so that two operators may use the same number.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Container, Iterator


class PageKind(enum.Enum):
    """What a page contains, with the numbers of such pages."""

    FIXED_KEYS = range(256)
    """Keys, if the number of pages is fixed, or one."""
    OPERATOR = range(256, 512)
    """State that belongs to no key; see the constants below."""
    KEYS = range(2**20, 2**23)
    """Keys, if the number of pages follows the size of the state: see :func:`page_number`."""
    BROADCAST_PART = range(2**23 + 2**16, 2**24)
    """Entries of a broadcast state."""
    WAITING_EVENTS = range(2**24, 2**30)
    """Events that wait for the watermark."""
    DEFINITION = range(2**30, 2**30 + 1)
    """The definition of the state, without which it cannot be read."""

    @property
    def first(self) -> int:
        return self.value.start

    @property
    def last(self) -> int:
        return self.value.stop - 1

    def free(self, taken: Container[int]) -> Iterator[int]:
        """The numbers of this kind that are not *taken*, in ascending order."""
        return (number for number in self.value if number not in taken)


# The operators with several inputs.
BROADCAST_PAGE = 256
"""Which parts each broadcast state has."""

# Rules.
SETS_PAGE = 256
"""The entries: the rules in force, and those that wait for their time."""
CLAUSES_PAGE = 257
"""The state of rules with a MATCH_RECOGNIZE clause. Page 0, that of the rules with a pattern, exists if this one does."""
SUPPRESSIONS_PAGE = 258
"""Which matches are suppressed. Page 0 exists if this one does."""

# Every operator.
HEADER = -1
"""In place of the number of a page, where headers of key groups are among pages."""
DEFINITION_PAGE = PageKind.DEFINITION.first

MAX_FIXED_PAGES = len(PageKind.FIXED_KEYS.value)
MAX_PAGES = 4**7
"""The maximum number of pages that follows the size of the state: see docs/decisions/0154."""


def kind_of_page(number: int) -> PageKind:
    """
    >>> kind_of_page(0), kind_of_page(257)
    (<PageKind.FIXED_KEYS: range(0, 256)>, <PageKind.OPERATOR: range(256, 512)>)

    :raises ValueError: no page has this number
    """
    at = bisect_right(_FIRST_NUMBERS, number) - 1
    if number in _RANGES[at]:
        return _KINDS[at]
    raise ValueError(f"no page has the number {number}")


_KINDS = sorted(PageKind, key=lambda kind: kind.first)
_FIRST_NUMBERS = [kind.first for kind in _KINDS]
_RANGES: list[range] = [kind.value for kind in _KINDS]
_FIRST_OF_KEYS = PageKind.KEYS.first


def page_number(index: int, count: int, *, fixed: bool) -> int:
    """The number of the page *index* among *count* pages of keys. With another *count* that follows the size of the state, all
    numbers differ.

    :param fixed: whether *count* is fixed
    """
    return index if fixed or count == 1 else _FIRST_OF_KEYS + count + index
