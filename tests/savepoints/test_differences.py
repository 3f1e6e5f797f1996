"""What distinguishes two savepoints, where no query is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from asterism.cli.savepoint import lines_of
from asterism.savepoints.differences import (
    ChangedValue,
    SavepointDifferences,
    TableDifferences,
    of_operators,
    of_queries,
    of_sources,
)
from asterism.savepoints.manifest import Manifest, UpstreamOperator
from asterism.savepoints.rule_sets import RuleSets
from tests.rules.driver import Driver, chain, processor
from tests.savepoints.regrouping import rules_of
from tests.savepoints.test_savepoint_texts import manifest

UPSTREAM = UpstreamOperator("operator-1", "EventTime", 3, None, {"keys": 2})


def test_a_manifest_with_several_operators_is_what_was_written() -> None:
    written = replace(
        manifest(), upstream=(UPSTREAM, replace(UPSTREAM, folder="operator-2", summary=manifest().summary))
    )
    text = written.to_json()
    assert Manifest.from_json(text, "here") == written
    assert '"format": 2' in text
    assert '"format": 1' in manifest().to_json()


def of_savepoints(before: Manifest, after: Manifest, tables: Any = (), **more: Any) -> SavepointDifferences:
    rules = more.get("rules", (None, None))
    operators = [replace(of_operators(0, before, after, rules), tables=tables)]
    return SavepointDifferences(of_queries(before, after), of_sources(before, after), operators)


def test_equal_savepoints_have_no_differences() -> None:
    differences = of_savepoints(manifest(), manifest())
    assert not differences
    assert list(lines_of(differences)) == ["no differences"]


def test_positions_watermarks_definitions_and_keys() -> None:
    before = manifest()
    assert before.summary is not None
    position = replace(
        before.position, batch_id=14, offsets=before.position.offsets.replace('{"logOffset":3}', '{"logOffset":5}')
    )
    summary = replace(before.summary, watermark=1_000_000, watermarks=[2_500_000])
    after = replace(before, position=position, summary=summary, key_groups=32, tasks=16)
    tables = [TableDifferences("keys", 10, 11, 3, 2, 1), TableDifferences("waiting_events", 4, 4, 0, 0, 0)]
    differences = of_savepoints(before, after, tables)
    assert "\n".join(lines_of(differences)) == (
        "micro-batch: 16 -> 18\n"
        "tasks: 2 -> 16\n"
        'source 0: {"logOffset":3} -> {"logOffset":5}\n'
        "operator 0\n"
        "  key groups: 8 -> 32\n"
        "  watermark of operator: - -> 1970-01-01T00:00:01+00:00\n"
        "  watermark of events: - -> 1970-01-01T00:00:02.500000+00:00\n"
        "  keys: 10 before, 11 after; 3 added, 2 removed, 1 changed"
    )
    assert differences.to_dict()["operators"][0]["tables"][0]["changed"] == 1


def rules(*processors: Any) -> RuleSets:
    driver = Driver().batch([(1, "ann", 1, "a", 1.0)], sets=processors, watermark=1)
    found = rules_of(driver.stores, driver.operator.definition)
    assert found is not None
    return found


def test_rules_and_operators() -> None:
    one, two = processor("ab", 1, chain("a", "b")), processor("ab", 2, chain("a", "c"), shadow=True)
    both = [rules(one), rules(one, two)]
    differences = of_operators(0, manifest(), replace(manifest(), upstream=(UPSTREAM,)), both)
    assert list(differences.rules) == [ChangedValue("ab@2", None, "shadow")]
    added = of_operators(1, None, UPSTREAM, (None, None))
    assert ChangedValue("time mode", None, "EventTime") in added.definition
