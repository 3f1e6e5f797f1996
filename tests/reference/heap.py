"""A binary heap that breaks ties as java.util.PriorityQueue does.

Python's `heapq` keeps the same invariant but moves elements differently, so equal keys come out in another order. That
order is visible in the answers: it decides which of several matches with the same first event is emitted first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PriorityQueue(Generic[T]):
    """Smallest key first; iteration is in array order, not in sorted order."""

    def __init__(self, key: Callable[[T], Any], elements: Iterable[T] = ()) -> None:
        self._key = key
        self._array: list[T] = []
        for element in elements:
            self.add(element)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[T]:
        return iter(self._array)

    def add(self, element: T) -> None:
        """Append, then move up past parents that are strictly greater."""
        array, key = self._array, self._key(element)
        array.append(element)
        place = len(array) - 1
        while place > 0:
            parent = (place - 1) // 2
            if key >= self._key(array[parent]):
                break
            array[place] = array[parent]
            place = parent
        array[place] = element

    def peek(self) -> T | None:
        """The head, or None if there is none."""
        return self._array[0] if self._array else None

    def poll(self) -> T:
        """Remove the head; the last element of the array moves down from the root in its place."""
        head = self._array[0]
        last = self._array.pop()
        if self._array:
            self._move_down(0, last)
        return head

    def remove_if(self, unwanted: Callable[[T], bool]) -> None:
        """Filter the array, then restore the heap from the last parent up to the root."""
        self._array = [element for element in self._array if not unwanted(element)]
        for place in reversed(range(len(self._array) // 2)):
            self._move_down(place, self._array[place])

    def _move_down(self, place: int, element: T) -> None:
        array, key = self._array, self._key(element)
        while place < len(array) // 2:
            child = 2 * place + 1
            right = child + 1
            if right < len(array) and self._key(array[child]) > self._key(array[right]):
                child = right
            if key <= self._key(array[child]):
                break
            array[place] = array[child]
            place = child
        array[place] = element
