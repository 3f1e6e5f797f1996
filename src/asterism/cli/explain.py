"""The command ``asterism explain``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from asterism.cli.files import is_sql_file, read_clause, read_clauses, read_pattern_file
from asterism.cli.terminal import errors_explained, pattern_argument, semantics_option
from asterism.errors import StreamDefinitionError
from asterism.patterns.pattern import Pattern
from asterism.patterns.semantics import Semantics


@click.command()
@pattern_argument
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
def explain(pattern: Path, svg: Path | None, what: Literal["stages", "automaton"], semantics: str) -> None:
    """Explain what a pattern matches, and how.

    PATTERN is a file with a pattern in the JSON graph format, or a .sql file with a MATCH_RECOGNIZE clause, alone or in a
    statement.

    \b
    asterism explain brute_force.json
    asterism explain falls.sql
    asterism explain brute_force.json --svg brute_force.svg
    """
    with errors_explained():
        if is_sql_file(pattern):
            if svg is None:
                click.echo("\n\n".join(clause.explain() for clause in read_clauses(pattern, semantics)))
                return
            if what != "stages":
                raise click.UsageError("--what automaton is for patterns in JSON.")
            drawing = read_clause(pattern, semantics).to_svg()
        else:
            wanted = Pattern.from_json(read_pattern_file(pattern))
            if svg is None:
                click.echo(wanted.explain(Semantics(semantics)))
                return
            drawing = wanted.to_svg(what, Semantics(semantics))
        try:
            svg.write_text(drawing + "\n", encoding="utf-8")
        except OSError as error:
            raise StreamDefinitionError(f"{svg} cannot be written", error.strerror) from None
        click.echo(f"drawing written to {svg}")
