"""The corpus has Flink's answers: the default gives others in the listed cases, each for a documented reason, and nowhere else.

``ASTERISM_REWRITE=1 pytest tests/conformance/test_changed_by_default.py`` writes ``tests/corpus/changed_by_default.json`` anew;
then read the difference, and mend the counts in ``docs/differences_from_flink.md``.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from asterism.conformance.corpus import normalized, read_cases
from asterism.conformance.engines import operator_for, run_kernel
from asterism.errors import AsterismError
from asterism.patterns.semantics import Semantics
from tests.kit import CORPUS, ROOT
from tests.reference.matcher import CORRECTIONS, run_case

LIST = CORPUS / "changed_by_default.json"
DOCUMENT = ROOT / "docs" / "differences_from_flink.md"
CASE_FILES = sorted(path for path in CORPUS.glob("*.jsonl") if path.stem != "malformed")
REFUSED = "refused"
"""In the list, beside the corrections that the reference matcher knows one by one: the pattern is not accepted."""
EVERY = 40
"""Of the cases that do not change, the engine answers one of so many: compiling a pattern takes longer than all else."""

Json = dict[str, Any]


def comparable(answer: Json) -> tuple[Counter[str], Counter[str], list[int]]:
    """Matches and timeouts up to the order among equal times, late events exactly."""
    return normalized(answer["matches"]), normalized(answer["timeouts"]), answer["late"]


def changed_by(case: Json) -> list[str]:
    """The fewest corrections that together turn Flink's answers into the default's; none: they are the same."""
    try:
        operator_for(case, Semantics.DEFAULT)
    except AsterismError:
        return [REFUSED]
    default = comparable(run_case(case, "default"))
    return next(
        list(chosen)
        for number in range(len(CORRECTIONS) + 1)
        for chosen in combinations(CORRECTIONS, number)
        if comparable(run_case(case, chosen)) == default
    )


def listed() -> dict[str, list[str]]:
    """Why, by case."""
    found: dict[str, list[str]] = json.loads(LIST.read_text(encoding="utf-8"))
    return found


@pytest.mark.skipif("ASTERISM_REWRITE" not in os.environ, reason="only where the list is to be written anew")
def test_write_the_list() -> None:
    changes = {case["id"]: changed_by(case) for path in CASE_FILES for case in read_cases([path])}
    lines = [f"{json.dumps(case)}: {json.dumps(why)}" for case, why in changes.items() if why]
    LIST.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_exactly_the_listed_cases_change(path: Path) -> None:
    """By the reference matcher: each for its reason."""
    why = listed()
    for case in read_cases([path]):
        if case["id"] in why:
            assert changed_by(case) == why[case["id"]], case["id"]
        else:
            assert comparable(run_case(case, "default")) == comparable(case["expected"]), case["id"]


@pytest.mark.parametrize("path", CASE_FILES, ids=lambda path: path.stem)
def test_the_engine_gives_the_reference_matchers_answers(path: Path) -> None:
    """To all cases that change and some others."""
    why = listed()
    check_engine(case for n, case in enumerate(read_cases([path])) if n % EVERY == 0 or case["id"] in why)


def check_engine(cases: Iterable[Json]) -> None:
    why = listed()
    for case in cases:
        try:
            answer = comparable(run_kernel(case, Semantics.DEFAULT, "whole", random.Random(3)))
        except AsterismError:
            assert why[case["id"]] == [REFUSED], case["id"]
        else:
            assert answer == comparable(run_case(case, "default")), case["id"]


def test_the_list_names_cases_of_the_corpus() -> None:
    assert listed().keys() <= {case["id"] for case in read_cases(CASE_FILES)}


# --- the document ---

CLAIM = re.compile(
    r"^In the corpus(?: \(`(?P<name>\w+)`\))?: (?P<count>no|\d+) cases?(?P<examples>[^\n]*)\.$", re.MULTILINE
)


def claims() -> dict[str, tuple[int, list[str]]]:
    """What the document says of each correction: how many cases, and which examples."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return {
        claim["name"]: (
            0 if claim["count"] == "no" else int(claim["count"]),
            re.findall(r"`([^`]+)`", claim["examples"]),
        )
        for claim in CLAIM.finditer(text)
    }


def test_every_correction_is_documented_once() -> None:
    names = [claim["name"] for claim in CLAIM.finditer(DOCUMENT.read_text(encoding="utf-8"))]
    assert names == [*CORRECTIONS, REFUSED]


@pytest.mark.parametrize("name", [*CORRECTIONS, REFUSED])
def test_the_document_counts_the_cases(name: str) -> None:
    count, examples = claims()[name]
    cases = [case for case, why in listed().items() if name in why]
    assert count == len(cases)
    assert set(examples) <= set(cases)
    assert len(examples) >= min(2, len(cases))


def test_the_document_counts_all_cases() -> None:
    total = len(list(read_cases(sorted(CORPUS.glob("*.jsonl")))))
    assert f"{len(listed())} of the {total} cases of the corpus" in " ".join(
        DOCUMENT.read_text(encoding="utf-8").split()
    )
