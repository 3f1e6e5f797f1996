"""What a savepoint contains, which of it belongs to keys, and where a text is in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from asterism.columns.keys import KEY as KEY_TEXT
from asterism.columns.keys import key_values
from asterism.errors import StateError
from asterism.operators.state.state_definition import OperatorKind
from asterism.savepoints.key_groups import STATE, THE_KEY, rows_schema
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.manifest import ROWS
from asterism.text.printable import quoted_name
from asterism.windows.stored_windows import PANES


@dataclass(frozen=True, slots=True)
class SavepointChanges:
    """What a new savepoint has, and what it no longer has.

    :ivar before, after: the numbers of keys, and by name those of what belongs to keys (``partial_matches``, ``events``,
        ``panes``, ``state:total``, ``timers``, ...), of events that wait (``waiting_events``), and of entries of broadcast states
    :ivar mentions: of a savepoint without some keys, where values of these keys remain that are strings: how many rows of other
        keys, of broadcast states, and positions of sources contain them
    :ivar former_files: of a checkpoint that was changed in place, its former folders, which still contain what was removed
    :ivar operators: of a query with several operators, the changes of each, by Spark's number; the others are their sums
    """

    before: Mapping[str, int]
    after: Mapping[str, int]
    mentions: Mapping[str, int]
    former_files: Sequence[str] = field(default=())
    operators: Mapping[int, SavepointChanges] = field(default_factory=dict)

    @classmethod
    def of_operators(cls, operators: Mapping[int, SavepointChanges], mentions: Mapping[str, int]) -> SavepointChanges:
        """The changes of all operators together.

        :param mentions: those that belong to no operator
        """
        before, after, all_mentions = Counter[str](), Counter[str](), Counter[str](mentions)
        for each in operators.values():
            before.update(each.before)
            after.update(each.after)
            all_mentions.update(each.mentions)
        several = operators if len(operators) > 1 else {}
        return cls(dict(before), dict(after), dict(all_mentions), operators=several)

    @property
    def removed(self) -> dict[str, int]:
        """How much less there is, by name."""
        return {name: n - self.after.get(name, 0) for name, n in self.before.items() if n > self.after.get(name, 0)}

    @property
    def added(self) -> dict[str, int]:
        """How much more there is, by name."""
        return {name: n - self.before.get(name, 0) for name, n in self.after.items() if n > self.before.get(name, 0)}


def contents_of(spark: SparkSession, location: str, counts: Mapping[str, int], states: KeyStates) -> dict[str, int]:
    """The numbers of :class:`SavepointChanges`."""
    rows = spark.read.parquet(f"{location}/{ROWS}")
    sizes: dict[str, Column] = {"keys": F.count("*")}
    for name, kind in ((f.name, f.type) for f in states.fields):
        if pa.types.is_list(kind):
            column = F.col(STATE).getField(name)
            sizes[name] = F.sum(F.size(column))
            if name == PANES and "elements" in kind.value_type.names:
                elements = F.transform(column, lambda pane: F.size(pane["elements"]))
                sizes["elements"] = F.sum(F.aggregate(elements, F.lit(0), lambda total, size: total + size))
    counted = rows.agg(*(size.alias(name) for name, size in sizes.items())).first()
    assert counted is not None
    return {**{name: counted[name] or 0 for name in sizes}, **{name: n for name, n in counts.items() if name != ROWS}}


def rows_that_contain(rows: DataFrame, texts: Iterable[str]) -> int:
    """The number of rows of which a string, or a part of it, is one of *texts*."""
    document = F.to_json(F.struct(*map(quoted_name, rows.columns)))
    sought = [F.contains(document, F.lit(json.dumps(text, ensure_ascii=False)[1:-1])) for text in texts]
    return rows.where(reduce(or_, sought)).count()


def texts_that_contain(contents: Iterable[str], texts: Sequence[str]) -> int:
    return sum(any(text in content for text in texts) for content in contents)


def without_keys(rows: DataFrame, states: KeyStates, keys: DataFrame) -> DataFrame:
    """The rows of keys, or the events that wait, that do not belong to *keys*."""
    of_state = THE_KEY in rows.columns
    if states.definition.kind is OperatorKind.RULES:
        text = F.col(THE_KEY).getField("key") if of_state else F.col(quoted_name(KEY_TEXT))
        sought = [set(row) for row in keys.collect()]
        if any(None in row for row in sought):
            raise StateError(
                "a key of rules cannot be NULL", hint="leave the column out: all keys with the other values are removed"
            )
        columns = rows.columns

        def others(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                values = [set(key_values(each)) for each in batch.column("asterism_key").to_pylist()]
                kept = pa.array([not any(some <= of_row for some in sought) for of_row in values], pa.bool_())
                yield batch.filter(kept).select(columns)

        return rows.withColumn("asterism_key", text).mapInArrow(others, rows.schema)
    if of_state:
        of_key = [F.col(THE_KEY).getField(f.name) for f in rows_schema(states).field(THE_KEY).type]
    else:
        of_key = [F.col(quoted_name(column)) for column in rows.columns if column.startswith("k:")]
    stored = dict(zip(states.definition.keys.names, of_key, strict=True))
    removed = keys.toDF(*(f"removed {number}" for number in range(len(keys.columns))))
    pairs = zip(keys.columns, removed.columns, strict=True)
    same = [stored[name].eqNullSafe(F.col(quoted_name(other))) for name, other in pairs]
    return rows.join(F.broadcast(removed), same, "left_anti")
