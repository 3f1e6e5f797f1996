"""Which of the ways to match is preferred: PERMUTE is an alternation, and loops are those of regular expressions."""

from __future__ import annotations

import re
from itertools import permutations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from asterism.expressions.evaluation import tried_before
from asterism.row_patterns.checking import check
from asterism.row_patterns.clause.clause import (
    Alternation,
    Concatenation,
    EmptyPattern,
    Exclusion,
    PartitionEnd,
    PartitionStart,
    PatternNode,
    Permutation,
    Quantified,
    Variable,
)
from asterism.row_patterns.clause.reading import read
from asterism.row_patterns.result_rows import match_table
from tests.row_patterns.strategies import patterns

SCHEMA = pa.schema({"i": pa.int64(), "c": pa.string()})
ACCEPTED = {"A": "ab", "B": "bc", "C": "ac"}
"""Which letters each variable accepts. Each letter is accepted by two, so that many ways to match compete."""


def labels_of(pattern: str, text: str, conditions: dict[str, str]) -> list[list[str]]:
    """The variables of the match that begins at each row; none where there is no match, or an empty one."""
    defined = ", ".join(f"{name} AS {condition}" for name, condition in conditions.items())
    clause = (
        "ORDER BY i MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS v, FIRST(i) AS first ALL ROWS PER MATCH"
        f" AFTER MATCH SKIP TO NEXT ROW PATTERN (({pattern}) | $ ^ A B C) DEFINE {defined}"
    )
    with tried_before():
        checked = check(read(clause), SCHEMA)
    table = pa.table({"i": range(len(text)), "c": list(text)}, SCHEMA)
    labels: list[list[str]] = [[] for _ in text]
    for row in match_table(checked, table).to_pylist():
        if row["first"] is not None:
            labels[row["first"]].append(row["v"])
    return labels


def accepts(letters: str) -> str:
    return f"c IN ({', '.join(repr(letter) for letter in letters)})"


PLAIN = {name: accepts(letters) for name, letters in ACCEPTED.items()}
OF_THE_MATCH = PLAIN | {"B": f"{PLAIN['B']} AND COUNT(A.*) < 3", "C": f"{PLAIN['C']} AND COUNT(B.*) <= COUNT(C.*)"}


@given(
    st.lists(patterns(leaves=3).filter(lambda node: len(str(node)) < 25), min_size=2, max_size=4),
    st.text("abc", max_size=8),
    st.sampled_from([PLAIN, OF_THE_MATCH]),
)
def test_permute_is_the_alternation_of_all_orders(
    parts: list[PatternNode], text: str, conditions: dict[str, str]
) -> None:
    permuted = f"PERMUTE({', '.join(map(str, parts))})"
    alternation = " | ".join(" ".join(f"({part})" for part in order) for order in permutations(parts))
    assert labels_of(permuted, text, conditions) == labels_of(alternation, text, conditions)


def shows_all_rows(node: PatternNode) -> bool:
    return not any(isinstance(part, Exclusion) for part in node.walk())


@given(patterns(leaves=5).filter(lambda node: len(str(node)) < 60 and shows_all_rows(node)), st.text("abc", max_size=8))
def test_the_same_rows_match_as_with_a_regular_expression(pattern: PatternNode, text: str) -> None:
    regex = re.compile(regular_expression(pattern))
    matches = [regex.match(text, start) for start in range(len(text))]
    expected = [match.end() - match.start() if match else 0 for match in matches]
    assert [len(labels) for labels in labels_of(str(pattern), text, PLAIN)] == expected


def regular_expression(node: PatternNode) -> str:
    match node:
        case Variable():
            return f"[{ACCEPTED[node.name]}]"
        case EmptyPattern():
            return "(?:)"
        case PartitionStart():
            return r"\A"
        case PartitionEnd():
            return r"\Z"
        case Concatenation():
            return "".join(f"(?:{regular_expression(part)})" for part in node.of)
        case Alternation():
            return "|".join(f"(?:{regular_expression(part)})" for part in node.of)
        case Permutation():
            return regular_expression(Alternation(tuple(map(Concatenation, permutations(node.of)))))
        case Quantified():
            most = "" if node.most is None else node.most
            return f"(?:{regular_expression(node.of)}){{{node.least},{most}}}{'' if node.greedy else '?'}"
    raise TypeError(node)
