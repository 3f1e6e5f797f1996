"""The metrics of the queries of a session, for Prometheus."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from asterism.arguments import expect_string, shown
from asterism.errors import MissingPackageError, StreamDefinitionError
from asterism.spark.session.progress_listener import forget, observe
from asterism.spark.watching.progress import SessionTotals


class MetricsExporter:
    """The metrics of the queries of a session. Created by :func:`asterism.export_metrics`."""

    def __init__(self, spark: Any, port: int | None, host: str) -> None:
        self._totals = SessionTotals()
        self.port: int | None = None
        """The port that serves the metrics, if there is one."""
        with ExitStack() as opened:
            observe(spark, self._totals)
            opened.callback(forget, spark, self._totals)
            if port is not None:
                from asterism.spark.watching.prometheus import serve

                server, thread = serve(self._totals, port, host)
                for end in (thread.join, server.server_close, server.shutdown):  # the last one is called first
                    opened.callback(end)
                self.port = server.server_port
            self._open = opened.pop_all()

    def text(self) -> str:
        """The metrics in the text format of Prometheus, for a program that serves or pushes them itself."""
        from asterism.spark.watching.prometheus import text_of

        return text_of(self._totals)

    def close(self) -> None:
        """Stop serving the metrics and listening to the queries. The queries continue."""
        self.port = None
        self._open.close()


def export_metrics(spark: Any, port: int | None = None, *, host: str = "127.0.0.1") -> MetricsExporter:
    """Export the metrics of all queries of a session in the text format of Prometheus.

    :param spark: the session, whose queries are listened to until :meth:`~MetricsExporter.close`
    :param port: the TCP port on which the driver serves the metrics over HTTP; 0: any free port; None: none, for a program that
        uses :meth:`~MetricsExporter.text`
    :param host: the address to listen on. Whoever reaches it can read the names of queries and the ids of rules.
    :return: the exporter. Counters begin with the call; queries that have ended are dropped.
    :raises StreamDefinitionError: the port cannot be used, or an argument is of a wrong type. Without the extra ``http``, which
        has prometheus-client, nothing can be exported.

    docs/operations.md lists the metrics, and an alert for each problem. Example: ``asterism.export_metrics(spark, port=9464)``.
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
        raise MissingPackageError(
            "the export of metrics needs prometheus-client", hint="pip install 'asterism[http]'"
        ) from None
    return MetricsExporter(spark, port, host)
