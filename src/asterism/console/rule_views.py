"""The rules of a source as the page shows them, and the changes that it makes."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from asterism.discovery.database import parsed_url, shown_url
from asterism.discovery.documents import read_document
from asterism.discovery.edited_documents import HttpRules
from asterism.discovery.edited_table import SqlRules
from asterism.discovery.editing import rules_at
from asterism.discovery.http_application import error_fields
from asterism.discovery.kept_rules import ON, SHADOW, Addition, KeptRules, Locate, Rule, has_version
from asterism.discovery.rule_file import ChangedError
from asterism.errors import AsterismError, PatternProcessorError, RuleNotFoundError
from asterism.patterns.semantics import Semantics
from asterism.row_patterns.reading import read
from asterism.rules.clauses import clause_of
from asterism.rules.interfaces import is_shadow, without_flag
from asterism.rules.processor import PatternProcessor
from asterism.rules.registered_conditions import names_in
from asterism.rules.rule_templates import expanded, is_template
from asterism.rules.validation import MAX_PROBLEMS, CheckedProcessor, Problem, check_processor, summary_of
from asterism.text.printable import one_line
from asterism.text.strict_json import DocumentSyntaxError, decode, text_of
from asterism.text.strict_yaml import written_yaml

MAX_SOURCE = 500_000
"""Characters of the text of a rule."""
PATIENCE = 5.0
"""Seconds for which the check of a rule waits for the columns of the history, after the start."""
FRESH = 1.0
"""Seconds for which the rules of the source are not read again, unless they are changed here."""
CHECKED_ROWS = 20
"""Rules of a template that are checked completely."""
MAX_ROWS = 200
"""Rows of a template that are shown."""
MAX_VIEWS = 30_000
"""Rules of which the view is kept."""
NEW_FILE = "console.yaml"
"""The file to which new rules are added if the source is a folder."""
NEW, VERSION, LABELS, UNCHANGED = "new", "version", "labels", "unchanged"
"""What saving does: it adds a rule or a version, changes what is not part of a version, or nothing."""
_log = logging.getLogger("asterism.console")


class InvalidRuleError(PatternProcessorError):
    """The text of a rule cannot be saved; the problems are in *checked*."""

    def __init__(self, checked: CheckedText) -> None:
        super().__init__("the rule is invalid")
        self.checked = checked


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The text of a rule or of a template, checked.

    :param item: the JSON form; None if the text cannot be read
    :param rule: the JSON form of the rule; of a template, that of one of its rules
    """

    item: Mapping[str, Any] | None
    checked: CheckedProcessor
    rule: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        checked = self.checked
        return {
            "problems": [_problem(one) for one in checked.problems],
            "more": checked.more,
            "warnings": [_problem(one) for one in checked.warnings],
        }


def _problem(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("line", "column", "message", "detail", "hint")}


class ConsoleRules:
    """The rules of a file, a folder or a database, or at the endpoint of a query.

    :param token: the token of the endpoint
    :param schema: the columns of the events, as soon as they are known; it waits up to the given number of seconds
    :param conditions: the names of the conditions that the query has registered; None: there is no query
    """

    def __init__(
        self,
        source: str,
        table: str,
        semantics: Semantics = Semantics.DEFAULT,
        schema: Callable[[float], pa.Schema | None] = lambda seconds: None,
        *,
        token: str | None = None,
        conditions: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        self.source, self.table, self.semantics, self.schema, self.token = source, table, semantics, schema, token
        self._conditions = conditions
        self._kept = rules_at(source, table, token=token)
        self._keeps_tests = not isinstance(self._kept, SqlRules)
        self._lock = threading.Lock()
        self._found: tuple[float, list[Rule]] = (0.0, [])
        self._views: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def name(self) -> str:
        """The place of the rules, without secrets."""
        if isinstance(self._kept, HttpRules):
            return self._kept.endpoint.shown
        return shown_url(parsed_url(self.source)) if "://" in self.source else self.source

    # ------------------------------------------------------------------ reading

    def all(self) -> list[Rule]:
        """:raises PatternProcessorError: the source cannot be read"""
        with self._lock:
            return self._all()

    def _all(self) -> list[Rule]:
        read_at, found = self._found
        if read_at == 0 or time.monotonic() - read_at > FRESH:
            found = self._kept.all()
            self._found = (time.monotonic(), found)
        return found

    def views(self) -> list[dict[str, Any]]:
        """The rules, without their sources."""
        return [self._view(rule) for rule in self.all()]

    def one(self, id: str) -> dict[str, Any]:
        """All versions of a rule, with their sources.

        :raises PatternProcessorError: there is no such rule
        """
        versions = self.versions(id)
        shown = [self._view(rule) | {"text": source_of(rule.item)} for rule in versions]
        shown.sort(key=lambda one: -1 if one["version"] is None else one["version"], reverse=True)
        found = {"id": id, "tag": tag_of(versions), "versions": shown}
        # Of a template and its shadow, the template is shown.
        first = next((rule for rule in versions if not rule.stored_slot[1]), versions[0])
        return found if first.template is None else found | {"template": self._template(first, first.template)}

    def _template(self, rule: Rule, template: Mapping[str, Any]) -> dict[str, Any]:
        """The template of a rule, with its parameters and rows."""
        id = rule.stored_slot[0]
        parameters, rows, text = template.get("parameters"), template.get("rows"), source_of(template)
        stored = [one for one in self.all() if one.stored_slot[0] == id]
        values = None
        if isinstance(parameters, Mapping) and isinstance(rows, list):
            values = _row_values(rows, list(parameters))
        return {
            "id": id,
            "tag": tag_of(stored),
            "text": text if text is not None and len(text) <= MAX_SOURCE else None,
            "canEdit": values is not None and text is not None and len(text) <= MAX_SOURCE,
            "rules": sum(one.stored_slot == rule.stored_slot for one in stored),
            "isShadow": rule.stored_slot[1],
            "shadow": any(one.stored_slot[1] for one in stored),
            "parameters": _parameter_types(parameters) if isinstance(parameters, Mapping) else [],
            "rows": values,
        }

    def versions(self, id: str) -> list[Rule]:
        """:raises PatternProcessorError: there is no such rule"""
        found = [rule for rule in self.all() if rule.id == id]
        if not found:
            raise RuleNotFoundError(f"there is no rule {id!r:.220}")
        return found

    def used(self, id: str) -> Mapping[str, Any] | None:
        """The version of a rule that queries use, in its JSON form."""
        return next((rule.item for rule in self.all() if rule.id == id and rule.state == ON and rule.item), None)

    def item_in_use(self, id: str) -> Mapping[str, Any] | None:
        """The version of a rule that queries use, or a template that they use, in its JSON form."""
        with self._lock:
            return self._item_in_use(id)

    def _item_in_use(self, id: str) -> Mapping[str, Any] | None:
        templates = (item for item in self.unlocked_set() if item.get("id") == id and is_template(item))
        return next(
            (rule.item for rule in self._all() if rule.id == id and rule.state == ON and rule.item), None
        ) or next((item for item in templates if is_shadow(item) is not True), None)

    def set(self) -> list[Mapping[str, Any]]:
        """The rules that queries use, in their JSON form."""
        with self._lock:
            return self.unlocked_set()

    def unlocked_set(self) -> list[Mapping[str, Any]]:
        """:meth:`set`, during a change. A template is a separate item, without its rules."""
        found: dict[int, Mapping[str, Any]] = {}
        for rule in self._all():
            item = rule.item if rule.template is None else rule.template
            is_used = rule.state in (ON, SHADOW) if rule.template is None else without_flag(item)[1]
            if is_used and isinstance(item, Mapping):
                found.setdefault(id(item), item)
        return list(found.values())

    def _view(self, rule: Rule) -> dict[str, Any]:
        key = _text_of(
            [
                rule.id,
                rule.version,
                rule.state,
                rule.where,
                rule.item,
                rule.call,
                rule.twice,
                str(rule.error),
                rule.stored_slot[0],
            ]
        )
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = _view_of(rule)
            while len(self._views) > MAX_VIEWS:
                self._views.popitem(last=False)
        return found

    # ------------------------------------------------------------------ checking

    def check(self, text: str, id: str | None = None) -> CheckedText:
        """Find the problems of the text of a rule or of a template.

        :param id: of a template: the rule that is shown and tried; by default the first one
        """
        if len(text) > MAX_SOURCE:
            return _unreadable(f"the text has {len(text):,} characters (limit {MAX_SOURCE:,})")
        try:
            document = read_document(text.encode("utf-8", "surrogatepass"), "rule.yaml")
        except PatternProcessorError as error:
            return _unreadable(error.message, error.detail, error.hint)
        if document.pointers != [""]:
            several = len(document.items) > 1
            return _unreadable(
                f"there are {len(document.items):,} rules" if several else "this is a list",
                hint="write one rule: id: ..., version: ..., and pattern: or sql:",
            )
        item = document.items[0]
        if is_template(item):
            return self._checked_template(item, document.place, id)
        checked = self._with_unknown(
            check_processor(item, document.place, self.schema(PATIENCE), self.semantics), document.place
        )
        if not self._keeps_tests and isinstance(item, Mapping) and item.get("tests"):
            lost = Problem(*document.place("/tests"), "a database does not store the tests of a rule")
            checked = replace(checked, warnings=[*checked.warnings, lost])
        return CheckedText(item, checked, item)

    def _with_unknown(self, checked: CheckedProcessor, place: Locate) -> CheckedProcessor:
        """With warnings of conditions by name that the query has not registered."""
        known = self._conditions()
        pattern = None if checked.processor is None else checked.processor.pattern
        if known is None or pattern is None:
            return checked
        listed = f"Registered: {', '.join(sorted(known)) or 'none'}"
        unknown = [
            Problem(*place("/pattern"), f"the query has not registered the condition {name!r:.120}", listed)
            for name in sorted(names_in(pattern) - {*known})
        ]
        return replace(checked, warnings=[*checked.warnings, *unknown])

    def _checked_template(self, item: Mapping[str, Any], place: Locate, id: str | None) -> CheckedText:
        """The rules differ only in their values, so a few of them are checked completely."""
        rules = expanded(item)
        problems: dict[tuple[int, int, str], Problem] = {}
        shown: CheckedProcessor | None = None
        chosen = next((rule for rule in rules if rule.id == id), rules[0] if rules else None)
        if chosen is None:
            lost = Problem(*place("/rows"), "the template has no rows, so it has no rules")
            return CheckedText(item, CheckedProcessor(None, [lost]))
        for number, rule in enumerate([chosen, *(one for one in rules if one is not chosen)]):
            at = place("" if rule.row is None else f"/rows/{rule.row}")
            checked = None
            try:
                if rule.error is not None:
                    raise rule.error
                if number < CHECKED_ROWS:
                    checked = self._with_unknown(
                        check_processor(rule.item, place, self.schema(PATIENCE), self.semantics), place
                    )
                else:
                    PatternProcessor.from_dict(without_flag(rule.item)[0])
                found = [] if checked is None else list(checked.problems)
            except AsterismError as error:
                found = [Problem(*at, error.message, error.detail, error.hint)]
            problems |= {(one.line, one.column, one.message): one for one in found}
            shown = shown or checked
        listed = sorted(problems.values(), key=lambda one: (one.line, one.column))
        processor = None if shown is None or listed else shown.processor
        warnings = () if shown is None else shown.warnings
        more = max(len(listed) - MAX_PROBLEMS, 0)
        return CheckedText(item, CheckedProcessor(processor, listed[:MAX_PROBLEMS], more, warnings), chosen.item)

    def effect(self, checked: CheckedText) -> dict[str, Any] | None:
        """What saving would do; None: the rule is invalid."""
        if checked.checked.processor is None or checked.item is None:
            return None
        versions = [rule for rule in self.all() if rule.stored_slot[0] == checked.item["id"]]
        effect, item = self._decided(checked.item, checked.checked.processor, versions)
        return {"effect": effect, "version": item.get("version")}

    def _decided(
        self, item: Mapping[str, Any], processor: PatternProcessor, versions: Sequence[Rule]
    ) -> tuple[str, Mapping[str, Any]]:
        """What saving does, and the item to save, perhaps with another version."""
        if is_template(item) or (versions and versions[0].template is not None):
            return self._decided_template(item, versions)
        if not versions:
            return NEW, item
        highest = max((rule.version for rule in versions if rule.version is not None), default=-1)
        same = next((rule for rule in versions if rule.version == processor.version), None)
        there = None if same is None else _processor(same.item)
        if same is not None and there is not None and there.has_definition_of(processor):
            is_equal = there == processor and not (self._keeps_tests and _tests(same.item) != _tests(item))
            return UNCHANGED if is_equal else LABELS, item
        if same is None and processor.version > highest:
            return VERSION, item
        if same is not None and there is None and processor.version == highest:
            return VERSION, item  # it replaces a version that cannot be used
        return VERSION, {**item, "version": highest + 1}

    def _decided_template(self, item: Mapping[str, Any], versions: Sequence[Rule]) -> tuple[str, Mapping[str, Any]]:
        """:param versions: what has the id of *item* in the source"""
        before = [rule.item if rule.template is None else rule.template for rule in versions]
        numbers = [one.get("version") for one in before if isinstance(one, Mapping)]
        versions = [rule for rule in versions if rule.stored_slot[1] == (is_shadow(item) is True)]
        there = None if not versions else versions[0].template or versions[0].item
        if there is not None and Addition(item).is_there(there, without_flag(there)[1]):
            is_equal = not self._keeps_tests or _tests(there) == _tests(item)
            return UNCHANGED if is_equal else LABELS, item
        # In a file, a template needs no version: each of its rules has one.
        given, highest = item.get("version"), max(one for one in [*(numbers or [0]), -1] if isinstance(one, int))
        if (self._keeps_tests and given is None) or (isinstance(given, int) and (not numbers or given > highest)):
            return VERSION if versions else NEW, item
        return VERSION if versions else NEW, {**item, "version": highest + 1}

    # ------------------------------------------------------------------ changes

    def save(self, text: str, tag: str | None, author: str | None) -> dict[str, Any]:
        """Add a rule or a template, or a version of it. A changed definition gets the next version automatically.

        :param tag: of the rule that the text was based on; None: it must not exist yet
        :raises InvalidRuleError: the text is not a valid rule
        :raises ChangedError: the rule has been changed in the meantime
        """
        checked = self.check(text)
        processor = checked.checked.processor
        if processor is None or checked.item is None:
            raise InvalidRuleError(checked)
        with self._lock:
            versions = self._unchanged(checked.item["id"], tag)
            effect, item = self._decided(checked.item, processor, versions)
            done = []
            if effect != UNCHANGED:
                addition = _addition(item, None if is_template(item) else processor, author)
                done = self._edit(author, lambda kept: kept.add([addition]), versions)
        version = item.get("version")
        return {"id": item["id"], "rule": processor.id, "version": version, "effect": effect, "done": done}

    def put(
        self, item: Any, is_expected: Callable[[Mapping[str, Any] | None], bool], author: str | None
    ) -> dict[str, Any]:
        """Add a version as it is, as ``asterism rules add`` does.

        :param is_expected: whether this, which is in use, is what the change was based on
        :raises InvalidRuleError: it is not a valid rule
        :raises ChangedError: what is in use is not what was expected
        """
        addition = self._checked_addition(item, author)
        with self._lock:
            self._expect_in_use(addition.id, is_expected)
            versions = [rule for rule in self._all() if rule.stored_slot[0] == addition.id]
            done = self._edit(author, lambda kept: kept.add([addition]), versions)
        return {"id": addition.id, "version": addition.version, "done": done}

    def _checked_addition(self, item: Any, author: str | None) -> Addition:
        """A rule or a template as it is to be added.

        :raises InvalidRuleError: it, or a rule of the template, is invalid
        """
        items = [item]
        if is_template(item):
            rules = expanded(item)
            error = next((rule.error for rule in rules if rule.error is not None), None)
            if error is not None:
                raise error
            items = [rule.item for rule in rules]
        processor = None
        for one in items:
            checked = check_processor(one, lambda pointer: (1, 1), self.schema(PATIENCE), self.semantics)
            processor = checked.processor
            if processor is None:
                raise InvalidRuleError(CheckedText(item, checked))
        return _addition(item, None if is_template(item) else processor, author)

    def put_set(self, items: Sequence[Any], is_expected: Callable[[], bool], author: str | None) -> list[str]:
        """Replace all rules, or none.

        :param is_expected: whether the rules are those that the change was based on
        :raises PatternProcessorError: a rule is invalid, or the source is a folder
        :raises ChangedError: the rules are not those
        """
        additions = []
        for number, item in enumerate(items, 1):
            try:
                additions.append(self._checked_addition(item, author))
            except InvalidRuleError as error:
                problem = error.checked.checked.problems[0]
                id = item.get("id") if isinstance(item, Mapping) else None
                raise PatternProcessorError(
                    f"rule {number} ({id!r:.220}): {problem.message}", problem.detail, problem.hint
                ) from None
        new = {one.slot for one in additions}
        if len(new) < len(additions):
            raise PatternProcessorError("two rules have the same id")
        with self._lock:
            self._found = (0.0, [])
            there = dict.fromkeys(rule.stored_slot for rule in self._all())
            removed = [slot for slot in there if slot not in new]
            if not is_expected():
                raise ChangedError("the rules have been changed in the meantime", hint="read them again")
            return self._edit(author, lambda kept: kept.apply(additions, removed))

    def roll_back(
        self, id: str, version: int, tag: str, item: Mapping[str, Any] | None, author: str | None
    ) -> list[str]:
        """Bring an earlier version of a rule back.

        :param item: its JSON form, if the source does not have it any more
        :raises ChangedError: the rule has been changed in the meantime
        :raises PatternProcessorError: it is a rule of a template, or the version is a shadow
        """
        with self._lock:
            self._found = (0.0, [])
            is_there = has_version(self._all(), id, version)
            versions = self._unchanged(id, tag)
            if is_there:
                return self._edit(author, lambda kept: kept.enable([id], version))
            if item is None:
                raise RuleNotFoundError(f"version {version} of {id!r:.220} is not known any more")
            addition = _addition(item, PatternProcessor.from_dict(item), author)
            return self._edit(author, lambda kept: kept.add([addition]), versions)

    def delete(self, id: str, is_expected: Callable[[Mapping[str, Any] | None], bool], author: str | None) -> list[str]:
        """Remove all versions of a rule.

        :param is_expected: as in :meth:`put`
        :raises ChangedError: what is in use is not what was expected
        """
        with self._lock:
            self._expect_in_use(id, is_expected)
            return self._edit(author, lambda kept: kept.remove([id]))

    def _expect_in_use(self, id: str, is_expected: Callable[[Mapping[str, Any] | None], bool]) -> None:
        """Read the rules again, and compare. :raises ChangedError: it is not what was expected"""
        self._found = (0.0, [])
        if not is_expected(self._item_in_use(id)):
            raise ChangedError(f"the rule {id!r:.220} has been changed in the meantime", hint="read it again")

    def enable(self, id: str, version: int | None, tag: str, author: str | None) -> list[str]:
        return self._changed(id, tag, author, lambda kept: kept.enable([id], version))

    def disable(self, id: str, tag: str, author: str | None) -> list[str]:
        return self._changed(id, tag, author, lambda kept: kept.disable([id]))

    def promote(self, id: str, tag: str, author: str | None) -> list[str]:
        """Replace a rule by its shadow."""
        return self._changed(id, tag, author, lambda kept: kept.promote([id]))

    def remove(self, id: str, version: int | None, tag: str, author: str | None) -> list[str]:
        return self._changed(id, tag, author, lambda kept: kept.remove([id], version))

    def _changed(self, id: str, tag: str, author: str | None, change: Callable[[KeptRules], list[str]]) -> list[str]:
        with self._lock:
            self._unchanged(id, tag)
            return self._edit(author, change)

    def _edit(
        self, author: str | None, change: Callable[[KeptRules], list[str]], versions: Sequence[Rule] | None = None
    ) -> list[str]:
        """The one place where the source is changed.

        :param author: None: unknown
        :param versions: the existing versions of a rule that gets another one
        """
        try:
            done = change(rules_at(self._place_for(versions), self.table, token=self.token, by=author))
        finally:
            self._found = (0.0, [])
        for line in done:
            _log.info("%s: %s", one_line(author or "somebody", 100), one_line(line, 300))
        return done

    def _unchanged(self, id: str, tag: str | None) -> list[Rule]:
        """The versions of a rule, or the rules of a template.

        :raises ChangedError: they are not those of *tag*
        :raises PatternProcessorError: it is a rule of a template
        """
        self._found = (0.0, [])
        rules = self._all()
        versions = [rule for rule in rules if rule.stored_slot[0] == id]
        template = next((rule.stored_slot[0] for rule in rules if rule.id == id and rule.template is not None), id)
        if not versions and template != id:
            raise PatternProcessorError(
                f"{id!r:.220} is a rule of the template {template!r:.220}", hint="change the template"
            )
        if (tag_of(versions) if versions else None) != tag:
            if not versions:
                problem = "does not exist"
            else:
                problem = "already exists" if tag is None else "has been changed in the meantime"
            raise ChangedError(f"the rule {id!r:.220} {problem}", hint="load it again, and repeat the change")
        return versions

    def _place_for(self, versions: Sequence[Rule] | None) -> str:
        """Where a version is added: in a folder, to the file of the rule."""
        if versions is None or "://" in self.source or not Path(self.source).is_dir():
            return self.source
        return versions[0].where if versions else str(Path(self.source) / NEW_FILE)


def _unreadable(message: str, detail: str | None = None, hint: str | None = None) -> CheckedText:
    """A text that is not a rule. The detail of a syntax error ends with its line and column."""
    line, column = 1, 1
    words = (detail or "").rpartition("line ")[2].split(" column ")
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():
        line, column = int(words[0]), int(words[1])
        detail = (detail or "").rpartition("line ")[0].rstrip(": ") or None
    return CheckedText(None, CheckedProcessor(None, [Problem(line, column, message, detail, hint)]))


def _addition(item: Mapping[str, Any], processor: PatternProcessor | None, author: str | None) -> Addition:
    """The rule to add. Its author is whoever adds it, not somebody whom its text names."""
    item = {name: value for name, value in item.items() if name != "changedBy"}
    if author is not None:
        item["changedBy"] = author
    if processor is None:
        return Addition(item)
    return Addition(item, replace(processor, version=item["version"], changed_by=author))


def _tests(item: Any) -> Any:
    return item.get("tests") if isinstance(item, Mapping) else None


def _processor(item: Any) -> PatternProcessor | None:
    try:
        return PatternProcessor.from_dict(without_flag(item)[0])
    except AsterismError:
        return None


def _view_of(rule: Rule) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": rule.id,
        "version": rule.version,
        "state": rule.state,
        "shadow": rule.shadow,
        "where": rule.where,
        "kind": None,
        "template": None if rule.template is None else rule.stored_slot[0],
    }
    if rule.call is not None:
        name, parameters = rule.call
        summary = f"{name}({', '.join(map(repr, parameters))})"
        return found | {"kind": "call", "summary": one_line(summary, 200)}
    try:
        if rule.error is not None:
            raise rule.error
        found |= _parts_of(PatternProcessor.from_dict(without_flag(rule.item)[0]))
    except AsterismError as error:
        return found | {"error": error_fields(error), "summary": ""}
    if rule.twice is not None:
        found["error"] = {"message": rule.twice}
    return found | {"tests": len(rule.item.get("tests") or ())}


def _parts_of(processor: PatternProcessor) -> dict[str, Any]:
    """:raises AsterismError: the clause is invalid"""
    key, gives = processor.key, list(processor.select)
    if processor.sql is not None:
        clause = read(processor.sql)
        key = tuple(one.expression.text for one in clause.partition_by) or None
        gives = [f"{measure.expression.text} AS {measure.name}" for measure in clause.measures]
    stored = processor.to_dict()
    return {
        "kind": "pattern" if processor.sql is None else "sql",
        "summary": summary_of(processor),
        "key": None if key is None else [one_line(one, 100) for one in key],
        "select": [one_line(one, 100) for one in gives],
        "labels": dict(processor.labels),
        "timestamp": stored.get("timestamp"),
        "expires": stored.get("expires"),
        "suppress": stored["suppress"]["for"] if "suppress" in stored else None,
        "changedBy": processor.changed_by,
    }


def _parameter_types(parameters: Mapping[str, Any]) -> list[list[Any]]:
    """The name, the type and the default of each parameter of a template, which may be invalid."""
    return [
        [name, one.get("type"), one.get("default")] if isinstance(one, Mapping) else [name, one, None]
        for name, one in parameters.items()
    ]


def _row_values(rows: Sequence[Any], parameters: Sequence[str]) -> list[list[Any]]:
    """The first rows of a template: the id, whether it is enabled, and the values of the parameters."""
    return [
        [
            f"{row.get('id')} (shadow)" if row.get("shadow") is True else row.get("id"),
            row.get("enabled") is not False,
            *(row.get(name) for name in parameters),
        ]
        for row in rows[:MAX_ROWS]
        if isinstance(row, Mapping)
    ]


def source_of(item: Any) -> str | None:
    """The text of a rule or a template for an editor; None: it has none."""
    if item is None:
        return None
    if isinstance(item, Mapping) and isinstance(item.get("pattern"), str):
        # A database may have the pattern as a string.
        with suppress(DocumentSyntaxError):
            item = {**item, "pattern": decode(text_of(item["pattern"]))}
    if isinstance(item, Mapping):
        item = {name: item[name] for name in ("id", "version") if name in item} | dict(item)
        # Each row of a table has timedOut; the author changes with each version.
        item = {
            name: value for name, value in item.items() if name != "changedBy" and (name, value) != ("timedOut", False)
        }
    return written_yaml(item)


def drawing_of(processor: PatternProcessor) -> str:
    """The drawing of a rule as SVG."""
    return clause_of(processor).to_svg() if processor.pattern is None else processor.pattern.to_svg()


def explanation_of(processor: PatternProcessor, semantics: Semantics) -> str:
    """What a rule matches in words, without its automaton."""
    pattern = processor.pattern
    text = clause_of(processor).explain() if pattern is None else pattern.explain(semantics)
    return text.partition("\n\nautomaton")[0]


def tag_of(versions: Sequence[Rule]) -> str:
    """Identifies the versions of a rule and their states."""
    found = [[rule.version, rule.state, rule.where, rule.item, rule.call, str(rule.error)] for rule in versions]
    return hashlib.sha256(_text_of(found).encode(errors="backslashreplace")).hexdigest()[:32]


def _text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
