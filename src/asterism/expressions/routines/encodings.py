"""Digests, encodings of bytes as text and of text as bytes, escapes of URLs."""

from __future__ import annotations

import base64
import hashlib
import hmac as keyed
import re
import urllib.parse
import zlib
from collections.abc import Callable

import pyarrow as pa

from asterism.expressions.udfs import constant, each, each_row, routine

CHARSETS: dict[str, tuple[str, bytes]] = {
    "US-ASCII": ("ascii", b""),
    "ISO-8859-1": ("latin-1", b""),
    "UTF-8": ("utf-8", b""),
    "UTF-16BE": ("utf-16-be", b""),
    "UTF-16LE": ("utf-16-le", b""),
    "UTF-16": ("utf-16-be", b"\xfe\xff"),
    "UTF-32": ("utf-32-be", b""),
}
"""Spark's character sets: Python's names, and what Java writes before the text."""
DIGESTS = {
    "SHA224": "sha224", "SHA256": "sha256", "SHA384": "sha384", "SHA512": "sha512", "SHA1": "sha1", "MD5": "md5",
}  # fmt: skip
"""The algorithms of hmac; the SHA ones may also be written with a hyphen."""

# ---------------------------------------------------------------------------------------------------- digests


@routine("VARCHAR", "BLOB", "INTEGER", nulls=True)
def sha2_digest(values: pa.ChunkedArray, bits: pa.ChunkedArray) -> pa.Array:
    """In hexadecimal; null for a number of bits that has no algorithm."""

    def digest(value: bytes | None, size: int | None) -> str | None:
        if value is None or size not in (0, 224, 256, 384, 512):
            return None
        return hashlib.new(f"sha{size or 256}", value, usedforsecurity=False).hexdigest()

    return each_row([values, bits], digest, pa.string())


@routine("BLOB", "BLOB", "BLOB", "VARCHAR")
def keyed_digest(keys: pa.ChunkedArray, messages: pa.ChunkedArray, algorithms: pa.ChunkedArray) -> pa.Array:
    algorithm = constant(algorithms)

    def digest(key: bytes, message: bytes) -> bytes:
        if not key:
            raise ValueError("the key of hmac is empty")
        return keyed.digest(key, message, algorithm)

    return each_row([keys, messages], digest, pa.binary())


@routine("BIGINT", "BLOB")
def crc32_of(values: pa.ChunkedArray) -> pa.Array:
    return each(values, zlib.crc32, pa.int64())


# ---------------------------------------------------------------------------------------------------- bytes as text

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE64 = {ord(letter): number for number, letter in enumerate(_ALPHABET)}
_EQUALS = ord("=")


def _from_base64(text: bytes) -> bytes:
    """As Java's decoder for MIME: other characters are ignored, and padding may be missing."""
    problem = "it is not valid Base64"
    sextets: list[int] = []
    at = 0
    while at < len(text):
        byte = text[at]
        at += 1
        if byte == _EQUALS:
            rest = len(sextets) % 4
            if rest == 0:
                raise ValueError(problem)
            if rest == 2:
                if text[at : at + 1] != b"=":
                    raise ValueError(problem)
                at += 1
            break
        if byte in _BASE64:
            sextets.append(_BASE64[byte])
    if len(sextets) % 4 == 1 or any(byte in _BASE64 for byte in text[at:]):
        raise ValueError(problem)
    return _joined(sextets, 6)


def _joined(digits: list[int], size: int) -> bytes:
    """The whole bytes of digits of *size* bits each."""
    number = 0
    for digit in digits:
        number = number << size | digit
    bits = len(digits) * size
    return (number >> bits % 8).to_bytes(bits // 8, "big")


@routine("BLOB", "VARCHAR")
def from_base64_mime(strings: pa.ChunkedArray) -> pa.Array:
    return each(strings, lambda string: _from_base64(string.encode()), pa.binary())


@routine("VARCHAR", "BLOB")
def base32_of(values: pa.ChunkedArray) -> pa.Array:
    return each(values, lambda value: base64.b32encode(value).decode(), pa.string())


_BASE32 = {ord(letter): number for number, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")}
_BASE32 |= {ord(chr(code).lower()): number for code, number in _BASE32.items()}


@routine("BLOB", "VARCHAR")
def bytes_of_base32(strings: pa.ChunkedArray) -> pa.Array:
    """Other characters are ignored, as is what follows an equals sign."""

    def decode(string: str) -> bytes:
        text = string.partition("=")[0].encode()
        digits = [_BASE32[digit] for digit in text if digit in _BASE32]
        whole = _joined(digits, 5)
        if len(digits) % 8 != 1:
            return whole
        # A single digit at the end is read with the last bits of the group before.
        before, digit = [0, *digits][-2:]
        return whole + bytes([(before << 3 | digit >> 2) & 255])

    return each(strings, decode, pa.binary())


# ---------------------------------------------------------------------------------------------------- text as bytes


@routine("BLOB", "VARCHAR", "VARCHAR")
def encoded_text(strings: pa.ChunkedArray, charsets: pa.ChunkedArray) -> pa.Array:
    name, mark = CHARSETS[constant(charsets)]
    return each(strings, lambda string: mark * bool(string) + string.encode(name), pa.binary())


@routine("VARCHAR", "BLOB", "VARCHAR")
def decoded_text(values: pa.ChunkedArray, charsets: pa.ChunkedArray) -> pa.Array:
    charset = constant(charsets)
    name = CHARSETS[charset][0]

    def decode(value: bytes) -> str:
        codec = name
        # A mark of the order of bytes precedes the text.
        size = {"UTF-16": 2, "UTF-32": 4}.get(charset)
        if size is not None:
            order = value[:size]
            if order in ("\ufeff".encode(name), "\ufeff".encode(name[:-2] + "le")):
                codec = name if order == "\ufeff".encode(name) else name[:-2] + "le"
                value = value[size:]
        if charset != "UTF-32":
            return value.decode(codec)
        return value.decode(codec, "surrogatepass").encode(errors="replace").decode()

    return each(values, decode, pa.string())


@routine("BLOB", "VARCHAR", "VARCHAR", "BOOLEAN", nulls=True)
def bytes_of_text(strings: pa.ChunkedArray, formats: pa.ChunkedArray, tried: pa.ChunkedArray) -> pa.Array:
    """The bytes of a string in hexadecimal or Base64; an error if it is none, or null if it is only tried."""
    convert = _from_strict_base64 if constant(formats) == "base64" else _from_hex
    return each(strings, _or_none(convert, constant(tried)), pa.binary())


def _or_none(convert: Callable[[str], bytes], tried: bool) -> Callable[[str], bytes | None]:
    def attempt(string: str) -> bytes | None:
        try:
            return convert(string)
        except ValueError:
            if not tried:
                raise
            return None

    return attempt


def _from_hex(string: str) -> bytes:
    if not re.fullmatch("[0-9A-Fa-f]*", string):
        raise ValueError(f"{string!r:.60} is not hexadecimal")
    return bytes.fromhex("0" * (len(string) % 2) + string)


def _from_strict_base64(string: str) -> bytes:
    match = re.fullmatch(r"((?:[A-Za-z0-9+/]|\s)*)(={0,2})", string)
    digits, padding = ("", "x") if match is None else ("".join(match.group(1).split()), match.group(2))
    if (len(digits) + len(padding)) % 4 if padding else len(digits) % 4 == 1:
        raise ValueError(f"{string!r:.60} is not valid Base64")
    return _from_base64(string.encode())


@routine("VARCHAR", "BLOB", "VARCHAR", nulls=True)
def utf8_text(values: pa.ChunkedArray, modes: pa.ChunkedArray) -> pa.Array:
    """Bytes as text; where they are no UTF-8, null or with replacement characters."""
    mode = constant(modes)

    def decode(value: bytes) -> str | None:
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.decode(errors="replace") if mode == "replace" else None

    return each(values, decode, pa.string())


# ---------------------------------------------------------------------------------------------------- URLs


@routine("VARCHAR", "VARCHAR")
def url_escaped(strings: pa.ChunkedArray) -> pa.Array:
    return each(strings, lambda string: urllib.parse.quote_plus(string, safe="*").replace("~", "%7E"), pa.string())


_ESCAPES = re.compile(r"(?:%(?:[0-9A-Fa-f]{2}|\+[0-9A-Fa-f]))+")  # Java reads %+f, too


@routine("VARCHAR", "VARCHAR", "BOOLEAN", nulls=True)
def url_unescaped(strings: pa.ChunkedArray, tried: pa.ChunkedArray) -> pa.Array:
    """As Java's ``URLDecoder``; an error if an escape is wrong, or null if it is only tried."""
    only_tried = constant(tried)

    def decode(string: str) -> str | None:
        if "%" in _ESCAPES.sub("", string):
            if only_tried:
                return None
            raise ValueError(f"{string!r:.60} has a % that is no escape")
        spaced = re.sub(r"(?<!%)\+", " ", string)
        return _ESCAPES.sub(
            lambda match: bytes(int(code, 16) for code in match.group().split("%")[1:]).decode(errors="replace"), spaced
        )

    return each(strings, decode, pa.string())
