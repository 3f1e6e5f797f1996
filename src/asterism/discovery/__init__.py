"""Where pattern processors come from: files, databases and HTTP. ``docs/rules.md`` tells how to use them.

Source: FLIP-200, ``PatternProcessorDiscoverer``, and the ways that it names for it to find updates.
"""

from asterism.discovery.file import FilePatternProcessorDiscovererFactory
from asterism.discovery.http_endpoint import HttpPatternProcessorDiscovererFactory
from asterism.discovery.sql_table import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.url import UrlPatternProcessorDiscovererFactory
from asterism.rules.set_store import status_of

__all__ = [
    "FilePatternProcessorDiscovererFactory",
    "HttpPatternProcessorDiscovererFactory",
    "SqlPatternProcessorDiscovererFactory",
    "UrlPatternProcessorDiscovererFactory",
    "create_pattern_processor_table",
    "status_of",
]
