"""Makes a savepoint from another one: without some keys or partial matches, and with other keyed and broadcast state.

See docs/decisions/0133.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from operator import and_, or_
from typing import Any, Self

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from asterism.arguments import expect, expect_number, expect_string, shown
from asterism.columns.time import BEFORE_TIME, END_OF_TIME, micros
from asterism.errors import StateError
from asterism.operators.context import EVENT, PROCESSING
from asterism.operators.state.keyed_state import EXPIRES, KEY, NAME, VALUE, StateKind
from asterism.operators.state.state_definition import OperatorKind, StateDefinition
from asterism.operators.stored_state import BROADCAST, STATE, TIMERS_TABLE
from asterism.savepoints.instances import is_distributed
from asterism.savepoints.key_groups import (
    KEY_GROUP,
    KEY_HASH,
    NEXT_EVENT_TIME,
    NEXT_PROCESSING_TIME,
    POSITION,
    THE_KEY,
    Summary,
    rows_schema,
)
from asterism.savepoints.key_groups import STATE as STATE_COLUMN
from asterism.savepoints.key_states import KeyStates
from asterism.savepoints.kinds import key_states
from asterism.savepoints.manifest import ROWS, SOURCES, Manifest, folder_of_broadcast, folder_of_waiting
from asterism.savepoints.plain_types import plain_schema, plain_type
from asterism.savepoints.rule_sets import RuleSets
from asterism.savepoints.trimming import DroppedMatches, without_partial_matches
from asterism.spark.host.column_types import spark_schema
from asterism.spark.host.stateful import group_column, hash_of
from asterism.spark.savepoints.contents import (
    SavepointChanges,
    contents_of,
    rows_that_contain,
    texts_that_contain,
    without_keys,
)
from asterism.spark.savepoints.creating import PARQUET, writing
from asterism.spark.savepoints.exact_values import exact
from asterism.spark.savepoints.folders import StoredFolder
from asterism.spark.savepoints.restoring import StoredOperator, StoredSavepoint
from asterism.spark.session.settings import expect_session, settings
from asterism.text.printable import quoted_name
from asterism.windows.stored_windows import FUNCTION_STATE

_Step = Callable[[DataFrame], DataFrame]
_ORDER, _ENTRY, _ENTRIES = "asterism_order", "asterism_entry", "asterism_entries"
_WRITER = "SavepointWriter.from_existing_savepoint(spark, path)"
Keys = DataFrame | Iterable[Mapping[str, Any]]


class SavepointWriter:
    """Makes a savepoint from another one, as Flink's State Processor API does. Each method returns the writer; :meth:`write`
    writes the new savepoint. The former one does not change.

    Source: Flink, "State Processor API": ``SavepointWriter``. docs/savepoints.md has a runnable example.
    """

    def __init__(self, spark: SparkSession, stored: StoredSavepoint) -> None:
        """Use :meth:`from_existing_savepoint`."""
        self._spark, self._stored, self._manifest = spark, stored, stored.manifest
        self._parts = {
            number: _OperatorPart(operator, operator.summary, key_states(operator.summary.definition, operator.rules))
            for number, operator in enumerate(stored.operators)
            if operator.summary is not None
        }
        self._sought: set[str] = set()

    @classmethod
    def from_existing_savepoint(cls, spark: SparkSession, savepoint: str) -> SavepointWriter:
        """Begin with what a savepoint contains.

        :param savepoint: the folder that :func:`create_savepoint` has written
        :raises StateError: there is no savepoint, or the query had no state
        """
        expect_session(spark, "a SavepointWriter", _WRITER)
        expect_string(StateError, savepoint, "the savepoint must be a location", '"/savepoints/carts"')
        writer = cls(spark, StoredSavepoint.of(StoredFolder.of(spark, savepoint)))
        if not writer._parts:
            raise StateError(f"the query of the savepoint {savepoint} had no state")
        return writer

    def _part(self, operator_id: int | None) -> _OperatorPart:
        expect(StateError, operator_id, int | None, "operator_id must be an integer or None", "operator_id=0")
        number = self._manifest.operator_number(operator_id)
        if number not in self._parts:
            raise StateError(f"the operator {number} of the savepoint had no state")
        return self._parts[number]

    # ------------------------------------------------------------------ keys

    def remove_keys(self, keys: Keys, *, operator_id: int | None = None) -> Self:
        """Remove all that belongs to some keys: their state, their timers, and their events that wait.

        :param keys: for each key a mapping of key columns to values, or a DataFrame with key columns. With some of the key
            columns, all keys with these values are removed. With rules, which group by keys of their own, all keys that have
            these values among theirs, as strings. A value that the type of its column cannot have, such as 7.5 of an integer,
            is refused, and not rounded.
        :param operator_id: Spark's number of one operator. Default: all operators that have these key columns. If they have
            other types in some of them, a key is removed where its values can be converted.
        :raises StateError: the query has no key, or no such key column; or a value has the type of its column in no operator
        """
        given = self._as_frame(keys)
        parts = [*self._parts.values()] if operator_id is None else [self._part(operator_id)]
        parts = _with_keys(parts, given.columns)
        _check_values(parts, given)
        for part in parts:
            chosen = part.typed_keys(given)
            strings = [f.name for f in chosen.schema.fields if f.dataType.simpleString() == "string"]
            for name in strings:
                self._sought |= {row[0] for row in chosen.select(quoted_name(name)).distinct().collect() if row[0]}
            part.removed.append(chosen)
            part.steps.append(partial(without_keys, states=part.states, keys=chosen))
        return self

    def _as_frame(self, keys: Keys) -> DataFrame:
        if isinstance(keys, DataFrame):
            return keys
        hint = 'remove_keys([{"user": "alice"}])'
        if isinstance(keys, str | Mapping) or not isinstance(keys, Iterable):
            raise StateError("the keys must be a list of mappings or a DataFrame", hint=hint)
        values = list(keys)
        for each in values:
            expect(StateError, each, Mapping, "a key must be a mapping of columns to values", hint)
        if not values or not all(each and each.keys() == values[0].keys() for each in values):
            raise StateError("each key must have the same columns, at least one", hint=hint)
        return _frame_of(self._spark, values)

    # ------------------------------------------------------------------ partial matches

    def drop_partial_matches(
        self,
        *,
        stage: str | None = None,
        older_than: timedelta | None = None,
        max_per_key: int | None = None,
        operator_id: int | None = None,
    ) -> Self:
        """Drop partial matches of a pattern. They are not in the output ``timed_out`` either.

        :param stage: only those whose last event is of this stage. Default: of any stage
        :param older_than: only those whose first event is so long before the watermark
        :param max_per_key: only those beyond the latest ones of a key
        :param operator_id: as for :func:`read_savepoint`. Default: the only operator
        :raises StateError: it is not the state of a pattern, there is no such stage, or there is neither a watermark nor a time
        """
        hint = 'drop_partial_matches(stage="cart", older_than=timedelta(days=7))'
        expect(StateError, stage, str | None, "a stage must be a string", hint)
        expect(StateError, older_than, timedelta | None, "older_than must be a timedelta", hint)
        if max_per_key is not None:
            expect_number(StateError, max_per_key, "max_per_key", least=0)
        part = self._part(operator_id)
        before = None if older_than is None else self._watermark(part) - micros(older_than)
        dropped, states, definition = DroppedMatches(stage, before, max_per_key), part.states, part.definition
        dropped.check(definition)

        def trim(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            reader = key_states(definition)
            for batch in batches:
                if batch.num_rows:
                    yield from without_partial_matches(reader, pa.Table.from_batches([batch]), dropped).to_batches()

        schema = plain_schema(pa.schema([*rows_schema(states), (KEY_HASH, pa.int64())]))
        part.steps.append(lambda rows: rows.select(schema.names).mapInArrow(trim, spark_schema(schema)))
        return self

    def _watermark(self, part: _OperatorPart) -> int:
        """The watermark in microseconds; of a query in processing time, the time of the savepoint."""
        watermark = self._manifest.watermark_of(part.summary)
        return self._manifest.written_at if watermark == BEFORE_TIME else watermark

    # ------------------------------------------------------------------ states

    def with_keyed_state(self, name: str, entries: DataFrame, *, operator_id: int | None = None) -> Self:
        """Replace a keyed state of an operator or a window function, for all keys. Keys that had no state get one.

        :param entries: the columns that ``read_savepoint(...).state(name)`` has: ``key`` (or the key columns), of a list
            ``position``, of a map ``map_key``, ``value``, and ``expires`` if the state has a time to live (NULL: never)
        :param operator_id: as for :func:`read_savepoint`. Default: the only operator
        :raises StateError: there is no such state, a column is missing or has another type, or a key has several entries of
            which it can have one
        """
        part = self._keyed_part(operator_id)
        table = part.table_of(name, (STATE, FUNCTION_STATE))
        kind = StateKind(part.definition.details["kinds"][name])
        return self._with_table(part, table, kind, part.entries(entries, table, kind))

    def with_timers(self, timers: DataFrame, *, operator_id: int | None = None) -> Self:
        """Replace the timers of an operator, for all keys.

        :param timers: the columns that ``read_savepoint(...).timers()`` has: ``key`` (or the key columns), ``name``, ``time``,
            and ``domain``: "event time" or "processing time"
        :param operator_id: as for :func:`read_savepoint`. Default: the only operator
        :raises StateError: the operator has no timers, or a column is missing
        """
        part = self._keyed_part(operator_id)
        part.table_of("timers", ("",))
        expect(StateError, timers, DataFrame, "timers must be a DataFrame", "with_timers(df)")
        _check_columns(timers, ["name", "time", "domain"])
        domain = F.when(F.col("domain") == "event time", EVENT).when(F.col("domain") == "processing time", PROCESSING)
        if not timers.where(domain.isNull()).isEmpty():
            raise StateError('the domain of a timer must be "event time" or "processing time"')
        entries = timers.withColumns({"map_key": F.concat(domain, "name"), VALUE: F.unix_micros(F.col("time"))})
        typed = part.entries(entries, TIMERS_TABLE, StateKind.MAP)
        return self._with_table(part, TIMERS_TABLE, StateKind.MAP, typed)

    def _keyed_part(self, operator_id: int | None) -> _OperatorPart:
        part = self._part(operator_id)
        if is_distributed(part.definition):
            raise StateError(
                "the streams of the operator have no key",
                "Each of its instances has state of its own, which cannot be set from a table.",
            )
        return part

    def with_broadcast_state(self, name: str, entries: DataFrame, *, operator_id: int | None = None) -> Self:
        """Replace a broadcast state of an operator.

        :param entries: the columns that ``read_savepoint(...).broadcast(name)`` has: those of :meth:`with_keyed_state` without
            the key
        :param operator_id: as for :func:`read_savepoint`. Default: the only operator
        :raises StateError: as :meth:`with_keyed_state`
        """
        part = self._part(operator_id)
        table = part.table_of(name, (BROADCAST,))
        kind, schema = StateKind(part.definition.details["kinds"][name]), part.definition.tables[table]
        plain = plain_type(pa.struct([f for f in schema if f.name != KEY]))
        rows = _typed(entries, plain, kind)
        _check_distinct(rows, [] if kind is StateKind.VALUE else [f"{_ENTRY}.{NAME}"], kind, name)
        columns = {KEY: F.lit(0).cast("long"), **{f.name: F.col(_ENTRY).getField(f.name) for f in plain}}
        ordered = rows.coalesce(1).sortWithinPartitions(_ORDER).withColumn(POSITION, F.monotonically_increasing_id())
        part.broadcast[name] = ordered.select(POSITION, *(columns[f.name].alias(f.name) for f in schema))
        return self

    def _with_table(self, part: _OperatorPart, table: str, kind: StateKind, entries: DataFrame) -> Self:
        if kind is not StateKind.LIST:
            _check_distinct(entries, [THE_KEY, *([f"{_ENTRY}.{NAME}"] if kind is StateKind.MAP else [])], kind, table)
        # Something may be due at once. A timer of Spark at or before its watermark would fire while the state is written.
        soon = max(self._watermark(part) if part.stored.time_mode == "EventTime" else 0, 0) + 1000
        part.steps.append(partial(part.joined, table, entries, soon))
        return self

    # ------------------------------------------------------------------ writing

    def write(self, target: str) -> SavepointChanges:
        """Write the new savepoint, and read it again: every key must be where its hash says.

        :param target: a new folder
        :return: what was removed and added
        :raises StateError: *target* has files, or what was written is not a savepoint
        :raises CheckpointInUseError: another process writes a savepoint there
        """
        expect_string(StateError, target, "the target must be a location", '"/savepoints/carts"')
        self._stored.check_names()
        folder = StoredFolder.of(self._spark, target)
        with writing(self._spark, folder, None) as complete, settings(self._spark, PARQUET):
            manifest, changes = self._written(folder)
            complete(manifest)
        return changes

    def _written(self, folder: StoredFolder) -> tuple[Manifest, SavepointChanges]:
        spark, stored, manifest = self._spark, self._stored, self._manifest
        places = {number: stored.place_of(number, folder) for number in self._parts}
        for number, part in self._parts.items():
            manifest = manifest.with_operator(number, part.summary, part.write(spark, places[number]))
        stored.copy_rest(folder, self._parts.keys())
        sought = sorted(self._sought)
        changes = {}
        for number, part in self._parts.items():
            counts = manifest.operators[number].counts
            changes[number] = SavepointChanges(
                contents_of(spark, part.stored.folder.location, part.stored.counts, part.states),
                contents_of(spark, places[number].location, counts, part.states),
                _mentions(spark, places[number], counts, sought),
            )
        position = manifest.position
        logs = [position.offsets, position.commit, position.planned or "", *(folder / SOURCES).texts()]
        found = texts_that_contain(logs, sought)
        manifest = replace(manifest, created=datetime.now(UTC).isoformat(timespec="seconds"))
        return manifest, SavepointChanges.of_operators(changes, {"positions of sources": found} if found else {})


@dataclass
class _OperatorPart:
    """An operator of the savepoint, and how its state changes."""

    stored: StoredOperator
    summary: Summary
    states: KeyStates
    steps: list[_Step] = field(default_factory=list)
    removed: list[DataFrame] = field(default_factory=list)
    broadcast: dict[str, DataFrame] = field(default_factory=dict)

    @property
    def definition(self) -> StateDefinition:
        return self.summary.definition

    @property
    def rules(self) -> RuleSets | None:
        return self.stored.rules

    # ------------------------------------------------------------------ keys

    def _key_types(self, columns: Iterable[str]) -> dict[str, T.DataType]:
        """The types of the key columns; of rules, whose keys are strings, those of *columns*."""
        if self.rules is not None:
            return dict.fromkeys(columns, T.StringType())
        fields = spark_schema(plain_schema(self._key_fields)).fields
        return {name: f.dataType for name, f in zip(self._key_names, fields, strict=True)}

    @property
    def key_columns(self) -> frozenset[str]:
        """What a key can be named by."""
        return frozenset(self._key_names) if self.rules is None else self.rules.key_columns

    def typed_keys(self, keys: DataFrame) -> DataFrame:
        """Those of the *keys* whose values can be converted to the types of the key columns, once each."""
        columns = [value.alias(name) for name, value in self._converted(keys, keys.columns).items()]
        return keys.where(self.has_types(keys, keys.columns)).select(columns).distinct().localCheckpoint()

    def has_types(self, keys: DataFrame, columns: Sequence[str]) -> Column:
        """Whether the values of a key can be converted, without being rounded or truncated."""
        converted = self._converted(keys, columns)
        return reduce(and_, (value.isNotNull() | _column(name).isNull() for name, value in converted.items()))

    def check_value(self, keys: DataFrame) -> None:
        """:raises StateError: a value of the *keys* cannot be converted"""
        types = self._key_types(keys.columns)
        for name in keys.columns:
            unfit = keys.where(~self.has_types(keys, [name])).select(_column(name)).first()
            if unfit is not None:
                raise _not_of_type(name, unfit[0], types[name])

    def _converted(self, keys: DataFrame, columns: Sequence[str]) -> dict[str, Column]:
        types = self._key_types(columns)
        return {name: exact(_column(name), keys.schema[name].dataType, types[name]) for name in columns}

    @property
    def _key_names(self) -> list[str]:
        """The key columns. MATCH_RECOGNIZE stores them under other names."""
        return list(self.definition.keys.names)

    @property
    def _key_fields(self) -> pa.Schema:
        return pa.schema(list(rows_schema(self.states).field(THE_KEY).type))

    # ------------------------------------------------------------------ states

    def table_of(self, name: str, prefixes: Iterable[str]) -> str:
        expect_string(StateError, name, "the name of a state must be a string", 'with_keyed_state("total", df)')
        tables = self.definition.tables
        found = next((prefix + name for prefix in prefixes if prefix + name in tables), None)
        if found is None:
            names = [each.removeprefix(p) for p in prefixes for each in tables if p and each.startswith(p)]
            raise StateError(f'there is no such state: "{name}"', f"There are: {', '.join(names) or 'none'}")
        return found

    def entries(self, entries: DataFrame, table: str, state: StateKind) -> DataFrame:
        """THE_KEY, _ORDER and _ENTRY of each entry."""
        fields = plain_schema(self._key_fields)
        typed = _typed(entries, plain_type(self.states.fields.field(table).type.value_type), state)
        if not self.definition.keys.names:
            return typed.withColumn(THE_KEY, F.struct(*(F.lit(0).cast("byte").alias(f.name) for f in fields)))
        given = entries.schema["key"].dataType if "key" in entries.columns else None
        of_struct = isinstance(given, T.StructType)
        if not isinstance(given, T.StructType):
            _check_columns(entries, self._key_names)
            given = entries.schema
        parts = [F.col("key").getField(n) if of_struct else _column(n) for n in self._key_names]
        key = []
        for part, name, f in zip(parts, self._key_names, spark_schema(fields).fields, strict=True):
            if name not in given.names:
                raise StateError(f'the column "key" has no field "{name}"', f"Fields: {', '.join(given.names)}")
            value = exact(part, given[name].dataType, f.dataType)
            if given[name].dataType != f.dataType:
                unfit = entries.where(part.isNotNull() & value.isNull()).select(part).first()
                if unfit is not None:
                    raise _not_of_type(name, unfit[0], f.dataType)
            key.append(value.alias(f.name))
        return typed.withColumn(THE_KEY, F.struct(*key))

    def joined(self, table: str, entries: DataFrame, soon: int, rows: DataFrame) -> DataFrame:
        """The rows of keys with the *entries* of a table.

        :param soon: the event time at which something may be due
        """

        def compared(left: Column, right: Column) -> Column:
            return F.signum(left[_ORDER] - right[_ORDER]).cast("int")

        collected = F.array_sort(F.collect_list(F.struct(_ORDER, _ENTRY)), compared)
        listed = F.transform(collected, lambda each: each[_ENTRY])
        of_keys = entries.groupBy(F.col(THE_KEY).alias("new_key")).agg(listed.alias(_ENTRIES))
        both = rows.join(of_keys, F.col(THE_KEY).eqNullSafe(F.col("new_key")), "full_outer")
        key = F.coalesce(F.col(THE_KEY), F.col("new_key"))
        keys = [key.getField(f.name) for f in self._key_fields]
        with_key = self.definition.keys.names
        key_hash = F.coalesce(KEY_HASH, hash_of(keys if with_key else []))
        state = F.coalesce(STATE_COLUMN, self._no_state())
        parts = [
            F.coalesce(_ENTRIES, F.array().cast(spark_schema(pa.schema([f])).fields[0].dataType)).alias(f.name)
            if f.name == table
            else state.getField(f.name).alias(f.name)
            for f in plain_schema(self.states.fields)
        ]
        return both.select(
            F.coalesce(KEY_GROUP, group_column(key_hash, self.stored.key_groups).cast("int")).alias(KEY_GROUP),
            key.alias(THE_KEY),
            F.lit(soon).cast("long").alias(NEXT_EVENT_TIME),
            F.lit(0).cast("long").alias(NEXT_PROCESSING_TIME),
            F.struct(*parts).alias(STATE_COLUMN),
            key_hash.alias(KEY_HASH),
        )

    def _no_state(self) -> Column:
        """The state of a key that has none: empty lists; windows have seen no watermark."""
        fields = spark_schema(plain_schema(self.states.fields)).fields
        return F.struct(
            *(
                (F.array() if f.dataType.typeName() == "array" else F.lit(BEFORE_TIME)).cast(f.dataType).alias(f.name)
                for f in fields
            )
        )

    # ------------------------------------------------------------------ writing

    def write(self, spark: SparkSession, folder: StoredFolder) -> dict[str, int]:
        """Write the tables, and return how many rows each has."""
        former, counts = self.stored.folder.location, self.stored.counts

        def read(name: str) -> DataFrame:
            return spark.read.parquet(f"{former}/{name}")

        tables = {ROWS: reduce(lambda rows, step: step(rows), self.steps, read(ROWS))}
        for name in map(folder_of_waiting, self.definition.inputs):
            if name in counts:
                tables[name] = read(name)
                if KEY_HASH in tables[name].columns:  # others are broadcast
                    tables[name] = reduce(
                        lambda rows, keys: without_keys(rows, self.states, keys), self.removed, tables[name]
                    )
        for name in (each.removeprefix(BROADCAST) for each in self.definition.tables if each.startswith(BROADCAST)):
            place = folder_of_broadcast(name)
            if name in self.broadcast:
                tables[place] = self.broadcast[name]
            elif place in counts:
                tables[place] = read(place)
        written = {}
        for name, rows in tables.items():
            rows.write.parquet(f"{folder.location}/{name}")
            written[name] = spark.read.parquet(f"{folder.location}/{name}").count()
            if not written[name] and name != ROWS:
                (folder / name).delete()
        self._check(spark.read.parquet(f"{folder.location}/{ROWS}"))
        return {name: count for name, count in written.items() if count or name == ROWS}

    def _check(self, rows: DataFrame) -> None:
        if self.definition.kind is OperatorKind.RULES or is_distributed(self.definition):  # no key was added
            return
        keys = [F.col(THE_KEY).getField(f.name) for f in self._key_fields]
        key_hash = hash_of(keys if self._key_names else [])
        wrong = rows.where(key_hash != F.col(KEY_HASH)).count()
        several = rows.count() - rows.select(THE_KEY).distinct().count()
        if wrong or several:
            raise StateError(
                "the keys of the new savepoint cannot be restored",
                f"{wrong:,} are not where their hash says, and {several:,} are there twice.",
            )


def _with_keys(parts: Sequence[_OperatorPart], columns: Sequence[str]) -> list[_OperatorPart]:
    """The operators that have all of these key columns.

    :raises StateError: there is none
    """
    chosen = [part for part in parts if columns and part.key_columns.issuperset(columns)]
    known = sorted({name for part in parts for name in part.key_columns})
    if not known:
        raise StateError("the query has no key, so no key can be removed")
    if not chosen:
        unknown = next((name for name in columns if name not in known), None)
        detail = f"Key columns: {', '.join(known)}"
        if columns and unknown is None:
            raise StateError(f"no operator has all of the key columns {', '.join(columns)}", detail)
        raise StateError(f'there is no key column "{unknown or ""}"', detail)
    return chosen


def _check_values(parts: Sequence[_OperatorPart], keys: DataFrame) -> None:
    """:raises StateError: the values of a key can be converted in none of the operators"""
    unfit = keys.where(~reduce(or_, (part.has_types(keys, keys.columns) for part in parts)))
    if not unfit.isEmpty():
        parts[0].check_value(unfit)


def _not_of_type(name: str, value: Any, wanted: T.DataType) -> StateError:
    return StateError(
        f'a value of the key column "{name}" is not a {wanted.simpleString()}',
        f"{shown(value)} would be rounded, truncated, or is of another kind. Nothing was written.",
        "give the value as the key has it",
    )


def _frame_of(spark: SparkSession, keys: Sequence[Mapping[str, Any]]) -> DataFrame:
    """:raises StateError: the values of a column have several types, or one that Spark does not know"""
    names = list(keys[0])
    for name in names:
        types = {type(each[name]).__name__ for each in keys if each[name] is not None}
        if len(types) > 1:
            what = f'the values of the key column "{name}" have several types: {", ".join(sorted(types))}'
            raise StateError(what, hint="give all of them the type of the column")
        if any(
            type(each[name]) is int and not -(2**63) <= each[name] < 2**63 for each in keys
        ):  # Spark makes NULL of them
            raise StateError(f'a value of the key column "{name}" has more than 64 bits', hint="give it as a string")
    known = [name for name in names if any(each[name] is not None for each in keys)]
    if not known:
        return spark.range(1).select(*(F.lit(None).cast("string").alias(name) for name in names))
    try:
        frame = spark.createDataFrame([tuple(each[name] for name in known) for each in keys], known)
    except (PySparkException, ValueError, TypeError, OverflowError) as error:
        raise StateError("the keys cannot be read", str(error)) from error
    return frame.select(*(_column(n) if n in known else F.lit(None).cast("string").alias(n) for n in names))


def _column(name: str) -> Column:
    return F.col(quoted_name(name))


def _mentions(spark: SparkSession, folder: StoredFolder, names: Iterable[str], texts: Sequence[str]) -> dict[str, int]:
    """How many rows of tables contain one of *texts*."""
    if not texts:
        return {}
    rows = {name: rows_that_contain(spark.read.parquet(f"{folder.location}/{name}"), texts) for name in names}
    return {name: count for name, count in rows.items() if count}


def _typed(entries: DataFrame, kind: pa.StructType, state: StateKind) -> DataFrame:
    """The entries of a state with _ORDER and _ENTRY.

    :param kind: the type of an entry
    """
    expect(
        StateError, entries, DataFrame, "the entries of a state must be a DataFrame", 'with_keyed_state("total", df)'
    )
    given = {NAME: "map_key", VALUE: VALUE, EXPIRES: EXPIRES}
    wanted = [given[f.name] for f in kind]
    _check_columns(entries, [*wanted, *(["position"] if state is StateKind.LIST else [])])
    parts = []
    for f, of_spark in zip(kind, spark_schema(pa.schema(list(kind))).fields, strict=True):
        column, has = F.col(given[f.name]), entries.schema[given[f.name]].dataType
        if f.name == EXPIRES:
            column = F.coalesce(F.unix_micros(column), F.lit(END_OF_TIME))
        elif has.simpleString() != of_spark.dataType.simpleString():
            raise StateError(
                f'the column "{given[f.name]}" has the type {has.simpleString()}, not {of_spark.dataType.simpleString()}',
                hint=f'df.withColumn("{given[f.name]}", F.col("{given[f.name]}").cast("{of_spark.dataType.simpleString()}"))',
            )
        parts.append(column.cast(of_spark.dataType).alias(f.name))
    order = F.col("position") if state is StateKind.LIST else F.monotonically_increasing_id()
    return entries.withColumns({_ORDER: order.cast("long"), _ENTRY: F.struct(*parts)})


def _check_columns(df: DataFrame, names: Iterable[str]) -> None:
    missing = [name for name in names if name not in df.columns]
    if missing:
        raise StateError(f'the entries have no column "{missing[0]}"', f"Columns: {', '.join(df.columns)}")


def _check_distinct(rows: DataFrame, by: list[str], kind: StateKind, name: str) -> None:
    repeated = rows.groupBy(*map(F.col, by)).count().where("count > 1").first()
    if repeated is not None and kind is not StateKind.LIST:
        what = "entries with the same key of the map" if kind is StateKind.MAP else "entries"
        raise StateError(f'a key has {repeated["count"]:,} {what} of "{name}"', "It can have one.")
