"""EQL over DataFrames of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from asterism.columns.internal import internal
from asterism.elastic import syntax
from asterism.elastic.events import (
    EVENT,
    SEQUENCE,
    EventPlan,
    SequencePlan,
    number_of,
    plan_of,
    unsupported_pipe,
)
from asterism.elastic.sequences import COPY, KEY, no_columns_of_copies
from asterism.spark.host.column_types import arrow_schema
from asterism.streams.row_patterns import match_recognize
from asterism.text.printable import quoted_name

_END, _ROW = internal("end"), internal("row")


def eql(text: str, events: DataFrame, time: str, category: str, options: Mapping[str, Any]) -> DataFrame:
    """See :func:`asterism.eql`."""
    schema = arrow_schema(events.sparkSession, events.schema)
    plan = plan_of(text, schema, time=time, category=category)
    if isinstance(plan, EventPlan):
        found, order = events.where(plan.condition), [F.col(quoted_name(time)).asc()]
        for pipe in plan.pipes:
            found, order = _after(found, order, pipe, plan)
        return found
    return _sequences(events, plan, time, options)


def _sequences(events: DataFrame, plan: SequencePlan, time: str, options: Mapping[str, Any]) -> DataFrame:
    # Over a stream, all events move the watermark.
    rows = events if events.isStreaming else events.where(plan.relevant)
    keys = [F.expr(key) for key in plan.of.keys]
    if plan.of.copies:
        no_columns_of_copies(events.columns)
        rows = _copied(rows, plan.of.copies)
    found: DataFrame = match_recognize(rows, plan.clause, **options).matches
    of_events = [SEQUENCE, EVENT, *map(quoted_name, events.columns)]
    if events.isStreaming:
        if plan.pipes:
            raise unsupported_pipe(plan.pipes[0], plan.writer.text)
        return found.select(*of_events)
    ends = Window.partitionBy(*keys, SEQUENCE)
    found = found.withColumn(_END, F.max(quoted_name(time)).over(ends))
    order = [F.col(_END), *keys, F.col(SEQUENCE), F.col(EVENT)]
    if plan.pipes and plan.pipes[-1].name == "count":
        return _piped(found.where(F.col(EVENT) == 1), plan, order).agg(F.count("*").alias("count"))
    return _piped(found, plan, order).orderBy(*order).select(*of_events)


def _piped(found: DataFrame, plan: SequencePlan, order: Sequence[Column]) -> DataFrame:
    for pipe in plan.pipes:
        match pipe.name:
            case "head" | "tail":
                found = _first_sequences(found, order, number_of(pipe), is_tail=pipe.name == "tail")
            case "count" if pipe is plan.pipes[-1]:
                pass
            case _:
                raise unsupported_pipe(pipe, plan.writer.text)
    return found


def _first_sequences(found: DataFrame, order: Sequence[Column], number: int, *, is_tail: bool) -> DataFrame:
    """The events of the first or the last sequences."""
    ranks = Window.orderBy(*(part.desc() if is_tail else part.asc() for part in order[:-1]))
    return found.withColumn(_ROW, F.dense_rank().over(ranks)).where(F.col(_ROW) <= number).drop(_ROW)


def _copied(rows: DataFrame, copies: Sequence[Sequence[str]]) -> DataFrame:
    """See :data:`~asterism.elastic.sequences.COPY`."""
    structs = [
        F.struct(
            F.lit(number).alias(COPY),
            *(F.expr(key).cast("string").alias(f"{KEY}{at}") for at, key in enumerate(keys, 1)),
        )
        for number, keys in enumerate(copies)
    ]
    exploded = rows.withColumn(_ROW, F.explode(F.array(*reversed(structs))))
    return exploded.select(*map(quoted_name, rows.columns), F.col(f"{quoted_name(_ROW)}.*"))


def _after(
    events: DataFrame, order: list[Column], pipe: syntax.EqlPipe, plan: EventPlan
) -> tuple[DataFrame, list[Column]]:
    """The events after a pipe, and their order."""
    if pipe.name == "filter":
        return events.where(plan.writer.sql(pipe.arguments[0])), order
    if events.isStreaming:
        raise unsupported_pipe(pipe, plan.writer.text)
    values = [F.expr(plan.writer.sql(argument)) for argument in pipe.arguments]
    match pipe.name:
        case "head":
            return events.orderBy(*order).limit(number_of(pipe)), order
        case "tail":
            ranks = Window.orderBy(*order)
            numbered = events.withColumn(_ROW, F.row_number().over(ranks))
            last = numbered.orderBy(F.col(_ROW).desc()).limit(number_of(pipe))
            return last.orderBy(_ROW).drop(_ROW), order
        case "count":
            return events.agg(F.count("*").alias("count")), order
        case "sort":
            order = [*(value.asc_nulls_first() for value in values), *order]
            return events.orderBy(*order), order
    first = Window.partitionBy(*values).orderBy(*order)
    kept = events.withColumn(_ROW, F.row_number().over(first)).where(F.col(_ROW) == 1).drop(_ROW)
    return kept.orderBy(*order), order
