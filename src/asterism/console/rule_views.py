"""The rules of a source as the page shows them, and the changes that it makes."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

import pyarrow as pa

from asterism.caches import keep, recent
from asterism.discovery.editing.edited_documents import HttpRules
from asterism.discovery.editing.editing import rules_at
from asterism.discovery.editing.kept_rules import OLDER, ON, KeptRules, Rule, has_version
from asterism.discovery.editing.rule_set import Addition, Change, RuleSet, StoredRule
from asterism.discovery.rest.application import log_changes
from asterism.discovery.sources.database import parsed_url, shown_url
from asterism.discovery.sources.documents import read_document
from asterism.errors import AsterismError, PatternProcessorError, RuleNotFoundError
from asterism.expressions.routines.user_functions import declared, listed, types_of_signatures
from asterism.http.application import ChangedError
from asterism.http.messages import error_fields
from asterism.patterns.semantics import Semantics
from asterism.rules.binding.clauses import clause_of
from asterism.rules.checking.adoption_plan import adoption_text
from asterism.rules.checking.validation import (
    MAX_PROBLEMS,
    CheckedProcessor,
    InvalidProcessorError,
    Problem,
    check_processor,
    checked_processors,
    key_and_measures,
    summary_of,
)
from asterism.rules.definition.processor import ANY_VERSION, PatternProcessor, point_in_time
from asterism.rules.definition.registered_conditions import names_in
from asterism.rules.definition.rule_templates import expanded, is_template
from asterism.rules.definition.source_words import SourceWords, words_of
from asterism.rules.sets.discovery_status import now_text
from asterism.rules.sets.interfaces import is_shadow, without_flag
from asterism.text.printable import one_line
from asterism.text.strict_json import DocumentSyntaxError, Locate, decode, text_of
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
MAX_COMMENT = 1_000
NEW_FILE = "console.yaml"
"""The file to which new rules are added if the source is a folder."""
WAITING = "waiting"
"""The state of a version that comes into force after the one in use."""
NEW, VERSION, LABELS, UNCHANGED = "new", "version", "labels", "unchanged"
"""The effect of saving: a new rule, a new version, a change of fields that are not part of a version, or none."""
_NOTES = ("changedBy", "changedAt", "comment")
"""The fields about the last change, which are shown among the versions instead of in the text."""
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The text of a rule or of a template, checked.

    :param item: the JSON form; None if the text cannot be read
    :param rule: the JSON form of the rule; of a template, that of one of its rules
    """

    item: Mapping[str, Any] | None
    checked: CheckedProcessor
    rule: Mapping[str, Any] | None = None


class ConsoleRules:
    """The rules of a file, a folder or a database, or at the endpoint of a query.

    :param token: the token of the endpoint
    :param schema: the columns of the events, as soon as they are known; it waits up to the given number of seconds
    :param conditions: the names of the conditions that the query has registered; None: there is no query
    :param udfs: the signatures of the functions in Python that the query lists, by name
    :param free_version: the version of a rule, or another one if the query has used it for another definition
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
        udfs: Callable[[], Mapping[str, str]] = dict,
        free_version: Callable[[PatternProcessor], int] = attrgetter("version"),
    ) -> None:
        self.source, self.table, self.semantics, self.schema, self.token = source, table, semantics, schema, token
        self._conditions, self._udfs, self._free_version = conditions, udfs, free_version
        self._kept = self._source(None)
        self._lock = threading.Lock()
        self._last_read: tuple[float, list[Rule]] = (0.0, [])
        self._views: dict[str, dict[str, Any]] = {}

    @cached_property
    def _keeps_tests(self) -> bool:
        return self._kept.rule_set([]).keeps_tests

    @property
    def name(self) -> str:
        """The place of the rules, without secrets."""
        if isinstance(self._kept, HttpRules):
            return self._kept.endpoint.shown
        return shown_url(parsed_url(self.source)) if "://" in self.source else self.source

    def _source(self, author: str | None) -> KeptRules:
        return rules_at(self.source, self.table, token=self.token, by=author, new_file=NEW_FILE)

    # ------------------------------------------------------------------ reading

    def rule_set(self) -> RuleSet:
        """:raises PatternProcessorError: the source cannot be read"""
        return self._kept.rule_set()

    def all(self) -> list[Rule]:
        """:raises PatternProcessorError: the source cannot be read"""
        with self._lock:
            read_at, rules = self._last_read
            if read_at == 0 or time.monotonic() - read_at > FRESH:
                rules = self._kept.all()
                self._last_read = (time.monotonic(), rules)
            return rules

    def views(self) -> list[dict[str, Any]]:
        """The rules, without their sources."""
        return [self._view(rule) for rule in _by_the_clock(self.all())]

    def details(self, id: str) -> dict[str, Any]:
        """All versions of a rule, with their sources.

        :raises PatternProcessorError: there is no such rule
        """
        stored = self.versions(id)[0].stored_slot[0]
        tag = self._kept.rule_set([stored]).tag(stored) or ""
        with self._lock:
            self._last_read = (0.0, [])  # what is shown must not be older than the tag
        versions = self.versions(id)
        shown = [self._view(rule) | {"text": source_of(rule.item)} for rule in _by_the_clock(versions)]
        shown.sort(key=lambda view: -1 if view["version"] is None else view["version"], reverse=True)
        fields = {"id": id, "tag": tag, "versions": shown}
        # Of a template and its shadow, the template is shown.
        first = next((rule for rule in versions if not rule.stored_slot[1]), versions[0])
        return fields if first.template is None else fields | {"template": self._template(first, first.template, tag)}

    def _template(self, rule: Rule, template: Mapping[str, Any], tag: str) -> dict[str, Any]:
        """The template of a rule, with its parameters and rows."""
        id = rule.stored_slot[0]
        parameters, rows, text = template.get("parameters"), template.get("rows"), source_of(template)
        stored = [stored_rule for stored_rule in self.all() if stored_rule.stored_slot[0] == id]
        values = None
        if isinstance(parameters, Mapping) and isinstance(rows, list):
            values = _row_values(rows, list(parameters))
        return {
            "id": id,
            "tag": tag,
            "text": text if text is not None and len(text) <= MAX_SOURCE else None,
            "canEdit": values is not None and text is not None and len(text) <= MAX_SOURCE,
            "rules": sum(stored_rule.stored_slot == rule.stored_slot for stored_rule in stored),
            "isShadow": rule.stored_slot[1],
            "shadow": any(stored_rule.stored_slot[1] for stored_rule in stored),
            "parameters": _parameter_types(parameters) if isinstance(parameters, Mapping) else [],
            "rows": values,
        }

    def versions(self, id: str) -> list[Rule]:
        """:raises PatternProcessorError: there is no such rule"""
        of_id = [rule for rule in self.all() if rule.id == id]
        if not of_id:
            raise RuleNotFoundError(f"there is no rule {id!r:.220}")
        return of_id

    def used(self, id: str) -> Mapping[str, Any] | None:
        """The version of a rule that queries use, in its JSON form."""
        return next(
            (rule.item for rule in _by_the_clock(self.all()) if rule.id == id and rule.state == ON and rule.item), None
        )

    def _view(self, rule: Rule) -> dict[str, Any]:
        key = json.dumps(
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
            ],
            sort_keys=True,
            default=str,
        )
        return recent(self._views, key) or keep(self._views, MAX_VIEWS, key, _view_of(rule))

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
            # The texts of its rules have values in the place of parameters, so they have no positions of their own.
            return self._checked_template(item, lambda pointer, index=0: document.place(pointer), id)
        checked = self._with_unknown(self._checked_rule(item, document.place), document.place)
        if not self._keeps_tests and isinstance(item, Mapping) and item.get("tests"):
            lost = Problem(
                *document.place("/tests"),
                "the table does not store the tests of a rule",
                None,
                "ALTER TABLE ... ADD COLUMN tests TEXT",
            )
            checked = replace(checked, warnings=[*checked.warnings, lost])
        return CheckedText(item, checked, item)

    def _checked_rule(self, item: Any, place: Locate) -> CheckedProcessor:
        with self._functions_listed():
            return check_processor(item, place, self.schema(PATIENCE), self.semantics)

    def _functions_listed(self) -> AbstractContextManager[None]:
        """Inside of the block, rules can call the functions that the query lists."""
        return listed(declared(types_of_signatures(self._udfs())))

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
        for number, rule in enumerate([chosen, *(other for other in rules if other is not chosen)]):
            at = place("" if rule.row is None else f"/rows/{rule.row}")
            checked = None
            try:
                if rule.error is not None:
                    raise rule.error
                if number < CHECKED_ROWS:
                    checked = self._with_unknown(self._checked_rule(rule.item, place), place)
                else:
                    PatternProcessor.from_dict(without_flag(rule.item)[0])
                problems_of_rule = [] if checked is None else list(checked.problems)
            except AsterismError as error:
                problems_of_rule = [Problem(*at, error.message, error.detail, error.hint)]
            problems |= {(problem.line, problem.column, problem.message): problem for problem in problems_of_rule}
            shown = shown or checked
        in_order = sorted(problems.values(), key=lambda problem: (problem.line, problem.column))
        processor = None if shown is None or in_order else shown.processor
        warnings = () if shown is None else shown.warnings
        more = max(len(in_order) - MAX_PROBLEMS, 0)
        return CheckedText(item, CheckedProcessor(processor, in_order[:MAX_PROBLEMS], more, warnings), chosen.item)

    def effect(self, checked: CheckedText) -> dict[str, Any] | None:
        """The effect of saving; None: the rule is invalid."""
        if checked.checked.processor is None or checked.item is None:
            return None
        rules = self._kept.rule_set([checked.item["id"]])
        effect, item = self._decided(checked.item, checked.checked.processor, rules)
        adopts = self._adopts(checked.checked.processor) if effect == VERSION else None
        more: dict[str, Any] = {} if adopts is None else {"adopts": adopts}
        if effect == VERSION and not _as_enabled(item, rules).get("enabled", True):
            more["disabled"] = True
        return {"effect": effect, "version": item.get("version"), "shadow": is_shadow(item) is True, **more}

    def _adopts(self, processor: PatternProcessor) -> str | None:
        """What a new version adopts of the partial matches of the one in use, as a sentence."""
        used = None if processor.adopt is None else self.used(processor.id)
        former = None if used is None else _processor(used)
        if former is None or processor.adopt not in (ANY_VERSION, former.version):
            return None
        text = adoption_text(processor, former, self.semantics)
        return f"{text[0].upper()}{text[1:]}."

    def _decided(
        self, item: Mapping[str, Any], processor: PatternProcessor, rules: RuleSet
    ) -> tuple[str, Mapping[str, Any]]:
        """The effect of saving, and the item to save, perhaps with another version."""
        versions = rules.of_id(item["id"])
        if any(is_template(document) for document in (item, *(rule.item for rule in versions))):
            return self._decided_template(item, versions, rules)
        if not versions:
            return NEW, self._with_free_version(item, processor)
        highest = max((rule.version for rule in versions if rule.version is not None), default=-1)
        same = next((rule for rule in versions if rule.version == processor.version), None)
        there = None if same is None else _processor(same.item)
        if same is not None and there is not None and there.has_definition_of(processor):
            is_equal = there == processor and not (rules.keeps_tests and _tests(same.item) != _tests(item))
            return UNCHANGED if is_equal else LABELS, item
        replaces_unusable = same is not None and there is None and processor.version == highest
        if replaces_unusable or (same is None and processor.version > highest):
            return VERSION, self._with_free_version(item, processor)
        return VERSION, self._with_free_version(item, replace(processor, version=highest + 1))

    def _with_free_version(self, item: Mapping[str, Any], processor: PatternProcessor) -> Mapping[str, Any]:
        """The item with the version of the processor, or with a higher one if the query would refuse that."""
        version = self._free_version(processor)
        return item if item.get("version") == version else {**item, "version": version}

    def _decided_template(
        self, item: Mapping[str, Any], versions: Sequence[StoredRule], rules: RuleSet
    ) -> tuple[str, Mapping[str, Any]]:
        there = rules.get(StoredRule(item).slot)
        if there is not None and Addition(item).is_there(there.item, there.enabled):
            is_equal = not rules.keeps_tests or _tests(there.item) == _tests(item)
            return UNCHANGED if is_equal else LABELS, item
        effect = NEW if there is None else VERSION
        # In a file, a template needs no version: each of its rules has a version.
        given, numbers = item.get("version"), [rule.version for rule in versions if isinstance(rule.version, int)]
        highest = max(numbers, default=-1 if versions else 0)
        if (not rules.keeps_versions and given is None) or (
            isinstance(given, int) and (not versions or given > highest)
        ):
            return effect, item
        return effect, {**item, "version": highest + 1}

    # ------------------------------------------------------------------ changes

    def change(
        self, change: Change[_R], author: str | None, ids: Collection[str] | None = None, *, adds: bool = False
    ) -> _R:
        """The one place where the source is changed. See :meth:`KeptRules.change`.

        :param author: None: unknown
        """
        with self._lock:
            try:
                return self._source(author).change(change, ids, adds=adds)
            finally:
                self._last_read = (0.0, [])

    def save(self, text: str, tag: str | None, author: str | None, comment: str | None = None) -> dict[str, Any]:
        """Add a rule or a template, or a version of it. A changed definition gets the next version automatically.

        :param tag: of the rule that the text was based on; None: it must not exist yet
        :param comment: about the change, for the readers of the versions
        :raises InvalidProcessorError: the text is not a valid rule
        :raises ChangedError: the rule has been changed in the meantime
        """
        checked = self.check(text)
        processor, given = checked.checked.processor, checked.item
        if processor is None or given is None:
            raise InvalidProcessorError.of(checked.checked)
        saved: dict[str, Any] = {}

        def add(rules: RuleSet) -> tuple[RuleSet, list[str]]:
            effect, item = self._decided(given, processor, rules)
            saved.update(id=item["id"], rule=processor.id, version=item.get("version"), effect=effect)
            if effect == UNCHANGED:
                return rules, []
            noted = {**item} if comment is None else {**item, "comment": comment}
            if effect == LABELS:
                noted = _as_it_was(rules, item) | noted
            elif effect == VERSION:
                noted = _as_enabled(noted, rules)
            return rules.add([_addition(noted, None if is_template(item) else processor, author)])

        return saved | {"done": self.changed(given["id"], tag, author, add, adds=True)}

    def checked(self, item: Any, author: str | None) -> Addition:
        """A rule or a template as it is to be added.

        :raises AsterismError: it, or a rule of the template, is invalid
        """
        with self._functions_listed():
            processors = checked_processors(item, self.schema(PATIENCE), self.semantics)
        return _addition(item, None if is_template(item) else processors[0], author)

    def roll_back(
        self, id: str, version: int, tag: str, item: Mapping[str, Any] | None, author: str | None
    ) -> list[str]:
        """Bring an earlier version of a rule back.

        :param item: its JSON form, if the source does not have it any more
        :raises ChangedError: the rule has been changed in the meantime
        :raises PatternProcessorError: it is a rule of a template, or the version is a shadow
        """
        if has_version(self._kept.all(), id, version):
            return self.changed(id, tag, author, lambda rules: rules.enable([id], version))
        if item is None:
            raise RuleNotFoundError(f"version {version} of {id!r:.220} is not known any more")
        addition = _addition(item, PatternProcessor.from_dict(item), author)
        return self.changed(id, tag, author, lambda rules: rules.bring_back(addition), adds=True)

    def changed(
        self, id: str, tag: str | None, author: str | None, change: Change[list[str]], *, adds: bool = False
    ) -> list[str]:
        """Change a rule, or a template, if nobody has changed it since it had this tag.

        :raises ChangedError: somebody has changed it
        :raises PatternProcessorError: it is a rule of a template
        """
        template = next((rule.stored_slot[0] for rule in self.all() if rule.id == id and rule.template is not None), id)

        def expected(rules: RuleSet) -> tuple[RuleSet, list[str]]:
            there = rules.tag(id)
            if there is None and template != id:
                raise PatternProcessorError(
                    f"{id!r:.220} is a rule of the template {template!r:.220}", hint="change the template"
                )
            if there != tag:
                problem = "has been changed in the meantime" if tag is not None else "already exists"
                problem = "does not exist" if there is None else problem
                raise ChangedError(f"the rule {id!r:.220} {problem}", hint="load it again, and repeat the change")
            return change(rules)

        done = self.change(expected, author, [id], adds=adds)
        log_changes(done, author)
        return done


def _by_the_clock(rules: Sequence[Rule]) -> list[Rule]:
    """The rules with the states of versions that come into force in turn, as if the clock were the event time of a query."""
    versions: dict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        if rule.state == ON:
            versions[rule.id].append(rule)
    now = datetime.now(UTC)
    in_use: dict[str, Rule] = {}
    for id, those in versions.items():
        those.sort(key=lambda rule: -1 if rule.version is None else rule.version)
        begun = [rule for rule in those if rule.timestamp is None or rule.timestamp <= now]
        in_use[id] = begun[-1] if begun else those[0]
    return [
        rule
        if rule.state != ON or rule is in_use[rule.id]
        else replace(
            rule, state=WAITING if versions[rule.id].index(rule) > versions[rule.id].index(in_use[rule.id]) else OLDER
        )
        for rule in rules
    ]


def _unreadable(message: str, detail: str | None = None, hint: str | None = None) -> CheckedText:
    """A text that is not a rule. The detail of a syntax error ends with its line and column."""
    line, column = 1, 1
    words = (detail or "").rpartition("line ")[2].split(" column ")
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal():
        line, column = int(words[0]), int(words[1])
        detail = (detail or "").rpartition("line ")[0].rstrip(": ") or None
    return CheckedText(None, CheckedProcessor(None, [Problem(line, column, message, detail, hint)]))


def _addition(item: Mapping[str, Any], processor: PatternProcessor | None, author: str | None) -> Addition:
    """The rule to add. Its author is whoever adds it, not somebody whom its text names, and its time is now."""
    item = {name: value for name, value in item.items() if name != "changedBy"}
    item["changedAt"] = now_text()
    if author is not None:
        item["changedBy"] = author
    if processor is None:
        return Addition(item)
    return Addition(item, replace(processor, version=item["version"], changed_by=author))


def _as_it_was(rules: RuleSet, item: Mapping[str, Any]) -> dict[str, Any]:
    """What stays with a version whose labels or tests change: what was said about it, and, in a table, that it is disabled."""
    slot = StoredRule(item).slot
    there = next(
        (rule for rule in rules.of_id(slot[0]) if rule.slot == slot and rule.version == item.get("version")), None
    )
    if there is None:
        return {}
    said = {} if there.item.get("comment") is None else {"comment": there.item["comment"]}
    return said if there.enabled or not rules.keeps_versions else said | {"enabled": False}


def _as_enabled(item: dict[str, Any] | Mapping[str, Any], rules: RuleSet) -> dict[str, Any]:
    """A new version, disabled if its rule is. The text of a version in a table does not say that, and that of a file does."""
    versions = rules.of_id(item["id"])
    if not rules.keeps_versions or "enabled" in item or any(rule.enabled for rule in versions):
        return {**item}
    return {**item, "enabled": False}


def _tests(item: Any) -> Any:
    return item.get("tests") if isinstance(item, Mapping) else None


def _processor(item: Any) -> PatternProcessor | None:
    try:
        return PatternProcessor.from_dict(without_flag(item)[0])
    except AsterismError:
        return None


def _view_of(rule: Rule) -> dict[str, Any]:
    view: dict[str, Any] = {
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
        return view | {"kind": "call", "summary": one_line(summary, 200)}
    try:
        processor = rule.processor()
        view |= _parts_of(processor)
        words = words_of(rule.item, processor).text
        if words:
            view["summary"] = one_line(words, 200)
    except AsterismError as error:
        return view | {"error": error_fields(error), "summary": ""}
    if rule.twice is not None:
        view["error"] = {"message": rule.twice}
    stored = rule.item if rule.template is None else rule.template
    return view | {
        "tests": len(rule.item.get("tests") or ()),
        "changedAt": _moment_text(stored.get("changedAt")),
        "comment": one_line(str(stored["comment"]), MAX_COMMENT) if stored.get("comment") else None,
    }


def _moment_text(value: Any) -> str | None:
    moment = None
    with suppress(PatternProcessorError):
        moment = point_in_time(value, "changedAt")
    return None if moment is None else moment.isoformat()


def _parts_of(processor: PatternProcessor) -> dict[str, Any]:
    """:raises AsterismError: the clause is invalid"""
    key, measures = key_and_measures(processor)
    stored = processor.to_dict()
    return {
        "kind": "pattern" if processor.sql is None else "sql",
        "summary": summary_of(processor),
        "key": None if key is None else [one_line(text, 100) for text in key],
        "select": [one_line(text, 100) for text in measures],
        "labels": dict(processor.labels),
        "timestamp": stored.get("timestamp"),
        "expires": stored.get("expires"),
        "suppress": stored["suppress"]["for"] if "suppress" in stored else None,
        "changedBy": processor.changed_by,
    }


def _parameter_types(parameters: Mapping[str, Any]) -> list[list[Any]]:
    """The name, the type and the default of each parameter of a template, which may be invalid."""
    return [
        [name, parameter.get("type"), parameter.get("default")]
        if isinstance(parameter, Mapping)
        else [name, parameter, None]
        for name, parameter in parameters.items()
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
        # Each row of a table has timedOut; the notes change with each version.
        item = {
            name: value for name, value in item.items() if name not in _NOTES and (name, value) != ("timedOut", False)
        }
    return written_yaml(item)


def drawing_of(words: SourceWords, processor: PatternProcessor) -> str:
    """The drawing of a rule as SVG: of what its author wrote."""
    if words.draw is not None:
        return words.draw()
    return clause_of(processor).to_svg() if processor.pattern is None else processor.pattern.to_svg()


def explanation_of(words: SourceWords, processor: PatternProcessor, semantics: Semantics) -> str:
    """The description of a rule, without its automaton."""
    pattern = processor.pattern
    text = clause_of(processor).explain() if pattern is None else pattern.explain(semantics)
    return words.above(text.partition("\n\nautomaton")[0])
