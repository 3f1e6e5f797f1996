"""The errors for pattern processors that cannot be used, or found; ``golden/processor/<name>.txt`` holds the text.

An error has its type and its text, a refused processor the line that goes to the log and what its status says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from asterism import CEP, KeyedStream, Pattern
from asterism.discovery import (
    FileLookupSource,
    FilePatternProcessorDiscovererFactory,
    UrlPatternProcessorDiscovererFactory,
)
from asterism.matching.spec import PROCESSING_TIME
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.binding import ProcessorCompiler
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.publishing.coordinator import Coordinator
from asterism.rules.sets import kill_list
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    PatternProcessorManager,
    PeriodicPatternProcessorDiscoverer,
    ProcessorRegistry,
    processors_from,
    without_duplicates,
)
from asterism.rules.sets.set_store import FolderStore, store_at
from tests.kit import Golden

PATTERN = Pattern.begin("a").where("price > 1")
SCHEMA = pa.schema([("user", pa.string()), ("price", pa.float64())])


def rule(id: Any = "fraud-7", version: Any = 3, pattern: Pattern = PATTERN, **fields: Any) -> PatternProcessor:
    return PatternProcessor(id, version, pattern, **fields)


LARGE = {
    "type": "COMPOSITE",
    "nodes": [{"name": f"{n}", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}} for n in range(15_000)],
    "edges": [{"source": f"{n}", "target": f"{n + 1}", "type": "STRICT"} for n in range(14_999)],
}
"""Within all other limits."""


def item(**fields: Any) -> PatternProcessor:
    return PatternProcessor.from_dict(rule().to_dict() | fields)


class Nowhere(PatternProcessorDiscovererFactory, PatternProcessorDiscoverer):
    """It cannot be reached."""

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        return self

    def initial_pattern_processors(self) -> Sequence[Discovered]:
        raise ConnectionRefusedError("nobody listens there")

    def discover_pattern_processor_updates(self, manager: PatternProcessorManager) -> None: ...


class Idle(PeriodicPatternProcessorDiscoverer):
    def check_pattern_processor_update(self) -> bool:
        return False

    def latest_pattern_processors(self) -> Sequence[Discovered]:
        return []


def corrupt(name: str, text: str) -> FolderStore:
    """A store in which a file is broken."""
    path = Path("store", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return FolderStore("store")


def coordinator() -> Coordinator:
    compiler = ProcessorCompiler(SCHEMA, ["user"], PROCESSING_TIME, Semantics.DEFAULT, {"report": lambda table: table})
    return Coordinator(compiler, FolderStore(str(Path("store"))))


def assigning() -> object:
    class Limit(PatternProcessor):
        def __init__(self, limit: float) -> None:
            self.limit = limit

    return Limit(5.0)


def overriding() -> object:
    class Limit(PatternProcessor):
        @property
        def id(self) -> str:  # type: ignore[override]
            return "limit"

    return Limit


ERRORS: dict[str, Callable[[], object]] = {
    "subclass_that_assigns": assigning,
    "subclass_that_overrides_a_field": overriding,
    "id_empty": lambda: rule(""),
    "id_number": lambda: rule(7),
    "id_with_line_break": lambda: rule("a\nb"),
    "version_negative": lambda: rule(version=-1),
    "version_large": lambda: rule(version=2**31),
    "version_text": lambda: rule(version="3"),
    "key_is_text": lambda: rule(key="user"),
    "key_empty_expression": lambda: rule(key=("user", "")),
    "key_of_many_expressions": lambda: rule(key=("user",) * 17),
    "select_of_many_measures": lambda: rule(select=("a.price",) * 101),
    "function_empty": lambda: rule(function=""),
    "function_and_select": lambda: rule(function="report", select=("a.price",)),
    "item_no_object": lambda: PatternProcessor.from_dict([]),  # type: ignore[arg-type]
    "item_of_unknown_field": lambda: item(colour="red"),
    "item_without_pattern": lambda: PatternProcessor.from_dict({"id": "fraud-7", "version": 3}),
    "item_select_text": lambda: item(select="a.price"),
    "item_timed_out_text": lambda: item(timedOut="yes"),
    "item_pattern_number": lambda: item(pattern=7),
    "item_timestamp": lambda: item(timestamp="soon"),
    "interval": lambda: Idle(interval=timedelta(0)),
    "interval_number": lambda: Idle(interval=5),  # type: ignore[arg-type]
    "pattern_text": lambda: rule(pattern="a b"),  # type: ignore[arg-type]
    "timestamp_number": lambda: rule(timestamp=5),
    "item_of_nearly_a_field": lambda: item(timed_out=True),
    "class_not_registered": lambda: ProcessorRegistry({"Dummy": rule}).create("os.system", ["true"]),
    "class_fails": lambda: ProcessorRegistry({"Dummy": lambda n: 1 / n}).create("Dummy", [0]),
    "class_makes_something_else": lambda: ProcessorRegistry({"Dummy": lambda: 7}).create("Dummy", []),  # type: ignore[dict-item, return-value]
    "no_set_at_the_start": lambda: coordinator().start(Nowhere()),
    "folder_of_another_query": lambda: [one.committed(1) for one in (coordinator(), coordinator())],
    "set_is_missing": lambda: FolderStore("store").get(5),
    "set_is_cut_off": lambda: corrupt("sets/5.json", '{"version": 5, "proc').get(5),
    "set_is_something_else": lambda: corrupt("sets/5.json", '{"version": 5}').get(5),
    "status_is_cut_off": lambda: corrupt("status.json", '{"state": "val').read_status(),
    "status_is_something_else": lambda: corrupt("status.json", '{"state": 5}').read_status(),
    "versions_are_cut_off": lambda: corrupt("versions.json", '{"layout": 1').used_versions(),
    "killed_is_something_else": lambda: corrupt("killed.json", '["fraud-7"]').killed(),
    "store_elsewhere": lambda: FolderStore("s3:///checkpoints/fraud").get(5),
    "no_store": lambda: store_at("checkpoint"),
    "not_killed": lambda: kill_list.unkill(corrupt("owner", ""), ["fraud-7"]),
    "without_text": lambda: kill_list.checked_names("fraud-7"),
    "without_line_break": lambda: kill_list.checked_names(["fraud\n7"]),
    "file_with_credentials": lambda: FilePatternProcessorDiscovererFactory("s3://key:secret@bucket/rules"),
    "store_with_credentials": lambda: FolderStore("s3://key:secret@bucket/store"),
    "lookup_with_credentials": lambda: FileLookupSource("s3://key:secret@bucket/limits.csv"),
    "file_at_a_url": lambda: FilePatternProcessorDiscovererFactory("ftp://host/rules.json"),
    "url_number": lambda: UrlPatternProcessorDiscovererFactory(5),  # type: ignore[arg-type]
}

REFUSED: dict[str, Callable[[], Sequence[Discovered]]] = {
    "refused_column": lambda: [rule(pattern=Pattern.begin("a").where("prize > 1"))],
    "refused_syntax": lambda: [rule(pattern=Pattern.begin("a").where("price >"))],
    "refused_condition_no_boolean": lambda: [rule(pattern=Pattern.begin("a").where("price + 1"))],
    "refused_subquery": lambda: [rule(pattern=Pattern.begin("a").where("price > (SELECT 1)"))],
    "refused_file_function": lambda: [rule(pattern=Pattern.begin("a").where("read_csv('/etc/passwd')"))],
    "refused_key": lambda: [rule(key=("usr",))],
    "refused_measure": lambda: [rule(select=("LAST(b.price)",))],
    "refused_function": lambda: [rule(function="reprot")],
    "refused_id_twice": lambda: [rule(), rule(version=4)],
    "refused_id_twice_in_two_places": lambda: without_duplicates(
        [rule(place="a.json"), rule(version=4, place="b.json")]
    ),
    "refused_definition_changed": lambda: [rule(key=("price",))],
    "refused_version_of_another": lambda: [rule(key=("price",))],
    "refused_too_large": lambda: [item(pattern=LARGE)],
    "refused_too_many": lambda: processors_from([rule().to_dict() | {"enabled": False}] * 10_001, "rules.json")[-1:],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ERRORS)
def test_text_of_an_error(name: str, golden: Golden) -> None:
    golden.error(name, ERRORS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_text_of_a_refused_processor(name: str, golden: Golden, caplog: pytest.LogCaptureFixture) -> None:
    manager = coordinator()
    if name == "refused_definition_changed":
        manager.on_pattern_processors_updated([rule()])
    if name == "refused_version_of_another":
        manager.on_pattern_processors_updated([rule()])
        manager.on_pattern_processors_updated([rule(version=7)])
    with caplog.at_level(logging.WARNING, "asterism.rules.processor"):
        manager.on_pattern_processors_updated(REFUSED[name]())
    (line,) = caplog.messages
    assert "\n" not in line
    ((id, reason),) = manager.status.refused.items()
    golden.check(name, f"{line}\n\n{id}: {reason}")


SPARK: dict[str, Callable[[SparkSession], object]] = {
    "on_error_unknown": lambda spark: stream(spark, on_error="ignore"),
    "factory_is_a_path": lambda spark: stream(spark, factory="/etc/rules"),
    "store_number": lambda spark: stream(spark, store=5),
    "functions_list": lambda spark: stream(spark, functions=[print]),
    "function_number": lambda spark: stream(spark, functions={"report": 5}),
    "output_without_store": lambda spark: stream(spark).output("matches"),
    "output_unknown": lambda spark: stream(spark, store="store").output("match"),
    "sink_unknown": lambda spark: stream(spark).run({"match": print}, checkpoint="checkpoint"),
    "status_without_checkpoint": lambda spark: stream(spark).status(),
}


def stream(spark: SparkSession, **options: Any) -> Any:
    rates = KeyedStream(spark.readStream.format("rate").load(), "value")
    return CEP.pattern_processors(rates, **{"factory": FilePatternProcessorDiscovererFactory("rules.json"), **options})


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK)
def test_text_of_an_error_on_spark(name: str, golden: Golden, spark: SparkSession) -> None:
    golden.error(name, lambda: SPARK[name](spark))


TEXTS = ERRORS | REFUSED | SPARK
