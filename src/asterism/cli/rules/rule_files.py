"""Rules in files, as arguments of commands that otherwise take the file of a pattern: ``rules.yaml#brute-force``, a file of Sigma
rules, or a file with a query in EQL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.files import read_pattern_file
from asterism.errors import StreamDefinitionError
from asterism.text.printable import one_line
from asterism.text.strict_json import DocumentSyntaxError, decode, text_of

if TYPE_CHECKING:
    import pyarrow as pa

    from asterism.discovery.editing.kept_rules import Rule
    from asterism.rules.definition.processor import PatternProcessor
    from asterism.rules.definition.source_words import SourceWords
    from asterism.sigma.pipelines import SigmaOptions

_YAML = (".yml", ".yaml")
_MAX_IDS = 20
"""The maximum number of ids that a message lists."""


@dataclass(frozen=True, slots=True)
class RuleInFile:
    """A rule of a file, or of a folder of such files.

    :param id: its id, or ``id@version``. An id alone means the version that is not a shadow, if there are both. Empty: the only
        rule of the file
    """

    file: Path
    id: str

    def __str__(self) -> str:
        return f"{self.file}#{self.id}" if self.id else str(self.file)

    def read(self, sigma: SigmaOptions | None = None) -> Rule:
        """The rule as it is stored.

        :param sigma: how a Sigma rule is translated; None: without a pipeline
        """
        from asterism.discovery.sources.documents import WHOLE

        kept = _rules_in(self.file, sigma)
        matching = [rule for rule in kept if rule.id == self.id]
        if not self.id and len(kept) == 1:
            return kept[0]
        matching = matching or [rule for rule in kept if f"{rule.id}@{rule.version}" == self.id]
        if not matching:
            unreadable = next((rule.error for rule in kept if rule.id == WHOLE and rule.error is not None), None)
            if unreadable is not None:
                raise unreadable
            ids = [one_line(rule.id, 60) for rule in kept[:_MAX_IDS]]
            more = [f"and {len(kept) - _MAX_IDS:,} more"] if len(kept) > _MAX_IDS else []
            problem = f"{self.file} has no rule {self.id!r:.220}" if self.id else f"{self.file} has {len(kept):,} rules"
            hint = None if self.id or not kept else f"name one: '{self.file}#{one_line(kept[0].id, 60)}'"
            raise StreamDefinitionError(problem, f"Rules: {', '.join([*ids, *more]) or 'none'}", hint)
        if len(matching) > 1:
            matching = [rule for rule in matching if not rule.shadow] or matching
        if len(matching) > 1:
            names = list(dict.fromkeys(one_line(f"{rule.id}@{rule.version}", 220) for rule in matching))
            hint = f"name a version: {', '.join(names[:_MAX_IDS])}" if len(names) > 1 else None
            raise StreamDefinitionError(f"{self.file} has {len(matching):,} rules {self.id!r:.220}", hint=hint)
        return matching[0]

    def processor(self, sigma: SigmaOptions | None = None, measures: Sequence[str] = ()) -> PatternProcessor:
        """The rule, without its timestamp, and not as a shadow.

        :param measures: those of a graph or of a query in EQL, in place of its own
        """
        from asterism.rules.definition.source_words import eql_of

        rule = self.read(sigma)
        if measures and eql_of(rule.definition) is not None:
            return _alone(replace(rule, item={**rule.definition, "select": list(measures)}))
        processor = _alone(rule)
        if measures and processor.sql is not None:
            raise click.UsageError("--select is for patterns and EQL: a rule in SQL has MEASURES.")
        return replace(processor, select=tuple(measures), function=None) if measures else processor

    def with_words(self, sigma: SigmaOptions | None = None) -> tuple[PatternProcessor, SourceWords]:
        """The rule as :meth:`processor` returns it, and how it is shown."""
        from asterism.rules.definition.source_words import sigma_words, words_of

        rule = self.read(sigma)
        processor = _alone(rule)
        if (text := _sigma_text(self.file)) is not None:
            return processor, sigma_words(text, rule.id, processor)
        return processor, words_of(rule.definition, processor)


def _alone(rule: Rule) -> PatternProcessor:
    from asterism.rules.definition.processor import as_in_force

    return as_in_force(rule.processor())


def _rules_in(file: Path, sigma: SigmaOptions | None) -> Sequence[Rule]:
    from asterism.discovery.editing.editing import rules_at
    from asterism.discovery.editing.kept_rules import ON, WRONG, Rule

    if file.suffix.lower() == ".eql":
        return [Rule(file.stem, 1, ON, str(file), {"id": file.stem, "version": 1, "eql": _text_of(file)})]
    if (text := _sigma_text(file)) is not None:
        from asterism.discovery.sources.sigma_rules import processor_of
        from asterism.rules.sets.interfaces import RefusedProcessor
        from asterism.sigma.collection import translated
        from asterism.sigma.documents import documents_of
        from asterism.sigma.pipelines import SigmaOptions

        outcomes = translated(documents_of(text, str(file)), sigma or SigmaOptions())
        found = [processor_of(outcome) for _, outcome in outcomes]
        return [
            Rule(one.id, None, WRONG, str(file), error=one.error)
            if isinstance(one, RefusedProcessor)
            else Rule(one.id, one.version, ON, str(file), one.to_dict())
            for one in found
        ]
    if sigma is not None and (sigma.pipelines or sigma.keyword_columns):
        raise StreamDefinitionError(f"--pipeline and --keyword-column are for Sigma rules, and {file} has none")
    return rules_at(str(file)).all()


def _sigma_text(file: Path) -> str | None:
    """The text of a file of Sigma rules; None: it is another file."""
    if file.suffix.lower() not in _YAML or not file.is_file():
        return None
    text = _text_of(file)
    return text if re.search(r"(?m)^(detection|correlation):", text) else None


def _is_pattern(file: Path) -> bool:
    """Whether a file in YAML, which includes JSON, is a pattern in the JSON graph format."""
    try:
        document = decode(_text_of(file))
    except (DocumentSyntaxError, StreamDefinitionError):
        return False
    return isinstance(document, dict) and "nodes" in document and "pattern" not in document


def _has_rules(file: Path) -> bool:
    """Whether a file is a list of rules in JSON."""
    try:
        document = decode(_text_of(file)) if file.suffix.lower() == ".json" else None
    except (DocumentSyntaxError, StreamDefinitionError):
        return False
    return isinstance(document, list) and bool(document)


def _text_of(file: Path) -> str:
    try:
        return text_of(read_pattern_file(file), language="YAML")
    except DocumentSyntaxError as error:
        raise StreamDefinitionError(f"{file}: {error.message}", error.detail, error.hint) from None


class PatternFile(click.ParamType[Path | RuleInFile]):
    """A file, or FILE#ID: a rule in a file. A file in YAML that is no pattern, a list in JSON, and a query in EQL are rules."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | RuleInFile:
        if isinstance(value, Path | RuleInFile):
            return value
        path = Path(value)
        if path.is_file():
            suffix = path.suffix.lower()
            is_rule = suffix == ".eql" or (suffix in _YAML and not _is_pattern(path)) or _has_rules(path)
            return RuleInFile(path, "") if is_rule else path
        # Names of files and ids may contain "#".
        for at in (number for number, letter in enumerate(value) if letter == "#"):
            file, id = Path(value[:at]), value[at + 1 :]
            if at and id and file.exists():
                return RuleInFile(file, id)
        problem = "is a directory" if path.is_dir() else "does not exist"
        return self.fail(f"File '{value}' {problem}.", param, ctx)


pattern_or_rule_argument = click.argument("pattern", type=PatternFile())


def key_of(processor: PatternProcessor) -> dict[str, str]:
    """The expressions of the key of a rule, by their names: ``user.name`` for a field of a STRUCT."""
    from asterism.rules.checking.validation import key_and_measures

    return {text.replace("`", ""): text for text in key_and_measures(processor)[0] or ()}


def with_key(events: pa.Table, key: Mapping[str, str]) -> pa.Table:
    """The events with the expressions of a key as columns.

    :param key: see :func:`key_of`
    """
    from asterism.expressions.evaluation import Vectorized
    from asterism.expressions.names import Scope
    from asterism.expressions.parsing import parse

    added = {name: text for name, text in key.items() if name not in events.column_names}
    values, scope = Vectorized(events.schema), Scope(events.schema)
    numbers = [values.add(scope.resolve(parse(text), text), text) for text in added.values()]
    evaluated = values.evaluate(events) if added else []
    for name, number in zip(added, numbers, strict=True):
        events = events.append_column(name, evaluated[number])
    return events
