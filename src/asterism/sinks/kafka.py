"""Rows as records of a topic, which Spark sends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from asterism.arguments import expect, expect_string, shown
from asterism.errors import ColumnNotFoundError, SinkError, error_in
from asterism.sinks.common import named_columns
from asterism.text.printable import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PREFIX = "kafka."
_SERVERS = 'KafkaSink("broker1:9092,broker2:9092", "attacks")'
_OPTIONS = 'options={"kafka.acks": "all"}'
_KEY = 'key="match_id", header="match_id", or both'
_MATCH_ID = "match_id"
# Of the producer's documentation; only for hints, because interceptors and login modules have settings of their own.
_SETTINGS = (
    "acks", "batch.size", "buffer.memory", "client.dns.lookup", "client.id", "compression.type", "connections.max.idle.ms",
    "delivery.timeout.ms", "enable.idempotence", "interceptor.classes", "linger.ms", "max.block.ms",
    "max.in.flight.requests.per.connection", "max.request.size", "metadata.max.age.ms", "partitioner.class",
    "partitioner.ignore.keys", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms", "retries",
    "retry.backoff.ms", "sasl.jaas.config", "sasl.mechanism", "security.protocol", "send.buffer.bytes",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.truststore.location", "ssl.truststore.password",
)  # fmt: skip
_OF_THE_SINK = {"bootstrap.servers": "the first argument", "key.serializer": "Spark's", "value.serializer": "Spark's"}
# With microseconds and an offset, so that a consumer reads the time that the row has.
_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC", "ignoreNullFields": "false"}
_CONNECTOR = "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:<version of Spark>"
_UNREACHABLE = re.compile(
    r"Topic \S+ not present in metadata after \d+ ms"
    r"|Expiring \d+ record\(s\) for \S+: ?\d+ ms has passed since batch creation"
    r"|No resolvable bootstrap urls given in bootstrap servers"
    r"|Failed to update metadata after \d+ ms"
)
_REFUSED = re.compile(
    r"org\.apache\.kafka\.common\.(?:errors|config)\."
    r"(?P<kind>RecordTooLarge|TopicAuthorization|ClusterAuthorization|SaslAuthentication|SslAuthentication"
    r"|InvalidTopic|InvalidRecord|Config)Exception: (?P<text>.*)"
)


class KafkaSink:
    """Sends rows to a topic of Kafka, each with an id by which consumers recognise a row that they have already seen.

    A sink of :meth:`PatternStream.run`, of the other streams, and of :func:`asterism.run`. A row becomes a record: its value is
    a JSON object of all columns, its id is the key of the record, or a header, or both. Spark sends the records, so the number of
    rows in a micro-batch is not limited by the driver.

    Spark's writer has no transactions. If a micro-batch is repeated after a failure, the records that were sent before are sent
    again, with the same ids: a match id does not depend on micro-batches, restarts or the number of partitions. So each row is in
    the topic at least once, and a consumer that ignores ids which it has processed sees each row once. If the id is the key,
    a compacted topic (``cleanup.policy=compact``) keeps one record of each id. ``docs/sinks.md`` says what consumers must do.

    Times in JSON are in UTC with microseconds, ``2025-01-01T12:00:04.000000Z``; columns that are NULL are ``null``; a BINARY
    is Base64.

    :param servers: addresses of brokers, separated by commas: ``broker1:9092,broker2:9092``
    :param topic: the name of the topic, which must exist, unless the brokers create topics automatically
    :param key: the column whose text is the key of a record; several columns: the key is a JSON object of them; None: records
        have no key. Kafka sends equal keys to one partition.
    :param header: the column, or the columns, that become headers with their names, as text in UTF-8. With ``key="user",
        header="match_id"``, the matches of a user are in one partition, in their order, and the id is in the header. The id
        of a row, that is its headers or otherwise its key, is never NULL, and contains the match id if the row has one.
    :param value: a STRING or BINARY column that is the value, for other formats than JSON: Avro by ``to_avro``. Default: JSON
    :param options: settings of Kafka's producer, whose names begin with ``kafka.``: ``kafka.security.protocol``. A producer waits
        for a broker for ``kafka.delivery.timeout.ms``, by default 2 minutes, and for the metadata of the topic for
        ``kafka.max.block.ms``, by default 1 minute; then the query fails, and can be started again.
    :raises SinkError: an argument is invalid. When the query starts: the rows have a match id, but it is no part of the id. When
        it is called: a row has no id, no broker responds, the topic does not exist, a broker refuses a record, or Spark has no
        connector for Kafka
    :raises ColumnNotFoundError: when the query starts: the rows have no such column

    >>> KafkaSink("broker1:9092", "attacks", key="user", header="match_id")
    KafkaSink('broker1:9092', 'attacks', key=('user',), header=('match_id',))
    """

    needs_spark = True
    """whether it writes DataFrames only"""

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: str | Sequence[str] | None = "match_id",
        header: str | Sequence[str] | None = None,
        value: str | None = None,
        options: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        expect_string(SinkError, servers, "the servers of a sink must be a string", _SERVERS)
        expect_string(SinkError, topic, "the topic of a sink must be a string", _SERVERS)
        if not servers.strip() or not topic:
            raise SinkError("a sink needs the address of a broker and the name of a topic", hint=_SERVERS)
        self.servers, self.topic = servers, topic
        self.key = () if key is None else named_columns(key, "key", _KEY)
        self.header = () if header is None else named_columns(header, "header", _KEY)
        expect(SinkError, value, str | None, "the value of a sink must be the name of a column", 'value="avro"')
        self.value = value
        if not self.key and not self.header:
            raise SinkError(
                "a record without a key or a header cannot be recognised if it is sent twice",
                "After a failure, Spark sends the records of a micro-batch again.",
                _KEY,
            )
        expect(SinkError, options, Mapping | None, "the options of a sink must be a dict", _OPTIONS)
        self.options = dict(options or {})
        for name, setting in self.options.items():
            _check_option(name, setting)

    def __repr__(self) -> str:
        header = f", header={self.header}" if self.header else ""
        value = f", value={self.value!r}" if self.value is not None else ""
        return f"KafkaSink({self.servers!r}, {self.topic!r}, key={self.key or None}{header}{value})"

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Send the rows of a micro-batch; *batch_id* does not matter."""
        self.check_columns(df.columns)
        writer = self.records(df).write.format("kafka").option("kafka.bootstrap.servers", self.servers)
        with _errors(self):
            writer.option("topic", self.topic).options(**self.options).save()

    def check_columns(self, columns: Iterable[str]) -> None:
        """Called when a query starts, with the columns of its rows.

        :raises ColumnNotFoundError: the key, a header or the value is not one of them
        :raises SinkError: they have a match id, but the ids of records would be another column, such as the user
        """
        available = list(columns)
        roles = {
            "for the keys": self.key,
            "for the headers": self.header,
            "for the values": () if self.value is None else (self.value,),
        }
        for role, names in roles.items():
            for name in names:
                if name not in available:
                    error = ColumnNotFoundError.from_missing_and_available(name, available, role)
                    if name == _MATCH_ID:
                        error = ColumnNotFoundError(
                            error.message,
                            error.detail,
                            f'add it to the measures: select={{"matches": ["{name}", ...]}}',
                        )
                    raise error
        if _MATCH_ID in available and _MATCH_ID not in (*self.header, *self.key):
            ids = ", ".join(self.header or self.key)
            raise SinkError(
                f"the ids of the records would be their {'headers' if self.header else 'keys'} ({ids}), not the match ids",
                "A consumer that ignores known ids would lose all matches but one with equal ids.",
                f'header="{_MATCH_ID}"; if {ids} identifies a row, leave {_MATCH_ID} out of the rows',
            )

    def records(self, df: DataFrame) -> DataFrame:
        """The records of rows: ``key``, ``value``, and ``headers`` if there are any, as Spark's writer expects them."""
        from pyspark.sql import functions as F

        value = _json(df.columns) if self.value is None else F.col(quoted_name(self.value))
        columns = [self._key().alias("key"), value.alias("value")]
        if self.header:
            headers = [
                F.struct(
                    F.lit(name).alias("key"), F.encode(F.col(quoted_name(name)).cast("string"), "UTF-8").alias("value")
                )
                for name in self.header
            ]
            columns.append(F.array(*headers).alias("headers"))
        return df.select(columns)

    def _key(self) -> Column:
        from pyspark.sql import functions as F

        ids = self.header or self.key
        is_missing = F.lit(False)
        for name in ids:
            is_missing = is_missing | F.col(quoted_name(name)).isNull()
        match self.key:
            case ():
                key = F.lit(None).cast("string")
            case (name,):
                key = F.col(quoted_name(name)).cast("string")
            case _:
                key = _json(self.key)
        # Raised by Spark, where the row is; the text is that of an exception of this library, which callers get.
        error = SinkError(f"a row has no {' or no '.join(ids)}, which is its id in the topic {self.topic!r}")
        text = f"asterism.errors.SinkError: {error}\n"
        return F.when(is_missing, F.raise_error(F.lit(text)).cast("string")).otherwise(key)


def _check_option(name: Any, setting: Any) -> None:
    expect_string(SinkError, name, "the name of an option must be a string", _OPTIONS)
    expect(SinkError, setting, str | int | float | bool, f"the option {name!r} must be a string or a number", _OPTIONS)
    if not name.startswith(_PREFIX):
        raise SinkError(
            f"there is no option {name!r}",
            "Options are settings of Kafka's producer, and their names begin with 'kafka.'.",
            f'options={{"{_PREFIX}{name}": ...}}' if name in _SETTINGS else _OPTIONS,
        )
    producer = name.removeprefix(_PREFIX)
    if producer in _OF_THE_SINK:
        raise SinkError(f"the option {name!r} cannot be set: it is {_OF_THE_SINK[producer]}", hint=_SERVERS)
    similar = get_close_matches(producer, _SETTINGS, n=1, cutoff=0.85)
    if producer not in _SETTINGS and similar:
        raise SinkError(f"Kafka's producer has no setting {producer!r}", hint=f"did you mean {_PREFIX + similar[0]!r}?")


def _json(columns: Iterable[str]) -> Column:
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*(F.col(quoted_name(name)) for name in columns)), dict(_JSON))


@contextmanager
def _errors(sink: KafkaSink) -> Iterator[None]:
    """Raise what Spark says about Kafka as errors of a sink."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        text = str(error)
        if known := error_in(error):  # in the rows
            raise known from error
        if "Failed to find data source: kafka" in text or "find the data source: kafka" in text:
            raise SinkError("Spark has no connector for Kafka", hint=_CONNECTOR) from error
        if unreachable := _UNREACHABLE.search(text):
            raise SinkError(
                f"no record could be sent to the topic {shown(sink.topic)}: it does not exist, or no broker of"
                f" {shown(sink.servers)} responds",
                unreachable[0],
                "when the brokers run and the topic exists, start the query with its checkpoint: it repeats the micro-batch",
            ) from error
        if refused := _REFUSED.search(text):
            raise SinkError(
                f"Kafka refuses what is sent to the topic {shown(sink.topic)}: {refused['kind']}", refused["text"]
            ) from error
        raise
