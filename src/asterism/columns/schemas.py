"""Schemas and types from Spark's DDL or Arrow."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp, tokenize
from sqlglot.errors import SqlglotError

from asterism.errors import StreamDefinitionError

Type = exp.DataType.Type
_TYPES = {
    Type.BOOLEAN: pa.bool_(),
    Type.TINYINT: pa.int8(),
    Type.SMALLINT: pa.int16(),
    Type.INT: pa.int32(),
    Type.BIGINT: pa.int64(),
    Type.FLOAT: pa.float32(),
    Type.DOUBLE: pa.float64(),
    Type.TEXT: pa.string(),
    Type.BINARY: pa.binary(),
    Type.DATE: pa.date32(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.TIMESTAMPTZ: pa.timestamp("us", "UTC"),
    Type.TIMESTAMPLTZ: pa.timestamp("us", "UTC"),
    Type.TIMESTAMPNTZ: pa.timestamp("us"),
}


def schema_of(columns: str | pa.Schema) -> pa.Schema:
    """A schema from Spark's DDL; an Arrow schema is returned unchanged.

    :raises StreamDefinitionError: the string is not a list of columns with types, or a name occurs twice

    >>> print(schema_of("id BIGINT, tags ARRAY<STRING>"))
    id: int64
    tags: list<item: string>
      child 0, item: string
    """
    if isinstance(columns, pa.Schema):
        return columns
    schema = pa.schema(list(type_of(f"STRUCT<{columns}>", columns)))
    twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
    if twice is not None:
        raise StreamDefinitionError(f"two columns are named {twice!r}", f"Columns: {', '.join(schema.names)}")
    return schema


def type_of(text: str | pa.DataType, shown: str | None = None) -> pa.DataType:
    """A type from Spark's DDL; an Arrow type is returned unchanged.

    :param shown: shown in an error instead of *text*
    :raises StreamDefinitionError: the string is not a type

    >>> type_of("DECIMAL(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    if isinstance(text, pa.DataType):
        return text
    try:
        parsed = exp.DataType.build(text, dialect="spark")
        if _words(parsed.sql("spark")) != _words(text):  # the parser ignores unknown tokens
            raise ValueError(text)
        return _arrow(parsed)
    except (SqlglotError, KeyError, ValueError):
        raise StreamDefinitionError(
            f"not a Spark SQL type: {text!r}"
            if shown is None
            else f"not a list of columns with Spark SQL types: {shown!r}",
            hint='"id BIGINT, price DOUBLE, ts TIMESTAMP, tags ARRAY<STRING>"',
        ) from None


def small_type(kind: pa.DataType) -> pa.DataType:
    """A type with strings and bytes of 32-bit offsets, as Spark passes them unless ``useLargeVarTypes`` is set.

    >>> small_type(pa.list_(pa.large_string())) == pa.list_(pa.string())
    True
    """
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    if types.is_struct(kind):
        return pa.struct([_small_field(field) for field in kind])
    return kind


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(small_type(field.type))


def _words(text: str) -> int:
    """The number of tokens of a type, without punctuation that is optional or may be joined."""
    return sum(bool(token.text.strip(":>")) for token in tokenize(text, read="spark"))


def _arrow(node: exp.DataType) -> pa.DataType:
    match node.this, node.expressions:
        case Type.STRUCT, [_, *_] as fields:
            return pa.struct([pa.field(_name(field), _arrow(field.args["kind"])) for field in fields])
        case Type.ARRAY, [element]:
            return pa.list_(_arrow(element))
        case Type.MAP, [key, value]:
            return pa.map_(_arrow(key), _arrow(value))
        case Type.DECIMAL, sizes:
            return pa.decimal128(*[int(size.name) for size in sizes]) if sizes else pa.decimal128(10)
        case Type.VARCHAR | Type.CHAR, _:
            return pa.string()
        case kind, []:
            return _TYPES[kind]
    raise ValueError(node)


def _name(field: exp.Expr) -> str:
    if not isinstance(field, exp.ColumnDef) or not field.name or field.args.get("kind") is None:
        raise ValueError(field)
    return field.name
