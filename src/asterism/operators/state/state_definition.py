"""What the state of a key group consists of, stored beside it: the schemas of its tables, and the names of what they contain.

Pages have no schemas (see :mod:`asterism.operators.state.state_store`). With its definition, state can be read without the
operator.

See docs/decisions/0052.
"""

from __future__ import annotations

import base64
import enum
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from asterism.errors import StateError
from asterism.operators.state.state_store import BODY, Record, layout_of, record_of

KEYS_TABLE = "keys"
"""The first table of a page."""


_MAX_SIZE = 2**26
"""The maximum size of a definition without compression, in bytes."""
_UNREADABLE = (zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError)
UNKNOWN_COLUMNS = pa.schema([])
"""With this schema, the rows of a table can be counted, but not read."""


class OperatorKind(enum.StrEnum):
    """The kinds of operators, by their state."""

    PATTERN = "pattern"
    RULES = "rules"
    ROW_PATTERN = "row pattern"
    WINDOWS = "windows"
    JOIN = "join"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class StateDefinition:
    """
    :param keys: the key columns; none: there is a single key
    :param tables: the tables of a page, in order
    :param inputs: the prepared events of the inputs, in the order of the operator
    :param details: JSON that depends on the kind
    """

    kind: OperatorKind
    keys: pa.Schema
    tables: Mapping[str, pa.Schema] = field(default_factory=dict)
    inputs: Mapping[str, pa.Schema] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        document = {
            "kind": self.kind.value,
            "keys": _text_of(self.keys),
            "tables": {name: _text_of(schema) for name, schema in self.tables.items()},
            "inputs": {name: _text_of(schema) for name, schema in self.inputs.items()},
            "details": self.details,
        }
        written = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
        return record_of(Record.DEFINITION, zlib.compress(written))

    @classmethod
    def from_bytes(cls, value: bytes) -> StateDefinition:
        """:raises StateError: it was written by a later release, or by something else"""
        layout_of(value, Record.DEFINITION)
        try:
            stream = zlib.decompressobj()
            text = stream.decompress(value[BODY:], _MAX_SIZE)
            if not stream.eof:
                raise ValueError(f"it is truncated, or larger than {_MAX_SIZE:,} bytes")
            document = json.loads(text)
            return cls(
                OperatorKind(document["kind"]),
                _schema_of(document["keys"]),
                {name: _schema_of(text) for name, text in document["tables"].items()},
                {name: _schema_of(text) for name, text in document["inputs"].items()},
                document["details"],
            )
        except (*_UNREADABLE, pa.ArrowException) as error:
            raise StateError("the definition of the state in the checkpoint cannot be read", str(error)) from None


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.remove_metadata().serialize().to_pybytes()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def keys_as_structs(keys: pa.Table, names: Sequence[str]) -> pa.Array:
    """The keys of a stream as one column; NULL if the stream has no key."""
    if not names:
        return pa.nulls(keys.num_rows, pa.string())
    columns = [column.combine_chunks() for column in keys.columns[: len(names)]]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields)
