"""Sigma rules in files and folders are discovered like other rules."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from asterism.cli.main import main
from asterism.discovery import SigmaPatternProcessorDiscovererFactory
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered, PatternProcessorDiscoverer, RefusedProcessor
from tests.sigma.kit import rule

ID = "e28a5a99-da44-436d-b7a0-2afc20a5f413"
WHOAMI = rule("whoami", selection={"Image|endswith": "\\whoami.exe"}, condition="selection") | {
    "id": ID,
    "level": "high",
    "tags": ["attack.discovery", "attack.t1033"],
    "falsepositives": ["Admins", "Scripts"],
    "author": "Ann",
}


def write(path: Path, *documents: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name("." + path.name)
    new.write_text("---\n".join(yaml.safe_dump(one, sort_keys=False) for one in documents))
    new.replace(path)


def discoverer(path: Path, **options: Any) -> PatternProcessorDiscoverer:
    factory = SigmaPatternProcessorDiscovererFactory(path, interval=timedelta(milliseconds=50), **options)
    return factory.create_pattern_processor_discoverer()


def found(place: PatternProcessorDiscoverer) -> dict[str, Discovered]:
    place.check_pattern_processor_update()  # type: ignore[attr-defined]
    return {one.id: one for one in place.latest_pattern_processors()}  # type: ignore[attr-defined]


def test_a_folder_with_folders(tmp_path: Path) -> None:
    write(tmp_path / "windows" / "whoami.yml", WHOAMI)
    write(tmp_path / ".git" / "config.yml", {"no": "rule"})
    write(tmp_path / "bad.yaml", rule("bad", s={"a|x": 1}, condition="s"))
    place = discoverer(tmp_path)
    good, bad = place.initial_pattern_processors()
    assert isinstance(good, PatternProcessor)
    assert isinstance(bad, RefusedProcessor)
    assert good.id == ID
    assert good.place == f"{tmp_path}/windows/whoami.yml:1"
    assert dict(good.labels) == {
        "title": "Whoami",
        "level": "high",
        "tags": "attack.discovery, attack.t1033",
        "techniques": "T1033",
        "falsepositives": "Admins; Scripts",
        "author": "Ann",
        "logsource": "test",
    }
    assert str(bad).startswith(f"{tmp_path}/bad.yaml:1: bad: [PATTERN_PROCESSOR] Unknown modifier 'x'")


def test_changes_are_seen_and_versions_are_those_of_the_detection(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", WHOAMI)
    place = discoverer(tmp_path)
    (first,) = place.initial_pattern_processors()
    assert isinstance(first, PatternProcessor)
    assert not place.check_pattern_processor_update()  # type: ignore[attr-defined]
    write(tmp_path / "a.yml", WHOAMI | {"level": "low"})
    labelled = found(place)[ID]
    assert labelled.version == first.version
    assert labelled.labels["level"] == "low"  # type: ignore[union-attr]
    write(tmp_path / "a.yml", WHOAMI | rule("whoami", s={"Image|endswith": "\\id.exe"}, condition="s"))
    assert found(place)[ID].version not in (first.version, None)
    write(tmp_path / "b.yml", rule("second", s={"a": 1}, condition="s"))
    assert set(found(place)) == {ID, "second"}
    (tmp_path / "a.yml").unlink()
    assert set(found(place)) == {"second"}


def test_a_file_that_becomes_unreadable_refuses_its_rules_alone(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", WHOAMI)
    write(tmp_path / "b.yml", rule("second", s={"a": 1}, condition="s"))
    place = discoverer(tmp_path)
    place.initial_pattern_processors()
    (tmp_path / "a.yml").write_text("a: [")
    after = found(place)
    assert isinstance(after[ID], RefusedProcessor)
    assert not after[ID].unidentified  # type: ignore[union-attr]
    assert isinstance(after["second"], PatternProcessor)
    (tmp_path / "c.yml").write_text("a: [")
    assert [one.id for one in found(place).values() if getattr(one, "unidentified", False)] == ["the whole file"]
    write(tmp_path / "a.yml", WHOAMI)
    assert isinstance(found(place)[ID], PatternProcessor)


def test_a_path_that_is_not_there_interrupts(tmp_path: Path) -> None:
    with pytest.raises(PatternProcessorError):
        discoverer(tmp_path / "none").initial_pattern_processors()


def test_two_files_with_one_id(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", WHOAMI)
    write(tmp_path / "b.yml", WHOAMI)
    first, second = discoverer(tmp_path).initial_pattern_processors()
    assert isinstance(first, PatternProcessor)
    assert "two processors have the id" in str(second)


def test_pipelines_map_fields_and_log_sources(tmp_path: Path) -> None:
    write(tmp_path / "rules" / "a.yml", WHOAMI)
    mapping = {
        "name": "ours",
        "priority": 10,
        "transformations": [
            {"type": "field_name_mapping", "mapping": {"Image": "process.path"}},
            {
                "type": "add_condition",
                "conditions": {"EventID": 1},
                "rule_conditions": [{"type": "logsource", "category": "test"}],
            },
        ],
    }
    (tmp_path / "ours.yml").write_text(yaml.safe_dump(mapping))
    (one,) = discoverer(tmp_path / "rules", pipeline=tmp_path / "ours.yml").initial_pattern_processors()
    assert isinstance(one, PatternProcessor)
    condition = one.to_dict()["pattern"]["nodes"][0]["condition"]["expression"]
    assert condition == (
        "(TRY_CAST(`EventID` AS DOUBLE) = 1 AND ENDSWITH(LOWER(CAST(`process`.`path` AS STRING)), '\\\\whoami.exe'))"
    )
    with pytest.raises(PatternProcessorError, match="cannot be used"):
        discoverer(tmp_path, pipeline=["no such pipeline"])


def test_filters_of_another_file(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", WHOAMI)
    sigma_filter = {
        "title": "Not on build machines",
        "logsource": {"category": "test"},
        "filter": {"rules": [ID], "selection": {"Host|startswith": "build-"}, "condition": "not selection"},
    }
    write(tmp_path / "filter.yml", sigma_filter)
    (one,) = discoverer(tmp_path).initial_pattern_processors()
    assert "NOT COALESCE(STARTSWITH(LOWER(CAST(`Host` AS STRING)), 'build-'), FALSE)" in one.text  # type: ignore[union-attr]


def test_a_sigma_rule_in_the_document_of_a_rule() -> None:
    fields = {"id": "who", "version": 3, "sigma": yaml.safe_dump(WHOAMI), "labels": {"level": "low", "owner": "soc"}}
    processor = PatternProcessor.from_dict(fields)
    assert processor.labels["level"] == "low"
    assert processor.labels["techniques"] == "T1033"
    assert PatternProcessor.from_dict(processor.to_dict()) == processor
    for more in ({"sql": "PATTERN (A)"}, {"key": ["a"]}, {"sigma": 5}, {"sigma": "title: x"}):
        with pytest.raises(PatternProcessorError):
            PatternProcessor.from_dict(fields | more)


def test_rules_add(tmp_path: Path) -> None:
    write(tmp_path / "sigma" / "a.yml", WHOAMI, rule("bad", s={"a|x": 1}, condition="s"))
    arguments = ["rules", "add", str(tmp_path / "rules.json"), str(tmp_path / "sigma"), "--sigma"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "a.yml:" in done.output
    assert "1 of 2 rules are refused" in done.output
    assert [one["id"] for one in json.loads((tmp_path / "rules.json").read_text())["processors"]] == [ID]
    write(tmp_path / "sigma" / "a.yml", WHOAMI)
    assert CliRunner().invoke(main, arguments).exit_code == 0  # nothing has changed
    for option, value in (("--time-column", "ts"), ("--report", "each"), ("--pipeline", "sysmon")):
        done = CliRunner().invoke(main, [*arguments[:-1], option, value])
        assert done.exit_code == 2
        assert option in done.output
        assert "are for Sigma rules" in done.output
