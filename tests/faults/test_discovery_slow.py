"""Slow: all parameters of tests of test_discovery.py, and rules in a topic."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import confluent_kafka as kafka
import pytest

from asterism.discovery.sources import compacted_topic
from tests.discovery.places import TopicPlace
from tests.faults import test_discovery as fast
from tests.faults.kit import EIO, ENOSPC, Faults
from tests.faults.test_discovery import quick  # noqa: F401 - a fixture
from tests.kit import until
from tests.servers.kafka import Broker


@pytest.mark.parametrize("kind", ["file", "folder", "sqlite", "url", "http"])
@pytest.mark.parametrize("code", [EIO, ENOSPC])
def test_discovery_survives_each_failure(tmp_path: Path, faults: Faults, kind: str, code: int) -> None:
    fast.test_discovery_survives_each_failure(tmp_path, faults, kind, code)


def test_discovery_in_a_topic_survives_each_failure_of_its_store(
    tmp_path: Path, faults: Faults, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_topic, "AT_REST", 0.02)
    fast.survive_each_failure(tmp_path, faults, TopicPlace(broker, "failing-store"), EIO)


class FaultyClient:
    """The client of Kafka, whose calls *first* to *first* + *many* - 1 fail."""

    def __init__(self) -> None:
        self.calls = self.first = self.many = 0

    def arm(self, first: int, many: int) -> None:
        self.calls, self.first, self.many = 0, first, many

    def error(self) -> kafka.KafkaException | None:
        self.calls += 1
        if self.first <= self.calls < self.first + self.many:
            return kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TRANSPORT, "injected"))
        return None

    def check(self) -> None:
        if error := self.error():
            raise error

    def module(self) -> Any:
        """In place of ``confluent_kafka``."""
        faults = self

        class AdminClient(kafka.admin.AdminClient):
            def __init__(self, *arguments: Any) -> None:
                faults.check()
                super().__init__(*arguments)

            def _answered(self, requests: dict[Any, Future[Any]]) -> dict[Any, Future[Any]]:
                if error := faults.error():
                    for name in requests:
                        requests[name] = Future()
                        requests[name].set_exception(error)
                return requests

            def describe_topics(self, *arguments: Any, **options: Any) -> Any:
                return self._answered(super().describe_topics(*arguments, **options))

            def list_offsets(self, *arguments: Any, **options: Any) -> Any:
                return self._answered(super().list_offsets(*arguments, **options))

            def describe_configs(self, *arguments: Any, **options: Any) -> Any:
                return self._answered(super().describe_configs(*arguments, **options))

        class Consumer(kafka.Consumer):
            def __init__(self, *arguments: Any) -> None:
                faults.check()
                super().__init__(*arguments)

            def assign(self, *arguments: Any) -> None:
                faults.check()
                super().assign(*arguments)

            def consume(self, *arguments: Any) -> Any:
                faults.check()
                return super().consume(*arguments)

        return Overridden(kafka, Consumer=Consumer, admin=Overridden(kafka.admin, AdminClient=AdminClient))


class Overridden:
    """A module with other attributes."""

    def __init__(self, module: Any, **attributes: Any) -> None:
        self._module = module
        self.__dict__.update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyClient]:
    with monkeypatch.context() as patch:
        client = FaultyClient()
        module = client.module()
        patch.setattr(compacted_topic, "_kafka", lambda: module)
        patch.setattr(compacted_topic, "AT_REST", 0.02)
        yield client


@pytest.mark.parametrize("many", [1, 3])
def test_a_topic_whose_client_fails_anywhere(tmp_path: Path, broker: Broker, client: FaultyClient, many: int) -> None:
    """When it connects, asks for offsets and settings, and reads."""
    place = TopicPlace(broker, f"failing-client-{many}")
    place.write([fast.item(1)])
    query = fast.Query(tmp_path, place)
    until(lambda: query.has(1))
    for n in range(1, 16):
        place.write([fast.item(n + 1)])
        client.arm(n, many)
        until(lambda n=n: client.calls > n + many and query.has(n + 1))  # type: ignore[misc]
    query.check(16)
    assert any("injected" in line for line in query.status.log)
    query.manager.close()
