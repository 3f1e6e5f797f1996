"""The errors for invalid rules and places of rules; ``golden/discovery/<name>.txt`` holds the text.

An error has its type and its text, a refused rule the line that goes to the log, ``asterism rules validate`` all that it
prints.
"""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from asterism.discovery import (
    FilePatternProcessorDiscovererFactory,
    HttpPatternProcessorDiscovererFactory,
    KafkaPatternProcessorDiscovererFactory,
    SqlPatternProcessorDiscovererFactory,
    UrlPatternProcessorDiscovererFactory,
    create_pattern_processor_table,
)
from asterism.discovery.rest.rule_file import StoredRuleFile
from asterism.discovery.sources.sources import factory_of
from asterism.errors import AsterismError
from asterism.patterns.pattern import Pattern
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import PatternProcessorDiscovererFactory, ProcessorRegistry, RefusedProcessor
from tests.discovery.kit import put
from tests.kit import Golden
from tests.patterns.test_pattern_texts import graph, node

FOLDER = Path("here")
"""Everything that is made is in a folder of this name below the working directory."""
TOKEN = "a-token-of-some-length"
PATTERN = graph(node("a"))


def rule(**fields: Any) -> dict[str, Any]:
    return {"id": "fraud-7", "version": 3, "pattern": PATTERN} | fields


def begin(factory: PatternProcessorDiscovererFactory) -> Sequence[Any]:
    return factory.create_pattern_processor_discoverer().initial_pattern_processors()


def in_file(text: str | bytes, name: str = "rules.json") -> Sequence[Any]:
    path = FOLDER / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return begin(FilePatternProcessorDiscovererFactory(path))


def in_folder() -> Sequence[Any]:
    return begin(FilePatternProcessorDiscovererFactory(FOLDER))


def in_folder_link(target: str) -> Sequence[Any]:
    (FOLDER / "link.json").symlink_to(target)
    return in_folder()


def in_table(*statements: str, table: str = "pattern_processors") -> Sequence[Any]:
    create_pattern_processor_table(f"sqlite:///{FOLDER}/rules.db")
    connection = sqlite3.connect(FOLDER / "rules.db")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    registry = ProcessorRegistry(
        {"Dummy": lambda n: PatternProcessor("dummy", n, Pattern.begin("a")), "Sad": lambda: None}
    )
    return begin(SqlPatternProcessorDiscovererFactory(f"sqlite:///{FOLDER}/rules.db", table, registry=registry))


def flip(name: str, parameters: str) -> Callable[[], Sequence[Any]]:
    create = "CREATE TABLE rules (uid INT, className TEXT, constructorParams TEXT)"
    return lambda: in_table(create, f"INSERT INTO rules VALUES (1, '{name}', '{parameters}')", table="rules")


def row(column: str, value: str) -> Callable[[], Sequence[Any]]:
    insert = f"INSERT INTO pattern_processors (id, version, pattern) VALUES ('fraud-7', 3, '{json.dumps(PATTERN)}')"
    return lambda: in_table(insert, f'UPDATE pattern_processors SET "{column}" = {value}')


def item(**fields: Any) -> Callable[[], Sequence[Any]]:
    return lambda: in_file(json.dumps([rule(**fields)]))


def two_versions() -> object:
    rules = StoredRuleFile(FOLDER / "set.json")
    put(rules, rule())
    return put(rules, rule(key=["user"]))


def in_set(item: dict[str, Any]) -> object:
    return StoredRuleFile(FOLDER / "set.json").checked(item)


def sql_condition(text: str) -> dict[str, str]:
    return {"type": "SQL", "expression": text}


def sql(url: str) -> Callable[[], object]:
    return lambda: begin(SqlPatternProcessorDiscovererFactory(url))


def topic(options: dict[str, Any]) -> Callable[[], object]:
    return lambda: begin(KafkaPatternProcessorDiscovererFactory("broker:9092", "rules", options=options))


def without_client() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "confluent_kafka", None)
        return topic({})()


def with_config(text: str | None) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASTERISM_KAFKA_CONFIG", str(FOLDER / "kafka.conf"))
        if text is not None:
            (FOLDER / "kafka.conf").write_text(text)
        return factory_of("kafka://broker:9092/rules")


def endpoint(**options: Any) -> Callable[[], object]:
    return lambda: HttpPatternProcessorDiscovererFactory(8473, **{"token": TOKEN, "state": "set.json", **options})


ERRORS: dict[str, Callable[[], object]] = {
    "file_missing": lambda: begin(FilePatternProcessorDiscovererFactory(FOLDER / "none.json")),
    "database_missing": sql(f"sqlite:///{FOLDER}/none.db"),
    "database_in_memory": sql("sqlite://"),
    "database_url": sql("localhost/rules"),
    "database_url_with_two_ats": sql("postgresql://rules:p@ss@localhost/rules"),
    "database_unknown": sql("nosuch://rules:hunter2@localhost/rules"),
    "database_driver": sql("oracle://rules:hunter2@localhost/rules"),
    "database_is_none": lambda: (
        (FOLDER / "rules.db").write_bytes(b"no database" * 100),
        sql(f"sqlite:///{FOLDER}/rules.db")(),
    ),
    "table_missing": lambda: in_table(table="rules"),
    "table_of_other_columns": lambda: in_table("CREATE TABLE rules (id TEXT, rule TEXT)", table="rules"),
    "interval_number": lambda: FilePatternProcessorDiscovererFactory(FOLDER, interval=5),  # type: ignore[arg-type]
    "table_there": lambda: (in_table(), in_table()),
    "url_scheme": lambda: UrlPatternProcessorDiscovererFactory("file:///etc/rules.json"),
    "url_with_password": lambda: UrlPatternProcessorDiscovererFactory("https://user:hunter2@example.com/rules.json"),
    "url_header": lambda: UrlPatternProcessorDiscovererFactory("https://example.com/", headers={"X": "a\nb"}),
    "url_refuses": lambda: begin(UrlPatternProcessorDiscovererFactory("http://127.0.0.1:1/rules.json?token=hunter2")),
    "topic_servers": lambda: KafkaPatternProcessorDiscovererFactory("127.0.0.1;9092", "rules"),
    "topic_server_with_password": lambda: KafkaPatternProcessorDiscovererFactory("rules:hunter2@broker:9092", "rules"),
    "topic_name": lambda: KafkaPatternProcessorDiscovererFactory("broker:9092", "fraud/rules"),
    "topic_option_is_set": topic({"isolation.level": "read_uncommitted"}),
    "topic_option_unknown": topic({"sasl.pasword": "hunter2"}),
    "topic_option_invalid": topic({"security.protocol": "hunter2", "sasl.password": "hunter2"}),
    "topic_without_client": without_client,
    "topic_config_missing": lambda: with_config(None),
    "topic_config_line": lambda: with_config("# mine\nsasl.username=ann\nsasl.password hunter2\n"),
    "topic_config_is_set": lambda: with_config("isolation.level=read_uncommitted\n"),
    "endpoint_token": endpoint(token="short"),
    "endpoint_in_clear": endpoint(host="0.0.0.0"),
    "endpoint_version_is_there": two_versions,
    "endpoint_port": lambda: HttpPatternProcessorDiscovererFactory(70000, token=TOKEN, state="set.json"),
    "endpoint_key_alone": endpoint(private_key="key.pem"),
    "endpoint_state_is_none": lambda: ((FOLDER / "set.json").write_text("[{"), StoredRuleFile(FOLDER / "set.json")),
    "endpoint_condition": lambda: in_set(rule(pattern=graph(node("a", condition=sql_condition("price >"))))),
    "endpoint_key": lambda: in_set(rule(key=["(SELECT 1)"])),
    "endpoint_measure": lambda: in_set(rule(select=["LAST(b.price)"])),
}

REFUSED: dict[str, Callable[[], Sequence[Any]]] = {
    "file_link_to_nothing": lambda: in_folder_link("none.json"),
    "file_link_in_a_circle": lambda: in_folder_link("link.json"),
    "file_pipe": lambda: (os.mkfifo(FOLDER / "pipe.json"), in_folder())[1],
    "files_of_one_id": lambda: (
        in_file(json.dumps(rule()), "a.json"),
        in_file(json.dumps(rule()), "b.json"),
        in_folder(),
    )[2],
    "file_empty": lambda: in_file(""),
    "file_not_json": lambda: in_file('[\n  {"id": "a",}\n]'),
    "file_not_utf_8": lambda: in_file(b'[{"id": "\xff"}]'),
    "file_no_list": lambda: in_file('"rules"'),
    "file_other_field": lambda: in_file('{"processors": [], "version": 1}'),
    "yaml_not_yaml": lambda: in_file("- id: a\n - id: b\n", "rules.yaml"),
    "yaml_tag": lambda: in_file("- !!python/name:os.system x\n", "rules.yaml"),
    "yaml_name_twice": lambda: in_file("- id: a\n  id: b\n", "rules.yaml"),
    "yaml_large_by_aliases": lambda: in_file("- &a " + "x" * 10_000 + "\n" + "- *a\n" * 2_000, "rules.yaml"),
    "yaml_recursive": lambda: in_file("- &a [*a]\n", "rules.yaml"),
    "yaml_second_document": lambda: in_file("- id: a\n---\n- id: b\n", "rules.yaml"),
    "item_no_object": lambda: in_file("[5]"),
    "item_without_id": lambda: in_file(json.dumps([{"Id": "a", "version": 1}])),
    "item_twice": lambda: in_file(json.dumps([rule(), rule(version=4)])),
    "item_unknown_field": item(colour="red"),
    "item_nearly_a_field": item(timedout=True),
    "item_negative_version": item(version=-1),
    "item_timestamp": item(timestamp="tomorrow"),
    "item_key": item(key="user"),
    "item_select_and_function": item(select=["LAST(a.x)"], function="report"),
    "item_enabled": item(enabled="yes"),
    "item_pattern": item(pattern=graph(node("a:b"))),
    "item_not_for_terminals": item(id="\x1b[2J", version=[]),
    "row_version": row("version", "'three'"),
    "row_pattern": row("pattern", "'{'"),
    "row_pattern_not_utf_8": row("pattern", "X'FF'"),
    "row_key": row("key", "'[1'"),
    "row_enabled": row("enabled", "'maybe'"),
    "row_without_id": lambda: in_table(
        "CREATE TABLE rules (id TEXT, version INT, pattern TEXT)",
        "INSERT INTO rules VALUES (NULL, 1, '')",
        table="rules",
    ),
    "flip_class": flip("os.system", "[]"),
    "flip_parameters": flip("Dummy", "7"),
    "flip_parameter": flip("Dummy", "[7]"),
    "flip_parameter_type": flip("Dummy", '[{"type": "java.lang.Runtime", "value": 7}]'),
    "flip_parameter_value": flip("Dummy", '[{"type": "int", "value": "7"}]'),
    "flip_parameter_range": flip("Dummy", '[{"type": "byte", "value": 300}]'),
    "flip_parameter_infinite": flip("Dummy", '[{"type": "double", "value": 1e400}]'),
    "flip_fails": flip("Dummy", "[]"),
    "flip_makes_something_else": flip("Sad", "[]"),
}

MANY_PROBLEMS = """\
processors:
- id: fraud-7
  version: 3
  key: [user, (SELECT 1)]
  select: [LAST(a.price) AS price, "LAST(b.price) +"]
  pattern:
    type: COMPOSITE
    nodes:
    - {name: a, type: ATOMIC, quantifier: {properties: [SINGLE]}, condition: {type: SQL, expression: "price >"}}
    - {name: b, type: ATOMIC, quantifier: {properties: [OFTEN]}}
    edges: [{source: a, target: c, type: STRICT}]
- id: fraud-7
  version: 4
  colour: red
  pattern: {type: COMPOSITE, nodes: [{name: a, type: ATOMIC, quantifier: {properties: [SINGLE]}}]}
- version: 1
"""
SCHEMA_PROBLEMS = """\
- id: columns
  version: 1
  key: [usr]
  pattern: &pattern
    type: COMPOSITE
    nodes:
    - name: a
      type: ATOMIC
      quantifier: {properties: [SINGLE]}
      condition: {type: SQL, expression: price > 1}
- {id: measures, version: 1, select: [LAST(a.prize)], pattern: *pattern}
- {id: reads a file, version: 1, key: ["read_csv('/etc/passwd')"], pattern: *pattern}
- {id: good, version: 1, key: [user], select: [LAST(a.price) AS price], pattern: *pattern}
- {id: other stage, version: 1, select: [LAST(z.price)], pattern: *pattern}
"""
VALIDATE: dict[str, tuple[str, tuple[str, ...]]] = {
    "validate_many_problems": (MANY_PROBLEMS, ()),
    "validate_without_columns": (SCHEMA_PROBLEMS, ()),
    "validate_with_columns": (SCHEMA_PROBLEMS, ("--column", "price:double", "--column", "user:string")),
    "validate_not_yaml": ("- id: [", ()),
    "validate_empty": ("", ()),
    "validate_no_rules": ("[]", ()),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / FOLDER).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ERRORS)
def test_text_of_an_error(name: str, golden: Golden, folder: Path) -> None:
    with pytest.raises(AsterismError) as caught:
        ERRORS[name]()
    text = f"{type(caught.value).__name__}\n{caught.value}"
    again = pickle.loads(pickle.dumps(caught.value))
    assert f"{type(again).__name__}\n{again}" == text
    assert "hunter2" not in text
    golden.check(name, text.replace(str(folder), ""))


@pytest.mark.parametrize("name", REFUSED)
def test_line_of_a_refused_processor(name: str, golden: Golden, folder: Path) -> None:
    [wrong] = [one for one in REFUSED[name]() if isinstance(one, RefusedProcessor)]
    unidentified = " (it may be any processor)" if wrong.unidentified else ""
    golden.check(f"refused_{name}", str(wrong).replace(str(folder), "") + unidentified)


@pytest.mark.parametrize("name", VALIDATE)
def test_text_of_validate(name: str, golden: Golden) -> None:
    text, options = VALIDATE[name]
    Path("rules.yaml").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["rules", "validate", "rules.yaml", *options])
    assert result.stderr == ""
    golden.check(name, f"exit status {result.exit_code}\n{result.stdout.rstrip()}")


TEXTS = {*ERRORS, *(f"refused_{name}" for name in REFUSED), *VALIDATE}
