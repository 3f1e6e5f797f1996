"""A broker that asks for credentials, by SASL and TLS: events, rules, lookups and results; no secret is shown or stored."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from asterism import CEP, KeyedStream, Lookup, Pattern, PatternProcessor, monitor
from asterism.discovery import KafkaLookupSource, KafkaPatternProcessorDiscovererFactory
from asterism.errors import AsterismError
from asterism.sinks import KafkaSink
from asterism.sources import kafka_events
from tests.discovery.servers import running_or_skipped
from tests.kit import until
from tests.servers.secured_kafka import PASSWORD, USER, SecuredBroker, jaas

pytestmark = pytest.mark.spark

WRONG = 'flying"fish\\ 4567;'
SCHEMA = "ts TIMESTAMP, user STRING, kind STRING, x DOUBLE"


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with running_or_skipped(SecuredBroker) as broker:
        yield broker


def java_options(broker: SecuredBroker, password: str = PASSWORD, *, tls: bool) -> dict[str, str]:
    """Of Spark's source and sink: SCRAM with TLS, PLAIN without."""
    options = {
        "kafka.security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256" if tls else "PLAIN",
        "kafka.sasl.jaas.config": jaas("scram.Scram" if tls else "plain.Plain", username=USER, password=password),
    }
    trust = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": str(broker.certificate)}
    return options | (trust if tls else {})


def client_options(broker: SecuredBroker, password: str = PASSWORD, *, tls: bool) -> dict[str, str]:
    """Of the client for rules and lookups."""
    options = {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256" if tls else "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }
    return options | ({"ssl.ca.location": str(broker.certificate)} if tls else {})


def records_of(spark: SparkSession, servers: str, options: dict[str, str], topic: str) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).options(**options)
    return reader.options(subscribe=topic, startingOffsets="earliest").load()


def shows_secrets(text: str) -> bool:
    forms = [form for password in (PASSWORD, WRONG) for form in (password, json.dumps(password)[1:-1], password[:10])]
    return any(form in text for form in (*forms, "fish\\"))


def contents(folder: Path) -> str:
    return "\n".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


def event(second: int, user: str, kind: str, x: float) -> bytes:
    return json.dumps({"ts": f"2025-01-01T12:00:{second:02}Z", "user": user, "kind": kind, "x": x}).encode()


def test_from_topic_to_topic_with_rules_and_a_lookup(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path, capfd: Any, caplog: Any
) -> None:
    """Events with TLS, rules without, a lookup with it, results without."""
    caplog.set_level(logging.DEBUG, "asterism")  # that of py4j has all arguments of all calls
    for topic in ("secured_logins", "secured_matches"):
        secured.create_topic(topic)
    for topic in ("secured_rules", "secured_limits"):
        secured.create_topic(topic, settings={"cleanup.policy": "compact"})
    secured.send("secured_limits", [(0, b"ann", b'{"customer": "ann", "max": 5}')])

    def publish(version: int, kind: str) -> None:
        rule = PatternProcessor("above", version, Pattern.begin("a").where(f"kind = '{kind}' AND x > limits.max"))
        secured.send("secured_rules", [(0, b"above", json.dumps(rule.to_dict()).encode())])

    publish(1, "a")
    secured.send("secured_logins", [(0, None, event(1, "ann", "a", 6.0)), (0, None, event(2, "ann", "x", 0.0))])
    rules = KafkaPatternProcessorDiscovererFactory(
        secured.sasl_address,
        "secured_rules",
        interval=timedelta(milliseconds=50),
        options=client_options(secured, tls=False),
    )
    limits = KafkaLookupSource(secured.tls_address, "secured_limits", options=client_options(secured, tls=True))
    records = records_of(spark, secured.tls_address, java_options(secured, tls=True), "secured_logins")
    stream = KeyedStream(kafka_events(records, SCHEMA, time="ts").events, key="user", time="ts")
    lookups = {"limits": Lookup(limits, key="customer", on="user", schema="customer STRING, max DOUBLE")}
    running = CEP.pattern_processors(stream, rules, key_groups=2, lookups=lookups)
    sink = KafkaSink(secured.sasl_address, "secured_matches", options=java_options(secured, tls=False))
    checkpoint = tmp_path / "checkpoint"
    query = running.run({"matches": sink}, checkpoint=str(checkpoint), trigger={"processingTime": "100 milliseconds"})
    assert query is not None
    try:
        until(lambda: len(secured.records("secured_matches")) == 1, query)
        publish(2, "b")
        running.wait_for({"above": 2}, str(checkpoint))
        secured.send(
            "secured_logins", [(0, None, event(second, "ann", kind, 6.0)) for second, kind in ((3, "b"), (9, "x"))]
        )
        until(lambda: len(secured.records("secured_matches")) == 2, query)
        shown = [str(monitor(query)), str(query.lastProgress), repr(rules), repr(limits), repr(lookups), repr(sink)]
    finally:
        query.stop()
    captured = capfd.readouterr()
    stored = contents(checkpoint)
    assert "above" in stored  # the rules
    assert not any(map(shows_secrets, [*shown, stored, captured.out, captured.err, caplog.text]))


def error_of(function: Callable[[], object]) -> AsterismError:
    with pytest.raises(AsterismError) as caught:
        function()
    return caught.value


def test_wrong_credentials(
    spark: SparkSession, secured: SecuredBroker, tmp_path: Path, capfd: Any, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG, "asterism")
    secured.create_topic("secured_wrongly")
    rows = spark.createDataFrame([("1f",)], "match_id STRING")

    def query(servers: str, options: dict[str, str], checkpoint: str) -> None:
        records = records_of(spark, servers, options, "secured_wrongly")
        stream = KeyedStream(kafka_events(records, SCHEMA, time="ts").events, key="user", time="ts")
        pattern = Pattern.begin("a").where("kind = 'a'")
        sinks = {"matches": lambda df, batch_id: None}
        CEP.pattern(stream, pattern, key_groups=1).run(sinks, checkpoint=str(tmp_path / checkpoint))

    errors: list[AsterismError] = []
    for tls in (False, True):
        servers = secured.tls_address if tls else secured.sasl_address
        options, client = java_options(secured, WRONG, tls=tls), client_options(secured, WRONG, tls=tls)
        factory = KafkaPatternProcessorDiscovererFactory(servers, "secured_wrongly", options=client)
        of_rules = error_of(factory.create_pattern_processor_discoverer().initial_pattern_processors)
        sink = KafkaSink(servers, "secured_wrongly", options=options)
        of_sink = error_of(lambda sink=sink: sink(rows, 0))  # type: ignore[misc]
        of_source = error_of(lambda: query(servers, options, f"wrong {tls}"))  # noqa: B023 - it is called at once
        assert of_rules.message == f"the brokers at {servers} refuse access to the topic 'secured_wrongly'"
        assert of_sink.message == "Kafka refuses what is sent to the topic 'secured_wrongly': SaslAuthentication"
        assert of_source.message == "Kafka refuses access to a source of the query: SaslAuthentication"
        assert all("Authentication failed" in (each.detail or "") for each in (of_rules, of_sink, of_source))
        errors += [of_rules, of_sink, of_source]

    # Without a certificate, and without anything.
    untrusting = {name: each for name, each in java_options(secured, tls=True).items() if "ssl." not in name}
    of_source = error_of(lambda: query(secured.tls_address, untrusting, "untrusting"))
    assert of_source.message == "Kafka refuses access to a source of the query: SslAuthentication"
    quickly = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1000"}
    of_source = error_of(lambda: query(secured.sasl_address, quickly, "plain"))
    assert of_source.message == "no broker of a source of the query responds"
    unsigned = client_options(secured, tls=True) | {"ssl.ca.location": "probe"}
    factory = KafkaPatternProcessorDiscovererFactory(secured.tls_address, "secured_wrongly", options=unsigned)
    of_rules = error_of(factory.create_pattern_processor_discoverer().initial_pattern_processors)
    assert "certificate verify failed" in (of_rules.detail or "")

    captured = capfd.readouterr()
    traces = ["".join(traceback.format_exception(error)) for error in [*errors, of_source, of_rules]]
    assert not any(map(shows_secrets, [*traces, captured.out, captured.err, caplog.text, contents(tmp_path)]))
