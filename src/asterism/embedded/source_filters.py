"""Filters that the source of a table evaluates, so that rows that cannot matter to a query are not read. See docs/decisions/0177.

DuckDB also evaluates whole conditions, if they are made of comparisons with constants, so that columns that only they need are
not read either. See docs/decisions/0181.

A filter is weaker than the conditions that it is made of: it keeps all rows that satisfy one of them, and maybe others. So it
needs only what means the same everywhere: columns that are compared with constants.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterator
from typing import NamedTuple

import pyarrow as pa

from asterism.columns.time import FAR, TimeColumn
from asterism.expressions.ranges import HIGHEST, Range, Ranges
from asterism.expressions.types import INTEGERS, quoted_name
from asterism.expressions.values import quoted

_TYPES = {pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER", pa.int64(): "BIGINT"}


class SourceBits(NamedTuple):
    """Conditions as bits: a column of the result has those of some conditions, the first one in its lowest bit.

    :param fields: the columns, which are integers
    :param conditions: for each of these columns its conditions, over the columns of a :class:`SourceFilter`
    :param beside: the columns that a query reads if it has these
    """

    fields: tuple[pa.Field, ...]
    conditions: tuple[tuple[Ranges, ...], ...]
    beside: tuple[str, ...]

    def are_in(self, columns: Container[str]) -> bool:
        """Whether a source has evaluated the conditions, if these are the names of its columns."""
        return self.fields[0].name in columns


class SourceFilter(NamedTuple):
    """Rows in which one of the alternatives holds, or one of the *nullable* columns is NULL.

    :param ranges: of the columns of *schema*, which have the same numbers in *nullable*; None: every row matters
    :param schema: the columns with the types that they have in Spark
    :param time: the column of event time. Rows whose time is no time are kept, too: they are errors, whatever else they have.
    """

    ranges: Ranges | None
    schema: pa.Schema
    time: TimeColumn | None
    nullable: frozenset[int] = frozenset()
    bits: SourceBits | None = None

    def sql(self, source: pa.Schema, *, calls: bool = False, timed: bool = False) -> str | None:
        """A condition in the SQL of DuckDB and Polars; None: all rows have to be read.

        :param source: the columns with the types that they have in the source
        :param calls: whether it may call functions of DuckDB, which find timestamps and dates that are out of range
        :param timed: whether the time of each row is known to be one
        """
        if self.ranges is None:
            return None
        alternatives: list[str] = []
        if self.time is not None:
            if self.time.name not in source.names:  # an expression
                return None
            if not timed:
                alternatives += self._timeless(self.time, source, calls=calls)
        for name in [self.schema.names[number] for number in sorted(self.nullable)]:
            if name not in source.names:
                return None
            alternatives.append(f"{quoted_name(name)} IS NULL")
        for alternative in self.ranges:
            tests = [test for limits in alternative for test in self._tests(limits, source) or ()]
            if not tests:
                return None
            alternatives.append(f"({' AND '.join(tests)})")
        return " OR ".join(dict.fromkeys(alternatives)) or "FALSE"

    def _timeless(self, time: TimeColumn, source: pa.Schema, *, calls: bool) -> Iterator[str]:
        """Conditions, of which one holds where the time is none."""
        yield f"{quoted_name(time.name)} IS NULL"
        if pa.types.is_integer(source.field(time.name).type):
            first, last = time.range
            yield f"{quoted_name(time.name)} NOT BETWEEN {first} AND {last}"
        elif calls:
            micros = f"TRY(epoch_us({quoted_name(time.name)}))"  # NULL also if it is infinite
            yield f"coalesce({micros}, {-FAR - 1}) NOT BETWEEN {-FAR} AND {FAR}"

    def bits_sql(self, source: pa.Schema) -> dict[str, str] | None:
        """For each column of *bits*, and each one beside them, an expression in the SQL of DuckDB; None: there are no bits, or
        one cannot be written.

        :param source: the columns with the types that they have in the source
        """
        if self.bits is None:
            return None
        columns = {name: quoted_name(name) for name in self.bits.beside}
        for field, conditions in zip(self.bits.fields, self.bits.conditions, strict=True):
            texts = [self._exactly(ranges, source) for ranges in conditions]
            if None in texts:
                return None
            parts = [f"CASE WHEN {text} THEN {1 << bit} ELSE 0 END" for bit, text in enumerate(texts)]
            columns[field.name] = f"CAST({' + '.join(parts) or '0'} AS {_TYPES[field.type]})"
        return columns

    def _exactly(self, ranges: Ranges, source: pa.Schema) -> str | None:
        """A condition that is TRUE where one of the alternatives holds, and only there; None: it cannot be written."""
        alternatives = []
        for alternative in ranges:
            parts = []
            for limits in alternative:
                tests = self._tests(limits, source)
                if tests is None:
                    return None
                parts += tests or [f"{quoted_name(self.schema.field(limits.column).name)} IS NOT NULL"]
            alternatives.append(f"({' AND '.join(parts) or 'TRUE'})")
        return " OR ".join(alternatives) or "FALSE"

    def _tests(self, limits: Range, source: pa.Schema) -> list[str] | None:
        """Comparisons that hold together for the values in a range, apart from NULL; None: they cannot be written."""
        field, types = self.schema.field(limits.column), pa.types
        if field.name not in source.names:  # an expression
            return None
        name, kind = quoted_name(field.name), source.field(field.name).type
        if isinstance(limits.low, tuple):
            # Only equality: a collation of the source may order strings otherwise.
            if limits.is_one and any(
                is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_string_view)
            ):
                return [f"{name} = {quoted(limits.low[0])}"]
            return None
        if isinstance(limits.high, tuple):
            return None
        bounds = [(sign, at) for sign, at in ((">=", limits.low), ("<=", limits.high)) if isinstance(at, int)]
        if limits.floating and (types.is_floating(kind) or types.is_integer(kind)):
            return [f"CAST({name} AS DOUBLE) {sign} CAST('{_double(at)}' AS DOUBLE)" for sign, at in bounds]
        if types.is_integer(kind) and field.type in INTEGERS:
            return [f"{name} {sign} {at}" for sign, at in bounds]
        return None


def _double(order: int) -> float:
    """The inverse of :func:`~asterism.expressions.ranges.order_of`."""
    value: float = struct.unpack("<d", struct.pack("<q", order if order >= 0 else order ^ HIGHEST))[0]
    return value
