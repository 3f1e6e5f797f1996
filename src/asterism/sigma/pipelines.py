"""The options of a translation, and the processing pipelines of pySigma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.arguments import expect
from asterism.errors import PatternProcessorError
from asterism.sigma.documents import pysigma

if TYPE_CHECKING:
    from sigma.processing.pipeline import ProcessingPipeline
    from sigma.processing.resolver import ProcessingPipelineResolver

REPORTS = ("episode", "each")


@dataclass(frozen=True, slots=True)
class SigmaOptions:
    """How Sigma rules are translated.

    :param pipelines: the names of installed pipelines, and the paths of pipelines in YAML
    :param keyword_columns: the columns in which values without a field are searched
    :param report: what correlations report, ``"episode"`` or ``"each"``
    :param time: the event-time column, which correlations of correlations need
    """

    pipelines: tuple[str, ...] = ()
    keyword_columns: tuple[str, ...] = ()
    report: str = "episode"
    time: str | None = None

    @classmethod
    def of(
        cls,
        pipeline: str | Path | Sequence[str | Path] = (),
        keyword_columns: Sequence[str] = (),
        report: str = "episode",
        time: str | None = None,
    ) -> SigmaOptions:
        """:raises PatternProcessorError: an option is of another type or unknown"""
        pipelines = [pipeline] if isinstance(pipeline, str | Path) else pipeline
        for values, what in ((pipelines, "pipeline"), (keyword_columns, "keyword_columns")):
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise PatternProcessorError(f"{what} must be a list of strings", hint=f'{what}=["..."]')
            for value in values:
                expect(PatternProcessorError, value, str | Path, f"{what} must be a list of strings")
        if report not in REPORTS:
            raise PatternProcessorError(f"report must be {' or '.join(map(repr, REPORTS))}, not {report!r:.60}")
        expect(PatternProcessorError, time, str | None, "time must be the name of a column", 'time="ts"')
        paths = tuple(str(Path(one).absolute()) if Path(one).exists() else str(one) for one in pipelines)
        return cls(paths, tuple(map(str, keyword_columns)), report, time)


def pipeline_of(options: SigmaOptions) -> ProcessingPipeline:
    """The pipelines as one, in the order of their priorities.

    :raises PatternProcessorError: a pipeline does not exist or is invalid
    """
    pysigma()
    import yaml
    from sigma.exceptions import SigmaError
    from sigma.processing.pipeline import ProcessingPipeline

    if not options.pipelines:
        return ProcessingPipeline()
    try:
        return _resolver().resolve(list(options.pipelines))
    except (SigmaError, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise PatternProcessorError(
            f"the pipeline {', '.join(options.pipelines)!r:.200} cannot be used",
            f"{type(error).__name__}: {error!s:.300}",
            "the path of a pipeline in YAML; or the name of an installed one, as pip install pysigma-pipeline-sysmon has",
        ) from None


@lru_cache(maxsize=1)
def _resolver() -> ProcessingPipelineResolver:
    """Installed pipelines are found by importing the packages of pySigma's namespace, which takes some seconds."""
    from sigma.plugins import InstalledSigmaPlugins

    return InstalledSigmaPlugins.autodiscover(include_backends=False, include_validators=False).get_pipeline_resolver()
