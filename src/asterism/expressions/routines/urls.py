"""Parts of URLs, as ``java.net.URI`` reads them: RFC 2396 with visible characters beyond ASCII."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa

from asterism.expressions.udfs import constant, each, routine

PARTS = ("HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")

_UNRESERVED = r"A-Za-z0-9\-_.!~*'()"
_OTHER = "[^\x00-\x9f\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
"""A character beyond ASCII that is neither a space nor a control character."""


def _of(characters: str) -> re.Pattern[str]:
    """Any number of these characters, unreserved ones, escapes and characters beyond ASCII."""
    return re.compile(rf"(?:[{_UNRESERVED}{characters}]|%[0-9A-Fa-f]{{2}}|{_OTHER})*")


_ANY = _of(r";/?:@&=+$,\[\]")
_PATH = _of(r":@&=+$,;/")
_USER = _of(";:&=+$,")
_REGISTRY = _of("$,;:@&=+")
_SERVER = _of(r";:&=+$,@\[\]")
_SERVER_WITH_SCOPE = re.compile(rf"(?:[{_UNRESERVED};:&=+$,@\[\]%]|{_OTHER})*")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*")
_REFERENCE = re.compile(r"([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9\-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*({_LABEL})\.?")
_IPV4 = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)\.([0-9]+)")
_HEX = r"[0-9A-Fa-f]{1,4}"
_WORDS = rf"{_HEX}(?::{_HEX})*"
_LAST = r"[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+"


class _InvalidError(Exception):
    """It is no URL."""


def _check(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise _InvalidError
    return text


def _parsed(url: str) -> dict[str, str | None]:
    """The parts of a URL; :class:`_InvalidError` if it is none."""
    parts: dict[str, str | None] = dict.fromkeys(PARTS)
    rest = url
    colon = re.match("[^/?#:]*:", url)
    if colon is not None:
        parts["PROTOCOL"] = _check(_SCHEME, colon.group()[:-1])
        rest = url[colon.end() :]
        if not rest.startswith("/"):  # an opaque URL, such as mailto:a@b
            opaque, mark, fragment = rest.partition("#")
            if not opaque:
                raise _InvalidError
            _check(_ANY, opaque)
            parts["REF"] = _check(_ANY, fragment) if mark else None
            return parts
    if rest.startswith("//"):
        authority = re.compile("[^/?#]*").match(rest, 2)
        assert authority is not None
        if authority.group():
            _add_authority(parts, authority.group())
        elif authority.end() == len(rest):
            raise _InvalidError
        rest = rest[authority.end() :]
    match = _REFERENCE.fullmatch(rest)
    assert match is not None
    path, query, fragment = match.groups()
    parts["PATH"] = parts["FILE"] = _check(_PATH, path)
    if query is not None:
        parts["QUERY"] = _check(_ANY, query)
        parts["FILE"] = f"{path}?{query}"
    parts["REF"] = None if fragment is None else _check(_ANY, fragment)
    return parts


def _add_authority(parts: dict[str, str | None], authority: str) -> None:
    """Add a server with its user and host; another authority, such as one with an underscore, has no host."""
    named = bool(_REGISTRY.fullmatch(authority))
    if (_SERVER_WITH_SCOPE if "]" in authority[1:] else _SERVER).fullmatch(authority):
        try:
            parts["USERINFO"], parts["HOST"] = _server(authority)
        except _InvalidError:
            if not named:
                raise
    elif not named:
        raise _InvalidError
    parts["AUTHORITY"] = authority


def _server(authority: str) -> tuple[str | None, str]:
    """(user, host)"""
    user, at, address = authority.partition("@")
    if at:
        _check(_USER, user)
    else:
        user, address = "", authority
    if address.startswith("["):
        end = address.find("]")
        host, scope, name = address[1:end].partition("%")
        if end < 2 or not _is_ipv6(host) or (scope and not re.fullmatch("[A-Za-z0-9_.]+", name)):
            raise _InvalidError
        host, port = address[: end + 1], address[end + 1 :]
    else:
        host, colon, number = address.partition(":")
        port = colon + number
        if not _is_ipv4(host):
            match = _HOST.fullmatch(host)
            if match is None or (match.start(1) and not match.group(1)[0].isalpha()):
                raise _InvalidError
    if port and not re.fullmatch(":[0-9]*", port):
        raise _InvalidError
    if len(port) > 1 and int(port[1:]) >= 2**31:
        raise _InvalidError
    return user if at else None, host


def _is_ipv4(text: str) -> bool:
    match = _IPV4.fullmatch(text)
    return match is not None and all(int(part) < 256 for part in match.groups())


def _is_ipv6(text: str) -> bool:
    before, compressed, after = text.partition("::")
    last = after if compressed else before
    if compressed and not re.fullmatch(f"(?:{_WORDS})?", before):
        return False
    form = rf"(?:{_WORDS}(?::({_LAST}))?|({_LAST}))?" if compressed else rf"{_WORDS}(?::({_LAST}))?"
    match = re.fullmatch(form, last)
    if match is None:
        return False
    address = next((group for group in match.groups() if group), None)
    if address is not None and not _is_ipv4(address):
        return False
    size = sum(2 for part in (before, after) for word in part.split(":") if word and "." not in word)
    size += 4 if address else 0
    return size < 16 if compressed else size == 16


def _part_of(part: str, key: str | None) -> Callable[[str], str | None]:
    # Spark takes the key as a regular expression, in which a dot is any character.
    value = None if key is None else re.compile(f"(?:&|^){re.escape(key).replace(chr(92) + '.', '.')}=([^&]*)")

    def extract(url: str) -> str | None:
        text = _parsed(url)[part]
        if value is None or text is None:
            return text
        match = value.search(text)
        return None if match is None else match.group(1)

    return extract


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "BOOLEAN", nulls=True)
def url_part(urls: pa.ChunkedArray, parts: pa.ChunkedArray, keys: pa.ChunkedArray, tried: pa.ChunkedArray) -> pa.Array:
    """A part of a URL, or the value of a key in its query; an error for what is no URL, or null if it is only tried."""
    extract, only_tried = _part_of(constant(parts), constant(keys)), constant(tried)

    def convert(url: str) -> str | None:
        try:
            return extract(url)
        except _InvalidError:
            if only_tried:
                return None
            raise ValueError(f"{url!r:.100} is not a URL") from None

    return each(urls, convert, pa.string())
