"""Sigma rules as arguments of commands: ``asterism rules add SOURCE FOLDER --sigma --pipeline sysmon``."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.errors import PatternProcessorError, printable
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from asterism.discovery.editing.rule_set import Addition
    from asterism.sigma.pipelines import SigmaOptions

_EPISODE = "episode"
"""The default of ``--report``."""


def sigma_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of Sigma rules, which the command gets as *sigma*: None without ``--sigma``."""

    @click.option(
        "--sigma", "is_sigma", is_flag=True, help="The rules are Sigma rules (pip install 'asterism[sigma]')."
    )
    @click.option(
        "--pipeline",
        multiple=True,
        help="With --sigma: a processing pipeline of pySigma, a file or the name of an installed one; several times.",
    )
    @click.option(
        "--keyword-column", multiple=True, help="With --sigma: a column in which keywords are searched; several times."
    )
    @click.option(
        "--report",
        type=click.Choice([_EPISODE, "each"]),
        default=_EPISODE,
        show_default=True,
        help="With --sigma: whether correlations report once per timespan, or each match.",
    )
    @click.option("--time-column", help="With --sigma: the event-time column, for correlations of correlations.")
    @click.option(
        "--translated",
        "is_translated",
        is_flag=True,
        help="With --sigma: add what the rules become, so that queries need no pySigma. With the options above, they always are.",
    )
    @wraps(command)
    def with_sigma(
        is_sigma: bool,
        pipeline: tuple[str, ...],
        keyword_column: tuple[str, ...],
        report: str,
        time_column: str | None,
        **arguments: Any,
    ) -> None:
        from asterism.cli.common.terminal import errors_explained

        sigma = None
        with errors_explained():
            if is_sigma:
                from asterism.sigma.pipelines import SigmaOptions

                sigma = SigmaOptions.of(pipeline, keyword_column, report, time_column)
            elif pipeline or keyword_column or time_column or report != _EPISODE:
                raise PatternProcessorError(
                    "--pipeline, --keyword-column, --report and --time-column are for Sigma rules", hint="--sigma"
                )
        command(sigma=sigma, **arguments)

    return with_sigma


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the translation of a file of Sigma rules, which the command gets as *sigma*."""

    @click.option(
        "--pipeline",
        multiple=True,
        help="Of Sigma rules: a processing pipeline of pySigma, a file or the name of an installed one; several times.",
    )
    @click.option(
        "--keyword-column",
        multiple=True,
        help="Of Sigma rules: a column in which keywords are searched; several times.",
    )
    @wraps(command)
    def with_pipelines(pipeline: tuple[str, ...], keyword_column: tuple[str, ...], **arguments: Any) -> None:
        from asterism.cli.common.terminal import errors_explained
        from asterism.sigma.pipelines import SigmaOptions

        with errors_explained():
            sigma = SigmaOptions.of(pipeline, keyword_column, _EPISODE, arguments.get("time"))
        command(sigma=sigma, **arguments)

    return with_pipelines


def sigma_additions(path: str, options: SigmaOptions, *, is_translated: bool) -> tuple[list[Addition], int]:
    """The Sigma rules at *path* that can be used, and the number of the others, which are reported.

    :param is_translated: whether they are added as what they become; else as they are written, where that is all of a rule
    """
    from asterism.discovery.editing.rule_set import Addition
    from asterism.discovery.sources.sigma_rules import document_as_written, sigma_rules_at
    from asterism.rules.definition.processor import MAX_SQL, PatternProcessor, Slot
    from asterism.rules.sets.interfaces import unless_duplicate

    additions: list[Addition] = []
    accepted: dict[Slot, list[PatternProcessor]] = {}
    refused = unwritten = 0
    for processor, rule in sigma_rules_at(Path(path).absolute(), options):
        if isinstance(processor, PatternProcessor):
            processor = unless_duplicate(processor, accepted)
        if not isinstance(processor, PatternProcessor):
            refused += 1
            click.echo(printable(one_line(str(processor), 1000)))
            continue
        text = rule.written() if rule is not None and not is_translated else None
        item = document_as_written(processor, text)
        unwritten += item is None and not is_translated
        additions.append(Addition(item or processor.to_dict(), processor))
    if refused:
        click.echo(f"{refused:,} of {len(additions) + refused:,} rules are refused")
    if unwritten:
        why = (
            "a rule has no place for the options above, for what other documents of its file share, "
            f"or for {MAX_SQL:,} characters"
        )
        click.echo(f"{unwritten:,} of {len(additions):,} rules are added as what they become: {why}")
    return additions, refused
