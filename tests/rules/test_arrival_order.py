"""Events that arrive in another order have the same results; those of equal times, if ``order_by`` decides between them."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from asterism import AfterMatchSkipStrategy as Skip
from asterism import Pattern, PatternProcessor
from asterism.patterns.pattern import Pattern as AnyPattern
from asterism.rules.matching.result_rows import MATCHES
from tests.kit import examples
from tests.rules.driver import Driver, Event, chain

SECOND = timedelta(seconds=1)
SQL = "MEASURES LAST(A.x) AS x PATTERN (A B? C*?) DEFINE A AS kind = 'a', B AS kind = 'b'"
Row = tuple[str, str, int]


def loop(skip: Skip) -> AnyPattern:
    return (
        Pattern.begin("a").where("kind = 'a'").one_or_more()
        .followed_by_any("b").where("kind = 'b'").within(9 * SECOND).skip_strategy(skip)
    )  # fmt: skip


PATTERNS = {
    "single": Pattern.begin("a").where("kind = 'a'"),
    "ab": chain("a", "b", within=30),
    "strict": chain("a", "b", strict=True),
    "not": Pattern.begin("a").where("kind = 'a'").not_followed_by("b").where("kind = 'b'").within(4 * SECOND),
    "past": loop(Skip.skip_past_last_event()),
    "next": loop(Skip.skip_to_next()),
    "last": loop(Skip.skip_to_last("a")),
}


def rules_of(rng: random.Random) -> list[PatternProcessor]:
    def span() -> timedelta | None:
        return rng.choice([None, 1, 3, 7, 20]) and rng.choice([1, 3, 7, 20]) * SECOND

    rules = [PatternProcessor(name, 1, pattern, suppress=span()) for name, pattern in PATTERNS.items()]
    return [*rules, PatternProcessor("sql", 1, sql=SQL, suppress=span())]


def rows_of(
    rules: list[PatternProcessor], batches: list[tuple[list[Event], float | None]], **options: object
) -> list[Row]:
    driver = Driver(**options).batch(sets=rules)  # type: ignore[arg-type]
    for events, watermark in batches:
        driver.batch(events, watermark=watermark)
    return sorted((row["processor_id"], row["match_id"], row["suppressed"]) for row in driver.end().rows[MATCHES])


def batches_of(events: list[Event], rng: random.Random) -> list[tuple[list[Event], float | None]]:
    """Micro-batches after which the watermark is anything for which no later event is late."""
    batches: list[tuple[list[Event], float | None]] = []
    begin = 0
    while begin < len(events):
        end = begin + rng.randint(1, 6)
        earliest = min([event[0] or 0.0 for event in events[end:]], default=100.0) - 0.001
        batches += [(events[begin:end], None), ([], rng.choice([earliest, earliest, earliest - 2]))][
            : rng.choice([1, 2, 2])
        ]
        begin = end
    return batches


@pytest.mark.parametrize("seed", range(examples(2, usual=4)))
@pytest.mark.parametrize("ordered", [False, True], ids=["by arrival", "by order_by"])
def test_results_do_not_depend_on_the_order_of_arrival(seed: int, ordered: bool) -> None:
    """Of many rules, in micro-batches; and of each rule alone, in order and at once."""
    rng = random.Random(seed)
    times = sorted(rng.choices(range(rng.choice([4, 10, 30])), k=rng.choice([20, 40])))
    events: list[Event] = [
        (float(time), rng.choice(["ann", "bob"]), number, rng.choice("aaabbc"), 0.0)
        for number, time in enumerate(times)
    ]
    rules = rules_of(rng)
    options = {"order_by": ["item"]} if ordered else {}
    expected = sorted(row for rule in rules for row in rows_of([rule], [(events, None)], **options))
    assert len(expected) > 5
    for key_groups in (1, 1, 3):
        delays = {time: rng.random() * rng.choice([0, 3, 8]) for time in times}
        ties = [rng.random() for _ in events] if ordered else [0.0] * len(events)
        arrivals = sorted(events, key=lambda event: (event[0] + delays[int(event[0])], ties[event[2]], event[2]))
        assert rows_of(rules, batches_of(arrivals, rng), key_groups=key_groups, **options) == expected
