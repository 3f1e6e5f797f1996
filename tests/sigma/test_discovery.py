"""Sigma rules in files and folders are discovered like other rules."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from asterism import CEP, KeyedStream
from asterism.cli.main import main
from asterism.discovery import SigmaPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.kept_rules import Rule
from asterism.discovery.editing.rule_set import Addition
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor, defining
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


def test_an_error_names_the_file_the_detection_and_the_field(tmp_path: Path) -> None:
    mapping = {"type": "field_name_mapping", "mapping": {"Image": "process.path"}}
    write(tmp_path / "ours.yml", {"name": "ours", "priority": 10, "transformations": [mapping]})
    failed = rule("failed", bad={"n|contains": "a"}, good={"user": "ann"}, condition="good and bad")
    many = {"type": "event_count", "rules": ["failed"], "timespan": "5m", "condition": {"gte": 2}}
    write(tmp_path / "rules" / "a.yml", WHOAMI)
    by_user = {"title": "By User", "name": "by user", "correlation": {**many, "group-by": ["User"]}}
    write(tmp_path / "rules" / "b.yml", failed, {"title": "Many", "name": "many", "correlation": many}, by_user)
    wrong = rule("reference", s={"user|fieldref": "owner"}, condition="s")
    write(tmp_path / "rules" / "c.yml", wrong)
    events = pa.schema({"ts": pa.timestamp("us", "UTC"), "user": pa.string(), "n": pa.float64()})
    rules = SigmaPatternProcessorDiscovererFactory(tmp_path / "rules", pipeline=tmp_path / "ours.yml")
    with CEP.pattern_processors(KeyedStream(events, time="ts"), rules).open(tmp_path / "state") as engine:
        refused = {each.id: each.reason or "" for each in engine.status().rules}
    assert {id: text.splitlines()[0].partition("] ")[2] for id, text in refused.items()} == {
        ID: "the field 'Image' of the detection 'selection': unknown column 'process'",
        "many": "the field 'n' of the detection 'bad' of 'failed': CAST from DOUBLE to STRING is not supported",
        "by user": "the field 'User' of group-by of 'by user': unknown column 'User'",
        "reference": "the field 'user' of the detection 's': unknown column 'owner'",
    }
    files = {id: text.rpartition("/rules/")[2] for id, text in refused.items()}
    assert files == {ID: "a.yml:1", "many": "b.yml:12", "by user": "b.yml:22", "reference": "c.yml:1"}


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


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)])


def rules_in(place: str | Path) -> list[Rule]:
    return rules_at(str(place)).all()


def test_rules_add(tmp_path: Path) -> None:
    write(tmp_path / "sigma" / "a.yml", WHOAMI, rule("bad", s={"a|x": 1}, condition="s"))
    arguments = ["add", str(tmp_path / "rules.json"), str(tmp_path / "sigma"), "--sigma"]
    done = run(*arguments)
    assert done.exit_code == 1
    assert "a.yml:" in done.output
    assert "1 of 2 rules are refused" in done.output
    assert [one["id"] for one in json.loads((tmp_path / "rules.json").read_text())["processors"]] == [ID]
    write(tmp_path / "sigma" / "a.yml", WHOAMI)
    assert run(*arguments).exit_code == 0  # nothing has changed
    for option, value in (("--time-column", "ts"), ("--report", "each"), ("--pipeline", "sysmon")):
        done = run(*arguments[:-1], option, value)
        assert done.exit_code == 2
        assert option in done.output
        assert "are for Sigma rules" in done.output


SEVERAL = """
# Of the team.
title: Base
name: base
logsource: {category: x}
detection: {s: {a: VALUE}, condition: s}   # a comment
--- # without services
title: Filter
logsource: {category: x}
filter: {rules: [base], selection: {b: svc}, condition: not selection}
---
title: Many
name: many
correlation: {type: event_count, rules: base, generate: true, group-by: u, timespan: 5m, condition: {gte: 3}}
"""


@pytest.mark.parametrize("place", ["rules.yaml", "rules.json", "sqlite:///"])
def test_added_rules_are_stored_as_they_are_written(place: str, tmp_path: Path) -> None:
    source = f"{place}{tmp_path}/rules.db" if "://" in place else str(tmp_path / place)
    if "://" in place:
        assert run("create", source).exit_code == 0
    file = tmp_path / "several.yml"
    file.write_text(SEVERAL.replace("VALUE", "1"))
    assert run("add", source, file, "--sigma").exit_code == 0
    base, many = sorted(rules_in(source), key=lambda rule: rule.id)
    assert base.item["sigma"].startswith("# Of the team.\ntitle: Base\n")
    assert "# a comment\n---\n# without services\ntitle: Filter" in base.item["sigma"]
    assert many.item["sigma"].startswith("title: Many\n")
    translated = {one.id: one for one in discoverer(file).initial_pattern_processors()}
    for stored in (base, many):
        assert stored.version == 1
        assert defining(stored.processor()) == defining(replace(translated[stored.id], version=1))


def test_a_changed_rule_gets_the_next_version(tmp_path: Path) -> None:
    source, file = f"sqlite:///{tmp_path}/rules.db", tmp_path / "several.yml"
    assert run("create", source).exit_code == 0
    for value, versions in (("1", {1}), ("2", {1, 2}), ("2", {1, 2}), ("3", {1, 2, 3}), ("1", {1, 2, 3, 4})):
        file.write_text(SEVERAL.replace("VALUE", value))
        assert run("add", source, file, "--sigma").exit_code == 0
        assert {rule.version for rule in rules_in(source)} == versions
        used = [rule for rule in rules_in(source) if rule.state == "on"]
        assert [rule.version for rule in used] == [max(versions)] * 2
        assert f"a: {value}" in used[0].item["sigma"]


@pytest.mark.parametrize("place", ["rules.yaml", "sqlite:///{}/rules.db"])
def test_what_is_written_beside_a_rule_stays_when_it_is_added_again(tmp_path: Path, place: str) -> None:
    source, file = place.format(tmp_path) if "{}" in place else tmp_path / place, tmp_path / "several.yml"
    if "{}" in place:
        assert run("create", source).exit_code == 0
    file.write_text(SEVERAL.replace("VALUE", "1"))
    assert run("add", source, file, "--sigma").exit_code == 0
    base = next(rule for rule in rules_in(source) if rule.id == "base")
    edited = {**base.item, "version": 2, "suppress": {"for": "5 minutes"}, "expires": "2030-01-01T00:00:00Z"}
    rules_at(str(source)).add([Addition(edited, PatternProcessor.from_dict(edited))])
    assert run("disable", source, "base").exit_code == 0
    added = run("add", source, file, "--sigma")
    assert added.exit_code == 0, added.output
    file.write_text(SEVERAL.replace("VALUE", "2"))
    assert run("add", source, file, "--sigma").exit_code == 0
    versions = {rule.version: rule for rule in rules_in(source) if rule.id == "base"}
    last = versions[max(versions)]
    assert (last.version, last.state) == (3, "on")
    assert last.processor().suppress == timedelta(minutes=5)
    assert last.item["expires"].startswith("2030-01-01T00:00:00")
    assert "a: 2" in last.item["sigma"]


def test_what_a_document_cannot_say_is_added_as_what_it_becomes(tmp_path: Path) -> None:
    file = tmp_path / "several.yml"
    file.write_text(SEVERAL.replace("VALUE", "1"))
    done = run("add", tmp_path / "each.json", file, "--sigma", "--report", "each")
    assert "1 of 2 rules are added as what they become" in done.output
    assert ["sigma" in rule.item for rule in rules_in(tmp_path / "each.json")] == [True, False]
    assert run("add", tmp_path / "all.json", file, "--sigma", "--translated").exit_code == 0
    assert not any("sigma" in rule.item for rule in rules_in(tmp_path / "all.json"))
    file.write_text("action: global\nlogsource: {category: x}\n---\ntitle: R\ndetection: {s: {a: 1}, condition: s}\n")
    assert run("add", tmp_path / "global.json", file, "--sigma").exit_code == 0
    assert [sorted(rule.item) for rule in rules_in(tmp_path / "global.json")] == [
        ["id", "labels", "pattern", "version"]
    ]


def test_a_folder_is_a_place_of_rules(tmp_path: Path) -> None:
    write(tmp_path / "more" / "a.yml", WHOAMI, rule("bad", s={"a|x": 1}, condition="s"))
    (tmp_path / "b.yml").write_text(SEVERAL.replace("VALUE", "1"))
    source = f"sigma:{tmp_path}"
    listed = run("list", source).output
    assert "3 on, 1 wrong" in listed
    assert "Unknown modifier" in run("validate", source).output
    kept = rules_at(source)
    base, many, whoami, bad = kept.all()
    assert (base.id, many.id, whoami.id, bad.id) == ("base", "many", ID, "bad")
    assert whoami.where == f"{tmp_path}/more/a.yml:1"
    assert base.item["sigma"].startswith("# Of the team.")
    for stored in (base, many, whoami):
        assert PatternProcessor.from_dict(stored.item) == stored.processor()
    assert kept.rule_set(["many"]).tag("many") is not None
    assert kept.all()[0] is base  # nothing has changed
    (tmp_path / "b.yml").unlink()
    assert [each.id for each in kept.all()] == [ID, "bad"]
    for command in (["disable", source, ID], ["add", source, tmp_path / "more", "--sigma"]):
        done = run(*command)
        assert done.exit_code == 2
        assert "are changed in their files" in done.output
    assert "there is no rule" not in run("validate", source).output


def test_a_rule_below_a_global_part_is_shown_as_what_it_becomes(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(
        "action: global\nlogsource: {category: x}\n---\ntitle: R\ndetection: {s: {a: 1}, condition: s}\n"
    )
    (rule_of_file,) = rules_in(f"sigma:{tmp_path}")
    assert "sigma" not in rule_of_file.item
    assert PatternProcessor.from_dict(rule_of_file.item) == rule_of_file.processor()


@pytest.mark.parametrize(("option", "name", "text"), [
    ("--sigma", "a.yml", "title: A\nname: a\nlogsource: {category: x}\ndetection: {s: {a: 1}, condition: s}\n"),
    ("--eql", "a.eql", "any where a == 1"),
])  # fmt: skip
def test_of_two_rules_with_an_id_the_first_is_added(option: str, name: str, text: str, tmp_path: Path) -> None:
    for folder in ("b", "c"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    added = run("add", tmp_path / "rules.yaml", tmp_path, option)
    assert added.exit_code == 1
    assert "1 of 2 rules are refused" in added.output
    assert "have the id 'a'" in added.output
    assert len(rules_in(tmp_path / "rules.yaml")) == 1


def test_a_folder_with_options(tmp_path: Path) -> None:
    write(tmp_path / "a.yml", rule("words", s=["x"], condition="s"))
    assert "1 wrong" in run("list", f"sigma:{tmp_path}").output
    (words,) = rules_in(f"sigma:{tmp_path}?keyword-column=message")
    assert "`message`" in str(words.item["pattern"])
    problems = {"other=1": "unknown option 'other'", "report=all": "report must be", "pipeline=no": "cannot be used"}
    for query, problem in problems.items():
        done = run("list", f"sigma:{tmp_path}?{query}")
        assert done.exit_code == 2
        assert problem in done.output
    assert "cannot be read" in run("list", f"sigma:{tmp_path}/none").output
