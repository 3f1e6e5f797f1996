"""Rules as text."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.discovery.sources import documents
from asterism.discovery.sources.documents import read_document, read_file, written
from asterism.discovery.sources.polling import Items
from asterism.errors import PatternProcessorError
from asterism.files.durable_files import NotWrittenError, replace_file
from asterism.text import strict_yaml


def items(text: str | bytes, name: str = "rules.yaml") -> Any:
    return read_document(text if isinstance(text, bytes) else text.encode(), name).items


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- {id: a}\n- {id: b}", [{"id": "a"}, {"id": "b"}]),
        ("processors:\n  - id: a\n", [{"id": "a"}]),
        ("processors: []", []),
        ("id: a\nversion: 1", [{"id": "a", "version": 1}]),
        ("pattern: {}", [{"pattern": {}}]),
        ("---\n[5]\n...\n", [5]),
    ],
)
def test_a_document_is_a_list_an_object_with_one_or_one_processor(text: str, expected: list[Any]) -> None:
    assert items(text) == expected
    assert items(json.dumps(expected), "rules.json") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", "no"), ("'no'", "no"), ("true", True), ("TRUE", True), ("tRUE", "tRUE"), ("null", None), ("~", None), ("", None),
        ("12", 12), ("-12", -12), ("'12'", "12"), ("012", 12), ("0x1F", "0x1F"), ("1_000", "1_000"), ("1.5", 1.5), (".5", 0.5),
        ("1e3", 1000.0), (".inf", ".inf"), (".nan", ".nan"), ("12:30:00", "12:30:00"), ("2026-01-31", "2026-01-31"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"), ("event = 'failed'", "event = 'failed'"), ('"a\\nb"', "a\nb"),
        ("|\n  a\n  b\n", "a\nb\n"), ("=", "="),
    ],
)  # fmt: skip
def test_yaml_means_what_its_core_schema_says(text: str, expected: Any) -> None:
    [found] = items(f"- {text}")
    assert (found, type(found)) == (expected, type(expected))


def test_aliases_repeat_what_they_stand_for() -> None:
    assert items("- &c {type: SQL, expression: x > 1}\n- {condition: *c}\n- &n 5\n- *n") == [
        {"type": "SQL", "expression": "x > 1"},
        {"condition": {"type": "SQL", "expression": "x > 1"}},
        5,
        5,
    ]


def bomb(levels: int) -> str:
    lines = ["- &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "text",
    [
        bomb(9), "- &a [*a]", "- &a {b: *a}", "- *unknown", "[" * 100_000, "{a: " * 100_000, "- " * 100_000,
        "- !!python/object/apply:os.system ['true']", "- !!binary aGVsbG8=", "- !mine x", "- !!str 12", "- {a: 1, a: 2}",
        "- {[a]: 1}", "- {*x : 1}", "- a\n---\n- b", "", "# nothing", "processors: []\nmore: 1", "5", "{}", "processors: {}",
        "\t- a", "- 'open", "- " + "1" * 30, "- {" + "n" * 300 + ": 1}", "- \x00", "%YAML 9.0\n---\n- a", "- \"\\ud800\"",
    ],
)  # fmt: skip
def test_what_yaml_must_not_say_is_refused(text: str) -> None:
    with pytest.raises(PatternProcessorError):
        items(text)


def test_too_many_values_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_NODES", 10)
    assert len(items("- a\n" * 9)) == 9
    with pytest.raises(PatternProcessorError, match="more than 10 values"):
        items("- a\n" * 11)


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_BYTES", 10)
    for name in ("rules.json", "rules.yaml"):
        assert items(b"[1, 2, 3] ", name) == [1, 2, 3]
        with pytest.raises(PatternProcessorError, match="is too large"):
            items(b"[1, 2, 3]  ", name)


def test_what_aliases_repeat_is_not_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_yaml, "MAX_CHARACTERS", 100)
    text = "- &a {name: &b abcdef}\n"  # ten characters
    assert len(items(text + "- *a\n" * 9)) == 10
    with pytest.raises(PatternProcessorError, match="after expansion of its aliases"):
        items(text + "- *a\n" * 10)
    with pytest.raises(PatternProcessorError, match="after expansion of its aliases"):
        items(text + "- [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n")


def test_a_small_file_stays_small() -> None:
    """Long texts that are repeated, and values far down below long names."""
    repeated = "- &a " + "x" * 50_000 + "\n" + "- *a\n" * 300
    nested = "- " + "".join("{" + "n" * 200 + ": " for _ in range(150)) + "[" + "x, " * 5_000 + "x]" + "}" * 150
    assert largest_memory(lambda: items(nested)) < 15_000_000
    known = Items()
    assert largest_memory(lambda: known.processors(items(repeated), "rules.yaml")) < 5_000_000


def largest_memory(run: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_places_are_lines_and_columns() -> None:
    text = "processors:\n- id: a\n  pattern:\n    nodes:\n    - {name: x}\n"
    document = read_document(text.encode(), "rules.yml")
    assert document.pointers == ["/processors/0"]
    for pointer, place in (
        ("/processors/0", (2, 3)),
        ("/processors/0/pattern/nodes/0/name", (5, 14)),
        ("/processors/0/pattern/nodes/7", (5, 5)),
        ("/nothing", (1, 1)),
    ):
        assert document.place(pointer) == place
    aliases = read_document(b"- &a {b/c: 1}\n- {id: *a}\n", "rules.yml")
    assert [aliases.place(f"/{p}") for p in ("0/b~1c", "1/id", "1/id/b~1c", "7")] == [(1, 12), (2, 8), (2, 8), (1, 1)]
    same = read_document(b'{"processors":\n [{"id": "a"}]}', "rules.json")
    assert (same.place("/processors/0"), same.place("/processors/0/id")) == ((2, 3), (2, 10))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
texts_like_numbers = st.text("0123456789+-.eE_:~", max_size=8)


CLAUSES = st.lists(
    st.text(st.sampled_from("aB =>'ä\u4e2d"), min_size=1, max_size=12).map(str.strip), min_size=1, max_size=4
)


@given(
    lines=CLAUSES, kind=st.sampled_from(["literal", "literal in a list", "json", "json escaped", "single", "double"])
)
def test_a_place_inside_a_string_is_that_of_its_character(lines: list[str], kind: str) -> None:
    """In a literal block or a quoted string. A folded string has one place."""
    text = "\n".join(line or "x" for line in lines)
    text = text.replace("\n", " ") if kind in ("single", "double") else text
    indented = text.replace("\n", "\n    ")
    single = text.replace("'", "''")
    source = {
        "literal": f"id: a\nsql: |\n    {indented}\nversion: 1\n",
        "literal in a list": f"- id: a\n  sql: |\n    {indented}\n",
        "json": json.dumps({"id": "a", "sql": text}, ensure_ascii=False, indent=1),
        "json escaped": json.dumps([{"id": "a", "sql": text}]),
        "single": f"id: a\nsql: '{single}'\n",
        "double": f"id: a\nsql: {json.dumps(text, ensure_ascii=False)}\n",
    }[kind]
    document = read_document(source.encode(), "rules.json" if "json" in kind else "rules.yaml")
    [pointer] = document.pointers
    assert document.items[0]["sql"].rstrip("\n") == text
    written = source.splitlines()
    for index, character in enumerate(text[1:], 1):
        line, column = document.place(f"{pointer}/sql", index)
        found = written[line - 1][column - 1 :]
        if character != "\n" and not (kind == "single" and character == "'"):
            assert found.startswith((character, json.dumps(character)[1:-1]))


@given(st.lists(json_values | texts_like_numbers, max_size=5))
def test_what_is_written_is_read_back(values: list[Any]) -> None:
    assert items(written(values), "rules.json") == values
    assert items(written(values, yaml=True)) == values


def test_a_file_is_replaced_as_a_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    link = tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    replace_file(link, b"new")
    assert (path.read_bytes(), link.is_symlink(), path.stat().st_mode & 0o777) == (b"new", True, 0o640)
    with pytest.raises(NotWrittenError, match="cannot be written"):
        replace_file(tmp_path / "no folder" / "rules.json", b"new")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.json", "rules.json"]


@pytest.mark.timeout(120)
def test_only_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes to the pipe: to wait for it would be for ever."""
    monkeypatch.setattr(documents, "MAX_BYTES", 2)
    (tmp_path / "long").write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to("long")
    assert read_file(tmp_path / "link") == b"abc"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(PatternProcessorError, match="is not a file"):
            read_file(path)
