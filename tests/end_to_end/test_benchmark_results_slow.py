"""Results of the benchmarks: how they follow from records, how they are stored, shown and compared."""

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import flink, results, run
from benchmarks.items import ITEMS, Found, Item, Records, Step
from benchmarks.results import Result
from benchmarks.row_patterns import LONG

RATIO = Result("throughput", "W1", "times Flink", 5.0, target=5, size="S", date="2026-01-01", machine="2 cores, 24 GiB")
OVER = replace(RATIO, item="batch", name="over the window query", value=1.0, target=1.2, less=True)


# ------------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (RATIO, "5.00 ≥ 5"),
        (replace(RATIO, value=4.987), "4.99 < 5"),
        (OVER, "1.00 ≤ 1.2"),
        (replace(OVER, value=1.31), "1.31 > 1.2"),
        (replace(RATIO, target=None), "5.00"),
        (replace(RATIO, value=1234.5, unit="k", target=None), "1,234 k"),
        (replace(RATIO, value=45.67, target=20, bound=True), "over 45.7 ≥ 20"),
        (replace(RATIO, value=0.0, target=None), "0.00"),
        (replace(RATIO, value=0.0123, target=None), "0.01"),
        (replace(RATIO, value=-35.0, unit="ms", target=250, less=True), "-35.0 ms ≤ 250"),
    ],
)
def test_a_result_is_shown_with_its_target_and_whether_it_is_met(result: Result, text: str) -> None:
    assert str(result) == text


def test_a_table_has_a_row_per_case_and_a_column_per_name() -> None:
    found = [
        RATIO,
        replace(RATIO, case="W2", value=3.0, target=4),
        replace(RATIO, name="seconds", unit="s", target=None),
    ]
    assert results.markdown(found) == (
        "| | times Flink | seconds |\n| --- | ---: | ---: |\n| W1 | 5.00 ≥ 5 | 5.00 s |\n| W2 | 3.00 < 4 | |\n"
    )


# ------------------------------------------------------------------ file


def test_stored_results_are_read_again(tmp_path: Path) -> None:
    results.save([RATIO, OVER], tmp_path / "results.json")
    assert results.load(tmp_path / "results.json") == [RATIO, OVER]
    assert results.load(tmp_path / "missing.json") == []


def test_what_was_not_measured_again_stays_stored() -> None:
    other_size, new = replace(RATIO, size="M"), replace(RATIO, value=6.0)
    assert results.merged([other_size, RATIO, OVER], [new]) == [new, OVER, other_size]


def test_the_readme_shows_size_m_or_else_the_largest() -> None:
    sizes = [replace(RATIO, size=size) for size in ("XS", "M", "L")]
    assert results.shown(sizes, "throughput") == [sizes[1]]
    assert results.shown([sizes[0], OVER], "throughput") == [sizes[0]]
    assert results.shown([OVER], "throughput") == []


def test_the_readme_has_the_stored_results() -> None:
    """`python -m benchmarks.run --store` writes both."""
    readme = results.README.read_text()
    assert results.with_results(readme, results.load(results.STORED)) == readme


def test_the_readme_has_a_place_for_every_item() -> None:
    readme = results.README.read_text()
    everything = [replace(RATIO, item=item) for item in ITEMS]
    assert results.with_results(readme, everything).count("| W1 | 5.00 ≥ 5 |") == len(ITEMS)
    with pytest.raises(ValueError, match=r"README\.md has no place for the results of unknown"):
        results.with_results(readme, [replace(RATIO, item="unknown")])


def test_the_readme_states_when_and_whether_the_machine_was_busy() -> None:
    assert results.measured_when([RATIO]) == "Size S, 2026-01-01, 2 cores, 24 GiB."
    busy = replace(RATIO, busy=1.24, date="2026-01-03")
    assert results.measured_when([RATIO, busy]) == (
        "Size S, 2026-01-01 to 2026-01-03, 2 cores, 24 GiB. Other programs used 1.2 cores before the measurement."
    )


# ------------------------------------------------------------------ comparison


@pytest.mark.parametrize(
    ("stored", "now", "times_worse", "worse"),
    [
        (RATIO, 4.0, 1.25, False),
        (RATIO, 3.8, 5 / 3.8, True),
        (RATIO, 10.0, 0.5, False),
        (RATIO, 0.0, float("inf"), True),
        (OVER, 1.25, 1.25, False),
        (OVER, 1.4, 1.4, True),
        (OVER, 0.5, 0.5, False),
    ],
)
def test_a_ratio_is_worse_beyond_the_tolerance(stored: Result, now: float, times_worse: float, worse: bool) -> None:
    (comparison,) = results.compare([replace(stored, value=now)], [stored], tolerance=0.3)
    assert comparison.times_worse == pytest.approx(times_worse)
    assert comparison.worse is worse


def test_only_ratios_that_are_stored_at_the_same_size_are_compared() -> None:
    seconds = replace(RATIO, name="seconds", unit="s")
    new = replace(RATIO, case="W9")
    assert results.compare([RATIO, seconds, new], [replace(RATIO, size="M"), seconds], 0.3) == []


def test_the_worst_ratio_comes_first() -> None:
    now = [replace(RATIO, value=4.5), replace(OVER, value=2.0)]
    assert [comparison.now.item for comparison in results.compare(now, [RATIO, OVER], 0.3)] == ["batch", "throughput"]


def test_of_two_measurements_the_better_value_counts() -> None:
    first = [RATIO, OVER, replace(RATIO, case="W2")]
    second = [replace(RATIO, value=6.0), replace(OVER, value=2.0)]
    assert results.better_of(first, second) == [second[0], OVER, first[2]]


# ------------------------------------------------------------------ records


def test_medians_leave_out_the_warm_up_unless_it_is_all_there_is() -> None:
    rounds = [{"round": n, "mode": "stream", "seconds": s} for n, s in enumerate([9.0, 1.0, 2.0, 3.0])]
    records = Records({"W1": rounds, "once": rounds[:1]})
    assert records.median("W1", "seconds", mode="stream") == 2.0
    assert records.median("once", "seconds") == 9.0
    assert records.median("W1", "seconds", mode="batch") is None
    assert records.median("missing", "seconds") is None
    assert records.most("W1", "seconds") == 9.0


@pytest.mark.parametrize("size", ["XS", "S", "M", "L"])
@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_an_item_without_records_has_no_results(item: Item, size: str) -> None:
    """As without Flink, or after a program has failed."""
    names = [step.name for step in item.steps(size)]
    assert names
    assert len(set(names)) == len(names)
    found = Found(item.name)
    item.results(Records({}), found, size)
    assert found.results == []


@pytest.mark.parametrize(
    ("item", "records", "case", "name", "text"),
    [
        (
            "batch",
            {"W1": [{"mode": "batch", "seconds": 1.5}, {"mode": "window", "seconds": 1.0}]},
            "W1", "over the window query", "1.50 > 1.2",
        ),
        (
            "batch",
            {"W5": [{"mode": "batch", "seconds": 1.5}], "W5 flink batch": [{"seconds": 9.0}]},
            "W5", "times Flink", "6.00 ≥ 5",
        ),
        (
            "row_patterns",
            {"W3": [{"mode": "sql_stream", "rest_events_per_s": 900}], "W3 flink sql": [{"events_per_s": 100}]},
            "W3", "times Flink SQL, after the first", "9.00 < 10",
        ),
        (
            "row_patterns",
            {"W2": [{"mode": "sql_batch", "seconds": 1.5}, {"mode": "window", "seconds": 1.0}]},
            "W2", "batch over the window query", "1.50 ≤ 2",
        ),
        ("row_patterns", {"tables": [{"case": LONG, "seconds": 0.5}]}, LONG, "batch", "0.50 s ≤ 1"),
        (
            "replay",
            {"W1 M": [{"mode": "stream", "seconds": 5.0}], "W1 L": [{"mode": "stream", "seconds": 22.0}]},
            "W1, stream", "L over M", "4.40 ≤ 4.5",
        ),
        ("replay", {"W1 L": [{"mode": "batch", "peak_rss_mb": 7168}]}, "W1, batch", "largest memory", "7.00 GB > 6"),
        (
            "state",
            {"series": [{"open": 1_000, "bytes_written": 100}, {"open": 1_000_000, "bytes_written": 140}]},
            "1,000,000", "written over 1,000", "1.40 ≤ 1.5",
        ),
        (
            "state",
            {"series": [{"open": 1_000, "seconds": 0.5}], "largest": [{"open": 10_000_000, "seconds": 2.0}]},
            "10,000,000", "seconds over 1,000", "4.00",
        ),
        (
            "cold_start",
            {"cold": [{"case": "stream", "first": 6.0}, {"case": "spark", "first": 5.0}]},
            "stream", "first over Spark's own", "1.20 ≤ 1.5",
        ),
        (
            "cold_start",
            {"cold": [{"case": "stream", "first": 6.0}, {"case": "state", "first": 5.0}]},
            "stream", "first over Spark's state in Python", "1.20",
        ),
        (
            "rules",
            {"rules": [{"rules": 100, "rest_events_per_s": 90}, {"rules": 1_000, "rest_events_per_s": 20}]},
            "1,000 rules", "cost over 100 rules", "4.50 > 3",
        ),
        (
            "rules",
            {"unwritten": [{"rules": 100, "rest_events_per_s": 100}, {"rules": 1_000, "rest_events_per_s": 50}]},
            "1,000 rules", "cost over 100 rules, matches not written", "2.00 ≤ 3",
        ),
        (
            "rules",
            {"rules": [{"rules": 0, "rest_events_per_s": 90}, {"rules": 1, "rest_events_per_s": 45}]},
            "1 rule", "times the fixed pattern", "0.50 < 1",
        ),
        (
            "windows",
            {"sliding": [{"mode": "asterism", "rest_events_per_s": 9}, {"mode": "spark", "rest_events_per_s": 6}]},
            "sliding", "times Spark's own", "1.50 ≥ 1",
        ),
        (
            "latency",
            {"idle": [{"mode": "asterism", "median_s": 0.6}, {"mode": "spark", "median_s": 0.2}]},
            "micro-batch without events", "beyond Spark's own", "400 ms > 250",
        ),
        ("latency", {"match": [{"trigger_s": 0.5, "p99_s": 0.9}]}, "event to match in the sink", "99%", "0.90 s ≤ 1"),
        ("rule_load", {"changes": [{"lost": 0}]}, "1,000 rules, 1,000 events/s", "changes lost", "0.00 ≤ 0"),
        (
            "cores",
            {
                "W2, 1": [{"mode": "stream", "rest_events_per_s": 10}],
                "W2, 2": [{"mode": "stream", "rest_events_per_s": 17}],
            },
            "W2", "on two cores", "1.70 < 1.8",
        ),
    ],
)  # fmt: skip
def test_targets(item: str, records: dict[str, list[dict[str, Any]]], case: str, name: str, text: str) -> None:
    found = Found(item)
    ITEMS[item].results(Records(records), found, "M")
    assert {(result.case, result.name): str(result) for result in found.results}[case, name] == text


def of_throughput(by_flink: dict[str, Any]) -> dict[str, Result]:
    found = Found("throughput")
    stream = {"mode": "stream", "round": 1, "rest_events_per_s": 2_000, "events_per_s": 1_000, "seconds": 3.0}
    floor = {"mode": "floor", "round": 1, "events_per_s": 4_000}
    ITEMS["throughput"].results(Records({"W2": [stream, floor], "W2 flink": [by_flink]}), found, "M")
    return {result.name: result for result in found.results}


def test_throughput_is_compared_with_flink() -> None:
    found = of_throughput({"mode": "flink", "round": 1, "events_per_s": 400})
    assert str(found["times Flink, after the first"]) == "5.00 ≥ 4"
    assert str(found["times Flink, whole run"]) == "2.50 ≥ 2.5"
    assert str(found["times the floor"]) == "0.50"
    assert "times Flink with a filter" not in found


def test_throughput_is_measured_without_flink() -> None:
    found = of_throughput({})
    assert list(found) == ["thousand events/s, after the first", "times the floor"]


def test_a_flink_that_was_stopped_gives_a_bound() -> None:
    found = Found("rules")
    rules = [{"rules": 100, "round": 1, "seconds": 20.0}]
    ITEMS["rules"].results(Records({"rules": rules, "W6 flink": [{"more_than_s": 600}]}), found, "S")
    (result,) = (result for result in found.results if "Flink" in result.name)
    assert str(result) == "over 30.0 ≥ 20"


# ------------------------------------------------------------------ programs

PROGRAM = """
import json, os, pathlib, sys, time
print("a line that is not a record")
if sys.argv[1] == "fails":
    sys.exit("the reason")
if sys.argv[1] == "hangs":
    time.sleep(60)
if sys.argv[1] == "cpus":
    sys.argv[1] = len(os.sched_getaffinity(0))
with pathlib.Path(sys.argv[2]).open("a") as runs:
    runs.write("run ")
print(json.dumps({"value": float(sys.argv[1])}))
"""


@pytest.fixture
def item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Item]:
    """An item with a step for each argument of PROGRAM."""
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(run, "wait_until_quiet", lambda seconds: 0.25)

    def item_of(*arguments: str, limit: float = 60) -> Item:
        steps = [Step(f"step {n}", "program", (a, str(tmp_path / "runs")), limit) for n, a in enumerate(arguments)]

        def of(records: Records, found: Found, size: str) -> None:
            for step in steps:
                found.value(step.name, "value", records.median(step.name, "value"), "")

        return Item("test", "for tests", lambda size: steps, of)

    return item_of


def measurements(tmp_path: Path) -> run.Measurements:
    return run.Measurements(tmp_path / "out", "S", lambda text: None)


def test_records_become_results_with_their_conditions(tmp_path: Path, item: Callable[..., Item]) -> None:
    (found,) = measurements(tmp_path).of(item("2.5"))
    assert (found.value, found.size, found.machine) == (2.5, "S", results.machine())
    assert found.date
    assert found.busy == 0.25


def test_after_an_interruption_only_the_missing_programs_run(tmp_path: Path, item: Callable[..., Item]) -> None:
    measurements(tmp_path).of(item("1"))
    both = item("1", "2")
    assert [result.value for result in measurements(tmp_path).of(both)] == [1, 2]
    assert (tmp_path / "runs").read_text() == "run run "
    again = measurements(tmp_path)
    again.forget([both])
    again.of(both)
    assert (tmp_path / "runs").read_text() == "run run run run "


def test_a_program_that_fails_is_reported_and_the_others_run(tmp_path: Path, item: Callable[..., Item]) -> None:
    said: list[str] = []
    measured = run.Measurements(tmp_path / "out", "S", said.append)
    assert [result.value for result in measured.of(item("fails", "2"))] == [2]
    assert measured.failed == ["test: step 0"]
    assert any("FAILED (status 1)" in text and "| the reason" in text for text in said)


def test_a_program_that_takes_all_memory_is_ended(
    tmp_path: Path, item: Callable[..., Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LEAST_MEMORY", 2**60)
    said: list[str] = []
    measured = run.Measurements(tmp_path / "out", "S", said.append)
    assert measured.of(item("hangs")) == []
    assert any("FAILED (ended, because the machine had less than" in text for text in said)


def test_without_flink_its_programs_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink, "library", lambda: None)
    said: list[str] = []
    measured = run.Measurements(tmp_path / "out", "S", said.append)
    steps = [Step("W1 flink", "benchmarks.flink", ())]
    assert measured.of(Item("test", "for tests", lambda size: steps, lambda records, found, size: None)) == []
    assert measured.failed == []
    assert said == ["test: without Flink, whose jars are not there (see benchmarks/programs.md)"]


@pytest.mark.skipif(shutil.which("taskset") is None, reason="there is no taskset")
def test_a_program_can_be_limited_to_one_cpu(tmp_path: Path, item: Callable[..., Item]) -> None:
    limited = replace(item("cpus").steps("S")[0], cpus=1)
    found: list[Records] = []
    measurements(tmp_path).of(
        Item("test", "for tests", lambda size: [limited], lambda records, _, size: found.append(records))
    )
    assert found[0].of_step["step 0"] == [{"value": 1.0}]


def test_a_program_that_hangs_is_ended(tmp_path: Path, item: Callable[..., Item]) -> None:
    said: list[str] = []
    measured = run.Measurements(tmp_path / "out", "S", said.append)
    assert measured.of(item("hangs", limit=1)) == []
    assert any("FAILED (ended after 1 s)" in text for text in said)


@pytest.mark.parametrize(("now", "status", "runs"), [("5.5", 0, "run "), ("2.0", 1, "run run ")])
def test_the_check_fails_if_a_ratio_is_worse_twice(
    now: str, status: int, runs: str,
    tmp_path: Path, item: Callable[..., Item], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    results.save([replace(RATIO, item="test", case="step 0", name="value")], tmp_path / "results.json")
    monkeypatch.setattr(results, "STORED", tmp_path / "results.json")
    monkeypatch.setitem(ITEMS, "test", item(now))
    assert run.main(["--check", "--items", "test"]) == status
    assert (tmp_path / "runs").read_text() == runs
    printed = capsys.readouterr().out
    assert ("WORSE: 2.50 times worse" in printed) is bool(status)


def test_the_check_fails_if_nothing_is_stored(
    tmp_path: Path, item: Callable[..., Item], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "STORED", tmp_path / "results.json")
    monkeypatch.setitem(ITEMS, "test", item("1"))
    assert run.main(["--check", "--items", "test"]) == 1
    assert "No ratio of size S is stored" in capsys.readouterr().out


# ------------------------------------------------------------------ Flink

JAVA = """#!{python}
import sys, time
if "workload=W1" in sys.argv:
    print('{{"round": 0, "seconds": 1.5}}', flush=True)
if "workload=W6" in sys.argv:
    time.sleep(60)
sys.exit("workload=W2" in sys.argv)
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "java"
    program.write_text(JAVA.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def run_flink(tmp_path: Path, workload: str, limit: float = 60) -> list[dict[str, Any]]:
    variant = flink.VARIANTS[flink.STREAM]
    return list(
        flink.run(tmp_path, tmp_path, workload, variant, data=tmp_path, runs=1, cores=2, heap="1g", limit=limit)
    )


@pytest.mark.usefixtures("java")
def test_flinks_records_name_the_workload_and_the_variant(tmp_path: Path) -> None:
    assert run_flink(tmp_path, "W1") == [{"workload": "W1", "mode": "flink", "round": 0, "seconds": 1.5}]


@pytest.mark.usefixtures("java")
def test_flink_is_ended_after_the_limit(tmp_path: Path) -> None:
    assert run_flink(tmp_path, "W6", limit=0.5) == [{"workload": "W6", "mode": "flink", "more_than_s": 0.5}]


@pytest.mark.usefixtures("java")
def test_a_failure_of_flink_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="Flink ended with status 1: W2, flink"):
        run_flink(tmp_path, "W2")


def test_flinks_jars_are_in_the_folder_of_the_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINK_LIB", str(tmp_path))
    assert flink.library() is None
    (tmp_path / f"flink-dist-{flink.VERSION}.jar").touch()
    assert flink.library() == tmp_path


def test_every_workload_of_flink_has_an_expected_result() -> None:
    expected = json.loads((Path(flink.HERE).parent / "expected.json").read_text())
    workloads = {workload for variant in flink.VARIANTS.values() for workload in variant.workloads}
    assert all(workloads == set(of_size) for of_size in expected.values())
