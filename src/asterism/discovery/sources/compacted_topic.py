"""The records of a compacted topic of Kafka, as a table by their keys. docs/decisions/0119-rules-in-compacted-topics.md"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from typing import Any

from asterism.arguments import expect, expect_string, expect_strings
from asterism.discovery.sources.documents import MAX_TOTAL
from asterism.errors import PatternProcessorError, RuleSourceError
from asterism.text.printable import one_line

TIMEOUT = 10.0  # seconds for any response of the brokers
TOTAL_TIMEOUT = 60.0  # seconds for one poll
MAX_RECORDS = 100_000  # with different keys
MAX_REASON = 500  # characters of a client's error message
AT_REST = 0.2
"""Seconds for which nothing must have been added, because several records may be in the middle of being written."""
PATIENCE = 25
"""How often a poll reads on, if records are added during it."""
MAX_AGE = 600.0
"""Seconds after which a topic is read again from its beginning, because compaction may have removed unread tombstones."""
_SLICE = 0.05  # seconds for which a wait cannot be interrupted
_SECRETS = re.compile(r"pass|secret|key|token|config|credential", re.IGNORECASE)
"""In the names of options whose values are shown nowhere."""
_SERVERS = re.compile(r"[A-Za-z0-9_.\-\[\]:/]+(,[A-Za-z0-9_.\-\[\]:/]+)*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CONSUMER: Mapping[str, Any] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
}
"""What the correctness of reading depends on."""
_OPTIONS: Mapping[str, Any] = {
    "group.id": "asterism",  # which is needed, but has no members and no offsets
    "log_level": 0,  # errors are reported, and not printed
    "fetch.wait.max.ms": 20,  # the end of a partition is reported after an empty response
}
_COMPACT = "compact"
_ACCESS = (
    'options={"security.protocol": "SASL_SSL", "sasl.mechanism": ..., "sasl.username": ..., "sasl.password": ...,'
    ' "ssl.ca.location": ...}, as the listener of the brokers requires'
)

RecordName = tuple[bytes, int]
"""The key and the partition."""


class ClosedError(RuleSourceError):
    """The topic is not needed any more."""


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """:param key: None: the record has none, and is not part of the table"""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes

    @property
    def place(self) -> str:
        return f"{self.topic}, partition {self.partition}, offset {self.offset}"


@dataclass(frozen=True, slots=True)
class _Extent:
    """The offsets of a topic at one point in time. *ends*: those after the last records of finished transactions."""

    id: str
    begins: Mapping[int, int]
    ends: Mapping[int, int]


def checked_servers(servers: str) -> str:
    """:raises PatternProcessorError: these are not the addresses of brokers"""
    hint = "broker1.example.com:9092,broker2.example.com:9092"
    expect_string(PatternProcessorError, servers, "the servers must be a string", hint)
    if "@" in servers:
        raise PatternProcessorError(
            "a password in an address can appear in logs", hint='options={"sasl.username": ..., "sasl.password": ...}'
        )
    if not _SERVERS.fullmatch(servers):
        raise PatternProcessorError("these are not the addresses of brokers", hint=hint)
    return servers


def checked_topic(topic: str) -> str:
    """:raises PatternProcessorError: no topic can have this name"""
    expect_string(PatternProcessorError, topic, "the topic must be a string", 'topic="rules"')
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise PatternProcessorError(
            f"{topic!r:.120} cannot be the name of a topic", hint="letters, digits, '.', '_' and '-', up to 249"
        )
    return topic


def checked_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """:raises PatternProcessorError: these are not options of the client, or they are set by the reader"""
    expect(
        PatternProcessorError, options, Mapping | None, "options must be a dict", '{"security.protocol": "SASL_SSL"}'
    )
    expect_strings(PatternProcessorError, list(options or {}), "the names of options must be strings")
    for name in options or {}:
        if name in _CONSUMER or name in ("bootstrap.servers", "error_cb"):
            raise PatternProcessorError(f"the option {name!r} cannot be set", "The reader of the topic sets it.")
    return dict(options or {})


def _kafka() -> Any:
    """The module of the client.

    :raises RuleSourceError: it is not installed
    """
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise RuleSourceError(
            "confluent-kafka is not installed, which topics of Kafka need", hint="pip install 'asterism[kafka]'"
        ) from None
    return confluent_kafka


class KafkaClient:
    """Requests to the brokers, and errors that contain no secrets.

    :param closed: once set, requests end with :class:`ClosedError`
    """

    def __init__(self, servers: str, options: Mapping[str, Any], closed: threading.Event | None = None) -> None:
        self.servers, self._options = servers, dict(options)
        self.closed = closed or threading.Event()
        self._secrets = [str(value) for name, value in options.items() if _SECRETS.search(name) and value]
        self._admin: Any = None
        self._reason: str | None = None
        """The last error of a connection."""
        self._failed_for_good = False

    def __repr__(self) -> str:
        return f"KafkaClient({self.servers!r})"

    def close(self) -> None:
        self._admin = None

    def extent(self, topic: str) -> _Extent:
        """:raises RuleSourceError: the brokers do not answer, or there is no such topic"""
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                return self._extent(topic)
            except NoLeaderError:  # for a moment, as after the topic was created
                if time.monotonic() > until:
                    raise
                self.closed.wait(_SLICE)

    def _extent(self, topic: str) -> _Extent:
        kafka = _kafka()
        specs = kafka.admin.OffsetSpec

        def offsets(spec: Any) -> dict[int, int]:
            wanted = {kafka.TopicPartition(topic, number): spec for number in numbers}
            requests = self._client().list_offsets(
                wanted, isolation_level=kafka.IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT
            )
            return {each.partition: self._wait(topic, future).offset for each, future in requests.items()}

        requests = self._client().describe_topics(kafka.TopicCollection([topic]), request_timeout=TIMEOUT)
        described = self._wait(topic, requests[topic])
        numbers = [partition.id for partition in described.partitions]
        # In this order, so that a beginning that moves meanwhile is not after the end.
        begins = offsets(specs.earliest())
        return _Extent(str(described.topic_id), begins, offsets(specs.latest()))

    def max_age(self, topic: str) -> float:
        """How old positions in the topic may be, in seconds.

        :raises RuleSourceError: the topic is not compacted
        """
        kafka = _kafka()
        resource = kafka.admin.ConfigResource(kafka.admin.ResourceType.TOPIC, topic)
        [request] = self._client().describe_configs([resource], request_timeout=TIMEOUT).values()
        denied = (kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED, kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        settings = self._wait(topic, request, denied)
        if settings is None:  # to read a topic, its settings need not be readable
            return MAX_AGE
        policy = settings["cleanup.policy"].value
        if policy != _COMPACT:
            raise RuleSourceError(
                f"the topic {topic!r} is not compacted: retention would remove records that are in force",
                f"cleanup.policy is {policy}",
                f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy=compact",
            )
        return min(MAX_AGE, int(settings["delete.retention.ms"].value) / 2_000)

    def read(self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int], until: float) -> Iterator[Any]:
        """The messages from *begins* to before *ends*.

        :param until: the monotonic time at which an error is raised
        :raises RuleSourceError: they cannot be read
        """
        kafka = _kafka()
        missing = {number for number, end in ends.items() if begins[number] < end}
        if not missing:
            return
        consumer = self._made(kafka.Consumer, _CONSUMER)
        heard = time.monotonic()
        try:
            consumer.assign([kafka.TopicPartition(topic, number, begins[number]) for number in missing])
            while missing:
                messages = consumer.consume(1_000, _SLICE)
                now = time.monotonic()
                heard = now if messages else heard
                self._check()
                if now > until or now > heard + TIMEOUT:
                    raise self._failure(topic, "the brokers do not send the records in time")
                for message in messages:
                    number, error = message.partition(), message.error()
                    # Behind the last message there may be markers of transactions, which have offsets.
                    is_end = error is not None and error.code() == kafka.KafkaError._PARTITION_EOF
                    if error is not None and not is_end:
                        raise self._failure(topic, error)
                    if not is_end and message.offset() < ends[number]:
                        yield message
                    if message.offset() >= ends[number] - (0 if is_end else 1):
                        missing.discard(number)
        except kafka.KafkaException as error:
            raise self._failure(topic, error.args[0]) from None
        finally:
            consumer.close()

    def _client(self) -> Any:
        if self._admin is None:
            self._reason, self._failed_for_good = None, False
            self._admin = self._made(_kafka().admin.AdminClient, {})
        return self._admin

    def _made(self, kind: Callable[[Mapping[str, Any]], Any], fixed: Mapping[str, Any]) -> Any:
        kafka = _kafka()
        given = {"bootstrap.servers": self.servers, "error_cb": self._on_error}
        try:
            return kind({**_OPTIONS, **self._options, **given, **fixed})
        except (kafka.KafkaException, TypeError, ValueError) as error:
            reason = error.args[0].str() if isinstance(error, kafka.KafkaException) else str(error)
            raise RuleSourceError("the options of the client of Kafka are not valid", self._shown(reason)) from None

    def _on_error(self, error: Any) -> None:
        if error.code() != error._ALL_BROKERS_DOWN:
            self._reason = error.str()
            self._failed_for_good = error.code() in (error._AUTHENTICATION, error._SSL)

    def _wait(self, topic: str, future: Future[Any], ignored: tuple[int, ...] = ()) -> Any:
        """The result of a request; None: one of the *ignored* errors."""
        until = time.monotonic() + TIMEOUT + 1
        while True:
            self._check()
            try:
                return future.result(_SLICE)
            except NotYet:
                self._client().poll(0)  # calls _on_error
                if self._failed_for_good or time.monotonic() > until:
                    raise self._failure(topic, "the brokers do not answer") from None
            except _kafka().KafkaException as error:
                self._client().poll(0)
                if error.args[0].code() in ignored:
                    return None
                raise self._failure(topic, error.args[0]) from None

    def _check(self) -> None:
        if self.closed.is_set():
            raise ClosedError("it is closed")

    def _failure(self, topic: str, error: Any) -> RuleSourceError:
        if not isinstance(error, str) and error.code() in (error.UNKNOWN_TOPIC_OR_PART, error._UNKNOWN_TOPIC):
            return UnknownTopicError(
                f"there is no topic {topic!r} at {self.servers}",
                hint="create it with cleanup.policy=compact",
            )
        if self._failed_for_good:
            return RuleSourceError(
                f"the brokers at {self.servers} refuse access to the topic {topic!r}",
                self._shown(self._reason or ""),
                _ACCESS,
            )
        reason = error if isinstance(error, str) else error.str()
        no_leader = not isinstance(error, str) and error.code() in (
            error.LEADER_NOT_AVAILABLE,
            error.NOT_LEADER_FOR_PARTITION,
        )
        has_cause = self._reason is not None
        if has_cause:
            reason = f"{reason}: {self._reason}"
        message = f"the topic {topic!r} at {self.servers} cannot be read"
        # A broker that expects SASL or TLS closes the connection, and says nothing.
        is_silent = not isinstance(error, str) and error.code() == error._TIMED_OUT and not has_cause
        hint = _ACCESS if is_silent and "security.protocol" not in self._options else None
        return (NoLeaderError if no_leader else RuleSourceError)(message, self._shown(reason), hint)

    def _shown(self, reason: str) -> str:
        for secret in sorted(self._secrets, key=len, reverse=True):
            reason = reason.replace(secret, "***")
        return one_line(reason, MAX_REASON)


class NoLeaderError(RuleSourceError):
    """A partition has no leader now."""


class UnknownTopicError(RuleSourceError):
    """There is no such topic."""


class CompactedTopic:
    """The newest record of each key, as of the last poll.

    :param max_records: with different keys, and *max_bytes* of their keys and values: a larger topic is not read
    """

    def __init__(
        self, client: KafkaClient, topic: str, max_records: int = MAX_RECORDS, max_bytes: int = MAX_TOTAL
    ) -> None:
        self.client, self.topic = client, topic
        self._max_records, self._max_bytes = max_records, max_bytes
        self._records: dict[RecordName, TopicRecord] | None = None
        self._extent: _Extent | None = None
        """To where it was read; None: it must be read from its beginning."""
        self._read_at = self._max_age = 0.0

    def poll(self) -> Mapping[RecordName, TopicRecord]:
        """Read what was added. Returns the same object if no value has changed.

        :raises RuleSourceError: the topic cannot be read, or is too large; the next poll reads it from its beginning
        """
        known, self._extent = self._extent, None
        try:
            records, extent = self._newest(known)
        except BaseException:
            self.client.close()
            raise
        self._extent = extent
        if self._records is None or not _are_equal(records, self._records):
            self._records = records
        return self._records

    def _newest(self, known: _Extent | None) -> tuple[dict[RecordName, TopicRecord], _Extent]:
        now = time.monotonic()
        extent = self.client.extent(self.topic)
        before = self._records
        if known is None or before is None or self._is_past(known, extent, now):
            self._max_age = self.client.max_age(self.topic)
            known, before = _Extent(extent.id, {}, {}), {}
        if extent == known:
            self._read_at = now
            return before, extent
        records = dict(before)
        self._read(records, known.ends, extent, now)
        for _ in range(PATIENCE if extent.ends != known.ends and any(extent.ends.values()) else 0):
            self.client.closed.wait(AT_REST)
            last, extent = extent, self.client.extent(self.topic)
            if extent.id != last.id:
                raise RuleSourceError(f"the topic {self.topic!r} was created again while it was read")
            if extent == last:
                break
            self._read(records, last.ends, extent, now)
        for name, record in list(records.items()):
            if record.offset < extent.begins[record.partition]:  # somebody deleted it
                del records[name]
        self._read_at = now
        return records, extent

    def _is_past(self, known: _Extent, extent: _Extent, now: float) -> bool:
        """Whether the positions in *known* cannot be used any more."""
        return (
            known.id != extent.id
            or now > self._read_at + self._max_age
            or any(extent.ends.get(number, 0) < end for number, end in known.ends.items())
        )

    def _read(
        self, records: dict[RecordName, TopicRecord], positions: Mapping[int, int], extent: _Extent, begun: float
    ) -> None:
        begins = {number: max(begin, positions.get(number, 0)) for number, begin in extent.begins.items()}
        size = sum(map(_size, records.values()))
        for message in self.client.read(self.topic, begins, extent.ends, begun + TOTAL_TIMEOUT):
            key, value = message.key(), message.value()
            name = key or b"", message.partition()
            replaced = records.pop(name, None)
            if value is not None:
                records[name] = TopicRecord(self.topic, message.partition(), message.offset(), key, value)
            size += (0 if value is None else _size(records[name])) - (0 if replaced is None else _size(replaced))
            if len(records) > self._max_records or size > self._max_bytes:
                raise RuleSourceError(
                    f"the topic {self.topic!r} is too large"
                    f" (limits: {self._max_records:,} keys, {self._max_bytes:,} bytes of keys and values)"
                )


def _size(record: TopicRecord) -> int:
    return len(record.key or b"") + len(record.value)


def _are_equal(records: Mapping[RecordName, TopicRecord], others: Mapping[RecordName, TopicRecord]) -> bool:
    return records.keys() == others.keys() and all(
        record.value == others[name].value and record.key == others[name].key for name, record in records.items()
    )
