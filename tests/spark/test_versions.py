"""What differs between the versions of Spark, with Spark 4.1 as it calls a source, on any version."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from asterism.errors import StateError, StreamDefinitionError
from asterism.spark.host import end_of_input as signals
from asterism.spark.host import versions
from asterism.spark.host.control_source import NAME, ControlReader, DrainReader, SourceReader
from asterism.spark.host.versions import (
    SOURCE_EVOLUTION,
    SOURCE_NAME,
    _ReaderOf41,
    check_version,
    named,
    offset_of,
)
from tests.kit import message_of

OPTIONS = {"keyGroups": "2", "definition": "d"}
FIRST: dict[str, Any] = {"messages": 0, "keyGroups": 2, "definition": "d"}


def reader_of_41(kind: type[SourceReader], options: dict[str, str] = OPTIONS) -> _ReaderOf41:
    reader = kind(options)
    return _ReaderOf41(reader, options, reader.check)


def test_a_source_learns_its_start_from_the_last_offset_of_the_checkpoint() -> None:
    reader = reader_of_41(DrainReader)
    start = FIRST | {"messages": 3}
    assert reader.partitions(start, start) == []
    end = reader.latestOffset()
    assert end == FIRST | {"messages": 4}
    assert len(reader.partitions(start, end)) == 1
    assert reader.latestOffset() == end


def test_a_source_may_be_asked_before_it_knows_its_start() -> None:
    """As with Spark's replacement for sources without the trigger available now."""
    assert reader_of_41(DrainReader).latestOffset() == FIRST | {"messages": 1}
    assert (
        reader_of_41(DrainReader, OPTIONS | {"start": json.dumps(FIRST | {"messages": 3})}).latestOffset()["messages"]
        == 4
    )


def test_a_checkpoint_with_other_key_groups_is_refused_at_the_start() -> None:
    other = FIRST | {"keyGroups": 3}
    with pytest.raises(StateError, match="the checkpoint was created with 3 key groups"):
        reader_of_41(ControlReader).partitions(other, other)
    # Another definition begins a micro-batch, in which key groups compare it with their state.
    changed = FIRST | {"definition": "other"}
    options = OPTIONS | {"start": json.dumps(changed)}
    assert reader_of_41(ControlReader, options).latestOffset() == FIRST


@pytest.mark.parametrize("ends", [True, False])
def test_whether_a_query_ends_its_input_is_known_when_it_begins(ends: bool) -> None:
    options = OPTIONS | {"signals": signals.folder()}
    if not ends:
        reader = reader_of_41(ControlReader, options)
    with signals.ending():
        if ends:
            reader = reader_of_41(ControlReader, options)
        assert reader.latestOffset()["messages"] == ends


def test_a_reader_of_spark_41_is_used_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reader: SourceReader = ControlReader(OPTIONS)
    monkeypatch.setattr(versions, "PASSES_START", True)
    assert versions.reader_for_spark(reader, OPTIONS, reader.check) is reader
    monkeypatch.setattr(versions, "PASSES_START", False)
    assert isinstance(versions.reader_for_spark(reader, OPTIONS, reader.check), _ReaderOf41)


@pytest.mark.parametrize("text", [json.dumps(FIRST), str(FIRST)])
def test_an_offset_is_json_or_as_python_writes_it(text: str) -> None:
    assert offset_of(text) == FIRST


@pytest.mark.parametrize("text", ["", "offset 7", "7", None])
def test_what_is_no_offset(text: Any) -> None:
    assert offset_of(text) is None


def test_a_version_of_spark_without_state_for_rows_is_refused() -> None:
    spark: Any = SimpleNamespace(version="4.0.1")
    df: Any = SimpleNamespace(groupBy=lambda: SimpleNamespace(transformWithStateInPandas=None))
    with pytest.raises(StreamDefinitionError) as caught:
        check_version(spark, df)
    assert message_of(caught.value).splitlines() == [
        "StreamDefinitionError",
        "[STREAM_DEFINITION] Spark 4.0.1 cannot run this over a stream",
        "  Its API has no transformWithState for rows, which Asterism's state is kept with.",
        "  Hint: use Spark 4.1 or later, with the pyspark of the same version",
    ]


@pytest.mark.parametrize(
    ("settings", "upstream", "name"),
    [
        ({}, 0, None),
        ({SOURCE_NAME: "payments"}, 1, None),
        ({SOURCE_EVOLUTION: "true"}, 0, "asterism_control"),
        ({SOURCE_EVOLUTION: "true"}, 1, "asterism_control_2"),
        ({SOURCE_EVOLUTION: "true", SOURCE_NAME: "payments"}, 0, "asterism_control_payments"),
        ({SOURCE_EVOLUTION: "true", SOURCE_NAME: "payments"}, 2, "asterism_control_payments_3"),
    ],
)
def test_the_name_of_the_source_of_an_operator(settings: dict[str, str], upstream: int, name: str | None) -> None:
    names: list[str] = []
    reader: Any = SimpleNamespace(name=names.append)
    session: Any = SimpleNamespace(conf=settings)
    named(session, reader, NAME, upstream)
    assert names == ([] if name is None else [name])
