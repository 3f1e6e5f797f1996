"""The conditions of joins: which columns they read, their evaluation, and the parts that only Spark can evaluate.

A part that reads the columns of one input only may be a computed column of this input
(:mod:`asterism.expressions.computed_columns`): ``clean(name) = item_name`` has the part ``clean(name)``, and
``jaccard(name, item_name) > 0.5`` has none. Spark gets such a part with the names of the condition, which are those of the
result. See docs/decisions/0114.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from asterism.columns.arrays import Mask
from asterism.columns.groups import mask_of
from asterism.errors import ExpressionSyntaxError, ExpressionTypeError, UnsupportedSyntaxError
from asterism.expressions.computed_columns import visible
from asterism.expressions.evaluation import Vectorized
from asterism.expressions.names import Scope
from asterism.expressions.parsing import parse
from asterism.expressions.parts_for_spark import PartForSpark, parts_for_spark
from asterism.expressions.types import name_of
from asterism.operators.key_group import complete
from asterism.operators.multiple_input import Wire


def names_in_conditions(wires: Mapping[str, Wire], prefixes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The names that the columns of each input have in conditions and in the result; without the keys of all inputs but the
    first one, and without computed columns.

    >>> wires = {
    ...     "a": Wire(pa.schema({"id": "int64", "x": "int64"}), ["id"], "x"),
    ...     "b": Wire(pa.schema({"key": "int64", "x": "int64"}), ["key"], "x"),
    ... }
    >>> names_in_conditions(wires, {"b": "b_"})
    {'a': {'id': 'id', 'x': 'x'}, 'b': {'x': 'b_x'}}
    """
    return {
        name: {
            column: prefixes.get(name, "") + column
            for column in visible(wire.schema).names
            if not number or column not in wire.keys
        }
        for number, (name, wire) in enumerate(wires.items())
    }


def bound_condition(text: str, schema: pa.Schema, inputs: Mapping[str, str]) -> Vectorized:
    """The condition of a join over the columns of *schema*.

    :param inputs: the inputs of these columns, by their names in lower case
    """
    condition = Vectorized(schema)
    with ExpressionSyntaxError.if_too_deep(text):
        scope = Scope(schema)
        condition.add(scope.resolve(parse(text, names=replace(scope.names(), inputs=inputs)), text), text)
    kind = condition.types[0]
    if kind != pa.bool_():
        raise ExpressionTypeError.at(f"the condition of a join must be BOOLEAN, not {name_of(kind)}", text)
    return condition


def inputs_of(names: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The input of each column in a condition, by its name in lower case.

    :param names: :func:`names_in_conditions`
    """
    return {column.lower(): name for name, columns in names.items() for column in columns.values()}


def passed(condition: Vectorized, columns: Mapping[str, Any], count: int) -> Mask:
    """Where a condition holds in *count* pairs of rows, of which *columns* are the columns that it reads."""
    # If the condition reads no column, a column of NULLs provides the number of rows.
    pairs = pa.table(columns or {"": pa.nulls(count)})
    return mask_of(condition.evaluate(complete(pairs, condition.schema))[0])


@dataclass(frozen=True)
class JoinConditions:
    """The conditions of a join.

    :param texts: by input; each can read the columns of this input and of those before it
    :param prefixes: of the names of columns, by input
    :param may_lack: the inputs of which a result may have no row
    """

    texts: Mapping[str, str]
    prefixes: Mapping[str, str]
    may_lack: Collection[str] = ()

    def parts_for_spark(self, wires: Mapping[str, Wire]) -> dict[str, list[PartForSpark]]:
        """The parts that Spark must compute, by input; those without columns are of the first input.

        :raises UnsupportedSyntaxError: such a part reads an input of which the result may have no row yet: its value is then not
            known; or as :func:`~asterism.expressions.parts_for_spark.parts_for_spark`
        """
        names, parts = names_in_conditions(wires, self.prefixes), dict[str, list[PartForSpark]]()
        for of, text in self.texts.items():
            fields, read = [], {}
            for name, columns in names.items():
                fields += [wires[name].schema.field(column).with_name(new) for column, new in columns.items()]
                read[name] = columns
                if name == of:
                    break
            schema = pa.schema(fields, next(iter(wires.values())).schema.metadata)
            for part in parts_for_spark(text, schema, replace(Scope(schema).names(), inputs=inputs_of(read))):
                name = part.input or next(iter(names))
                if name != of and name in self.may_lack:
                    problem = f"Spark computes this part for the rows of {name!r}, and a result may have no row of it"
                    hint = f"make it a column of {name!r}, which is NULL without a row: df.withColumn(...)"
                    raise UnsupportedSyntaxError.at(problem, text, part.position(0), hint)
                parts.setdefault(name, []).append(part)
        return parts
