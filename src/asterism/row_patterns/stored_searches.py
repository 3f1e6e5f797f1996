"""The undecided matches in the pages of MATCH_RECOGNIZE, as rows for ``read_state``: a row for each key whose search waits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from asterism.columns.arrays import Ints, cast_to
from asterism.columns.groups import consecutive, offsets_of
from asterism.columns.time import END_OF_TIME, TimeColumn, moments
from asterism.matching.stored_matches import accepted_events, matches_schema
from asterism.operators.state.state_definition import StateDefinition, keys_as_structs
from asterism.operators.stored_state import rule_keys, tables_of_page

ROWS = "rows"
"""The table of rows in a page, after that of the keys."""


def searches_of(
    definition: StateDefinition, value: bytes, event: pa.DataType | None, rule: tuple[str, int] | None = None
) -> pa.Table:
    """The waiting keys of a page, with the time of the first undecided row, and the number of rows from it on.

    :param rule: the id and version of the rule with the clause; keys are then texts
    """
    tables = tables_of_page(definition, value)
    keys, rows = tables["keys"], tables[ROWS]
    sizes, starts = (keys.column("p:" + name).to_numpy() for name in ("rows", "next_start"))
    waiting = np.flatnonzero(starts < sizes)
    begins = (offsets_of(sizes)[:-1] + starts)[waiting]
    counts = (sizes - starts)[waiting]
    times = _times(definition, rows)
    since = times[begins]
    within = int(definition.details["within"])
    deadlines = since + within if within else np.full(len(since), END_OF_TIME)
    named = keys_as_structs(keys, definition.keys.names) if rule is None else rule_keys(keys.column(0))
    nothing = pa.nulls(len(waiting), pa.string())
    columns = [
        named.take(pa.array(waiting)),
        *(pa.nulls(len(waiting)) if rule is None else pa.array([part] * len(waiting)) for part in rule or (None, None)),
        nothing,
        nothing,
        moments(since),
        moments(deadlines),
        pa.array(counts),
    ]
    schema = matches_schema(named.type, event)
    if event is not None:
        at = consecutive(begins, counts)
        stages = pa.nulls(len(at), pa.string())
        columns.append(accepted_events(stages, times[at], rows.take(pa.array(at)), counts, event))
    return pa.table([cast_to(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


def _times(definition: StateDefinition, rows: pa.Table) -> Ints:
    name = "e:" + definition.details["time"]
    column = TimeColumn(name, rows.schema.field(name).type, definition.details["unit"])
    micros: Ints = column.to_micros(rows.column(name)).to_numpy()
    return micros
