"""Results of the benchmarks: their targets, the file in which they are stored, the tables that show them, their comparison."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.gen_data import SIZES

STORED = Path(__file__).parent / "results.json"
README = Path(__file__).parent / "README.md"
_BEGIN, _END = "<!-- results: {} -->\n", "<!-- end of results -->\n"


@dataclass(frozen=True, slots=True)
class Result:
    """A measured value."""

    item: str
    case: str
    """The row of the table."""
    name: str
    """The column of the table."""
    value: float
    unit: str = ""
    """Empty: a ratio."""
    target: float | None = None
    less: bool = False
    """Whether less is better."""
    bound: bool = False
    """The other side was stopped before its end: the value is at least this."""
    size: str = ""
    date: str = ""
    machine: str = ""
    busy: float = 0.0
    """The cores that other programs used before the measurement."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.size, self.item, self.case, self.name

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None: there is none."""
        if self.target is None:
            return None
        return self.value <= self.target if self.less else self.value >= self.target

    def __str__(self) -> str:
        value = ("over " if self.bound else "") + number(self.value) + (f" {self.unit}" if self.unit else "")
        if self.target is None:
            return value
        sign = {(True, True): "≤", (True, False): ">", (False, True): "≥", (False, False): "<"}[
            self.less, bool(self.met)
        ]
        return f"{value} {sign} {number(self.target, whole=True)}"


def number(value: float, *, whole: bool = False) -> str:
    """A number with three digits; *whole*: without a fraction of zero."""
    if whole and value == int(value):
        return f"{value:,.0f}"
    digits = 2 if value == 0 else max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 2)}f}"
    return text.rstrip("0").rstrip(".") if whole else text


def machine() -> str:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB"


# ------------------------------------------------------------------ file


def load(path: Path) -> list[Result]:
    return [Result(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def save(results: Iterable[Result], path: Path) -> None:
    """One line per result, without the fields that have their default."""
    defaults = {field.name: field.default for field in fields(Result)}
    lines = [
        json.dumps(
            {name: value for name, value in asdict(result).items() if value != defaults[name]}, ensure_ascii=False
        )
        for result in results
    ]
    path.write_text("[\n " + ",\n ".join(lines) + "\n]\n")


def merged(stored: Iterable[Result], new: Sequence[Result]) -> list[Result]:
    """The *new* results, and the *stored* ones that were not measured again, for example without Flink."""
    measured = {result.key for result in new}
    kept = [result for result in stored if result.key not in measured]
    sizes = list(SIZES)
    return sorted([*new, *kept], key=lambda result: sizes.index(result.size))


# ------------------------------------------------------------------ tables


def rows(results: Iterable[Result]) -> tuple[list[str], list[list[str]]]:
    """The results of an item as a table: its header, and a row per case."""
    results = list(results)
    names = list(dict.fromkeys(result.name for result in results))
    cases = list(dict.fromkeys(result.case for result in results))
    cells = {(result.case, result.name): str(result) for result in results}
    return ["", *names], [[case, *(cells.get((case, name), "") for name in names)] for case in cases]


def markdown(results: Iterable[Result]) -> str:
    header, body = rows(results)
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
    return "".join("|" + "".join(f" {cell} |" if cell else " |" for cell in line) + "\n" for line in lines)


def measured_when(results: Sequence[Result]) -> str:
    """For example: ``Size M, 2026-11-22, 2 cores, 24 GiB.``"""
    first, dates = results[0], sorted({result.date for result in results})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    busy = max(result.busy for result in results)
    noted = f" Other programs used {busy:.1f} cores before the measurement." if busy >= 0.3 else ""
    return f"Size {first.size}, {when}, {first.machine}.{noted}"


def shown(stored: Iterable[Result], item: str) -> list[Result]:
    """What the README shows of an item: its results at size M, or else at the largest size."""
    of_item = [result for result in stored if result.item == item]
    sizes = {result.size for result in of_item}
    size = "M" if "M" in sizes else max(sizes, key=list(SIZES).index, default="")
    return [result for result in of_item if result.size == size]


def with_results(readme: str, stored: Sequence[Result]) -> str:
    """The text of the README, with the table of each item between its marks."""
    for item in dict.fromkeys(result.item for result in stored):
        before, mark, rest = readme.partition(_BEGIN.format(item))
        if not mark:
            raise ValueError(f"README.md has no place for the results of {item}")
        _, end, after = rest.partition(_END)
        results = shown(stored, item)
        readme = f"{before}{mark}{measured_when(results)}\n\n{markdown(results)}{end}{after}"
    return readme


# ------------------------------------------------------------------ comparison


@dataclass(frozen=True, slots=True)
class Comparison:
    """A ratio and what was stored of it."""

    now: Result
    stored: Result
    tolerance: float

    @property
    def times_worse(self) -> float:
        """Below 1: better."""
        larger, smaller = (self.now, self.stored) if self.now.less else (self.stored, self.now)
        return larger.value / smaller.value if smaller.value else math.inf

    @property
    def worse(self) -> bool:
        return self.times_worse > 1 + self.tolerance


def compare(now: Iterable[Result], stored: Iterable[Result], tolerance: float) -> list[Comparison]:
    """The ratios that both have, those that became worse by most first. Values with a unit depend on the machine: they are not
    compared.
    """
    before = {result.key: result for result in stored}
    found = [
        Comparison(result, before[result.key], tolerance) for result in now if not result.unit and result.key in before
    ]
    return sorted(found, key=lambda comparison: -comparison.times_worse)


def better_of(first: Iterable[Result], second: Iterable[Result]) -> list[Result]:
    """The better value of each result of two measurements."""
    again = {result.key: result for result in second}
    found = []
    for result in first:
        other = again.get(result.key, result)
        found.append(min(result, other, key=lambda r: r.value if r.less else -r.value))
    return found
