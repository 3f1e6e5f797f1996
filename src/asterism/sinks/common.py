"""What several sinks share."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa


class ToArrow(Protocol):
    """What a sink needs of a DataFrame."""

    def toArrow(self) -> pa.Table:  # noqa: N802 - Spark's name
        """All rows."""
