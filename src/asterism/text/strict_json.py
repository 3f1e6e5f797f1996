"""Strict parsing of JSON, and the position of each value in the text.

Only UTF-8 is accepted, and duplicate names in an object, NaN and excessively long numbers are refused: other parsers accept
them, often with another meaning than intended.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

MAX_BYTES = 1_000_000
MAX_DIGITS = 20  # of an integer; 64 bits have 19
MAX_NAME = 200  # characters in the name of a field, which a message may quote

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s{}\[\],:"]+')
_ENCODINGS = {
    codecs.BOM_UTF8: "UTF-8 with a byte order mark",
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_SAVE_AS = "save it as UTF-8 without a byte order mark"


class DocumentSyntaxError(Exception):
    """The text cannot be parsed: the reason (*message*, *detail*, *hint*), and the line and column, both from 1.

    Without an *offset*, the problem is the text as a whole.
    """

    def __init__(
        self,
        message: str,
        text: str = "",
        offset: int | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint
        self.offset = offset
        self.line, self.column = line_and_column(text, offset or 0)

    @property
    def place(self) -> str | None:
        """The position in the wording of Python."""
        return None if self.offset is None else f"line {self.line} column {self.column} (char {self.offset})"


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1.

    >>> line_and_column("ab\\ncd", 4)
    (2, 2)
    """
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def offset_in_string(literal: str, index: int) -> int:
    r"""Where the character at *index* of a string stands in the string as it is written, with quotes and escapes.

    >>> literal = r'"a\n\u00e4b"'
    >>> literal[offset_in_string(literal, 3)]
    'b'
    """
    offset = 1
    for _ in range(index):
        if literal[offset : offset + 1] != "\\":
            offset += 1
        elif literal[offset + 1 : offset + 2] in ("u", "U", "x"):
            length = {"x": 4, "u": 6, "U": 10}[literal[offset + 1]]
            is_pair = literal[offset : offset + 4].lower() in ("\\ud8", "\\ud9", "\\uda", "\\udb")
            offset += 12 if is_pair else length
        else:
            offset += 2
    return min(offset, len(literal) - 1)


class Locate(Protocol):
    """Maps a JSON pointer, relative to a value, to a line and column of the document that contains it.

    :param index: if the pointer leads to a string: of the character at this index in it
    """

    def __call__(self, pointer: str, index: int = 0, /) -> tuple[int, int]: ...


def nowhere(pointer: str, index: int = 0) -> tuple[int, int]:
    """The place of a value without a document."""
    return 1, 1


def place_in(text: str, pointer: str, index: int = 0) -> tuple[int, int]:
    r"""Line and column, from 1, of the value at a JSON pointer, or of its closest ancestor; see :class:`Locate`.

    >>> place_in('{"sql":\n  "PATTERN (A)"}', "/sql", len("PATTERN "))
    (2, 12)
    """
    offset = offset_of(text, pointer)
    if index and offset != offset_of(text, pointer.rpartition("/")[0]):
        offset += offset_in_string(text[offset:], index)
    return line_and_column(text, offset)


def text_of(source: str | bytes, limit: int = MAX_BYTES, language: str = "JSON") -> str:
    """Check the size and encoding of *source* and return its text. *source* may be truncated after ``limit + 1``.

    :param language: how messages call it
    """
    if len(source) > limit:
        raise DocumentSyntaxError(f"the {language} is too large (limit {limit:,} bytes)")
    if isinstance(source, bytes):
        for mark, encoding in _ENCODINGS.items():
            if source.startswith(mark):
                raise DocumentSyntaxError(f"the {language} is encoded in {encoding}", hint=_SAVE_AS)
        try:
            text = source.decode("utf-8")
        except UnicodeDecodeError as error:
            before = source[: error.start].decode("utf-8")
            raise DocumentSyntaxError(
                f"the {language} is not valid UTF-8", before, len(before), error.reason, _SAVE_AS
            ) from None
    else:
        text = source
    if text.startswith("\ufeff"):
        raise DocumentSyntaxError(f"the {language} begins with a byte order mark", hint="read the file as utf-8-sig")
    if not text.strip():
        raise DocumentSyntaxError(f"the {language} is empty")
    return text


def decode(text: str) -> Any:
    """Parse *text*.

    :raises DocumentSyntaxError: it is not JSON, or is refused by the strict rules

    >>> decode('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    asterism.text.strict_json.DocumentSyntaxError: the name 'a' occurs twice in one object
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_refused, parse_int=_integer)
    except _RefusedError:
        # The hooks do not get the position. Up to it, the text is well formed.
        raise _first_refusal(text) from None
    except RecursionError:
        raise DocumentSyntaxError("the JSON is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise DocumentSyntaxError("invalid JSON", text, error.pos, error.msg) from None


def offset_of(text: str, pointer: str) -> int:
    """The offset of the value of a JSON pointer (RFC 6901); if there is none, that of its closest ancestor.

    The text must be well formed.

    >>> text = '{"a": [10, {"b/c": 20}]}'
    >>> [text[offset_of(text, pointer) :] for pointer in ("/a/0", "/a/1/b~1c", "/a/7")]
    ['10, {"b/c": 20}]}', '20}]}', '[10, {"b/c": 20}]}']
    """
    wanted = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    best, offset = -1, 0
    for path, start, _ in _values(text):
        if len(path) == best + 1 <= len(wanted) and [str(name) for name in path] == wanted[: len(path)]:
            best, offset = len(path), start
    return offset


def pointer_part(name: object) -> str:
    """A name or an index as a token of a JSON pointer."""
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def _values(text: str) -> Iterator[tuple[Sequence[str | int | None], int, str]]:
    """Yield (path, offset, first token) of each value in text order. The path is valid only until the next value."""
    path: list[str | int | None] = []  # for each open container: the index or the name; None: a name is next
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("}", "]"):
            path.pop()
        elif token == ",":
            path[-1] = path[-1] + 1 if isinstance(path[-1], int) else None
        elif path and path[-1] is None:
            path[-1] = json.loads(token)
        elif token != ":":
            yield path, match.start(), token
            if token in ("{", "["):
                path.append(None if token == "{" else 0)


# ---------------------------------------------------------------------- what is refused


class _RefusedError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs) or any(len(name) > MAX_NAME for name in members):
        raise _RefusedError
    return members


def _refused(token: str) -> NoReturn:
    raise _RefusedError


def _integer(token: str) -> int:
    if len(token) > MAX_DIGITS:
        raise _RefusedError
    return int(token)


def _first_refusal(text: str) -> DocumentSyntaxError:
    seen: dict[int, set[str]] = {}  # the names so far of the open object at each depth
    for path, offset, token in _values(text):
        if path and isinstance(path[-1], str):
            name, names = path[-1], seen[len(path)]
            if name in names:
                return DocumentSyntaxError(f"the name {name!r} occurs twice in one object", text, offset)
            if len(name) > MAX_NAME:
                return DocumentSyntaxError(f"a name of {len(name):,} characters is too long", text, offset)
            names.add(name)
        if token == "{":
            seen[len(path) + 1] = set()
        elif token in ("NaN", "Infinity", "-Infinity"):
            return DocumentSyntaxError(f"{token} is not allowed in JSON", text, offset)
        elif len(token) > MAX_DIGITS and re.fullmatch(r"-?\d+", token):
            return DocumentSyntaxError(f"a number of {len(token):,} digits is too large", text, offset)
    raise AssertionError("what was refused must be in the text")
