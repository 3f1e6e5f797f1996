"""Rules in EQL as arguments of commands: ``asterism rules add SOURCE FOLDER --eql``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from asterism.errors import AsterismError, printable

if TYPE_CHECKING:
    from asterism.discovery.editing.rule_set import Addition


def eql_additions(path: str) -> tuple[list[Addition], int]:
    """The rules in EQL at *path* that can be used, and the number of the others, which are reported."""
    from asterism.discovery.editing.rule_set import Addition
    from asterism.discovery.sources.documents import paths_in
    from asterism.discovery.sources.file import LocalFiles
    from asterism.elastic.rule_files import SUFFIXES, document_of
    from asterism.rules.definition.processor import PatternProcessor, Slot
    from asterism.rules.sets.interfaces import Discovered, RefusedProcessor, unless_duplicate

    accepted: dict[Slot, list[PatternProcessor]] = {}
    additions: list[Addition] = []
    refused = 0
    contents = LocalFiles(Path(path).absolute(), lambda place: paths_in(place, SUFFIXES)).contents({})
    for name, content in contents.items():
        processor: Discovered
        try:
            if content.problem is not None:
                raise content.problem
            document = document_of(content.text, Path(name))
            item = {"id": document.pop("id"), "version": 0, **document}
            processor = unless_duplicate(replace(PatternProcessor.from_dict(item), place=name), accepted)
        except AsterismError as error:
            processor = RefusedProcessor(name, error)
        if isinstance(processor, PatternProcessor):
            additions.append(Addition(item, processor))
        else:
            refused += 1
            click.echo(printable(str(processor)))
    if refused:
        click.echo(f"{refused:,} of {len(additions) + refused:,} rules are refused")
    return additions, refused
