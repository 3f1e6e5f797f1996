"""The state of an operator over streams without a key, whose instances are its key groups.

An instance has one row, and its number stands for the hash of a key. So each instance keeps its state if their number does not
change, and also if there are more of them: the new ones begin without state. With fewer, instance *i* of *n* gets the lists of
the instances *i*, *i + n*, and so on, as Flink redistributes the lists of operator state. Other state of several instances
cannot become one.

See docs/decisions/0137.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from asterism.columns.arrays import one_chunk
from asterism.errors import StateError
from asterism.operators.evolution import FIXED
from asterism.operators.state.keyed_state import StateKind
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.stored_state import STATE as STATE_PREFIX
from asterism.operators.stored_state import TIMERS_TABLE
from asterism.savepoints.key_groups import KEY_HASH, NEXT_EVENT_TIME, NEXT_PROCESSING_TIME, STATE

_DISTRIBUTED = "distributed"


def is_distributed(definition: StateDefinition) -> bool:
    """Whether the streams of an operator have no key, and its instances are its key groups."""
    if definition.kind is not OperatorKind.OPERATOR:
        return False
    return _DISTRIBUTED in definition.details.get(FIXED, {}).values()


def undivided_tables(definition: StateDefinition) -> list[str]:
    """The fields of the state that several instances cannot have together: values, maps and timers."""
    kinds = definition.details["kinds"]
    names = [name.removeprefix(STATE_PREFIX) for name in definition.tables if name.startswith(STATE_PREFIX)]
    others = [STATE_PREFIX + name for name in names if StateKind(kinds[name]) is not StateKind.LIST]
    return [*others, *([TIMERS_TABLE] if TIMERS_TABLE in definition.tables else [])]


def cannot_merge(table: str, key_groups: int) -> StateError:
    what = "timers" if table == TIMERS_TABLE else f'a value of the state "{table.removeprefix(STATE_PREFIX)}"'
    return StateError(
        f"the instances of the operator cannot become {key_groups:,}: several that would be one have {what}",
        "Its streams have no key, so the key groups are its instances. Lists can be combined, values, maps and timers cannot.",
        "as many key groups as before, or more",
    )


def merged_instances(rows: pa.Table) -> pa.Table:
    """The rows of the instances that become one, as its row.

    :param rows: of the table ``keys``, with KEY_HASH
    """
    if rows.num_rows < 2:
        return rows
    rows = rows.sort_by(KEY_HASH)
    state = one_chunk(rows.column(STATE))
    lists = [_together(field) for field in state.flatten()]
    first = {name: rows.column(name).slice(0, 1) for name in rows.column_names}
    times = {
        name: pa.array([pc.min(rows.column(name)).as_py()], rows.schema.field(name).type)
        for name in (NEXT_EVENT_TIME, NEXT_PROCESSING_TIME)
    }
    whole = {STATE: pa.StructArray.from_arrays(lists, fields=list(state.type))}
    return pa.table({**first, **times, **whole}, schema=rows.schema)


def _together(lists: pa.ListArray) -> pa.ListArray:
    values = lists.flatten()
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, type=lists.type)
