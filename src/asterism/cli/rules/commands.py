"""The command ``asterism rules``: lists, validates and edits pattern processors in files and databases."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from asterism.cli.common.terminal import (
    Cell,
    column_option,
    errors_explained,
    print_table,
    semantics_option,
    table_option,
    udf_option,
)
from asterism.cli.rules.backtest import backtest
from asterism.cli.rules.eql_files import eql_additions
from asterism.cli.rules.rule_tests import run_tests
from asterism.cli.rules.serve import serve
from asterism.cli.rules.sigma_files import sigma_additions, sigma_options
from asterism.errors import AsterismError, PatternProcessorError, RuleSourceError, printable
from asterism.patterns.semantics import Semantics
from asterism.text.printable import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from asterism.discovery.editing.kept_rules import KeptRules, Rule
    from asterism.discovery.editing.rule_set import Addition
    from asterism.rules.checking.validation import CheckedProcessor
    from asterism.rules.definition.processor import PatternProcessor, Slot
    from asterism.rules.sets.discovery_status import Status
    from asterism.rules.sets.history import HistoryEntry
    from asterism.rules.sets.set_store import FolderStore
    from asterism.sigma.pipelines import SigmaOptions


_STATE_COLORS = {
    "in force": "green",
    "shadow": "cyan",
    "waiting": "yellow",
    "disabled": "red",
    "killed": "red",
    "refused": "red",
}
_COLORS = {"on": "green", "shadow": "cyan", "off": "yellow", "older": "dim", "wrong": "red"}


@click.group()
def rules() -> None:
    """List, validate and change pattern processors, also while queries use them.

    CHECKPOINT, the argument of status, history, kill, unkill and killed, is the folder of a query: its checkpoint= or its store=.
    SOURCE, the argument of all other commands, is a JSON or YAML file, a folder of such files, the URL of a database
    (sqlite:///rules.db, postgresql://user@host/database), or that of a query's endpoint (https://driver:8473), whose token is
    in the environment variable ASTERISM_TOKEN. Commands that change nothing also read a topic of Kafka
    (kafka://broker:9092/rules), with the options of the file that ASTERISM_KAFKA_CONFIG names. The URL of a database may
    contain a password, but other users of the machine can read it there: PostgreSQL's variable PGPASSWORD and the file
    ~/.pgpass are safer.
    """


rules.add_command(backtest)
rules.add_command(run_tests)
rules.add_command(serve)


def at_source(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument and the option with the location of the rules."""
    return click.argument("source")(table_option(command))


class RuleFile(click.Path):
    """A file or a folder of rules. In place of one, people write the source, which is another argument."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            return self.fail(f"'{value}' is a source and not a file: the other argument is the source.", param, ctx)
        return super().convert(value, param, ctx)


rule_ids = click.argument("ids", nargs=-1, required=True, metavar="ID...")


def rules_of(source: str, table: str) -> KeptRules:
    from asterism.discovery.editing.editing import local_user, rules_at

    return rules_at(source, table, token=os.environ.get("ASTERISM_TOKEN"), by=local_user())


@rules.command(name="list")
@at_source
def list_(source: str, table: str) -> None:
    """Show all rules and their states: on, shadow, off, wrong, or older versions of others."""
    with errors_explained():
        kept = rules_of(source, table).all()
        several = len({rule.where for rule in kept}) > 1
        columns = ("id", "version", "state", "from", "until", "key", "what", "file")
        rows: list[list[Cell]] = []
        counts = dict.fromkeys(_COLORS, 0)
        for rule in kept:
            state, *texts = _row(rule)
            counts[state] += 1
            file = one_line(rule.where.rpartition("/")[2], 200) if several else ""
            version = "" if rule.version is None else str(rule.version)
            rows.append([one_line(rule.id, 200), version, (state, _COLORS[state]), *texts, file])
        print_table(columns, rows, optional=("until", "file"))
        click.echo(", ".join(f"{count:,} {state}" for state, count in counts.items() if count) or "no rules")


def _row(rule: Rule) -> tuple[str, ...]:
    """The state, times and key of a rule, and its pattern and measures or the error."""
    from asterism.rules.checking.validation import key_and_measures

    if rule.call is not None:
        name, parameters = rule.call
        return rule.state, "", "", "", one_line(f"{name}({', '.join(map(repr, parameters))})", 200)
    if rule.twice is not None:
        return rule.state, "", "", "", one_line(rule.twice, 200)
    try:
        processor = rule.processor()
        key, measures = key_and_measures(processor)
        what = _summary(rule, processor)
    except AsterismError as error:
        return rule.state if rule.state == "older" else "wrong", "", "", "", one_line(error.message, 200)
    times = ("" if time is None else time.isoformat() for time in (processor.timestamp, processor.expires))
    by = "" if key is None else one_line(", ".join(key) or "(one for all)", 100)
    gives = [f"function {processor.function}"] if processor.function else [one_line(text, 60) for text in measures]
    return rule.state, *times, by, "; ".join([what, *gives])


def _summary(rule: Rule, processor: PatternProcessor) -> str:
    """The query of a rule in EQL, or its pattern."""
    from asterism.elastic.wording import query_words
    from asterism.rules.checking.validation import summary_of
    from asterism.rules.definition.source_words import eql_of

    query = eql_of(rule.definition)
    if query is None:
        return summary_of(processor)
    return f"EQL, {one_line('; '.join(map(str.strip, query_words(query).splitlines())), 200)}"


@rules.command()
@at_source
@column_option
@udf_option
@semantics_option("The semantics: those of the library, which reject what Flink ignores, or those of Flink.")
@click.option(
    "--costs", is_flag=True, help="Show what each rule costs, and whether something bounds its partial matches."
)
def validate(
    source: str,
    table: str,
    columns: Sequence[tuple[str, Any]],
    udfs: Sequence[tuple[str, Any]],
    semantics: str,
    costs: bool,
) -> None:
    """Validate all rules; the exit status is 1 if one is invalid.

    Every problem is reported with its line and column: in the file or, in a database, in the pattern of the rule. With
    --column, columns and types are checked, too. --udf declares a function that the query
    lists. Older versions of a rule are not checked.

    \b
    asterism rules validate rules.yaml --column user:string --column price:double
    """
    with errors_explained():
        import pyarrow as pa

        from asterism.expressions.routines.user_functions import declared, listed

        stored = rules_of(source, table).all()
        with listed(declared(dict(udfs))):
            good = all_good(stored, pa.schema(columns) if columns else None, Semantics(semantics))
        if costs:
            _show_costs(stored, Semantics(semantics))
        if not stored:
            click.echo("no rules")
    if not good:
        sys.exit(1)


def _show_costs(rules: Sequence[Rule], semantics: Semantics) -> None:
    """A table of the valid rules."""
    from asterism.rules.definition.costs import cost_of

    rows: list[list[Cell]] = []
    unbounded = 0
    for rule in rules:
        if rule.state == "older" or rule.call is not None:
            continue
        try:
            processor = rule.processor()
            cost = cost_of(processor, semantics)
        except AsterismError:
            continue  # it has been reported
        unbounded += cost.bound is None
        name = f"{rule.id}@{rule.version}" if processor.shadow else rule.id
        bound = one_line(cost.bound or "nothing", 200), "" if cost.bound else "yellow"
        milliseconds = f"{cost.seconds * 1000:.0f} ms"
        rows.append([one_line(name, 220), str(cost.states), str(cost.conditions), bound, milliseconds])
    if rows:
        print_table(("id", "states", "conditions", "partial matches are bounded by", "compiled in"), rows)
    if unbounded:
        click.echo(
            f"warning: nothing bounds the partial matches of {unbounded} {'rule' if unbounded == 1 else 'rules'}\n"
            "  Hint: a window in the pattern, WITHIN in a clause, or maxPartialMatches"
        )


def all_good(rules: Sequence[Rule], schema: pa.Schema | None, semantics: Semantics) -> bool:
    """Report the problems of rules. Returns whether there are none."""
    good = True
    reported: dict[int, frozenset[tuple[int, int, str]]] = {}
    repeated = Counter[int]()
    """For each template: the problems that were reported last, and how many rules have the same ones."""
    for rule in rules:
        if rule.state == "older":
            continue
        name = f"{printable(rule.where)}: {_named(rule)}"
        if rule.call is not None:
            click.echo(f"{name}: ok, {one_line(rule.call[0], 200)} with {len(rule.call[1]):,} parameters")
            continue
        checked = _checked(rule, schema, semantics)
        problems = frozenset((problem.line, problem.column, problem.message) for problem in checked.problems)
        if rule.template is not None and problems and problems == reported.get(id(rule.template)):
            repeated[id(rule.template)] += 1
            good = False
            continue
        reported[id(rule.template)] = problems
        _report(rule, checked)
        if rule.twice is not None:
            click.echo(f"{name}: {printable(rule.twice)}")
        if checked.processor is None or rule.twice is not None:
            good = False
        else:
            off = f", {rule.state}" if rule.state in ("off", "shadow") else ""
            tests = len(rule.item.get("tests") or ())
            expires = checked.processor.expires
            until = "" if expires is None else f", expires {expires.isoformat()}"
            until += _adopts(checked.processor, rules, semantics)
            more = f", {tests} {'test' if tests == 1 else 'tests'}" if tests else ""
            click.echo(f"{name}: ok{off}, {_summary(rule, checked.processor)}{until}{more}")
    for rule in rules:
        if rule.template is not None and (count := repeated.pop(id(rule.template), 0)):
            template = one_line(str(rule.template.get("id")), 200)
            click.echo(f"{printable(rule.where)}: template {template}: the same problems in {count:,} more rules")
    return good


def _adopts(processor: PatternProcessor, rules: Sequence[Rule], semantics: Semantics) -> str:
    """What a rule adopts of the version that it replaces, if that is among the *rules*."""
    from asterism.rules.checking.adoption_plan import adopted_version, adoption_text

    if processor.adopt is None:
        return ""
    versions = []
    for rule in rules:
        if rule.id == processor.id and rule.call is None:
            with suppress(AsterismError):
                versions.append(rule.processor())
    former = adopted_version(processor, versions)
    if former is None:
        which = "the version that it replaces" if processor.adopt < 0 else f"version {processor.adopt}"
        return f", adopts the partial matches of {which}"
    return ", " + one_line(adoption_text(processor, former, semantics), 1_000)


def _named(rule: Rule) -> str:
    return one_line(rule.id, 200) + ("" if rule.version is None else f" version {rule.version}")


def _report(rule: Rule, checked: CheckedProcessor) -> None:
    messages = [(problem, "") for problem in checked.problems] + [
        (warning, "warning: ") for warning in checked.warnings
    ]
    for problem, word in messages:
        click.echo(f"{printable(rule.where)}:{replace(problem, message=f'{_named(rule)}: {word}{problem.message}')}")
    if checked.more:
        click.echo(f"{printable(rule.where)}: {_named(rule)}: {checked.more:,} more problems")


def _checked(rule: Rule, schema: pa.Schema | None, semantics: Semantics) -> CheckedProcessor:
    from asterism.rules.checking.validation import CheckedProcessor, Problem, check_processor

    if rule.error is not None:
        return CheckedProcessor(
            None, [Problem(*rule.place(""), rule.error.message, rule.error.detail, rule.error.hint)]
        )
    return check_processor(rule.item, rule.place, schema, semantics)


@rules.command()
@at_source
def create(source: str, table: str) -> None:
    """Create the table for rules in a database. A SQLite file is created if it does not exist."""
    with errors_explained():
        from asterism.discovery.sources.sql_table import create_pattern_processor_table

        if "://" not in source:
            raise RuleSourceError(
                f"{source!r} is not the URL of a database", hint="`asterism rules add` creates a file"
            )
        create_pattern_processor_table(source, table)
        click.echo(f"table {table} created")


@rules.command()
@at_source
@click.argument("file", type=RuleFile(exists=True))
@click.option("--shadow", is_flag=True, help="Add them as shadows, which run beside the versions in force.")
@sigma_options
@click.option("--eql", "is_eql", is_flag=True, help="The rules are queries in EQL.")
def add(
    source: str, table: str, file: str, shadow: bool, sigma: SigmaOptions | None, is_translated: bool, is_eql: bool
) -> None:
    """Add the rules in FILE, all or none: new rules, and new versions of existing ones.

    With --sigma, FILE is a file or a folder of Sigma rules. With --eql, it is a file or a folder of queries in EQL (.eql) and of
    detection rules of Elastic (.toml). The rules that can be used are added as they are written; the others are reported with
    file and reason, and the exit status is 1. A rule that has changed gets the next version.

    A version with a timestamp later than those of the existing versions waits for its time beside them. Any other new version
    replaces them: in a file they are removed, and in a database they are kept, and the highest enabled version is in force. The
    same applies to shadows. A rule with the version of its shadow promotes it.
    """
    with errors_explained():
        if sigma is not None and is_eql:
            raise PatternProcessorError("--sigma and --eql exclude each other")
        refused = 0
        additions: list[Addition] | None
        if sigma is not None:
            additions, refused = sigma_additions(file, sigma, is_translated=is_translated)
        elif is_eql:
            additions, refused = eql_additions(file)
        else:
            additions = additions_in(file)
        if additions is not None:
            numbered = sigma is None and not is_eql
            for message in rules_of(source, table).add(additions, as_shadows=shadow, numbered=numbered):
                click.echo(printable(message))
    if additions is None or refused:
        sys.exit(1)


def additions_in(file: str) -> list[Addition] | None:
    """The rules in a file; None, after a message, if one is invalid."""
    from asterism.discovery.editing.kept_rules import twice_text
    from asterism.discovery.editing.rule_set import Addition, fits_others

    rules = rules_of(file, "").all()
    checked = [_checked(rule, None, Semantics.DEFAULT) for rule in rules]
    good = all(checked_rule.processor is not None for checked_rule in checked)
    versions: dict[Slot, list[Rule]] = {}
    for rule, checked_rule in zip(rules, checked, strict=True):
        _report(rule, checked_rule)
        others = versions.setdefault(rule.slot, [])
        if not fits_others(rule, others):
            click.echo(f"{printable(rule.where)}: {_named(rule)}: {twice_text(rule, others[0])}")
            good = False
        others.append(rule)
    if not good:
        return None
    additions: dict[int, Addition] = {}
    for rule, checked_rule in zip(rules, checked, strict=True):
        if rule.template is None:
            additions[id(rule.item)] = Addition(rule.item, checked_rule.processor)
        else:
            additions.setdefault(id(rule.template), Addition(rule.template))
    return list(additions.values())


@rules.command()
@at_source
@rule_ids
@click.option("--version", type=int, help="Remove only this version.")
def remove(source: str, table: str, ids: Sequence[str], version: int | None) -> None:
    """Remove rules, with all their versions and shadows. If one of them does not exist, none is removed."""
    _change(source, table, ids, lambda kept, ids: kept.remove(ids, version))


@rules.command()
@at_source
@rule_ids
@click.option("--version", type=int, help="Disable only this version.")
def disable(source: str, table: str, ids: Sequence[str], version: int | None) -> None:
    """Disable rules and their shadows: they stay in the source, and queries stop using them."""
    _change(source, table, ids, lambda kept, ids: kept.disable(ids, version))


@rules.command()
@at_source
@rule_ids
@click.option(
    "--version",
    type=int,
    help="Enable this version; higher versions are disabled.  [default: what was in use when the rule was disabled]",
)
def enable(source: str, table: str, ids: Sequence[str], version: int | None) -> None:
    """Enable rules and their shadows."""
    _change(source, table, ids, lambda kept, ids: kept.enable(ids, version))


@rules.command()
@at_source
@rule_ids
def promote(source: str, table: str, ids: Sequence[str]) -> None:
    """Replace rules by their shadows. Queries continue the shadows with their partial matches.

    In a database, higher versions and other shadows of the rule are disabled.
    """
    _change(source, table, ids, lambda kept, ids: kept.promote(ids))


def _change(
    source: str, table: str, ids: Sequence[str], change: Callable[[KeptRules, Sequence[str]], Sequence[str]]
) -> None:
    with errors_explained():
        for message in change(rules_of(source, table), list(dict.fromkeys(ids))):
            click.echo(printable(message))


def query_store(checkpoint: str) -> FolderStore:
    from asterism.rules.sets.set_store import store_at

    return store_at(checkpoint)


@rules.command()
@click.argument("checkpoint", metavar="CHECKPOINT|URL")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(checkpoint: str, as_json: bool) -> None:
    """Show the rules of a query, with their states and counts, the state of their discovery, and the last lines of its log.

    URL is that of the query's endpoint; the environment variable ASTERISM_TOKEN contains its token. The exit status is 1 if
    the discovery is interrupted, or if the query no longer reports its status.
    """
    with errors_explained():
        from asterism.rules.sets.discovery_status import INTERRUPTED, STALE

        reported = _status_at(checkpoint)
        if as_json:
            click.echo(reported.to_bytes())
        else:
            _show_status(reported)
    if reported.state in (INTERRUPTED, STALE):
        sys.exit(1)


def _status_at(place: str) -> Status:
    if not place.startswith(("http://", "https://")):
        return query_store(place).read_status()
    from asterism.discovery.sources.url import Endpoint

    return Endpoint(place, os.environ.get("ASTERISM_TOKEN")).status()


def _show_status(status: Status) -> None:
    click.echo(f"{status.state} since {status.since or '-'}" + ("" if status.error is None else f": {status.error}"))
    click.echo(f"last successful poll: {status.last_poll or '-'}, last heartbeat: {status.alive or '-'}")
    shadows = f", {len(status.shadows):,} shadows" if status.shadows else ""
    click.echo(f"set {status.version}: {len(status.processors):,} rules{shadows}")
    rows: list[list[Cell]] = []
    for rule in status.rules:
        state = f"{rule.state} in {rule.disabled_groups} key groups" if rule.disabled_groups else rule.state
        version = "" if rule.version is None else str(rule.version)
        colored = one_line(state, 200), _STATE_COLORS.get(rule.state, "")
        of_version = rule.matches, rule.shadow_matches, rule.timed_out, rule.errors, rule.events
        numbers = *of_version, rule.partial_matches, rule.adopted, rule.not_adopted
        counts = (str(count or "") for count in numbers)
        since, last = (one_line(time[:19], 200) for time in (rule.begins or rule.since, rule.last_match))
        rows.append([one_line(rule.id, 200), version, colored, since, *counts, last])
    if rows:
        counted = ("matches", "as shadow", "timed out", "errors", "events", "partial", "adopted", "not adopted")
        optional = ("as shadow", "adopted", "not adopted")
        print_table(("id", "version", "state", "since", *counted, "last match"), rows, optional=optional)
    for name, lookup in status.lookups.items():
        click.echo(
            f"lookup {name}: {lookup.rows:,} rows since set {lookup.version}, last read: {lookup.read_at or '-'}"
        )
        if lookup.error is not None:
            click.echo(f"lookup {name}: the new rows cannot be used: {one_line(lookup.error, 1000)}")
    if status.missed:
        click.echo(f"the counts do not include {status.missed} micro-batches")
    for rule in status.rules:
        if rule.state == "disabled":
            where = f" in the key groups {', '.join(map(str, rule.groups))}" if rule.groups else ""
            where += " and others" if rule.groups and len(rule.groups) < rule.disabled_groups else ""
            name = f"{one_line(rule.id, 200)}@{rule.version}{where}"
            click.echo(f"disabled: {name}: {one_line(rule.reason or '', 1000)}")
    for what, reasons in (("refused", status.refused), ("killed", status.killed)):
        for name, reason in reasons.items():
            click.echo(f"{what}: {one_line(name, 220)}: {one_line(reason, 1000)}")
    for line in status.log:
        click.echo(f"log: {one_line(line, 2000)}")


@rules.command()
@click.argument("checkpoint")
@click.argument("id", required=False)
@click.option("--last", type=click.IntRange(1), default=50, show_default=True, help="Show the last N entries.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line, with the definitions of versions."
)
def history(checkpoint: str, id: str | None, last: int, as_json: bool) -> None:
    """Show what has changed in the rules of a query: when, what, by whom, from where, and what was refused.

    With ID: only this rule.
    """
    with errors_explained():
        entries = deque(
            (entry for entry in query_store(checkpoint).history().entries() if id is None or entry.is_about(id)), last
        )
        if as_json:
            for entry in entries:
                click.echo(json.dumps(entry.to_dict()))
        else:
            _show_history(entries)


def _show_history(entries: Collection[HistoryEntry]) -> None:
    rows = []
    for entry in entries:
        versions = [str(version) for version in dict.fromkeys((entry.before, entry.version)) if version is not None]
        place = (entry.place or "").rpartition("/")[2]
        texts = (entry.id, entry.what, " -> ".join(versions), entry.by or "", place, entry.reason or "")
        rows.append([entry.time[:19], str(entry.set), *(one_line(text, 200) for text in texts)])
    if rows:
        optional = ("by", "from", "reason")
        print_table(("time", "set", "id", "what", "version", *optional), rows, optional=optional)
    else:
        click.echo("no changes")


@rules.command()
@click.argument("checkpoint")
@click.argument("names", nargs=-1, required=True, metavar="ID[@VERSION]...")
@click.option("--reason", help="The reason, for the status and the log of the query.")
def kill(checkpoint: str, names: Sequence[str], reason: str | None) -> None:
    """Exclude rules from one query, regardless of their source.

    A running query drops them within seconds. If a rule has made a query fail, the query can be restarted without it, also in
    the micro-batch that failed. ID means all versions, ID@VERSION a single version. If an ID itself ends in @ and a number,
    or in @, append another @.
    """
    with errors_explained():
        from asterism.discovery.editing.editing import local_user
        from asterism.rules.sets import kill_list

        store = query_store(checkpoint)
        kill_list.kill(store, names, reason, by=local_user())
        known = [processor for processor_set in store.retained() for processor in processor_set.processors]
        for name in names:
            named = [processor for processor in known if kill_list.is_named(processor, [name])]
            remark = "" if named else "; no rule in force has this name, so it has no effect yet"
            if any(processor.id == name and processor not in named for processor in known):
                remark += f"; the rule whose id is {name!r} is {name + '@'!r}"
            click.echo(f"{printable(name)} killed{printable(remark)}")


@rules.command()
@click.argument("checkpoint")
@click.argument("names", nargs=-1, required=True, metavar="ID[@VERSION]...")
def unkill(checkpoint: str, names: Sequence[str]) -> None:
    """Re-enable killed rules: with their next version, or after they are disabled and enabled in their source."""
    with errors_explained():
        from asterism.rules.sets import kill_list

        kill_list.unkill(query_store(checkpoint), names)
        for name in names:
            click.echo(f"{printable(name)} is admitted again, with its next version")


@rules.command()
@click.argument("checkpoint")
def killed(checkpoint: str) -> None:
    """Show the killed rules, with times and reasons."""
    with errors_explained():
        kills = query_store(checkpoint).killed()
        for name, entry in kills.items():
            click.echo(f"{one_line(name, 220)}, since {one_line(entry.since, 40)}: {one_line(entry.reason, 1000)}")
        if not kills:
            click.echo("no rules")
