"""Tables: what is special about them, with SQLite."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism import Pattern
from asterism.discovery import SqlPatternProcessorDiscovererFactory, create_pattern_processor_table
from asterism.discovery.sources import sql_table as module
from asterism.discovery.sources.rows import called
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.sets.interfaces import Discovered, ProcessorRegistry, RefusedProcessor
from tests.discovery.kit import INTERVAL, graph, refused, rule, travelled, versions, watching
from tests.discovery.places import INSERT, SqlitePlace, row

GRAPH = json.dumps(graph())
FLIP = 'CREATE TABLE rules (uid INTEGER PRIMARY KEY, "className" TEXT, "constructorParams" TEXT)'
DUMMY = "org.apache.flink.cep.processor.DummyPatternProcessor"


@pytest.fixture
def place(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path)


def found_in(place: SqlitePlace, table: str = module.TABLE, **options: Any) -> list[Discovered]:
    factory = SqlPatternProcessorDiscovererFactory(place.url, table, interval=INTERVAL, **options)
    return list(travelled(factory).initial_pattern_processors())


def change(place: SqlitePlace, text: str, *values: object) -> None:
    place.execute((text, values))


# ---------------------------------------------------------------------- the own form


def test_of_several_versions_the_highest_that_is_enabled_counts(place: SqlitePlace) -> None:
    place.write(
        [rule("a", 1), rule("a", 2), rule("a", 3, enabled=False), rule("b", 10), rule("b", 9), rule("c", enabled=False)]
    )
    assert versions(found_in(place)) == {"a": 2, "b": 10}


def test_of_several_shadows_the_highest_that_is_enabled_counts(place: SqlitePlace) -> None:
    shadows = [rule("a", number, shadow=True, enabled=number != 4) for number in (2, 3, 4)]
    place.write([rule("a", 1), *shadows, rule("a", 5, enabled=False), rule("b", 1, shadow=True)])
    found = [(one.id, one.version, one.shadow) for one in found_in(place) if isinstance(one, PatternProcessor)]
    assert found == [("a", 1, False), ("a", 3, True), ("b", 1, True)]
    change(place, "UPDATE pattern_processors SET shadow = 'perhaps' WHERE version = 3")
    wrong = [one for one in found_in(place) if isinstance(one, RefusedProcessor)]
    assert [(one.id, one.shadow, one.error.message) for one in wrong] == [
        ("a", None, "shadow must be true or false, not 'perhaps'")
    ]


def test_a_wrong_highest_version_does_not_bring_back_a_lower_one(place: SqlitePlace) -> None:
    """What was in force before is the manager's business."""
    place.write([rule("a", 1), rule("a", 2, pattern="{")])
    [found] = refused(found_in(place))
    assert (found.id, found.version, found.place) == ("a", 2, "pattern_processors")


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("timestamp", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", "2026-01-31 12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", "2026-01-31 13:30:00+01:30", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", 1769860800000, datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("timestamp", -(2**63), None),
        ("timestamp", None, None),
        ("key", None, None),
        ("key", "user", ("user",)),
        ("key", '["user", "item"]', ("user", "item")),
        ("key", "[]", ()),
        ("select", "LAST(a.price) AS price", ("LAST(a.price) AS price",)),
        ("select", '["LAST(a.price)"]', ("LAST(a.price)",)),
        ("function", "report", "report"),
        ("timed_out", 1, True),
        ("timed_out", "true", True),
        ("timed_out", "f", False),
        ("max_partial_matches", 7, 7),
        ("max_partial_matches", "7", 7),
        ("max_partial_matches", None, None),
        ("labels", '{"owner": "ann"}', {"owner": "ann"}),
        ("labels", "{}", {}),
        ("expires", "2026-01-31 13:30:00+01:30", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("expires", 1769860800000, datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("expires", None, None),
        ("suppress", "1 hour", timedelta(hours=1)),
        ("suppress", '{"for": "90 seconds"}', timedelta(seconds=90)),
        ("suppress", "", None),
        ("suppress", None, None),
        ("labels", " ", {}),
        ("labels", None, {}),
    ],
)
def test_values_in_columns(place: SqlitePlace, column: str, value: object, expected: object) -> None:
    place.write([rule("a")])
    change(place, f'UPDATE pattern_processors SET "{column}" = ?', value)
    [found] = found_in(place)
    assert getattr(found, column) == expected


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("version", "one", "a version must be an integer, not 'one'"),
        ("version", 1.5, "a version must be an integer, not '1.5'"),
        ("version", -1, "a version must be an integer from 0"),
        ("version", 2**40, "a version must be an integer from 0"),
        ("timestamp", "soon", "timestamp is not a point in time"),
        ("timestamp", 10**18, "timestamp is not a point in time"),
        ("key", "[1]", "key must be a list of SQL strings"),
        ("key", '["a"', "key: invalid JSON"),
        ("select", "x" * 1_100_000, "select must be a list of SQL strings"),
        ("pattern", "", "the JSON is empty"),
        ("pattern", "[]", "root: "),
        ("pattern", '"{}"', "root: "),
        ("pattern", GRAPH + " " * 1_000_000, "the JSON is too large"),
        ("pattern", b"\xff\xfe", "pattern is not valid UTF-8"),
        ("function", "x" * 2000, "function is longer than 1,000 characters"),
        ("enabled", "maybe", "enabled must be true or false"),
        ("timed_out", 7, "timed_out must be true or false"),
        ("max_partial_matches", "many", "max_partial_matches must be an integer, not 'many'"),
        ("max_partial_matches", 0, "maxPartialMatches must be an integer from 1 to"),
        ("suppress", "1 fortnight", "suppress: for is not a duration: '1 fortnight'"),
        ("suppress", "{1 hour}", "suppress: invalid JSON"),
        ("expires", "soon", "expires is not a point in time"),
        ("labels", "ann", "labels: invalid JSON"),
        ("labels", '["ann"]', "labels must be an object of strings"),
        ("labels", '{"n": 1}', "the label 'n' must be a string of up to 1,000 characters"),
        ("labels", "[" * 100_000, "labels: "),
        ("id", "x" * 300, "an id must be a string of 1 to 200"),
        ("id", "", "an id must be a string of 1 to 200"),
        ("id", "a\x1b[2J", "an id must be a string of 1 to 200"),
    ],
)
def test_a_wrong_value_is_refused_with_its_row(place: SqlitePlace, column: str, value: object, problem: str) -> None:
    place.write([rule("bad"), rule("good")])
    change(place, f"""UPDATE pattern_processors SET "{column}" = ? WHERE id = 'bad'""", value)
    found = found_in(place)
    assert versions(found) == {"good": 1}
    [wrong] = refused(found)
    assert wrong.error.message.startswith(problem)
    assert str(wrong).isprintable()


def test_a_row_without_an_id_may_be_any_processor(place: SqlitePlace) -> None:
    change(place, "DROP TABLE pattern_processors")
    change(place, "CREATE TABLE pattern_processors (id TEXT, version INT, pattern TEXT)")
    change(place, "INSERT INTO pattern_processors VALUES (NULL, 1, ?), ('a', 1, ?)", GRAPH, GRAPH)
    found = found_in(place)
    assert versions(found) == {"a": 1}
    assert [one.unidentified for one in refused(found)] == [True]


def test_a_table_without_a_key_may_have_a_version_twice(place: SqlitePlace) -> None:
    change(place, "CREATE TABLE rules (ID TEXT, Version INT, PATTERN TEXT, notes TEXT)")
    change(place, "INSERT INTO rules VALUES ('a', 1, ?, ''), ('a', 1, ?, ''), ('b', 1, ?, '')", GRAPH, GRAPH, GRAPH)
    found = found_in(place, "rules")
    assert versions(found) == {"b": 1}
    assert [str(one) for one in refused(found)] == ["rules: a version 1: [PATTERN_PROCESSOR] 2 rows have this version"]
    factory = SqlPatternProcessorDiscovererFactory(place.url, "rules", interval=INTERVAL)
    discoverer = factory.create_pattern_processor_discoverer()
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        change(place, "DELETE FROM rules WHERE rowid = 1")
        manager.wait_for({"a": 1, "b": 1})


def test_a_column_that_is_added_later_is_seen(place: SqlitePlace) -> None:
    change(place, "CREATE TABLE rules (id TEXT, version INT, pattern TEXT)")
    change(place, "INSERT INTO rules VALUES ('a', 1, ?), ('b', 1, ?)", GRAPH, GRAPH)
    discoverer = travelled(SqlPatternProcessorDiscovererFactory(place.url, "rules", interval=INTERVAL))
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        change(place, "ALTER TABLE rules ADD COLUMN enabled BOOLEAN")
        manager.wait_for({"a": 1, "b": 1})
        change(place, "UPDATE rules SET enabled = 0 WHERE id = 'a'")
        manager.wait_for({"b": 1})


def test_only_what_changed_is_parsed_again(place: SqlitePlace) -> None:
    place.write([rule(f"r{n}") for n in range(20)])
    discoverer = module.SqlDiscoverer(
        module.Database(module.parsed_url(place.url)), module.TABLE, INTERVAL, ProcessorRegistry()
    )
    before = {one.id: one for one in discoverer.initial_pattern_processors()}
    change(place, "UPDATE pattern_processors SET version = 2 WHERE id = 'r7'")
    after = {one.id: one for one in discoverer.poll() or []}
    assert [id for id in before if before[id] is not after[id]] == ["r7"]


def test_too_many_rows_interrupt(place: SqlitePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 2)
    place.write([rule("a"), rule("b")])
    assert len(found_in(place)) == 2
    place.write([rule("a"), rule("b"), rule("c")])
    with pytest.raises(PatternProcessorError, match="more than 2 rows"):
        found_in(place)


def test_too_much_text_interrupts(place: SqlitePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is read; what each row has is bounded, too."""
    place.write([rule("a"), rule("b")])
    length = 2 * (len("a") + len("1") + len(json.dumps(graph())) + len("0001"))
    monkeypatch.setattr(module, "MAX_TOTAL", length)
    assert len(found_in(place)) == 2
    change(place, """UPDATE pattern_processors SET function = 'f' WHERE id = 'a'""")
    with pytest.raises(PatternProcessorError, match=f"has {length + 1} characters in its rules .limit {length}."):
        found_in(place)


# ---------------------------------------------------------------------- the database


def test_a_file_that_is_replaced_is_read(place: SqlitePlace, tmp_path: Path) -> None:
    """Not the old one, which a connection that stays open would go on with."""
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    (tmp_path / "other").mkdir()
    other = SqlitePlace(tmp_path / "other")
    other.write([rule("a", 2)])
    with watching(discoverer) as manager:
        other.path.replace(place.path)
        manager.wait_for({"a": 2})


def test_a_writer_in_the_middle_of_a_transaction_is_not_seen(place: SqlitePlace) -> None:
    place.write([rule("a")])
    discoverer = travelled(place.factory())
    discoverer.initial_pattern_processors()
    connection = sqlite3.connect(place.path)
    with watching(discoverer) as manager:
        connection.execute("DELETE FROM pattern_processors")
        connection.execute(INSERT, row(rule("b")))
        manager.wait_for_polls()
        connection.commit()
        manager.wait_for({"b": 1})
        assert len(manager.updates) == 1
    connection.close()


def test_to_look_makes_no_database(tmp_path: Path) -> None:
    path = tmp_path / "rules.db"
    discoverer = SqlPatternProcessorDiscovererFactory(f"sqlite:///{path}").create_pattern_processor_discoverer()
    with pytest.raises(PatternProcessorError, match="there is no database"):
        discoverer.initial_pattern_processors()
    assert not path.exists()


def test_the_table_is_made_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    create_pattern_processor_table(url)
    create_pattern_processor_table(url, "others")
    with pytest.raises(PatternProcessorError, match="there is a table 'others' already"):
        create_pattern_processor_table(url, "others")


def test_a_name_is_no_statement(place: SqlitePlace) -> None:
    place.write([rule("a")])
    with pytest.raises(PatternProcessorError, match="there is no table"):
        found_in(place, 'pattern_processors"; DROP TABLE pattern_processors; --')
    assert versions(found_in(place)) == {"a": 1}


def test_a_relative_url_stays_what_it_was(place: SqlitePlace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write([rule("a")])
    monkeypatch.chdir(place.path.parent)
    factory = SqlPatternProcessorDiscovererFactory("sqlite:///rules.db")
    monkeypatch.chdir("/")
    assert versions(travelled(factory).initial_pattern_processors()) == {"a": 1}


# ---------------------------------------------------------------------- FLIP-200's form


def dummy(number: int) -> PatternProcessor:
    if number < 0:
        raise ValueError("not that low")
    return PatternProcessor(f"dummy-{number}", 1, Pattern.begin("a").where(f"price > {number}"))


class Limit(PatternProcessor):
    """As one writes it who knows FLIP-200's interface from Java."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"limit-{limit}", 2, Pattern.begin("a").where(f"price > {limit}"), key=("user",))


class Incomplete(PatternProcessor):
    def __init__(self) -> None:
        pass


def registry() -> ProcessorRegistry:
    return ProcessorRegistry(
        {
            DUMMY: dummy,
            "Sum": lambda *n: dummy(sum(n)),
            "Limit": Limit,
            "Incomplete": Incomplete,
            "WrongPattern": lambda: PatternProcessor("a", 1, "a b"),  # type: ignore[arg-type]
        }
    )


def flip(place: SqlitePlace, *rows: tuple[object, ...], make: bool = True) -> list[Discovered]:
    if make:
        change(place, FLIP)
    for values in rows:
        change(place, "INSERT INTO rules VALUES (?, ?, ?)", *values)
    return found_in(place, "rules", registry=registry())


def test_classes_are_looked_up_in_the_registry(place: SqlitePlace) -> None:
    found = flip(
        place,
        (1, DUMMY, '[{"type": "int", "value": 0}]'),
        (2, f'"{DUMMY}"', '[{"type": "int", "value": 1}]'),
        (3, "Sum", '[{"type": "Integer", "value": 1}, {"type": "long", "value": 2}]'),
        (4, "Sum", None),
    )
    assert versions(found) == {"dummy-0": 1, "dummy-1": 1, "dummy-3": 1}
    # uid 4 makes dummy-0 again
    assert [str(one) for one in refused(found)] == [
        "rules, uid 4: dummy-0 version 1: [PATTERN_PROCESSOR] two processors have the id 'dummy-0'; The other is in rules, uid 1."
    ]


def test_a_class_of_ones_own_makes_a_processor_like_any_other(place: SqlitePlace) -> None:
    """Which is equal to what was stored of it, when the query is started again."""
    [found] = flip(place, (1, "Limit", '[{"type": "int", "value": 7}]'))
    assert isinstance(found, PatternProcessor)
    assert (found.id, found.version, found.key, found.place) == ("limit-7", 2, ("user",), "rules, uid 1")
    assert PatternProcessor.from_dict(found.to_dict()) == found


def test_numbers_are_of_their_types() -> None:
    parameters = [("byte", -128), ("short", 32767), ("INT", -(2**31)), ("long", 2**63 - 1), ("float", 1), ("double", 3)]
    text = json.dumps([{"type": kind, "value": value} for kind, value in parameters])
    values = called({"class_name": "A", "constructor_params": text})[1]
    assert [(type(value), value) for value in values] == [
        (float if kind in ("float", "double") else int, value) for kind, value in parameters
    ]


@pytest.mark.parametrize(
    ("name", "parameters", "problem"),
    [
        ("os.system", '[{"type": "string", "value": "true"}]', "the class 'os.system' is not registered"),
        ("builtins.eval", "[]", "the class 'builtins.eval' is not registered"),
        (None, "[]", "the class '' is not registered"),
        (DUMMY, "[]", f"{DUMMY} failed"),
        (DUMMY, '[{"type": "int", "value": -1}]', f"{DUMMY} failed"),
        (DUMMY, "{}", "constructorParams must be a list"),
        (DUMMY, "[1]", "parameter 1 must have a type and a value"),
        (DUMMY, '[{"type": "int"}]', "parameter 1 must have a type and a value"),
        (DUMMY, '[{"type": "int", "value": 1, "x": 2}]', "parameter 1 must have a type and a value"),
        (
            DUMMY,
            '[{"type": "java.lang.Runtime", "value": 1}]',
            "parameter 1 has the unknown type 'java.lang.Runtime'",
        ),
        (DUMMY, '[{"type": "int", "value": "1"}]', 'parameter 1 is of type int, but its value is "1"'),
        (DUMMY, '[{"type": "int", "value": true}]', "parameter 1 is of type int, but its value is true"),
        (DUMMY, '[{"type": "int", "value": 1.5}]', "parameter 1 is of type int, but its value is 1.5"),
        (DUMMY, '[{"type": "boolean", "value": 1}]', "parameter 1 is of type boolean, but its value is 1"),
        (DUMMY, '[{"type": "byte", "value": 128}]', "parameter 1 is of type byte, but its value is 128"),
        (DUMMY, '[{"type": "short", "value": -32769}]', "parameter 1 is of type short, but its value is -32769"),
        (DUMMY, '[{"type": "int", "value": 2147483648}]', "parameter 1 is of type int, but its value is 2147483648"),
        (
            DUMMY,
            '[{"type": "long", "value": 9223372036854775808}]',
            "parameter 1 is of type long, but its value is 9223372036854775808",
        ),
        (DUMMY, '[{"type": "float", "value": 1e39}]', "parameter 1 is of type float, but its value is 1e+39"),
        (DUMMY, '[{"type": "double", "value": 1e400}]', "parameter 1 is of type double, but its value is Infinity"),
        ("Incomplete", "[]", "Incomplete failed"),
        ("WrongPattern", "[]", "a pattern must be a Pattern, not 'a b'"),
        (DUMMY, "[{", "constructorParams: invalid JSON"),
    ],
)
def test_a_wrong_call_is_refused_alone(place: SqlitePlace, name: str | None, parameters: str, problem: str) -> None:
    found = flip(place, (1, name, parameters), (2, DUMMY, '[{"type": "int", "value": 1}]'))
    assert versions(found) == {"dummy-1": 1}
    [wrong] = refused(found)
    assert wrong.error.message == problem
    # What it would have made is not known, so nothing may be removed because of it.
    assert (wrong.id, wrong.place, wrong.unidentified) == ("uid 1", "rules", True)


def test_a_call_that_fails_later_keeps_what_it_made(place: SqlitePlace) -> None:
    change(place, FLIP)
    change(
        place, "INSERT INTO rules VALUES (1, ?, ?), (2, ?, ?)", *[DUMMY, '[{"type": "int", "value": 5}]', DUMMY, "[]"]
    )
    factory = SqlPatternProcessorDiscovererFactory(
        place.url, "rules", interval=INTERVAL, registry=ProcessorRegistry({DUMMY: dummy})
    )
    discoverer = factory.create_pattern_processor_discoverer()
    discoverer.initial_pattern_processors()
    with watching(discoverer) as manager:
        change(place, "UPDATE rules SET \"constructorParams\" = '[{}]' WHERE uid = 1")
        found = manager.wait_for({})
        assert [(one.id, one.unidentified) for one in refused(found)] == [("dummy-5", False), ("uid 2", True)]
