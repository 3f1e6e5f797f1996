"""What the functions of declarative pipelines need, without a server."""

from __future__ import annotations

import threading
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark.pipelines")
from google.protobuf import any_pb2
from pyspark.accumulators import SpecialAccumulatorIds, _accumulatorRegistry, _deserialize_accumulator
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.sql.connect.client.core import SparkConnectClient
from pyspark.sql.profiler import ProfileResultsParam

from asterism.errors import StreamDefinitionError
from asterism.spark.session import pipelines
from asterism.spark.session.pipelines import analyzing, is_pipeline, parsed
from asterism.spark.session.settings import configure_state_store
from asterism.spark.session.worker import send_no_empty_profiles

CONTEXT = "spark.connect.PipelineAnalysisContext"


class Client:
    """What PySpark's client knows of the context of a thread."""

    add_threadlocal_user_context_extension = SparkConnectClient.add_threadlocal_user_context_extension
    remove_user_context_extension = SparkConnectClient.remove_user_context_extension
    _update_request_with_user_context_extensions = SparkConnectClient._update_request_with_user_context_extensions

    def __init__(self) -> None:
        self.thread_local = threading.local()
        self.global_user_context_extensions: list[Any] = []
        self.global_user_context_extensions_lock = threading.Lock()
        self.closed = False

    def contexts(self) -> list[str]:
        """Those of a request."""
        extensions: list[any_pb2.Any] = []
        request = SimpleNamespace(user_context=SimpleNamespace(extensions=extensions))
        self._update_request_with_user_context_extensions(request)  # type: ignore[arg-type] # has what it needs
        return [extension.TypeName() for extension in extensions]


class Session:
    def __init__(self, settings: dict[str, str]) -> None:
        self._client, self._settings, self.session_id = Client(), settings, "7"

    @property
    def client(self) -> Client:
        return self._client

    @cached_property
    def conf(self) -> Any:
        return SimpleNamespace(get=lambda key, default=None: self._settings.get(key, default), of=self)

    def _parse_ddl(self, text: str) -> str:
        return f"parsed with {self.client.contexts()}: {text}"

    def __del__(self) -> None:
        self._client.closed = True


@pytest.fixture(autouse=True)
def remote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "is_remote", lambda: True)


def test_analysis_has_no_context_of_the_pipeline() -> None:
    session: Any = Session({})
    assert analyzing(session) is session
    assert parsed(session, "a INT") == "a INT"
    assert session.conf.of is session
    with add_pipeline_analysis_context(spark=session, dataflow_graph_id="1", flow_name="matches"):
        other: Any = analyzing(session)
        assert (is_pipeline(session), is_pipeline(other)) == (False, True)
        assert (session.client.contexts(), other.client.contexts()) == ([CONTEXT], [])
        assert parsed(other, "a INT") == "parsed with []: a INT"
        assert (other.session_id, other.conf.of is other, analyzing(other) is other) == ("7", True, True)
        del other
        assert not session.client.closed
    assert analyzing(session) is session


def test_settings_of_the_state_store_must_be_in_the_spec() -> None:
    provider = "spark.sql.streaming.stateStore.providerClass"
    session: Any = Session({provider: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"})
    with add_pipeline_analysis_context(spark=session, dataflow_graph_id="1", flow_name="matches"):
        with pytest.raises(StreamDefinitionError) as refused:
            configure_state_store(analyzing(session))
        assert str(refused.value).endswith(
            "in the pipeline spec, under configuration: "
            'spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled: "true"'
        )
        session._settings["spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"] = "true"
        configure_state_store(analyzing(session))


def test_only_empty_profiles_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(_accumulatorRegistry)
    try:
        _accumulatorRegistry.clear()
        _deserialize_accumulator(SpecialAccumulatorIds.SQL_UDF_PROFIER, {}, ProfileResultsParam)
        _deserialize_accumulator(7, {1: "profile"}, ProfileResultsParam)  # type: ignore[arg-type] # of any value
        send_no_empty_profiles()
        assert list(_accumulatorRegistry) == [7]
    finally:
        _accumulatorRegistry.clear()
        _accumulatorRegistry.update(before)
