"""How rules in Sigma and EQL are shown and stored: as their authors wrote them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from asterism.discovery import create_pattern_processor_table
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.rule_set import Addition
from asterism.errors import PatternProcessorError
from asterism.patterns.conditions import SqlCondition
from asterism.rules.binding.clauses import clause_of
from asterism.rules.definition.processor import PatternProcessor
from asterism.rules.definition.source_words import SourceWords, words_of
from asterism.sigma.wording import SigmaSource, rule_svg
from asterism.trace.row_patterns import trace_rows

EQL = """
sequence by user with maxspan=5m
  [any where kind == "a"] with runs=2
  ![any where kind == "<no>"]
  [any where kind == "b"]
  until [any where kind == "c"]
"""
DETECTION = r"""
title: Whoami
logsource: {product: windows}
detection:
  image:
    - Image|endswith: ['\whoami.exe', '\id.exe']
    - Name: null
  user_1: {User|startswith: svc}
  user_2: {User: root}
  filter: {ParentImage|contains: '<monitoring>'}
  condition: (image or all of user_*) and not filter
"""
CHAIN = """
title: Failed
name: failed
logsource: {product: linux}
detection: {selection: {kind: failed}, condition: selection}
---
title: Many
name: many
correlation: {type: event_count, rules: failed, group-by: [user], timespan: 5m, condition: {gte: 3}}
---
title: Values
name: values
correlation: {type: value_sum, rules: [failed, other], group-by: [user], timespan: 5m, condition: {gt: 3, field: price}}
---
title: Chain
name: chain
correlation: {type: temporal_ordered, rules: [many, values], group-by: user, timespan: 10m}
"""


def shown(**fields: Any) -> tuple[PatternProcessor, SourceWords]:
    item = {"id": "rule", "version": 1, **fields}
    processor = PatternProcessor.from_dict(item)
    return processor, words_of(item, processor)


def texts(svg: str) -> list[str]:
    """Those that are visible; the drawing must be XML."""
    shapes = [shape for shape in ET.fromstring(svg).iter() if shape.tag.endswith("text")]
    return [(shape.text or "").strip() or (shape[-1].tail or "").strip() for shape in shapes]


def test_a_sequence_of_eql() -> None:
    _, words = shown(eql=EQL)
    assert words.text.splitlines() == [
        "a sequence by user, within 5 min from the first to the last event",
        '  events 1 to 2: any where kind == "a"',
        '  no event: any where kind == "<no>"',
        '  event 3: any where kind == "b"',
        '  until any where kind == "c"',
    ]
    assert words.draw is not None
    drawn = texts(words.draw())
    assert [text for text in drawn if "event" in text] == ["events 1 to 2", "no event", "event 3"]
    assert "within 5 min" in drawn
    assert "by user" in drawn


def test_the_trace_of_a_sequence() -> None:
    processor, words = shown(eql=EQL)
    kinds = ["a", "a", "<no>", "a", "c", "b"]
    rows = pa.table({"ts": range(6), "kind": kinds, "user": ["ann"] * 6})
    report = trace_rows(clause_of(processor, "ts"), rows, words=words.variables).text()
    assert '  row 3 is the absent event any where kind == "<no>"' in report
    assert '  row 5 ends the sequence, until any where kind == "c"' in report
    assert "S1_0" not in report
    assert "W1_0" not in report
    matched = trace_rows(clause_of(processor, "ts"), rows.take([0, 1, 5]), words=words.variables)
    assert "match 1: event 1=[1] event 2=[2] event 3=[3]" in matched.text()


def test_event_queries_and_rules_that_are_not_in_another_language() -> None:
    _, words = shown(eql="process where /* all of them */ pid == 4")
    assert words.text == "each event: process where /* all of them */ pid == 4"
    assert words.variables.name("EVENT") == "event"
    pattern = {
        "nodes": [{"name": "a", "type": "ATOMIC", "quantifier": {"properties": ["SINGLE"]}}],
        "type": "COMPOSITE",
    }
    _, words = shown(pattern=pattern)
    assert words.draw is None
    assert words.text == ""
    assert words.line("a") == "a"


def test_a_detection_of_sigma() -> None:
    processor, words = shown(sigma=DETECTION)
    assert words.text.splitlines() == [
        "Whoami: (image or all of user_*) and not filter",
        r"  image: Image|endswith: \whoami.exe, \id.exe; or Name: null",
        "  user_1: User|startswith: svc",
        "  user_2: User: root",
        "  filter: ParentImage|contains: <monitoring>",
    ]
    assert words.draw is not None
    assert [text for text in texts(words.draw()) if ":" not in text] == ["image", "user_1", "user_2", "filter"]
    assert processor.pattern is not None
    condition = processor.pattern.stages[0].condition
    assert isinstance(condition, SqlCondition)
    assert words.line(condition.text).startswith(
        r"((((Image|endswith: '\whoami.exe' OR Image|endswith: '\id.exe') OR `Name` IS NULL) OR (User|startswith: 'svc'"
    )


def test_a_chain_of_sigma() -> None:
    source = SigmaSource.of(CHAIN)
    assert source.rule.id == "chain"
    drawn = texts(rule_svg(source))
    assert [text for text in drawn if text in ("Many", "gte: 3", "Failed", "Values", "other")] == [
        *("Failed", "gte: 3", "Many", "Failed", "other", "Values"),
    ]
    assert SigmaSource.of(CHAIN, "many").rule.id == "many"


def test_a_drawing_is_bounded() -> None:
    names = [f"s{number}" for number in range(500)]
    detection = "".join(f"  {name}: {{a: {'x' * 500}}}\n" for name in names)
    text = f"title: many\nlogsource: {{product: x}}\ndetection:\n{detection}  condition: 1 of s*\n"
    assert len(rule_svg(SigmaSource.of(text))) < 200_000


def test_a_database_stores_them_as_they_are_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rules.db'}"
    create_pattern_processor_table(url)
    items: list[dict[str, Any]] = [
        {"id": "eql", "version": 1, "eql": EQL, "select": ["event_1.user AS who"]},
        {"id": "sigma", "version": 1, "sigma": DETECTION, "labels": {"owner": "ann"}},
    ]
    processors = [PatternProcessor.from_dict(item) for item in items]
    rules_at(url).add([Addition(item, processor) for item, processor in zip(items, processors, strict=True)])
    stored = {rule.id: rule for rule in rules_at(url).all()}
    assert stored["eql"].item["eql"] == EQL
    assert stored["sigma"].item["sigma"] == DETECTION
    assert [stored[processor.id].processor() for processor in processors] == processors
    rules_at(url).add([Addition(item, processor) for item, processor in zip(items, processors, strict=True)])
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("ALTER TABLE pattern_processors DROP COLUMN eql"))
    other = {**items[0], "version": 2}
    with pytest.raises(PatternProcessorError, match="has no column eql") as caught:
        rules_at(url).add([Addition(other, PatternProcessor.from_dict(other))])
    assert caught.value.hint == "ALTER TABLE pattern_processors ADD COLUMN eql TEXT"
