"""Changes of rules in the table of a database, which may have several versions of a rule."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from asterism.discovery.database import Database
from asterism.discovery.kept_rules import (
    OFF,
    OLDER,
    ON,
    WRONG,
    Addition,
    KeptRules,
    Locate,
    Rule,
    no_shadow,
    promoted_text,
    removed_slots,
    removed_text,
    rules_of_template,
    shadows_last,
    unknown_rule,
    version_text,
    with_shadows,
)
from asterism.discovery.rows import Row, called, flag, item_of, needs_parameters, version_of
from asterism.discovery.sql_table import Table, parameter_rows
from asterism.errors import PatternProcessorError
from asterism.rules.interfaces import without_flag
from asterism.rules.processor import Slot, timestamp_of
from asterism.rules.rule_templates import expanded, is_template
from asterism.text.strict_json import DocumentSyntaxError, decode, line_and_column, offset_of


@dataclass(frozen=True, slots=True)
class _Target:
    """A table of the library's own format that is being changed."""

    connection: sa.Connection
    form: Table
    table: sa.Table

    def column(self, name: str) -> sa.Column[Any]:
        if name not in self.form.names:
            raise PatternProcessorError(f"the table {self.table.fullname!r} has no column {name}")
        return self.table.c[self.form.names[name]]

    def is_rule(self, id: str) -> sa.ColumnElement[bool]:
        return self.column("id") == id

    def versions(self, id: str) -> dict[int, Row]:
        return {version_of(row): row for row in self.form.rows(self.connection, [id])}

    def insert(self, values: Mapping[str, Any]) -> None:
        """Insert *values*, by the column names used here. A column may be missing if its value is the default."""
        usual = {"timed_out": False, "shadow": False, "enabled": True}
        wanted = {name: v for name, v in values.items() if name in self.form.names or v != usual.get(name)}
        columns = {name: self.column(name) for name in wanted}
        self.connection.execute(
            self.table.insert().values({columns[name].name: _stored(v, columns[name]) for name, v in wanted.items()})
        )

    def changed(self, by: str | None) -> dict[str, Any]:
        """The value that records who changes a row, if the table has a column for it."""
        return {"changed_by": by} if "changed_by" in self.form.names else {}

    def set_flag(self, name: str, value: bool, by: str | None, *where: sa.ColumnElement[bool]) -> int:
        values = {name: value, **self.changed(by)}
        columns = {name: self.column(name) for name in values}
        change = self.table.update().where(*where)
        change = change.values({columns[name].name: _stored(value, columns[name]) for name, value in values.items()})
        return self.connection.execute(change).rowcount

    def disable(self, id: str, versions: Sequence[int], by: str | None) -> None:
        if versions:
            self.set_flag("enabled", False, by, self.is_rule(id), self.column("version").in_(versions))


class SqlRules(KeptRules):
    """Rules in a database table, which may have several versions of a rule."""

    def __init__(self, database: Database, table: str, by: str | None = None) -> None:
        self.database, self.table, self.by = database, table, by

    def all(self) -> list[Rule]:
        try:
            with self.database.read() as connection:
                form = Table.of(connection, self.table)
                form.check_size(connection)
                rows = form.rows(connection)
                parameters = parameter_rows(connection, self.table) if any(map(needs_parameters, rows)) else None
        finally:
            self.database.close()
        found = [self._called(row) for row in rows] if form.is_flip else list(self._rules(rows, parameters))
        slots = [rule.slot for rule in found]
        highest: dict[Slot, int] = defaultdict(lambda: -1)
        for rule, slot in zip(found, slots, strict=True):
            if rule.state == ON and rule.version is not None:
                highest[slot] = max(highest[slot], rule.version)
        found = [
            replace(rule, state=OLDER)
            if rule.template is None and rule.version is not None and rule.version < highest[slot]
            else rule
            for rule, slot in zip(found, slots, strict=True)
        ]
        often = Counter(slot for rule, slot in zip(found, slots, strict=True) if rule.state == ON and rule.call is None)
        found = [
            replace(rule, state=WRONG, twice=f"{often[slot]} rows have this version")
            if rule.state == ON and often[slot] > 1
            else rule
            for rule, slot in zip(found, slots, strict=True)
        ]
        return sorted(with_shadows(found), key=lambda rule: (rule.id, -1 if rule.version is None else rule.version))

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
        rule = Rule(row["id"] or "NULL", None, WRONG, self.table, place=_place_in(row.get("pattern") or ""))
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

    def apply(self, additions: Sequence[Addition], removed: Sequence[Slot], *, plan: bool = False) -> list[str]:
        with self._target() as target:
            done = [self._add(target, new) for new in shadows_last(additions)]
            for id, shadow in removed:
                versions = _versions(target.versions(id), shadow=shadow)
                if not versions:
                    raise unknown_rule(id, None)
                target.connection.execute(
                    target.table.delete().where(target.is_rule(id), target.column("version").in_(versions))
                )
            if plan:
                target.connection.rollback()
        return [*done, *removed_slots(removed)]

    def _add(self, target: _Target, new: Addition) -> str:
        id, version = new.id, new.version
        if version is None:
            raise PatternProcessorError(f"{new} has no version", None, "in a database, a template needs one")
        there = target.versions(id)
        if version in there:
            if new.is_there(item_of(there[version]), flag(there[version], "enabled", default=True)):
                return f"{new} already exists"
            if new.shadow and version == max(_enabled(there, shadow=False), default=None):
                raise new.in_force(versioned=True)
            target.connection.execute(
                target.table.delete().where(target.is_rule(id), target.column("version") == version)
            )
            if not new.shadow and version in _versions(there, shadow=True):  # it is promoted
                target.disable(id, [number for number in _enabled(there, shadow=True) if number != version], self.by)
        in_force = max(_enabled(there, shadow=False), default=None)
        if new.shadow and in_force is not None and new.has_rules_of(item_of(there[in_force])):
            raise new.in_force()
        higher = [v for v in _enabled(there, shadow=new.shadow) if v > version]
        if higher:
            problem = f"{new} would not be used, because version {max(higher)} exists"
            raise PatternProcessorError(problem, hint="raise the version")
        item = without_flag(new.item)[0]
        pattern = item.get("pattern")
        if pattern is None and "pattern" in target.form.names and not target.column("pattern").nullable:
            pattern = ""
        times = {name: _time_of(new, name) for name in ("timestamp", "expires")}
        target.insert(
            {
                "id": id,
                "version": version,
                "timestamp": times["timestamp"],
                "key": item.get("key"),
                "pattern": decode(pattern) if isinstance(pattern, str) and pattern else pattern,
                "sql": item.get("sql"),
                "select": item.get("select"),
                "function": item.get("function"),
                "timed_out": _in_column(new, "timedOut") or False,
                "max_partial_matches": _in_column(new, "maxPartialMatches"),
                "suppress": item.get("suppress"),
                "expires": times["expires"],
                "shadow": new.shadow,
                "labels": item.get("labels") or None,
                "parameters": item.get("parameters"),
                "rows": item.get("rows"),
                "enabled": new.enabled,
                **target.changed(item.get("changedBy") or self.by),
            }
        )
        return f"{new} added"

    def remove(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._target() as target:
            for id in ids:
                self._remove(target, id, version)
        return [removed_text(id, version) for id in ids]

    @staticmethod
    def _remove(target: _Target, id: str, version: int | None = None) -> None:
        where = [target.is_rule(id), *([] if version is None else [target.column("version") == version])]
        if target.connection.execute(target.table.delete().where(*where)).rowcount == 0:
            raise unknown_rule(id, version)

    def disable(self, ids: Sequence[str]) -> list[str]:
        with self._target() as target:
            for id in ids:
                # All versions are disabled, because otherwise a lower one would come into use.
                if target.set_flag("enabled", False, self.by, target.is_rule(id)) == 0:
                    raise unknown_rule(id, None)
        return [f"{id} disabled" for id in ids]

    def enable(self, ids: Sequence[str], version: int | None = None) -> list[str]:
        with self._target() as target:
            return [f"{name} enabled" for id in ids for name in self._enable(target, id, version)]

    def _enable(self, target: _Target, id: str, version: int | None) -> list[str]:
        rows = target.versions(id)
        done: list[str] = []
        for shadow in (False, True):
            versions = _versions(rows, shadow=shadow)
            wanted = max(versions, default=None) if version is None else version
            if wanted is None or wanted not in versions:
                continue
            target.set_flag("enabled", True, self.by, target.is_rule(id), target.column("version") == wanted)
            target.disable(id, [number for number in versions if number > wanted], self.by)
            done.append(version_text(id, wanted, shadow=shadow))
        if not done:
            raise unknown_rule(id, version)
        return done

    def promote(self, ids: Sequence[str]) -> list[str]:
        with self._target() as target:
            return [promoted_text(id, self._promote(target, id)) for id in ids]

    def _promote(self, target: _Target, id: str) -> int:
        rows = target.versions(id)
        if not rows:
            raise unknown_rule(id, None)
        shadows = _enabled(rows, shadow=True)
        if not shadows:
            raise no_shadow(id)
        version = max(shadows)
        target.set_flag("shadow", False, self.by, target.is_rule(id), target.column("version") == version)
        # Otherwise another version would be in force, or another shadow would come into use.
        higher = [number for number in _enabled(rows, shadow=False) if number > version]
        target.disable(id, [*higher, *(number for number in shadows if number != version)], self.by)
        return version

    @contextmanager
    def _target(self) -> Iterator[_Target]:
        try:
            with self.database.begin() as connection:
                form = Table.of(connection, self.table)
                if form.is_flip:
                    raise PatternProcessorError(
                        f"the table {self.table!r} has the layout of FLIP-200", hint="change it with SQL"
                    )
                source = form.source
                table = sa.Table(source.name, sa.MetaData(), schema=source.schema, autoload_with=connection)
                yield _Target(connection, form, table)
        finally:
            self.database.close()


def _in_column(new: Addition, name: str) -> Any:
    """A field of a rule whose column has another type than text, so that it cannot have a parameter."""
    value = new.item.get(name)
    if new.processor is None and isinstance(value, str) and value.startswith(":"):
        problem = f"{new}: {name} has a parameter, which the column cannot store"
        raise PatternProcessorError(problem, hint="keep the template in a file")
    return value


def _time_of(new: Addition, name: str) -> datetime | None:
    if new.processor is not None:
        return new.processor.timestamp if name == "timestamp" else new.processor.expires
    value = _in_column(new, name)
    time = None if value is None else timestamp_of(value)
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time


def _versions(rows: Mapping[int, Row], *, shadow: bool) -> list[int]:
    return [version for version, row in rows.items() if flag(row, "shadow", default=False) == shadow]


def _enabled(rows: Mapping[int, Row], *, shadow: bool) -> list[int]:
    return [version for version in _versions(rows, shadow=shadow) if flag(rows[version], "enabled", default=True)]


def _place_in(text: str) -> Locate:
    """Find positions in the pattern of a row; the other columns have no lines."""

    def place(pointer: str) -> tuple[int, int]:
        path = pointer.removeprefix("/pattern")
        if path == pointer:
            return 1, 1
        try:
            decode(text)
        except DocumentSyntaxError as error:
            return error.line, error.column
        return line_and_column(text, offset_of(text, path))

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
