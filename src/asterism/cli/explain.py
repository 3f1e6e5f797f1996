"""The command ``asterism explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from asterism.cli.common.files import is_sql_file, only_clause, read_clauses, read_pattern_file
from asterism.cli.common.terminal import errors_explained, semantics_option
from asterism.cli.rules.rule_files import RuleInFile, pattern_or_rule_argument
from asterism.cli.rules.sigma_files import pipeline_options
from asterism.errors import StreamDefinitionError
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.row_patterns.match_recognize import MatchRecognize
    from asterism.rules.definition.source_words import SourceWords
    from asterism.sigma.pipelines import SigmaOptions


@click.command()
@pattern_or_rule_argument
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a drawing to this file instead of printing the text.",
)
@click.option(
    "--what",
    type=click.Choice(["stages", "automaton"]),
    default="stages",
    show_default=True,
    help="What the drawing shows.",
)
@semantics_option("The semantics of the automaton; for SQL the dialect.")
@click.option("--time", help="Of Sigma rules: the event-time column, which correlations of correlations need.")
@pipeline_options
def explain(
    pattern: Path | RuleInFile,
    svg: Path | None,
    what: Literal["stages", "automaton"],
    semantics: str,
    time: str | None,
    sigma: SigmaOptions,
) -> None:
    """Explain what a pattern matches, and how.

    PATTERN is a file with a pattern in the JSON graph format, or a .sql file with a MATCH_RECOGNIZE clause, alone or in a
    statement; or FILE#ID, a rule in a file of rules, a file of Sigma rules, or an .eql file with a query in EQL.

    \b
    asterism explain brute_force.json
    asterism explain rules.yaml#brute-force
    asterism explain falls.sql
    asterism explain brute_force.json --svg brute_force.svg
    """
    with errors_explained():
        clauses, wanted, words = _read(pattern, semantics, sigma)
        if wanted is None:
            if svg is None:
                click.echo(words.above("\n\n".join(clause.explain() for clause in clauses)))
                return
            if what != "stages":
                raise click.UsageError("--what automaton is for patterns in JSON.")
            drawing = words.draw() if words.draw else only_clause(clauses, pattern).to_svg()
        else:
            if svg is None:
                click.echo(words.above(wanted.explain(Semantics(semantics))))
                return
            drawing = words.draw() if words.draw and what == "stages" else wanted.to_svg(what, Semantics(semantics))
        try:
            svg.write_text(drawing + "\n", encoding="utf-8")
        except OSError as error:
            raise StreamDefinitionError(f"{svg} cannot be written", error.strerror) from None
        click.echo(f"drawing written to {svg}")


def _read(
    source: Path | RuleInFile, semantics: str, sigma: SigmaOptions
) -> tuple[list[MatchRecognize], Pattern | None, SourceWords]:
    """The clauses or the pattern, and how they are shown."""
    from asterism.rules.definition.source_words import PLAIN

    if isinstance(source, RuleInFile):
        from asterism.rules.binding.clauses import clause_of

        rule, words = source.with_words(sigma)
        return ([clause_of(rule)], None, words) if rule.pattern is None else ([], rule.pattern, words)
    if is_sql_file(source):
        return read_clauses(source, semantics), None, PLAIN
    return [], Pattern.from_json(read_pattern_file(source)), PLAIN
