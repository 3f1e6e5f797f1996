"""The texts of what a sink for Kafka refuses before it sends anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from asterism.sinks import KafkaSink
from tests.kit import Golden


def sink(**arguments: Any) -> KafkaSink:
    return KafkaSink(**{"servers": "localhost:9092", "topic": "attacks"} | arguments)


TEXTS: dict[str, Callable[[], object]] = {
    "no_servers": lambda: sink(servers=" "),
    "no_id": lambda: sink(key=None),
    "no_column_in_the_key": lambda: sink(key=[]),
    "header_no_string": lambda: sink(header=[1]),
    "option_of_the_sink": lambda: sink(options={"kafka.bootstrap.servers": "other:9092"}),
    "option_without_prefix": lambda: sink(options={"acks": "all"}),
    "option_misspelled": lambda: sink(options={"kafka.compresion.type": "lz4"}),
    "option_no_text": lambda: sink(options={"kafka.acks": None}),
    "no_match_id": lambda: sink().check_columns(["user", "failures"]),
    "match_id_is_lost": lambda: sink(key="user").check_columns(["match_id", "user"]),
    "match_id_is_lost_by_header": lambda: sink(key=None, header=["user", "at"]).check_columns(
        ["match_id", "user", "at"]
    ),
    "no_such_header": lambda: sink(header="users").check_columns(["match_id", "user"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_an_error(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])
