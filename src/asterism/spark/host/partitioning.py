"""Distributes key groups evenly over Spark's partitions.

Spark assigns a row to the partition ``hash(key) mod partitions``. With the numbers 0 to 127 as keys, the distribution is
random: with two partitions, one gets 74 key groups and the other 54, and every micro-batch takes as long as the larger one.
But Spark's hash of an integer (Murmur3 with seed 42, the documented SQL function ``hash``) is a bijection on 32 bits.
Therefore the shuffle key of key group *g* is the only integer whose hash is *g*, its label, so that each of *n* partitions
gets every *n*-th key group. With another hash function in a later version of Spark, only the distribution would be uneven.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.errors import CheckpointMismatchError

_MASK = 2**32 - 1
_SEED = 42


def label(group: int) -> int:
    """The integer whose hash in Spark is *group*.

    >>> label(0), label(1)
    (-1693959553, -1910889132)
    """
    x = group
    x ^= x >> 16
    x = _divided(x, 0xC2B2AE35)
    x ^= (x >> 13) ^ (x >> 26)
    x = _divided(x, 0x85EBCA6B)
    x ^= x >> 16
    x ^= 4  # the length of an integer in bytes
    x = _divided((x - 0xE6546B64) & _MASK, 5)
    x = _rotated_right(x, 13) ^ _SEED
    x = _rotated_right(_divided(x, 0x1B873593), 15)
    x = _divided(x, 0xCC9E2D51)
    return x - 2**32 if x >= 2**31 else x


def group_of(label: int) -> int:
    """The key group with this *label*.

    >>> group_of(label(7))
    7
    """
    x = _rotated_left(label * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    x = _rotated_left(x ^ _SEED, 13) * 5 + 0xE6546B64 & _MASK
    x ^= 4  # the length of an integer in bytes
    x = (x ^ x >> 16) * 0x85EBCA6B & _MASK
    x = (x ^ x >> 13) * 0xC2B2AE35 & _MASK
    return x ^ x >> 16


def check_key_groups_of(offset: Mapping[str, Any], key_groups: int) -> None:
    """:raises StateError: the offset is of a query with another number of key groups"""
    if offset["keyGroups"] != key_groups:
        raise CheckpointMismatchError(
            f"the checkpoint was created with {offset['keyGroups']} key groups, but this query has {key_groups}",
            "The number of key groups of a checkpoint cannot change.",
            f"set key_groups={offset['keyGroups']}, or use a new checkpoint location",
        )


def _divided(x: int, factor: int) -> int:
    """The number whose product with *factor*, which is odd, is *x* modulo 2**32."""
    return x * pow(factor, -1, 2**32) & _MASK


def _rotated_right(x: int, bits: int) -> int:
    return (x >> bits | x << (32 - bits)) & _MASK


def _rotated_left(x: int, bits: int) -> int:
    return _rotated_right(x, 32 - bits)
