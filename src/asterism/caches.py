"""Caches of a process with a maximum number of entries. Least-recently-used entries are evicted first.

A cache is a dictionary in the order of use. ``functools.lru_cache`` does not suit keys that are not the arguments: the ids of
objects that the value keeps alive, or a digest.
"""

from __future__ import annotations

import threading
from typing import TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
_LOCK = threading.Lock()


def recent(cache: dict[_K, _V], key: _K) -> _V | None:
    """The value of a cache, which is now the one that was used last; None if there is none."""
    with _LOCK:
        found = cache.pop(key, None)
        if found is not None:
            cache[key] = found
        return found


def keep(cache: dict[_K, _V], most: int, key: _K, value: _V) -> _V:
    """Add *value* to a cache of at most so many entries. If it is full, those that were not used for the longest time
    (:func:`recent`) are removed. Returns the cached value, which another thread may have added.
    """
    with _LOCK:
        while key not in cache and len(cache) >= most:
            del cache[next(iter(cache))]
        return cache.setdefault(key, value)
