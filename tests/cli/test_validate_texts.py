"""What ``asterism validate`` prints, as a whole; ``golden/validate/<name>.txt`` holds the exit status and the text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from asterism.cli.main import main
from tests.kit import Golden
from tests.patterns.test_pattern_texts import edge, graph, node

GOOD = """\
{
  "name": "brute force",
  "type": "COMPOSITE",
  "nodes": [
    {"name": "fails", "type": "ATOMIC", "quantifier": {"properties": ["LOOPING"], "times": {"from": 3}},
     "condition": {"type": "SQL", "expression": "event = 'failed'"}},
    {"name": "login", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]},
     "condition": {"type": "SQL", "expression": "event = 'accepted' AND port > LAST(fails.port)"}}
  ],
  "edges": [{"source": "fails", "target": "login", "type": "STRICT"}],
  "window": {"type": "FIRST_AND_LAST", "time": {"unit": "MINUTES", "size": 10}},
  "afterMatchStrategy": {"type": "SKIP_TO_LAST", "patternName": "fails"}
}
"""
MANY_PROBLEMS = """\
{
  "name": "brute force",
  "type": "COMPOSITE",
  "version": 2,
  "nodes": [
    {"name": "fails", "type": "ATOMIC",
     "quantifier": {"properties": ["LOOPING", "LAZY"], "times": {"from": "3"}, "untilcondition": null},
     "condition": {"type": "SQL", "expression": "event = 'failed' AND AND user = 'root'"}},
    {"name": "odd:name", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE", "GREEDY"]}},
    {"name": "group", "type": "COMPOSITE", "quantifier": {"properties": ["TIMES"], "times": {"from": 3, "to": 2}},
     "nodes": [{"name": "login", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]},
                "condition": {"type": "MVEL", "expression": "event == 'accepted'"}}]}
  ],
  "edges": [
    {"source": "fails", "target": "odd:name", "type": "THEN"},
    {"source": "odd:name", "target": "logon", "type": "STRICT"}
  ],
  "window": {"type": "FIRST_AND_LAST", "time": {"unit": "WEEKS", "size": 1}},
  "afterMatchStrategy": {"type": "SKIP_TO_FIRST"}
}
"""


def sql(name: str, text: str, **fields: Any) -> dict[str, Any]:
    return node(name, condition={"type": "SQL", "expression": text}, **fields)


SQL = graph(
    sql("a", "price > 1 AND prize < 2"),
    sql(
        "b",
        "price > 1 2",
        quantifier={
            "properties": ["LOOPING"],
            "untilCondition": {"type": "SQL", "expression": "price > LAST(z.price) + 1"},
        },
    ),
    sql("c", "SUM(b.status) > 1"),
    sql("d", "price > (1"),
    sql("e", "price > 1 AS high"),
)
IGNORED_BY_FLINK = graph(
    node("a"),
    graph(node("b"), node("c"), edges=[edge("b", "c", "NOT_FOLLOW")])
    | {"name": "g", "quantifier": {"properties": ["SINGLE"]}},
    edges=[edge("a", "g")],
    window={"type": "FIRST_AND_LAST", "time": {"unit": "HOURS", "size": 1}},
)
COLUMNS = ("--column", "price:double", "--column", "status:string")

TEXTS: dict[str, tuple[list[Any], tuple[str, ...]]] = {
    "good": ([GOOD], ()),
    "good_with_columns": ([GOOD], ("--column", "event:string", "--column", "port:int")),
    "good_and_bad": ([GOOD, "[]", GOOD], ()),
    "many_problems": ([MANY_PROBLEMS], ()),
    "sql_without_columns": ([json.dumps(SQL, indent=1)], ()),
    "sql_with_columns": ([json.dumps(SQL, indent=1)], COLUMNS),
    "ignored_by_flink": ([json.dumps(IGNORED_BY_FLINK, indent=1)], ()),
    "ignored_by_flink_in_its_semantics": ([json.dumps(IGNORED_BY_FLINK, indent=1)], ("--semantics", "flink")),
    "empty": ([""], ()),
    "not_json": (['{\n  "type": "COMPOSITE",\n}'], ()),
    "byte_order_mark": ([b"\xef\xbb\xbf" + GOOD.encode()], ()),
    "utf_16": ([GOOD.encode("utf-16")], ()),
    "latin_1": ([GOOD.replace("brute", "brüte").encode("latin-1")], ()),
    "name_twice": ([GOOD.replace('"edges"', '"nodes"')], ()),
    "not_a_number": ([GOOD.replace('"size": 10', '"size": NaN')], ()),
    "number_too_large": ([GOOD.replace('"size": 10', '"size": ' + "9" * 30)], ()),
    "nested_too_deeply": (["[" * 100_000], ()),
    "too_large": (['"' + "x" * 1_000_000 + '"'], ()),
    "not_for_terminals": ([json.dumps(graph(node("\x1b[2J\n", condition=3), sql("b", "x = '\x1b[31m' +")))], ()),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_validate(name: str, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents, options = TEXTS[name]
    monkeypatch.chdir(tmp_path)
    names = [f"{number}.json" for number in range(1, len(contents) + 1)]
    for file, content in zip(names, contents, strict=True):
        Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    result = CliRunner().invoke(main, ["validate", *names, *options])
    assert result.stderr == ""
    golden.check(name, f"exit status {result.exit_code}\n{result.stdout.rstrip()}")
