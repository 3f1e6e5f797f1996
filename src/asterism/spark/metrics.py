"""The metrics of the queries of a session, for Prometheus."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from asterism.arguments import expect_string, shown
from asterism.errors import StreamDefinitionError
from asterism.spark.progress import add_counts, counts_of_operators, query_name, time_of
from asterism.spark.rule_progress import forget, observe

MAX_QUERIES = 200
"""The maximum number of queries with series: those whose last micro-batch is the newest."""


@dataclass(slots=True)
class QueryTotals:
    """What is known of a query that runs.

    :param last: its last micro-batch
    :param triggered: when it last looked for data
    :param batches: the number of its micro-batches
    :param rows: the number of their rows
    :param counts: the counts of its operators, by their observations
    """

    last: StreamingQueryProgress
    triggered: datetime
    batches: int = 0
    rows: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)


class MetricsExporter:
    """The metrics of the queries of a session. Created by :func:`asterism.export_metrics`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryTotals] = {}  # by run, the newest last
        self._ended = {"failed": 0, "finished": 0}
        self._session: Any = None
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int | None:
        """The port that serves the metrics, if there is one."""
        return None if self._server is None else int(self._server.server_port)

    def text(self) -> str:
        """The metrics in the text format of Prometheus, for a program that serves or pushes them itself."""
        from asterism.spark.prometheus import text_of

        return text_of(self)

    def close(self) -> None:
        """Stop to serve the metrics, and to listen to the queries. They continue."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None
        if self._session is not None:
            forget(self._session, self)
            self._session = None

    def start(self, spark: Any, port: int | None, host: str) -> None:
        """Listen to a session, and serve the metrics."""
        observe(spark, self)
        self._session = spark
        if port is None:
            return
        from asterism.spark.prometheus import serve

        try:
            self._server, self._thread = serve(self, port, host)
        except StreamDefinitionError:
            self.close()
            raise

    def queries(self) -> list[QueryTotals]:
        """The queries that run."""
        with self._lock:
            found = [
                replace(one, counts={name: dict(of) for name, of in one.counts.items()}) for one in self._by_name()
            ]
        return sorted(found, key=lambda one: query_name(one.last))

    def ended(self) -> dict[str, int]:
        """How many queries have ended, by outcome."""
        with self._lock:
            return dict(self._ended)

    def add(self, progress: StreamingQueryProgress) -> None:
        run = str(progress.runId)
        with self._lock:
            totals = self._queries.pop(run, None) or QueryTotals(progress, time_of(progress))
            totals.last, totals.triggered = progress, time_of(progress)
            totals.batches += 1
            totals.rows += progress.numInputRows
            for operator, counts in counts_of_operators(progress).items():
                add_counts(totals.counts.setdefault(operator, {}), counts)
            self._queries[run] = totals
            if len(self._queries) > MAX_QUERIES:
                del self._queries[next(iter(self._queries))]

    def idle(self, run: str, time: str) -> None:
        with self._lock:
            if run in self._queries:
                self._queries[run].triggered = datetime.fromisoformat(time)

    def end(self, run: str, error: str | None) -> None:
        with self._lock:
            self._queries.pop(run, None)
            self._ended["finished" if error is None else "failed"] += 1

    def _by_name(self) -> list[QueryTotals]:
        """A series must not occur twice, so that of two queries with one name the newer one counts."""
        return list({query_name(one.last): one for one in self._queries.values()}.values())


def export_metrics(spark: Any, port: int | None = None, *, host: str = "127.0.0.1") -> MetricsExporter:
    """Export the metrics of all queries of a session in the text format of Prometheus.

    :param spark: the session, whose queries are listened to until :meth:`~MetricsExporter.close`
    :param port: the TCP port on which the driver serves the metrics over HTTP; 0: any free port; None: none, for a program that
        uses :meth:`~MetricsExporter.text`
    :param host: the address to listen on. Whoever reaches it can read the names of queries and the ids of rules.
    :return: the exporter. Counters begin with the call; queries that have ended are dropped.
    :raises StreamDefinitionError: the port cannot be used, or an argument is of a wrong type. Without the extra ``http``, which
        has prometheus-client, nothing can be exported.

    [operations](../operations.md#metrics-of-queries) lists the metrics, and an alert for each. Example:
    ``asterism.export_metrics(spark, port=9464)``.
    """
    if isinstance(spark, type) or not hasattr(getattr(spark, "streams", None), "addListener"):
        raise StreamDefinitionError(
            f"metrics are exported for a Spark session, not {shown(spark)}", hint="export_metrics(spark, port=9464)"
        )
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535):
        raise StreamDefinitionError(f"the port must be between 0 and 65535, not {shown(port)}", hint="port=9464")
    expect_string(StreamDefinitionError, host, "the host must be an address", 'host="127.0.0.1"')
    if not host:
        raise StreamDefinitionError("the host must be an address, not ''", hint='host="0.0.0.0" is any address')
    try:
        import prometheus_client  # noqa: F401 - an extra, which is missing here rather than at the first scrape
    except ImportError:
        raise StreamDefinitionError(
            "the export of metrics needs prometheus-client", hint="pip install 'asterism[http]'"
        ) from None
    exporter = MetricsExporter()
    exporter.start(spark, port, host)
    return exporter
