"""The texts about records that are gone and sources that cannot be read, from what Spark 4 says about them."""

from __future__ import annotations

import pytest

from asterism.spark.session.kafka_errors import offsets_gone, source_access
from tests.kit import Golden

BEGINNING = """\
An error occurred while calling o1120.collectToPython.
KafkaIllegalStateException: Some data may have been lost because they are not available in Kafka any more;
either the data was aged out by Kafka or the topic may have been deleted before all the data in the
topic was processed.
If you don't want your streaming query to fail on such cases, set the source option failOnDataLoss to false.
Reason: """
ENDED = """\
[STREAM_FAILED] Query [id = 4ee1, runId = 7f4d] terminated with exception: org.apache.kafka.common.errors.%s SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 4ee1, runId = 7f4d]
"""
GONE = {
    "retention": "Could not read records in offset [2, 10) for topic partition my-logins-0\nwith consumer group x-executor.",
    "reset": "Starting offset for my-logins-11 was 2 but consumer reset to 1700.",
    "created_again": "Partition my-logins-0 offset was changed from 1700 to 3.\nThis could be either 1) a user error ...",
    "added_partition": "Added partition my-logins-2 starts from 7 instead of 0.",
    "deleted": "Partitions Set(my-logins-0, my-logins-1) have been deleted.",
    "no_initial_offset": "Cannot find initial offsets for partitions Set(my-logins-3). They may have been deleted.",
    "another_reason": "Something that is said in another release.",
}
ACCESS = {
    "wrong_password": "SaslAuthenticationException: Authentication failed: Invalid username or password",
    "unknown_certificate": "SslAuthenticationException: SSL handshake failed",
    "no_broker": "TimeoutException: Timed out waiting for a node assignment. Call: describeTopics",
}
TEXTS = {name: BEGINNING + text for name, text in GONE.items()} | {name: ENDED % text for name, text in ACCESS.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_an_error(name: str, golden: Golden) -> None:
    error = offsets_gone(TEXTS[name]) or source_access(TEXTS[name])

    def provoked() -> object:
        assert error is not None
        raise error

    golden.error(name, provoked)


def test_other_texts() -> None:
    assert offsets_gone("Partition logins-0 offset was changed from 3 to 2") is None
    assert (
        source_access("Reason: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed")
        is None
    )
