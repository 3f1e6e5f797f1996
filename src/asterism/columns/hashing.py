"""A 64-bit hash of strings, the same in every process, on every platform and in every release."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

_PRIME = np.uint64(0x100000001B3)
_BASIS = np.uint64(0xCBF29CE484222325)
_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@njit(cache=True)
def _hash(offsets: Any, data: Any, out: Any) -> None:
    """FNV-1a over the bytes."""
    for row in range(len(out)):
        value = _BASIS
        for at in range(offsets[row], offsets[row + 1]):
            value = (value ^ np.uint64(data[at])) * _PRIME
        out[row] = value


def mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finalizer of splitmix64: every output bit depends on every input bit."""
    values = (values ^ (values >> np.uint64(30))) * _MIX1
    values = (values ^ (values >> np.uint64(27))) * _MIX2
    return values ^ (values >> np.uint64(31))


def hash_strings(strings: pa.Array) -> npt.NDArray[np.uint64]:
    """The hash of each string; *strings* has no nulls.

    >>> [hex(value) for value in hash_strings(pa.array(["", "a"]))]
    ['0xf52a15e9a9b5e89b', '0x2c0bdbf481420f8']
    """
    strings = strings.cast(pa.large_string())
    _, offsets, data = strings.buffers()
    at = np.frombuffer(offsets, np.int64)[strings.offset : strings.offset + len(strings) + 1]
    values = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    out = np.empty(len(strings), np.uint64)
    _hash(at, values, out)
    return mixed(out)  # distributes short strings over all bits
