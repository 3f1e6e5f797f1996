"""Changes in the text of YAML."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.discovery.editing.yaml_editing import REMOVED, edited
from asterism.discovery.sources.documents import read_document
from asterism.text.strict_yaml import written_yaml

TEXT = """\
# rules of the fraud team
---

# brute force on logins
- id: brute-force   # since 2024
  version: 1
  key: ["ip"]
  pattern: {type: COMPOSITE,   # flow
            nodes: [a,
                    b]}
  select: "COUNT(fails.*)  AS failures"

# prices that jump
-   # the dash is alone
    id: 'high price'
    enabled:   false  # for now
    text: |
      # not a comment

    more: this is a plain text
      on two lines
# the last one
- {id: last, version: 0x1F}  # flow
# end
"""


def changed(text: str, **wanted: Any) -> str | None:
    """*text* with other rules by their ids, and new ones."""
    document = read_document(text.encode(), "rules.yaml")
    there = [wanted.pop(item["id"].replace(" ", "_").replace("-", "_"), item) for item in document.items]
    return edited(document, [*there, *wanted.values()])


def rules(text: str) -> dict[str, Any]:
    return {
        item["id"].replace(" ", "_").replace("-", "_"): item for item in read_document(text.encode(), "a.yaml").items
    }


def lines_but(*numbers: int) -> str:
    return "".join(line for n, line in enumerate(TEXT.splitlines(keepends=True), 1) if n not in numbers)


def test_nothing_is_touched_where_nothing_changes() -> None:
    assert changed(TEXT) == TEXT


def test_a_flag_is_set_where_it_is_or_below_the_id() -> None:
    known = rules(TEXT)
    off = {id: {**known[id], "enabled": False} for id in ("brute_force", "last")}
    wanted = TEXT.replace("since 2024\n", "since 2024\n  enabled: false\n").replace("last,", "last, enabled: false,")
    assert changed(TEXT, **off) == wanted
    on = {**known["high_price"], "enabled": True}
    assert changed(TEXT, high_price=on) == TEXT.replace("enabled:   false", "enabled:   true")


@pytest.mark.parametrize(
    ("id", "lines"), [("brute_force", range(5, 12)), ("high_price", range(14, 22)), ("last", [23])]
)
def test_a_rule_is_removed_with_the_comments_in_it(id: str, lines: list[int]) -> None:
    assert changed(TEXT, **{id: REMOVED}) == lines_but(*lines)


def test_the_last_rule_leaves_an_empty_list() -> None:
    text = "processors:\n  # one\n  - id: a\n  # two\n  - id: b\n# three\n"
    empty = changed(text, a=REMOVED, b=REMOVED)
    assert empty == "processors:\n  # one\n    []\n  # two\n# three\n"
    assert changed(empty, a={"id": "a"}) == "processors:\n  # one\n- id: a\n  # two\n# three\n"
    assert changed("processors: []  # none", a={"id": "a"}) == "processors:\n- id: a  # none\n"
    assert changed("[]", a={"id": "a"}) == "- id: a\n"


def test_a_rule_is_replaced_and_another_added() -> None:
    text = "processors:\n    # one\n    - id: a  # old\n      version: 1\n    # two\n    - {id: b}\n    # end"
    wanted = text.replace("id: a  # old", "id: a").replace("version: 1", "version: 2")
    wanted = wanted.replace("{id: b}\n", "{id: b}\n    - id: c\n      text: '1e3'\n") + "\n"
    assert changed(text, a={"id": "a", "version": 2}, c={"id": "c", "text": "1e3"}) == wanted


@pytest.mark.parametrize(
    "text",
    ["[{id: a}, {id: b}]", "id: a", "- &x {id: a}\n- {id: b, more: *x}\n", "- id: &x a\n- {id: b, more: *x}\n"],
)
def test_what_is_written_otherwise_is_left_as_it_is(text: str) -> None:
    assert changed(text, a=REMOVED) is None
    assert changed(text, a={"id": "other"}) is None


@pytest.mark.parametrize("text", ["- {id: b, more: &x {id: a}}\n- *x", "- &x {id: a}\n- {id: b, more: *x}"])
def test_a_rule_that_others_repeat_is_not_changed_alone(text: str) -> None:
    assert changed(text, a={"id": "a", "enabled": False}) is None


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=12)
    | st.sampled_from(["a\nb\n", "\n", " x", "# y", "- z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_comments_between_rules_stay(data: st.DataObject) -> None:
    items = data.draw(st.lists(st.dictionaries(st.sampled_from("pqr"), values, max_size=3), min_size=1, max_size=5))
    items = [{"id": f"r{n}", **item} for n, item in enumerate(items)]
    column = data.draw(st.sampled_from([0, 2]))
    parts = [f"{' ' * column}# {n}\n" + _indented([item], column) for n, item in enumerate(items)]
    text = ("processors:\n" if column else "# all\n") + "".join(parts) + "# end\n"
    document = read_document(text.encode(), "a.yaml")
    assert document.items == items
    wanted: list[Any] = []
    for item in document.items:
        other = data.draw(values)
        wanted.append(
            data.draw(
                st.sampled_from(
                    [item, REMOVED, {"id": "new", "x": other}, {**item, "enabled": data.draw(st.booleans())}]
                )
            )
        )
    wanted += data.draw(st.lists(st.builds(lambda value: {"id": "more", "v": value}, values), max_size=2))
    found = edited(document, wanted)
    assert found is not None
    there = read_document(found.encode(), "a.yaml").items
    assert json.dumps(there, sort_keys=True) == json.dumps(
        [one for one in wanted if one is not REMOVED], sort_keys=True
    )
    comments = [f"{' ' * column}# {n}\n" for n in range(len(items))]
    assert [one for one in comments if one not in found] == []
    kept = [_indented([item], column) for item, new in zip(items, wanted, strict=False) if new is item]
    assert [part for part in kept if part not in found] == []


def _indented(items: list[Any], column: int) -> str:
    return re.sub("^(?=.)", " " * column, written_yaml(items), flags=re.MULTILINE)
