"""Sigma rules in a file or a folder, which can be seen and checked here, and are changed in their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qs

from asterism.discovery.editing.edited_documents import first_of_each
from asterism.discovery.editing.kept_rules import ON, WRONG, Rule, SeenRules
from asterism.discovery.sources.documents import unreadable, yaml_paths_in
from asterism.discovery.sources.sigma_rules import document_as_written, sigma_rules_at
from asterism.errors import RuleSourceError
from asterism.rules.definition.processor import PatternProcessor
from asterism.sigma.collection import TranslatedRule
from asterism.sigma.pipelines import SigmaOptions

SCHEME = "sigma:"
_OPTIONS = ("pipeline", "keyword-column", "report", "time-column")


@dataclass(frozen=True, slots=True)
class TranslatedSigmaRule(Rule):
    """A rule that has been translated when its folder was read."""

    made: PatternProcessor | None = None

    def processor(self) -> PatternProcessor:
        assert self.made is not None  # it has a default because fields of the base have
        return self.made


class SigmaRules(SeenRules):
    """The Sigma rules at ``sigma:FOLDER``, or ``sigma:FOLDER?pipeline=sysmon&keyword-column=message``."""

    def __init__(self, source: str) -> None:
        path, _, query = source.removeprefix(SCHEME).partition("?")
        given = parse_qs(query, keep_blank_values=True)
        for unknown in [name for name in given if name not in _OPTIONS]:
            raise RuleSourceError(
                f"{source!r:.200} has the unknown option {unknown!r:.60}", f"options: {', '.join(_OPTIONS)}"
            )
        self.path = Path(path).absolute()
        self.location = str(self.path)
        self.options = SigmaOptions.of(
            given.get("pipeline", ()),
            given.get("keyword-column", ()),
            given.get("report", ["episode"])[-1],
            given.get("time-column", [None])[-1],
        )
        self._known: tuple[list[tuple[str, int, int]], list[Rule]] | None = None
        """The files at the last reading, and their rules."""

    def all(self) -> list[Rule]:
        files = self._files()
        if self._known is None or self._known[0] != files:
            self._known = files, list(first_of_each(self._rules()))
        return self._known[1]

    def _files(self) -> list[tuple[str, int, int]]:
        try:
            states = [(path, path.stat()) for path in yaml_paths_in(self.path)]
        except OSError as error:
            raise unreadable(self.path, error) from None
        return [(str(path), state.st_mtime_ns, state.st_size) for path, state in states]

    def _rules(self) -> Iterator[Rule]:
        for processor, rule in sigma_rules_at(self.path, self.options):
            where = processor.place or str(self.path)
            if isinstance(processor, PatternProcessor):
                item = self._item(processor, rule)
                yield TranslatedSigmaRule(processor.id, processor.version, ON, where, item, made=processor)
            else:
                yield Rule(processor.id, None, WRONG, where, error=processor.error)

    def _item(self, processor: PatternProcessor, rule: TranslatedRule | None) -> dict[str, Any]:
        """The rule as it is written; with options, which its document cannot have, as what it becomes."""
        text = None if rule is None or self.options != SigmaOptions() else rule.text
        return document_as_written(processor, text) or processor.to_dict()

    def _refuse(self) -> NoReturn:
        hint = "asterism rules add rules.yaml FOLDER --sigma: a copy of them, in which rules can be disabled"
        raise RuleSourceError(f"Sigma rules are changed in their files, in {self.path}", hint=hint)
