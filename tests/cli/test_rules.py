"""The command ``asterism rules``, on files and tables."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result

from asterism.cli.main import main
from asterism.discovery import FilePatternProcessorDiscovererFactory, SqlPatternProcessorDiscovererFactory
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.files.durable_files import LOCK
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered, PatternProcessorDiscovererFactory
from asterism.rules.sets.rule_counts import RuleCounts, VersionCounts
from tests.discovery.kit import Rule, graph, rule, sql_rule, versions
from tests.discovery.postgresql import Server
from tests.rules.test_coordinator import coordinator
from tests.rules.test_coordinator import version as ab

FULL: Rule = rule(
    "full",
    3,
    timestamp="2026-01-31T12:00:00+00:00",
    key=["user", "LOWER(item)"],
    select=["LAST(a.price) AS p"],
    timedOut=True,
    maxPartialMatches=7,
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["rules", *map(str, arguments)], env={"COLUMNS": "1000"})


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def failed(*arguments: object, status: int = 2) -> str:
    result = run(*arguments)
    assert result.exit_code == status, result.output
    return result.output


def written(path: Path, *rules: Any) -> Path:
    path.write_text(json.dumps(rules), encoding="utf-8")
    return path


@pytest.fixture(params=["yaml", "sqlite"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return source_of(request, tmp_path)


def source_of(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "sqlite":
            source = f"sqlite:///{tmp_path / 'rules.db'}"
            done("create", source)
        case "postgresql":
            source = str(request.getfixturevalue("database"))
            done("create", source)
        case suffix:
            source = str(tmp_path / f"kept.{suffix}")
    return source


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new.json"


def in_use(source: str) -> dict[str, int]:
    """What a query finds there."""
    return versions(found_in(source))


def found_in(source: str) -> Sequence[Discovered]:
    factory: PatternProcessorDiscovererFactory = (
        SqlPatternProcessorDiscovererFactory(source)
        if "://" in source
        else FilePatternProcessorDiscovererFactory(source)
    )
    return factory.create_pattern_processor_discoverer().initial_pattern_processors()


def test_a_rule_from_its_first_version_to_its_end(source: str, new: Path) -> None:
    assert done("add", source, written(new, rule("a"), FULL)) == "a version 1 added\nfull version 3 added\n"
    assert in_use(source) == {"a": 1, "full": 3}
    assert done("disable", source, "a") == "a disabled\n"
    assert in_use(source) == {"full": 3}
    assert done("enable", source, "a", "full").startswith("a ")
    assert in_use(source) == {"a": 1, "full": 3}
    assert done("add", source, written(new, rule("a", 2))).startswith("a version 2 added")
    assert in_use(source) == {"a": 2, "full": 3}
    assert done("remove", source, "a", "full") == "a removed\nfull removed\n"
    assert in_use(source) == {}


def test_every_field_is_kept(source: str, new: Path) -> None:
    others = rule("f", function="report", key=[]), sql_rule("sql", maxPartialMatches=5)
    done("add", source, written(new, FULL, rule("off", enabled=False), *others))
    found = {one.id: one for one in rules_at(source).all()}
    assert {id: one.state for id, one in found.items()} == {"full": "on", "off": "off", "f": "on", "sql": "on"}
    for wanted in (FULL, *others):
        assert PatternProcessor.from_dict(found[wanted["id"]].item) == PatternProcessor.from_dict(wanted)


def test_clauses_are_listed_and_validated(source: str, new: Path) -> None:
    done("add", source, written(new, sql_rule("rise"), sql_rule("off", enabled=False)))
    (line,) = [line for line in done("list", source).splitlines() if "rise" in line]
    assert "user" in line
    assert "MATCH_RECOGNIZE, PATTERN (A B+), ONE ROW PER MATCH, SKIP PAST LAST ROW; LAST(B.price) AS price" in line
    columns = [f"--column={column}" for column in ("user:string", "ts:timestamp", "price:double")]
    for given in ([], columns):
        assert "rise version 1: ok, MATCH_RECOGNIZE, PATTERN (A B+), ONE ROW PER MATCH, SKIP PAST LAST ROW\n" in done(
            "validate", source, *given
        )
    output = failed("validate", source, *columns[:2], status=1)
    assert "rise version 1: sql: unknown column 'price'\n  DEFINE B AS price > PREV(price)\n              ^\n" in output


def test_a_clause_in_an_older_table(tmp_path: Path, new: Path) -> None:
    """Its pattern cannot be NULL, and at first it has no column for clauses."""
    connection = sqlite3.connect(tmp_path / "rules.db")
    with connection:
        connection.execute(
            "CREATE TABLE pattern_processors (id VARCHAR(200), version INTEGER, pattern TEXT NOT NULL, enabled BOOLEAN)"
        )
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    written(new, sql_rule("rise"))
    assert "the table 'pattern_processors' has no column sql" in failed("add", url, new)
    with connection:
        connection.execute("ALTER TABLE pattern_processors ADD COLUMN sql TEXT")
    connection.close()
    done("add", url, new)
    assert in_use(url) == {"rise": 1}


def test_a_version_is_added_once(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a", 2)))
    assert done("add", source, new) == "a version 2 already exists\n"
    output = failed("add", source, written(new, rule("b"), rule("a", 2, pattern=graph("price > 2"))))
    assert "a version 2 already exists with another definition" in output
    assert in_use(source) == {"a": 2}  # b was not added, either


def shadows_in(source: str) -> list[tuple[str, int, bool]]:
    """What a query finds there."""
    return sorted((one.id, one.version, one.shadow) for one in found_in(source) if isinstance(one, PatternProcessor))


@pytest.mark.parametrize("command", [["add", "new.json", "sqlite:///r.db"], ["apply", "sqlite:///r.db", "new.json"]])
def test_a_source_in_place_of_a_file(command: list[str]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "'sqlite:///r.db' is a source and not a file: the other argument is the source." in result.output


def test_a_shadow_is_added_promoted_and_removed(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a"), rule("a", 2, shadow=True), rule("b")))
    assert shadows_in(source) == [("a", 1, False), ("a", 2, True), ("b", 1, False)]
    listed = {(row[0], row[1]): row[2] for row in cells(done("list", source))}
    assert listed == {("a", "1"): "on", ("a", "2"): "shadow", ("b", "1"): "on"}
    assert "a version 2: ok, shadow, " in done("validate", source)
    assert done("promote", source, "a") == "a version 2 promoted\n"
    assert shadows_in(source) == [("a", 2, False), ("b", 1, False)]
    assert (
        failed("promote", source, "a")
        == "Error: [RULE_NOT_FOUND] 'a' has no shadow\n  Hint: \"shadow\": true, in a version of it\n"
    )
    assert "there is no processor 'c'" in failed("promote", source, "c")
    assert done("add", source, written(new, rule("a", 3, shadow=True))) == "shadow of a version 3 added\n"
    assert "shadow of a version 3 already exists" in done("add", source, new)
    assert done("remove", source, "a", "--version", "3") == "a version 3 removed\n"
    assert shadows_in(source) == [("a", 2, False), ("b", 1, False)]


def test_a_version_is_added_as_a_shadow_and_then_promoted_by_adding_it(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a"), rule("a", 2, shadow=True)))
    assert "version 1 of 'a' is in force, so it cannot be a shadow, too" in failed(
        "add", source, written(new, rule("a", shadow=True))
    )
    other = rule("a", 2, select=["LAST(a.price) AS p"])
    assert "already exists with another definition" in failed("add", source, written(new, other))
    done("add", source, written(new, rule("a", 2)))
    assert shadows_in(source) == [("a", 2, False)]
    assert done("add", source, written(new, rule("a", 3)), "--shadow") == "shadow of a version 3 added\n"
    assert shadows_in(source) == [("a", 2, False), ("a", 3, True)]
    assert done("add", source, new, "--shadow") == "shadow of a version 3 already exists\n"


def test_a_rule_is_disabled_and_enabled_with_its_shadow(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a"), rule("a", 2, shadow=True)))
    done("disable", source, "a")
    assert shadows_in(source) == []
    assert "has no shadow" in failed("promote", source, "a") or "is disabled" in failed("promote", source, "a")
    done("enable", source, "a", "--version", "2")
    assert shadows_in(source) == [("a", 2, True)]
    done("enable", source, "a")
    assert shadows_in(source) == [("a", 1, False), ("a", 2, True)]


def test_a_shadow_without_a_version_in_force_is_promoted(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a", shadow=True), rule("b", shadow=True)))
    assert "has no shadow" in failed("promote", source, "a", "a", "c") or shadows_in(source)
    assert shadows_in(source) == [("a", 1, True), ("b", 1, True)], "all or none"
    done("promote", source, "a", "b")
    assert shadows_in(source) == [("a", 1, False), ("b", 1, False)]


def test_a_version_gets_other_labels(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a", 2, labels={"owner": "ann"})))
    assert done("add", source, new) == "a version 2 already exists\n"
    assert done("add", source, written(new, rule("a", 2, labels={"owner": "bob"}))).startswith("a version 2 added")
    assert [one.item["labels"] for one in rules_at(source).all()] == [{"owner": "bob"}]
    assert done("add", source, new) == "a version 2 already exists\n"


def test_rules_that_expire_are_listed_and_validated_with_their_times(source: str, new: Path) -> None:
    times = {"timestamp": "2026-01-31T12:00:00Z", "expires": "2026-02-01T12:00:00Z"}
    done("add", source, written(new, rule("a", **times, suppress={"for": "1 hour"}), rule("b")))
    assert [one.item.get("suppress") for one in rules_at(source).all()] == [{"for": "1 hour"}, None]
    head, line = (line for line in done("list", source).splitlines() if "id" in line or "2026-02-01" in line)
    assert "until" in head
    assert "2026-01-31" in line
    assert "expires 2026-02-01T12:00:00+00:00" in done("validate", source)
    assert done("add", source, new) == "a version 1 already exists\nb version 1 already exists\n"
    changed = rule("a", **times | {"expires": "2026-03-01T12:00:00Z"}, suppress={"for": "60 minutes"})
    assert done("add", source, written(new, changed)).startswith("a version 1 added")
    assert "expires 2026-03-01T12:00:00+00:00" in done("validate", source)


def test_a_rule_that_would_never_be_in_force_is_told_with_its_place(tmp_path: Path, new: Path) -> None:
    both = {"timestamp": "2026-01-31T12:00:00Z", "expires": "2026-01-31T12:00:00Z"}
    output = failed("validate", written(new, rule("a", **both), rule("b")), status=1)
    assert "a version 1: expires must be after timestamp" in output
    assert "b version 1: ok" in output


def test_a_version_that_could_not_be_used_is_replaced(tmp_path: Path, new: Path) -> None:
    kept = written(tmp_path / "kept.json", rule("a", 2, pattern={}))
    done("add", kept, written(new, rule("a", 2)))
    assert in_use(str(kept)) == {"a": 2}
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    done("create", url)
    done("add", url, new)
    connection = sqlite3.connect(tmp_path / "rules.db")
    with connection:
        connection.execute("UPDATE pattern_processors SET pattern = '{}'")
    connection.close()
    assert in_use(url) == {}
    done("add", url, new)
    assert in_use(url) == {"a": 2}


def test_versions_that_come_into_force_in_turn(source: str, new: Path) -> None:
    first, second, third = rule("a"), rule("a", 2, timestamp="2030-01-01"), rule("a", 3, timestamp="2031-01-01")
    done("add", source, written(new, first))
    assert done("apply", written(new, first, second, third), source).endswith("2 added\n")
    assert done("apply", new, source) == "no differences\n"
    assert [line.partition(": ")[2][:15] for line in done("validate", source).splitlines()] == [
        f"a version {n}: ok" for n in (1, 2, 3)
    ]
    assert done("disable", source, "a", "--version", 3) == "a version 3 disabled\n"
    done("apply", written(new, first, third), source)
    assert [(one.version, one.state) for one in rules_at(source).all() if one.state == "on"] == [(1, "on"), (3, "on")]


def test_wrong_rules_are_told_and_none_is_added(source: str, new: Path) -> None:
    output = failed("add", source, written(new, rule("a"), rule("b", -1), rule("a", 2)), status=1)
    column = new.read_text().index("-1") + 1
    assert output.splitlines() == [
        f"{new}:1:{column}: b version -1: a version must be an integer from 0 to 2147483647, not -1",
        f"{new}: a version 2: two processors have this id",
    ]
    assert "://" not in source or in_use(source) == {}


def test_what_is_not_there_is_told(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a")))
    for arguments in (("remove", source, "b"), ("disable", source, "b"), ("enable", source, "b")):
        assert failed(*arguments) == "Error: [RULE_NOT_FOUND] there is no processor 'b'\n"
    assert (
        failed("enable", source, "a", "--version", 7) == "Error: [RULE_NOT_FOUND] there is no processor 'a' version 7\n"
    )
    assert (
        failed("remove", source, "a", "--version", 7) == "Error: [RULE_NOT_FOUND] there is no processor 'a' version 7\n"
    )
    assert in_use(source) == {"a": 1}


@pytest.mark.parametrize("command", ["remove", "disable", "enable"])
def test_several_rules_are_changed_all_or_none(source: str, new: Path, command: str) -> None:
    off = command == "enable"
    done("add", source, written(new, *(rule(id, enabled=not off) for id in "abc")))
    before = in_use(source)
    assert failed(command, source, "a", "b", "nope") == "Error: [RULE_NOT_FOUND] there is no processor 'nope'\n"
    assert in_use(source) == before
    assert len(done(command, source, "a", "c", "a").splitlines()) == 2
    assert in_use(source) == ({"a": 1, "c": 1} if off else {"b": 1})


def test_list_shows_all(source: str, new: Path) -> None:
    done("add", source, written(new, rule("a", enabled=False), FULL))
    lines = [line for line in done("list", source).splitlines() if "│" in line]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert cells == [
        ["a", "1", "off", "", "", "1 stage (a), NO_SKIP"],
        [
            "full",
            "3",
            "on",
            "2026-01-31T12:00:00+00:00",
            "user, LOWER(item)",
            "1 stage (a), NO_SKIP; LAST(a.price) AS p",
        ],
    ]


def test_validate_says_what_is_wrong(source: str, new: Path) -> None:
    done("add", source, written(new, FULL, rule("off", enabled=False)))
    columns = [part for name in ("user", "item") for part in ("--column", f"{name}:string")]
    output = done("validate", source, *columns, "--column", "price:double")
    assert [line.partition(": ")[2] for line in output.splitlines()] == [
        "full version 3: ok, 1 stage (a), NO_SKIP",
        "off version 1: ok, off, 1 stage (a), NO_SKIP",
    ]
    output = failed("validate", source, *columns, status=1)
    assert output.count("pattern: a: condition: unknown column 'price'") == 2


# ---------------------------------------------------------------------- databases


@pytest.fixture
def table(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    done("create", url)
    return url


def test_a_table_keeps_older_versions(table: str, new: Path) -> None:
    for version in (1, 2, 3):
        done("add", table, written(new, rule("a", version)))
    assert [(one.version, one.state) for one in rules_at(table).all()] == [(1, "older"), (2, "older"), (3, "on")]
    assert "version 2 is not" not in failed("add", table, written(new, rule("a", 0)))
    # Off means off: no older version comes back.
    done("disable", table, "a")
    assert in_use(table) == {}
    assert done("enable", table, "a") == "a version 3 enabled\n"
    assert in_use(table) == {"a": 3}
    assert done("enable", table, "a", "--version", 2) == "a version 2 enabled\n"
    assert in_use(table) == {"a": 2}
    assert done("remove", table, "a", "--version", 2) == "a version 2 removed\n"
    assert in_use(table) == {}
    done("enable", table, "a", "--version", 1)
    done("remove", table, "a")
    assert rules_at(table).all() == []


def test_a_promoted_version_of_a_table_is_the_only_one_in_use(table: str, new: Path) -> None:
    """Higher versions and other shadows are disabled."""
    for one in (rule("a"), rule("a", 2, shadow=True), rule("a", 3, shadow=True), rule("a", 5)):
        done("add", table, written(new, one))
    assert shadows_in(table) == [("a", 3, True), ("a", 5, False)]
    done("promote", table, "a")
    assert shadows_in(table) == [("a", 3, False)]
    assert [row[2] for row in cells(done("list", table))] == ["older", "off", "on", "off"]
    for _ in range(2):
        done("enable", table, "a")
        assert shadows_in(table) == [("a", 3, False)]
        done("disable", table, "a")


def test_enabling_a_rule_restores_the_version_that_was_in_use(table: str, new: Path) -> None:
    """Not the highest one, if the rule was rolled back."""
    for version in (1, 2, 3):
        done("add", table, written(new, rule("a", version)))
    done("rollback", table, "a", "--version", 1)
    done("disable", table, "a")
    done("disable", table, "a")
    assert in_use(table) == {}
    assert done("enable", table, "a") == "a version 1 enabled\n"
    assert in_use(table) == {"a": 1}
    done("enable", table, "a", "--version", 3)
    done("disable", table, "a", "--version", 3)
    assert in_use(table) == {"a": 1}
    assert done("enable", table, "a") == "a version 1 enabled\n", "version 3 was withdrawn"
    done("disable", table, "a", "--version", 1)
    done("enable", table, "a")
    assert in_use(table) == {"a": 1}


def test_a_table_of_an_earlier_release_does_not_guess_which_version_to_enable(table: str, new: Path) -> None:
    with sqlite3.connect(table.removeprefix("sqlite:///")) as connection:
        connection.execute("ALTER TABLE pattern_processors DROP COLUMN withdrawn")
    for version in (1, 2):
        done("add", table, written(new, rule("a", version)))
    done("disable", table, "a")
    assert "it is not known which of the versions 1, 2 of 'a' was in use" in failed("enable", table, "a")
    assert done("enable", table, "a", "--version", 1) == "a version 1 enabled\n"
    assert done("enable", table, "a") == "a version 1 enabled\n"


def test_a_table_of_an_earlier_release_has_no_shadows(tmp_path: Path, new: Path) -> None:
    database = tmp_path / "old.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE pattern_processors (id TEXT, version INTEGER, pattern TEXT, enabled BOOLEAN)")
    source = f"sqlite:///{database}"
    done("add", source, written(new, rule("a")))
    assert shadows_in(source) == [("a", 1, False)]
    assert "has no column shadow" in failed("add", source, written(new, rule("a", 2, shadow=True)))
    assert "'a' has no shadow" in failed("promote", source, "a")


def test_a_version_below_the_one_in_use_is_not_added(table: str, new: Path) -> None:
    done("add", table, written(new, rule("a", 5)))
    output = failed("add", table, written(new, rule("a", 4)))
    assert (
        output
        == "Error: [PATTERN_PROCESSOR] a version 4 would not be used, because version 5 exists\n  Hint: raise the version\n"
    )


def test_validate_leaves_out_older_versions(table: str, new: Path) -> None:
    done("add", table, written(new, rule("a", 1), rule("b", 1)))
    done("add", table, written(new, rule("a", 2)))
    assert done("validate", table).splitlines() == [
        "pattern_processors: a version 2: ok, 1 stage (a), NO_SKIP",
        "pattern_processors: b version 1: ok, 1 stage (a), NO_SKIP",
    ]


def test_create_makes_a_table_once_and_in_a_database_only(table: str, tmp_path: Path) -> None:
    assert failed("create", table) == "Error: [PATTERN_PROCESSOR] there is a table 'pattern_processors' already\n"
    assert done("create", table, "--table", "others") == "table others created\n"
    assert "is not the URL of a database" in failed("create", tmp_path / "rules.json")


def test_a_version_that_is_twice_is_wrong(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    connection = sqlite3.connect(tmp_path / "rules.db")
    with connection:
        connection.execute("CREATE TABLE rules (id TEXT, version INT, pattern TEXT)")
        for id in ("a", "b", "b"):
            connection.execute("INSERT INTO rules VALUES (?, 1, ?)", (id, json.dumps(graph())))
    connection.close()
    assert [(one.id, one.state) for one in rules_at(url, "rules").all()] == [
        ("a", "on"),
        ("b", "wrong"),
        ("b", "wrong"),
    ]
    assert done("list", url, "--table", "rules").count("2 rows have this version") == 2
    assert failed("validate", url, "--table", "rules", status=1).count("b version 1: 2 rows have this version") == 2


def test_a_table_of_other_types(database: str, new: Path, postgresql: Server) -> None:
    with psycopg.connect(database) as connection:
        connection.execute(
            'CREATE TABLE rules (id TEXT, version BIGINT, "timestamp" BIGINT, key JSONB, pattern JSONB, "select" TEXT,'
            " enabled SMALLINT, timed_out BOOLEAN, max_partial_matches TEXT)"
        )
    done("add", database, written(new, FULL, rule("a")), "--table", "rules")
    found = {one.id: one for one in rules_at(database, "rules").all()}
    assert PatternProcessor.from_dict(found["full"].item) == PatternProcessor.from_dict(FULL)
    done("disable", database, "a", "--table", "rules")
    assert [one.state for one in rules_at(database, "rules").all()] == ["off", "on"]
    output = failed("add", database, written(new, rule("f", function="report")), "--table", "rules")
    assert output == "Error: [PATTERN_PROCESSOR] the table 'rules' has no column function\n"


def test_a_table_of_flip_200s_form_is_shown_and_not_changed(database: str, new: Path) -> None:
    with psycopg.connect(database) as connection:
        connection.execute("CREATE TABLE rules (uid INT, className TEXT, constructorParams TEXT)")
        connection.execute(
            """INSERT INTO rules VALUES (1, 'Dummy', '[{"type": "int", "value": 7}]'), (2, 'Dummy', '[5]')"""
        )
    output = done("list", database, "--table", "rules")
    assert "Dummy(7)" in output
    assert "parameter 1 must have a type and a value" in output
    assert failed("validate", database, "--table", "rules", status=1).splitlines()[:2] == [
        "rules: 1: ok, Dummy with 1 parameters",
        "rules:1:1: 2: parameter 1 must have a type and a value",
    ]
    for arguments in (
        ("add", database, written(new, rule("a"))),
        ("remove", database, "1"),
        ("disable", database, "1"),
    ):
        assert "the table 'rules' has the layout of FLIP-200" in failed(*arguments, "--table", "rules")


def test_a_password_is_not_told(postgresql: Server) -> None:
    url = f"{postgresql.address}/nothing"
    output = failed("list", url)
    assert postgresql.password not in output
    assert 'database "nothing" does not exist' in output


# ---------------------------------------------------------------------- files


def test_a_folder_is_shown_and_its_files_are_changed(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    written(folder / "one.json", rule("a"), rule("b"))
    written(folder / "two.json", rule("c"))
    (folder / "bad.json").write_text("{", encoding="utf-8")
    assert [(one.id, one.state) for one in rules_at(str(folder)).all()] == [
        ("the whole file", "wrong"), ("a", "on"), ("b", "on"), ("c", "on"),
    ]  # fmt: skip
    assert "1 wrong" in done("list", folder)
    assert "two.json: c version 1: ok" in failed("validate", folder, status=1)
    assert "bad.json" in done("list", folder)
    assert "bad.json" in failed("disable", folder, "c")
    (folder / "bad.json").unlink()
    done("disable", folder, "c")
    done("remove", folder, "a")
    assert in_use(str(folder)) == {"b": 1}
    assert "is a folder" in failed("add", folder, folder / "one.json")


def test_commands_at_the_same_time_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    begin = threading.Barrier(8)

    def add(name: str) -> None:
        begin.wait()
        one = rule(name)
        for version in (1, 2, 3):
            one = one | {"version": version}
            rules_at(str(path)).add([Addition(one, PatternProcessor.from_dict(one))])

    names = [f"r{n}" for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, names))
    assert in_use(str(path)) == dict.fromkeys(names, 3)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    path, other = written(tmp_path / "rules.json", rule("a")), written(tmp_path / "other", "keep")
    (tmp_path / LOCK).symlink_to(other)
    assert f"{tmp_path} cannot be written" in failed("disable", path, "a")
    assert in_use(str(path)) == {"a": 1}
    assert other.read_text() == '["keep"]'


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """A folder with two versions of a rule."""
    folder = tmp_path / "rules"
    folder.mkdir()
    written(folder / "a.json", rule("x"), rule("y"))
    written(folder / "b.json", rule("x", 2), rule("z"))
    return folder


def test_the_same_id_in_two_files_is_shown(twice: Path) -> None:
    found = {(one.id, one.version): one.state for one in rules_at(str(twice)).all()}
    assert found == {("x", 1): "on", ("y", 1): "on", ("x", 2): "wrong", ("z", 1): "on"}
    assert in_use(str(twice)) == {"x": 1, "y": 1, "z": 1}
    output = done("list", twice)
    assert f"two processors have this id, the other is in {twice / 'a.json'}" in output
    assert "3 on, 1 wrong" in output
    output = failed("validate", twice, status=1)
    assert f"b.json: x version 2: two processors have this id, the other is in {twice / 'a.json'}" in output
    # One that is off is no other one, and items without an id are wrong in another way.
    written(twice / "a.json", rule("x", enabled=False), {"version": 1})
    written(twice / "b.json", {"version": 1}, rule("x", 2))
    assert [one.state for one in rules_at(str(twice)).all()] == ["off", "on", "on", "on"]
    assert "a processor needs 'id'" in done("list", twice)


def test_a_shadow_in_another_file_is_promoted_where_the_rule_is(tmp_path: Path) -> None:
    """In two steps, after each of which a query has the promoted version."""
    folder = tmp_path / "rules"
    folder.mkdir()
    first = written(folder / "1.json", rule("a"), rule("b", 2, shadow=True))
    second = written(folder / "2.json", rule("a", 2, shadow=True), rule("b"))
    assert {row[2] for row in cells(done("list", folder))} == {"on", "shadow"}
    assert done("promote", folder, "a", "b") == "a version 2 promoted\nb version 2 promoted\n"
    assert json.loads(first.read_text()) == {"processors": [rule("a", 2)]}
    assert json.loads(second.read_text()) == {"processors": [rule("b", 2)]}
    third = written(folder / "3.json", rule("a", 2, shadow=True), rule("b", 7, shadow=True))
    assert "version 2 is in force, so it cannot be a shadow, too" in failed("validate", folder, status=1)
    written(folder / "4.json", rule("b", 8, shadow=True))
    assert "several shadows have the id 'b'" in failed("promote", folder, "b")
    assert "two shadows have this id" in failed("validate", folder, status=1)
    assert third.exists()


def test_the_same_id_in_two_files_is_off_in_both(twice: Path) -> None:
    assert done("disable", twice, "x") == "x disabled\n"
    assert in_use(str(twice)) == {"y": 1, "z": 1}
    assert {one.state for one in rules_at(str(twice)).all() if one.id == "x"} == {"off"}
    assert done("enable", twice, "x", "--version", 2) == "x enabled\n"
    assert in_use(str(twice)) == {"x": 2, "y": 1, "z": 1}
    assert done("enable", twice, "x", "--version", 1) == "x enabled\n"
    assert in_use(str(twice)) == {"x": 1, "y": 1, "z": 1}
    output = failed("enable", twice, "x")
    assert "several processors have the id 'x'" in output
    assert f"They are in {twice / 'a.json'}, {twice / 'b.json'}." in output
    assert in_use(str(twice)) == {"x": 1, "y": 1, "z": 1}


def test_the_same_id_in_two_files_is_removed_from_both(twice: Path) -> None:
    assert done("remove", twice, "x", "--version", 1) == "x version 1 removed\n"
    assert in_use(str(twice)) == {"x": 2, "y": 1, "z": 1}
    written(twice / "a.json", rule("x"), rule("x", 3), rule("y"))
    assert done("remove", twice, "x") == "x removed\n"
    assert in_use(str(twice)) == {"y": 1, "z": 1}


def test_a_rule_that_is_twice_in_a_file_is_not_replaced(tmp_path: Path, new: Path) -> None:
    path = written(tmp_path / "rules.json", rule("x"), rule("x", 2))
    assert "has 2 processors with the id 'x'" in failed("add", path, written(new, rule("x", 3)))
    assert in_use(str(path)) == {"x": 1}


@pytest.mark.timeout(120)
def test_what_is_not_a_file_holds_up_no_command(twice: Path, new: Path) -> None:
    os.mkfifo(twice / "pipe.json")
    (twice / "loop.json").symlink_to("loop.json")
    output = done("list", twice)
    assert "pipe.json is not a file" in output
    assert "loop.json cannot be read" in output
    assert "3 wrong" in output
    for path in (twice / "pipe.json", twice / "loop.json"):
        assert ("is not a file" in failed("list", path)) or ("cannot be read" in failed("list", path))
        failed("add", path, written(new, rule("a")))
        failed("add", twice / "a.json", path)
    failed("disable", twice, "z")


def test_comments_in_yaml_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    text = "# ours\nprocessors:\n# why\n- " + json.dumps(rule("a")) + "  # flow\n# last\n"
    path.write_text(text, encoding="utf-8")
    done("disable", path, "a")
    assert path.read_text() == text.replace('"a", "version"', '"a", enabled: false, "version"')
    done("enable", path, "a")
    assert in_use(str(path)) == {"a": 1}
    assert path.read_text() == text.replace('"a", "version"', '"a", enabled: true, "version"')
    done("enable", path, "a")
    done("remove", path, "a")
    assert path.read_text() == "# ours\nprocessors:\n# why\n  []\n# last\n"
    done("add", path, written(tmp_path / "new.json", rule("b")))
    assert in_use(str(path)) == {"b": 1}
    assert [line for line in path.read_text().splitlines() if "#" in line] == ["# ours", "# why", "# last"]


def test_a_promotion_keeps_comments_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    text = """# Ours
- id: a  # old
  version: 1
  sql: PATTERN (A) DEFINE A AS x > 1
# To be tried
- id: a
  shadow: true  # for now
  version: 2  # new
  sql: PATTERN (A) DEFINE A AS x > 2
- {id: b, version: 1, sql: PATTERN (A) DEFINE A AS x > 3}
"""
    path.write_text(text)
    assert done("promote", path, "a") == "a version 2 promoted\n"
    assert (
        path.read_text()
        == """# Ours
# To be tried
- id: a
  version: 2  # new
  sql: PATTERN (A) DEFINE A AS x > 2
- {id: b, version: 1, sql: PATTERN (A) DEFINE A AS x > 3}
"""
    )
    path.write_text("- shadow: true\n  id: a  # first\n  version: 1\n  sql: PATTERN (A) DEFINE A AS x > 1\n")
    done("promote", path, "a")
    assert "shadow" not in path.read_text()


def test_what_cannot_be_changed_without_losing_comments_is_not(tmp_path: Path) -> None:
    """Of a list in brackets, and of one rule alone."""
    for text in (f"[ # why\n {json.dumps(rule('a'))}]", f"# why\n{json.dumps(rule('a'))}"):
        path = tmp_path / "rules.yaml"
        path.write_text(text, encoding="utf-8")
        assert "seems to have comments" in failed("remove", path, "a")
        assert path.read_text() == text
        path.write_text(text.replace("# why", ""), encoding="utf-8")
        done("remove", path, "a")
        assert path.read_text() == "processors: []\n"


def test_a_key_cannot_name_a_stage(tmp_path: Path) -> None:
    path = written(tmp_path / "rules.json", rule("a", key=["LAST(a.user)"]))
    assert "key: unknown stage 'a'" in failed("validate", path, status=1)


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in failed("list", tmp_path / "none.json")
    assert "there is no database" in failed("list", f"sqlite:///{tmp_path / 'none.db'}")
    assert "the URL of the database cannot be parsed" in failed("list", "://")
    assert not list(tmp_path.iterdir())


def test_ids_cannot_command_the_terminal(tmp_path: Path) -> None:
    path = written(tmp_path / "rules.json", rule("a\x1b[2J", pattern={"\x1b[2J": 1}), {"id": "\x1b[2J"})
    for command in ("list", "validate"):
        assert "\x1b[2J" not in run(command, path).output


def test_the_command_says_what_it_can_do() -> None:
    output = done("--help")
    for command in ("add", "create", "disable", "enable", "list", "remove", "validate"):
        assert f"  {command} " in output
        assert done(command, "--help")


# ---------------------------------------------------------------------- a query's own folder


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if line.startswith("│")]


def test_the_status_tells_what_is_in_force(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([ab(1), ab(2, "[red]cd[/]", timestamp=datetime(2026, 1, 31, 12, tzinfo=UTC))])
    manager.planned(1, 0)
    manager.store.write_counts(
        RuleCounts({("ab", 1): VersionCounts(1, 12, 3, 1, 4, 2, 1_000_000, "division by zero", events=70)}, missed=5)
    )
    shown = done("status", tmp_path)
    [first, second] = cells(shown)
    since = manager.current_status().rules[0].since[:19]
    last = "1970-01-01T00:00:01"
    assert first == ["ab", "1", "disabled in 2 key groups", since, "12", "3", "1", "70", "4", last]
    assert second == ["[red]cd[/]", "2", "waiting", "2026-01-31T12:00:00", "", "", "", "", "", ""]
    assert "the counts do not include 5 micro-batches\n" in shown
    assert "disabled: ab@1: division by zero\n" in shown
    found = json.loads(done("status", tmp_path, "--json"))
    assert [(rule["id"], rule["state"]) for rule in found["rules"]] == [("ab", "disabled"), ("[red]cd[/]", "waiting")]
    manager.close()


def test_the_status_has_shadows(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([ab(1), ab(2, shadow=True)])
    manager.planned(1, 0)
    manager.store.write_counts(RuleCounts({("ab", 2): VersionCounts(1, shadow_matches=7)}))
    shown = done("status", tmp_path)
    assert "set 1: 1 rules, 1 shadows\n" in shown
    assert [row[1:3] + row[4:6] for row in cells(shown)] == [["1", "in force", "", ""], ["2", "shadow", "", "7"]]
    manager.close()


def test_the_status_of_an_endpoint_needs_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTERISM_TOKEN", raising=False)
    assert "the token of the endpoint is required" in failed("status", "http://127.0.0.1:9")
    monkeypatch.setenv("ASTERISM_TOKEN", "a-long-random-secret")
    assert "http://127.0.0.1:9/status cannot be read" in failed("status", "http://127.0.0.1:9")


def test_status_and_kill_of_a_query(tmp_path: Path) -> None:
    manager = coordinator(tmp_path / "checkpoint" / "pattern_processors")
    manager.on_pattern_processors_updated([ab(3)])
    checkpoint = tmp_path / "checkpoint"
    shown = done("status", checkpoint)
    assert "set 1: 1 rules\n" in shown
    assert cells(shown) == [["ab", "3", "pending", "", "", "", "", "", "", ""]]
    assert done("killed", checkpoint) == "no rules\n"
    output = done("kill", checkpoint, "ab@3", "cd", "--reason", "too dear")
    assert output == "ab@3 killed\ncd killed; no rule in force has this name, so it has no effect yet\n"
    assert [line.partition(", since ")[0] for line in done("killed", checkpoint).splitlines()] == ["ab@3", "cd"]
    manager._apply_kill_list()
    shown = done("status", checkpoint / "pattern_processors")
    assert "killed: ab@3: too dear\n" in shown
    assert "INFO pattern processors 2: ab@3 killed: too dear" in shown
    assert done("unkill", checkpoint, "cd") == "cd is admitted again, with its next version\n"
    assert "'cd' is not killed" in failed("unkill", checkpoint, "cd")
    manager.on_discovery_failed(ConnectionError("gone"))
    assert "interrupted since " in failed("status", checkpoint, status=1)
    assert "is not the checkpoint of a query with pattern processors" in failed("status", tmp_path)
    assert "is not the checkpoint of a query with pattern processors" in failed("kill", tmp_path / "nowhere", "ab")
    assert not (tmp_path / "nowhere").exists()


def test_a_rule_whose_id_looks_like_a_version_is_killed_by_its_own_name(tmp_path: Path) -> None:
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([ab(1, "victim@3")])
    assert done("kill", tmp_path, "victim@3").endswith(
        "so it has no effect yet; the rule whose id is 'victim@3' is 'victim@3@'\n"
    )
    assert done("kill", tmp_path, "victim@3@") == "victim@3@ killed\n"
    manager._apply_kill_list()
    assert manager.store.retained()[-1].killed == ("victim@3@",)


def test_a_reason_that_is_not_utf_8_is_no_obstacle(tmp_path: Path) -> None:
    """A shell hands its bytes over as halves of surrogate pairs; in an emergency the rule is taken out all the same."""
    manager = coordinator(tmp_path)
    manager.on_pattern_processors_updated([ab(1)])
    assert done("kill", tmp_path, "ab", "--reason", "zu gro\udcdf") == "ab killed\n"
    assert done("kill", tmp_path, "ab@1") == "ab@1 killed\n"  # which reads it, and writes it again
    manager._apply_kill_list()
    assert manager.store.retained()[-1].killed == ("ab", "ab@1")
    assert "killed: ab: zu gro\\udcdf\n" in done("status", tmp_path)
    assert r"zu gro\udcdf" in done("killed", tmp_path)
    assert "this is not the name of a pattern processor" in failed("kill", tmp_path, "\udcff")


@pytest.mark.parametrize("name", ["killed.json", "status.json", "retained.json"])
def test_files_of_a_store_that_cannot_be_read_are_told(tmp_path: Path, name: str) -> None:
    coordinator(tmp_path).on_pattern_processors_updated([ab(1)])
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    commands = {"killed.json": ["killed", "kill", "unkill"], "status.json": ["status"], "retained.json": ["kill"]}[name]
    for command in commands:
        output = failed(command, tmp_path, *(["ab"] if "kill" in command and command != "killed" else []))
        assert name in output
        assert "Is a directory" in output


@pytest.mark.parametrize("command", ["list", "validate", "create", "remove", "enable", "disable"])
def test_what_is_not_utf_8_is_no_name_in_a_database(tmp_path: Path, command: str) -> None:
    source = f"sqlite:///{tmp_path / 'rules.db'}"
    done("create", source)
    ids = ["a"] if command.endswith(("able", "ove")) else []
    assert "an unpaired surrogate" in failed(command, source, *ids, "--table", "\udcff")
    if ids:
        assert "\\udcff" in failed(command, source, "\udcff")


# ---------------------------------------------------------------------- templates

TEMPLATE: Rule = {
    "id": "high",
    "version": 1,
    "parameters": {"limit": "number", "owner": "string"},
    "rows": [{"id": "eu", "limit": 5, "owner": "ann"}, {"id": "us", "limit": 7, "owner": "bob", "enabled": False}],
    "pattern": graph("price > :limit"),
    "labels": {"owner": ":owner"},
}


def test_templates_are_added_listed_and_changed(source: str, new: Path) -> None:
    assert done("add", source, written(new, TEMPLATE)) == "template high added\n"
    assert set(in_use(source)) == {"high/eu"}
    listed = done("list", source)
    assert "high/eu" in listed
    assert listed.endswith("1 on, 1 off\n")
    assert done("add", source, written(new, TEMPLATE)) == "template high already exists\n"
    before = in_use(source)
    changed = {**TEMPLATE, "rows": [*TEMPLATE["rows"], {"id": "uk", "limit": 9, "owner": "cyd"}]}
    done("add", source, written(new, changed))
    assert set(in_use(source)) == {"high/eu", "high/uk"}
    assert in_use(source)["high/eu"] == before["high/eu"]
    if "://" not in source:
        assert "change the row of the template 'high'" in failed("disable", source, "high/eu")
    assert done("disable", source, "high") == "high disabled\n"
    assert in_use(source) == {}
    assert done("list", source).endswith("3 off\n")
    done("enable", source, "high")
    done("remove", source, "high")
    assert done("list", source).endswith("no rules\n")


def test_what_is_wrong_with_a_template_is_said_once(new: Path) -> None:
    rows = [{"id": str(n), "limit": n, "owner": "ann"} for n in range(20)] + [
        {"id": "bad", "limit": "5", "owner": "ann"}
    ]
    text = json.dumps([{**TEMPLATE, "rows": rows, "pattern": graph("prise > :limit")}], indent=1)
    new.write_text(text)
    output = failed("validate", new, "--column", "price:double", status=1)
    assert output.count("unknown column 'prise'") == 1
    assert "template high: the same problems in 19 more rules" in output
    line = text[: text.index('"bad"')].count("\n")
    assert f"{new}:{line}:" in output.replace(f":{line + 1}:", f":{line}:")
    assert "template 'high', row 'bad': the parameter 'limit' must be a number, not '5'" in output
    good = written(new, TEMPLATE)
    assert done("validate", good, "--column", "price:double").count(": ok") == 2


def test_the_other_commands_take_a_rule_of_a_template(new: Path) -> None:
    tests = [{"name": "good", "literals": {"value": "price"}, "events": "x9 x4", "matches": ["x9"]}]
    written(new, {**TEMPLATE, "tests": tests})
    assert "2 passed" in done("test", new)
    assert "1 passed" in done("test", new, "high/eu")
    result = CliRunner().invoke(main, ["explain", f"{new}#high/eu"])
    assert result.exit_code == 0, result.output
    assert "price > 5" in result.output
