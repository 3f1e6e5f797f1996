"""Regular expressions of Java where RE2 gives something else.

These are patterns with ``$`` on strings that end with a line terminator, and all matches of a pattern that can match the
empty string. As in RE2's own backtracking matcher, no state is visited twice, so a match takes linear time. Positions are
those of Java, in units of UTF-16; Spark's count code points.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

import pyarrow as pa

from asterism.expressions.regex import AtBegin, Characters, Part, Regex, RegexGroup, Repeat, regex
from asterism.expressions.udfs import constant, each, routine

MAX_STEPS = 10_000_000
"""The maximum number of steps for one string, some seconds."""
MAX_STATES = 1_000_000
"""The maximum number of states of one match, some 100 MB."""

_MATCH, _SET, _SPLIT, _JUMP, _SAVE, _BEGIN, _END = range(7)
_Instruction = tuple[int, int, int]
_STRINGS = pa.list_(pa.string())


class RegexMatcher:
    """Finds the matches of a pattern, each as a list with the start and the end of the match and of each of its groups.

    >>> list(RegexMatcher(regex("(a*)b?")).spans(Text("ab")))
    [[0, 2, 0, 1], [2, 2, 2, 2]]
    """

    def __init__(self, pattern: Regex) -> None:
        self.slots = 2 * (pattern.groups + 1)
        self.program: list[_Instruction] = []
        self.tests: list[Callable[[int], bool]] = []
        self._add_group(pattern.whole)
        self.program.append((_MATCH, 0, 0))

    def _add(self, part: Part) -> None:
        match part:
            case Characters():
                self.program.append((_SET, len(self.tests), 0))
                self.tests.append(_test(part))
            case AtBegin():
                self.program.append((_BEGIN, 0, 0))
            case Repeat():
                self._add_repeat(part)
            case RegexGroup():
                slot = None if part.number is None else 2 * part.number
                if slot is not None:
                    self.program.append((_SAVE, slot, 0))
                self._add_group(part)
                if slot is not None:
                    self.program.append((_SAVE, slot + 1, 0))
            case _:
                self.program.append((_END, 0, 0))

    def _add_group(self, group: RegexGroup) -> None:
        jumps = []
        for number, sequence in enumerate(group.alternatives):
            split = len(self.program)
            last = number == len(group.alternatives) - 1
            if not last:
                self.program.append((_SPLIT, split + 1, 0))
            for part in sequence:
                self._add(part)
            if not last:
                jumps.append(len(self.program))
                self.program.append((_JUMP, 0, 0))
                self.program[split] = (_SPLIT, split + 1, len(self.program))
        for jump in jumps:
            self.program[jump] = (_JUMP, len(self.program), 0)

    def _add_repeat(self, repeat: Repeat) -> None:
        for _ in range(repeat.low):
            self._add(repeat.part)
        splits = []
        for _ in range(1 if repeat.high is None else repeat.high - repeat.low):
            splits.append(len(self.program))
            self.program.append((_SPLIT, 0, 0))
            self._add(repeat.part)
        if repeat.high is None:
            self.program.append((_JUMP, splits[0], 0))
        lazy = len(repeat.written) > 1 and repeat.written.endswith("?")
        for split in splits:
            inside, after = split + 1, len(self.program)
            self.program[split] = (_SPLIT, after, inside) if lazy else (_SPLIT, inside, after)

    def spans(self, text: Text, begin: int = 0) -> Iterator[list[int]]:
        """All matches as Java's ``Matcher.find`` finds them one after the other, from the position *begin* on."""
        at = begin
        while at <= text.length:
            visited: set[int] = set()
            found = (self._match(text, start, begin, visited) for start in range(at, text.length + 1))
            span = next((span for span in found if span is not None), None)
            if span is None:
                return
            yield span
            at = span[1] + (span[0] == span[1])

    def _match(self, text: Text, start: int, begin: int, visited: set[int]) -> list[int] | None:
        """The match that starts at a position; *visited* are branches from which there is none."""
        program, codes, widths, size = self.program, text.codes, text.widths, text.length + 1
        _check_steps(text.steps, len(visited))
        slots = [-1] * self.slots
        pending: list[tuple[int, int, bool]] = [(0, start, False)]
        while pending:
            at, position, restores = pending.pop()
            if restores:
                slots[at] = position
                continue
            while True:
                text.steps += 1
                operation, first, second = program[at]
                if operation == _SET:
                    if position == text.length or not self.tests[first](codes[position]):
                        break
                    position += widths[position]
                    at += 1
                elif operation == _SPLIT:
                    state = at * size + position
                    if state in visited:
                        break
                    visited.add(state)
                    _check_steps(text.steps, len(visited))
                    pending.append((second, position, False))
                    at = first
                elif operation == _JUMP:
                    at = first
                elif operation == _SAVE:
                    pending.append((first, slots[first], True))
                    slots[first] = position
                    at += 1
                elif operation == _MATCH:
                    slots[0], slots[1] = start, position
                    return slots
                else:
                    if position != begin if operation == _BEGIN else position not in text.ends:
                        break
                    at += 1
        return None


def _check_steps(steps: int, states: int) -> None:
    if steps > MAX_STEPS or states > MAX_STATES:
        raise ValueError(f"a regular expression takes more than {MAX_STEPS:,} steps for a string")


def _test(part: Characters) -> Callable[[int], bool]:
    ascii_ = [_is_in(part, code) for code in range(128)]
    return lambda code: ascii_[code] if code < 128 else _is_in(part, code)


def _is_in(part: Characters, code: int) -> bool:
    return any(low <= code <= high for low, high in part.ranges) != part.negated


_LAST_LINE_END = re.compile("(?:\r\n|[\n\r\u0085\u2028\u2029])\\Z")


class Text:
    """A string in units of UTF-16: the code point at each, which is half of one behind the first unit of two."""

    def __init__(self, string: str) -> None:
        self.string = string
        if not string or max(string) < "\U00010000":
            self.encoded = None
            self.codes: list[int] = [ord(character) for character in string]
            self.widths = [1] * len(string)
        else:
            self.encoded = string.encode("utf-16-le")
            self.codes, self.widths = [], []
            for code in map(ord, string):
                self.codes.append(code)
                self.widths.append(1 if code < 0x10000 else 2)
                if code >= 0x10000:
                    self.codes.append(0xDC00 + (code & 0x3FF))
                    self.widths.append(1)
        self.length = len(self.codes)
        self.steps = 0
        """the steps of matching so far"""
        line_end = _LAST_LINE_END.search(string)
        self.ends = {self.length} | ({self.length - len(line_end.group())} if line_end else set())

    def points(self, position: int) -> int:
        """The number of code points before a position between two of them."""
        return position if self.encoded is None else len(self.part(0, position))

    def part(self, start: int, end: int) -> str:
        """The string between two positions; as in Java, half of a character becomes a question mark."""
        if self.encoded is None:
            return self.string[start:end]
        return self.encoded[2 * start : 2 * end].decode("utf-16-le", "surrogatepass")


def _whole(parts: list[str]) -> str:
    """The concatenation; the halves of a character that meet again are one."""
    text = "".join(parts)
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text.encode("utf-8", "replace").decode()


@functools.lru_cache(maxsize=256)
def _matcher(pattern: str) -> RegexMatcher:
    return RegexMatcher(regex(pattern))


def _group(text: Text, span: list[int], number: int) -> str:
    start, end = span[2 * number], span[2 * number + 1]
    return "" if start < 0 or end < 0 else _whole([text.part(start, end)])


@routine("VARCHAR", "VARCHAR", "VARCHAR", "INTEGER")
def regex_group(strings: pa.ChunkedArray, patterns: pa.ChunkedArray, groups: pa.ChunkedArray) -> pa.Array:
    """A group of the first match, or an empty string."""
    matcher, number = _matcher(constant(patterns)), constant(groups)

    def extract(string: str) -> str:
        text = Text(string)
        span = next(matcher.spans(text), None)
        return "" if span is None else _group(text, span, number)

    return each(strings, extract, pa.string())


@routine("VARCHAR[]", "VARCHAR", "VARCHAR", "INTEGER")
def regex_groups(strings: pa.ChunkedArray, patterns: pa.ChunkedArray, groups: pa.ChunkedArray) -> pa.Array:
    """A group of each match."""
    matcher, number = _matcher(constant(patterns)), constant(groups)

    def extract(string: str) -> list[str]:
        text = Text(string)
        return [_group(text, span, number) for span in matcher.spans(text)]

    return each(strings, extract, _STRINGS)


@routine("INTEGER", "VARCHAR", "VARCHAR")
def regex_place(strings: pa.ChunkedArray, patterns: pa.ChunkedArray) -> pa.Array:
    """The position of the first match, from 1; 0 if there is none."""
    matcher = _matcher(constant(patterns))

    def find(string: str) -> int:
        text = Text(string)
        return next((text.points(span[0]) + 1 for span in matcher.spans(text)), 0)

    return each(strings, find, pa.int32())


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "INTEGER")
def regex_replaced(
    strings: pa.ChunkedArray, patterns: pa.ChunkedArray, replacements: pa.ChunkedArray, positions: pa.ChunkedArray
) -> pa.Array:
    """All matches from a position on replaced; the replacement is one of Java, with references to groups."""
    pattern = constant(patterns)
    matcher, skipped = _matcher(pattern), constant(positions) - 1
    pieces = replacement(constant(replacements), regex(pattern).groups)

    def replace(string: str) -> str:
        if skipped and skipped >= len(string):
            return string
        text, begin = Text(string), Text(string[:skipped]).length
        parts, copied = [], 0
        for span in matcher.spans(text, begin):
            parts.append(text.part(copied, span[0]))
            parts += [piece if isinstance(piece, str) else _group(text, span, piece) for piece in pieces]
            copied = span[1]
        return _whole([*parts, text.part(copied, text.length)])

    return each(strings, replace, pa.string())


def replacement(text: str, groups: int) -> list[str | int]:
    """The strings and the numbers of groups in a replacement of Java.

    :raises ValueError: it is not one

    >>> replacement(r"<$1>\\$", 1)
    ['<', 1, '>$']
    """
    pieces: list[str | int] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            if at == len(text):
                raise ValueError("the replacement ends with a backslash")
            pieces.append(text[at])
            at += 1
        elif character == "$":
            if text[at : at + 1] not in set("0123456789"):
                raise ValueError(
                    "$ in the replacement is followed by the number of a group; write \\$ for the character"
                )
            number = int(text[at])
            at += 1
            # As in Java, further digits belong to the number as long as there is such a group.
            while text[at : at + 1] in set("0123456789") and number * 10 + int(text[at]) <= groups:
                number = number * 10 + int(text[at])
                at += 1
            if number > groups:
                raise ValueError(f"the pattern has no group {number}")
            pieces.append(number)
        else:
            pieces.append(character)
    joined: list[str | int] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


@routine("VARCHAR[]", "VARCHAR", "VARCHAR", "INTEGER")
def regex_split(strings: pa.ChunkedArray, patterns: pa.ChunkedArray, limits: pa.ChunkedArray) -> pa.Array:
    """The strings between the matches, as ``String.split`` of Java; for an empty pattern, the characters."""
    pattern, limit = constant(patterns), constant(limits)
    literal = regex(pattern).literal
    if not pattern:
        return each(strings, lambda string: _characters(string, limit), _STRINGS)
    if literal:
        return each(strings, lambda string: string.split(literal, limit - 1 if limit > 0 else -1), _STRINGS)
    matcher = _matcher(pattern)

    def split(string: str) -> list[str]:
        text, at = Text(string), 0
        parts: list[str] = []
        for start, end, *_ in matcher.spans(text):
            if len(parts) == limit - 1:
                break
            if end:  # an empty match at the beginning does not count
                parts.append(_whole([text.part(at, start)]))
                at = end
        return [*parts, _whole([text.part(at, text.length)])]

    return each(strings, split, _STRINGS)


def _characters(string: str, limit: int) -> list[str]:
    """The characters; the last of *limit* strings is the rest."""
    if not 0 < limit < len(string):
        return list(string) or [""]
    return [*string[: limit - 1], string[limit - 1 :]]
