"""The names of the output, the metrics and the columns of a window operator, and the tables of its pages."""

from __future__ import annotations

import pyarrow as pa

FIRINGS = "firings"
"""The operator's output of results; there may be another one for late elements."""
KINDS = ("early", "on_time", "late")
COUNTED = tuple(f"{kind}_firings" for kind in KINDS)
UNFIRED = "unfired_elements"
"""The names of the metrics."""
GAP, DISTANCES = "g:", "d:"
"""Prepared columns: the gap of a session; the numbers that triggers compare."""
META = pa.schema([("seen", pa.int64())])
"""Data of a page besides its panes: the watermark at which it was written."""
META_TABLE, PANE_TABLE, ROW_TABLE = range(3)
"""The tables of a page: META, the panes and, if elements are kept, their rows."""
