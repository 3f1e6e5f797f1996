"""Sources of pattern processors: files, databases, topics of Kafka and HTTP. ``docs/rules/sources.md`` describes how to use them.

Source: FLIP-200, ``PatternProcessorDiscoverer``, and the ways to find updates that it lists.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asterism.discovery.rest.endpoint import HttpPatternProcessorDiscovererFactory
    from asterism.discovery.sources.file import FilePatternProcessorDiscovererFactory
    from asterism.discovery.sources.kafka_topic import KafkaPatternProcessorDiscovererFactory
    from asterism.discovery.sources.lookup_sources import FileLookupSource, KafkaLookupSource, SqlLookupSource
    from asterism.discovery.sources.sigma_rules import SigmaPatternProcessorDiscovererFactory
    from asterism.discovery.sources.sql_table import (
        SqlPatternProcessorDiscovererFactory,
        create_pattern_processor_table,
    )
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

_NAMES = {
    "discovery.rest.endpoint": ["HttpPatternProcessorDiscovererFactory"],
    "discovery.sources.file": ["FilePatternProcessorDiscovererFactory"],
    "discovery.sources.kafka_topic": ["KafkaPatternProcessorDiscovererFactory"],
    "discovery.sources.lookup_sources": ["FileLookupSource", "KafkaLookupSource", "SqlLookupSource"],
    "discovery.sources.sigma_rules": ["SigmaPatternProcessorDiscovererFactory"],
    "discovery.sources.sql_table": ["SqlPatternProcessorDiscovererFactory", "create_pattern_processor_table"],
    "discovery.sources.url": ["UrlPatternProcessorDiscovererFactory"],
    "rules.publishing.lookup_watch": ["LookupSource"],
    "rules.sets.set_store": ["history_of", "status_of", "wait_for"],
}
"""Modules of the names. They are imported on first use: few processes need SQLAlchemy or the server of the endpoint."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"asterism.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, for completion."""
    return sorted(_MODULES)
