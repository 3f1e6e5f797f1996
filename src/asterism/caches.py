"""Caches of a process with a maximum number of entries. The least recently used ones are removed first.

``functools.lru_cache`` does not suit them: their keys are not the arguments of one function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
_LOCK = threading.Lock()


def recent(cache: dict[_K, _V], key: _K) -> _V | None:
    """The value of a cache, which is a dictionary in the order of use; None if there is none."""
    with _LOCK:
        value = cache.pop(key, None)
        if value is not None:
            cache[key] = value
        return value


def keep(cache: dict[_K, _V], most: int, key: _K, value: _V) -> _V:
    """Add *value* to a cache of at most *most* entries. Returns the cached value, which another thread may have added."""
    with _LOCK:
        while key not in cache and len(cache) >= most:
            del cache[next(iter(cache))]
        return cache.setdefault(key, value)


class IdentityCache(Generic[_V]):
    """Values that are made of certain objects, found by their identity, because comparing the objects takes time.

    An entry keeps its objects alive, so that no other object can have the id of one of them. A tuple that is asked for again is
    found by its own identity, so that this takes no time for each of its objects.

    :param most: the maximum number of entries

    >>> cache, made = IdentityCache[int](2), []
    >>> def size():
    ...     made.append("again")
    ...     return 3
    >>> rules = ["a", "b", "c"]
    >>> cache.of([rules], size), cache.of([rules], size), cache.of([list(rules)], size), len(made)
    (3, 3, 3, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[tuple[Hashable, ...], tuple[tuple[object, ...], _V]] = {}
        self._tuples: dict[tuple[Hashable, ...], tuple[tuple[object, ...], _V]] = {}

    def of(self, objects: Iterable[object], make: Callable[[], _V], *others: Hashable) -> _V:
        """The value of *objects*. If there is none, *make* makes it.

        :param others: what the value depends on besides the objects, compared by value
        """
        alive = tuple(objects)
        if alive is objects:
            known = recent(self._tuples, (id(alive), *others))
            if known is not None:
                return known[1]
        key = (len(alive), *map(id, alive), *others)
        entry = recent(self._entries, key)
        if entry is None:
            entry = keep(self._entries, self._most, key, (alive, make()))
        if alive is objects:
            keep(self._tuples, self._most, (id(alive), *others), (alive, entry[1]))
        return entry[1]

    def clear(self) -> None:
        self._entries.clear()
        self._tuples.clear()

    def __len__(self) -> int:
        return len(self._entries)
