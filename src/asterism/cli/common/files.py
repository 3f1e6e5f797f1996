"""The input files of commands: patterns, and events by format."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.errors import StreamDefinitionError
from asterism.patterns.semantics import Semantics

if TYPE_CHECKING:
    from asterism.row_patterns.clause.clause import DialectName
    from asterism.row_patterns.match_recognize import MatchRecognize


CHECKOUT = Path(__file__).parents[4]


def folder_with(name: str, *, in_checkout: str, in_wheel: str) -> Path | None:
    """The folder of the checkout in which this module is, or of the installed package *in_wheel*, if it has the file *name*."""
    folders = [CHECKOUT / in_checkout]
    installed = find_spec(in_wheel)
    if installed is not None:
        folders += map(Path, installed.submodule_search_locations or ())
    return next((folder for folder in folders if (folder / name).is_file()), None)


def read_pattern_file(file: Path) -> bytes:
    """The content of the file, up to one byte more than the maximum size, so that the reader detects a file that is too large."""
    from asterism.text.strict_json import MAX_BYTES

    try:
        with file.open("rb") as content:
            return content.read(MAX_BYTES + 1)
    except OSError as error:
        raise StreamDefinitionError(f"{file} cannot be read", error.strerror) from None


def is_sql_file(file: Path) -> bool:
    """Whether a file has a MATCH_RECOGNIZE clause, or a statement with such clauses, instead of a pattern in JSON."""
    return file.suffix.lower() == ".sql"


def dialect_for(semantics: str) -> DialectName:
    """The dialect of clauses for a value of ``--semantics``."""
    return "flink" if Semantics(semantics) is Semantics.FLINK else "standard"


def read_clauses(file: Path, semantics: str) -> list[MatchRecognize]:
    """The clauses of a file. Errors have the position in it."""
    from asterism.row_patterns.statements import clauses_in
    from asterism.text.strict_json import DocumentSyntaxError, text_of

    try:
        text = text_of(read_pattern_file(file), language="SQL")
    except DocumentSyntaxError as error:
        raise StreamDefinitionError(f"{file}: {error.message}", error.detail, error.hint) from None
    return [clause for _, clause in clauses_in(text, dialect_for(semantics))]


def only_clause(clauses: Sequence[MatchRecognize], file: object) -> MatchRecognize:
    """The clause of a file that must have only one."""
    if len(clauses) > 1:
        raise StreamDefinitionError(f"{file} has {len(clauses):,} clauses", hint="a file with one of them")
    return clauses[0]
