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
    parts: list[str] = []
    groups: list[bool] = []  # for each open group: whether it contains "$"
    sizes = [0]  # the size of the whole pattern, and of each open group
    last = 0  # the size of the item that a quantifier would repeat
    fold = False
    text = pattern
    if text.startswith("(?i)"):
        fold, text = True, text[4:]
    at = 0
    quantifiable = ended = False
    any_end = False
    while at < len(text):
        character = text[at]
        if ended and character not in ")|":
            raise UnsupportedError("$ is supported only at the end of a pattern or of an alternative", _HINT)
        if character in "*+?{":
            if not quantifiable:
                raise UnsupportedError(f"nothing precedes the {character} in the pattern", _HINT)
            piece, at, times = _quantifier(text, at)
            parts.append(piece)
            sizes[-1] += last * (times - 1)
            quantifiable = False
            continue
        at += 1
        quantifiable = True
        if character == "(":
            if text.startswith("?:", at):
                at += 2
            elif text.startswith("?", at):
                raise UnsupportedError("(? is not supported in a pattern", _HINT)
            if len(groups) >= _MAX_GROUPS:
                raise UnsupportedError(f"groups in the pattern are nested more than {_MAX_GROUPS:,} deep")
            parts.append("(?:")
            sizes.append(1)
            groups.append(False)
            quantifiable = False
        elif character == ")":
            if not groups:
                raise UnsupportedError("an unmatched ) in the pattern")
            parts.append(")")
            last = sizes.pop()
            sizes[-1] += last
            ended = groups.pop() or ended
            if groups and ended:
                groups[-1] = True
        elif character == "|":
            if ended and groups:
                groups[-1] = True
            parts.append("|")
            quantifiable = ended = False
        elif character == "^":
            parts.append("^")
            quantifiable = False
        elif character == "$":
            parts.append(r"\z")
            ended = any_end = True
            quantifiable = False
        else:
            if character in "]}":
                raise UnsupportedError(f"a {character} in the pattern needs a backslash", _HINT)
            negated, ranges = False, _one(character)
            if character == ".":
                negated, ranges = True, [(ord(end), ord(end)) for end in _LINE_ENDS]
            elif character == "[":
                negated, ranges, at = _bracket(text, at)
            elif character == "\\":
                ranges, negated, at = _escape(text, at)
            parts.append(_class(ranges, negated, fold and character != "."))
            last = 5 if character == "." else len(ranges) * (1 if ranges[-1][1] < 128 else 2) + 5 * negated
            sizes[-1] += last
    if groups:
        raise UnsupportedError("a ( in the pattern is not closed")
    return "".join(parts), any_end, sizes[0]


def _quantifier(text: str, at: int) -> tuple[str, int, int]:
    """(the quantifier as written, the position after it, how many copies of its operand RE2 makes)"""
    found = re.compile(r"(\*|\+|\?|\{(\d+)(,(\d*))?\})\??").match(text, at)
    if found is None:
        raise UnsupportedError("a { in the pattern needs a backslash", _HINT)
    low, high = found.group(2), found.group(4) or found.group(2)
    if low is not None and (max(int(low), int(high)) > _MAX_REPEAT or int(high) < int(low)):
        raise UnsupportedError(f"{found.group()} in the pattern: from 0 to {_MAX_REPEAT:,} repetitions")
    if text[found.end() : found.end() + 1] in ("*", "+", "?", "{"):
        raise UnsupportedError(f"{text[found.end()]} after {found.group()} is not supported in a pattern", _HINT)
    times = 1 if low is None else int(high) * (2 if int(low) < int(high) else 1)
    return found.group(), found.end(), times


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
        found, inverse, at = _escape(text, at + 1) if character == "\\" else (_one(character), False, at + 1)
        if inverse:
            raise UnsupportedError("\\D, \\S and \\W between [ and ] are not supported in a pattern", _HINT)
        if text.startswith("-", at) and text[at + 1 : at + 2] not in ("]", "") and found[0][0] == found[-1][1]:
            last = text[at + 1]
            after = at + 2
            if last == "\\":
                end, inverse, after = _escape(text, after)
                if inverse or end[0][0] != end[-1][1]:
                    raise UnsupportedError("a range in the pattern ends with a class", _HINT)
                last = chr(end[0][0])
            elif last in "[]^&":
                raise UnsupportedError(f"a {last} between [ and ] needs a backslash", _HINT)
            if ord(last) < found[0][0]:
                raise UnsupportedError("a range in the pattern is reversed")
            found, at = [(found[0][0], ord(last))], after
        ranges += found


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
