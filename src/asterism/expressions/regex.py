"""Translates Spark's LIKE and RLIKE patterns for DuckDB, which matches regular expressions with RE2 instead of Java.

RE2 needs time linear in the string, whatever the pattern. Patterns that the two interpret differently are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from asterism.expressions.values import UnsupportedError

_LINE_ENDS = "\n\r\u0085\u2028\u2029"
TERMINATOR = r"(\r\n|[\n\r\x{85}\x{2028}\x{2029}])\z"
"""A line terminator at the end of a string, before which ``$`` also matches in Java."""
_MAX_REPEAT = 1000  # RE2's own limit
_MAX_GROUPS = 50  # the maximum nesting
_HINT = "see docs/sql.md"


def like(pattern: str, escape: str = "\\") -> str:
    """The validated pattern, with a backslash as its escape character.

    >>> like("100!%", "!")
    '100\\\\%'
    """
    if len(escape) != 1:
        raise UnsupportedError("the escape character of LIKE must be one character")
    parts = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise UnsupportedError("the pattern of LIKE ends with its escape character")
            if escaped not in ("_", "%", escape):
                raise UnsupportedError(f"the escape character of LIKE cannot precede {escaped!r}")
            parts.append(escaped if escaped not in "_%\\" else "\\" + escaped)
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


# ---------------------------------------------------------------------------------------------------- the parts of a pattern


@dataclass(frozen=True, slots=True)
class Characters:
    """One character of some ranges of code points, or of none of them."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AtBegin:
    """``^``"""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """``$``"""


@dataclass(frozen=True, slots=True)
class Repeat:
    """*part* repeated; *written* is the quantifier, *high* is None if it has no maximum."""

    part: Part
    written: str
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class RegexGroup:
    """Alternatives, each a sequence of parts; *number* is None if it does not capture."""

    alternatives: tuple[tuple[Part, ...], ...]
    number: int | None = None


Part = Characters | AtBegin | AtEnd | Repeat | RegexGroup


def shortest(part: Part) -> int:
    """The number of characters of the shortest match of a part."""
    match part:
        case Characters():
            return 1
        case Repeat():
            return part.low * shortest(part.part)
        case RegexGroup():
            return min(sum(map(shortest, sequence)) for sequence in part.alternatives)
    return 0


MAX_REQUIRED = 64
"""The maximum number of texts of which one is required."""


def required(part: Part) -> list[tuple[str, ...]]:
    """Sets of texts: in lower case, each match has one text of every set. They are ASCII.

    >>> required(regex("(?i)cmd.*(/c|/k) +[x-z]a?").whole)
    [('cmd',), ('/c', '/k'), (' ',)]
    """
    match part:
        case Repeat():
            return required(part.part) if part.low else []
        case RegexGroup():
            of_alternatives = [_required_of_sequence(sequence) for sequence in part.alternatives]
            if len(of_alternatives) == 1:
                return of_alternatives[0]
            if all(of_alternatives):
                longest = (max(sets, key=lambda texts: min(map(len, texts))) for sets in of_alternatives)
                texts = tuple(dict.fromkeys(text for one in longest for text in one))
                return [texts] if len(texts) <= MAX_REQUIRED else []
        case Characters():
            return _required_of_sequence((part,))
    return []


def _required_of_sequence(sequence: tuple[Part, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    run = ""
    for part in (*sequence, None):
        letter = _letter(part) if isinstance(part, Characters) else None
        if letter is not None:
            run += letter
            continue
        if run:
            found.append((run,))
            run = ""
        if part is not None and not isinstance(part, Characters):
            found += required(part)
    return found


def _letter(part: Characters) -> str | None:
    """The ASCII character that it is in lower case; None if there are several."""
    codes = {code for low, high in part.ranges for code in range(low, min(high, low + 2) + 1)}
    letters = {chr(code).lower() for code in codes}
    letter = letters.pop()
    return letter if not letters and not part.negated and letter.isascii() else None


@dataclass(frozen=True, slots=True)
class Regex:
    """A regular expression of Java that RE2 interprets in the same way."""

    whole: RegexGroup
    groups: int
    """the number of groups that capture"""
    any_end: bool
    """whether it contains ``$``, so that a string also matches if it does so without a line terminator at its end"""
    size: int
    """its size once repetitions are expanded, as RE2 does"""
    fold: bool
    """whether it ignores the case of ASCII letters"""

    @property
    def can_be_empty(self) -> bool:
        """Whether it can match the empty string."""
        return not shortest(self.whole)

    @property
    def repeats_nothing(self) -> bool:
        """Whether a repeated group can match the empty string: Java and RE2 then differ in what they match."""
        return _repeats_nothing(self.whole)

    @property
    def literal(self) -> str | None:
        """The only string that it matches, if there is one."""
        if len(self.whole.alternatives) > 1:
            return None
        text = ""
        for part in self.whole.alternatives[0]:
            if not isinstance(part, Characters) or part.negated or len(part.ranges) > 1 or len({*part.ranges[0]}) > 1:
                return None
            text += chr(part.ranges[0][0])
        return text

    def for_re2(self, captured: Collection[int] = ()) -> str:
        """The pattern for RE2, in which only the groups *captured* capture.

        >>> regex("(a|b)+$").for_re2()
        '(?:a|b)+\\\\z'
        """
        return _written(self.whole, captured)[3:-1]


def _repeats_nothing(part: Part) -> bool:
    if isinstance(part, Repeat):
        return (isinstance(part.part, RegexGroup) and not shortest(part.part)) or _repeats_nothing(part.part)
    return isinstance(part, RegexGroup) and any(
        _repeats_nothing(one) for sequence in part.alternatives for one in sequence
    )


def _written(part: Part, captured: Collection[int]) -> str:
    match part:
        case Characters():
            return _class(part)
        case AtBegin():
            return "^"
        case AtEnd():
            return r"\z"
        case Repeat():
            return _written(part.part, captured) + part.written
    alternatives = ("".join(_written(one, captured) for one in sequence) for sequence in part.alternatives)
    return f"({'' if part.number in captured else '?:'}{'|'.join(alternatives)})"


def regex(pattern: str) -> Regex:
    """Parse a regular expression of Java; :class:`UnsupportedError` if RE2 would interpret it in another way.

    >>> regex("^a.*[0-9]+$").for_re2()
    '^a[^\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}]*[0-9]+\\\\z'
    """
    fold = pattern.startswith("(?i)")
    parser = _RegexParser(pattern[4:] if fold else pattern, fold)
    while parser.at < len(parser.text):
        parser.take()
    if len(parser.open) > 1:
        raise UnsupportedError("a ( in the pattern is not closed")
    whole = parser.open[0]
    return Regex(whole.group(), parser.count, parser.any_end, whole.size, fold)


class _Open:
    """A group that is not closed yet, or the whole pattern."""

    def __init__(self, number: int | None, size: int) -> None:
        self.number, self.size = number, size
        self.alternatives: list[list[Part]] = [[]]
        self.ended = False
        """whether one of the alternatives ends with ``$``"""

    def group(self) -> RegexGroup:
        return RegexGroup(tuple(tuple(sequence) for sequence in self.alternatives), self.number)


class _RegexParser:
    """The state of :func:`regex`.

    :param fold: ignore the case of letters
    """

    def __init__(self, text: str, fold: bool) -> None:
        self.text, self.fold = text, fold
        self.at = self.count = 0
        self.open = [_Open(None, 0)]
        self.last = 0
        """the size of the item that a quantifier would repeat"""
        self.quantifiable = self.ended = self.any_end = False

    def take(self) -> None:
        """Parse the next item."""
        character = self.text[self.at]
        if self.ended and character not in ")|":
            raise UnsupportedError("$ is supported only at the end of a pattern or of an alternative", _HINT)
        if character in "*+?{":
            self._quantify(character)
            return
        self.at += 1
        self.quantifiable = character not in "(|^$"
        match character:
            case "(":
                self._open_group()
            case ")":
                self._close_group()
            case "|":
                self.open[-1].ended |= self.ended
                self.open[-1].alternatives.append([])
                self.ended = False
            case "^":
                self._add(AtBegin())
            case "$":
                self._add(AtEnd())
                self.ended = self.any_end = True
            case _:
                self._add_class(character)

    def _add(self, part: Part) -> None:
        self.open[-1].alternatives[-1].append(part)

    def _quantify(self, character: str) -> None:
        if not self.quantifiable:
            raise UnsupportedError(f"nothing precedes the {character} in the pattern", _HINT)
        written, self.at, (low, high), times = _quantifier(self.text, self.at)
        self._add(Repeat(self.open[-1].alternatives[-1].pop(), written, low, high))
        self.open[-1].size += self.last * (times - 1)
        self.quantifiable = False

    def _open_group(self) -> None:
        number = None
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self.text.startswith("?", self.at):
            raise UnsupportedError("(? is not supported in a pattern", _HINT)
        else:
            self.count += 1
            number = self.count
        if len(self.open) > _MAX_GROUPS:
            raise UnsupportedError(f"groups in the pattern are nested more than {_MAX_GROUPS:,} deep")
        self.open.append(_Open(number, 1))

    def _close_group(self) -> None:
        if len(self.open) == 1:
            raise UnsupportedError("an unmatched ) in the pattern")
        group = self.open.pop()
        self._add(group.group())
        self.last = group.size
        self.open[-1].size += self.last
        self.ended = group.ended or self.ended

    def _add_class(self, character: str) -> None:
        """Parse a character, or a class of characters, that begins with *character*."""
        if character in "]}":
            raise UnsupportedError(f"a {character} in the pattern needs a backslash", _HINT)
        negated, ranges = False, _one(character)
        if character == ".":
            negated, ranges = True, [(ord(end), ord(end)) for end in _LINE_ENDS]
        elif character == "[":
            negated, ranges, self.at = _bracket(self.text, self.at)
        elif character == "\\":
            ranges, negated, self.at = _escape(self.text, self.at)
        self.last = 5 if character == "." else len(ranges) * (1 if ranges[-1][1] < 128 else 2) + 5 * negated
        self.open[-1].size += self.last
        if self.fold and character != ".":
            ranges = [*ranges, *_other_case(ranges)]
        self._add(Characters(tuple(ranges), negated))


def _quantifier(text: str, at: int) -> tuple[str, int, tuple[int, int | None], int]:
    """(the quantifier as written, the position after it, minimum and maximum, how many copies of its operand RE2 makes)"""
    match = re.compile(r"(\*|\+|\?|\{(\d+)(,(\d*))?\})\??").match(text, at)
    if match is None:
        raise UnsupportedError("a { in the pattern needs a backslash", _HINT)
    low, high = match.group(2), match.group(4) or match.group(2)
    if low is not None and (max(int(low), int(high)) > _MAX_REPEAT or int(high) < int(low)):
        raise UnsupportedError(f"{match.group()} in the pattern: from 0 to {_MAX_REPEAT:,} repetitions")
    if text[match.end() : match.end() + 1] in ("*", "+", "?", "{"):
        raise UnsupportedError(f"{text[match.end()]} after {match.group()} is not supported in a pattern", _HINT)
    if low is None:
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[match.group()[0]]
        return match.group(), match.end(), bounds, 1
    most = None if match.group(3) == "," else int(high)
    return match.group(), match.end(), (int(low), most), int(high) * (2 if int(low) < int(high) else 1)


Ranges = list[tuple[int, int]]

_CLASSES: dict[str, Ranges] = {
    "d": [(48, 57)],
    "w": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "s": [(9, 13), (32, 32)],
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _one(character: str) -> Ranges:
    return [(ord(character), ord(character))]


def _escape(text: str, at: int) -> tuple[Ranges, bool, int]:
    """(ranges, whether they are negated, the position after it) of an escape, after its backslash"""
    character = text[at : at + 1]
    if character.lower() in _CLASSES and character:
        return _CLASSES[character.lower()], character.isupper(), at + 1
    if character in _CONTROLS and character:
        return _one(_CONTROLS[character]), False, at + 1
    if not character or (character.isascii() and character.isalnum()):
        raise UnsupportedError(f"\\{character} is not supported in a pattern", _HINT)
    return _one(character), False, at + 1


def _bracket(text: str, at: int) -> tuple[bool, Ranges, int]:
    """(whether it is negated, ranges, the position after it) of a character class, after its ``[``"""
    negated = text.startswith("^", at)
    at += negated
    ranges: Ranges = []
    while True:
        character = text[at : at + 1]
        if not character:
            raise UnsupportedError("a [ in the pattern is not closed")
        if character == "]" and ranges:
            return negated, ranges, at + 1
        if character in "[]^&" or (character == "-" and ranges and text[at + 1 : at + 2] != "]"):
            raise UnsupportedError(f"a {character} between [ and ] needs a backslash", _HINT)
        members, inverse, at = _escape(text, at + 1) if character == "\\" else (_one(character), False, at + 1)
        if inverse:
            raise UnsupportedError("\\D, \\S and \\W between [ and ] are not supported in a pattern", _HINT)
        if text.startswith("-", at) and text[at + 1 : at + 2] not in ("]", "") and members[0][0] == members[-1][1]:
            last = text[at + 1]
            after = at + 2
            if last == "\\":
                end, inverse, after = _escape(text, after)
                if inverse or end[0][0] != end[-1][1]:
                    raise UnsupportedError("a range in the pattern ends with a class", _HINT)
                last = chr(end[0][0])
            elif last in "[]^&":
                raise UnsupportedError(f"a {last} between [ and ] needs a backslash", _HINT)
            if ord(last) < members[0][0]:
                raise UnsupportedError("a range in the pattern is reversed")
            members, at = [(members[0][0], ord(last))], after
        ranges += members


def _class(part: Characters) -> str:
    if not part.negated and len(part.ranges) == 1 and part.ranges[0][0] == part.ranges[0][1]:
        return _shown(part.ranges[0][0])
    inside = "".join(_shown(low) if low == high else f"{_shown(low)}-{_shown(high)}" for low, high in part.ranges)
    return f"[{'^' if part.negated else ''}{inside}]"


def _other_case(ranges: Ranges) -> Iterator[tuple[int, int]]:
    """The other case of the ASCII letters, the only ones whose case Java ignores."""
    for low, high in ranges:
        for first, last, step in ((65, 90, 32), (97, 122, -32)):
            begin, end = max(low, first), min(high, last)
            if begin <= end:
                yield begin + step, end + step


def _shown(code: int) -> str:
    character = chr(code)
    if character.isascii() and character.isalnum():
        return character
    return {"\n": r"\n", "\r": r"\r"}.get(character, rf"\x{{{code:x}}}")
