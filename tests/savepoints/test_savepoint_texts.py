"""What a user of savepoints reads when something is wrong, where no query is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from asterism import Pattern
from asterism.cli.main import main
from asterism.operators.state.group_header import GroupHeader
from asterism.operators.state.page_numbers import DEFINITION_PAGE
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.savepoints.instances import cannot_merge
from asterism.savepoints.key_groups import Summary
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import FORMAT, MANIFEST, Manifest, QueryPosition, UpstreamOperator, no_savepoint
from asterism.savepoints.offset_log import with_key_groups, with_settings_of, with_watermark_of
from asterism.testing import PatternHarness
from tests.kit import Golden

AB = Pattern.begin("a").where("kind = 'a'").followed_by("b").where("kind = 'b'")
LOG = 'v1\n{"batchWatermarkMs":7,"conf":{"tasks":"2"}}\n{"logOffset":3}\n{"messages": 0, "keyGroups": 8, "definition": "a7"}\n-'
COMMIT = 'v1\n{"nextBatchWatermarkMs":9}'


def manifest() -> Manifest:
    harness = PatternHarness(AB).send("a1 a2 |")
    definition = StateDefinition.from_bytes(harness.stores[0].pages[DEFINITION_PAGE])
    header = GroupHeader.from_bytes(harness.stores[0].header or b"")
    position = QueryPosition("3c1f", 12, 4, LOG, COMMIT, LOG)
    summary = Summary.of(definition, [header])
    return Manifest("0.2.0", "4.3.0", "2026-11-27T09:00:00+00:00", position, "None", 8, 2, summary, {"keys": 1})


def changed(**changes: Any) -> str:
    return json.dumps(json.loads(manifest().to_json()) | changes)


def two_programs() -> Summary:
    header = GroupHeader.new(b"one", 1, 1, 0)
    rules = StateDefinition(OperatorKind.RULES, pa.schema([]))
    return Summary.of(rules, [header, GroupHeader.new(b"two", 1, 1, 0)])


TEXTS: dict[str, Callable[[], object]] = {
    "no_savepoint": lambda: (_ for _ in ()).throw(no_savepoint("/savepoints/carts")),
    "later_format": lambda: Manifest.from_json(changed(format=FORMAT + 1, asterism="9.0"), "/savepoints/carts"),
    "not_a_manifest": lambda: Manifest.from_json("[]", "/savepoints/carts"),
    "incomplete_manifest": lambda: Manifest.from_json(changed(query={"id": "3c1f"}), "/savepoints/carts"),
    "no_commit_log": lambda: with_watermark_of(COMMIT, "v1\n-"),
    "rules": lambda: key_states(StateDefinition(OperatorKind.RULES, pa.schema([]))),
    "two_programs": two_programs,
    "several_operators": lambda: replace(
        manifest(), upstream=(UpstreamOperator("operator-1", "EventTime", 3, None, {}),)
    ).operator_number(None),
    "no_such_operator": lambda: manifest().operator_number(3),
    "instances": lambda: (_ for _ in ()).throw(cannot_merge("state:total", 2)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_error_text(name: str, golden: Golden) -> None:
    golden.error(name, TEXTS[name])


def test_a_manifest_is_what_was_written(tmp_path: Path) -> None:
    written = manifest()
    text = written.to_json()
    read = Manifest.from_json(text, "here")
    assert read == written
    assert read.to_json() == text
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
    shown = CliRunner().invoke(main, ["savepoint", "show", str(tmp_path)], catch_exceptions=False).output
    assert shown == (
        "pattern after micro-batch 12, of 2026-11-27T09:00:00+00:00: 8 key groups, 2 tasks; Asterism 0.2.0, Spark 4.3.0\n"
        "keys: 1 rows\n"
    )
    as_json = CliRunner().invoke(main, ["savepoint", "show", "--json", str(tmp_path)], catch_exceptions=False).output
    assert json.loads(as_json)["operator"]["inputs"]["events"]["last_activity"] == 0
    missing = CliRunner().invoke(main, ["savepoint", "show", str(tmp_path / "none")])
    assert missing.exit_code == 2


def test_logs_get_other_key_groups_settings_and_watermarks() -> None:
    version, head, files, control, rest = with_key_groups(LOG, 32).splitlines()
    assert (version, files, rest) == ("v1", '{"logOffset":3}', "-")
    assert json.loads(control) == {"messages": 0, "keyGroups": 32, "definition": "a7"}
    named = 'v2\n{"batchWatermarkMs":7}\norders:{"logOffset":3}\nasterism_control:{"keyGroups":8,"definition":"a7"}'
    assert with_key_groups(named, 9).splitlines()[-1] == 'asterism_control:{"keyGroups": 9, "definition": "a7"}'
    other = 'v1\n{"batchWatermarkMs":0,"conf":{"tasks":"16"}}\n-'
    head = with_settings_of(LOG, other).splitlines()[1]
    assert json.loads(head) == {"batchWatermarkMs": 7, "conf": {"tasks": "16"}}
    commit = with_watermark_of('v1\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}', COMMIT).splitlines()[1]
    assert json.loads(commit) == {"nextBatchWatermarkMs": 9, "stateUniqueIds": {}}
