"""Functions of digests, hashes, and encodings of bytes and texts."""

from __future__ import annotations

import re

import pyarrow as pa

from asterism.expressions.functions.table import function, integer, literal_string, octets, string
from asterism.expressions.operators import choose, null_safe
from asterism.expressions.routines import encodings, hashes, urls  # noqa: F401
from asterism.expressions.routines.encodings import CHARSETS, DIGESTS
from asterism.expressions.routines.urls import PARTS
from asterism.expressions.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    INTERVALS,
    MONTHS,
    NULL,
    STRING,
    common_type,
    duckdb_type,
    is_decimal,
    name_of,
)
from asterism.expressions.values import (
    Cost,
    Sql,
    UnsupportedError,
    cast,
    combined,
    null,
    strict,
    string_constant,
    unify,
)

_BYTES = "Digests and encodings"
_DIGITS = 18  # of a DECIMAL that fits into 64 bits

# ---------------------------------------------------------------------------------------------------- digests


@function(_BYTES, "md5(a)", note="in hexadecimal; as all functions here, of BINARY or of the UTF-8 of a text")
def _md5(zone: str, value: Sql) -> Sql:
    return strict("md5({0})", STRING, octets(value, zone), size=Cost(fixed=32))


@function(_BYTES, "sha1(a)", "sha", note="likewise")
def _sha1(zone: str, value: Sql) -> Sql:
    return strict("sha1({0})", STRING, octets(value, zone), size=Cost(fixed=40))


@function(_BYTES, "sha2(a, bits)", note="of 224, 256, 384 or 512 bits, 0 means 256; otherwise NULL")
def _sha2(zone: str, value: Sql, bits: Sql) -> Sql:
    value, bits = octets(value, zone), integer(bits, zone)
    if bits.constant is not None and bits.constant in (0, 256):
        return strict("sha256({0})", STRING, value, size=Cost(fixed=64))
    return strict("sha2_digest({0}, {1})", STRING, value, bits, nulls=True, size=Cost(fixed=128))


@function(
    _BYTES,
    "hmac(key, a[, 'algorithm'])",
    note="BINARY; SHA-256 by default, SHA-1 to SHA-512, MD5; fails for an empty key",
)
def _hmac(zone: str, key: Sql, message: Sql, algorithm: Sql | None = None) -> Sql:
    if algorithm is not None and algorithm.type == NULL:
        return null(BINARY)
    name = "SHA-256" if algorithm is None else literal_string(algorithm, "the algorithm")
    digest = DIGESTS.get(name.upper().replace("SHA-", "SHA"))
    if digest is None:
        raise UnsupportedError(f"unknown algorithm {name!r:.60}", ", ".join(DIGESTS))
    parts = [octets(key, zone), octets(message, zone)]
    return strict(f"keyed_digest({{0}}, {{1}}, '{digest}')", BINARY, *parts, raises=True, size=Cost(fixed=64))


@function(_BYTES, "crc32(a)", note="a BIGINT")
def _crc32(zone: str, value: Sql) -> Sql:
    return strict("crc32_of({0})", BIGINT, octets(value, zone))


@function(_BYTES, "hash(a, ...)", note="Spark's Murmur3, an INT; not of arrays, maps and structs", strict=False)
def _hash(zone: str, first: Sql, *others: Sql) -> Sql:
    return _hashed("murmur", INT, [first, *others], zone)


@function(_BYTES, "xxhash64(a, ...)", note="a BIGINT; likewise", strict=False)
def _xxhash64(zone: str, first: Sql, *others: Sql) -> Sql:
    return _hashed("xxhash", BIGINT, [first, *others], zone)


def _hashed(name: str, result: pa.DataType, values: list[Sql], zone: str) -> Sql:
    text = f"CAST(42 AS {duckdb_type(result)})"
    for value in values:
        if value.type != NULL:
            kind, part = _hashable(value, zone)
            text = f"{name}_{kind}({part.text}, {text})"
    return combined(text, result, values, ())


def _hashable(value: Sql, zone: str) -> tuple[str, Sql]:
    """(what Spark hashes a value as, the value as that)"""
    kind = value.type
    if kind in (STRING, BINARY):
        return "bytes", octets(value, zone)
    if kind == BIGINT or kind in INTERVALS:
        return "long", value
    if kind in INTEGERS or kind in (BOOLEAN, MONTHS):
        return "int", strict("CAST({0} AS INTEGER)", INT, value)
    if kind == DATE:
        return "int", strict("CAST(({0} - DATE '1970-01-01') AS INTEGER)", INT, value)
    if pa.types.is_timestamp(kind):
        return "long", strict("epoch_us({0})", BIGINT, value)
    if kind == FLOAT:
        return "int", strict("CAST(float_bits({0}) AS INTEGER)", INT, value)
    if kind == DOUBLE:
        return "long", strict("double_bits({0})", BIGINT, value)
    if is_decimal(kind) and kind.precision <= _DIGITS:
        return "long", strict("unscaled_long(CAST({0} AS VARCHAR))", BIGINT, value)
    if is_decimal(kind):
        return "bytes", strict("unscaled_bytes(CAST({0} AS VARCHAR))", BINARY, value)
    raise UnsupportedError(f"{name_of(kind)} is not supported", "hash its elements or fields")


# ---------------------------------------------------------------------------------------------------- bytes as text


@function(_BYTES, "hex(a)", note="in upper case; of an integer, without leading zeros")
def _hex(zone: str, value: Sql) -> Sql:
    if value.type in INTEGERS:
        return strict("hex({0})", STRING, cast(value, BIGINT, zone))
    value = octets(value, zone)
    return strict("hex({0})", STRING, value, size=value.size.times(2))


@function(_BYTES, "unhex(text)", note="BINARY; NULL where it is not hexadecimal")
def _unhex(zone: str, value: Sql) -> Sql:
    text = (
        "CASE WHEN regexp_full_match({0}, '[0-9A-Fa-f]*') "
        "THEN unhex(CASE WHEN strlen({0}) % 2 = 1 THEN concat('0', {0}) ELSE {0} END) END"
    )
    return strict(text, BINARY, string(value, zone), nulls=True, guarded=True)


@function(_BYTES, "base64(a)", note="in lines of 76 characters, separated by CR and LF")
def _base64(zone: str, value: Sql) -> Sql:
    value = octets(value, zone)
    line = "chr(13) || chr(10)"
    text = f"rtrim(regexp_replace(to_base64({{0}}), '.{{{{76}}}}', '\\0' || {line}, 'g'), {line})"
    return strict(text, STRING, value, size=value.size.times(4 / 3 * 78 / 76) + Cost(fixed=4))


@function(_BYTES, "unbase64(text)", note="BINARY; other characters are ignored; fails where it is incomplete")
def _unbase64(zone: str, value: Sql) -> Sql:
    return strict("from_base64_mime({0})", BINARY, string(value, zone), raises=True)


@function(_BYTES, "to_base32(a)")
def _to_base32(zone: str, value: Sql) -> Sql:
    value = octets(value, zone)
    return strict("base32_of({0})", STRING, value, size=value.size.times(8 / 5) + Cost(fixed=8))


@function(_BYTES, "from_base32(text)", note="BINARY; other characters are ignored")
def _from_base32(zone: str, value: Sql) -> Sql:
    return strict("bytes_of_base32({0})", BINARY, string(value, zone))


# ---------------------------------------------------------------------------------------------------- text as bytes


def _charset(value: Sql) -> str:
    name = literal_string(value, "the character set").upper()
    if name not in CHARSETS:
        raise UnsupportedError(f"unknown character set {name!r:.60}", ", ".join(CHARSETS))
    return name


@function(
    _BYTES,
    "encode(text, 'charset')",
    note="BINARY; US-ASCII, ISO-8859-1, UTF-8, UTF-16BE, UTF-16LE, UTF-16, UTF-32",
)
def _encode(zone: str, value: Sql, charset: Sql) -> Sql:
    name, value = _charset(charset), string(value, zone)
    size = value.size.times(4) + Cost(fixed=4)
    raises = name in ("US-ASCII", "ISO-8859-1")
    return strict(f"encoded_text({{0}}, '{name}')", BINARY, value, raises=raises, size=size)


@function(
    _BYTES,
    "decode(a, 'charset')",
    note="a text; fails where it is none. decode(a, b, c, ..., d): c where a <=> b, ..., otherwise d",
    strict=False,
)
def _decode(zone: str, value: Sql, charset: Sql, *others: Sql) -> Sql:
    if not others:
        value, name = octets(value, zone), _charset(charset)
        return strict(f"decoded_text({{0}}, '{name}')", STRING, value, raises=True, size=value.size.times(2))
    searches = [charset, *others]
    default = searches.pop() if len(searches) % 2 else None
    results = unify([*searches[1::2], null() if default is None else default], zone, "DECODE")
    if default is None:  # in Spark it is a STRING that is NULL
        kind = common_type(STRING, results[0].type) or results[0].type
        results = [cast(result, kind, zone) for result in results]
    tests = [null_safe(value, search, zone, distinct=False) for search in searches[::2]]
    return choose(list(zip(tests, results[:-1], strict=True)), results[-1], zone, "DECODE")


@function(
    _BYTES,
    "to_binary(text[, 'format'])",
    note="BINARY of 'hex', by default, 'utf-8' or 'base64'; fails for others",
)
def _to_binary(zone: str, value: Sql, form: Sql | None = None) -> Sql:
    return _binary_of(zone, value, form, tried=False)


@function(_BYTES, "try_to_binary(text[, 'format'])", note="likewise; NULL for others")
def _try_to_binary(zone: str, value: Sql, form: Sql | None = None) -> Sql:
    return _binary_of(zone, value, form, tried=True)


def _binary_of(zone: str, value: Sql, form: Sql | None, *, tried: bool) -> Sql:
    if form is not None and form.type == NULL:
        return null(BINARY)
    name = "hex" if form is None else literal_string(form, "the format").lower()
    value = string(value, zone)
    if tried and value.raises:
        raise UnsupportedError(
            "the text itself can fail, which Spark would hide", "compute it with TRY_CAST or try_..."
        )
    if name in ("utf-8", "utf8"):
        return cast(value, BINARY, zone)
    if name not in ("hex", "base64"):
        raise UnsupportedError(f"unknown format {name!r:.60}", "'hex', 'utf-8' or 'base64'")
    return strict(f"bytes_of_text({{0}}, '{name}', {tried})", BINARY, value, raises=not tried, nulls=tried)


# ---------------------------------------------------------------------------------------------------- UTF-8


@function(_BYTES, "is_valid_utf8(a)", note="of BINARY, also cast to STRING; a text always is valid")
def _is_valid_utf8(zone: str, value: Sql) -> Sql:
    binary = _uncast(value)
    if binary is None:
        return strict("({0} IS NOT NULL)", BOOLEAN, string(value, zone), guarded=True)
    return strict("(utf8_text({0}, 'null') IS NOT NULL)", BOOLEAN, binary, guarded=True)


@function(_BYTES, "make_valid_utf8(a)", note="with `�` for what is not valid")
def _make_valid_utf8(zone: str, value: Sql) -> Sql:
    binary = _uncast(value)
    if binary is None:
        return string(value, zone)
    return strict("utf8_text({0}, 'replace')", STRING, binary, size=binary.size.times(3))


@function(_BYTES, "validate_utf8(a)", note="the text; fails where it is not valid")
def _validate_utf8(zone: str, value: Sql) -> Sql:
    binary = _uncast(value)
    return string(value, zone) if binary is None else cast(binary, STRING, zone)


@function(_BYTES, "try_validate_utf8(a)", note="likewise; NULL where it is not valid")
def _try_validate_utf8(zone: str, value: Sql) -> Sql:
    binary = _uncast(value)
    return string(value, zone) if binary is None else strict("utf8_text({0}, 'null')", STRING, binary, nulls=True)


def _uncast(value: Sql) -> Sql | None:
    """The BINARY that a text is made of."""
    if value.type == BINARY:
        return value
    operation = value.operation
    if operation is None or operation.name != "CAST" or operation.operands[0].type != BINARY:
        return None
    return operation.operands[0]


# ---------------------------------------------------------------------------------------------------- URLs


@function(_BYTES, "url_encode(text)", note="as in a form: a space is `+`")
def _url_encode(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    return strict("url_escaped({0})", STRING, value, size=value.size.times(3))


@function(_BYTES, "url_decode(text)", note="likewise; fails for a `%` that is no escape")
def _url_decode(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    return strict("url_unescaped({0}, FALSE)", STRING, value, raises=True, size=value.size.times(3))


@function(_BYTES, "try_url_decode(text)", note="likewise; NULL for that")
def _try_url_decode(zone: str, value: Sql) -> Sql:
    value = string(value, zone)
    return strict("url_unescaped({0}, TRUE)", STRING, value, nulls=True, size=value.size.times(3))


@function(
    _BYTES,
    "parse_url(url, 'part'[, 'key'])",
    note="HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY, USERINFO; the value of a key in the QUERY; fails for what is no URL",
)
def _parse_url(zone: str, value: Sql, part: Sql, key: Sql | None = None) -> Sql:
    return _url_part(zone, value, part, key, tried=False)


@function(_BYTES, "try_parse_url(url, 'part'[, 'key'])", note="likewise; NULL for that")
def _try_parse_url(zone: str, value: Sql, part: Sql, key: Sql | None = None) -> Sql:
    return _url_part(zone, value, part, key, tried=True)


def _url_part(zone: str, value: Sql, part: Sql, key: Sql | None, *, tried: bool) -> Sql:
    name = literal_string(part, "the part")
    if name not in PARTS:
        raise UnsupportedError(f"{name!r:.60} is not a part of a URL", ", ".join(PARTS))
    text = "NULL"
    if key is not None:
        text = string_constant(literal_string(key, "the key")).text
        if name != "QUERY":
            raise UnsupportedError(f"only the QUERY has keys, not the {name}")
        if not re.fullmatch(r"[\w.~%-]+", text[1:-1]):
            raise UnsupportedError("a key consists of letters, digits, and - _ . ~ %")
    return strict(
        f"url_part({{0}}, '{name}', CAST({text} AS VARCHAR), {tried})",
        STRING,
        string(value, zone),
        raises=not tried,
        nulls=True,
    )
