"""Sources of pattern processors: files, databases, topics of Kafka and HTTP. ``docs/rules/sources.md`` describes how to use them.

Source: FLIP-200, ``PatternProcessorDiscoverer``, and the ways to find updates that it lists.
"""

from asterism.discovery.rest.endpoint import HttpPatternProcessorDiscovererFactory
from asterism.discovery.sources.file import FilePatternProcessorDiscovererFactory
from asterism.discovery.sources.kafka_topic import KafkaPatternProcessorDiscovererFactory
from asterism.discovery.sources.lookup_sources import FileLookupSource, KafkaLookupSource, SqlLookupSource
from asterism.discovery.sources.sigma_rules import SigmaPatternProcessorDiscovererFactory
from asterism.discovery.sources.sql_table import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.sources.url import UrlPatternProcessorDiscovererFactory
from asterism.rules.publishing.lookup_watch import LookupSource
from asterism.rules.sets.set_store import history_of, status_of, wait_for

__all__ = [
    "FileLookupSource",
    "FilePatternProcessorDiscovererFactory",
    "HttpPatternProcessorDiscovererFactory",
    "KafkaLookupSource",
    "KafkaPatternProcessorDiscovererFactory",
    "LookupSource",
    "SigmaPatternProcessorDiscovererFactory",
    "SqlLookupSource",
    "SqlPatternProcessorDiscovererFactory",
    "UrlPatternProcessorDiscovererFactory",
    "create_pattern_processor_table",
    "history_of",
    "status_of",
    "wait_for",
]
