"""Plans of operators with several inputs: over streams, over tables, and over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.columns.time import END_OF_TIME
from asterism.operators.multiple_input import Wire
from asterism.operators.operator import Operator
from asterism.spark import CHUNKS
from asterism.spark.host.batch import BATCH_GROUP, BATCH_INPUT, BATCH_ORDER, BATCH_TIME, arrivals
from asterism.spark.host.column_types import arrow_schema, types_in
from asterism.spark.host.host import NO_TIME, PROCESSING_TIME
from asterism.spark.host.keyed_stream import idle_micros, partitioned_by
from asterism.spark.host.partitioning import label
from asterism.spark.host.stateful import Use, bounded, hashed, key_group_of, packed, stateful
from asterism.spark.host.times import event_micros
from asterism.streams.data_streams import DataStream, Stream
from asterism.streams.keyed_stream import KeyedStream
from asterism.text.printable import quoted_name

Streams = Mapping[str, Stream]
_LAST = 2**62  # after every chunk of a micro-batch


def keys_of(stream: Stream) -> list[str]:
    return stream.keys if isinstance(stream, KeyedStream) else []


def hash_columns(stream: Stream, columns: Sequence[str]) -> list[str]:
    """The columns that determine the key group of an element: the keys or, of a DataStream, those of its *columns* that can be
    hashed.
    """
    if not isinstance(stream, DataStream):
        return keys_of(stream)
    return [name for name in columns if _has_hash(stream.df.schema[name].dataType)]


def _has_hash(kind: T.DataType) -> bool:
    return not any(isinstance(part, T.MapType) or part.typeName() == "variant" for part in types_in(kind))


def wire_of(spark: SparkSession, stream: Stream) -> Wire:
    """The connection of an input to a stream."""
    schema: pa.Schema = arrow_schema(spark, stream.df.schema, stream.time_unit)
    return Wire(
        schema,
        keys_of(stream),
        stream.time,
        idle_micros(stream),
        isinstance(stream, DataStream),
        partitioned_by(stream),
    )


def over_streams(
    spark: SparkSession, operator: Operator, streams: Streams, *, use: Use, zone: str | None = None
) -> DataFrame:
    """RESULTS of *operator* over *streams* by input, of which at least one is not bounded. Bounded ones are read to their end
    before the first element of the others.
    """

    def chunks_of(name: str, stream: Stream) -> DataFrame:
        columns = operator.inputs[name].schema.names
        rows = hashed(stream.df, hash_columns(stream, columns), columns, stream)
        return packed(stream, operator, name, rows, use=use)

    chunks = {name: chunks_of(name, stream) for name, stream in streams.items()}
    bounded = [name for name, stream in streams.items() if not stream.df.isStreaming]
    first = None
    if bounded:
        ends = [(label(g), name, _LAST, END_OF_TIME, None) for name in bounded for g in range(use.key_groups)]
        first = reduce(DataFrame.unionByName, [chunks[name] for name in bounded], spark.createDataFrame(ends, CHUNKS))
    return stateful(
        operator,
        [chunks[name] for name in streams if name not in bounded],
        streams=streams,
        use=use,
        zone=zone,
        time_mode=time_mode_of_inputs(operator),
        first=first,
    )


def time_mode_of_inputs(operator: Operator) -> str:
    return PROCESSING_TIME if operator.processing_time else NO_TIME


def over_tables(operator: Operator, streams: Streams, *, use: Use) -> DataFrame:
    """:func:`~asterism.spark.host.stateful.batch_results` of all elements of bounded *streams*, by key group and in processing
    order. Spark sorts them, and spills if necessary.
    """
    ranked = sorted(streams, key=lambda name: not operator.inputs[name].broadcast)

    def group(name: str) -> Column:
        if operator.inputs[name].broadcast:
            return F.explode(F.sequence(F.lit(0), F.lit(use.key_groups - 1)))
        return key_group_of(hash_columns(streams[name], operator.inputs[name].schema.names), use.key_groups)

    def place(name: str) -> list[Column]:
        # Broadcast elements must have the same order in all key groups. Keyed elements with equal times may have
        # any order.
        order = F.monotonically_increasing_id() if operator.inputs[name].broadcast else F.lit(None).cast("long")
        return [order.alias(BATCH_ORDER), group(name).alias(BATCH_GROUP)]

    rows = together(operator, streams, ranked, place)
    order = [BATCH_TIME, BATCH_INPUT, BATCH_ORDER]
    return bounded(rows, order, operator, partial(arrivals, operator, ranked), use=use)


def together(
    operator: Operator, streams: Streams, names: Sequence[str], place: Callable[[str], list[Column]]
) -> DataFrame:
    """The elements of all inputs, with the columns of *place*, their times, the indexes of their inputs, and a struct per
    input.
    """
    parts = []
    for number, name in enumerate(names):
        stream = streams[name]
        struct = F.struct(*[F.col(quoted_name(column)) for column in operator.inputs[name].schema.names])
        # Null, which is sorted first, for a stream without event times.
        time = (
            F.lit(None).cast("long") if stream.time is None else event_micros(stream.df, stream.time, stream.time_unit)
        )
        times = time.alias(BATCH_TIME), F.lit(number).alias(BATCH_INPUT)
        part: DataFrame = stream.df.select(*place(name), *times, struct.alias(name))
        parts.append(part)
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
