"""EQL over DataFrames of Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType
from pyspark.sql.window import Window

from asterism.columns.internal import internal
from asterism.elastic import syntax
from asterism.elastic.events import (
    EVENT,
    SAMPLE,
    SEQUENCE,
    STREAM,
    EventPlan,
    SamplePlan,
    SequencePlan,
    number_of,
    plan_of,
    unsupported_pipe,
)
from asterism.elastic.samples import chosen
from asterism.elastic.sequences import COPY, KEY, LARGEST_INTEGER_KEY, KeyForm, form_of_keys, no_columns_of_copies
from asterism.errors import UnsupportedSyntaxError
from asterism.spark.host.column_types import arrow_schema
from asterism.streams.row_patterns import match_recognize
from asterism.text.printable import quoted_name

_END, _FIRST, _ROW = internal("end"), internal("first"), internal("row")


def eql(text: str, events: DataFrame, time: str, category: str, options: Mapping[str, Any]) -> DataFrame:
    """See :func:`asterism.eql`."""
    schema = arrow_schema(events.sparkSession, events.schema)
    plan = plan_of(text, schema, time=time, category=category)
    if isinstance(plan, EventPlan):
        rows_found, order = events.where(plan.condition), [F.col(quoted_name(time)).asc()]
        for pipe in plan.pipes:
            rows_found, order = _after(rows_found, order, pipe, plan)
        return rows_found
    if isinstance(plan, SamplePlan):
        return _samples(events, plan, time)
    return _sequences(events, plan, time, options)


def _sequences(events: DataFrame, plan: SequencePlan, time: str, options: Mapping[str, Any]) -> DataFrame:
    # Over a stream, all events move the watermark.
    rows = events if events.isStreaming else events.where(plan.relevant)
    keys = [F.expr(key) for key in plan.of.keys]
    if plan.of.copies:
        no_columns_of_copies(events.columns)
        rows = _copied(rows, plan.of.copies)
    rows_found: DataFrame = match_recognize(rows, plan.clause, **options).matches
    of_events = [SEQUENCE, EVENT, *map(quoted_name, events.columns)]
    if events.isStreaming:
        if plan.pipes:
            raise unsupported_pipe(plan.pipes[0], plan.writer.text, STREAM)
        return rows_found.select(*of_events)
    ends = Window.partitionBy(*keys, SEQUENCE)
    rows_found = rows_found.withColumn(_END, F.max(quoted_name(time)).over(ends))
    order = [F.col(_END), *keys, F.col(SEQUENCE), F.col(EVENT)]
    if plan.pipes and plan.pipes[-1].name == "count":
        return _piped(rows_found.where(F.col(EVENT) == 1), plan, order).agg(F.count("*").alias("count"))
    return _piped(rows_found, plan, order).orderBy(*order).select(*of_events)


def _piped(rows_found: DataFrame, plan: SequencePlan, order: Sequence[Column]) -> DataFrame:
    for pipe in plan.pipes:
        match pipe.name:
            case "head" | "tail":
                rows_found = _first_sequences(rows_found, order, number_of(pipe), is_tail=pipe.name == "tail")
            case "unique":
                rows_found = _unique_sequences(
                    rows_found, order, [plan.writer.sql(argument) for argument in pipe.arguments]
                )
            case "count" if pipe is plan.pipes[-1]:
                pass
            case _:
                raise unsupported_pipe(pipe, plan.writer.text, "a sequence")
    return rows_found


def _unique_sequences(rows_found: DataFrame, order: Sequence[Column], values: Sequence[str]) -> DataFrame:
    """The events of the first sequences with these values of their first events."""
    of_sequence = Window.partitionBy(*order[1:-1])
    first = F.when(F.col(EVENT) == 1, F.struct(*(F.expr(value) for value in values)))
    marked = rows_found.withColumn(_FIRST, F.max(first).over(of_sequence))
    ranks = Window.partitionBy(_FIRST).orderBy(*order[:-1])
    return marked.withColumn(_ROW, F.dense_rank().over(ranks)).where(F.col(_ROW) == 1).drop(_ROW, _FIRST)


def _first_sequences(rows_found: DataFrame, order: Sequence[Column], number: int, *, is_tail: bool) -> DataFrame:
    """The events of the first or the last sequences."""
    ranks = Window.orderBy(*(part.desc() if is_tail else part.asc() for part in order[:-1]))
    return rows_found.withColumn(_ROW, F.dense_rank().over(ranks)).where(F.col(_ROW) <= number).drop(_ROW)


def _copied(rows: DataFrame, copies: Sequence[Sequence[str]]) -> DataFrame:
    """See :data:`~asterism.elastic.sequences.COPY`."""
    structs = [
        F.struct(
            F.lit(number).alias(COPY),
            *(key.cast("string").alias(f"{KEY}{at}") for at, key in enumerate(keys, 1)),
        )
        for number, keys in enumerate(_of_common_types(rows, copies))
    ]
    exploded = rows.withColumn(_ROW, F.explode(F.array(*reversed(structs))))
    return exploded.select(*map(quoted_name, rows.columns), F.col(f"{quoted_name(_ROW)}.*"))


def _of_common_types(rows: DataFrame, keys: Sequence[Sequence[str]]) -> list[list[Column]]:
    """Keys, of which each position has one form."""
    numbered = [F.expr(key).alias(f"k{number}") for number, key in enumerate(key for each in keys for key in each)]
    types, width = arrow_schema(rows.sparkSession, rows.select(*numbered).schema).types, len(keys[0])
    forms = [form_of_keys(types[at::width]) for at in range(width)]
    return [
        [_in_form(key, types[width * number + at], forms[at]) for at, key in enumerate(each)]
        for number, each in enumerate(keys)
    ]


def _in_form(key: str, of: pa.DataType, form: KeyForm) -> Column:
    """A key in the form in which keys are compared."""
    column = F.expr(key)
    if form is KeyForm.SAME:
        return column
    if form in (KeyForm.INTEGER, KeyForm.DOUBLE):
        return column.cast(form.value)
    if form is KeyForm.TEXT or pa.types.is_integer(of):
        return column.cast("string")
    number = column.cast("double")
    whole = F.when(
        (F.floor(column) == column) & (F.abs(number) < LARGEST_INTEGER_KEY), column.cast("decimal(38,0)").cast("string")
    )
    return F.coalesce(whole, number.cast("string"))


def _samples(events: DataFrame, plan: SamplePlan, time: str) -> DataFrame:
    if events.isStreaming:
        raise UnsupportedSyntaxError.at(
            "a stream cannot be searched for samples",
            plan.writer.text,
            0,
            "a sample has no order and no bound in time, so all events would be kept: query a table",
        )
    for pipe in plan.pipes:
        if pipe.name != "count" or pipe is not plan.pipes[-1]:
            raise unsupported_pipe(pipe, plan.writer.text, "a sample")
    no_columns_of_copies(events.columns)
    keys = [f"{KEY}{at}" for at in range(1, len(plan.items[0].keys) + 1)]
    rows_found = _sampled(_candidates(events, plan, keys, time), keys, events, len(plan.items), time)
    if plan.pipes:
        return rows_found.where(F.col(EVENT) == 1).agg(F.count("*").alias("count"))
    begin = F.min(quoted_name(time)).over(Window.partitionBy(_ROW))
    ordered = rows_found.withColumn(_FIRST, begin)
    number = F.dense_rank().over(Window.orderBy(_FIRST, _ROW)).cast("bigint").alias(SAMPLE)
    return ordered.select(number, EVENT, *map(quoted_name, events.columns)).orderBy(SAMPLE, EVENT)


def _candidates(events: DataFrame, plan: SamplePlan, keys: Sequence[str], time: str) -> DataFrame:
    """The events that an item of a sample may have: for each key, as many as there are items."""
    of_items = _of_common_types(events, [item.keys for item in plan.items]) if keys else [[] for _ in plan.items]
    structs = [
        F.when(
            F.expr(item.condition),
            F.struct(F.lit(number).alias(COPY), *(key.alias(name) for key, name in zip(of_item, keys, strict=True))),
        )
        for number, (item, of_item) in enumerate(zip(plan.items, of_items, strict=True))
    ]
    numbered = events.withColumn(_ROW, F.monotonically_increasing_id())
    copied = numbered.withColumn(_END, F.explode(F.array_compact(F.array(*structs))))
    copied = copied.select(*map(quoted_name, [*events.columns, _ROW]), F.col(f"{quoted_name(_END)}.*"))
    ranks = Window.partitionBy(*keys, COPY).orderBy(quoted_name(time), _ROW)
    return copied.withColumn(_END, F.row_number().over(ranks)).where(F.col(_END) <= len(plan.items)).drop(_END)


def _sampled(candidates: DataFrame, keys: Sequence[str], events: DataFrame, size: int, time: str) -> DataFrame:
    """The events of the sample of each key, with a number that differs between samples."""
    columns = events.columns

    def sampled(rows: pa.Table) -> pa.Table:
        rows = rows.sort_by([(time, "ascending"), (_ROW, "ascending")])
        ids, items = rows[_ROW].to_pylist(), rows[COPY].to_pylist()
        picked = chosen([[id for id, of in zip(ids, items, strict=True) if of == item] for item in range(size)]) or []
        rows_found = rows.take(pa.array([ids.index(id) for id in picked], pa.int64()))
        numbers = pa.array(range(1, len(picked) + 1), pa.int32())
        sample = pa.array(picked[:1] * len(picked), pa.int64())
        return rows_found.select(columns).add_column(0, EVENT, numbers).add_column(0, _ROW, sample)

    schema = StructType([StructField(_ROW, LongType()), StructField(EVENT, IntegerType()), *events.schema.fields])
    return candidates.groupBy(*keys).applyInArrow(sampled, schema)


def _after(
    events: DataFrame, order: list[Column], pipe: syntax.EqlPipe, plan: EventPlan
) -> tuple[DataFrame, list[Column]]:
    """The events after a pipe, and their order."""
    if pipe.name == "filter":
        return events.where(plan.writer.sql(pipe.arguments[0])), order
    if events.isStreaming:
        raise unsupported_pipe(pipe, plan.writer.text, STREAM)
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
