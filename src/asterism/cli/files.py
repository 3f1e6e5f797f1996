"""The input files of commands: patterns, and events by format."""

from __future__ import annotations

from pathlib import Path

from asterism.errors import StreamDefinitionError

FORMATS = {".csv": "csv", ".csv.gz": "csv", ".jsonl": "json", ".jsonl.gz": "json", ".parquet": "parquet"}
"""Formats, by the suffix of the file name."""


def files_of(path: Path) -> tuple[str, list[Path]]:
    """The format of a file, or of the files in a folder, and the list of files in the order of their names.

    :raises StreamDefinitionError: there is no file in a supported format, or there are several formats
    """
    files = [file for file in sorted(path.iterdir()) if file.name[0] not in "._"] if path.is_dir() else [path]
    by_end = {end: [file for file in files if file.name.endswith(end)] for end in FORMATS}
    ends = sorted(end for end, named in by_end.items() if named)
    formats = {FORMATS[end] for end in ends}
    if len(formats) != 1:
        problem = f"it has files of several formats ({', '.join(ends)})" if formats else "no file in a supported format"
        raise StreamDefinitionError(f"{path}: {problem}", hint=f"supported formats: {', '.join(FORMATS)}")
    return formats.pop(), sorted(file for named in by_end.values() for file in named)


def read_pattern_file(file: Path) -> bytes:
    """The content of the file, cut one byte above the maximum size, so that a file that is too large is detected."""
    from asterism.text.strict_json import MAX_BYTES

    try:
        with file.open("rb") as content:
            return content.read(MAX_BYTES + 1)
    except OSError as error:
        raise StreamDefinitionError(f"{file} cannot be read", error.strerror) from None
