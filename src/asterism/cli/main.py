"""The command ``asterism``: runs the conformance corpus, matches patterns in files, runs statements with
MATCH_RECOGNIZE, validates and explains patterns, shows the state of queries.

Exit status: 0 for success; 1 if a case fails or a pattern is invalid; 2 if the command cannot be executed, with the reason on
stderr.
"""

from __future__ import annotations

import atexit
import gc
from typing import Any

import click

from asterism.cli.common.terminal import errors_explained
from asterism.cli.compile import compile_
from asterism.cli.conformance import conformance
from asterism.cli.demo import demo
from asterism.cli.docs import docs
from asterism.cli.doctor import doctor
from asterism.cli.explain import explain
from asterism.cli.match import match
from asterism.cli.rescale import rescale
from asterism.cli.rules.commands import rules
from asterism.cli.rules.rule_changes import apply, diff, rollback, wait
from asterism.cli.savepoint import savepoint
from asterism.cli.state import state
from asterism.cli.statement import sql
from asterism.cli.trace import trace
from asterism.cli.validate import validate
from asterism.errors import explain_missing_spark
from asterism.loading import collect_later, tell_of_compiling


class _Commands(click.Group):
    """Commands, of which some, or some of their options, need Spark."""

    def invoke(self, ctx: click.Context) -> Any:
        with errors_explained(), explain_missing_spark("this command"):
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="asterism")
def main() -> None:
    """Complex event processing over tables and streams, in this process and on Apache Spark."""
    tell_of_compiling(lambda: None)  # the status lines of commands say it


for command in (
    match,
    sql,
    validate,
    explain,
    trace,
    rules,
    state,
    savepoint,
    rescale,
    conformance,
    compile_,
    doctor,
    demo,
    docs,
):
    main.add_command(command)
for command in (diff, apply, rollback, wait):
    rules.add_command(command)


def run() -> None:
    """:func:`main`, as a process of its own. See docs/decisions/0187."""
    collect_later()
    atexit.register(gc.freeze)  # Python ends with collections of garbage, a quarter of the time of a short command
    main(prog_name="asterism")
