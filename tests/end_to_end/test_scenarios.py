"""Questions about real data whose answers are known: computed by plain loops, and the same as Flink's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from asterism import AfterMatchSkipStrategy, Pattern, Semantics
from asterism.testing import PatternHarness

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
SKIP_PAST_LAST = AfterMatchSkipStrategy.skip_past_last_event()


def minutes(number: int) -> timedelta:
    return timedelta(minutes=number)


def read_csv(path: Path) -> pa.Table:
    """Timestamps in microseconds, as Spark has them."""
    return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types={"ts": pa.timestamp("us")}))


def ssh_logins() -> pa.Table:
    log = read_csv(ROOT / "examples" / "data" / "ssh_auth.csv")
    return log.filter(pc.is_in(log["event"], pa.array(["failed", "accepted"])))


def clicks() -> pa.Table:
    return read_csv(DATA / "clickstream.csv.gz")


def flights() -> pa.Table:
    return pq.read_table(DATA / "flights_nyc2013_part.parquet")


def prices() -> pa.Table:
    table = pq.read_table(DATA / "stock_prices.parquet")
    return table.append_column("ts", table["date"].cast(pa.timestamp("us")))


SCENARIOS: dict[str, tuple[Callable[[], pa.Table], str, str, str, Pattern]] = {
    # Ten or more failed logins in a row within five minutes.
    "P1": (ssh_logins, "ip", "ts", "event_id", (
        Pattern.begin("f", SKIP_PAST_LAST).where("event = 'failed'").times_or_more(10).consecutive().within(minutes(5))
    )),
    # A login that succeeds right after three or more failures within ten minutes.
    "P2": (ssh_logins, "ip", "ts", "event_id", (
        Pattern.begin("f", SKIP_PAST_LAST).where("event = 'failed'").times_or_more(3).consecutive()
        .next("ok").where("event = 'accepted'").within(minutes(10))
    )),
    # A product that is viewed, put into the cart and bought within half an hour.
    "P3": (clicks, "session_id", "ts", "event_id", (
        Pattern.begin("v", SKIP_PAST_LAST).where("event = 'product_view'").followed_by("c").where("event = 'add_to_cart'")
        .followed_by("p").where("event = 'purchase'").within(minutes(30))
    )),
    # A cart that is filled, and nothing is bought for half an hour.
    "P4": (clicks, "session_id", "ts", "event_id", (
        Pattern.begin("c").where("event = 'add_to_cart'").not_followed_by("p").where("event = 'purchase'").within(minutes(30))
    )),
    # Three departures of an aircraft, each at least 15 minutes more delayed than the one before.
    "P5": (flights, "tailnum", "sched_dep", "flight_id", (
        Pattern.begin("a", SKIP_PAST_LAST).where("dep_delay >= 15")
        .next("b").where("dep_delay >= LAST(a.dep_delay) + 15 AND sched_dep <= LAST(a.sched_dep) + INTERVAL 12 HOURS")
        .next("b2").where("dep_delay >= LAST(b.dep_delay) + 15 AND sched_dep <= LAST(b.sched_dep) + INTERVAL 12 HOURS")
    )),
    # Four or more falling days that lose 12 %, and the first rising day after them.
    "P6": (prices, "symbol", "ts", "date", (
        Pattern.begin("s", SKIP_PAST_LAST)
        .next("d").where("close < COALESCE(LAST(d.close), LAST(s.close))").times_or_more(4).consecutive()
        .next("u").where("close > LAST(d.close) AND LAST(d.close) <= 0.88 * LAST(s.close)")
    )),
}  # fmt: skip


@pytest.mark.parametrize("semantics", Semantics, ids=lambda semantics: semantics.value)
@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_are_the_known_ones(name: str, semantics: Semantics) -> None:
    """However the events are cut: here into some batches and key groups, with a watermark between them."""
    make, key, time, order, pattern = SCENARIOS[name]
    events = make().sort_by([(time, "ascending"), (order, "ascending")])
    first, last = pattern.stages[0].name, [stage for stage in pattern.stages if not stage.contiguity.negated][-1].name
    harness = PatternHarness(
        pattern,
        events.schema,
        keys=[key],
        time=time,
        order_by=[order],
        semantics=semantics,
        select=[f"FIRST({first}.{order}) AS first", f"LAST({last}.{order}) AS last"],
        outputs={},
        key_groups=3,
    )
    for part in range(0, events.num_rows, 20_000):
        # The next batch may go on with events of the same time.
        harness.feed(events.slice(part, 20_000)).move(watermark=max(filter(None, harness.times(harness.sent[-1]))) - 1)
    found = sorted((row[key], str(row["first"]), str(row["last"])) for row in harness.end().selected)
    expected = pa.csv.read_csv(ROOT / "tests" / "data" / "expected" / f"{name}_fluent.csv").to_pylist()
    assert found == sorted((row[key], str(row["first"]), str(row["last"])) for row in expected)
