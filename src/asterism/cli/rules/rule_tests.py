"""The command ``asterism rules test``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from asterism.cli.common.terminal import errors_explained, semantics_option, status_line, udfs_file_option
from asterism.errors import AsterismError, RuleNotFoundError, printable
from asterism.patterns.semantics import Semantics
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from asterism.discovery.editing.kept_rules import Rule
    from asterism.expressions.routines.user_functions import UserFunctions


@click.command(name="test")
@click.argument("source")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@semantics_option("The semantics: those of the library, or exactly those of Flink.")
@udfs_file_option
def run_tests(source: str, ids: Sequence[str], semantics: str, udfs: UserFunctions | None) -> None:
    """Run the tests that are written beside rules, in their field "tests". Spark is not required.

    The exit status is 1 if a test fails or if a rule is invalid. With ID, only the tests of these rules run.

    \b
    asterism rules test rules.yaml
    """
    with errors_explained():
        from asterism.discovery.editing.editing import rules_at

        rules = [rule for rule in rules_at(source).all() if rule.state != "older" and rule.call is None]
        unknown = [id for id in ids if id not in {rule.id for rule in rules}]
        if unknown:
            raise RuleNotFoundError(f"there is no processor {unknown[0]!r:.220}")
        counts: Counter[str] = Counter()
        with status_line("testing"):
            for rule in rules:
                if not ids or rule.id in ids:
                    counts += _run(rule, Semantics(semantics), udfs)
    words = [f"{counts[what]:,} {what}" for what in ("passed", "failed", "invalid", "without tests") if counts[what]]
    click.echo(", ".join(words) or "no rules")
    if counts["failed"] or counts["invalid"]:
        sys.exit(1)


def _run(rule: Rule, semantics: Semantics, udfs: UserFunctions | None) -> Counter[str]:
    """Run the tests of a rule and report failures. Returns the numbers of tests, and of rules without tests or with errors."""
    from asterism.rules.definition.rule_tests import read_tests
    from asterism.testing.rule_harness import run_rule_test

    id = f"{rule.id}@{rule.version}" if rule.shadow else rule.id
    name = f"{printable(rule.where)}: {one_line(id, 220)}"
    try:
        processor = rule.processor()
        tests = read_tests(rule.item.get("tests") if isinstance(rule.item, Mapping) else None)
    except AsterismError as error:
        click.echo(f"{name}: {one_line(str(error), 1000)}")
        return Counter(invalid=1)
    if not tests:
        return Counter({"without tests": 1})
    counts: Counter[str] = Counter()
    for test in tests:
        result = run_rule_test(processor, test, semantics, udfs=udfs)
        counts["passed" if result.passed else "failed"] += 1
        if not result.passed:
            click.echo(f"{name}: {one_line(test.name, 200)}: failed")
            for line in result.failure:
                click.echo(f"  {printable(line)}")
    if counts["failed"]:
        place = f"{printable(rule.where)}#{one_line(id, 220)}"
        click.echo(f"  Hint: asterism trace {place!r} --input EVENTS shows event by event why there is no match")
    return counts
