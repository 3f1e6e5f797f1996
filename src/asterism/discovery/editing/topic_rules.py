"""Rules in a topic of Kafka, which can be seen and checked here, and are changed by producers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import NoReturn

from asterism.discovery.editing.edited_documents import first_of_each, rules_in
from asterism.discovery.editing.kept_rules import WRONG, Rule, SeenRules, with_shadows
from asterism.discovery.sources.compacted_topic import CompactedTopic, KafkaClient
from asterism.discovery.sources.kafka_topic import configured_options, document_in, text_of_key
from asterism.errors import PatternProcessorError, RuleSourceError


class TopicRules(SeenRules):
    """The rules in a compacted topic."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers, self.topic, self._options = servers, topic, configured_options()
        self.location = f"the topic {topic!r}"

    def all(self) -> list[Rule]:
        return with_shadows(first_of_each(self._rules()))

    def _rules(self) -> Iterator[Rule]:
        with closing(KafkaClient(self.servers, self._options)) as client:
            records = CompactedTopic(client, self.topic).poll()
        for _, record in sorted(records.items()):
            try:
                yield from rules_in(document_in(record), record.place)
            except PatternProcessorError as error:
                yield Rule(text_of_key(record.key), None, WRONG, record.place, error=error)

    def _refuse(self) -> NoReturn:
        hint = "kafka-console-producer.sh; key: the id of the rule, value: the rule"
        raise RuleSourceError(f"the rules in the topic {self.topic!r} are changed by producers of Kafka", hint=hint)
