"""W1 to W5 as a Spark user writes them without a CEP library: batch window functions behind a hand-written filter.

Each returns the event times of the matches as ``t1``, ``t2``, ..., or, if they are not always as many, as ``times``.
All of them rely on event times that are unique per user.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

MINUTE = 60_000


def _of_user() -> WindowSpec:
    return Window.partitionBy("user_id")


def _forwards() -> WindowSpec:
    return _of_user().orderBy("event_time")


def _from_here_on() -> WindowSpec:
    """The current row and all later ones, the latest first: Spark computes that frame in one pass, but not its mirror image,
    from the current row to the last.
    """
    return _of_user().orderBy(F.desc("event_time")).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _only(events: DataFrame, *kinds: str) -> DataFrame:
    return events.select("event_time", "user_id", "kind", "amount").where(F.col("kind").isin(*kinds))


def w1(events: DataFrame) -> DataFrame:
    ok_time = F.when(F.col("kind") == "login_ok", F.col("event_time"))
    return (
        _only(events, "login_fail", "login_ok")
        .withColumn("next_ok", F.last(ok_time, ignorenulls=True).over(_from_here_on()))
        .where(F.col("kind") == "login_fail")
        .select(
            F.col("event_time").alias("t1"),
            F.lead("event_time", 1).over(_forwards()).alias("t2"),
            F.lead("event_time", 2).over(_forwards()).alias("t3"),
            F.lead("next_ok", 2).over(_forwards()).alias("t4"),
        )
        .where(F.col("t4") - F.col("t1") < 10 * MINUTE)
    )


def w2(events: DataFrame) -> DataFrame:
    """Contiguous among all events of a user, so nothing can be left out before the window."""
    ahead = [
        F.lead(column, n).over(_forwards()).alias(f"{column}_{n}") for n in (1, 2) for column in ("kind", "event_time")
    ]
    return (
        events.select("event_time", "kind", *ahead)
        .where("kind = 'view' AND kind_1 = 'cart' AND kind_2 = 'buy'")
        .where(F.col("event_time_2") - F.col("event_time") < 60 * MINUTE)
        .select(F.col("event_time").alias("t1"), F.col("event_time_1").alias("t2"), F.col("event_time_2").alias("t3"))
    )


def w3(events: DataFrame) -> DataFrame:
    """A later row's amount is compared with this row's, which no window function can do: collect, then search."""
    ahead = _forwards().rangeBetween(1, 30 * MINUTE - 1)
    larger = F.filter("later", lambda other: other.amount > 10 * F.col("amount"))
    return (
        _only(events, "transfer")
        .withColumn("later", F.collect_list(F.struct("event_time", "amount")).over(ahead))
        .select(F.col("event_time").alias("t1"), F.get(larger, F.lit(0)).event_time.alias("t2"))
        .where(F.col("t2").isNotNull())
    )


def w4(events: DataFrame) -> DataFrame:
    buy_time = F.when(F.col("kind") == "buy", F.col("event_time"))
    return (
        _only(events, "cart", "buy")
        .withColumn("next_buy", F.last(buy_time, ignorenulls=True).over(_from_here_on()))
        .where(F.col("kind") == "cart")
        .where(F.col("next_buy").isNull() | (F.col("next_buy") - F.col("event_time") >= 30 * MINUTE))
        .select(F.col("event_time").alias("t1"))
    )


def w5(events: DataFrame) -> DataFrame:
    """Every subset of the carts between a view and a purchase: collect what follows a view, then make the subsets as lists."""
    ahead = _forwards().rangeBetween(1, 10 * MINUTE - 1)
    carts = F.filter(
        "later",
        lambda e: (e.kind == "cart") & (e.amount >= 50) & (e.event_time < F.col("purchase.event_time")),
    )
    subsets = F.aggregate(
        "carts",
        F.array(F.array().cast("array<bigint>")),
        lambda made, cart: F.concat(made, F.transform(made, lambda subset: F.array_append(subset, cart.event_time))),
    )
    return (
        _only(events, "view", "cart", "buy")
        .withColumn("later", F.collect_list(F.struct("event_time", "kind", "amount")).over(ahead))
        .where("kind = 'view' AND amount >= 60")
        .withColumn("purchase", F.explode(F.filter("later", lambda e: e.kind == "buy")))
        .withColumn("carts", carts)
        .withColumn("subset", F.explode(subsets))
        .where("size(subset) > 0")
        .select(F.concat(F.array("event_time"), "subset", F.array("purchase.event_time")).alias("times"))
    )


QUERIES = {"W1": w1, "W2": w2, "W3": w3, "W4": w4, "W5": w5}
