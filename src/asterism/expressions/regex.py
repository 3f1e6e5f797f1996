"""Translates Spark's LIKE and RLIKE patterns for DuckDB, which matches regular expressions with RE2 instead of Java.

RE2 needs time linear in the string, whatever the pattern. Patterns that the two interpret differently are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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


def regex(pattern: str) -> tuple[str, bool, int]:
    """(the pattern for RE2; whether it contains ``$``, so that a string also matches if it does so without a line terminator
    at its end; the size of the pattern once repetitions are expanded, as RE2 does)

    >>> regex("^a.*[0-9]+$")
    ('^a[^\\\\n\\\\r\\\\x{85}\\\\x{2028}\\\\x{2029}]*[0-9]+\\\\z', True, 7)
    """
    fold = pattern.startswith("(?i)")
    translation = _Translation(pattern[4:] if fold else pattern, fold)
    while translation.at < len(translation.text):
        translation.take()
    if translation.groups:
        raise UnsupportedError("a ( in the pattern is not closed")
    return "".join(translation.parts), translation.any_end, translation.sizes[0]


class _Translation:
    """The state of :func:`regex`.

    :param fold: ignore the case of letters
    """

    def __init__(self, text: str, fold: bool) -> None:
        self.text, self.fold = text, fold
        self.at = 0
        self.parts: list[str] = []
        self.groups: list[bool] = []
        """for each open group: whether it contains ``$``"""
        self.sizes = [0]
        """the size of the whole pattern, and of each open group"""
        self.last = 0
        """the size of the item that a quantifier would repeat"""
        self.quantifiable = self.ended = self.any_end = False

    def take(self) -> None:
        """Translate the next item."""
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
                self._open()
            case ")":
                self._close()
            case "|":
                if self.ended and self.groups:
                    self.groups[-1] = True
                self.parts.append("|")
                self.ended = False
            case "^":
                self.parts.append("^")
            case "$":
                self.parts.append(r"\z")
                self.ended = self.any_end = True
            case _:
                self._add_class(character)

    def _quantify(self, character: str) -> None:
        if not self.quantifiable:
            raise UnsupportedError(f"nothing precedes the {character} in the pattern", _HINT)
        piece, self.at, times = _quantifier(self.text, self.at)
        self.parts.append(piece)
        self.sizes[-1] += self.last * (times - 1)
        self.quantifiable = False

    def _open(self) -> None:
        if self.text.startswith("?:", self.at):
            self.at += 2
        elif self.text.startswith("?", self.at):
            raise UnsupportedError("(? is not supported in a pattern", _HINT)
        if len(self.groups) >= _MAX_GROUPS:
            raise UnsupportedError(f"groups in the pattern are nested more than {_MAX_GROUPS:,} deep")
        self.parts.append("(?:")
        self.sizes.append(1)
        self.groups.append(False)

    def _close(self) -> None:
        if not self.groups:
            raise UnsupportedError("an unmatched ) in the pattern")
        self.parts.append(")")
        self.last = self.sizes.pop()
        self.sizes[-1] += self.last
        self.ended = self.groups.pop() or self.ended
        if self.groups and self.ended:
            self.groups[-1] = True

    def _add_class(self, character: str) -> None:
        """Translate a character, or a class of characters, that begins with *character*."""
        if character in "]}":
            raise UnsupportedError(f"a {character} in the pattern needs a backslash", _HINT)
        negated, ranges = False, _one(character)
        if character == ".":
            negated, ranges = True, [(ord(end), ord(end)) for end in _LINE_ENDS]
        elif character == "[":
            negated, ranges, self.at = _bracket(self.text, self.at)
        elif character == "\\":
            ranges, negated, self.at = _escape(self.text, self.at)
        self.parts.append(_class(ranges, negated, self.fold and character != "."))
        self.last = 5 if character == "." else len(ranges) * (1 if ranges[-1][1] < 128 else 2) + 5 * negated
        self.sizes[-1] += self.last


def _quantifier(text: str, at: int) -> tuple[str, int, int]:
    """(the quantifier as written, the position after it, how many copies of its operand RE2 makes)"""
    match = re.compile(r"(\*|\+|\?|\{(\d+)(,(\d*))?\})\??").match(text, at)
    if match is None:
        raise UnsupportedError("a { in the pattern needs a backslash", _HINT)
    low, high = match.group(2), match.group(4) or match.group(2)
    if low is not None and (max(int(low), int(high)) > _MAX_REPEAT or int(high) < int(low)):
        raise UnsupportedError(f"{match.group()} in the pattern: from 0 to {_MAX_REPEAT:,} repetitions")
    if text[match.end() : match.end() + 1] in ("*", "+", "?", "{"):
        raise UnsupportedError(f"{text[match.end()]} after {match.group()} is not supported in a pattern", _HINT)
    times = 1 if low is None else int(high) * (2 if int(low) < int(high) else 1)
    return match.group(), match.end(), times


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


def _class(ranges: Ranges, negated: bool, fold: bool) -> str:
    """A character class; *fold*: ignore the case of ASCII letters, as in Java."""
    if fold:
        ranges = [*ranges, *_other_case(ranges)]
    if not negated and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return _shown(ranges[0][0])
    inside = "".join(_shown(low) if low == high else f"{_shown(low)}-{_shown(high)}" for low, high in ranges)
    return f"[{'^' if negated else ''}{inside}]"


def _other_case(ranges: Ranges) -> Iterator[tuple[int, int]]:
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
