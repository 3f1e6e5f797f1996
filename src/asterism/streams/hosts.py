"""Which host runs a query: the type of the events decides. See docs/decisions/0131."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from asterism.errors import StreamDefinitionError
from asterism.loading import loading

SPARK, EMBEDDED = "asterism.spark.api", "asterism.embedded"
"""The packages of the hosts in which the operations are. They are imported by name, since they are above this one, and only if
they are used.
"""


def is_of_spark(events: object) -> bool:
    """Whether *events* is a DataFrame of Spark, without an import of pyspark."""
    return any(base.__module__.startswith("pyspark.") for base in type(events).__mro__)


def host_of(events: object) -> str:
    """The package of the host of these events."""
    return SPARK if is_of_spark(events) else EMBEDDED


def keyed_stream_of(events: object) -> type:
    """The class of a :class:`~asterism.streams.keyed_stream.KeyedStream` of these events."""
    if is_of_spark(events):
        stream: type = import_module("asterism.spark.host.keyed_stream").SparkKeyedStream
    else:
        with loading():
            stream = import_module("asterism.embedded.keyed_stream").ArrowKeyedStream
    return stream


def module_of(host: str, name: str) -> Any:
    """A module of a host that offers an operation.

    :param name: below the package of the host
    """
    with loading():
        return import_module(f"{host}.{name}")


def check_on_spark(what: str, stream: Any) -> None:
    """Refuse an operation that only Spark hosts.

    :param stream: a keyed stream, or anything else
    :raises StreamDefinitionError: the stream is one of Arrow tables
    """
    if getattr(stream, "host", SPARK) != SPARK:
        raise needs_spark(what)


def needs_spark(what: str) -> StreamDefinitionError:
    """The error for an operation over an Arrow table that only Spark hosts."""
    return StreamDefinitionError(
        f"{what} needs Spark",
        "Over Arrow tables, without Spark, there are CEP, match_recognize, window and joins of streams.",
        'KeyedStream(spark.createDataFrame(table), key="user", time="ts")',
    )
