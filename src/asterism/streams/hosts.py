"""Which host runs a query: the type of the events decides. See docs/decisions/0131."""

from __future__ import annotations

from collections.abc import Iterable
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


def hosted_class(events: object, name: str) -> type:
    """The class of the host of these events that is a stream of this name, such as ``KeyedStream``."""
    if is_of_spark(events):
        stream: type = getattr(import_module("asterism.spark.host.keyed_stream"), f"Spark{name}")
    else:
        with loading():
            stream = getattr(import_module("asterism.embedded.keyed_stream"), f"Arrow{name}")
    return stream


def module_of(host: str, name: str) -> Any:
    """A module of a host that offers an operation.

    :param name: below the package of the host
    """
    with loading():
        return import_module(f"{host}.{name}")


def host_of_all(what: str, streams: Iterable[Any]) -> str:
    """The host of streams that are processed together.

    :param what: what processes them, for the error
    :raises StreamDefinitionError: they have several
    """
    hosts = {stream.host for stream in streams}
    if len(hosts) > 1:
        raise StreamDefinitionError(
            f"{what} has DataFrames of Spark and Arrow tables",
            hint="spark.createDataFrame(table) makes a DataFrame; df.toArrow() makes a table",
        )
    host: str = hosts.pop()
    return host


def needs_spark(what: str) -> StreamDefinitionError:
    """The error for an operation over an Arrow table that only Spark hosts."""
    return StreamDefinitionError(
        f"{what} needs Spark",
        "Over Arrow tables, without Spark, there are CEP, match_recognize, window, joins and operators (connect).",
        'KeyedStream(spark.createDataFrame(table), key="user", time="ts")',
    )
