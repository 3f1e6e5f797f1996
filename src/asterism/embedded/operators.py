"""User-defined operators over Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from asterism.columns.arrays import Ints
from asterism.embedded.batches import check_live, check_table, is_live, opened, wire_of
from asterism.embedded.tables import KEY_GROUPS, run_instances, selected, write
from asterism.errors import StreamDefinitionError
from asterism.live.live_options import LiveOptions
from asterism.operators.multiple_input import MultipleInputOperator
from asterism.operators.row_hashes import row_hashes
from asterism.operators.sink_functions import Sink
from asterism.operators.stream_operator import StreamOperator
from asterism.streams.data_streams import DataStream, Stream
from asterism.streams.keyed_stream import KeyedStream
from asterism.streams.operators import check_co_partitioned
from asterism.streams.run_options import RunOptions

if TYPE_CHECKING:
    from asterism.live.engine import LiveEngine


def hosted_operator(
    operator: StreamOperator,
    streams: Mapping[str, Stream],
    key_groups: int | None,
    pages: int | None,
    drain: bool,
    co_partitioned: bool,
) -> ArrowOperator:
    """See :class:`asterism.streams.operators.HostedOperator`."""
    return ArrowOperator(operator, streams, key_groups, pages, co_partitioned)


class ArrowOperator:
    """An operator over tables, whose results are computed each time they are read; or over streams of schemas."""

    def __init__(
        self,
        operator: StreamOperator,
        streams: Mapping[str, Stream],
        key_groups: int | None,
        pages: int | None,
        co_partitioned: bool,
    ) -> None:
        live = {is_live(stream) for stream in streams.values()}
        if len(live) > 1:
            raise StreamDefinitionError(
                "an operator has tables and streams of a schema", hint="KeyedStream(table.schema, ...)"
            )
        self.operator = MultipleInputOperator(
            operator, {name: wire_of(stream) for name, stream in streams.items()}, pages=pages if True in live else 1
        )
        self._streams = {name: streams[name] for name in self.operator.inputs}
        self._key_groups = key_groups or KEY_GROUPS
        if co_partitioned:
            check_co_partitioned(not any(map(is_live, streams.values())), self.operator)

    def rows(self, output: str) -> pa.Table:
        return self._outputs()[output]

    def run(self, sinks: Mapping[str, Sink], options: RunOptions) -> None:
        options.check_of_table()
        write(self.operator.output_schemas, self._outputs, sinks)

    def open(self, options: LiveOptions) -> LiveEngine:
        for stream in self._streams.values():
            check_live(stream)
        names = {output: output for output in options.outputs}
        return opened(self.operator, self._streams, options, names=names)

    def _outputs(self) -> dict[str, pa.Table]:
        for stream in self._streams.values():
            check_table(stream)
        tables = {name: selected(stream.df, self.operator, name) for name, stream in self._streams.items()}
        hashes = {name: partial(_hashes, stream) for name, stream in self._streams.items()}
        return run_instances(self.operator, tables, hashes, self._key_groups)


def _hashes(stream: Stream, table: pa.Table) -> Ints:
    """The hash by which an element has its key group, which is that of Spark.

    :param table: the columns of the stream that the operator reads
    """
    names = (
        table.schema.names if isinstance(stream, DataStream) else stream.keys if isinstance(stream, KeyedStream) else []
    )
    return row_hashes(table.select([name for name in names if not pa.types.is_nested(table.schema.field(name).type)]))
