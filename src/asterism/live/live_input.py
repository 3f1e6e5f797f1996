"""An input of a live engine: batches of a user become prepared events and watermarks, as in the tasks of Spark.

See docs/decisions/0185.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from asterism.arguments import shown
from asterism.columns.arrays import Ints, from_numpy, to_numpy
from asterism.columns.groups import KEY_HASH, first_rows, group_codes
from asterism.columns.time import BEFORE_TIME, NO_TIME, TimeColumn, micros, to_micros
from asterism.errors import StreamDefinitionError
from asterism.expressions.types import TIME_ZONE
from asterism.operators.operator import Arrival, Operator
from asterism.operators.state.partition_watermarks import check_names, check_partitions, partition_name

MILLISECOND = 1000


@dataclass(frozen=True, slots=True)
class LiveInput:
    """
    :param read: makes a table with the columns of the stream from a batch of the user
    :param time: the event-time column; None: processing time
    :param max_out_of_orderness, idle_after, watermark_by: as for :class:`asterism.KeyedStream`
    :param keys: the key columns
    """

    read: Callable[[Any], pa.Table]
    time: TimeColumn | None
    max_out_of_orderness: timedelta = timedelta(0)
    idle_after: timedelta | None = None
    watermark_by: Sequence[str] = ()
    keys: Sequence[str] = ()

    def arrivals(self, operator: Operator, name: str, events: pa.Table, watermark: int | None) -> list[Arrival]:
        """Prepared events and their watermark.

        :param watermark: that of the caller, if it is later than what follows from the event times
        :raises LimitExceededError: the input has too many partitions
        """
        spec = operator.inputs[name]
        hashed = events.select(spec.schema.names)
        hashed = hashed.append_column(KEY_HASH, from_numpy(self._hashes(operator, events)))
        prepared = operator.prepare(name, hashed)
        latest = operator.latest(name, hashed, prepared)
        prepared = operator.relevant(name, prepared)
        if KEY_HASH in prepared.column_names:
            prepared = prepared.drop_columns([KEY_HASH])
        arrivals = [Arrival(name, prepared.combine_chunks())] if prepared.num_rows else []
        if self.watermark_by and events.num_rows:
            arrivals.append(Arrival(name, partitions=self._watermarks_of_partitions(events)))
        elif latest != NO_TIME:
            watermark = max(latest - self._behind, BEFORE_TIME if watermark is None else watermark)
        arrivals.append(Arrival(name, None, BEFORE_TIME if watermark is None else watermark))
        return arrivals

    def _hashes(self, operator: Operator, events: pa.Table) -> Ints:
        """The hashes of keys, which determine their pages if the number of pages is fixed."""
        if operator.pages == 1 or not self.keys:
            return np.zeros(events.num_rows, np.int64)
        from asterism.columns.hashing import hash_keys  # compiled code, which is loaded only if it is needed

        return hash_keys(events.select(list(self.keys))).view(np.int64)

    @property
    def _behind(self) -> int:
        """By which a watermark is before the latest event, in microseconds."""
        return micros(self.max_out_of_orderness) + MILLISECOND

    def _watermarks_of_partitions(self, events: pa.Table) -> dict[str, int]:
        assert self.time is not None
        columns = events.select(list(self.watermark_by))
        codes, count = group_codes(columns)
        check_partitions(count, self.watermark_by)
        times = to_numpy(pc.fill_null(self.time.to_micros(events.column(self.time.name), lenient=True), NO_TIME))
        latest = np.full(count, NO_TIME)
        np.maximum.at(latest, codes, times)
        first = columns.take(from_numpy(first_rows(codes, count)))
        names = [
            partition_name(values) for values in zip(*(column.to_pylist() for column in first.columns), strict=True)
        ]
        check_names(names, self.watermark_by)
        known = zip(names, latest.tolist(), strict=True)
        return {name: time - self._behind for name, time in known if time != NO_TIME}

    def micros(self, watermark: Any) -> int:
        """A watermark of the user, a value like those of the event time, in microseconds.

        :raises StreamDefinitionError: it is no time
        """
        hint = "engine.advance_watermark(datetime(2026, 1, 31, 12, tzinfo=UTC)); an int, if the event time is a BIGINT"
        if self.time is None:
            raise StreamDefinitionError("the stream has no event time, so it has no watermark")
        is_integer = pa.types.is_integer(self.time.type)
        expected = type(watermark) is int if is_integer else isinstance(watermark, datetime | date)
        if not expected:
            kinds = "an int" if is_integer else "a datetime"
            raise StreamDefinitionError(
                f"a watermark must be {kinds}, as the event time is, not {shown(watermark)}", hint=hint
            )
        if is_integer:
            return self.time.of_integer(watermark)
        if pa.types.is_date32(self.time.type) or not isinstance(watermark, datetime):
            watermark = datetime(watermark.year, watermark.month, watermark.day)
        return to_micros(watermark)


def zone_of(schema: pa.Schema) -> str | None:
    """The time zone of the expressions of a stream."""
    zone = (schema.metadata or {}).get(TIME_ZONE)
    return None if zone is None else zone.decode()
