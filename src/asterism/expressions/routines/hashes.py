"""Spark's hash functions: Murmur3 in 32 bits, of which the last bytes are its own, and XXH64.

A value is hashed with the hash of the values before it as its seed; a null keeps the seed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from asterism.expressions.udfs import each, each_row, routine

_M32, _M64 = 2**32 - 1, 2**64 - 1


def _signed(number: int, bits: int) -> int:
    return number - (number >> (bits - 1) << bits)


def _rotated(number: int, by: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return (number << by | number >> (bits - by)) & ((1 << bits) - 1)


def _hashes(function: Callable[[Any, int], int], data_type: pa.DataType) -> Callable[..., pa.Array]:
    def compute(values: pa.ChunkedArray, seeds: pa.ChunkedArray) -> pa.Array:
        return each_row(
            [values, seeds], lambda value, seed: seed if value is None else function(value, seed), data_type
        )

    return compute


# ---------------------------------------------------------------------------------------------------- Murmur3


def _mixed(hash_: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51, 15, 32) * 0x1B873593 & _M32
    return (_rotated(hash_ ^ word, 13, 32) * 5 + 0xE6546B64) & _M32


def _murmur(words: list[int], size: int, seed: int) -> int:
    number = seed & _M32
    for word in words:
        number = _mixed(number, word & _M32)
    number ^= size
    number = (number ^ number >> 16) * 0x85EBCA6B & _M32
    number = (number ^ number >> 13) * 0xC2B2AE35 & _M32
    return _signed(number ^ number >> 16, 32)


def murmur_of_bytes(value: bytes, seed: int) -> int:
    whole = len(value) // 4 * 4
    words = [*struct.unpack(f"<{whole // 4}I", value[:whole]), *struct.unpack(f"{len(value) - whole}b", value[whole:])]
    return _murmur(words, len(value), seed)


# ---------------------------------------------------------------------------------------------------- XXH64

_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def _avalanche(number: int) -> int:
    number &= _M64
    number = (number ^ number >> 33) * _P2 & _M64
    number = (number ^ number >> 29) * _P3 & _M64
    return _signed(number ^ number >> 32, 64)


def _round(number: int, word: int) -> int:
    return _rotated(number + word * _P2, 31, 64) * _P1 & _M64


def _with_int(number: int, word: int) -> int:
    return _rotated(number & _M64 ^ (word & _M32) * _P1 & _M64, 23, 64) * _P2 + _P3 & _M64


def _with_long(number: int, word: int) -> int:
    return _rotated(number & _M64 ^ _round(0, word & _M64), 27, 64) * _P1 + _P4 & _M64


def xxhash_of_bytes(value: bytes, seed: int) -> int:
    at, size = 0, len(value)
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for at in range(0, size - 31, 32):
            lanes = [_round(lane, word) for lane, word in zip(lanes, struct.unpack_from("<4Q", value, at), strict=True)]
        at += 32
        number = sum(_rotated(lane, by, 64) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            number = (number ^ _round(0, lane)) * _P1 + _P4 & _M64
    else:
        number = seed + _P5
    number += size
    while at + 8 <= size:
        number = _with_long(number, struct.unpack_from("<Q", value, at)[0])
        at += 8
    if at + 4 <= size:
        number = _with_int(number, struct.unpack_from("<I", value, at)[0])
        at += 4
    for byte in value[at:]:
        number = _rotated(number & _M64 ^ byte * _P5 & _M64, 11, 64) * _P1 & _M64
    return _avalanche(number)


# ---------------------------------------------------------------------------------------------------- many values at once

_Unsigned = np.ndarray[Any, np.dtype[Any]]


def _of_numbers(
    hash_numbers: Callable[[_Unsigned, _Unsigned], _Unsigned], data_type: pa.DataType
) -> Callable[..., pa.Array]:
    """A routine over integers, of which many are hashed at once."""
    unsigned = np.uint32 if data_type == pa.int32() else np.uint64

    def compute(values: pa.ChunkedArray, seeds: pa.ChunkedArray) -> pa.Array:
        known = values.is_valid().to_numpy()
        numbers = values.fill_null(0).cast(pa.int64()).to_numpy().astype(np.uint64)
        before = seeds.to_numpy().astype(unsigned)
        with np.errstate(over="ignore"):
            hashed = np.where(known, hash_numbers(numbers, before), before)
        return pa.array(hashed.astype(np.int32 if unsigned is np.uint32 else np.int64))

    return compute


def _turned(numbers: _Unsigned, by: int, bits: int) -> _Unsigned:
    kind = numbers.dtype.type
    turned: _Unsigned = numbers << kind(by) | numbers >> kind(bits - by)
    return turned


def _murmur_words(words: Sequence[_Unsigned], seeds: _Unsigned) -> _Unsigned:
    numbers, kind = seeds, np.uint32
    for word in words:
        word = _turned(word * kind(0xCC9E2D51), 15, 32) * kind(0x1B873593)
        numbers = _turned(numbers ^ word, 13, 32) * kind(5) + kind(0xE6546B64)
    numbers = numbers ^ kind(4 * len(words))
    numbers = (numbers ^ numbers >> kind(16)) * kind(0x85EBCA6B)
    numbers = (numbers ^ numbers >> kind(13)) * kind(0xC2B2AE35)
    ended: _Unsigned = numbers ^ numbers >> kind(16)
    return ended


def _xxhash_end(numbers: _Unsigned) -> _Unsigned:
    kind = np.uint64
    numbers = (numbers ^ numbers >> kind(33)) * kind(_P2)
    numbers = (numbers ^ numbers >> kind(29)) * kind(_P3)
    ended: _Unsigned = numbers ^ numbers >> kind(32)
    return ended


def _murmur_ints(values: _Unsigned, seeds: _Unsigned) -> _Unsigned:
    return _murmur_words([values.astype(np.uint32)], seeds)


def _murmur_longs(values: _Unsigned, seeds: _Unsigned) -> _Unsigned:
    return _murmur_words([values.astype(np.uint32), (values >> np.uint64(32)).astype(np.uint32)], seeds)


def _xxhash_ints(values: _Unsigned, seeds: _Unsigned) -> _Unsigned:
    kind = np.uint64
    word = (values & kind(_M32)) * kind(_P1)
    return _xxhash_end(_turned(seeds + kind((_P5 + 4) & _M64) ^ word, 23, 64) * kind(_P2) + kind(_P3))


def _xxhash_longs(values: _Unsigned, seeds: _Unsigned) -> _Unsigned:
    kind = np.uint64
    word = _turned(values * kind(_P2), 31, 64) * kind(_P1)
    return _xxhash_end(_turned(seeds + kind((_P5 + 8) & _M64) ^ word, 27, 64) * kind(_P1) + kind(_P4))


def _add(name: str, value: str, result: str, compute: Callable[..., pa.Array]) -> None:
    compute.__name__ = name
    routine(result, value, result, nulls=True)(compute)


_add("murmur_int", "INTEGER", "INTEGER", _of_numbers(_murmur_ints, pa.int32()))
_add("murmur_long", "BIGINT", "INTEGER", _of_numbers(_murmur_longs, pa.int32()))
_add("murmur_bytes", "BLOB", "INTEGER", _hashes(murmur_of_bytes, pa.int32()))
_add("xxhash_int", "INTEGER", "BIGINT", _of_numbers(_xxhash_ints, pa.int64()))
_add("xxhash_long", "BIGINT", "BIGINT", _of_numbers(_xxhash_longs, pa.int64()))
_add("xxhash_bytes", "BLOB", "BIGINT", _hashes(xxhash_of_bytes, pa.int64()))


# ---------------------------------------------------------------------------------------------------- what is hashed


def _bits(values: pa.ChunkedArray, number: type[np.floating[Any]], integer: type[np.signedinteger[Any]]) -> pa.Array:
    """The bits of floating-point numbers; both zeros have the same, and so do all NaN."""
    floats = values.to_numpy().astype(number) + number(0)
    floats[np.isnan(floats)] = number("nan")
    return pa.array(floats.view(integer).astype(np.int64))


@routine("BIGINT", "FLOAT")
def float_bits(values: pa.ChunkedArray) -> pa.Array:
    return _bits(values, np.float32, np.int32)


@routine("BIGINT", "DOUBLE")
def double_bits(values: pa.ChunkedArray) -> pa.Array:
    return _bits(values, np.float64, np.int64)


def _unscaled(decimal: str) -> int:
    return int(decimal.replace(".", ""))


@routine("BIGINT", "VARCHAR")
def unscaled_long(decimals: pa.ChunkedArray) -> pa.Array:
    """The digits of a decimal as an integer."""
    return each(decimals, _unscaled, pa.int64())


@routine("BLOB", "VARCHAR")
def unscaled_bytes(decimals: pa.ChunkedArray) -> pa.Array:
    """The same as bytes, as few as possible, as Java's ``BigInteger.toByteArray``."""

    def convert(decimal: str) -> bytes:
        number = _unscaled(decimal)
        return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)

    return each(decimals, convert, pa.binary())
