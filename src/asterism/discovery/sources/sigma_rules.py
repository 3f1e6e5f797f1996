"""Sigma rules in a file, a folder or a checkout of Git, as pattern processors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from asterism.discovery.sources.documents import WHOLE, yaml_paths_in
from asterism.discovery.sources.file import FileContent, FileDiscoverer, LocalFiles, WatchedFile, absolute_location
from asterism.discovery.sources.polling import Items
from asterism.discovery.sources.several_documents import WatchedDocument
from asterism.errors import AsterismError, PatternProcessorError, RuleSourceError
from asterism.files.file_systems import is_path
from asterism.rules.definition.processor import MAX_SQL, PatternProcessor, with_origin
from asterism.rules.definition.rule_origins import RuleOrigin
from asterism.rules.definition.rule_templates import version_of
from asterism.rules.sets.interfaces import (
    Discovered,
    PatternProcessorDiscoverer,
    PatternProcessorDiscovererFactory,
    RefusedProcessor,
    checked_interval,
)
from asterism.sigma.collection import Outcome, RefusedRule, TranslatedRule, translated
from asterism.sigma.documents import SigmaDocument, documents_of
from asterism.sigma.pipelines import SigmaOptions, pipeline_of


@dataclass(frozen=True)
class SigmaPatternProcessorDiscovererFactory(PatternProcessorDiscovererFactory):
    """Watches Sigma rules: detections, filters and correlations.

    :param path: a file in YAML; or a folder, such as a checkout of Git, of which all files ``*.yml`` and ``*.yaml`` are read,
        also in its folders, except for names that begin with a dot
    :param pipeline: the processing pipelines of pySigma that map log sources and fields to the columns of the events: names of
        installed pipelines, and paths of pipelines in YAML. They are applied in the order of their priorities.
    :param keyword_columns: the columns in which values without a field (keywords) are searched; without them, rules with keywords
        are refused
    :param report: what a correlation reports. ``"episode"``: after a match, no further ones of the same group for its timespan;
        ``"each"``: all of them
    :param time: the event-time column, which a correlation of correlations needs
    :param interval: the polling interval
    :raises MissingPackageError: pySigma is not installed (``pip install 'asterism[sigma]'``)
    :raises PatternProcessorError: an argument is of a wrong type, or a pipeline cannot be used

    The id of a rule is its Sigma id, else its name or title, and its version is a hash of what it detects: rules have no version
    numbers to maintain. ``labels`` has title, level, tags, techniques, false positives and author. A rule that cannot be used is
    refused with its file, line and reason.

    >>> SigmaPatternProcessorDiscovererFactory("/etc/sigma", keyword_columns=["message"]).keyword_columns
    ('message',)
    """

    path: Path
    pipeline: tuple[str, ...]
    keyword_columns: tuple[str, ...]
    report: str
    time: str | None
    interval: timedelta

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pipeline: str | Path | Sequence[str | Path] = (),
        keyword_columns: Sequence[str] = (),
        report: str = "episode",
        time: str | None = None,
        interval: timedelta = timedelta(seconds=1),
    ) -> None:
        location = absolute_location(path, 'Path("sigma/rules")')
        if not is_path(location):
            raise RuleSourceError(
                f"Sigma rules cannot be at {location!r:.120}", hint="a file or a folder of this machine"
            )
        options = SigmaOptions.of(pipeline, keyword_columns, report, time)
        pipeline_of(options)
        object.__setattr__(self, "path", Path(location))
        object.__setattr__(self, "pipeline", options.pipelines)
        object.__setattr__(self, "keyword_columns", options.keyword_columns)
        object.__setattr__(self, "report", options.report)
        object.__setattr__(self, "time", options.time)
        object.__setattr__(self, "interval", checked_interval(interval))

    def create_pattern_processor_discoverer(self) -> PatternProcessorDiscoverer:
        options = SigmaOptions(self.pipeline, self.keyword_columns, self.report, self.time)
        return SigmaDiscoverer(self.path, self.interval, options)


class SigmaDiscoverer(FileDiscoverer):
    """See :class:`SigmaPatternProcessorDiscovererFactory`."""

    def __init__(self, path: Path, interval: timedelta, options: SigmaOptions) -> None:
        super().__init__(path, interval)
        self.place = LocalFiles(path, yaml_paths_in)
        self._options = options
        self._sigma: dict[str, list[SigmaDocument]] = {}
        """The documents of each file that can be read."""

    def _read(self, name: str, content: FileContent, last: WatchedFile | None) -> WatchedFile:
        document = WatchedDocument(name, (), None, Items()) if last is None else last.document
        try:
            if content.problem is not None:
                raise content.problem
            self._sigma[name] = documents_of(content.text, name)
        except PatternProcessorError as error:
            self._sigma.pop(name, None)
            ids = document.ids or ()
            refused = [RefusedProcessor(id, error, place=name, shadow=shadow) for id, shadow in ids]
            unknown = RefusedProcessor(WHOLE, error, place=name, unidentified=True)
            document = replace(document, discovered=refused if document.ids is not None else [unknown])
        return WatchedFile(content.kept(), document)

    def _read_documents(self, files: Mapping[str, WatchedFile]) -> Mapping[str, WatchedDocument]:
        # A correlation or a filter may belong to rules of other files, so all are translated.
        self._sigma = {name: documents for name, documents in self._sigma.items() if name in files}
        by_file: dict[str, list[Discovered]] = {name: [] for name in self._sigma}
        for document, outcome in translated(
            [one for name in sorted(self._sigma) for one in self._sigma[name]], self._options
        ):
            by_file[document.file].append(processor_of(outcome))
        documents = {}
        for name, file in files.items():
            if name in by_file:
                found = by_file[name]
                ids = [(one.id, one.shadow) for one in found if not getattr(one, "unidentified", False)]
                file.document = replace(file.document, discovered=found, ids=tuple(dict.fromkeys(ids)))
            documents[name] = file.document
        return documents


def sigma_rules_at(path: Path, options: SigmaOptions) -> Iterator[tuple[Discovered, TranslatedRule | None]]:
    """The Sigma rules in a file or a folder: each as what it becomes, or why it is refused, and its translation.

    :raises PatternProcessorError: the path cannot be read, or a pipeline cannot be used
    """
    documents: list[SigmaDocument] = []
    for name, content in LocalFiles(path, yaml_paths_in).contents({}).items():
        try:
            if content.problem is not None:
                raise content.problem
            documents += documents_of(content.text, name)
        except PatternProcessorError as error:
            yield RefusedProcessor(WHOLE, error, place=name, unidentified=True), None
    for _, outcome in translated(documents, options):
        processor = processor_of(outcome)
        yield processor, outcome if isinstance(outcome, TranslatedRule) else None


def document_as_written(processor: PatternProcessor, text: str | None) -> dict[str, Any] | None:
    """The document of a rule with its own *text*. None: there is none, or a document has no place for it."""
    if text is None or len(text) > MAX_SQL:
        return None
    return {"id": processor.id, "version": processor.version, "sigma": text}


def processor_of(outcome: Outcome) -> Discovered:
    """The pattern processor of a translated rule. Its version is computed from its definition."""
    if isinstance(outcome, RefusedRule):
        return RefusedProcessor(
            outcome.id or outcome.place, outcome.error, place=outcome.place, unidentified=outcome.id is None
        )
    try:
        processor = PatternProcessor(
            outcome.id,
            0,
            outcome.pattern,
            key=outcome.key,
            sql=outcome.sql,
            suppress=outcome.suppress,
            labels=outcome.labels,
            place=outcome.place,
        ).as_data()
        versioned = replace(processor, version=version_of(processor.to_dict())).as_data()
        return with_origin(versioned, RuleOrigin(fields=outcome.fields))
    except AsterismError as error:
        return RefusedProcessor(outcome.id[:200], error, place=outcome.place)
