"""The table of functions of conditions and measures, and their arguments.

:func:`function` adds a function to the table, against which ``docs/sql.md`` is checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pyarrow as pa

from asterism.expressions.types import (
    BIGINT,
    BINARY,
    DATE,
    DOUBLE,
    INT,
    INTEGERS,
    NULL,
    STRING,
    is_numeric,
    is_temporal,
    name_of,
)
from asterism.expressions.values import Cost, Sql, UnsupportedError, cast, limited, strict

Builder = Callable[..., Sql]

MAX_STRING = 10_000  # the maximum number of characters of lpad, rpad and repeat


@dataclass(frozen=True, slots=True)
class Lambda:
    """A lambda as an argument of a function.

    :param count: the number of its parameters
    :param translate: its body, from the values of the parameters and the size of the array whose elements they are. So many of
        the first parameters are not available in lambdas inside of it
    """

    count: int
    translate: Callable[[Sequence[Sql], Cost, int], Sql]
    names: Callable[[int], list[str]]
    """so many names of parameters in SQL for DuckDB, which no lambda around this one has"""


@dataclass(frozen=True, slots=True)
class Function:
    """The usage and notes of a function; *build* makes its value from the session time zone and the arguments."""

    usage: str
    note: str
    group: str
    build: Builder
    lambdas: Collection[int] = ()
    """the arguments, from 0, that must be lambdas"""
    strict: bool = True
    """whether it is NULL if an argument is NULL"""

    @property
    def name(self) -> str:
        return self.usage.partition("(")[0]

    def __call__(self, zone: str, arguments: Sequence[Sql | Lambda]) -> Sql:
        try:
            _signature_of(self.build).bind(zone, *arguments)
        except TypeError:
            raise UnsupportedError(
                f"{self.name.upper()} does not take {len(arguments)} arguments", self.usage
            ) from None
        return limited(replace(self.build(zone, *arguments), constant=None))  # a computed value is not a literal


@cache
def _signature_of(build: Builder) -> inspect.Signature:
    return inspect.signature(build)


FUNCTIONS: dict[str, Function] = {}
"""The functions by name, in lower case; aliases share an entry."""


def function(
    group: str, usage: str, *others: str, note: str = "", lambdas: Collection[int] = (), strict: bool = True
) -> Callable[[Builder], Builder]:
    """Add a function to the table, under the name in *usage* and under *others*."""

    def add(build: Builder) -> Builder:
        entry = Function(usage, note, group, build, lambdas, strict)
        for name in (entry.name, *others):
            FUNCTIONS[name] = entry
        return build

    return add


NOT_PURE = frozenset(
    [
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_timezone",
        "current_user",
        "localtimestamp",
        "now",
        "rand",
        "randn",
        "random",
        "randstr",
        "session_user",
        "shuffle",
        "uniform",
        "user",
        "uuid",
        "input_file_block_length",
        "input_file_block_start",
        "input_file_name",
        "monotonically_increasing_id",
        "spark_partition_id",
        "curdate",
    ]
)
"""Functions whose results do not depend on the event alone."""
WITHOUT_PARENTHESES = frozenset(
    ["current_date", "current_time", "current_timestamp", "current_user", "localtimestamp", "session_user"]
)
"""Those that Spark also calls without parentheses. It does so with ``user``, too, which is more often meant as a column."""


def string(value: Sql, zone: str) -> Sql:
    """An argument that must be a string. Spark casts other types implicitly, but does not say so."""
    if value.type not in (STRING, NULL):
        raise UnsupportedError(f"a STRING is needed, not {name_of(value.type)}", "CAST(... AS STRING)")
    return cast(value, STRING, zone)


def octets(value: Sql, zone: str) -> Sql:
    """An argument that must be BINARY; of a STRING, the bytes of UTF-8 are taken, as in Spark."""
    if value.type not in (BINARY, STRING, NULL):
        raise UnsupportedError(f"a BINARY or a STRING is needed, not {name_of(value.type)}", "CAST(... AS STRING)")
    return cast(value, BINARY, zone)


def string_or_octets(value: Sql, zone: str) -> Sql:
    return value if value.type == BINARY else string(value, zone)


def number(value: Sql, zone: str, kind: pa.DataType = DOUBLE) -> Sql:
    if not is_numeric(value.type) and value.type != NULL:
        raise UnsupportedError(f"a number is needed, not {name_of(value.type)}", "CAST it")
    return cast(value, kind, zone)


def integer(value: Sql, zone: str, kind: pa.DataType = INT) -> Sql:
    if value.type not in (*INTEGERS, NULL) or (value.type == BIGINT and kind != BIGINT):
        raise UnsupportedError(f"an INT is needed, not {name_of(value.type)}", "CAST(... AS INT)")
    return cast(value, kind, zone)


def literal_integer(value: Sql, what: str, limit: int) -> int:
    if value.type not in INTEGERS or value.constant is None:
        raise UnsupportedError(f"{what} must be an integer literal")
    number = int(value.constant)
    if abs(number) > limit:
        raise UnsupportedError(f"{what} must be at most {limit:,}")
    return number


def literal_string(value: Sql, what: str) -> str:
    if not isinstance(value.constant, str):
        raise UnsupportedError(f"{what} must be a string literal")
    return value.constant


def day(value: Sql, zone: str) -> Sql:
    if not is_temporal(value.type) and value.type != NULL and value.constant is None:
        raise UnsupportedError(f"a DATE is needed, not {name_of(value.type)}", "CAST(... AS DATE)")
    return cast(value, DATE, zone)


def moment(value: Sql, zone: str) -> Sql:
    """An argument that must be a TIMESTAMP or TIMESTAMP_NTZ."""
    if pa.types.is_timestamp(value.type):
        return value
    if value.type not in (DATE, NULL) and not isinstance(value.constant, str):
        raise UnsupportedError(f"a TIMESTAMP is needed, not {name_of(value.type)}", "CAST(... AS TIMESTAMP)")
    return cast(value, pa.timestamp("us", zone), zone)


def int_of(template: str, *parts: Sql, raises: bool = False) -> Sql:
    return strict(f"CAST({template} AS INTEGER)", INT, *parts, raises=raises)
