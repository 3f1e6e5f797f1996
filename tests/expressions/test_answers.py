"""Functions at their edges: the answers are those of Spark 4.3."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.routines import texts

SCHEMA = pa.schema([("s", pa.string()), ("b", pa.binary()), ("d", pa.float64()), ("a", pa.list_(pa.string()))])
ROW = {"s": "x", "b": b"\xc3\x28", "d": 0.5, "a": ["b", None]}


def value(text: str, row: dict[str, Any] = ROW, schema: pa.Schema = SCHEMA) -> Any:
    vectorized = Vectorized(schema)
    vectorized.add(Scope(schema).resolve(parse(text), text), text)
    return vectorized.evaluate(pa.Table.from_pylist([row], schema))[0].to_pylist()[0]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("ascii('😀a')", 128512),
        ("chr(321)", "A"),
        ("concat_ws(',', a, s, NULL, a)", "b,x,b"),
        ("concat_ws(',')", ""),
        ("elt(2, s, 'y')", "y"),
        ("find_in_set('', '')", 1),
        ("initcap('ŉx ﬁx ΑΣ (ab) ßa')", "\u02bcNx Fix Ας (ab) Ssa"),
        ("instr('aaaa', 'aa', -1, 2)", 2),
        ("jaro_winkler_similarity('MARTHA', 'MARHTA')", 0.9611111111111111),
        ("levenshtein('kitten', 'sitting', 2)", -1),
        ("levenshtein('ä😀', 'a')", 2),
        ("locate('', 'abc', 9)", 1),
        ("luhn_check('8112189876')", True),
        ("mask('Ab1-ä')", "Xxn-x"),
        ("overlay('abc', 'XY', 2, 0)", "aXYbc"),
        ("overlay(X'010203', X'FF', 2)", b"\x01\xff\x03"),
        ("quote('it''s')", r"'it\'s'"),
        ("soundex('Robert')", "R163"),
        ("str_to_map('a:1,b')", [("a", "1"), ("b", None)]),
        ("substring_index('aaa', 'aa', 2)", "a"),
        ("translate('abcb', 'bc', 'x')", "axx"),
        ("base64(X'00FF')", "AP8="),
        ("length(base64(rpad('', 57)))", 76),
        ("base64(rpad('', 58, 'abc'))", "YWJj" * 19 + "\r\nYQ=="),
        ("CAST('1\uff12.\u0665e\uff11' AS DECIMAL(5,1))", Decimal("125.0")),
        ("from_json('{\"n\": \"\uff11\uff12\"}', 'n DECIMAL(5,1)').n", Decimal("12.0")),
        ("try_to_timestamp('2024', '')", None),
        ("decode(X'FFFE6100', 'utf-16')", "a"),
        ("decode(5, 1, 'a', 5, 'b')", "b"),
        ("encode('a', 'utf-16')", b"\xfe\xff\x00a"),
        ("from_base32('M')", b"\x03"),
        ("from_base32('AAAAAAAEB')", b"\x00\x00\x00\x00\x04\x20"),
        ("hash('a', 1)", 532252686),
        ("hash(1.5)", -18083236),
        ("hash(-0.0D)", -1670924195),
        ("hash(double('nan'), NULL)", -1281358385),
        ("xxhash64('a', 1)", -4810547614043336770),
        ("xxhash64(12345678901234567890.5)", 8221516556699326764),
        ("hex(-1)", "FFFFFFFFFFFFFFFF"),
        ("hex(hmac('k', 'm', 'sha1'))", "772B71C8A2997E768BE01D9711E4A4F34A24EF33"),
        ("is_valid_utf8(string(b))", False),
        ("make_valid_utf8(b)", "\ufffd("),
        ("try_validate_utf8(b)", None),
        ("sha2('a', 1)", None),
        ("to_binary('YQ', 'base64')", b"a"),
        ("try_to_binary('xyz')", None),
        ("unbase64('Y Q !==')", b"a"),
        ("unhex('abc')", b"\n\xbc"),
        ("unhex('xx')", None),
        ("url_decode('%ff%41+%+f')", "\ufffdA \x0f"),
        ("url_encode('~*ä ')", "%7E*%C3%A4+"),
        ("parse_url('http://u:p@h.com:80/p?q=1&k=v%20w#f', 'QUERY', 'k')", "v%20w"),
        ("parse_url('http://a_b.com/x', 'HOST')", None),
        ("parse_url('http://[::ffff:1.2.3.4]/', 'HOST')", "[::ffff:1.2.3.4]"),
        ("try_parse_url('http://h/a b', 'PATH')", None),
        ("format_number(0.125D, 2)", "0.12"),
        ("format_number(-0.001, 2)", "-0.00"),
        ("format_string('%s|%,015d|%(,.2f|%x', NULL, -1234567, -12345.675D, -1Y)", "null|-000001,234,567|(12,345.68)|ff"),
        ("format_string('%.0e %e %.1s', 15D, d, '😀')", "2e+01 5.000000e-01 ?"),
        ("to_char(-12.34, '$99.99PR')", "<$12.34>"),
        ("to_char(123456, '999')", "###"),
        ("to_number('<1,234>', '9,999PR')", -1234),
        ("try_to_number('1.2.3', '9.9')", None),
        ("typeof(a)", "array<string>"),
        ("X'0' || X'ff'", b"\x00\xff"),
    ],
)  # fmt: skip
def test_answers_of_spark(text: str, answer: Any) -> None:
    assert value(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "elt(3, s, s)", "string(b)", "validate_utf8(b)", "unbase64('YQ= =')", "to_binary('0g')", "url_decode('%zz')",
        "hmac('', s)", "parse_url('http://h/a b', 'PATH')", "to_number('12', '9')", "encode('ä', 'US-ASCII')",
        "str_to_map('a,a')",
    ],
)  # fmt: skip
def test_failures_of_spark(text: str) -> None:
    with pytest.raises(InvalidEventError):
        value(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x1F", "hexadecimal numbers are not supported"),
        ("CAST('\U0001d7cf\U0001d7d0' AS DECIMAL(5,1))", "'\U0001d7cf\U0001d7d0' is not a valid DECIMAL"),
        ("bit_get(s, 1)", "an INT is needed, not STRING"),
        (
            "array(struct(s, INTERVAL 1 MONTH AS m))",
            "cannot be of type ARRAY<STRUCT<s: STRING, m: INTERVAL YEAR TO MONTH>>",
        ),
        ("hour(1)", "a TIMESTAMP is needed, not INT"),
        ("EXTRACT(SECOND FROM 3Y)", "a TIMESTAMP is needed, not TINYINT"),
        ("to_date(DATE'2024-01-31', 1)", "a STRING is needed, not INT"),
        ("unix_timestamp(DATE'2024-01-31', d)", "a STRING is needed, not DOUBLE"),
        ("format_string('%d', d)", "%d does not take DOUBLE"),
        ("format_string('%5000s', s)", "a width is at most 1,000"),
        ("format_string('%s %s', s)", "%s has no argument"),
        ("parse_url(s, 'host')", "'host' is not a part of a URL"),
        ("parse_url(s, 'QUERY', '(')", "a key consists of letters"),
        ("str_to_map(s, '|')", "'|' cannot be a delimiter"),
        ("to_char(1, '9z')", "'Z' cannot be in a format of numbers"),
        ("space(100000)", "must be at most 10,000"),
        ("encode(s, 'utf-7')", "unknown character set 'UTF-7'"),
        ("concat_ws(s, a)", "the separator of arrays must be a string literal"),
    ],
)
def test_calls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        value(text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("string(to_timestamp(local))", "2024-06-01 01:00:00"),
        ("string(to_timestamp(local, 'yyyy'))", "2024-05-31 21:00:00"),
        ("to_date(local, 'yyyy')", date(2024, 5, 31)),
        ("string(to_timestamp_ntz(at, 'yyyy'))", "2024-06-01 16:00:00"),
        ("string(to_timestamp_ntz(DATE'2024-02-29', 'yyyy'))", "2024-02-29 05:00:00"),
        ("string(to_timestamp(DATE'2024-02-29', 'yyyy'))", "2024-02-29 00:00:00"),
    ],
)
def test_times_that_are_read_with_a_pattern(text: str, answer: Any) -> None:
    schema = pa.schema([("at", pa.timestamp("us", "America/New_York")), ("local", pa.timestamp("us"))])
    row = {"at": datetime(2024, 6, 1, 16, tzinfo=UTC), "local": datetime(2024, 6, 1, 1)}
    assert value(text, row, schema) == answer


def test_long_texts_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_PAIRS", 10)
    with pytest.raises(InvalidEventError, match="too long to be compared"):
        value("levenshtein('ääää', 'abcd')")
