"""The cases of the conformance corpus, and the comparison with them.

A case has a pattern, a stream of events and watermarks, and the results of Flink CEP.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism.columns.time import BEFORE_TIME, END_OF_TIME
from asterism.errors import AsterismError, StreamDefinitionError

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("volume", pa.int64())]
)
CUTS = ("whole", "rows", "random")
Answer = dict[str, Any]
Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    passed: bool
    problem: str = ""


# ---------------------------------------------------------------------- cases


def read_cases(paths: Sequence[Path]) -> Iterator[Case]:
    """The cases in files, in order.

    :raises StreamDefinitionError: a file cannot be read, or a line is not a case
    """
    for path in paths:
        number = 0
        try:
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    number += 1
                    if line.strip():
                        yield _checked(json.loads(line))
        except OSError as error:
            raise StreamDefinitionError(f"{path} cannot be read", error.strerror) from None
        except UnicodeDecodeError as error:
            raise StreamDefinitionError(f"{path}: not valid UTF-8", str(error)) from None
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise StreamDefinitionError(
                f"{path}, line {number}: not a case", str(error), "tests/corpus/README.md describes the format"
            ) from None


def _checked(case: Any) -> Case:
    """*case*, if it is well-formed. Its pattern may still be malformed, which some cases test."""
    if not isinstance(case, dict):
        raise ValueError("a case is a JSON object")
    for name, kind in (("id", str), ("pattern", dict), ("events", list), ("steps", list), ("expected", dict)):
        if not isinstance(case.get(name), kind):
            raise ValueError(f"{name!r} is missing or of the wrong type")
    expected = case["expected"]
    if "error" not in expected and not all(
        isinstance(expected.get(part), list) for part in ("matches", "timeouts", "late")
    ):
        raise ValueError("'expected' needs matches, timeouts and late, or an error")
    ids = [event[0] for event in case["events"]]
    events_of(case, ids)  # Arrow checks the types
    for number, step in enumerate(case["steps"], 1):
        unknown = set(step["events"]) - set(ids)
        if unknown:
            raise ValueError(f"step {number} names the unknown event {sorted(unknown)[0]}")
    return case


_TEXT_OR_POINT = re.compile(r"'(?:[^']|'')*'|(?<![\w.])(?:\d+\.\d*|\.\d+)(?![\w.])")


def with_doubles(graph: Any) -> Any:
    """A pattern graph whose numbers with a decimal point are doubles, as in the SQL of the cases; in Spark SQL they are
    decimals.

    >>> with_doubles({"condition": {"type": "SQL", "expression": "price > 2.5 OR name = '2.5'"}})
    {'condition': {'type': 'SQL', 'expression': "price > 2.5D OR name = '2.5'"}}
    """

    def marked(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith("'") else f"{float(match[0])!r}D"

    match graph:
        case list():
            return [with_doubles(part) for part in graph]
        case dict():
            return {
                name: _TEXT_OR_POINT.sub(marked, part)
                if name == "expression" and isinstance(part, str)
                else with_doubles(part)
                for name, part in graph.items()
            }
    return graph


def events_of(case: Case, ids: Sequence[int]) -> pa.Table:
    by_id = {event[0]: event for event in case["events"]}
    rows = [by_id[number] for number in ids]
    return pa.table([[row[column] for row in rows] for column in range(len(SCHEMA))], schema=SCHEMA)


def cut(events: Sequence[int], cuts: str, rng: random.Random) -> list[list[int]]:
    """The events of one step, divided into the batches in which they arrive."""
    if cuts == "rows":
        return [[event] for event in events]
    if cuts == "random" and len(events) > 1:
        places = sorted(rng.sample(range(1, len(events)), rng.randint(0, len(events) - 1)))
        return [list(events[a:b]) for a, b in zip([0, *places], [*places, len(events)], strict=True)]
    return [list(events)] if events else []


def pieces(case: Case, cuts: str, rng: random.Random) -> Iterator[tuple[list[int], int]]:
    """The stream as calls of the operator: the events (none if only the watermark advances), and the watermark."""
    watermark = BEFORE_TIME
    for step in case["steps"]:
        for piece in cut(step["events"], cuts, rng):
            yield piece, watermark
        if step.get("watermark") is not None:
            watermark = max(watermark, to_micros(step["watermark"]))
            yield [], watermark


def to_micros(watermark: int) -> int:
    return END_OF_TIME if watermark >= 2**63 - 1 else max(BEFORE_TIME, min(watermark * 1000, END_OF_TIME - 1))


def rng_for(case: Case, seed: int) -> random.Random:
    """A random number generator per case, so that a case is divided in the same way regardless of the other cases."""
    return random.Random(f"{seed}/{case['id']}")


# ---------------------------------------------------------------------- verdicts


def normalized(results: Sequence[Sequence[Any]]) -> Counter[str]:
    """A list of matches in a form that does not depend on the order among equal times."""
    return Counter(json.dumps([time, dict(sorted(stages.items()))]) for time, stages in results)


def judge(case: Case, answer: Answer | Exception) -> Outcome:
    """Compare with the recorded result: matches and timeouts without the order among equal times, late events exactly."""
    expected = case["expected"]
    if "error" in expected:
        if isinstance(answer, AsterismError):
            return Outcome(case["id"], True)
        got = f"; got {type(answer).__name__}: {answer}" if isinstance(answer, Exception) else ""
        return Outcome(case["id"], False, f"should have been rejected: {expected['error']}{got}")
    if isinstance(answer, Exception):
        return Outcome(case["id"], False, f"{type(answer).__name__}: {answer}")
    for part in ("matches", "timeouts"):
        if normalized(expected[part]) != normalized(answer[part]):
            return Outcome(case["id"], False, f"{part}: expected {expected[part]}, got {answer[part]}")
        times = [time for time, _ in answer[part]]
        if part == "matches" and times != sorted(times):
            return Outcome(case["id"], False, f"matches out of order: {times}")
    if expected["late"] != answer["late"]:
        return Outcome(case["id"], False, f"late: expected {expected['late']}, got {answer['late']}")
    return Outcome(case["id"], True)
