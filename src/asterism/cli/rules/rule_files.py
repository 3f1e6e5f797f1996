"""Rules in files, as arguments of commands that otherwise take the file of a pattern: ``rules.yaml#brute-force``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from asterism.errors import StreamDefinitionError
from asterism.text.printable import one_line

if TYPE_CHECKING:
    from asterism.discovery.editing.kept_rules import Rule
    from asterism.rules.definition.processor import PatternProcessor

_MAX_IDS = 20
"""The maximum number of ids that a message lists."""


@dataclass(frozen=True, slots=True)
class RuleInFile:
    """A rule of a file, or of a folder of such files.

    :param id: its id, or ``id@version``. An id alone means the version that is not a shadow, if there are both.
    """

    file: Path
    id: str

    def __str__(self) -> str:
        return f"{self.file}#{self.id}"

    def read(self) -> Rule:
        """The rule as it is stored."""
        from asterism.discovery.editing.editing import rules_at
        from asterism.discovery.sources.documents import WHOLE

        kept = rules_at(str(self.file)).all()
        matching = [rule for rule in kept if rule.id == self.id]
        matching = matching or [rule for rule in kept if f"{rule.id}@{rule.version}" == self.id]
        if not matching:
            unreadable = next((rule.error for rule in kept if rule.id == WHOLE and rule.error is not None), None)
            if unreadable is not None:
                raise unreadable
            ids = [one_line(rule.id, 60) for rule in kept[:_MAX_IDS]]
            more = [f"and {len(kept) - _MAX_IDS:,} more"] if len(kept) > _MAX_IDS else []
            raise StreamDefinitionError(
                f"{self.file} has no rule {self.id!r:.220}", f"Rules: {', '.join([*ids, *more]) or 'none'}"
            )
        if len(matching) > 1:
            matching = [rule for rule in matching if not rule.shadow] or matching
        if len(matching) > 1:
            names = list(dict.fromkeys(one_line(f"{rule.id}@{rule.version}", 220) for rule in matching))
            hint = f"name a version: {', '.join(names[:_MAX_IDS])}" if len(names) > 1 else None
            raise StreamDefinitionError(f"{self.file} has {len(matching):,} rules {self.id!r:.220}", hint=hint)
        return matching[0]

    def processor(self) -> PatternProcessor:
        """The rule, without its timestamp, and not as a shadow."""
        return replace(self.read().processor(), timestamp=None, expires=None, shadow=False)


class PatternFile(click.ParamType[Path | RuleInFile]):
    """A file, or FILE#ID: a rule in a file."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | RuleInFile:
        if isinstance(value, Path | RuleInFile):
            return value
        path = Path(value)
        if path.is_file():
            return path
        # Names of files and ids may contain "#".
        for at in (number for number, letter in enumerate(value) if letter == "#"):
            file, id = Path(value[:at]), value[at + 1 :]
            if at and id and file.exists():
                return RuleInFile(file, id)
        problem = "is a directory" if path.is_dir() else "does not exist"
        return self.fail(f"File '{value}' {problem}.", param, ctx)


pattern_or_rule_argument = click.argument("pattern", type=PatternFile())


def key_columns(processor: PatternProcessor, given: Sequence[str]) -> Sequence[str]:
    """The columns of the key of a rule, unless others are *given*. Its expressions must be columns."""
    from sqlglot import exp

    from asterism.expressions.parsing import parse
    from asterism.rules.checking.validation import key_and_measures

    key = key_and_measures(processor)[0] or ()
    if given or not key:
        return given
    trees = [parse(text) for text in key]
    wrong = [text for text, tree in zip(key, trees, strict=True) if not isinstance(tree, exp.Column) or tree.table]
    if wrong:
        raise StreamDefinitionError(
            f"the key of the rule is not a column: {one_line(wrong[0], 200)}",
            hint="choose the events with --key-column and --key",
        )
    return [tree.name for tree in trees]
