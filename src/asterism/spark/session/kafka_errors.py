"""What Spark says about a source of Kafka whose records are gone, or that cannot be read, as errors of this library."""

from __future__ import annotations

import re

from asterism.errors import OffsetsGoneError, SourceAccessError

_PARTITION = r"(?P<partition>\S+-\d+)"
_DELETED_RECORDS = (
    "offsets from {start:,} to {end:,} were to be read next, and Kafka no longer has all of them",
    "The retention of the topic has deleted them, or the topic was created again.",
)
_LOSSES = (
    (rf"Could not read records in offset \[(?P<start>\d+), (?P<end>\d+)\) for topic partition {_PARTITION}\b", *_DELETED_RECORDS),
    (rf"Starting offset for {_PARTITION} was (?P<start>\d+) but consumer reset to (?P<end>\d+)", *_DELETED_RECORDS),
    (rf"Added partition {_PARTITION} starts from (?P<end>\d+) instead of (?P<start>0)\b", *_DELETED_RECORDS),
    (
        rf"Partition {_PARTITION} offset was changed from (?P<start>\d+) to (?P<end>\d+)",
        "offset {start:,} was to be read next, and the partition ends at {end:,}",
        "The topic was created again, or the checkpoint is that of another one.",
    ),
)  # fmt: skip
"""Texts of Spark that name a partition and two offsets, with what they mean."""
_DELETED = re.compile(
    r"(?:Cannot find initial offsets for partitions|Partitions) (?P<partitions>.+?)(?: have been deleted|\. They may)"
)
_HINT = (
    "to continue without them, set the option failOnDataLoss=false of the source: the query continues with the records that are"
    " there, and matches that need the others are lost. To compute all results again from the records in the topic, use a new"
    " checkpoint with startingOffsets=earliest. To prevent it, keep records longer (retention.ms) than the query may be down"
)
_ENDED = r"terminated with exception: org\.apache\.kafka\.common\.errors\."
_REFUSED = re.compile(
    _ENDED
    + r"(?P<kind>SaslAuthentication|SslAuthentication|UnsupportedSaslMechanism|TopicAuthorization|ClusterAuthorization)"
    r"Exception: (?P<text>.*?)(?: SQLSTATE: \w+)?$",
    re.MULTILINE,
)
_SILENT = re.compile(
    _ENDED + r"TimeoutException: (?P<text>Timed out waiting for a node assignment.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_CREDENTIALS = (
    'options of the source: "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.jaas.config" and, for TLS,'
    ' "kafka.ssl.truststore.location", as the listener of the brokers requires. The query continues from its checkpoint'
)


def source_access(text: str) -> SourceAccessError | None:
    """The error for the text of an exception of Spark; None: it is about something else."""
    if refused := _REFUSED.search(text):
        message = f"Kafka refuses access to a source of the query: {refused['kind']}"
        return SourceAccessError(message, refused["text"], _CREDENTIALS)
    if silent := _SILENT.search(text):
        return SourceAccessError("no broker of a source of the query responds", silent["text"], _CREDENTIALS)
    return None


def offsets_gone(text: str) -> OffsetsGoneError | None:
    """The error for the text of an exception of Spark; None: it is about something else."""
    if (
        "KAFKA_DATA_LOSS" not in text
        and "Some data may have been lost because they are not available in Kafka" not in text
    ):
        return None
    for pattern, said, reason in _LOSSES:
        if loss := re.search(pattern, text):
            offsets = said.format(start=int(loss["start"]), end=int(loss["end"]))
            return OffsetsGoneError(
                f"records of the topic partition {loss['partition']} are gone: {offsets}", reason, _HINT
            )
    deleted = _DELETED.search(text)
    partitions = f"topic partitions {deleted['partitions']}" if deleted else "a topic"
    return OffsetsGoneError(f"records of {partitions} are gone", "The partitions do not exist any more.", _HINT)
