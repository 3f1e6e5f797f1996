"""Names of the columns that this library adds to the columns of a user.

They begin with one prefix, which is reserved: columns of a user with such names are refused where DataFrames come in. Stored
tables need no reserved names, because there the columns of a user have a prefix (``k:``, ``e:``).

See docs/decisions/0091.
"""

from __future__ import annotations

from collections.abc import Iterable

from asterism.errors import StreamDefinitionError

PREFIX = "__asterism_"


def internal(name: str) -> str:
    """The name of an internal column.

    >>> internal("key_hash")
    '__asterism_key_hash'
    """
    return PREFIX + name


def is_of_user(name: str) -> bool:
    """Whether it is not the name of an internal column."""
    return not name.startswith(PREFIX)


def check_not_internal(names: Iterable[str]) -> None:
    """:raises StreamDefinitionError: one of the *names* of columns of a stream is reserved, in upper or lower case"""
    for name in names:
        if name.lower().startswith(PREFIX):
            raise StreamDefinitionError(
                f"a column of the stream is named {name!r:.100}, and names that begin with {PREFIX} are reserved",
                "Asterism adds columns with such names.",
                f"rename it, for example to {name.lower().removeprefix(PREFIX) or 'column'!r:.100}",
            )
