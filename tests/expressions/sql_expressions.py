"""Random SQL expressions over a table of edge values, and their answers here and in Spark.

An expression may fail for some rows. A batch of expressions is one Spark query all the same: each is asked for those rows only
for which it gave a value here; that Spark fails too for the others is tried row by row.
"""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.errors import ExpressionError, InvalidEventError
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.functions import FUNCTIONS, UNIT_FIRST
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.types import TIME_ZONE

ROW = "row"

# ---------------------------------------------------------------------------------------------------- the table

_NAN, _INF = math.nan, math.inf
_WORDS = [
    "", " ", "a", "A", "abc", "ABC", "aBc", "ab%_c", "a\\b", "it's", 'say "x"', "  both  ", "\ttab\t", "line\nline", "end\n",
    "end\r\n", "ä", "Äß", "straße", "ŉﬁ", "İı", "ΑΣ", "ΣΑΣ.", "e\u0301a", "日本語", "😀a😀", "a,b,,c", ",", "null", "12", "-7", "+3",
    " 42 ", "1.5", "-.5e3", "1e400", "NaN", "-inf", "0x1F", "9223372036854775807", "9223372036854775808", "300", "true", " T ",
    "no", "0", "2024-02-29", "2023-02-29", "2024-1-5", "2024", "1969-12-31 23:59:59.999999", "2024-03-31 02:30:00",
    "2024-10-27T02:30:00.5Z", "2024-07-01 12:00:00+05:30", "0001-01-01", "9999-12-31 23:59:59", "\u2028", "K", "ſ", "\u00a0x\u00a0",
    "\uff11\u0662", "abc" * 20,
]  # fmt: skip
_DAYS = [
    date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date(1899, 12, 31), date(1900, 1, 1), date(1969, 12, 31), date(1970, 1, 1),
    date(2000, 2, 29), date(2023, 12, 31), date(2024, 1, 31), date(2024, 2, 29), date(2024, 3, 31), date(2024, 10, 27),
    date(2024, 12, 30), date(2100, 2, 28), date(9999, 12, 31),
]  # fmt: skip
_TIMES = [
    datetime(1, 1, 3), datetime(1582, 10, 10, 12), datetime(1890, 5, 5, 1, 2, 3), datetime(1900, 12, 31, 23, 50),
    datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1), datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime(1999, 12, 31, 23, 59, 59, 999), datetime(2024, 2, 29, 13, 14, 15, 678901), datetime(2024, 3, 31, 0, 59, 59, 999999),
    datetime(2024, 3, 31, 1), datetime(2024, 3, 31, 2, 30), datetime(2024, 10, 27, 0, 30), datetime(2024, 10, 27, 1, 30),
    datetime(2024, 10, 27, 2), datetime(2037, 7, 1, 12), datetime(2038, 7, 1, 12), datetime(2399, 8, 1, 3), datetime(2600, 6, 30, 22, 30),
    datetime(9999, 12, 30, 23, 59, 59, 999999),
]  # fmt: skip


def _d(text: str) -> Decimal:
    return Decimal(text)


_VALUES: dict[str, tuple[T.DataType, list[Any]]] = {
    "b": (T.BooleanType(), [True, False]),
    "y": (T.ByteType(), [0, 1, -1, 7, 127, -128]),
    "h": (T.ShortType(), [0, 1, -2, 300, 32767, -32768]),
    "i": (T.IntegerType(), [0, 1, 2, 3, -1, -7, 42, 100_000, 2**31 - 1, -(2**31)]),
    "l": (T.LongType(), [0, 1, -1, 5, 10**12, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "f": (T.FloatType(), [0.0, -0.0, 1.5, -2.25, 0.1, 16777216.0, 3.4e38, 1e-45, _NAN, _INF, -_INF]),
    "d": (
        T.DoubleType(),
        [0.0, -0.0, 1.0, 0.5, 2.5, -2.5, 0.1, 1.005, 1e15 + 0.5, 2.0**63, -(2.0**63), 1e300, 5e-324, _NAN, _INF, -_INF],
    ),
    "e": (T.DoubleType(), [0.0, 1.0, -3.75, 7.0, 2.675, 123456.789, 1e-3, -1e10, _NAN]),
    "m": (T.DecimalType(10, 2), [_d("0"), _d("1.25"), _d("-0.01"), _d("99999999.99"), _d("-99999999.99"), _d("3.00"), _d("2.50")]),
    "p": (T.DecimalType(4, 4), [_d("0"), _d("0.0001"), _d("-0.9999"), _d("0.5"), _d("0.3333")]),  # it has no place before the point
    "w": (T.DecimalType(38, 18), [_d("0"), _d("1.5"), _d("-0.000000000000000001"), _d("12345678901234567890.123456789"), _d("2.5")]),
    "s": (T.StringType(), _WORDS),
    "t": (T.StringType(), _WORDS),
    "day": (T.DateType(), _DAYS),
    "d2": (T.DateType(), _DAYS),
    "at": (T.TimestampType(), [time.replace(tzinfo=UTC) for time in _TIMES]),
    "a2": (T.TimestampType(), [time.replace(tzinfo=UTC) for time in _TIMES]),
    "nt": (T.TimestampNTZType(), _TIMES),
    "arr": (T.ArrayType(T.IntegerType()), [[], [1], [1, None], [3, 2, 1, None, -7]]),
    "ars": (T.ArrayType(T.StringType()), [[], ["a"], [None, "abc"], ["", "ä"]]),
    "arx": (T.ArrayType(T.DoubleType()), [[], [0.0, -0.0, 1.5], [_NAN, None, -_INF, 1.5, _NAN, -0.0], [None]]),
    "aa": (T.ArrayType(T.ArrayType(T.IntegerType())), [[], [[1], [2, None]], [[], None], [[1], [3], [1]], [[2, None], [1]]]),
    "st": (
        T.StructType([T.StructField("u", T.IntegerType()), T.StructField("v", T.StringType()), T.StructField("w", T.TimestampType())]),
        [{"u": 1, "v": "x", "w": None}, {"u": None, "v": "ABC", "w": datetime(2024, 10, 27, 0, 30, tzinfo=UTC)}],
    ),
    "mp": (T.MapType(T.StringType(), T.IntegerType()), [{}, {"a": 1}, {"a": None, "abc": 5}]),
    "mi": (T.MapType(T.IntegerType(), T.StringType()), [{}, {1: "a", -7: None, 3: ""}, {2: "ä", 1: "x"}]),
}  # fmt: skip
SPARK_SCHEMA = T.StructType(
    [T.StructField(ROW, T.IntegerType()), *(T.StructField(name, kind) for name, (kind, _) in _VALUES.items())]
)


def arrow_schema(zone: str) -> pa.schema:
    def arrow(kind: T.DataType) -> pa.DataType:
        match kind:
            case T.BooleanType():
                return pa.bool_()
            case T.ByteType():
                return pa.int8()
            case T.ShortType():
                return pa.int16()
            case T.IntegerType():
                return pa.int32()
            case T.LongType():
                return pa.int64()
            case T.FloatType():
                return pa.float32()
            case T.DoubleType():
                return pa.float64()
            case T.DecimalType():
                return pa.decimal128(kind.precision, kind.scale)
            case T.StringType():
                return pa.string()
            case T.DateType():
                return pa.date32()
            case T.TimestampType():
                return pa.timestamp("us", "UTC")  # as Spark hands them over, whatever the session's zone
            case T.TimestampNTZType():
                return pa.timestamp("us")
            case T.ArrayType():
                return pa.list_(arrow(kind.elementType))
            case T.MapType():
                return pa.map_(arrow(kind.keyType), arrow(kind.valueType))
            case T.StructType():
                return pa.struct([(field.name, arrow(field.dataType)) for field in kind])
        raise TypeError(kind)

    fields = [(field.name, arrow(field.dataType)) for field in SPARK_SCHEMA]
    return pa.schema(fields, metadata={TIME_ZONE: zone})


def table(rng: random.Random, zone: str, rows: int = 30) -> pa.Table:
    """Rows of edge values, one in eight a NULL; the first row has nothing but NULL."""
    schema = arrow_schema(zone)

    def column(values: list[Any]) -> list[Any]:
        chosen = [None if rng.random() < 1 / 8 else rng.choice(values) for _ in range(rows)]
        return [None, *chosen[1:]]

    columns = [pa.array(range(rows), pa.int32())]
    for name, (_, values) in _VALUES.items():
        items = [list(v.items()) if name in ("mp", "mi") and v is not None else v for v in column(values)]
        columns.append(pa.array(items, schema.field(name).type))
    return pa.table(columns, schema=schema)


# ---------------------------------------------------------------------------------------------------- expressions


_PATTERNS = ["','", "''", r"'\\s+$'", "'[a-c]+'", "'(?i)A'", r"'\\W*'", "'b|a$'", "'.'"]
"""Regular expressions without groups."""


_JSON = [
    '{"a": [1, 2.50, null, "x"], "b": {"a": true}}', '[{"a": "x"}, {"a": 1e10}, 3]', '"😀"', '{"b": 12, "a": "2024-02-29", "A": -1.0}',
    '{"a": 300, "b": "NaN", "a": 7}', '[1, null, 3]', '[{"a": 1, "b": 2}, {"b": null}]', '{"a": {"b": 5, "c": ["z", {}]}, "b": [[1], [2.5]]}',
    '{"a": 12345678901234567890, "b": "2024-03-31 02:30:00", "c d": 0.1}', "null", "5", "-0", "[]", "[[], [1]]", '{"a": {}, "b": []}',
]  # fmt: skip
_NO_JSON = [
    "{''a'': ''y''}",
    '{"a":',
    "",
    " ",
    '{"a": 1} x',
    '{"a": 1, "b"}',
    "[1, 2",
    '{"a": NaN, "b": 1e400}',
    '{"a": 1, "b": 01}',
]
_SCHEMAS = [
    "a INT, b STRING", "a TINYINT, b DOUBLE", "a STRUCT<b: BIGINT, c: ARRAY<STRING>>, b ARRAY<ARRAY<DOUBLE>>", "b DATE, a DATE",
    "a ARRAY<INT>, b MAP<STRING, BOOLEAN>", "a DECIMAL(10,2), b TIMESTAMP", "b TIMESTAMP_NTZ, a FLOAT, `c d` FLOAT", "a STRING",
    "ARRAY<STRUCT<a: STRING, b: INT>>", "MAP<STRING, STRUCT<b: INT>>", "STRUCT<a: SMALLINT, b: DECIMAL(4,4)>", "ARRAY<ARRAY<INT>>",
]  # fmt: skip

_SKETCHES = [
    (
        "theta_sketch_estimate",
        ["01030300001e0000", "01030300003acc93e56b61eec8804420", "0104033d011acc93022d0c35ee5befc8aea8be82c8b8dcb400"],
    ),
    (
        "tuple_sketch_estimate_double tuple_sketch_theta_double",
        ["01030901000ecc93", "02030901000acc930200000000000000e56b61eec8804420"
         "00000000000000000015f97dcbbd86a105000000000000f83f00"],
    ),
    (
        "tuple_sketch_estimate_integer tuple_sketch_theta_integer",
        ["01030901000ecc93", "02030901000acc930200000000000000e56b61eec8804420000000000015f97dcbbd86a1050100000000"],
    ),
    (
        "kll_sketch_get_n_bigint",
        ["02010f0108000800", "02020f04080008000000000000000000",
         "05010f0008000800020000000000000008000100060000000000000000000000010000000000000001000000000000000000000000000000"],
    ),
    ("kll_sketch_get_n_double", ["02010f0108000800", "02020f04080008000000000000000000"]),
    ("kll_sketch_get_n_float", ["02010f0108000800", "02020f040800080000000000"]),
]  # fmt: skip
"""Functions, and sketches that Spark has made."""


class Expressions:
    """Random expressions of a given type, made of what ``docs/sql.md`` lists.

    What NULLIF and BETWEEN look at twice is kept simple: Spark computes it in advance, also where it does not matter, so that
    it can fail there. The arguments of some functions, such as hmac, are simple, too: without generated code, Spark computes all of
    them, also behind a NULL.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def any(self, depth: int) -> str:
        kinds = [self.truth, self.truth, self.number, self.text, self.day, self.moment, self.local_time, self.interval]
        kinds += [self.octets, self.ints, self.strings, self.mapping, self.struct]
        return self.rng.choice(kinds)(depth)

    def pick(self, *makers: Callable[[], str]) -> str:
        return self.rng.choice(makers)()

    def one(self, words: str) -> str:
        return self.rng.choice(words.split())

    def _leaf(self, depth: int) -> bool:
        return depth <= 0 or self.rng.random() < 0.15

    # -- literals

    def word(self) -> str:
        text = self.rng.choice([*_WORDS, "a", "b", "abc", "x"])
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    def small(self) -> str:
        return self.one("0 1 2 3 -1 -2 5 10 1Y 2S")

    def literal(self) -> str:
        return self.one("0 1 2 -3 7 100 2147483647 2147483648 -9223372036854775808 5L 0L 3S 1Y 0.5 1.25 .1 -2.50 100. 1e3 2.5D -0.0D 1.5F 0.1D 12345678901234567890 NULL")  # fmt: skip

    # -- numbers

    def number(self, depth: int) -> str:
        """Of any numeric type."""
        if self._leaf(depth):
            return self.pick(lambda: self.rng.choice("yhilfdemepw"), self.literal)
        n, x = depth - 1, self.number
        return self.pick(
            lambda: f"({x(n)} {self.rng.choice('+-*/%')} {x(n)})",
            lambda: f"({x(n)} {self.rng.choice('+-*/%')} {x(n)} {self.rng.choice('+-*/%')} {x(n - 1)})",
            lambda: f"({self.whole(n)} DIV {self.integer(n)})",
            lambda: f"(- {x(n)})",
            lambda: f"{self.one('abs sign ceil floor sqrt round bround signum ceiling')}({x(n)})",
            lambda: f"{self.one('radians degrees rint negative positive zeroifnull')}({x(n)})",
            lambda: f"{self.one('round bround')}({self.rng.choice('yhilfdemw')}, {self.one('0 1 2 3 -1 -2 -11')})",
            lambda: (
                f"{self.one('ceil floor ceiling')}({self.rng.choice('yhilfempw')}, {self.one('0 1 2 3 -1 -2 -11')})"
            ),
            lambda: f"nullifzero({x(0)})",
            lambda: f"{self.one('try_add try_subtract try_multiply try_mod')}({x(n)}, {x(n)})",
            lambda: self.one("pi() e()"),
            lambda: f"EXTRACT({self.one('SECOND S secs')} FROM {self.when(n)})",
            lambda: f"months_between({self.when(n)}, {self.when(n)}{self.rng.choice(['', ', FALSE'])})",
            lambda: f"TRY_CAST({self.text(n)} AS {self.numeric_type()})",
            lambda: f"CAST({self.moment(n)} AS {self.one('INT BIGINT DOUBLE FLOAT')})",
            lambda: f"{self.one('greatest least coalesce nvl ifnull nanvl')}({x(n)}, {x(n)})",
            lambda: f"nullif({x(0)}, {x(n)})",
            lambda: f"{self.one('mod pmod try_divide')}({x(n)}, {x(n)})",
            lambda: f"IF({self.truth(n)}, {x(n)}, {x(n)})",
            lambda: f"nvl2({self.any(n)}, {x(n)}, {x(n)})",
            lambda: f"CASE WHEN {self.truth(n)} THEN {x(n)} WHEN {self.truth(n)} THEN {x(n)} ELSE {x(n)} END",
            lambda: f"CASE {x(n)} WHEN {x(n)} THEN {x(n)} END",
            lambda: f"CAST({x(n)} AS {self.numeric_type()})",
            lambda: f"{self.one('CAST TRY_CAST')}({self.text(n)} AS {self.one('INT BIGINT DOUBLE TINYINT FLOAT')})",
            lambda: f"CAST({self.text(n)} AS DECIMAL(12,3))",
            lambda: f"{self.one('to_number try_to_number')}({self.text(n)}, '{self.one('999 S9,990.0 $00.99PR 99.')}')",
            lambda: f"TRY_CAST({x(n)} AS {self.numeric_type()})",
            lambda: f"CAST({self.truth(n)} AS {self.numeric_type()})",
            lambda: f"{self.one('tinyint smallint int bigint float double decimal')}({x(n)})",
            lambda: f"jaro_winkler_similarity({self.text(0)}, {self.text(0)})",
            lambda: f"IF({self.truth(n)}, {x(n)}, raise_error({self.text(n)}))",
            lambda: f"coalesce(assert_true({self.truth(n)}{self.rng.choice(['', ', s'])}), {x(n)})",
            lambda: (
                f"vector_{self.one('inner_product cosine_similarity l2_distance')}({self.vector()}, {self.vector()})"
            ),
            lambda: f"vector_norm({self.vector()}{self.degree()})",
            self.sketch,
            lambda: f"element_at(vector_normalize({self.vector()}{self.degree()}), 1)",
            lambda: self.integer(depth),
            lambda: self.whole(depth),
        )

    def sketch(self) -> str:
        """A call of a function of a sketch."""
        names, bodies = self.rng.choice(_SKETCHES)
        return f"{self.one(names)}(IF(i > 0, X'{self.rng.choice(bodies)}', {self.rng.choice(['NULL', 'binary(s)'])}))"

    def vector(self) -> str:
        """An array of FLOAT."""
        return self.rng.choice(
            [
                "transform(arx, par1 -> float(par1))",
                "transform(arr, par1 -> float(par1))",
                "array(f, 1.5F, f)",
                "array(float(i), 0.1F, float(h), float(e), f, 1e-3F, 7F, -2.5F, float(y), 0.3F, 0.7F)",
            ]
        )

    def degree(self) -> str:
        return self.rng.choice(["", ", 1F", ", 2F", ", float('inf')", ", f"])

    def numeric_type(self) -> str:
        return self.rng.choice(
            [
                "TINYINT",
                "SMALLINT",
                "INT",
                "BIGINT",
                "FLOAT",
                "DOUBLE",
                "DECIMAL(10,2)",
                "DECIMAL(38,18)",
                "DECIMAL(20,0)",
                "DECIMAL(7,5)",
            ]
        )

    def integer(self, depth: int) -> str:
        """An INT, or smaller."""
        if self._leaf(depth):
            return self.pick(lambda: self.rng.choice("yhi"), self.small)
        n = depth - 1
        part = self.one("year quarter month day dayofmonth dayofweek weekday dayofyear weekofyear hour minute second")
        field = self.one(
            "YEAR YEAROFWEEK QTR MONTH WEEK W DAY D DOW DOY HOUR HRS MINUTE MIN DAYOFWEEK DAYOFWEEK_ISO dow_iso"
        )
        return self.pick(
            lambda: f"{self.one('length octet_length char_length character_length len')}({self.text(n)})",
            lambda: f"{part}({self.when(n)})",
            lambda: f"EXTRACT({field} FROM {self.when(n)})",
            lambda: f"{self.one('date_part datepart')}('{field}', {self.when(n)})",
            lambda: f"instr({self.text(n)}, {self.text(n)})",
            lambda: f"{self.one('locate position')}({self.text(n)}, {self.text(n)})",
            lambda: f"{self.one('datediff date_diff')}({self.day(n)}, {self.day(n)})",
            lambda: f"unix_date({self.day(n)})",
            lambda: f"bit_count({self.integer(n)})",
            lambda: f"{self.one('size cardinality array_size')}({self.rng.choice(['arr', 'ars', self.ints(n), self.strings(n)])})",
            lambda: f"{self.one('array_max array_min')}({self.ints(n)})",
            lambda: f"json_array_length({self.json(n)})",
            lambda: f"{self.one('aggregate reduce')}({self.ints(n)}, {self.small()}, (par1, par2) -> CAST(greatest(par1, par2) AS INT))",
            lambda: f"aggregate({self.ints(n)}, 0, (par1, par2) -> int(par1 + par2), par1 -> par1 * {self.integer(n)})",
            lambda: f"{self.one('regexp_count regexp_instr')}({self.text(n)}, {self.rng.choice(_PATTERNS)})",
            lambda: f"{self.one('length octet_length bit_length')}({self.octets(n)})",
            lambda: f"ascii({self.text(n)})",
            lambda: f"hash({self.any(n)}, {self.any(n)})",
            lambda: f"find_in_set({self.text(n)}, {self.text(n)})",
            lambda: f"levenshtein({self.text(n)}, {self.text(n)}{self.rng.choice(['', ', 2', ', y'])})",
            lambda: f"instr({self.text(n)}, {self.text(n)}, {self.integer(n)}{self.rng.choice(['', ', 1', ', 2'])})",
            lambda: f"{self.one('locate position')}({self.text(n)}, {self.text(n)}, {self.integer(n)})",
            lambda: f"{self.one('bit_get getbit')}({self.one('y h i l')}, {self.integer(0)})",
            lambda: f"{self.one('shiftleft shiftright shiftrightunsigned')}({self.integer(n)}, {self.integer(n)})",
            lambda: f"({self.integer(n)} {self.one('<< >> >>>')} {self.integer(n)})",
            lambda: "size(mp)",
            lambda: f"{self.one('element_at get try_element_at')}(arr, {self.integer(n)})",
            lambda: f"arr[{self.integer(n)}]",
            lambda: self.rng.choice(["st.u", "mp['a']", f"element_at(mp, {self.text(n)})", f"mp[{self.text(n)}]"]),
            lambda: f"({self.integer(n)} {self.rng.choice('+-*%&|^')} {self.integer(n)})",
            lambda: f"(~ {self.integer(n)})",
        )  # fmt: skip

    def whole(self, depth: int) -> str:
        """A BIGINT."""
        if self._leaf(depth):
            return self.one("l 5L -7L 10000000000")
        n = depth - 1
        unix = self.one("unix_seconds unix_timestamp to_unix_timestamp unix_millis unix_micros")
        return self.pick(
            lambda: f"{unix}({self.moment(n)})",
            lambda: f"CAST({self.moment(n)} AS BIGINT)",
            lambda: f"({self.whole(n)} {self.one('+ - * % DIV & | ^')} {self.whole(n)})",
            lambda: f"floor({self.number(n)})",
            lambda: f"crc32({self.octets(n)})",
            lambda: f"xxhash64({self.any(n)}, {self.any(n)})",
            lambda: f"factorial({self.integer(n)})",
            lambda: f"width_bucket({self.number(n)}, {self.number(0)}, {self.number(0)}, {self.one('l 5 3L')})",
            lambda: f"({self.whole(n)} {self.one('<< >> >>>')} {self.integer(n)})",
            lambda: f"bigint({self.number(n)})",
            lambda: f"array_position({self.ints(n)}, {self.integer(n)})",
            lambda: f"{self.one('bitmap_bit_position bitmap_bucket_number')}({self.whole(n)})",
            lambda: f"bitmap_count({self.octets(n)})",
            lambda: f"{self.one('timestampdiff datediff date_diff')}({self.unit()}, {self.when(n)}, {self.when(n)})",
        )

    def pattern(self) -> str:
        """Of dates and times: such as formats all and reads most."""
        parts = ["yyyy", "MM", "dd", "d", "M", "HH", "mm", "ss", "SSS", "H", "s", "MMM", "a", "XXX", "Z", "x"]
        separators = ["-", "/", " ", ".", ":", ", ", "T", "_"]
        written = [f"{part}{self.rng.choice(separators)}" for part in self.rng.sample(parts, self.rng.randrange(1, 5))]
        return self.rng.choice(
            ["'yyyy-MM-dd'", "'yyyy-MM-dd HH:mm:ss'", "'" + "".join(written).replace("T", r"\'T\'") + "'"]
        )

    def unit(self) -> str:
        return self.one("YEAR QUARTER MONTH WEEK DAY DAYOFYEAR HOUR MINUTE SECOND MILLISECOND MICROSECOND month")

    # -- texts

    def text(self, depth: int) -> str:
        if self._leaf(depth):
            return self.pick(lambda: self.rng.choice("st"), lambda: self.rng.choice("st"), self.word)
        n, s = depth - 1, self.text
        return self.pick(
            lambda: f"{self.one('upper lower ucase lcase trim ltrim rtrim reverse')}({s(n)})",
            lambda: f"concat({s(n)}, {s(n)}, {self.rng.choice('byhilmwst')})",
            lambda: f"({s(n)} || {s(n)})",
            lambda: f"{self.one('substring substr')}({s(n)}, {self.integer(n)}, {self.integer(n)})",
            lambda: f"substring({s(n)}, {self.integer(n)})",
            lambda: f"bin({self.whole(n)})",
            lambda: f"conv({self.text(n)}, {self.one('10 16 2 y 36')}, {self.one('10 16 -10 y 2')})",
            lambda: f"{self.one('dayname monthname')}({self.when(n)})",
            lambda: f"date_format({self.when(n)}, {self.pattern()})",
            lambda: f"from_unixtime({self.integer(n)}{self.rng.choice(['', ', ' + self.pattern()])})",
            lambda: f"{self.one('left right')}({s(n)}, {self.integer(n)})",
            lambda: f"replace({s(n)}, {s(n)}, {self.word()})",
            lambda: f"{self.one('lpad rpad')}({s(n)}, {self.one('0 3 -1 8')}, {s(n)})",
            lambda: f"{self.one('lpad rpad')}({s(n)}, 4)",
            lambda: f"repeat({s(n)}, {self.one('0 2 -1')})",
            lambda: f"split_part({s(n)}, {s(n)}, {self.integer(n)})",
            lambda: f"split_part({s(n)}, ',', {self.integer(n)})",
            lambda: f"CAST({self.rng.choice([self.integer, self.whole, self.truth])(n)} AS STRING)",
            lambda: f"CAST({self.when(n)} AS STRING)",
            lambda: f"CAST({self.rng.choice('mpw')} AS STRING)",
            lambda: f"string({self.integer(n)})",
            lambda: f"try_element_at(ars, {self.integer(n)})",
            lambda: f"{self.one('coalesce nvl greatest least')}({s(n)}, {s(n)})",
            lambda: f"nullif({s(0)}, {s(n)})",
            lambda: f"IF({self.truth(n)}, {s(n)}, {s(n)})",
            lambda: f"CASE {self.integer(n)} WHEN {self.small()} THEN {s(n)} ELSE {s(n)} END",
            lambda: f"{self.one('element_at get')}(ars, {self.integer(n)})",
            lambda: "st.v",
            lambda: f"regexp_extract({s(n)}, {self.rng.choice(_PATTERNS)}, 0)",
            lambda: f"regexp_substr({s(n)}, {self.rng.choice(_PATTERNS)})",
            lambda: f"regexp_replace({s(n)}, {self.rng.choice(_PATTERNS)}, 'x$0')",
            lambda: f"try_element_at({self.strings(n)}, {self.one('1 2 -1')})",
            lambda: f"{self.one('initcap quote mask soundex btrim')}({s(n)})",
            lambda: f"{self.one('trim ltrim rtrim btrim')}({s(n)}, {s(n)})",
            lambda: f"overlay({s(n)}, {s(n)}, {self.integer(n)})",
            lambda: f"translate({s(n)}, {s(n)}, {s(n)})",
            lambda: f"substring_index({s(n)}, {s(n)}, {self.integer(n)})",
            lambda: f"concat_ws({s(n)}, {s(n)}, {s(n)})",
            lambda: f"concat_ws('-', {self.strings(n)}, {s(n)})",
            lambda: f"elt({self.integer(n)}, {s(n)}, {s(n)})",
            lambda: f"{self.one('chr char')}({self.integer(n)})",
            lambda: f"space({self.one('0 2 -1')})",
            lambda: f"element_at(str_to_map({s(n)}, ',', 'b'), {s(n)})",
            lambda: f"string({self.octets(n)})",
            lambda: f"{self.one('md5 sha sha1 base64 to_base32 hex')}({self.rng.choice([self.octets, s])(n)})",
            lambda: f"sha2({self.octets(n)}, {self.one('256 0 512 y')})",
            lambda: f"hex({self.rng.choice([self.integer, self.whole])(n)})",
            lambda: f"decode({self.octets(n)}, '{self.one('ISO-8859-1 utf-8 utf-16')}')",
            lambda: f"decode({self.integer(n)}, 1, {s(n)}, NULL, {s(n)}, {s(n)})",
            lambda: f"{self.one('make_valid_utf8 validate_utf8 try_validate_utf8')}({self.octets(n)})",
            lambda: f"{self.one('url_encode url_decode try_url_decode')}({s(n)})",
            lambda: (
                f"{self.one('parse_url try_parse_url')}({self.url()}, '{self.one('HOST PATH QUERY FILE REF AUTHORITY')}')"
            ),
            lambda: f"{self.one('parse_url try_parse_url')}({self.url()}, 'QUERY', 'k')",
            lambda: f"format_number({self.number(n)}, {self.one('0 2 5')})",
            lambda: f"typeof({self.rng.choice(['st', 'mp', 'arr', self.number(n), s(n), self.when(n)])})",
            lambda: (
                f"{self.one('to_char to_varchar')}({self.rng.choice('ihmp')}, '{self.one('999 S9,990.0 $00.99PR 99.')}')"
            ),
            lambda: (
                f"{self.one('format_string printf')}('%s|%-5S|%05d|%+,.2f', {s(n)}, {self.truth(n)}, {self.whole(n)}, e)"
            ),
            lambda: f"format_string('%x %o %c %e %b', {self.integer(n)}, i, y, d, {self.any(n)})",
            lambda: f"struct({s(n)}, t).t",
            lambda: f"from_json({self.json(n)}, 'a STRING').a",
            lambda: f"schema_of_json('{self.rng.choice(_JSON)}')",
            lambda: f"collation({s(n)})",
            lambda: f"collate({s(n)}, 'UTF8_BINARY')",
            lambda: f"get_json_object({self.json(n)}, '{self.one('$ $.a $.b $[0] $.a[0] $[*].a $[*]')}')",
            lambda: f"to_json({self.rng.choice([self.ints, self.strings, self.mapping])(n)})",
            lambda: (
                f"to_json(struct({self.integer(n)} AS n, {s(n)} AS a, {self.ints(n)} AS v, {self.day(n)} AS day, w))"
            ),
            lambda: f"array_join({self.strings(n)}, {s(n)}{self.rng.choice(['', ', t'])})",
        )

    def strings(self, depth: int) -> str:
        """An array of texts."""
        pattern, n = self.rng.choice(_PATTERNS), depth - 1
        if self._leaf(depth):
            return "ars"
        return self.pick(
            lambda: f"split({self.text(n)}, {pattern}{self.rng.choice(['', ', 2'])})",
            lambda: f"regexp_extract_all({self.text(n)}, {pattern}, 0)",
            lambda: f"array({self.text(n)}, {self.text(n)})",
            lambda: f"map_keys({self.mapping(n)})",
            lambda: f"json_object_keys({self.json(n)})",
            lambda: f"transform({self.ints(n)}, (par1, par2) -> concat({self.text(n)}, string(par1), par2))",
            lambda: f"transform({self.strings(n)}, par1 -> upper(par1))",
            lambda: f"filter({self.strings(n)}, par1 -> par1 <= {self.text(n)})",
            lambda: f"{self.one('array_distinct array_sort sort_array array_compact')}({self.strings(n)})",
            lambda: f"{self.one('array_union array_except array_intersect')}({self.strings(n)}, {self.strings(n)})",
            lambda: f"array_sort({self.strings(n)}, (par1, par2) -> length(par1) - length(par2))",
        )

    def json(self, depth: int) -> str:
        """A text that may be JSON."""
        return self.pick(
            lambda: f"'{self.rng.choice([*_JSON, *_NO_JSON])}'",
            lambda: f"concat('{{\"a\": \"', {self.text(depth)}, '\"}}')",
            lambda: "concat('[\"', s, '\", ', i, ']')",
            lambda: (
                f"concat('{{\"a\": ', {self.rng.choice(['string(i)', 'string(m)', 's'])}, ', \"b\": \"', {self.text(depth)}, '\"}}')"
            ),
            lambda: f"to_json({self.rng.choice([self.strings, self.mapping])(depth)})",
            lambda: self.text(depth),
        )

    def mapping(self, depth: int) -> str:
        """A map of strings to integers."""
        n, m = depth - 1, self.mapping
        if self._leaf(depth):
            return self.rng.choice(["mp", "map('a', 1, 'b', NULL)"])
        return self.pick(
            lambda: f"map({self.text(n)}, {self.integer(n)}, 'abc', {self.small()})",
            lambda: f"map_concat({m(n)}, map('zz', {self.integer(n)}))",
            lambda: f"map_filter({m(n)}, (par1, par2) -> par2 > {self.integer(n)} OR par1 = {self.text(n)})",
            lambda: f"transform_keys({m(n)}, (par1, par2) -> {self.one('lower upper')}(par1))",
            lambda: f"transform_values({m(n)}, (par1, par2) -> coalesce(par2, 1) % {self.small()})",
            lambda: (
                f"map_zip_with({m(n)}, mp, (par1, par2, par3) -> coalesce(par2, 0) % 100 + coalesce(par3, length(par1)))"
            ),
            lambda: f"map_from_arrays({self.strings(n)}, {self.ints(n)})",
            lambda: f"map_from_entries(map_entries({m(n)}))",
            lambda: f"from_json({self.json(n)}, 'MAP<STRING, INT>')",
            lambda: f"map_from_entries(transform({self.strings(n)}, (par1, par2) -> struct(par1, par2)))",
        )

    def struct(self, depth: int) -> str:
        """A struct, or an array of structs."""
        n = depth - 1
        return self.pick(
            lambda: "st",
            # With fields that may be NULL; those that may not cannot be collected.
            lambda: f"struct(i, concat(s, {self.text(n)}) AS A, day)",
            lambda: f"named_struct('p', array_append(arr, {self.integer(n)}), 'q', at)",
            lambda: f"arrays_zip({self.ints(n)}, {self.strings(n)})",
            lambda: f"map_entries({self.mapping(n)})",
            lambda: f"from_json({self.json(n)}, '{self.rng.choice(_SCHEMAS)}')",
            lambda: f"from_json({self.json(n)}, '{self.rng.choice(_SCHEMAS)}')",
        )

    def element(self, name: str, depth: int) -> str:
        """A number made of an element of an array, in a lambda."""
        return self.rng.choice([name, f"({name} + {self.integer(depth)})", f"coalesce({name}, 0)", f"(10 / {name})"])

    def ints(self, depth: int) -> str:
        """An array of integers."""
        n, a = depth - 1, self.ints
        if self._leaf(depth):
            return self.rng.choice(["arr", "array(1, NULL, 2)"])
        return self.pick(
            lambda: f"array({self.integer(n)}, {self.integer(n)})",
            lambda: f"sequence({self.small()}, {self.small()}{self.rng.choice(['', ', 1', ', -2', ', h'])})",
            lambda: f"{self.one('array_append array_prepend array_remove')}({a(n)}, {self.integer(n)})",
            lambda: f"array_insert({a(n)}, {self.small()}, {self.integer(n)})",
            lambda: f"{self.one('array_compact array_distinct sort_array array_sort')}({a(n)})",
            lambda: f"{self.one('array_union array_except array_intersect')}({a(n)}, {a(n)})",
            lambda: f"slice({a(n)}, {self.small()}, {self.small()})",
            lambda: f"flatten({self.rng.choice(['aa', f'array({a(n)}, {a(n)})'])})",
            lambda: f"array_repeat({self.integer(n)}, {self.one('0 2')})",
            lambda: f"map_values({self.mapping(n)})",
            lambda: f"from_json({self.json(n)}, 'ARRAY<INT>')",
            lambda: f"concat({a(n)}, {a(n)})",
            lambda: f"reverse({a(n)})",
            lambda: f"transform({a(n)}, par1 -> int({self.element('par1', n)}))",
            lambda: f"transform({a(n)}, (par1, par2) -> par1 * par2)",
            lambda: f"filter({a(n)}, par1 -> {self.element('par1', n)} > {self.integer(n)})",
            lambda: f"zip_with({a(n)}, {a(n)}, (par1, par2) -> coalesce(par1, par2))",
            lambda: f"flatten(transform(aa, par1 -> filter(par1, par2 -> par2 <> {self.integer(n)})))",
            lambda: (
                f"array_sort({a(n)}, (par1, par2) -> CASE WHEN par1 < par2 THEN 1 WHEN par1 > par2 THEN -1 ELSE 0 END)"
            ),
        )

    def octets(self, depth: int) -> str:
        """A BINARY."""
        if self._leaf(depth):
            return self.one("binary(s) binary(t) X'00ff80' x'1' X'C3A4'")
        n = depth - 1
        return self.pick(
            lambda: f"binary({self.text(n)})",
            lambda: f"CAST({self.text(n)} AS BINARY)",
            lambda: f"{self.one('unhex unbase64 from_base32 to_binary')}({self.text(n)})",
            lambda: f"try_to_binary({self.text(0)})",
            lambda: f"{self.one('to_binary try_to_binary')}({self.text(0)}, '{self.one('hex base64 utf-8')}')",
            lambda: f"encode({self.text(n)}, '{self.one('US-ASCII utf-8 utf-16 UTF-32')}')",
            lambda: f"hmac({self.text(0)}, {self.octets(0)}{self.rng.choice(['', ', ' + repr('SHA1')])})",
            lambda: f"substring({self.octets(n)}, {self.integer(n)}, {self.integer(n)})",
            lambda: f"left({self.octets(n)}, {self.integer(n)})",
            lambda: f"concat({self.octets(n)}, {self.octets(n)})",
            lambda: f"overlay({self.octets(n)}, {self.octets(n)}, {self.integer(n)}, {self.integer(n)})",
        )

    def url(self) -> str:
        """A text that may be a URL."""
        pieces = [
            "http",
            "://",
            "/",
            "//",
            ":",
            "@",
            "#",
            "?",
            "a",
            "b.c",
            "80",
            "[::1]",
            "%41",
            "%",
            "&k=",
            "1.2.3.4",
            "_",
            "ä",
            " ",
            "|",
        ]
        # None is constant: Spark would compute it in advance, and fail where it does not matter.
        made = "".join(self.rng.choice(pieces) for _ in range(4))
        return self.rng.choice(
            ["s", f"concat('http://{made}?q=1&k=2', left(s, 1))", "concat('x://u@', t, ':8/p?k=', s)"]
        )

    # -- dates and times

    def when(self, depth: int) -> str:
        return self.pick(lambda: self.day(depth), lambda: self.moment(depth), lambda: self.local_time(depth))

    def day(self, depth: int) -> str:
        if self._leaf(depth):
            return self.rng.choice(
                ["day", "d2", "DATE '2024-02-29'", "DATE '1969-12-31'", "DATE'0099-1-5'", "DATE '2024'"]
            )
        n = depth - 1
        return self.pick(
            lambda: f"{self.one('date_add dateadd date_sub add_months')}({self.day(n)}, {self.one('y h 1 -13 400')})",
            lambda: f"({self.day(n)} {self.rng.choice('+-')} {self.one('y h 1 -31')})",
            lambda: f"({self.day(n)} {self.rng.choice('+-')} INTERVAL {self.rng.choice(['1 DAY', '1 WEEK'])})",
            lambda: f"({self.day(n)} {self.rng.choice('+-')} INTERVAL {self.rng.choice(['1 MONTH', '2 YEARS'])})",
            lambda: f"last_day({self.when(n)})",
            lambda: f"trunc({self.when(n)}, '{self.one('YEAR quarter MON MM week yy')}')",
            lambda: f"{self.one('to_date date try_to_date')}({self.when(n)})",
            lambda: f"{self.one('to_date try_to_date')}({self.when(n)}, 'yyyy')",
            lambda: f"try_to_date({self.text(n)}{self.rng.choice(['', ', ' + self.read_pattern()])})",
            lambda: f"to_date({self.text(n)}, {self.read_pattern()})",
            lambda: f"TRY_CAST({self.text(n)} AS DATE)",
            lambda: f"next_day({self.when(n)}, '{self.one('MO tue Friday SU')}')",
            lambda: f"({self.day(n)} + make_ym_interval({self.one('y 1 0 -3')}, {self.one('y 1 0 -3')}))",
            lambda: f"CAST({self.when(n)} AS DATE)",
            lambda: f"CAST({self.text(n)} AS DATE)",
            lambda: f"make_date({self.integer(n)}, {self.integer(n)}, {self.integer(n)})",
            lambda: f"date_from_unix_date({self.one('y h -1000 20000')})",
            lambda: f"{self.one('coalesce greatest least')}({self.day(n)}, {self.day(n)})",
            lambda: f"IF({self.truth(n)}, {self.day(n)}, {self.day(n)})",
            lambda: f"coalesce({self.day(n)}, '2024-05-06')",
        )

    def moment(self, depth: int) -> str:
        """A TIMESTAMP."""
        if self._leaf(depth):
            return self.rng.choice(
                [
                    "at",
                    "a2",
                    "TIMESTAMP '2024-03-31 02:30:00'",
                    "TIMESTAMP '2024-10-27 02:30:00'",
                    "TIMESTAMP '1950-01-01 00:00:00.5Z'",
                    "st.w",
                    "TIMESTAMP '2500-07-01'",
                ]
            )
        n = depth - 1
        unit = self.one("YEAR QUARTER MONTH WEEK DAY HOUR MINUTE SECOND MILLISECOND MICROSECOND yyyy dd")
        return self.pick(
            lambda: f"date_trunc('{unit}', {self.when(n)})",
            lambda: f"({self.moment(n)} {self.rng.choice('+-')} {self.interval(n)})",
            lambda: f"({self.interval(n)} + {self.moment(n)})",
            lambda: f"{self.one('timestampadd dateadd date_add')}({self.unit()}, {self.integer(n)}, {self.moment(n)})",
            lambda: f"({self.moment(n)} {self.rng.choice('+-')} INTERVAL {self.one('1 13 -5')} MONTHS)",
            lambda: f"({self.moment(n)} {self.rng.choice('+-')} INTERVAL 1 YEAR)",
            lambda: f"({self.day(n)} {self.rng.choice('+-')} INTERVAL {self.rng.choice(['1 HOUR', '90 MINUTES'])})",
            lambda: f"CAST({self.when(n)} AS TIMESTAMP)",
            lambda: f"{self.one('to_timestamp timestamp to_timestamp_ltz try_to_timestamp')}({self.when(n)})",
            lambda: (
                f"{self.one('to_timestamp to_timestamp_ltz try_to_timestamp')}({self.text(n)}, {self.read_pattern()})"
            ),
            lambda: f"TRY_CAST({self.text(n)} AS TIMESTAMP)",
            lambda: (
                f"time_bucket(INTERVAL {self.rng.choice(['15 MINUTES', '7 HOURS', '2 DAYS', '1 WEEK', '5 MONTHS'])}, {self.moment(n)})"
            ),
            lambda: f"CAST({self.one('y h i')} AS TIMESTAMP)",
            lambda: f"{self.one('from_utc_timestamp to_utc_timestamp')}({self.when(n)}, '{self.zone()}')",
            lambda: (
                f"{self.one('make_timestamp make_timestamp_ltz')}({self.fields(n)}{self.rng.choice(['', repr(self.zone()).join([', ', ''])])})"
            ),
            lambda: f"{self.one('try_make_timestamp try_make_timestamp_ltz')}({self.fields(0)})",
            lambda: f"CAST({self.text(n)} AS TIMESTAMP)",
            lambda: f"timestamp_{self.one('seconds millis micros')}({self.rng.choice([self.integer, self.whole])(n)})",
            lambda: f"{self.one('coalesce greatest least')}({self.moment(n)}, {self.when(n)})",
            lambda: f"IF({self.truth(n)}, {self.moment(n)}, {self.when(n)})",
        )

    def zone(self) -> str:
        return self.one("Europe/Madrid America/New_York Asia/Tokyo UTC +05:30 -11:00")

    def fields(self, depth: int) -> str:
        """Year, month, day, hour, minute and seconds."""
        numbers = [
            self.one("2024 y i 1969"),
            *(self.one("y 1 7 12") for _ in range(2)),
            *(self.one("y 0 1 23") for _ in range(2)),
        ]
        return ", ".join([*numbers, self.one("y 0 59.999999 60 p 1.5D 30")])

    def read_pattern(self) -> str:
        patterns = [
            "yyyy-MM-dd",
            "yyyy-MM-dd HH:mm:ss[.SSSSSS]",
            "y-M-d",
            "yyyy[-MM[-dd]]",
            "yyyy-MM-dd[ HH:mm:ss]XXX",
            "dd",
            "M",
        ]
        return f"'{self.rng.choice(patterns)}'"

    def local_time(self, depth: int) -> str:
        """A TIMESTAMP_NTZ."""
        if self._leaf(depth):
            return self.rng.choice(["nt", "nt", "TIMESTAMP_NTZ '2024-03-31 02:30:00'"])
        n = depth - 1
        return self.pick(
            lambda: f"CAST({self.when(n)} AS TIMESTAMP_NTZ)",
            lambda: f"CAST({self.text(n)} AS TIMESTAMP_NTZ)",
            lambda: f"to_timestamp_ntz({self.when(n)})",
            lambda: f"to_timestamp_ntz({self.text(n)}, {self.read_pattern()})",
            lambda: (
                f"convert_timezone({self.rng.choice(['', repr(self.zone()) + ', '])}'{self.zone()}', {self.when(n)})"
            ),
            lambda: f"make_timestamp_ntz({self.fields(n)})",
            lambda: f"try_make_timestamp_ntz({self.fields(0)})",
            lambda: (
                f"time_bucket(INTERVAL {self.rng.choice(['1 HOUR', '7 DAYS'])}, nt, TIMESTAMP_NTZ '2024-02-29 12:30:00')"
            ),
            lambda: f"({self.local_time(n)} {self.rng.choice('+-')} {self.interval(n)})",
            lambda: f"({self.local_time(n)} {self.rng.choice('+-')} INTERVAL {self.rng.choice(['1 MONTH', '2 YEAR'])})",
            lambda: f"{self.one('coalesce greatest least')}({self.local_time(n)}, {self.local_time(n)})",
            lambda: f"{self.one('coalesce greatest least')}({self.local_time(n)}, {self.day(n)})",
        )

    def interval(self, depth: int) -> str:
        literal = self.rng.choice(["1 DAY", "0 DAY", "-1 DAY", "90 MINUTES", "36 HOURS", "1 SECOND", "'1.5' SECOND", "25 HOUR", "5 MILLISECONDS", "1 WEEK", "'-3' DAYS", "100 DAYS", "'1:30' HOUR TO MINUTE", "'-1 02:03:04.5' DAY TO SECOND", "'2 03' DAY TO HOUR"])  # fmt: skip
        if self._leaf(depth):
            return f"INTERVAL {literal}"
        n = depth - 1
        return self.pick(
            lambda: f"INTERVAL {literal}",
            lambda: f"INTERVAL {literal}",
            lambda: f"({self.moment(n)} - {self.moment(n)})",
            lambda: f"({self.local_time(n)} - {self.local_time(n)})",
            lambda: f"({self.day(n)} - {self.day(n)})",
            lambda: f"({self.moment(n)} - {self.day(n)})",
            lambda: f"({self.interval(n)} {self.rng.choice('+-')} {self.interval(n)})",
            lambda: f"(- {self.interval(n)})",
            lambda: (
                f"make_dt_interval({self.integer(n)}, {self.one('y h')}, {self.integer(0)}, {self.one('y m p 1.5')})"
            ),
            lambda: f"make_dt_interval({self.one('y h')})",
            lambda: f"({self.interval(n)} * {self.integer(n)})",
            lambda: f"abs({self.interval(n)})",
            lambda: f"coalesce({self.interval(n)}, {self.interval(n)})",
        )

    # -- conditions

    def truth(self, depth: int) -> str:
        if self._leaf(depth):
            return self.rng.choice(["b", "b", "TRUE", "FALSE", "b", "CAST(NULL AS BOOLEAN)"])
        n, t = depth - 1, self.truth
        compare = self.rng.choice(
            ["=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"]
        )
        maker = self.rng.choice(
            [self.number, self.number, self.text, self.day, self.moment, self.local_time, self.interval, self.truth]
        )
        negated = self.rng.choice(["", "NOT "])
        pattern = self.rng.choice(["'%'", "'a%'", "'%b_'", "'_'", r"'%\\%%'", "'%ß%'", "'A%C'", "''", r"'a\\\\b'"])
        regex = self.rng.choice(
            ["'^a'", "'b+$'", "'(?i)^abc$'", "'[^a-c ]'", r"'\\d{2,}'", "'.'", "'^.$'", "'d$|^a'", r"'\\s'", r"'\\W'", "'^(a|b)*c?$'",
             "'(?i)k'", "'[ä-ß]'", r"'^\\S+\\s*$'", "'a.b'", "'^[^x]*$'", r"'end[^x]$'", "''", r"'\\.'"]
        )  # fmt: skip
        return self.pick(
            lambda: f"({maker(n)} {compare} {maker(n)})",
            lambda: f"({maker(0)} {negated}BETWEEN {maker(n)} AND {maker(n)})",
            lambda: f"({maker(n)} {negated}IN ({maker(n)}, {maker(n)}, {maker(0)}))",
            lambda: f"({self.any(n)} IS {negated}NULL)",
            lambda: f"({t(n)} IS {negated}{self.one('TRUE FALSE UNKNOWN')})",
            lambda: f"({t(n)} AND {t(n)})",
            lambda: f"({t(n)} OR {t(n)})",
            lambda: f"({t(n)} AND {t(n)} OR {t(n)} AND NOT {t(n - 1)})",
            lambda: f"(NOT {t(n)})",
            lambda: f"(! {t(n)})",
            lambda: f"({self.text(n)} {negated}LIKE {pattern})",
            lambda: f"({self.text(n)} {negated}ILIKE {pattern})",
            lambda: f"({self.text(n)} LIKE 'a!%_' ESCAPE '!')",
            lambda: f"({self.text(n)} {negated}RLIKE {regex})",
            lambda: f"{self.one('startswith endswith contains')}({self.text(n)}, {self.text(n)})",
            lambda: f"{self.one('regexp_like regexp rlike')}({self.text(n)}, {self.rng.choice(_PATTERNS)})",
            lambda: f"{self.one('like ilike')}({self.text(n)}, {pattern})",
            lambda: f"is_valid_utf8({self.rng.choice([self.octets, self.text])(n)})",
            lambda: f"{self.one('startswith endswith contains')}({self.octets(0)}, {self.octets(0)})",
            lambda: (
                f"{self.one('exists forall')}({self.ints(n)}, par1 -> {self.element('par1', n)} {self.one('> =')} {self.integer(n)})"
            ),
            lambda: f"arrays_overlap({self.ints(n)}, {self.ints(n)})",
            lambda: f"luhn_check({self.rng.choice(['s', 'string(l)', self.text(n)])})",
            lambda: f"{self.one('isnull isnotnull')}({self.any(n)})",
            lambda: f"isnan({self.number(n)})",
            lambda: f"equal_null({maker(n)}, {maker(n)})",
            lambda: f"array_contains(arr, {self.integer(n)})",
            lambda: f"array_contains(ars, {self.text(n)})",
            lambda: f"array_contains({self.ints(n)}, {self.integer(n)})",
            lambda: f"map_contains_key({self.mapping(n)}, {self.text(n)})",
            lambda: f"CAST({self.number(n)} AS BOOLEAN)",
            lambda: f"CAST({self.text(n)} AS BOOLEAN)",
            lambda: f"boolean({self.number(n)})",
            lambda: f"IF({t(n)}, {t(n)}, {t(n)})",
            lambda: f"coalesce({t(n)}, {t(n)})",
            lambda: f"CASE WHEN {t(n)} THEN {t(n)} END",
            lambda: f"({self.day(n)} {self.one('< >= =')} '2024-02-29')",
            lambda: f"({self.moment(n)} {self.one('< >=')} '2024-10-27 02:30:00')",
        )

    # -- special ones

    def like(self, depth: int) -> str:
        """LIKE with a random pattern."""
        pieces = ["%", "_", "a", "b", "A", "ß", "😀", ".", "(", r"\\%", r"\\_", r"\\\\", "''", "é", " ", "!%", "!"]
        pattern = "".join(self.rng.choice(pieces) for _ in range(self.rng.randrange(5)))
        verb = self.rng.choice(["LIKE", "ILIKE", "NOT LIKE"])
        return f"{self.rng.choice(['s', 't', self.word()])} {verb} '{pattern}'" + self.rng.choice(
            ["", "", " ESCAPE '!'"]
        )

    def regex(self, depth: int) -> str:
        """RLIKE, or a function, with a random pattern."""
        pieces = ["a", "b", "c", "A", ".", "^", "$", "(", ")", "|", "*", "+", "?", "{2}", "{1,3}", "{0,}", "[ab]", "[^a]", "[a-z]", "[A-Z0-9_]",
                  r"\\d", r"\\D", r"\\s", r"\\S", r"\\w", r"\\W", r"\\.", r"\\$", "ß", "😀", "[à-ÿ]", " ", "-", ",", "%", r"\\n", r"\\r", r"\\t", "[-a]", "[a-]",
                  r"[\\d.]", "(?:a|b)", "*?", "a$", "b|a", r"[\\s,]+", r"[\\]]", "k", "K"]  # fmt: skip
        pattern = "".join(self.rng.choice(pieces) for _ in range(self.rng.randrange(7)))
        pattern = self.rng.choice(["", "", "(?i)"]) + pattern
        if self.rng.random() < 0.6:
            return self.regex_call(f"'{pattern}'")
        return f"{self.rng.choice(['s', 't', self.word()])} {self.rng.choice(['RLIKE', 'REGEXP', 'NOT RLIKE'])} '{pattern}'"

    def regex_call(self, pattern: str) -> str:
        """A call of a function of regular expressions."""
        text = self.rng.choice(["s", "t", "concat(s, '\\n')", "concat('ab😀', t, '\\r\\n')", self.word()])
        new = self.rng.choice(["''", "'X'", "'<$0>'", r"'\\$'", "'$1-'"])
        return self.pick(
            lambda: f"regexp_extract({text}, {pattern}, {self.one('0 0 1')})",
            lambda: f"regexp_extract_all({text}, {pattern}, {self.one('0 0 1')})",
            lambda: f"{self.one('regexp_count regexp_instr regexp_substr regexp_like')}({text}, {pattern})",
            lambda: f"regexp_replace({text}, {pattern}, {new}{self.rng.choice(['', '', ', 3'])})",
            lambda: f"split({text}, {pattern}{self.rng.choice(['', ', 2', ', 0'])})",
        )

    def quoted_text(self, depth: int) -> str:
        """A string literal in an expression, with escapes."""
        pieces = ["a", " ", "''", r"\'", r"\"", "%", "_", r"\%", r"\_", r"\\\\", r"\n", r"\t", r"\r", r"\b", r"\Z", r"\q", r"\u00e4", r"\U0001F600",
                  r"\101", r"\0", "ä", "😀", "--", "/*", ";", "{0}", "$x", "`", "\n", "c1"]  # fmt: skip
        text = "".join(self.rng.choice(pieces) for _ in range(self.rng.randrange(6)))
        return self.rng.choice([f"'{text}'", f"'{text}'", f"concat('{text}', s)", f"r'{text}'", f"'{text}' = s"])

    def without_brackets(self, depth: int) -> str:
        """Operators side by side."""
        names = ["b", "i", "h", "l", "e", "s", "m", "1", "2", "'a'", "NULL", "TRUE", "-1", "- i", "~ h", "! b"]
        operators = [
            "+",
            "-",
            "*",
            "/",
            "%",
            "DIV",
            "||",
            "&",
            "|",
            "^",
            "=",
            "<>",
            "<",
            ">=",
            "<=>",
            "AND",
            "OR",
            "AND NOT",
            "OR NOT",
        ]
        tests = ["", "", "", " IS NULL", " IS NOT NULL", " IS TRUE", " BETWEEN 1 AND 2", " NOT BETWEEN 0 AND i", " IN (1, 2)", " LIKE 'a%'", "::INT"]  # fmt: skip
        numbers, sums = (
            ["i", "h", "l", "1", "2", "- h", "~ i", "e", "m"],
            ["+", "-", "*", "%", "&", "|", "^", "/", "DIV", "<", "=", "<<", ">>", ">>>"],
        )
        if self.rng.random() < 0.6:
            names, operators = numbers, sums
        text = self.rng.choice(["", "", "NOT ", "! "]) + self.rng.choice(names)
        for _ in range(self.rng.randrange(1, 4)):
            text += f" {self.rng.choice(operators)} {self.rng.choice(names)}{self.rng.choice(tests)}"
        return text

    def mutated(self, depth: int) -> str:
        """An expression with a word left out, doubled, exchanged or put in: often nothing that Spark takes."""
        words = self.any(min(depth, 2)).split(" ")
        for _ in range(self.rng.choice([1, 1, 2])):
            at = self.rng.randrange(len(words))
            match self.rng.randrange(4):
                case 0:
                    del words[at]
                case 1:
                    words.insert(at, words[at])
                case 2:
                    words[at] = self.rng.choice(_WORDS_OF_SQL)
                case 3:
                    words.insert(at, self.rng.choice(_WORDS_OF_SQL))
            words = words or [""]
        return " ".join(words)

    def recent(self, depth: int) -> str:
        return self.pick(
            lambda: f"from_json({self.json(1)}, '{self.rng.choice(_SCHEMAS)}')",
            lambda: f"from_json({self.json(1)}, '{self.rng.choice(_SCHEMAS)}')",
            lambda: f"schema_of_json('{self.rng.choice(_JSON)}')",
            lambda: f"IF({self.truth(1)}, i, raise_error({self.text(0)}))",
            lambda: f"coalesce(assert_true({self.truth(1)}), i)",
            lambda: (
                f"vector_{self.one('inner_product cosine_similarity l2_distance')}({self.vector()}, {self.vector()})"
            ),
            lambda: f"vector_norm({self.vector()}{self.degree()})",
            self.sketch,
            lambda: f"vector_normalize({self.vector()}{self.degree()})",
        )

    def not_exact(self, depth: int) -> str:
        x = self.number(1)
        return self.pick(
            lambda: f"{self.one('exp expm1 ln log log10 log2 log1p sin cos tan cot sec csc asin acos atan')}({x})",
            lambda: f"{self.one('sinh cosh tanh asinh acosh atanh cbrt')}({x})",
            lambda: f"{self.one('pow power atan2 hypot log')}({x}, {self.number(0)})",
        )


_TEXT = r"""( ) [ ] { } , . ; : :: ' " ` # ? ! ~ + - * / % & | ^ = == <> != <=> || -> => ** -- /* */ /*+ {# // AND OR NOT IS NULL IN BETWEEN
    LIKE RLIKE ILIKE ESCAPE CASE WHEN THEN ELSE END AS CAST TRY_CAST EXTRACT INTERVAL DATE TIMESTAMP DISTINCT ALL FROM FILTER OVER
    COLLATE AT UNKNOWN TRUE ISNULL NOTNULL SYMMETRIC SIMILAR DIV MOD XOR GLOB TO ANY SOME EXISTS ARRAY STRUCT IF( upper( concat( nvl(
    nvl2( replace( s t i l d m b day at nt arr st mp st.u i[0] arr[0] mp['a'] 0 1 -1 - 1e2 .5 5. 1.5.5 0x1F 5L 5BD 1e400 1e 1_000 '' 'a'
    "a" N'a' X'1F' r'a' b'1' U&'a' 'a'::STRING ::INT ::VARCHAR(3) INT'5' VARCHAR(5) BOOL TIME'10:00' DAY HOURS YEAR"""
_WORDS_OF_SQL = (
    *_TEXT.split(),
    "\n",
    "\u00a0",
    "\x0b",
    "\x0c",
    "\u3000",
    "\ufeff",
    "-- x\n",
    "-- x\\\n",
    "/* x */",
    "/* /* x */",
    "/* /* */ */",
    "INTERVAL 1 DAY",
)


# ---------------------------------------------------------------------------------------------------- answers


@dataclass
class Answer:
    """What an expression gives here: a type and a value or an error for each row; or the reason why it is refused."""

    text: str
    type: pa.DataType | None = None
    values: list[Any] | None = None
    errors: dict[int, str] | None = None
    refused: str | None = None


ROWS_OF_FAILURES = 8
"""The number of rows for which an expression that fails is evaluated, one by one."""
UNKNOWN = "not evaluated"


def ours(text: str, events: pa.Table) -> Answer:
    scope, vectorized = Scope(events.schema), Vectorized(events.schema)
    try:
        vectorized.add(scope.resolve(parse(text), text), text)
    except ExpressionError as error:
        return Answer(text, refused=str(error).split("\n")[0])
    errors = {}
    try:
        values = plain(vectorized.evaluate(events)[0])
    except InvalidEventError:
        # Row by row. Of the others, nothing is known.
        values, errors = [None] * events.num_rows, dict.fromkeys(range(events.num_rows), UNKNOWN)
        for row in random.Random(len(text)).sample(range(events.num_rows), min(events.num_rows, ROWS_OF_FAILURES)):
            try:
                values[row] = plain(vectorized.evaluate(events.slice(row, 1))[0])[0]
                del errors[row]
            except InvalidEventError as error:
                errors[row] = error.message
    return Answer(text, vectorized.types[0], values, errors)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """The values; dates and times as numbers, for Python has none so far away."""
    numbers = as_numbers(column.type)
    column = column if numbers == column.type else column.cast(numbers)
    values: list[Any] = column.to_pylist()
    return values


def as_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in place of dates and times."""
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(as_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(as_numbers(kind.key_type), as_numbers(kind.item_type))
    return pa.struct([(part.name, as_numbers(part.type)) for part in kind]) if pa.types.is_struct(kind) else kind


def same(a: Any, b: Any) -> bool:
    """Equal to the bit; NaN is NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return type(a) is type(b) and bool(a == b)


def same_type(a: pa.DataType, b: pa.DataType | None) -> bool:
    """Equal but for the names of elements, and whether these can be null."""
    if b is None:
        return False
    if pa.types.is_list(a) and pa.types.is_list(b):
        return same_type(a.value_type, b.value_type)
    if pa.types.is_map(a) and pa.types.is_map(b):
        return same_type(a.key_type, b.key_type) and same_type(a.item_type, b.item_type)
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return a.names == b.names and all(same_type(x.type, y.type) for x, y in zip(a, b, strict=True))
    return str(a) == str(b)


LATER = (
    "is not a TIMESTAMP of the form",
    "a year before 1 or after 9999",
    "Timestamp microseconds out of range",
    "invalid UTF8",
)
"""Errors here where Spark has an answer, as documented."""


_CALL = re.compile(r"\b([a-z_0-9]+)\(")


def changed(spark: SparkSession) -> set[str]:
    """The functions that are other ones from Spark 4.3 on: more precise, with more arguments, or by code points."""
    return {"asinh", "acosh", "instr", "regexp_instr"} if spark.version < "4.3" else set()


class Comparison:
    """Answers here next to those of Spark, and what was different."""

    def __init__(self, spark: SparkSession, events: pa.Table) -> None:
        self.spark, self.events = spark, events
        self.frame = spark.createDataFrame(events, schema=SPARK_SCHEMA)
        shown = {row.function for row in spark.sql("SHOW FUNCTIONS").collect()}
        self.later = set(FUNCTIONS) - shown - set(UNIT_FIRST) | changed(spark)
        """functions that this version of Spark does not have, or computes in another way"""
        self.agreed = self.refused = self.failures = 0
        self.refusals: dict[str, str] = {}
        self.differences: list[str] = []

    def compare(self, texts: Sequence[str], errors_to_try: int = 40, tolerance: int = 0) -> None:
        answers = [
            ours(text, self.events) for text in dict.fromkeys(texts) if not self.later & set(_CALL.findall(text))
        ]
        for answer in answers:
            if answer.refused is not None:
                self.refused += 1
                self.refusals.setdefault(answer.refused, answer.text)
        given = [answer for answer in answers if answer.refused is None]
        # Spark computes what is constant in advance, and fails.
        self._values([answer for answer in given if len(answer.errors or {}) < self.events.num_rows], tolerance)
        failing = [
            (answer, row) for answer in answers for row, error in (answer.errors or {}).items() if error != UNKNOWN
        ]
        random.Random(len(failing)).shuffle(failing)
        seen: set[str] = set()
        for answer, row in failing:
            if answer.text not in seen and len(seen) < errors_to_try:
                seen.add(answer.text)
                self._failure(answer, row)

    def _values(self, answers: list[Answer], tolerance: int) -> None:
        if not answers:
            return
        columns = []
        for number, answer in enumerate(answers):
            bad = ", ".join(map(str, answer.errors or {}))
            text = f"CASE WHEN NOT {ROW} IN ({bad}) THEN {answer.text} END" if bad else answer.text
            columns.append(F.expr(text).alias(f"e{number}"))
        try:
            found = self.frame.select(ROW, *columns).toArrow()
        except PySparkException as problem:
            if len(answers) > 1:
                middle = len(answers) // 2
                self._values(answers[:middle], tolerance)
                self._values(answers[middle:], tolerance)
            else:
                reason = str(problem).split("\n")[0][:150]
                self.differences.append(
                    f"{answers[0].text}\n    here {answers[0].type}, in Spark {type(problem).__name__}: {reason}"
                )
            return
        order = {row: at for at, row in enumerate(found.column(0).to_pylist())}
        for number, answer in enumerate(answers):
            theirs = found.column(number + 1)
            values = plain(theirs)
            assert answer.values is not None
            wrong = [
                (row, mine, values[order[row]])
                for row, mine in enumerate(answer.values)
                if row not in (answer.errors or {})
                and not same(mine, values[order[row]])
                and not near(mine, values[order[row]], tolerance)
            ]
            if wrong:
                row, mine, other = wrong[0]
                self.differences.append(
                    f"{answer.text}\n    row {self._row(row, answer.text)}\n    here {mine!r}, in Spark {other!r}"
                )
            elif not same_type(theirs.type, answer.type):
                self.differences.append(f"{answer.text}\n    here {answer.type}, in Spark {theirs.type}")
            else:
                self.agreed += 1

    def _failure(self, answer: Answer, row: int) -> None:
        assert answer.errors is not None
        if any(text in answer.errors[row] for text in LATER):
            return
        try:
            found = self.frame.where(F.col(ROW) == row).select(F.expr(answer.text)).toArrow()
        except (PySparkException, Py4JError):
            self.failures += 1
            return
        self.differences.append(
            f"{answer.text}\n    row {self._row(row, answer.text)}\n    here {answer.errors[row]!r}, in Spark {plain(found.column(0))}"
        )

    def _row(self, row: int, text: str) -> dict[str, Any]:
        names = set(re.findall(r"[a-z]\w*", text))
        values = self.events.slice(row, 1).to_pylist()[0]
        return {name: value for name, value in values.items() if name in names}


def near(a: Any, b: Any, tolerance: int) -> bool:
    """Are two doubles at most so many doubles apart?"""
    if not tolerance or not (isinstance(a, float) and isinstance(b, float)):
        return False
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return same(a, b)
    return abs(a - b) <= tolerance * math.ulp(max(abs(a), abs(b)))
