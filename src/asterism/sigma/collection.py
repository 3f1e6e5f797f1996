"""Translates a collection of Sigma rules: parses them with pySigma, applies filters and pipelines, and resolves what correlations
refer to. A rule that cannot be used is refused with its file, line and reason; the others are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from asterism.errors import AsterismError, PatternProcessorError
from asterism.patterns.pattern import Pattern
from asterism.sigma.chain_rules import CorrelationChain, check_levels
from asterism.sigma.chains import ChainTranslator
from asterism.sigma.conditions import ConditionTranslator, column_of
from asterism.sigma.correlation_cycles import cycles_of
from asterism.sigma.correlations import CorrelationPattern, CorrelationTranslator, ReferencedRule, bounds_of
from asterism.sigma.detection_items import columns_read, items_of
from asterism.sigma.documents import SigmaDocument, check_size, documents_of, pysigma
from asterism.sigma.labels import labels_of
from asterism.sigma.pipelines import SigmaOptions, pipeline_of
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from sigma.correlations import SigmaCorrelationRule
    from sigma.rule import SigmaRule

STAGE = "detection"
"""The stage of the event that a rule has detected."""
UNNAMED = "a rule without an id"
_UTF16LE = re.compile(r"\|utf16le(?=\||$)")


@dataclass(frozen=True, slots=True)
class TranslatedRule:
    """A Sigma rule with the parts of the pattern processor that it becomes.

    :ivar place: its file and line
    :ivar documents: the rule, those to which it refers, and the filters of them
    """

    id: str
    place: str
    labels: Mapping[str, str] = field(default_factory=dict)
    pattern: Pattern | None = None
    sql: str | None = None
    key: tuple[str, ...] | None = None
    suppress: timedelta | None = None
    documents: Sequence[SigmaDocument] = field(default=(), compare=False, repr=False)
    fields: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """where the columns that it reads stand in the rule, by their names in SQL"""

    @property
    def text(self) -> str | None:
        """The rule as it is written, with those to which it refers and the filters; None: it has parts of other documents."""
        texts = [document.text for document in self.documents]
        return None if None in texts else "---\n".join(map(str, texts))

    def written(self) -> str | None:
        """The :attr:`text` from which :func:`translated_text` makes the same one; None: options of the translation, or
        parts in other documents, belong to it.
        """
        text = self.text
        if text is None:
            return None
        try:
            again = translated_text(text, self.id)
        except PatternProcessorError:
            return None
        return text if again.has_definition_of(self) else None

    def has_definition_of(self, other: TranslatedRule) -> bool:
        """Whether both find the same, and report it in the same way."""
        return replace(self, place="") == replace(other, place="")


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """A Sigma rule that cannot be used. *id* is None if it has neither an id nor a name nor a title."""

    id: str | None
    place: str
    error: AsterismError


Outcome = TranslatedRule | RefusedRule


def translated(documents: Sequence[SigmaDocument], options: SigmaOptions) -> list[tuple[SigmaDocument, Outcome]]:
    """The rules in *documents* that produce matches of their own, in their order. A rule to which a correlation refers does so
    only if the correlation says ``generate: true``.

    :raises PatternProcessorError: a pipeline cannot be used
    """
    return _Translation(documents, options).outcomes()


def translated_text(text: str, id: str | None = None) -> TranslatedRule:
    """The rule in *text*: a Sigma rule, or a correlation with the rules to which it refers.

    :param id: of several rules with matches of their own, that of the rule
    :raises PatternProcessorError: it cannot be used, or there are several
    """
    outcomes = [outcome for _, outcome in translated(documents_of(text, "sigma"), SigmaOptions())]
    outcomes = [outcome for outcome in outcomes if outcome.id == id] or outcomes
    for outcome in outcomes:
        if isinstance(outcome, RefusedRule):
            raise outcome.error
    if len(outcomes) != 1 or not isinstance(outcomes[0], TranslatedRule):
        raise PatternProcessorError(
            f"sigma must have one rule with matches of its own, not {len(outcomes)}",
            hint="a rule; or a correlation and the rules to which it refers, separated by ---",
        )
    return outcomes[0]


@dataclass(slots=True)
class _SigmaEntry:
    """A rule during the translation: what pySigma has made of it, or why it is refused."""

    document: SigmaDocument
    rule: Any = None
    error: AsterismError | None = None
    sql: str | None = None
    """The condition of a detection rule, once it is translated."""
    fields: dict[str, str] = field(default_factory=dict)
    """Where the columns of a detection rule stand in it."""
    bounds: list[tuple[str, float]] = field(default_factory=list)
    """Of the condition of a correlation."""
    filters: list[SigmaDocument] = field(default_factory=list)
    """Those that belong to the rule."""
    hidden: bool = False
    """Whether correlations refer to it, and none of them says that it has matches of its own."""


class _Translation:
    def __init__(self, documents: Sequence[SigmaDocument], options: SigmaOptions) -> None:
        pysigma()
        self.options = options
        self.pipeline = pipeline_of(options)
        self.conditions = ConditionTranslator(options.keyword_columns)
        self.entries = [_SigmaEntry(document) for document in documents]
        self._mapped: set[int] = set()
        """The correlations to which the pipeline has been applied."""
        self._chains: dict[int, CorrelationTranslator | CorrelationChain] = {}
        """The correlations that are translated already, by the identity of their entry."""
        self._by_name: dict[str, list[_SigmaEntry]] = {}
        for entry in self.entries:
            if entry.document.kind != "filter":
                for name in dict.fromkeys(entry.document.names):
                    self._by_name.setdefault(name.lower(), []).append(entry)

    def outcomes(self) -> list[tuple[SigmaDocument, Outcome]]:
        for entry in self.entries:
            _attempt(entry, partial(_parse, entry))
        self._apply_filters()
        correlations = [entry for entry in self.entries if entry.document.kind == "correlation"]
        for entry in correlations:
            _attempt(entry, partial(self._hide_referenced, entry))
            if entry.error is not None:
                self._hide_those_of_refused(entry.document)
        self._check_cycles(correlations)
        rules = [entry for entry in self.entries if entry.document.kind == "rule"]
        for entry in rules:
            _attempt(entry, partial(self._translate_condition, entry))
        return [(entry.document, outcome) for entry in self.entries if (outcome := self._outcome(entry)) is not None]

    def _apply_filters(self) -> None:
        filters = [entry for entry in self.entries if entry.document.kind == "filter" and entry.rule is not None]
        of_all: list[int] = []
        of_name: dict[str, list[int]] = {}
        for number, entry in enumerate(filters):
            references = entry.rule.filter.rules
            names = _spellings(one.reference for one in references) if isinstance(references, list) else None
            for numbers in [of_all] if names is None else [of_name.setdefault(name, []) for name in names]:
                numbers.append(number)
        for entry in self.entries:
            if entry.document.kind == "rule" and entry.rule is not None:
                named = [number for name in _spellings(entry.document.names) for number in of_name.get(name, ())]
                for sigma_filter in (filters[number] for number in sorted({*of_all, *named})):
                    before = list(entry.rule.detection.condition)
                    _attempt(entry, partial(sigma_filter.rule.apply_on_rule, entry.rule))
                    if entry.rule.detection.condition != before:
                        entry.filters.append(sigma_filter.document)

    def entry(self, reference: str) -> _SigmaEntry:
        """:raises PatternProcessorError: there is no such rule, or there are several"""
        entries = self._by_name.get(str(reference).lower(), [])
        if len(entries) != 1:
            problem = "there is no rule" if not entries else "there are several rules"
            others = f"They are in {', '.join(entry.document.place for entry in entries[:5])}." if entries else None
            raise PatternProcessorError(f"{problem} {reference!r:.100}, to which the correlation refers", others)
        return entries[0]

    def _hide_referenced(self, entry: _SigmaEntry) -> None:
        from sigma.correlations import SigmaExtendedCorrelationCondition, SigmaRuleReference

        rule: SigmaCorrelationRule = entry.rule
        if rule.rules is not None:
            rule.referenced_rules = rule.rules
        elif isinstance(rule.condition, SigmaExtendedCorrelationCondition):
            names = rule.condition.get_referenced_rules()
            rule.referenced_rules = [SigmaRuleReference(name) for name in names]
        mapped = [reference for alias in rule.aliases for reference in alias.mapping]
        if not rule.generate:
            self._hide([reference.reference for reference in rule.referenced_rules])
        for reference in [*rule.referenced_rules, *mapped]:
            reference.rule = self.entry(reference.reference).rule  # pipelines read it

    def _hide(self, references: Iterable[Any]) -> None:
        """Rules of a correlation have no matches of their own, also if the correlation is refused."""
        for reference in references:
            for entry in self._by_name.get(str(reference).lower(), []):
                entry.hidden = True

    def _hide_those_of_refused(self, document: SigmaDocument) -> None:
        correlation = document.value.get("correlation")
        if isinstance(correlation, Mapping) and not correlation.get("generate"):
            rules = correlation.get("rules")
            self._hide(rules if isinstance(rules, list) else [rules])

    def _check_cycles(self, correlations: Sequence[_SigmaEntry]) -> None:
        usable = {id(entry): entry for entry in correlations if entry.error is None}
        graph = {
            number: [id(self.entry(reference.reference)) for reference in entry.rule.referenced_rules]
            for number, entry in usable.items()
        }
        for number, cycle in cycles_of(graph).items():
            back = next(at for at, other in enumerate(graph[number]) if other in cycle)
            reference = usable[number].rule.referenced_rules[back].reference
            usable[number].error = PatternProcessorError("the correlation refers to itself", f"by {reference!r:.100}")

    def _translate_condition(self, entry: _SigmaEntry) -> None:
        rule: SigmaRule = entry.rule
        written = {id(item): (item, item.field) for _, item in items_of(rule)}
        self.pipeline.apply(rule)
        for name, item in items_of(rule):
            for column in columns_read(item):
                of_item = written.get(id(item), (item, item.field))[1] or item.field
                entry.fields.setdefault(column, f"the field {of_item!r:.100} of the detection {name!r:.100}")
        parts = [self.conditions.sql(condition.parsed) for condition in rule.detection.parsed_condition]
        entry.sql = parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _outcome(self, entry: _SigmaEntry) -> Outcome | None:
        document = entry.document
        if entry.error is None and (document.kind == "filter" or entry.hidden):
            return None
        found: list[TranslatedRule] = []
        if entry.error is None and document.id is None:
            entry.error = PatternProcessorError("a Sigma rule needs an id, a name or a title")
        _attempt(entry, lambda: found.append(self._translated(entry)))
        return found[0] if entry.error is None else RefusedRule(document.id, document.place, entry.error)

    def _translated(self, entry: _SigmaEntry) -> TranslatedRule:
        document = entry.document
        assert document.id is not None
        labels = labels_of(entry.rule)
        if document.kind == "rule":
            assert entry.sql is not None
            pattern = Pattern.begin(STAGE).where(entry.sql)
            documents = self._documents([entry])
            return TranslatedRule(
                document.id, document.place, labels, pattern, documents=documents, fields=entry.fields
            )
        made = self._correlation(entry)
        entries = self._with_referred(entry)
        parts = made.pattern, made.sql, made.key, made.suppress, self._documents(entries)
        return TranslatedRule(document.id, document.place, labels, *parts, _fields_of(entries))

    def _with_referred(self, entry: _SigmaEntry) -> list[_SigmaEntry]:
        """A rule and those to which it refers."""
        entries, known = [entry], {id(entry)}
        for rule in entries:  # which grows
            for reference in getattr(rule.rule, "referenced_rules", ()):
                referred = self.entry(reference.reference)
                if id(referred) not in known:
                    known.add(id(referred))
                    entries.append(referred)
        return entries

    def _documents(self, entries: Sequence[_SigmaEntry]) -> list[SigmaDocument]:
        """Rules and their filters."""
        filters = [sigma_filter for rule in entries for sigma_filter in rule.filters]
        return [*(rule.document for rule in entries), *{id(document): document for document in filters}.values()]

    def _correlation(self, entry: _SigmaEntry) -> CorrelationPattern:
        translated_rule = self._chain_or_correlation(entry, 1)
        if isinstance(translated_rule, CorrelationTranslator):
            return translated_rule.pattern()
        return ChainTranslator(translated_rule, self.options.time).pattern()

    def _chain_or_correlation(self, entry: _SigmaEntry, level: int) -> CorrelationTranslator | CorrelationChain:
        """:param level: how many correlations refer to one another, down to this one"""
        if id(entry) in self._chains:
            return self._chains[id(entry)]
        check_levels(level)
        references = [reference.reference for reference in entry.rule.referenced_rules]
        inner = {reference for reference in references if self.entry(reference).document.kind == "correlation"}
        outer = self._translator(entry, [reference for reference in references if reference not in inner])
        if not inner:
            return self._chains.setdefault(id(entry), outer)
        self._check_aliases(entry, outer)
        detections = iter(outer.conditions)
        elements = [
            self._chain_or_correlation(self._usable(reference), level + 1) if reference in inner else next(detections)
            for reference in references
        ]
        chain = CorrelationChain(outer, references, elements)
        check_levels(chain.levels)
        return self._chains.setdefault(id(entry), chain)

    def _check_aliases(self, entry: _SigmaEntry, outer: CorrelationTranslator) -> None:
        """A correlation of a chain has the columns of its own groups; an alias cannot give it others."""
        columns = dict(zip(entry.rule.group_by or (), outer.groups, strict=True))
        for alias in entry.rule.aliases:
            for reference, name in alias.mapping.items():
                chained = self.entry(reference.reference).document.kind == "correlation"
                if chained and column_of(name) != columns.get(alias.alias, column_of(name)):
                    raise PatternProcessorError(
                        f"the alias {alias.alias!r:.100} gives the correlation {reference.reference!r:.100} another field"
                    )

    def _usable(self, reference: str) -> _SigmaEntry:
        """:raises PatternProcessorError: the rule is refused"""
        entry = self.entry(reference)
        if entry.error is not None:
            problem = f"the rule {reference!r:.100}, to which the correlation refers, is refused"
            raise PatternProcessorError(problem, f"{entry.document.place}: {entry.error.message}")
        return entry

    def _translator(self, entry: _SigmaEntry, references: Sequence[str]) -> CorrelationTranslator:
        rules = [self._referenced(reference) for reference in references]
        if id(entry) not in self._mapped:
            self._mapped.add(id(entry))
            self.pipeline.apply(entry.rule)
        return CorrelationTranslator(entry.rule, entry.bounds, rules, self.options.report)

    def _referenced(self, reference: str) -> ReferencedRule:
        entry = self._usable(reference)
        assert entry.sql is not None
        return ReferencedRule(reference, tuple(name.lower() for name in entry.document.names), entry.sql)


def _fields_of(entries: Sequence[_SigmaEntry]) -> dict[str, str]:
    """Where the columns of a correlation, which is the first of *entries*, and of the rules to which it refers stand."""
    fields: dict[str, str] = {}
    for entry in entries:
        name = next(iter(entry.document.names), "")
        for group in getattr(entry.rule, "group_by", None) or ():
            fields.setdefault(column_of(group), f"the field {group!r:.100} of group-by of {name!r:.100}")
        for column, place in entry.fields.items():
            fields.setdefault(column, f"{place} of {name!r:.100}")
    return fields


def _spellings(names: Iterable[str]) -> set[str]:
    """*names*, and those that are ids in the form in which pySigma compares them."""
    spellings = set(names)
    for name in list(spellings):
        with suppress(ValueError):
            spellings.add(str(UUID(name)))
    return spellings


def _parse(entry: _SigmaEntry) -> None:
    from sigma.correlations import SigmaCorrelationRule
    from sigma.filters import SigmaFilter
    from sigma.rule import SigmaRule

    check_size(entry.document.value)
    # The default policy is the safe one, with regular expressions of linear time. Given explicitly, filters cannot be copied.
    kinds: dict[str, Any] = {"correlation": SigmaCorrelationRule, "filter": SigmaFilter, "rule": SigmaRule}
    value = entry.document.copy()
    if entry.document.kind == "correlation":
        entry.bounds = _take_bounds(value["correlation"])
    for section in ("detection", "filter"):
        if section in value:
            value[section] = _with_known_modifiers(value[section])
    entry.rule = kinds[entry.document.kind].from_dict(value)


def _with_known_modifiers(section: Any) -> Any:
    """``utf16le`` is the name that the specification has for ``wide``, and pySigma does not know it."""
    if isinstance(section, dict):
        return {_UTF16LE.sub("|wide", str(name)): _with_known_modifiers(value) for name, value in section.items()}
    return [_with_known_modifiers(value) for value in section] if isinstance(section, list) else section


def _take_bounds(section: Any) -> list[tuple[str, float]]:
    """The bounds of a correlation. All but one are removed from *section*, because pySigma takes only one."""
    condition = section.get("condition") if isinstance(section, dict) else None
    if condition is None and isinstance(section, dict) and isinstance(section.get("rules"), list):
        return [("GTE", len(section["rules"]))]
    if not isinstance(condition, dict):
        return []
    bounds = bounds_of(condition)
    for name in [name for name in condition if name.upper() in dict(bounds)][1:]:
        del condition[name]
    return bounds


def _attempt(entry: _SigmaEntry, step: Callable[[], object]) -> None:
    """Do one step of the translation of a rule that has not been refused."""
    if entry.error is not None:
        return
    from sigma.exceptions import SigmaError

    try:
        step()
    except AsterismError as error:
        entry.error = error
    except SigmaError as error:
        words = type(error).__name__.removeprefix("Sigma").removesuffix("Error")
        entry.error = PatternProcessorError(one_line(str(error), 500) or f"invalid Sigma rule ({words})")
    except (RecursionError, MemoryError):
        entry.error = PatternProcessorError("the Sigma rule is nested too deeply")
    except Exception as error:
        # pySigma does not check the types of all values.
        entry.error = PatternProcessorError("pySigma cannot read the rule", f"{type(error).__name__}: {error!s:.300}")
