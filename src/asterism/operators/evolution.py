"""Whether a changed operator can continue with the state of its former definition, and that state in the form of the new one.

Tables of state are found by name: those that are new are empty. Columns that the query did not keep before are NULL, and so are
new fields of a column. Entries that were stored without a time to live never expire, until an access sets an expiry time. Strings
with 32-bit and with 64-bit offsets are the same type: Spark's setting ``useLargeVarTypes`` can change.

See docs/decisions/0056.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from asterism.columns.schemas import small_type
from asterism.columns.time import END_OF_TIME
from asterism.errors import CheckpointMismatchError
from asterism.operators.state.keyed_state import EXPIRES
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.state.state_store import tables_by_name, tables_to_bytes
from asterism.operators.stored_state import BROADCAST, STATE, WAITING, aligned_column

CANNOT_CONTINUE = "the checkpoint cannot be continued: "
"""The messages about a definition that cannot continue begin with it."""
FIXED = "fixed"
"""In the details of a definition: what cannot change, as texts by name; a text that begins with ``#`` is a hash."""
_UNDO = CheckpointMismatchError.remedy
_EMPTIED = "end the former query with drain=True before, which empties its state"
_NEW_CHECKPOINT = "use a new checkpoint location"
_SAVEPOINT = "continue with a changed savepoint, see change_checkpoint"
WITHOUT_STATE = "begin without the state: with a new checkpoint, or a live engine with a new folder"
"""The hint at a savepoint that cannot be changed."""
CHANGES_OF_SAVEPOINTS = (
    "the pattern", "ROWS PER MATCH", "AFTER MATCH SKIP", "PATTERN", "WITHIN", "SUBSET", "DEFINE", "the rows that measures need",
)  # fmt: skip
"""What is fixed in a checkpoint and not in a savepoint."""
STATES_OF_WINDOW_FUNCTIONS = "function_state:", "window_state:"
"""Prefixes of tables."""
_KEPT = "e:"
"""The prefix of the columns of events that a query keeps, of which it can need more or fewer."""
_COMPUTED = "s:"
"""The prefix of the columns that conditions compute of events."""
_FORMER_RELEASE = (
    "end the former query with drain=True, in the release that wrote the checkpoint, which empties its state"
)


def mismatch(
    what: str, detail: str | None, remedy: str = _UNDO, *, of_spark: str = _NEW_CHECKPOINT
) -> CheckpointMismatchError:
    """The error for a change that is not possible.

    :param remedy: what can be done in the program; "": nothing
    :param of_spark: what can be done with a checkpoint of Spark. Other hosts replace it.
    """
    error = CheckpointMismatchError(
        f"{CANNOT_CONTINUE}{what}", detail, f"{remedy}; or {of_spark}" if remedy else of_spark
    )
    error.remedy, error.by_savepoint = remedy, of_spark.startswith(_SAVEPOINT)
    return error


def check_evolution(old: StateDefinition, new: StateDefinition) -> None:
    """:raises StateError: the state of *old* cannot be continued"""
    if old.kind is not new.kind:
        raise mismatch(f"it belongs to {_NAMES[old.kind]}, and this query is {_NAMES[new.kind]}", None, _FORMER)
    if list(old.inputs) != list(new.inputs):
        detail = f"Were: {', '.join(old.inputs)}\nAre:  {', '.join(new.inputs)}"
        raise mismatch("the inputs changed", detail, _FORMER)
    before: Mapping[str, str] = old.details.get(FIXED, {})
    now: Mapping[str, str] = new.details.get(FIXED, {})
    for name in [*(name for name in before if name not in now), *now]:
        was, text = before.get(name, "none"), now.get(name, "none")
        if was != text:
            is_hash = was.startswith("#") or text.startswith("#")
            texts = None if is_hash else f"Was: {was}\nIs:  {text}"
            of_spark = f"{_SAVEPOINT}; or {_EMPTIED}" if name in CHANGES_OF_SAVEPOINTS else _EMPTIED
            raise mismatch(f"{name} changed", texts, of_spark=of_spark)
    if list(map(_key_type, old.keys.types)) != list(map(_key_type, new.keys.types)):
        of_spark = _EMPTIED
        if list(map(small_type, old.keys.types)) == list(map(small_type, new.keys.types)):
            of_spark = f"set spark.sql.execution.arrow.useLargeVarTypes as before; or {_EMPTIED}"
        raise mismatch(
            "the types of the key changed",
            f"Was: {_shown(old.keys)}\nIs:  {_shown(new.keys)}",
            of_spark=of_spark,
        )
    _check_inputs(old, new)
    if new.kind in (OperatorKind.OPERATOR, OperatorKind.WINDOWS):
        _check_states(old, new)


def _key_type(kind: pa.DataType) -> pa.DataType:
    """Types of keys are equal if their values have the same hash."""
    return pa.string() if pa.types.is_large_string(kind) else kind


_FORMER = "run the query that the state belongs to"
_NAMES = {
    OperatorKind.PATTERN: "a pattern",
    OperatorKind.RULES: "a stream of rules",
    OperatorKind.ROW_PATTERN: "a MATCH_RECOGNIZE clause",
    OperatorKind.WINDOWS: "windows",
    OperatorKind.JOIN: "a join",
    OperatorKind.OPERATOR: "a StreamOperator",
}


def _check_inputs(old: StateDefinition, new: StateDefinition) -> None:
    for name, schema in new.inputs.items():
        before = old.inputs[name]
        for field in schema:
            known = field.name in before.names
            if known and small_type(before.field(field.name).type) != small_type(field.type):
                was = before.field(field.name).type
                if field.name.startswith(_COMPUTED):
                    detail = f"Was: {was}\nIs:  {field.type}"
                    if (was, field.type) == (pa.float64(), pa.int64()):
                        detail = (
                            "SUM and AVG of a DECIMAL in a condition are exact now; in release 0.1.0 they were DOUBLE."
                        )
                    raise mismatch("a condition keeps other values of events", detail, "", of_spark=_FORMER_RELEASE)
                what = (
                    f'the column "{field.name[2:]}" of the input "{name}" changed its type from {was} to {field.type}'
                )
                raise mismatch(what, None, f"CAST it to {was} before")
            if not known and not field.name.startswith(_KEPT):
                raise mismatch(f'the input "{name}" has other keys or conditions', None, of_spark=_EMPTIED)


def _check_states(old: StateDefinition, new: StateDefinition) -> None:
    operator = new.details.get("operator", "the window function")
    kinds, now = old.details.get("kinds", {}), new.details.get("kinds", {})
    for table, schema in old.tables.items():
        name = table.partition(":")[2]
        if table.startswith((STATE, BROADCAST, *STATES_OF_WINDOW_FUNCTIONS)):
            if table not in new.tables:
                what = (
                    "became a broadcast state" if STATE in table and BROADCAST + name in new.tables else "was removed"
                )
                what = "became a keyed state" if BROADCAST in table and STATE + name in new.tables else what
                remedy = f"declare it as before, a {kinds[name]} of {schema.field('value').type}"
                raise mismatch(f'the state "{name}" of {operator} {what}', None, remedy)
            if kinds[name] != now[name]:
                what = f"was a {kinds[name]} and is a {now[name]}"
                raise mismatch(f'the state "{name}" of {operator} {what}', None, _rename(name))
            now_schema = new.tables[table]
            if not _without_expiry(schema).equals(_without_expiry(now_schema)):
                types = f"Was: {_shown(schema)}\nIs:  {_shown(now_schema)}"
                raise mismatch(f'the state "{name}" of {operator} changed its type', types, _rename(name))
            if EXPIRES in schema.names and EXPIRES not in now_schema.names:
                of_spark, remedy = (_SAVEPOINT, _UNDO) if table.startswith(STATE) else (_NEW_CHECKPOINT, _rename(name))
                what = f'the state "{name}" of {operator} has no time to live any more'
                raise mismatch(what, None, remedy, of_spark=of_spark)
        elif table.startswith(WAITING) and table not in new.tables:
            what = f"{operator} does not select its inputs any more, and elements may still wait"
            raise mismatch(what, None, of_spark=_EMPTIED)


def _rename(name: str) -> str:
    return f"keep it, and declare a new state with another name ({name}_2)"


def _shown(schema: pa.Schema) -> str:
    names = {"name": "map key", "expires": "time to live"}
    return (
        ", ".join(f"{names.get(field.name, field.name)} {field.type}" for field in schema if field.name != "key")
        or "none"
    )


# ---------------------------------------------------------------------- conversion


def aligned(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of *schema*; those that are new are NULL."""
    return pa.table([aligned_column(rows, field) for field in schema], schema=schema)


def _without_expiry(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != EXPIRES])


def with_expiry(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The entries of a state; those that were stored without a time to live never expire.

    Source: "State TTL Migration Compatibility" in the documentation of Flink 2.2.
    """
    if EXPIRES not in schema.names or EXPIRES in rows.column_names:
        return rows
    return rows.append_column(schema.field(EXPIRES), pa.array(np.full(rows.num_rows, END_OF_TIME)))


def aligned_table(name: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table *name* of an operator's or window's state as *schema*."""
    return aligned(with_expiry(rows, schema) if name.startswith((STATE, *STATES_OF_WINDOW_FUNCTIONS)) else rows, schema)


def aligned_tables(value: bytes, old: Mapping[str, pa.Schema], new: Mapping[str, pa.Schema]) -> bytes:
    """A page with the tables *new*, by name; those that are new are empty."""
    tables = tables_by_name(value, old)
    return tables_to_bytes(
        [
            aligned_table(name, tables[name], schema) if name in tables else schema.empty_table()
            for name, schema in new.items()
        ]
    )
