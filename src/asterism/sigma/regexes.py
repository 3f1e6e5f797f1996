"""The regular expressions of Sigma as those of Asterism, which begin with their flags and know no others than ``i``."""

from __future__ import annotations

from asterism.errors import PatternProcessorError

_ANY = "(?:.|\n|\r|\u0085|\u2028|\u2029)"


def regex_text(pattern: str, flags: str = "") -> str:
    r"""The pattern of RLIKE.

    :param flags: of ``i`` (letters of any case), ``m`` (``^`` and ``$`` also match at lines), ``s`` (``.`` matches line
        terminators); also at the beginning of the pattern, as in ``(?i)``
    :raises PatternProcessorError: a flag cannot be expressed

    >>> regex_text(r"cmd\.exe", "i")
    '(?i)cmd\\.exe'
    >>> regex_text("a.[.]", "s")
    'a(?:.|\n|\r|\x85|\u2028|\u2029)[.]'
    """
    while pattern.startswith("(?") and ")" in pattern and pattern[2 : pattern.index(")")].isalpha():
        end = pattern.index(")")
        flags, pattern = flags + pattern[2:end], pattern[end + 1 :]
    unknown = set(flags) - set("ims")
    if unknown:
        raise PatternProcessorError(f"the flag {min(unknown)!r} of a regular expression is not supported")
    written: list[str] = []
    in_class = escaped = False
    for letter in pattern:
        special = not escaped and not in_class
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif in_class:
            in_class = letter != "]"
        elif letter == "[":
            in_class = True
        if special and letter in "^$" and "m" in flags:
            raise PatternProcessorError(
                f"{letter} with the flag m (multi line) of a regular expression is not supported"
            )
        written.append(_ANY if special and letter == "." and "s" in flags else letter)
    return ("(?i)" if "i" in flags else "") + "".join(written)
