"""The commands of ``asterism rules`` that compare rules, apply files of rules, go back to a version, and wait for a version."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from asterism.cli.common.terminal import Duration, errors_explained, table_option
from asterism.cli.rules.commands import RuleFile, additions_in, at_source, query_store, rules_of
from asterism.errors import RuleNotFoundError, StateError, printable

if TYPE_CHECKING:
    from asterism.discovery.editing.comparing import RuleDifference
    from asterism.discovery.editing.kept_rules import KeptRules, Rule
    from asterism.discovery.editing.rule_set import Addition

_COLORS = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def _show(lines: Sequence[str], indent: str = "") -> None:
    for line in lines:
        click.secho(indent + printable(line), fg=_COLORS.get(line[:1]))


def _rules_in(place: str, table: str) -> list[Rule]:
    """The rules of a source, or the newest set of a query."""
    from asterism.discovery.editing.comparing import rules_in_set

    if not place.startswith(("http://", "https://")):
        try:
            retained = query_store(place).retained()
        except StateError:
            retained = []
        if retained:
            return list(rules_in_set(retained[-1], place))
    return rules_of(place, table).all()


def _stored_in(kept: KeptRules) -> list[Rule]:
    """The rules of a place; none of a file that `apply` will create."""
    from asterism.discovery.editing.edited_documents import FileRules

    return [] if isinstance(kept, FileRules) and not kept.path.exists() else kept.all()


@click.command()
@click.argument("old")
@click.argument("new")
@table_option
def diff(old: str, new: str, table: str) -> None:
    """Show how the rules in NEW differ from those in OLD; the exit status is 1 if they do.

    OLD and NEW are sources, or the checkpoints of queries, of which the newest sets are compared.

    \b
    asterism rules diff /data/checkpoint rules/
    """
    with errors_explained():
        from asterism.discovery.editing.comparing import differences

        changes = differences(_rules_in(old, table), _rules_in(new, table))
        for difference in changes:
            _show([str(difference)])
            _show(difference.lines(), "    ")
        click.echo(_summary(changes, done=False))
    if changes:
        sys.exit(1)


def _summary(changes: Sequence[RuleDifference], *, done: bool) -> str:
    counts = {
        ("to add", "added"): sum(change.old is None for change in changes),
        ("to change", "changed"): sum(None not in (change.old, change.new) for change in changes),
        ("to remove", "removed"): sum(change.new is None for change in changes),
    }
    return ", ".join(f"{count:,} {what[done]}" for what, count in counts.items() if count) or "no differences"


@click.command()
@click.argument("files", type=RuleFile(exists=True))
@at_source
@click.option("--plan", is_flag=True, help="Only show what would change; the exit status is 1 if something would.")
@click.option("--prune", is_flag=True, help="Remove the rules that are not in FILES.")
def apply(files: str, source: str, table: str, plan: bool, prune: bool) -> None:
    """Make the rules in SOURCE equal to those in FILES, a file or a folder, in a single change.

    Rules that are only in SOURCE stay, unless --prune is given. A changed rule needs a higher version. Rules can be kept in
    version control, and a pipeline can apply them:

    \b
    asterism rules apply rules/ postgresql://rules@db/fraud --plan
    """
    with errors_explained():
        from asterism.discovery.editing.comparing import differences

        additions = additions_in(files)
        if additions is None:
            sys.exit(1)
        kept = rules_of(source, table)
        changes = differences(_stored_in(kept), rules_of(files, table).all())
        # A template is replaced with all its rows.
        replaced = {addition.slot for addition in additions}
        stay = (
            [] if prune else [change for change in changes if change.new is None and change.stored_slot not in replaced]
        )
        changes = [change for change in changes if change not in stay]
        changed = {change.stored_slot for change in changes}
        removed = {change.stored_slot for change in changes if change.new is None} - replaced
        if changed:  # also for a plan, so that it fails if the change would
            kept.apply([addition for addition in additions if addition.slot in changed], sorted(removed), plan=plan)
        for change in changes:
            _show([str(change)])
            if plan and change.old is not None and change.new is not None:
                _show(change.lines(), "    ")
        for change in stay:
            click.echo(f"  {printable(change.name)} is not in {printable(files)} and stays")
        click.echo(_summary(changes, done=not plan))
    if plan and changes:
        sys.exit(1)


@click.command()
@at_source
@click.argument("id")
@click.option("--version", type=int, required=True, help="The version to which to go back.")
@click.option("--history", "checkpoint", help="The checkpoint of a query that has used the version.")
def rollback(source: str, table: str, id: str, version: int, checkpoint: str | None) -> None:
    """Bring an earlier version of a rule back into force.

    A database keeps all versions. A file and an endpoint do not have replaced ones: the definition of such a version is read
    from the history of a query.

    \b
    asterism rules rollback rules.yaml burst --version 3 --history /data/checkpoint
    """
    with errors_explained():
        from asterism.discovery.editing.kept_rules import has_version

        kept = rules_of(source, table)
        if has_version(kept.all(), id, version):
            messages = kept.enable([id], version)
        else:
            messages = kept.bring_back(_earlier(id, version, checkpoint))
        for message in messages:
            click.echo(printable(message))


def _earlier(id: str, version: int, checkpoint: str | None) -> Addition:
    from asterism.discovery.editing.rule_set import Addition
    from asterism.rules.definition.processor import PatternProcessor
    from asterism.rules.sets.history import item_of_version

    named = f"version {version} of {id!r}"
    if checkpoint is None:
        raise RuleNotFoundError(
            f"the source does not have {named}", hint="--history CHECKPOINT, of a query that has used it"
        )

    item = item_of_version(query_store(checkpoint).history().entries(), id, version)
    if item is None:
        raise RuleNotFoundError(f"the history of {checkpoint} does not have {named}")
    return Addition(item, PatternProcessor.from_dict(item))


@click.command()
@click.argument("checkpoint")
@click.argument("names", nargs=-1, required=True, metavar="ID@VERSION...")
@click.option("--timeout", type=Duration(), default="60s", show_default=True, help="How long to wait.")
def wait(checkpoint: str, names: Sequence[str], timeout: timedelta) -> None:
    """Wait until versions of rules are in force in a query; the exit status is 2 if one is refused, or after the timeout.

    \b
    asterism rules wait /data/checkpoint burst@2
    """
    with errors_explained():
        from asterism.rules.sets.set_store import wait_for

        wanted = {}
        for name in names:
            id, _, version = name.rpartition("@")
            if not id or not version.isascii() or not version.isdigit():
                raise click.UsageError(f"{name!r} is not a rule with a version, such as burst@2.")
            wanted[id] = int(version)
        wait_for(checkpoint, wanted, timeout=timeout)
        click.echo(f"in force: {printable(', '.join(names))}")
