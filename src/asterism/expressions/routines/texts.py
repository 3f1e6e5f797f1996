"""Functions of texts. Positions count code points, as in Spark."""

from __future__ import annotations

import functools
from typing import AnyStr

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.expressions.udfs import constant, each, each_row, routine

MAX_PAIRS = 100_000_000
"""The maximum number of pairs of characters that a comparison of two strings looks at, about a second."""


@routine("VARCHAR", "VARCHAR")
def initial_capitals(strings: pa.ChunkedArray) -> pa.Array:
    """The first letter of each word in title case, the others in lower case; words are separated by spaces only."""

    def capitalize(word: str) -> str:
        return word[:1].title() + word.lower()[len(word[:1].lower()) :]

    return each(strings, lambda string: " ".join(map(capitalize, string.split(" "))), pa.string())


@routine("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER")
def part_before(strings: pa.ChunkedArray, delimiters: pa.ChunkedArray, counts: pa.ChunkedArray) -> pa.Array:
    """The string before the n-th delimiter, or after it, counted from the end; delimiters may overlap."""

    def cut(string: str, delimiter: str, count: int) -> str:
        if not delimiter or not count:
            return ""
        at = -1 if count > 0 else len(string) + 1
        for _ in range(abs(count)):
            # The last character at which a delimiter may begin that ends before the end of one at *at*.
            at = string.find(delimiter, at + 1) if count > 0 else string.rfind(delimiter, 0, at + len(delimiter) - 1)
            if at < 0:
                return string
        return string[:at] if count > 0 else string[at + len(delimiter) :]

    return each_row([strings, delimiters, counts], cut, pa.string())


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR")
def translated(strings: pa.ChunkedArray, sources: pa.ChunkedArray, targets: pa.ChunkedArray) -> pa.Array:
    """Each character of the second string replaced by that of the third at the same place, or removed if there is none."""

    @functools.cache
    def table(source: str, target: str) -> dict[int, str | None]:
        characters: dict[int, str | None] = {}
        for place, character in enumerate(source):
            new = target[place : place + 1]
            characters.setdefault(ord(character), None if new in ("", "\0") else new)
        return characters

    def translate(string: str, source: str, target: str) -> str:
        return string.translate(table(source, target))

    return each_row([strings, sources, targets], translate, pa.string())


@routine("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER", "INTEGER")
def overlaid(
    strings: pa.ChunkedArray, replacements: pa.ChunkedArray, positions: pa.ChunkedArray, lengths: pa.ChunkedArray
) -> pa.Array:
    """A string put over another one from a position on; a negative length is that of the string."""
    return each_row([strings, replacements, positions, lengths], _overlay, pa.string())


@routine("BLOB", "BLOB", "BLOB", "INTEGER", "INTEGER")
def overlaid_bytes(
    strings: pa.ChunkedArray, replacements: pa.ChunkedArray, positions: pa.ChunkedArray, lengths: pa.ChunkedArray
) -> pa.Array:
    return each_row([strings, replacements, positions, lengths], _overlay, pa.binary())


def _overlay(string: AnyStr, replacement: AnyStr, position: int, length: int) -> AnyStr:
    after = position + (length if length >= 0 else len(replacement))
    return _part(string, 1, position - 1) + replacement + string[max(_start(string, after), 0) :]


def _part(string: AnyStr, position: int, length: int) -> AnyStr:
    """The substring as in SQL: from 1, or from the end if the position is negative."""
    start = _start(string, position)
    return string[max(start, 0) : max(min(start + length, 2**31 - 1), 0)]


def _start(string: str | bytes, position: int) -> int:
    return position - 1 if position > 0 else len(string) + position if position < 0 else 0


@routine("BLOB", "BLOB", "INTEGER", "INTEGER")
def part_of_bytes(strings: pa.ChunkedArray, positions: pa.ChunkedArray, lengths: pa.ChunkedArray) -> pa.Array:
    return each_row([strings, positions, lengths], _part, pa.binary())


@routine("BOOLEAN", "BLOB", "BLOB")
def bytes_contain(values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    return each_row([values, others], lambda value, other: other in value, pa.bool_())


@routine("INTEGER", "VARCHAR", "VARCHAR", "INTEGER", "INTEGER")
def place_of(
    strings: pa.ChunkedArray, others: pa.ChunkedArray, starts: pa.ChunkedArray, occurrences: pa.ChunkedArray
) -> pa.Array:
    """The n-th place of a string in another from a position on, or backwards from a position counted from the end."""

    def find(string: str, other: str, start: int, occurrence: int) -> int:
        if occurrence < 1:
            raise ValueError(f"there is no occurrence {occurrence}")
        if not other:
            return 1
        if not start:
            return 0
        at = start - 2 if start > 0 else len(string) + start + 1
        for _ in range(occurrence):
            if start < 0 and at < 1:
                return 0
            at = string.find(other, at + 1) if start > 0 else string.rfind(other, 0, at - 1 + len(other))
            if at < 0:
                return 0
        return at + 1

    return each_row([strings, others, starts, occurrences], find, pa.int32())


@routine("INTEGER", "VARCHAR", "VARCHAR")
def edit_distance(strings: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    """The Levenshtein distance."""
    return each_row([strings, others], _levenshtein, pa.int32())


def _levenshtein(a: str, b: str) -> int:
    _check_pairs(a, b, MAX_PAIRS)
    if len(a) > len(b):
        a, b = b, a
    codes: Ints = np.frombuffer(b.encode("utf-32-le"), np.uint32).astype(np.int64)
    places = np.arange(len(b) + 1)
    row = places
    for number, character in enumerate(a, 1):
        above = np.minimum(row[1:] + 1, row[:-1] + (codes != ord(character)))
        # A row's own insertions: each value is at most one more than that to its left.
        row = np.minimum.accumulate(np.concatenate([[number], above]) - places) + places
    return int(row[-1])


def _check_pairs(a: str, b: str, limit: int) -> None:
    if len(a) * len(b) > limit:
        raise ValueError(f"strings of {len(a):,} and {len(b):,} characters are too long to be compared")


@routine("DOUBLE", "VARCHAR", "VARCHAR")
def jaro_winkler(strings: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.Array:
    """The Jaro-Winkler similarity, of the units of UTF-16."""

    def similarity(a: str, b: str) -> float:
        _check_pairs(a, b, MAX_PAIRS // 10)
        first, second = (memoryview(text.encode("utf-16-le")).cast("H").tolist() for text in (a, b))
        n, m = len(first), len(second)
        if not n or not m:
            return float(n == m)
        reach = max(0, max(n, m) // 2 - 1)
        used = [False] * m
        matched = []
        for at, unit in enumerate(first):
            for place in range(max(0, at - reach), min(at + reach + 1, m)):
                if not used[place] and second[place] == unit:
                    used[place] = True
                    matched.append(unit)
                    break
        count = len(matched)
        if not count:
            return 0.0
        others_matched = [unit for unit, taken in zip(second, used, strict=True) if taken]
        moved = sum(x != y for x, y in zip(matched, others_matched, strict=True))
        jaro = (count / n + count / m + (count - moved / 2.0) / count) / 3.0
        prefix = 0
        while prefix < min(4, n, m) and first[prefix] == second[prefix]:
            prefix += 1
        return jaro + prefix * 0.1 * (1.0 - jaro)

    return each_row([strings, others], similarity, pa.float64())


_SOUNDEX = "01230127022455012623017202"
"""The codes of the letters from A to Z; those with 7 are ignored."""


@routine("VARCHAR", "VARCHAR")
def soundex_code(strings: pa.ChunkedArray) -> pa.Array:
    def encode(string: str) -> str:
        letters = [ord(letter) - 65 for letter in _ascii_upper(string)]
        if not letters or not 0 <= letters[0] < 26:
            return string
        code, last = chr(letters[0] + 65), _SOUNDEX[letters[0]]
        for letter in letters[1:]:
            digit = _SOUNDEX[letter] if 0 <= letter < 26 else "0"
            if digit != "7":
                code += digit if digit not in ("0", last) else ""
                last = digit
            if len(code) == 4:
                break
        return code.ljust(4, "0")

    return each(strings, encode, pa.string())


def _ascii_upper(string: str) -> str:
    return "".join(chr(ord(letter) - 32) if "a" <= letter <= "z" else letter for letter in string)


@routine("BOOLEAN", "VARCHAR")
def luhn_valid(strings: pa.ChunkedArray) -> pa.Array:
    """Whether the last digit is the check digit of the others, by the algorithm of Luhn."""

    def check(string: str) -> bool:
        if not string or not (string.isascii() and string.isdigit()):
            return False
        digits = [int(digit) for digit in reversed(string)]
        return not (sum(digits[::2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[1::2])) % 10

    return each(strings, check, pa.bool_())


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", nulls=True)
def masked(
    strings: pa.ChunkedArray,
    upper: pa.ChunkedArray,
    lower: pa.ChunkedArray,
    digit: pa.ChunkedArray,
    other: pa.ChunkedArray,
) -> pa.Array:
    """Letters, digits and other characters replaced by a character for each kind, or kept if that is null."""
    news = [constant(array) for array in (upper, lower, digit, other)]

    def kind(character: str) -> int:
        return 0 if character.isupper() else 1 if character.islower() else 2 if character.isdecimal() else 3

    def mask(string: str) -> str:
        masks = (news[kind(character)] for character in string)
        return "".join(character if new is None else new for character, new in zip(string, masks, strict=True))

    return each(strings, mask, pa.string())


@routine("MAP(VARCHAR, VARCHAR)", "VARCHAR", "VARCHAR", "VARCHAR")
def string_map(strings: pa.ChunkedArray, pairs: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.Array:
    """A map of a string of pairs and the two delimiters; a pair without a value has a null."""
    pair, between = constant(pairs), constant(values)

    def parse(string: str) -> list[tuple[str, str | None]]:
        entries: dict[str, str | None] = {}
        for part in string.split(pair):
            key, found, value = part.partition(between)
            if key in entries:
                raise ValueError(f"the key {key!r} occurs twice")
            entries[key] = value if found else None
        return list(entries.items())

    return each(strings, parse, pa.map_(pa.string(), pa.string()))
