"""The metrics of the queries of a session, or of live engines, for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from asterism.arguments import expect_string, shown
from asterism.errors import MissingPackageError, StreamDefinitionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from asterism.live.engine import LiveEngine
    from asterism.metrics.query_metrics import MetricsExporter


def export_metrics(
    queries: SparkSession | Mapping[str, LiveEngine], port: int | None = None, *, host: str = "127.0.0.1"
) -> MetricsExporter:
    """Export the metrics of all queries of a session, or of live engines, in the text format of Prometheus.

    :param queries: the session, whose queries are listened to until :meth:`~MetricsExporter.close`; or live engines by the names
        that the label ``query`` has
    :param port: the TCP port on which this process serves the metrics over HTTP; 0: any free port; None: none, for a program that
        uses :meth:`~MetricsExporter.text`
    :param host: the address to listen on. Whoever reaches it can read the names of queries and the ids of rules.
    :return: the exporter. Counters begin with the call, those of a live engine when it is opened; queries that have ended are
        dropped.
    :raises StreamDefinitionError: the port cannot be used, or an argument is of a wrong type. Without the extra ``http``, which
        has prometheus-client, nothing can be exported.

    docs/operations.md lists the metrics, and an alert for each problem. Examples: ``asterism.export_metrics(spark, port=9464)``,
    ``asterism.export_metrics({"logins": engine}).text()``.
    """
    is_session = not isinstance(queries, type) and hasattr(getattr(queries, "streams", None), "addListener")
    if not is_session and not isinstance(queries, Mapping):
        raise StreamDefinitionError(
            f"metrics are exported for a Spark session or for live engines by name, not {shown(queries)}",
            hint='export_metrics(spark, port=9464), or export_metrics({"logins": engine}, port=9464)',
        )
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535):
        raise StreamDefinitionError(f"the port must be between 0 and 65535, not {shown(port)}", hint="port=9464")
    expect_string(StreamDefinitionError, host, "the host must be an address", 'host="127.0.0.1"')
    if not host:
        raise StreamDefinitionError("the host must be an address, not ''", hint='host="0.0.0.0" is any address')
    try:
        import prometheus_client  # noqa: F401 - an extra, which is missing here rather than at the first scrape
    except ImportError:
        raise MissingPackageError(
            "the export of metrics needs prometheus-client", hint="pip install 'asterism[http]'"
        ) from None
    from asterism.metrics.query_metrics import MetricsExporter

    if isinstance(queries, Mapping):
        from asterism.live.engine_metrics import EngineMetrics

        return MetricsExporter(EngineMetrics(queries), port, host)
    return _exporter_of_session(queries, port, host)


def _exporter_of_session(spark: Any, port: int | None, host: str) -> MetricsExporter:
    from asterism.metrics.query_metrics import MetricsExporter
    from asterism.spark.session.progress_listener import forget, observe
    from asterism.spark.watching.progress import SessionTotals
    from asterism.spark.watching.session_metrics import SessionMetrics

    totals, opened = SessionTotals(), ExitStack()
    observe(spark, totals)
    opened.callback(forget, spark, totals)
    return MetricsExporter(SessionMetrics(totals), port, host, opened)
