"""Asserts that results do not depend on how elements are divided into batches."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from asterism.arguments import also_named, expect, expect_number, shown
from asterism.columns.time import END_OF_TIME
from asterism.errors import InvalidEventError, StreamDefinitionError
from asterism.matching.outputs import MATCH_ID, OutputKind
from asterism.operators.stream_operator import StreamOperator
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics
from asterism.testing.assertions import MAX_SHOWN, Difference
from asterism.testing.literals import Events, Part, table_of
from asterism.testing.operator_harness import OperatorHarness
from asterism.testing.pattern_harness import PatternHarness, in_order
from asterism.testing.stream_harness import Send, Step, StreamOperatorHarness
from asterism.testing.window_harness import WindowHarness
from asterism.windows.assigners import Windows
from asterism.windows.plan import FIRINGS
from asterism.windows.triggers import Trigger

H = TypeVar("H", StreamOperatorHarness, PatternHarness, WindowHarness)
Spread: TypeAlias = Sequence[tuple[int, int]]
SPREAD: Spread = ((3, 1), (1, 4), (2, 3))
"""Numbers of key groups, and of pages per key group."""


def check_operator_independence(
    operator: StreamOperator,
    steps: Sequence[Step],
    inputs: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    cuts: int = 5,
    seed: int = 0,
    spread: Spread = SPREAD,
) -> StreamOperatorHarness:
    """Assert that the output of an operator depends on its elements and on time, not on how the elements are divided.

    The *steps* are executed, and the input is ended, in several ways: with the elements of each step as one batch; one by
    one; divided at random; one by one, with a snapshot after each that is restored in a new harness; and with keys
    distributed over several key groups and pages.

    This detects operators that keep data outside of their declared state, and operators that mix up different keys.

    :param inputs: as for :class:`StreamOperatorHarness`
    :param cuts: the number of random divisions, generated with *seed*
    :param spread: numbers of key groups, and of pages per key group; empty, if the operator emits rows once per key group
    :return: the harness in which each step was one batch, at its end
    :raises AssertionError: rows or counts differ

    >>> from asterism.operators.stream_operator import Input, Output, StreamOperator
    >>> class Number(StreamOperator):
    ...     clicks = Input("user STRING")
    ...     numbered = Output("user STRING, number BIGINT")
    ...
    ...     def open(self):
    ...         self.seen = 0  # not a state
    ...
    ...     @clicks.process_element
    ...     def click(self, click, ctx):
    ...         self.seen += 1
    ...         self.numbered.collect(user=click.user, number=self.seen)
    >>> steps = [Send("clicks", [{"user": "ann"}, {"user": "ann"}])]
    >>> check_operator_independence(Number(), steps, {"clicks": {"key": "user"}})
    Traceback (most recent call last):
    ...
    AssertionError: numbered depends on how the elements arrive
      whole, not restored after each:
        {'user': 'ann', 'number': 2}
      restored after each, not whole:
        {'user': 'ann', 'number': 1}
    """
    __tracebackhide__ = True
    _check_ways(cuts, seed)
    whole = StreamOperatorHarness(operator, inputs)
    pairs: Any = spread
    if not isinstance(pairs, list | tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise StreamDefinitionError(
            f"spread must be pairs of numbers, not {shown(spread)}", hint="spread=[(3, 1), (1, 4)]"
        )
    if not isinstance(steps, Sequence):
        raise InvalidEventError(f"not steps of a test: {shown(steps)}", hint='[Send("orders", rows), Watermark("5m")]')
    tabled = [
        Send(step.input, whole.table(step.input, step.rows)) if isinstance(step, Send) else step for step in steps
    ]
    whole.play(tabled).end()
    for name, harness in _ways(whole, tabled, StreamOperatorHarness.play, cuts, seed, spread):
        _compare(whole, harness, name, {output: partial(_counted, output=output) for output in whole.outputs})
    return whole


@also_named("schema", "columns", StreamDefinitionError, unless="process")
def check_independence(
    pattern: Pattern, events: Events, *, cuts: int = 5, seed: int = 0, **options: Any
) -> PatternHarness:
    """Assert that the result depends only on the events, not on how they are divided into batches.

    The events are sent as one batch; one by one; divided at random; one by one, with a snapshot after each that is restored
    in a new harness; with keys distributed over several key groups and pages; and, with default semantics and no times
    between the events, with a watermark after each event.

    This detects conditions in Python that depend on the other rows of their batch, or that keep state.

    :param cuts: the number of random divisions, generated with *seed*
    :param options: those of :class:`PatternHarness`
    :return: the harness to which the events were sent as one batch, at its end
    :raises AssertionError: results differ

    >>> import pyarrow.compute as pc
    >>> from asterism import Pattern
    >>> check_independence(Pattern.begin("a").where("value > 2"), "a1 a2 a3").matches
    ['a3']
    >>> more_than_most = Pattern.begin("a").where(lambda events: pc.greater(events["value"], pc.mean(events["value"])))
    >>> check_independence(more_than_most, "a1 a2 a3")
    Traceback (most recent call last):
    ...
    AssertionError: matches depend on how the events arrive: 1 missing
    <BLANKLINE>
        whole    one by one
      - a3 @3s
    """
    __tracebackhide__ = True
    _check_ways(cuts, seed)
    if not isinstance(events, str) and "columns" not in options:
        events = table_of(events)
        options["columns"] = events.schema
    whole = PatternHarness(pattern, **options)
    parts = whole.parts(events)
    whole.deliver(parts).end()
    ways = _ways(whole, parts, PatternHarness.deliver, cuts, seed, SPREAD)
    if (
        whole.cep.pattern.semantics is Semantics.DEFAULT
        and whole.cep.event_time
        and all(isinstance(part, pa.Table) for part in parts)
    ):
        ways = itertools.chain(ways, [("a watermark after each", _with_watermarks(whole, parts))])
    for name, harness in ways:
        of_function = dict.fromkeys(whole.cep.output_schemas.keys() - whole.cep.outputs.keys())
        for output, spec in {**whole.cep.outputs, **of_function}.items():
            # In processing time, match ids depend on the batches: they are computed from times, and positions among equal
            # times.
            without = () if whole.cep.event_time else (MATCH_ID,)
            if _counted(whole, output, without) == _counted(harness, output, without):
                continue
            title = f"{output} depend on how the events arrive"
            if spec is None or spec.measures is not None or spec.function is not None:
                raise AssertionError(f"{title}\n  whole: {whole.rows(output)}\n  {name}: {harness.rows(output)}")
            expected, findings = in_order(whole.found(output)), in_order(harness.found(output))
            literals = whole.literals if spec.kind is not OutputKind.LATE else None
            difference = Difference.of(expected, findings, in_any_order=True)
            raise AssertionError(difference.text(title, literals, titles=("whole", name)))
    return whole


def check_window_independence(
    windows: Windows, trigger: Trigger | None, events: Events, *, cuts: int = 5, seed: int = 0, **options: Any
) -> WindowHarness:
    """Assert that the firings depend only on the elements and on time, not on how the elements are divided into batches.

    The elements are sent in the ways of :func:`check_independence`. This detects window functions, triggers and evictors of your
    own that keep data outside of their state, and those that mix up different windows or keys.

    :param events: the elements, with the times between them (``"a1@3s a2@4s |10s"``)
    :param cuts: the number of random divisions, generated with *seed*
    :param options: those of :class:`WindowHarness`
    :return: the harness to which the elements were sent as one batch, at its end
    :raises AssertionError: firings, late elements or counts differ

    >>> from datetime import timedelta
    >>> from asterism import TumblingWindows
    >>> seen = []
    >>> def number(rows, window):
    ...     seen.append(rows.num_rows)  # not a state
    ...     return {"number": len(seen)}
    >>> minutes = TumblingWindows.of(timedelta(minutes=1))
    >>> check_window_independence(minutes, None, "ann.a1 bob.a2", process=number, schema="number INT", cuts=0)
    Traceback (most recent call last):
    ...
    AssertionError: a firing depends on how the elements arrive
      whole, not one by one:
        ann [0s,60s) #1 on_time!: number=1
        bob [0s,60s) #1 on_time!: number=2
      one by one, not whole:
        ann [0s,60s) #1 on_time!: number=3
        bob [0s,60s) #1 on_time!: number=4
    """
    __tracebackhide__ = True
    _check_ways(cuts, seed)
    whole = WindowHarness(windows, trigger, **options)
    parts = whole.parts(events)
    whole.deliver(parts).end()
    for name, harness in _ways(whole, parts, WindowHarness.deliver, cuts, seed, SPREAD):
        declared = whole.outputs.keys() - {FIRINGS, OutputKind.LATE.value}
        of_function = {output: partial(_counted, output=output) for output in sorted(declared)}
        texts: dict[str, Callable[[WindowHarness], Counter[str]]] = {
            "a firing": lambda harness: Counter(harness.firings),
            "a late element": lambda harness: Counter(harness.late),
        }
        _compare(whole, harness, name, {**texts, **of_function})
    return whole


def _compare(whole: H, harness: H, name: str, outputs: Mapping[str, Callable[[H], Counter[str]]]) -> None:
    """
    :param harness: has executed the steps of *whole* in the way *name*
    :param outputs: by name of the output, the function that returns its texts
    :raises AssertionError: texts or counts differ
    """
    __tracebackhide__ = True
    for output, texts_of in outputs.items():
        expected, texts = texts_of(whole), texts_of(harness)
        if expected != texts:
            lines = [f"{output} depends on how the elements arrive"]
            for title, only_there in (
                (f"whole, not {name}", expected - texts),
                (f"{name}, not whole", texts - expected),
            ):
                listed: list[str] = sorted(only_there.elements())
                lines += [f"  {title}:", *(f"    {text}" for text in listed[:MAX_SHOWN])]
                lines += [f"    and {len(listed) - MAX_SHOWN} more"] * (len(listed) > MAX_SHOWN)
            raise AssertionError("\n".join(lines))
    if whole.metrics != harness.metrics:
        raise AssertionError(
            f"the counts depend on how the elements arrive\n  whole: {dict(whole.metrics)}\n"
            f"  {name}: {dict(harness.metrics)}"
        )


def _check_ways(cuts: Any, seed: Any) -> None:
    expect_number(StreamDefinitionError, cuts, "cuts", least=0, most=1000)
    expect(StreamDefinitionError, seed, int, "seed must be an integer")


def _ways(
    whole: H, steps: Sequence[Any], play: Callable[[H, Sequence[Any]], H], cuts: int, seed: int, spread: Spread
) -> Iterator[tuple[str, H]]:
    """Harnesses that have executed the same steps in other ways, each with a description."""
    rng = random.Random(seed)
    ones = _cut(steps, lambda size: range(1, size))
    yield "one by one", play(whole.again(), ones).end()
    for number in range(1, cuts + 1):
        pieces = _cut(steps, lambda size: sorted(rng.sample(range(1, size), rng.randint(0, size - 1))))
        yield f"random cut {number}", play(whole.again(), pieces).end()
    restored = whole.again()
    for step in ones:
        restored = whole.again().restore(play(restored, [step]).close().snapshot())
    yield "restored after each", restored.end()
    for key_groups, pages in spread:
        spread_out = whole.again(key_groups=key_groups, pages=pages)
        yield f"{key_groups} key groups of {pages} pages", play(spread_out, steps).end()


def _with_watermarks(whole: PatternHarness, parts: Sequence[Part]) -> PatternHarness:
    """Send a watermark after each event, the highest with which no later event is late."""
    watched = whole.again()
    rows = _cut(parts, lambda size: range(1, size))
    times = [END_OF_TIME if time is None else time for part in rows for time in whole.times(part)]
    for number, part in enumerate(rows, 1):
        watched.feed(part).move(watermark=min(times[number:], default=END_OF_TIME) - 1)
    return watched.end()


def _cut(steps: Sequence[Any], places: Callable[[int], Sequence[int]]) -> list[Any]:
    """The steps, with the events of each divided. *places* returns the indexes for a number of events."""
    pieces: list[Any] = []
    for step in steps:
        table = step.rows if isinstance(step, Send) else step
        if not isinstance(table, pa.Table) or not table.num_rows:
            pieces.append(step)
            continue
        inner = places(table.num_rows)
        for begin, end in zip([0, *inner], [*inner, table.num_rows], strict=True):
            piece = table.slice(begin, end - begin)
            pieces.append(Send(step.input, piece) if isinstance(step, Send) else piece)
    return pieces


def _counted(harness: OperatorHarness, output: str, without: Sequence[str] = ()) -> Counter[str]:
    rows = harness.rows(output)
    return Counter(repr({name: value for name, value in row.items() if name not in without}) for row in rows)
