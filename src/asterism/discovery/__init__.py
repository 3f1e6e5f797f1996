"""Sources of pattern processors: files, databases and HTTP. ``docs/rules.md`` describes how to use them.

Source: FLIP-200, ``PatternProcessorDiscoverer``, and the ways to find updates that it lists.
"""

from asterism.discovery.file import FilePatternProcessorDiscovererFactory
from asterism.discovery.http_endpoint import HttpPatternProcessorDiscovererFactory
from asterism.discovery.lookup_sources import FileLookupSource, SqlLookupSource
from asterism.discovery.sql_table import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.url import UrlPatternProcessorDiscovererFactory
from asterism.rules.lookups import LookupSource
from asterism.rules.set_store import history_of, status_of, wait_for

__all__ = [
    "FileLookupSource",
    "FilePatternProcessorDiscovererFactory",
    "HttpPatternProcessorDiscovererFactory",
    "LookupSource",
    "SqlLookupSource",
    "SqlPatternProcessorDiscovererFactory",
    "UrlPatternProcessorDiscovererFactory",
    "create_pattern_processor_table",
    "history_of",
    "status_of",
    "wait_for",
]
