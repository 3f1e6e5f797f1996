"""The numbers of pages are a part of the format of checkpoints."""

from __future__ import annotations

import itertools

import pytest

from asterism.operators.state import page_numbers
from asterism.operators.state.page_numbers import MAX_FIXED_PAGES, MAX_PAGES, PageKind, kind_of_page, page_number
from asterism.operators.state.state_store import MemoryStore


def test_ranges_do_not_overlap() -> None:
    ranges = sorted((kind.first, kind.last) for kind in PageKind)
    assert all(first <= last for first, last in ranges)
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(ranges))


def test_every_number_is_in_the_range_of_its_kind() -> None:
    special = {name: value for name, value in vars(page_numbers).items() if name.endswith("_PAGE")}
    assert {kind_of_page(special.pop("DEFINITION_PAGE"))} == {PageKind.DEFINITION}
    assert {kind_of_page(number) for number in special.values()} == {PageKind.OPERATOR}
    assert kind_of_page(page_number(MAX_FIXED_PAGES - 1, MAX_FIXED_PAGES, fixed=True)) is PageKind.FIXED_KEYS
    counts = [4**n for n in range(1, 8)]
    assert counts[-1] == MAX_PAGES
    numbers = [page_number(index, count, fixed=False) for count in counts for index in range(count)]
    assert len(numbers) == len(set(numbers))
    assert {kind_of_page(number) for number in numbers} == {PageKind.KEYS}


@pytest.mark.parametrize("number", [-1, 512, 2**23, 2**30 + 1])
def test_no_page_has_another_number(number: int) -> None:
    with pytest.raises(ValueError, match=f"no page has the number {number}"):
        MemoryStore().write_page(number, b"")
