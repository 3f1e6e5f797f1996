"""Sinks that contain each row once, also after a failure. ``docs/sinks.md`` describes them."""

from __future__ import annotations

from asterism.sinks.files import FileSink
from asterism.sinks.kafka import KafkaSink
from asterism.sinks.lakes import DeltaSink, IcebergSink
from asterism.sinks.sql import SqlSink

__all__ = ["DeltaSink", "FileSink", "IcebergSink", "KafkaSink", "SqlSink"]
