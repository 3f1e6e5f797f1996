"""Late elements as rows."""

from __future__ import annotations

import pyarrow as pa


def late_table(schema: pa.Schema, events: pa.Table) -> pa.Table:
    """Late events in their original columns."""
    return pa.table([events.column("e:" + name) for name in schema.names], schema=schema)
