"""Sources of pattern processors as a user names them: by a path, a URL, or the processors themselves."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from asterism.arguments import shown
from asterism.discovery.sources.file import FilePatternProcessorDiscovererFactory, is_in_store
from asterism.discovery.sources.kafka_topic import KafkaPatternProcessorDiscovererFactory, configured_options, topic_at
from asterism.discovery.sources.rows import TABLE
from asterism.discovery.sources.url import UrlPatternProcessorDiscovererFactory
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import MAX_PROCESSORS, PatternProcessor
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    RefusedProcessor,
    processors_from,
    without_duplicates,
)

_HINT = 'a path, a URL, a discoverer factory, or a list: "rules.yaml", "sqlite:///rules.db", [PatternProcessor(...)]'


@dataclass(frozen=True)
class GivenPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory, PatternProcessorDiscoverer):
    """Discovers the given processors, which never change."""

    processors: tuple[Discovered, ...]

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return self

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        return self.processors

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None:
        """Return at once, because there are no updates."""


def factory_of(source: Any, table: str = TABLE) -> PatternProcessorDiscovererFactory:
    """The factory of a source.

    :param source: a factory; the path or URI of a file or folder; the URL of a database, a topic
        (``kafka://broker:9092/rules``, with the options in the file of ``ASTERISM_KAFKA_CONFIG``) or a web server; or a list of
        processors, as such or in their JSON form
    :param table: with the URL of a database, the table
    :raises PatternProcessorError: it is none of these
    """
    if isinstance(source, PatternProcessorDiscovererFactory):
        return source
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        return UrlPatternProcessorDiscovererFactory(source)
    if isinstance(source, str) and (topic := topic_at(source)) is not None:
        return KafkaPatternProcessorDiscovererFactory(*topic, options=configured_options())
    if isinstance(source, str) and "://" in source and not is_in_store(source):
        from asterism.discovery.sources.sql_table import SqlPatternProcessorDiscovererFactory  # imports SQLAlchemy

        return SqlPatternProcessorDiscovererFactory(source, table)
    if isinstance(source, str | os.PathLike) and os.fspath(source):
        return FilePatternProcessorDiscovererFactory(source)
    if isinstance(source, bytes | str | os.PathLike | Mapping) or not isinstance(source, Sequence):
        raise PatternProcessorError(f"these are not rules: {shown(source)}", hint=_HINT)
    if len(source) > MAX_PROCESSORS:
        raise PatternProcessorError(f"more than {MAX_PROCESSORS:,} processors")
    for rule in source:
        if not isinstance(rule, PatternProcessor | RefusedProcessor | Mapping):
            raise PatternProcessorError(f"this is not a rule: {shown(rule)}", hint=_HINT)
    groups = [processors_from([rule]) if isinstance(rule, Mapping) else [rule] for rule in source]
    return GivenPatternProcessorDiscovererFactory(
        tuple(without_duplicates(processor for group in groups for processor in group))
    )


def discovered(factory: PatternProcessorDiscovererFactory) -> list[Discovered]:
    discoverer = factory.create_pattern_processor_discoverer()
    try:
        return list(discoverer.initial_pattern_processors())
    finally:
        discoverer.close()
