"""The commands of ``asterism rules`` that compare rules, apply them, go back, wait, and show the history."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asterism.discovery import history_of, wait_for
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.sources.url import Endpoint
from asterism.errors import PatternProcessorError, StateError
from tests.cli.test_rules import done, failed, written
from tests.discovery.kit import graph, rule, sql_rule
from tests.discovery.test_http import TOKEN, endpoint
from tests.rules.driver import chain, processor
from tests.rules.test_coordinator import coordinator, version

A, B, C = rule("a"), rule("b", 2), sql_rule("c")


@pytest.fixture(params=["json", "yaml", "sqlite", "http"])
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "http":
        monkeypatch.setenv("ASTERISM_TOKEN", TOKEN)
        (tmp_path / "endpoint").mkdir()
        with endpoint(tmp_path / "endpoint") as (client, _):
            yield client.address
    elif request.param == "sqlite":
        source = f"sqlite:///{tmp_path / 'rules.db'}"
        done("create", source)
        yield source
    else:
        yield str(tmp_path / f"kept.{request.param}")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "new.json"


def kept(source: str) -> dict[str, tuple[int | None, str]]:
    found = rules_at(source, token=TOKEN).all()
    return {rule.id: (rule.version, rule.state) for rule in found if rule.state != "older"}


def large(*, version: int = 1, **rows: float) -> dict[str, Any]:
    """A template."""
    sql = "PATTERN (A) DEFINE A AS price > :limit"
    listed = [{"id": id, "limit": limit} for id, limit in rows.items()]
    return {"id": "large", "version": version, "parameters": {"limit": "number"}, "rows": listed, "sql": sql}


def test_a_template_is_tried_as_a_shadow_and_promoted(source: str, files: Path) -> None:
    def states() -> list[tuple[str, str]]:
        """Of a table, which keeps all versions, without those that are disabled."""
        found = rules_at(source, token=TOKEN).all()
        return [(one.id, one.state) for one in found if one.state != "off" or "sqlite" not in source]

    done("add", source, written(files, large(de=1, uk=2)))
    assert "in force with the same rules" in failed(
        "add", source, written(files, large(version=2, de=1, uk=2)), "--shadow"
    )
    added = done("add", source, written(files, large(version=2, de=1, uk=3)), "--shadow")
    assert added.endswith("shadow of template large added\n")
    in_force, shadows = [("large/de", "on"), ("large/uk", "on")], [("large/de", "shadow"), ("large/uk", "shadow")]
    assert sorted(states()) == sorted([*in_force, *shadows])
    for command in ("validate", "list"):
        done(command, source)
    # Another one replaces it.
    done("add", source, written(files, large(version=3, de=1, uk=4)), "--shadow")
    assert len(states()) == 4
    assert "change its row" in failed("rollback", source, "large/uk", "--version", "1")
    done("disable", source, "large")
    assert {state for _, state in states()} <= {"off"}
    if "sqlite" not in source:
        assert "the shadow is disabled" in failed("promote", source, "large")
    done("enable", source, "large")
    assert done("promote", source, "large") == "large version 3 promoted\n"
    assert states() == in_force
    if "sqlite" not in source:
        assert done("diff", source, written(files, large(version=3, de=1, uk=4))) == "no differences\n"
    # A version with the rules of its shadow promotes it.
    done("add", source, written(files, large(version=4, de=5)), "--shadow")
    done("apply", written(files, large(version=4, de=5)), source)
    assert states() == [("large/de", "on")]
    assert "has no shadow" in failed("promote", source, "large")


def test_files_are_applied(source: str, files: Path) -> None:
    assert done("apply", written(files, A, B), source) == "+ a, version 1\n+ b, version 2\n2 added\n"
    assert done("apply", files, source) == "no differences\n"
    written(files, rule("a", 2, pattern=graph("price > 2")), C)
    plan = failed("apply", files, source, "--plan", status=1)
    assert plan.startswith("~ a, version 1 -> 2\n    @@ ")
    assert '    -          "expression": "price > 1",\n    +          "expression": "price > 2",\n' in plan
    assert plan.endswith("+ c, version 1\n  b is not in " + str(files) + " and stays\n1 to add, 1 to change\n")
    assert kept(source) == {"a": (1, "on"), "b": (2, "on")}
    failed("apply", files, source, "--plan", "--prune", status=1)
    assert kept(source) == {"a": (1, "on"), "b": (2, "on")}
    assert done("apply", files, source, "--prune").endswith("- b, version 2\n1 added, 1 changed, 1 removed\n")
    assert kept(source) == {"a": (2, "on"), "c": (1, "on")}
    assert done("diff", source, files) == done("diff", files, source) == "no differences\n"


def test_shadows_are_applied_promoted_and_removed(source: str, files: Path) -> None:
    shadow, other = rule("a", 2, shadow=True), rule("a", 3, shadow=True)

    def versions() -> list[tuple[str, int | None, str]]:
        found = rules_at(source, token=TOKEN).all()
        return sorted((one.id, one.version or 0, one.state) for one in found if one.state not in ("older", "off"))

    done("apply", written(files, shadow, A, B), source)
    assert versions() == [("a", 1, "on"), ("a", 2, "shadow"), ("b", 2, "on")]
    assert done("diff", source, files) == "no differences\n"
    assert "  shadow of a is not in " in done("apply", written(files, A, B), source)
    assert done("apply", written(files, A, other, B), source) == "~ shadow of a, version 2 -> 3\n1 changed\n"
    assert failed("apply", written(files, rule("a", 3), B), source, "--plan", status=1).startswith(
        "~ a, version 1 -> 3\n"
    )
    assert done("apply", files, source, "--prune") == "~ a, version 1 -> 3\n1 changed\n"
    assert versions() == [("a", 3, "on"), ("b", 2, "on")]
    done("apply", written(files, rule("a", 4), other, B), source)
    assert versions() == [("a", 3, "shadow"), ("a", 4, "on"), ("b", 2, "on")]
    assert "is a shadow" in failed("rollback", source, "a", "--version", "3")
    assert done("promote", source, "a") == "a version 3 promoted\n"
    done("apply", written(files, rule("a", 3), rule("a", 5, shadow=True), B), source)
    assert done("apply", written(files, rule("a", 3), B), source, "--prune") == "- shadow of a, version 5\n1 removed\n"
    assert versions() == [("a", 3, "on"), ("b", 2, "on")]


def test_a_rule_is_switched_off_and_on_by_a_file(source: str, files: Path) -> None:
    done("apply", written(files, A), source)
    for enabled, state in ((False, "off"), (True, "on")):
        assert "~ a, version 1" in done("apply", written(files, rule("a", enabled=enabled)), source)
        assert kept(source) == {"a": (1, state)}


def test_nothing_is_applied_if_something_cannot_be(source: str, files: Path) -> None:
    done("apply", written(files, A), source)
    for flag in ([], ["--plan"]):
        output = failed("apply", written(files, B, rule("a", 1, pattern=graph("price > 2"))), source, *flag)
        assert "exist" in output
        assert "definition" in output
        output = failed("apply", written(files, C, rule("d", pattern={})), source, *flag, status=1)
        assert "d version 1: " in output
    assert kept(source) == {"a": (1, "on")}


def test_an_earlier_version_is_brought_back(source: str, files: Path, tmp_path: Path) -> None:
    manager = coordinator(tmp_path / "store")
    for number in (1, 2):
        manager.on_pattern_processors_updated([version(number, "r", labels={"n": str(number)})])
        done("add", source, written(files, manager.current_pattern_processors()[0].to_dict()))
    arguments = [source, "r", "--version", "1"]
    if source.startswith("sqlite"):
        assert done("rollback", *arguments) == "r version 1 enabled\n"
        assert {rule.version: rule.state for rule in rules_at(source).all()} == {1: "on", 2: "off"}
        done("enable", source, "r", "--version", "2")
        done("remove", source, "r", "--version", "1")
        done("rollback", *arguments, "--history", tmp_path / "store")
        assert {rule.version: rule.state for rule in rules_at(source).all()} == {1: "on", 2: "off"}
        return
    output = failed("rollback", *arguments)
    assert "the source does not have version 1 of 'r'" in output
    assert "Hint: --history CHECKPOINT" in output
    done("rollback", *arguments, "--history", tmp_path / "store")
    [found] = rules_at(source, token=TOKEN).all()
    assert (found.version, found.item["labels"]) == (1, {"n": "1"})
    output = failed("rollback", source, "r", "--version", "7", "--history", tmp_path / "store")
    assert "does not have version 7 of 'r'" in output


def test_the_set_of_a_query_is_compared(tmp_path: Path, files: Path) -> None:
    coordinator(tmp_path / "store").on_pattern_processors_updated([version(1), version(2, "cd")])
    written(files, version(1).to_dict(), version(3, "cd").to_dict())
    output = failed("diff", tmp_path / "store", files, status=1)
    assert output.splitlines()[0] == "~ cd, version 2 -> 3"
    assert output.splitlines()[-1] == "1 to change"


def test_two_clients_of_an_endpoint(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that is based on another set is not made."""
    monkeypatch.setenv("ASTERISM_TOKEN", TOKEN)
    with endpoint(tmp_path) as (client, _):
        address = client.address
        done("add", address, written(files, A))
        place = Endpoint(address, TOKEN)
        _, tag = place.get_set()
        client.ask("PUT", "/processors/b", B)
        with pytest.raises(PatternProcessorError, match="412 Precondition Failed: the current state is not the one"):
            place.put_set(b"[]", tag)
        assert kept(address) == {"a": (1, "on"), "b": (2, "on")}
        output = failed("list", f"{address}/nowhere")
        assert "404" in output
        monkeypatch.delenv("ASTERISM_TOKEN")
        assert "the token of the endpoint is required" in failed("list", address)


def test_who_changes_a_table(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "ann")
    source = f"sqlite:///{tmp_path / 'rules.db'}"
    done("create", source)
    done("add", source, written(files, A, rule("b", changedBy="the pipeline")))
    connection = sqlite3.connect(tmp_path / "rules.db")

    def by() -> dict[str, str]:
        return dict(connection.execute("SELECT id, changed_by FROM pattern_processors").fetchall())

    assert by() == {"a": "ann", "b": "the pipeline"}
    monkeypatch.setattr("getpass.getuser", lambda: "bob")
    done("disable", source, "a")
    assert by() == {"a": "bob", "b": "the pipeline"}
    with connection:
        connection.execute("ALTER TABLE pattern_processors DROP COLUMN changed_by")
    done("enable", source, "a", "b")
    done("add", source, written(files, C))
    connection.close()


def test_the_history_of_a_query(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    manager = coordinator(tmp_path / "store")
    assert done("history", place) == "no changes\n"
    bad = processor("bad", 1, chain("a").where("colour = 1"), place="/rules/bad.json", changed_by="bob")
    manager.on_pattern_processors_updated([version(1, place="/rules/a.json", changed_by="ann"), bad])
    manager.on_pattern_processors_updated([version(2)])
    output = done("history", place)
    assert [line.split("│")[3:9] for line in output.splitlines()[3:-1]] == [
        [" bad ", " refused  ", " 1       ", " bob ", " bad.json ", " unknown column 'colour' "],
        [" ab  ", " added    ", " 1       ", " ann ", " a.json   ", "                         "],
        [" ab  ", " replaced ", " 1 -> 2  ", "     ", "          ", "                         "],
    ]
    assert len(done("history", place, "ab").splitlines()) == 6
    [entry] = map(json.loads, done("history", place, "--json", "--last", "1").splitlines())
    assert json.loads(entry.pop("definition"))["version"] == 2
    assert entry["time"] == history_of(place)[-1].time
    assert (entry["what"], entry["before"], entry["version"]) == ("replaced", 1, 2)


def test_waiting_for_a_version(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    output = failed("wait", place, "ab@1", "--timeout", "10ms")
    assert "is not the checkpoint of a query" in output
    manager = coordinator(tmp_path / "store")
    manager.on_pattern_processors_updated([version(1)])
    output = failed("wait", place, "ab@1", "cd@2", "--timeout", "10ms")
    assert "ab version 1, cd version 2 is not in force after 0:00:00.010000" in output
    timer = threading.Timer(0.3, manager.planned, [1, 0])
    timer.start()
    assert done("wait", place, "ab@1") == "in force: ab@1\n"
    assert wait_for(place, {"ab": 0}).version == 1
    bad = processor("bad", 4, chain("a").where("colour = 1"))
    manager.on_pattern_processors_updated([version(1), bad])
    with pytest.raises(
        PatternProcessorError, match=r"bad version 4 is refused\n  \[COLUMN_NOT_FOUND\] unknown column 'colour'"
    ):
        wait_for(place, {"bad": 3})
    manager.close()
    with pytest.raises(StateError, match="the query does not run, and does not use ab version 2"):
        wait_for(place, {"ab": 2})
    assert "is not a rule with a version" in failed("wait", place, "ab")


def test_names_are_printed_safely(tmp_path: Path) -> None:
    left, right = (
        written(tmp_path / f"{name}.json", rule("a", labels={"x": text}))
        for name, text in (("l", "1"), ("r", "\x1b[31m\u202e"))
    )
    output = failed("diff", left, right, status=1)
    assert "\x1b" not in output
    assert "\u202e" not in output


# ---------------------------------------------------------------------- templates


def template(*limits: int, **fields: Any) -> dict[str, Any]:
    rows = [{"id": f"r{n}", "limit": limit} for n, limit in enumerate(limits)]
    sql = "PATTERN (A) DEFINE A AS price > :limit"
    return {"id": "t", "version": 1, "parameters": {"limit": "number"}, "rows": rows, "sql": sql} | fields


@pytest.mark.parametrize("kind", ["json", "sqlite"])
def test_templates_are_compared_by_their_rules_and_applied_as_a_whole(kind: str, tmp_path: Path) -> None:
    target = str(tmp_path / "kept.json") if kind == "json" else f"sqlite:///{tmp_path / 'rules.db'}"
    if kind == "sqlite":
        done("create", target)
    file = written(tmp_path / "new.json", template(1, 2), rule("b"))
    assert done("apply", file, target).splitlines()[-1] == "3 added"
    assert done("apply", file, target) == "no differences\n"
    written(file, template(1, 3, 4))
    planned = failed("apply", file, target, "--plan", status=1)
    assert "+ t/r2" in planned
    assert "~ t/r1" in planned
    assert "t/r0" not in planned
    assert "b is not in" in planned
    done("apply", file, target)
    written(file, template(1))
    assert done("apply", file, target).splitlines()[-1] == "2 removed"
    assert sorted(one.id for one in rules_at(target).all()) == ["b", "t/r0"]
    version = rules_at(str(file)).all()[0].version
    assert "change its row" in failed("rollback", target, "t/r0", "--version", version)
    written(file, rule("b"))
    assert "t/r0 is not in" in done("apply", file, target)
    assert done("apply", file, target, "--prune").splitlines()[-1] == "1 removed"
    assert [one.id for one in rules_at(target).all()] == ["b"]
