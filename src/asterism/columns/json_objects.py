"""JSON objects as columns of Arrow, where it is certain that Spark's ``from_json`` gives the same values.

docs/decisions/0107-flat-json-is-parsed-by-arrow.md
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from asterism.columns.arrays import one_chunk

INSTANT = pa.timestamp("us", "UTC")
TYPES = (pa.int32(), pa.int64(), pa.float64(), pa.bool_(), pa.string(), INSTANT)
"""The types of columns."""
MAX_BYTES = 50_000
"""Larger values are left to Spark, whose parser limits the length of names."""
_LONG = 1_000
"""From this length on, a value can reach other limits of Spark's parser: digits of a number, nested arrays."""
_SMALL = 32
"""Values of which one cannot be parsed are left to Spark together if they are not more than these."""
_ATTEMPTS = 64
"""How often parsing may fail in a batch, before the rest is left to Spark."""
_INSTANTS = r"^[1-9]\d{3}-\d\d-\d\dT([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-](0\d|1[0-7]):[0-5]\d)$"


def json_objects(values: pa.Array, fields: pa.Schema) -> pa.StructArray:
    """The objects in *values*; NULL where a value is NULL, or is none that this parser certainly understands as Spark does.

    :param values: BINARY
    :param fields: the columns, of TYPES. A field that is missing is NULL, others are ignored.
    """
    values = values.cast(pa.binary())  # a setting of Spark makes it LARGE_BINARY
    candidates = _candidates(values)
    parsed = _FlatObjects(values.filter(candidates), fields).parsed()
    position = np.full(len(values), -1)
    position[np.flatnonzero(candidates)] = np.arange(parsed.num_rows)
    objects = pa.StructArray.from_arrays(parsed.columns[:-1], fields=list(fields))
    certain = position >= 0
    certain[certain] = np.asarray(parsed.column(parsed.num_columns - 1))
    return objects.take(pa.array(position, mask=~certain))


def _candidates(values: pa.Array) -> np.ndarray:
    """Values that look like an object without nested ones: so one value is one object."""
    lengths = pc.binary_length(values)
    is_flat = pc.and_(pc.starts_with(values, "{"), pc.equal(pc.find_substring(values, "}"), pc.subtract(lengths, 1)))
    candidates = pc.and_(is_flat, pc.less_equal(lengths, MAX_BYTES))
    if (pc.max(lengths).as_py() or 0) > _LONG:
        is_deep = pc.or_(pc.match_substring(values, "["), pc.match_substring_regex(values, r"[0-9]{900}"))
        candidates = pc.and_not(candidates, pc.and_(is_deep, pc.greater(lengths, _LONG)))
    if _has_control_characters(values):
        candidates = pc.and_not(candidates, pc.match_substring_regex(values, r"[\x00-\x1f]"))
    return np.asarray(pc.fill_null(candidates, False))


def _has_control_characters(values: pa.Array) -> bool:
    data = values.buffers()[2]
    return data is not None and data.size > 0 and int(np.frombuffer(data, np.uint8).min()) < 0x20


class _FlatObjects:
    """Values that look like flat objects.

    :param fields: see :func:`json_objects`
    """

    def __init__(self, values: pa.Array, fields: pa.Schema) -> None:
        self._values, self._fields = values, fields
        texts = [field.with_type(pa.string()) if field.type == INSTANT else field for field in fields]
        self._options = json.ParseOptions(explicit_schema=pa.schema(texts), unexpected_field_behavior="ignore")
        self._parts: list[pa.Table] = []
        self._attempts = _ATTEMPTS

    def parsed(self) -> pa.RecordBatch:
        """The columns, and a last one that says which rows are certain."""
        self._parse(0, len(self._values))
        schema = self._fields.append(pa.field("", pa.bool_()))
        [batch] = pa.concat_tables([schema.empty_table(), *self._parts]).combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], schema)
        ]
        return batch

    def _parse(self, begin: int, end: int) -> None:
        """Parse a range. If one of its values cannot be parsed, parse its halves."""
        if begin == end:
            return
        if self._attempts > 0:
            try:
                self._parts.append(self._table(self._values.slice(begin, end - begin)))
                return
            except pa.ArrowInvalid:
                self._attempts -= 1
        if self._attempts > 0 and end - begin > _SMALL:
            middle = (begin + end) // 2
            self._parse(begin, middle)
            self._parse(middle, end)
            return
        nulls = [pa.nulls(end - begin, field.type) for field in self._fields]
        self._parts.append(self._with_certainty(nulls, pa.array(np.zeros(end - begin, bool))))

    def _table(self, values: pa.Array) -> pa.Table:
        """:raises pa.ArrowInvalid: a value cannot be parsed"""
        values.cast(pa.string())  # fails if a value is not UTF-8
        lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
        text = lines[0].as_buffer()
        reading = json.ReadOptions(use_threads=False, block_size=text.size + 1)
        table = json.read_json(pa.BufferReader(text), reading, self._options)
        if table.num_rows != len(values):
            raise pa.ArrowInvalid("a value is not one object")
        certain = np.ones(len(values), bool)
        columns: list[pa.Array] = []
        for field in self._fields:
            column = one_chunk(table.column(field.name))
            if field.type == INSTANT:
                column, is_certain = _instants(column)
                certain &= is_certain
            elif field.type == pa.float64():
                numbers = column.fill_null(1.0).to_numpy(zero_copy_only=False)
                # Spark's parser distinguishes the zeros -0 and -0.0.
                certain &= np.isfinite(numbers) & ~((numbers == 0) & np.signbit(numbers))
            columns.append(column)
        return self._with_certainty(columns, pa.array(certain))

    def _with_certainty(self, columns: list[pa.Array], certain: pa.Array) -> pa.Table:
        return pa.Table.from_arrays([*columns, certain], schema=self._fields.append(pa.field("", pa.bool_())))


def _instants(texts: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Points in time, and which are certain: those with a zone, in the format of ISO 8601.

    :raises pa.ArrowInvalid: there is no such day
    """
    is_instant = pc.match_substring_regex(texts, _INSTANTS)
    certain = np.asarray(pc.fill_null(is_instant, True))
    return pc.if_else(pa.array(certain), texts, pa.scalar(None, pa.string())).cast(INSTANT), certain
