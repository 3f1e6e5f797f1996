"""Pattern processors in a compacted topic of Kafka. docs/decisions/0119-rules-in-compacted-topics.md"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from asterism.discovery.sources.compacted_topic import (
    ClosedError,
    CompactedTopic,
    KafkaClient,
    RecordName,
    TopicRecord,
    UnknownTopicError,
    checked_options,
    checked_servers,
    checked_topic,
)
from asterism.discovery.sources.documents import Document, read_document
from asterism.discovery.sources.polling import PollingDiscoverer
from asterism.discovery.sources.rows import PARAMETER_TABLE_SUFFIX
from asterism.discovery.sources.several_documents import SeveralDocuments, WatchedDocument
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import MAX_ID
from asterism.rules.definition.rule_templates import is_template, json_in
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    checked_interval,
)
from asterism.text.printable import one_line

SCHEME = "kafka://"
CONFIG = "ASTERISM_KAFKA_CONFIG"
"""The environment variable with the path of the options for topics that a URL names, which has no place for them."""
_ROW_HINT = '{"template": "high", "id": "eu", "limit": 1000}'


def topic_at(url: str) -> tuple[str, str] | None:
    """The servers and the topic of a URL; None: it is another URL.

    :raises PatternProcessorError: it has other parts

    >>> topic_at("kafka://broker1:9092,broker2:9092/rules")
    ('broker1:9092,broker2:9092', 'rules')
    """
    if not url.startswith(SCHEME):
        return None
    servers, _, topic = url.removeprefix(SCHEME).partition("/")
    return checked_servers(servers), checked_topic(topic)


def configured_options() -> dict[str, str]:
    """The options of the client in the file of ``ASTERISM_KAFKA_CONFIG``: a line ``name=value`` for each, and comment lines with
    ``#``, as kcat has them. Empty: the variable is not set.

    :raises PatternProcessorError: the file cannot be read, or one of its lines is no option; its text is not shown
    """
    path = os.environ.get(CONFIG)
    if not path:
        return {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8"
        raise PatternProcessorError(f"the file {path!r} of {CONFIG} cannot be read", reason) from None
    options = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.strip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals:
            raise PatternProcessorError(
                f"line {number} of the file {path!r} of {CONFIG} is not an option", hint="security.protocol=SASL_SSL"
            )
        options[name.strip()] = value.strip()
    return checked_options(options)


class KafkaPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Watches a compacted topic of Kafka.

    :param servers: the addresses of brokers, as ``bootstrap.servers`` of Kafka: ``broker1:9092,broker2:9092``
    :param topic: its name. The key of a record is the id of a rule, or anything else by which it is replaced and removed; the
        value is the rule in JSON or YAML, a template, or a list of versions of the rule, as in a file; without a value (a
        tombstone), the record removes what the key had. ``cleanup.policy`` must be ``compact``.
    :param interval: the polling interval; it doubles after each failure, up to a minute
    :param options: further options of the client, those of librdkafka: ``{"security.protocol": "SASL_SSL", "sasl.mechanism":
        "PLAIN", "sasl.username": ..., "sasl.password": ...}``. Their values are shown nowhere.
    :raises PatternProcessorError: the servers, the topic or the options are invalid, or the interval is not a positive
        timedelta

    The set is what the topic has at the beginning of a poll, and what is added until nothing is added for a fifth of a second.
    Records of transactions are read when these are committed. A record that cannot be read is refused without affecting
    others, and its processors stay in force. If several keys have the same id, the first one that had it counts. The rows of
    templates can be in a second topic, ``<topic>_rows``, see ``docs/rules/sources.md``. Needs the extra ``kafka``.

    >>> KafkaPatternProcessorDiscovererFactory("broker:9092", "rules", options={"sasl.password": "secret"})
    KafkaPatternProcessorDiscovererFactory('broker:9092', 'rules', options=['sasl.password'])
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        interval: timedelta = timedelta(seconds=1),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.servers, self.topic = checked_servers(servers), checked_topic(topic)
        self.interval, self.options = checked_interval(interval), checked_options(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.servers!r}, {self.topic!r}, options={list(self.options)})"

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return KafkaDiscoverer(self.servers, self.topic, self.options, self.interval)


@dataclass(frozen=True, slots=True)
class _ReadRecord:
    """A record of rules, as it was read.

    :param items: the rules and templates in it, or the reason why there are none
    :param templates: the ids of the templates in it whose rows are in the second topic
    """

    record: TopicRecord
    items: Sequence[Any] | PatternProcessorError
    templates: tuple[str, ...]

    @classmethod
    def of(cls, record: TopicRecord) -> _ReadRecord:
        try:
            items = document_in(record).items
        except PatternProcessorError as error:
            return cls(record, error, ())
        templates = (item["id"] for item in items if _needs_rows(item) and isinstance(item.get("id"), str))
        return cls(record, items, tuple(templates))

    def given(self, rows: Mapping[str, Sequence[Any]] | None) -> Sequence[Any]:
        """The items, with the rows of the second topic. *rows*: by template; None: there is no such topic."""
        if isinstance(self.items, PatternProcessorError):
            raise self.items
        if rows is None:
            return self.items
        return [item | {"rows": rows.get(item.get("id"), [])} if _needs_rows(item) else item for item in self.items]


def document_in(record: TopicRecord) -> Document:
    """:raises PatternProcessorError: the value cannot be read, or there is no key"""
    if record.key is None:
        raise PatternProcessorError("the record has no key")
    is_json = record.value.lstrip()[:1] in (b"{", b"[")
    return read_document(record.value, "rules.json" if is_json else "rules.yaml")


def _needs_rows(item: Any) -> bool:
    return is_template(item) and "rows" not in item


class KafkaDiscoverer(PollingDiscoverer):
    """See :class:`KafkaPatternProcessorDiscovererFactory`."""

    def __init__(self, servers: str, topic: str, options: Mapping[str, Any], interval: timedelta) -> None:
        super().__init__(interval=interval)
        self._client = KafkaClient(servers, options, self._closed)
        self._topic = CompactedTopic(self._client, topic)
        self._rows = _TemplateRows(CompactedTopic(self._client, topic + PARAMETER_TABLE_SUFFIX))
        self._read: dict[RecordName, _ReadRecord] = {}
        self._watched: dict[RecordName, WatchedDocument] = {}
        self._documents: SeveralDocuments[RecordName] = SeveralDocuments()
        self._published: tuple[Mapping[RecordName, TopicRecord], Any] | None = None
        """The records of both topics in the latest set."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._client.servers!r}, {self._topic.topic!r})"

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        with closing(self._client):  # the watching thread has its own connections, and closes them
            return super().initial_pattern_processors()

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        with closing(self._client):
            super().discover_pattern_processor_updates(manager)

    def poll(self) -> Sequence[Discovered] | None:
        try:
            records = self._topic.poll()
            read = {name: self._read_again(name, record) for name, record in records.items()}
            rows = self._rows.poll() if any(each.templates for each in read.values()) else None
        except ClosedError:
            if self._published is None:
                raise
            return None
        before = self._published
        if before is not None and before[0] is records and before[1] is rows:
            return None
        by_template = None if rows is None else self._rows.by_template
        watched: dict[RecordName, WatchedDocument] = {}
        for name, each in read.items():
            last = self._watched.get(name)
            rows_are_same = not each.templates or (before is not None and before[1] is rows)
            if last is None or each is not self._read.get(name) or not rows_are_same:
                read_items = partial(each.given, by_template)
                last = WatchedDocument.of(each.record.place, read_items, last, text_of_key(each.record.key))
            watched[name] = last
        discovered = self._documents.combined(
            {name: watched[name] for name in watched if records[name].key is not None}
        )
        discovered += [_without_key(record) for record in records.values() if record.key is None]
        self._read, self._watched, self._published = read, watched, (records, rows)
        return discovered if rows is None else [*discovered, *self._rows.refused]

    def _read_again(self, name: RecordName, record: TopicRecord) -> _ReadRecord:
        last = self._read.get(name)
        return last if last is not None and last.record.value == record.value else _ReadRecord.of(record)


def text_of_key(key: bytes | None) -> str:
    return one_line((key or b"").decode("utf-8", "replace"), MAX_ID) or "NULL"


def _without_key(record: TopicRecord) -> RefusedProcessor:
    # No rule in force can be from it, so that it does not keep others from being removed.
    return RefusedProcessor(text_of_key(None), PatternProcessorError("the record has no key"), place=record.place)


class _TemplateRows:
    """The rows of templates in a topic: each value is a JSON object with ``template``, ``id`` and the parameters."""

    def __init__(self, topic: CompactedTopic) -> None:
        self._topic = topic
        self._known: Mapping[RecordName, TopicRecord] | None = None
        self._ids: dict[RecordName, tuple[str, str]] = {}
        """The template and the id of each row when it was last readable."""
        self.by_template: dict[str, list[Any]] = {}
        self.refused: list[RefusedProcessor] = []

    def poll(self) -> Mapping[RecordName, TopicRecord] | None:
        """The records, the same object if none has changed; None: there is no such topic."""
        try:
            records = self._topic.poll()
        except UnknownTopicError:
            return None
        if records is not self._known:
            self._read(records)
            self._known = records
        return records

    def _read(self, records: Mapping[RecordName, TopicRecord]) -> None:
        by_template: dict[str, list[Any]] = defaultdict(list)
        refused: list[RefusedProcessor] = []
        ids: dict[RecordName, tuple[str, str]] = {}
        for name, record in sorted(records.items()):
            try:
                row = dict(_row_in(record))
                ids[name] = row.pop("template"), row["id"]
                by_template[ids[name][0]].append(row)
            except PatternProcessorError as error:
                known = self._ids.get(name)
                if known is not None:
                    ids[name] = known
                text = (
                    one_line((record.key or b"").decode("utf-8", "replace"), 200) if known is None else "/".join(known)
                )
                is_unknown = known is None and record.key is not None
                refused.append(RefusedProcessor(text, error, place=record.place, unidentified=is_unknown))
        self._ids, self.refused, self.by_template = ids, refused, dict(by_template)


def _row_in(record: TopicRecord) -> Mapping[str, Any]:
    if record.key is None:
        raise PatternProcessorError("the record has no key")
    try:
        row = json_in(record.value.decode(), "the row")
    except UnicodeDecodeError:
        raise PatternProcessorError("the row is not valid UTF-8") from None
    if not isinstance(row, Mapping) or not all(isinstance(row.get(name), str) for name in ("template", "id")):
        raise PatternProcessorError("a row needs a 'template' and an 'id', both strings", hint=_ROW_HINT)
    return row
