"""Changes of rules in the table of a database, which may have several versions of a rule."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from asterism.discovery.editing.kept_rules import (
    OFF,
    OLDER,
    ON,
    WRONG,
    KeptRules,
    Rule,
    rules_of_template,
    twice_text,
    with_shadows,
)
from asterism.discovery.editing.rule_set import Addition, Change, RuleSet, StoredRule, fits_others
from asterism.discovery.sources.database import Database
from asterism.discovery.sources.rows import Row, called, flag, item_of, needs_parameters, version_of
from asterism.discovery.sources.sql_table import Table, parameter_rows
from asterism.errors import PatternProcessorError
from asterism.rules.definition.processor import Slot, point_in_time
from asterism.rules.definition.rule_templates import expanded, is_template
from asterism.rules.sets.interfaces import is_shadow, without_flag
from asterism.text.strict_json import DocumentSyntaxError, Locate, decode, line_and_column, place_in

MAX_NAMED = 500
"""Rules that a query names; for more, all rows are read."""
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Target:
    """A table of the library's own format that is being changed."""

    connection: sa.Connection
    form: Table
    table: sa.Table
    by: str | None

    def column(self, name: str) -> sa.Column[Any]:
        if name not in self.form.names:
            hint = f"ALTER TABLE {self.table.fullname} ADD COLUMN {name} TEXT" if name in ("sigma", "eql") else None
            raise PatternProcessorError(f"the table {self.table.fullname!r} has no column {name}", hint=hint)
        return self.table.c[self.form.names[name]]

    def _is(self, rule: StoredRule) -> sa.ColumnElement[bool]:
        version = self.column("version")
        if "row" not in rule.item:
            return sa.and_(self.column("id") == rule.id, version == rule.version)
        return sa.and_(self.column("id") == rule.id, sa.cast(version, sa.Text) == rule.item["row"]["version"])

    def _changed(self, by: str | None) -> dict[str, Any]:
        """The values that record who changes a row, and when, if the table has columns for them."""
        values = {"changed_by": by, "changed_at": datetime.now(UTC)}
        return {name: value for name, value in values.items() if name in self.form.names}

    def save(self, before: RuleSet, after: RuleSet) -> None:
        known = {rule.number: rule for rule in before.rules}
        there = {rule.number: rule for rule in after.rules if rule.number is not None}
        for number, rule in known.items():
            if number not in there:
                self.connection.execute(self.table.delete().where(self._is(rule)))
        for number, rule in there.items():
            changed = {
                name: value
                for name, value, former in (
                    ("enabled", rule.enabled, known[number].enabled),
                    ("shadow", rule.shadow, known[number].shadow),
                    ("withdrawn", rule.withdrawn, known[number].withdrawn),
                    ("tests", _field(rule, "tests"), _field(known[number], "tests")),
                    ("comment", _field(rule, "comment"), _field(known[number], "comment")),
                )
                if value != former
            }
            if "comment" not in self.form.names:
                changed.pop("comment", None)
            if changed:
                change = self.table.update().where(self._is(rule))
                self.connection.execute(change.values(self._stored({**changed, **self._changed(self.by)})))
        for rule in after.rules:
            if rule.number is None:
                self._insert(rule.item, withdrawn=rule.withdrawn is True)

    def _stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        columns = {name: self.column(name) for name in values}
        return {columns[name].name: _stored(value, columns[name]) for name, value in values.items()}

    def _insert(self, item: Mapping[str, Any], *, withdrawn: bool = False) -> None:
        pattern = item.get("pattern")
        if pattern is None and "pattern" in self.form.names and not self.column("pattern").nullable:
            pattern = ""
        values = {
            "id": item["id"],
            "version": item["version"],
            "timestamp": _time_of(item, "timestamp"),
            "key": item.get("key"),
            "pattern": decode(pattern) if isinstance(pattern, str) and pattern else pattern,
            "sql": item.get("sql"),
            "sigma": item.get("sigma"),
            "eql": item.get("eql"),
            "select": item.get("select"),
            "function": item.get("function"),
            "timed_out": _in_column(item, "timedOut") or False,
            "max_partial_matches": _in_column(item, "maxPartialMatches"),
            "suppress": item.get("suppress"),
            "expires": _time_of(item, "expires"),
            "shadow": is_shadow(item) is True,
            "adopt": None if item.get("adopt") is None else str(item["adopt"]).lower(),
            "labels": item.get("labels") or None,
            "parameters": item.get("parameters"),
            "rows": item.get("rows"),
            "enabled": without_flag(item)[1],
            **self._changed(item.get("changedBy") or self.by),
        }
        for name in ("comment", "tests"):  # like the author, they are not stored in a table without the column
            if name in self.form.names:
                values[name] = item.get(name) or None
        if withdrawn:
            values["withdrawn"] = True
        # A column may be missing if its value is the default.
        usual = {"timed_out": False, "shadow": False, "enabled": True}
        wanted = {name: v for name, v in values.items() if name in self.form.names or v != usual.get(name)}
        self.connection.execute(self.table.insert().values(self._stored(wanted)))


class SqlRules(KeptRules):
    """Rules in a database table, which may have several versions of a rule."""

    def __init__(self, database: Database, table: str, by: str | None = None) -> None:
        self.database, self.table, self.by = database, table, by

    def all(self) -> list[Rule]:
        with closing(self.database), self.database.read() as connection:
            form = Table.of(connection, self.table)
            form.check_size(connection)
            rows = form.rows(connection)
            parameters = parameter_rows(connection, self.table) if any(map(needs_parameters, rows)) else None
        with_states = [self._called(row) for row in rows] if form.is_flip else list(self._rules(rows, parameters))
        slots = [rule.slot for rule in with_states]
        used: dict[Slot, dict[int, Rule]] = defaultdict(dict)
        for rule in sorted(with_states, key=_number, reverse=True):
            if rule.state == ON and rule.version is not None and fits_others(rule, [*used[rule.slot].values()]):
                used[rule.slot][rule.version] = rule
        with_states = [
            replace(rule, state=OLDER)
            if rule.template is None
            and rule.version not in (None, *used[slot])
            and _number(rule) < max(used[slot], default=-1)
            else rule
            for rule, slot in zip(with_states, slots, strict=True)
        ]
        often = Counter((rule.slot, rule.version) for rule in with_states if rule.state == ON and rule.call is None)
        with_states = [
            replace(rule, state=WRONG, twice=f"{often[slot, rule.version]} rows have this version")
            if rule.state == ON and often[slot, rule.version] > 1
            else replace(rule, state=WRONG, twice=twice_text(rule, rule))
            if rule.state == ON and rule.version not in (None, *used[slot])
            else rule
            for rule, slot in zip(with_states, slots, strict=True)
        ]
        return sorted(with_shadows(with_states), key=lambda rule: (rule.id, _number(rule)))

    def _rules(self, rows: Sequence[Row], parameters: Mapping[str | None, Sequence[Row]] | None) -> Iterator[Rule]:
        templates: dict[Slot, list[Rule]] = defaultdict(list)
        for row in rows:
            rule = self._rule(row)
            if is_template(rule.item):
                templates[rule.slot].append(rule)
            else:
                yield rule
        for (id, _), versions in templates.items():
            # The versions of its rules are no versions of the template, so only those of the version in use are shown.
            used = max(versions, key=lambda rule: (rule.state == ON, rule.version))
            given = None if parameters is None else parameters.get(id, [])
            for rule in rules_of_template(used.item, expanded(used.item, given), self.table, used.place):
                yield rule if used.state == ON or rule.state == WRONG else replace(rule, state=OFF)

    def _rule(self, row: Row) -> Rule:
        rule = Rule(row["id"] or "NULL", None, WRONG, self.table, place=_place_in(row))
        try:
            state = ON if flag(row, "enabled", default=True) else OFF
            return replace(rule, version=version_of(row), state=state, item=item_of(row))
        except PatternProcessorError as error:
            return replace(rule, error=error)

    def _called(self, row: Row) -> Rule:
        rule = Rule(row["uid"] or "NULL", None, WRONG, self.table)
        try:
            return replace(rule, state=ON, call=called(row))
        except PatternProcessorError as error:
            return replace(rule, error=error)

    def rule_set(self, ids: Collection[str] | None = None) -> RuleSet:
        with closing(self.database), self.database.read() as connection:
            return self._set_of(Table.of(connection, self.table), connection, ids)

    def change(
        self, change: Change[_R], ids: Collection[str] | None = None, *, plan: bool = False, adds: bool = False
    ) -> _R:
        with closing(self.database), self.database.begin() as connection:
            form = Table.of(connection, self.table)
            if form.is_flip:
                problem = f"the table {self.table!r} has the layout of FLIP-200"
                raise PatternProcessorError(problem, hint="change it with SQL")
            source = form.source
            table = sa.Table(source.name, sa.MetaData(), schema=source.schema, autoload_with=connection)
            before = self._set_of(form, connection, ids)
            after, result = change(before)
            _Target(connection, form, table, self.by).save(before, after)
            if plan:
                connection.rollback()
            return result

    def _set_of(self, form: Table, connection: sa.Connection, ids: Collection[str] | None) -> RuleSet:
        if form.is_flip:
            return RuleSet((), self.table, keeps_versions=True)
        if ids is None or len(ids) > MAX_NAMED:
            form.check_size(connection)
            ids = None
        # Equal tables have equal texts and tags, whatever the order of their rows.
        rows = sorted(
            ((_item_in(row), _withdrawn(row)) for row in form.rows(connection, ids)), key=lambda row: _order(row[0])
        )
        rules = (StoredRule(item, self.table, number, withdrawn) for number, (item, withdrawn) in enumerate(rows))
        return RuleSet(tuple(rules), self.table, keeps_versions=True, keeps_tests="tests" in form.names)


def _number(rule: Rule) -> int:
    return -1 if rule.version is None else rule.version


def _item_in(row: Row) -> dict[str, Any]:
    """The JSON form of a rule, or the row itself if it is invalid."""
    try:
        return item_of(row) | ({} if flag(row, "enabled", default=True) else {"enabled": False})
    except PatternProcessorError:
        version = row["version"] or ""
        return {"id": row["id"], "version": int(version) if version.isdecimal() else None, "row": dict(row)}


def _withdrawn(row: Row) -> bool | None:
    """Whether a version was disabled while its rule stayed enabled; None: the table has no column that records it."""
    if "withdrawn" not in row:
        return None
    try:
        return flag(row, "withdrawn", default=False)
    except PatternProcessorError:
        return False


def _order(item: Mapping[str, Any]) -> tuple[str, int, str]:
    version = item.get("version")
    return item.get("id") or "", -1 if version is None else version, json.dumps(item)


def _field(rule: StoredRule, name: str) -> Any:
    return rule.item.get(name) or None


def _in_column(item: Mapping[str, Any], name: str) -> Any:
    """A field of a rule whose column has another type than text, so that it cannot have a parameter."""
    value = item.get(name)
    if is_template(item) and isinstance(value, str) and value.startswith(":"):
        problem = f"{Addition(item)}: {name} has a parameter, which the column cannot store"
        raise PatternProcessorError(problem, hint="keep the template in a file")
    return value


def _time_of(item: Mapping[str, Any], name: str) -> datetime | None:
    time = point_in_time(_in_column(item, name), name)
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _place_in(row: Row) -> Locate:
    """Find positions in the pattern or the clause of a row; the other columns have no lines."""
    pattern = row.get("pattern") or ""

    def place(pointer: str, index: int = 0) -> tuple[int, int]:
        path = pointer.removeprefix("/pattern")
        if path == pointer:
            text = row.get(pointer[1:]) or "" if pointer in ("/sql", "/eql") else ""
            return line_and_column(text, min(index, len(text)))
        try:
            decode(pattern)
        except DocumentSyntaxError as error:
            return error.line, error.column
        return place_in(pattern, path, index)

    return place


def _stored(value: Any, column: sa.Column[Any]) -> Any:
    """Convert a value to the type of a column, because tables that were created by others may have other types."""
    kind = column.type
    if value is None:
        return sa.null()
    if isinstance(kind, sa.JSON):
        return value
    if isinstance(value, datetime):
        if isinstance(kind, sa.DateTime):
            return value if kind.timezone else value.astimezone(UTC).replace(tzinfo=None)
        return round(value.timestamp() * 1000) if isinstance(kind, sa.Integer) else value.isoformat()
    if isinstance(value, bool):
        return value if isinstance(kind, sa.Boolean) else int(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
