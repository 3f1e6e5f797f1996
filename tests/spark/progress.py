"""Queries whose progress is written down, for tests without a Spark session."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

QUERY, RUN = "e34c5d7b-ddd7-41f0-8f72-f2e7a71a7617", "ae180dd4-b080-4ede-9f72-a8de1c4bf88f"
COUNTS = {"matches": 3, "timed_out": 1, "late_elements": 2, "partial_matches_dropped": 0}


def progress(
    batch: int = 0,
    *,
    name: str | None = "carts",
    query: str = QUERY,
    run: str = RUN,
    rows: int = 100,
    arrived: float = 40.0,
    processed: float = 50.0,
    event_time: Mapping[str, str] | None = None,
    observed: Mapping[str, Mapping[str, Any]] | None = None,
    discovery: str | None = None,
    behind: Mapping[str, Any] | None = None,
) -> StreamingQueryProgress:
    """The progress of a micro-batch, as Spark writes it: *batch* seconds after noon."""
    rates = {"numInputRows": rows, "inputRowsPerSecond": arrived, "processedRowsPerSecond": processed}
    offsets = {"startOffset": "null", "latestOffset": "null"}
    control = {"messages": 0, "definition": "", **({} if discovery is None else {"discovery": discovery})}
    return StreamingQueryProgress.fromJson(
        {
            "id": query,
            "runId": run,
            "name": name,
            "timestamp": f"2026-01-31T12:00:{batch:02}.000Z",
            "batchId": batch,
            "batchDuration": 2000,
            "durationMs": {"triggerExecution": 2000},
            "eventTime": event_time or {},
            "stateOperators": [
                {
                    "operatorName": "transformWithStateInPySparkExec",
                    "numRowsTotal": 1234,
                    "numRowsUpdated": 0,
                    "numRowsRemoved": 0,
                    "allUpdatesTimeMs": 0,
                    "allRemovalsTimeMs": 0,
                    "commitTimeMs": 0,
                    "memoryUsedBytes": 5_600_000,
                    "numRowsDroppedByWatermark": 0,
                    "numShufflePartitions": 2,
                    "numStateStoreInstances": 2,
                }
            ],
            "sources": [
                {
                    "description": "control",
                    "endOffset": json.dumps(control),
                    "metrics": {},
                    **offsets,
                    **dict.fromkeys(rates, 8),
                },
                {
                    "description": "files",
                    "endOffset": '{"logOffset": 7}',
                    "metrics": behind or {},
                    **offsets,
                    **rates,
                },
            ],
            "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
            **{name: value + 8 for name, value in rates.items()},
            "observedMetrics": {"asterism": COUNTS} if observed is None else observed,
        }
    )


def of_rules(*groups: Mapping[str, int]) -> dict[str, Any]:
    """The observation of an operator over rules: the counts of each key group."""
    return {"asterism": {"matches": 7, "late_elements": 0, "processors": json.dumps(groups)}}


def on_connect(observed: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """As ``recentProgress`` of Spark Connect has observations."""
    return {
        name: {"values": list(row.values()), "schema": {"type": "struct", "fields": [{"name": key} for key in row]}}
        for name, row in observed.items()
    }


@dataclass
class WrittenQuery:
    """A query with this progress."""

    recentProgress: Sequence[StreamingQueryProgress] = ()  # noqa: N815 - as in PySpark
    name: str | None = "carts"
    id: str = QUERY
    isActive: bool = True  # noqa: N815 - as in PySpark
    status: Mapping[str, Any] = field(default_factory=lambda: {"message": "Waiting for data to arrive"})
    error: Exception | None = None

    def exception(self) -> Exception | None:
        return self.error


class WrittenSession:
    """With the listeners of its streams."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.streams = SimpleNamespace(addListener=self.listeners.append, removeListener=self.listeners.remove)

    def send(self, *batches: StreamingQueryProgress) -> None:
        [listener] = self.listeners
        for one in batches:
            listener.onQueryProgress(SimpleNamespace(progress=one))

    def end(self, run: str, error: str | None = None) -> None:
        [listener] = self.listeners
        listener.onQueryTerminated(SimpleNamespace(id=QUERY, runId=run, exception=error))
