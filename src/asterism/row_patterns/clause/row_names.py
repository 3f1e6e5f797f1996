"""Which parts of the expressions of a clause read a single row, so that Spark can compute them as columns of the rows.

In PARTITION BY and ORDER BY, everything does. In DEFINE, names of columns mean the current row, with and without the name of
the variable that is defined. In arguments of aggregates and navigation, they mean a row of one variable. Outside of these, a
measure reads several rows: see :mod:`asterism.row_patterns.outer_measures`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from asterism.expressions.computed_columns import Names, Prefix, computed_sql, is_computed, opaque_columns
from asterism.row_patterns.clause.clause import Clause, InputTable


@dataclass(frozen=True)
class RowNames:
    """The names of a clause over rows with known columns.

    :param variables: the variables and the subsets, each with its variables
    :param calls: the calls, in lower case, that read rows of the match
    """

    clause: Clause
    schema: pa.Schema
    variables: Mapping[str, frozenset[str]]
    calls: Collection[str]

    def of_keys(self) -> Names:
        """The names in PARTITION BY and ORDER BY, which cannot use variables."""
        return self._names(())

    def of_condition(self, variable: str) -> Names:
        """The names in the condition of a variable."""
        of_row = [name for name, members in self.variables.items() if variable in members]
        return self._names(self.variables, of_event=of_row)

    def of_measures(self) -> Names:
        return self._names(self.variables, only_in_aggregates=True)

    def _names(
        self, variables: Collection[str], *, of_event: Collection[str] = (), only_in_aggregates: bool = False
    ) -> Names:
        return replace(
            self._of_all,
            stages=frozenset(variables),
            only_in_aggregates=only_in_aggregates,
            of_event=frozenset(of_event),
            opaque=self._opaque if only_in_aggregates else frozenset(),
        )

    @cached_property
    def _of_all(self) -> Names:
        """What the names of all expressions have."""
        columns = [name for name in self.schema.names if not is_computed(name)]
        return Names(
            columns=frozenset(columns).difference(self.clause.constants),
            computed=computed_sql(self.schema),
            aggregates=frozenset(self.calls),
            upper_case=True,
            prefix_of=self._prefix_of(frozenset(name.lower() for name in columns)),
        )

    @cached_property
    def _opaque(self) -> frozenset[str]:
        return opaque_columns(self.schema)

    def _prefix_of(self, columns: frozenset[str]) -> Callable[[Sequence[str]], Prefix | None] | None:
        tables = self.clause.tables
        if not tables:
            return None
        return lambda names: table_prefix(tables, names, lambda name: name.lower() in columns)


def table_prefix(tables: Sequence[InputTable], names: Sequence[str], is_column: Callable[[str], bool]) -> Prefix | None:
    """How many of the first parts of a dotted name are the name of a table, and the name of the column after them in the input,
    if it is another one. None: it does not begin with a table.
    """
    for taken in range(len(names) - 1, 0, -1):
        for table in tables:
            if table.outer or not table.is_called(names[:taken]):
                continue
            column = renamed(table, names[taken])
            is_struct = taken == 1 and is_column(names[0])  # Spark also looks for a table first
            if names[taken] == "*" or not is_struct or is_column(column or names[taken]):
                return Prefix(taken, column)
    return None


def renamed(table: InputTable, column: str) -> str | None:
    """The name in the input of a column of a table, if it is another one."""
    names = dict(table.columns)
    matching = [name for name in names if name == column]
    matching = matching or [name for name in names if name.lower() == column.lower()]
    return names[matching[0]] if matching else None
