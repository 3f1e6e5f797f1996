"""The rules at a place, to see and to change them."""

from __future__ import annotations

import getpass
from contextlib import suppress
from pathlib import Path

from asterism.arguments import expect_string
from asterism.discovery.editing.edited_documents import FileRules, HttpRules
from asterism.discovery.editing.kept_rules import KeptRules
from asterism.discovery.editing.sigma_folder import SCHEME, SigmaRules
from asterism.discovery.editing.topic_rules import TopicRules
from asterism.discovery.sources.kafka_topic import topic_at
from asterism.discovery.sources.rows import TABLE
from asterism.discovery.sources.url import Endpoint
from asterism.errors import PatternProcessorError


def rules_at(
    source: str,
    table: str = TABLE,
    *,
    token: str | None = None,
    by: str | None = None,
    new_file: str | None = None,
) -> KeptRules:
    """The rules in a file, in a folder, in the database of a URL, or at the endpoint of a query; or in a topic or Sigma
    rules in a folder (``sigma:FOLDER``), which cannot be changed.

    :param token: the token of the endpoint
    :param by: who makes changes, for a database table with the column ``changed_by``
    :param new_file: of a folder: the name of the file to which rules are added that are in no file; None: they are refused
    :raises PatternProcessorError: the URL cannot be parsed, the table name is invalid, or there is no token
    """
    if source.startswith(("http://", "https://")):
        return HttpRules(Endpoint(source, token))
    if (topic := topic_at(source)) is not None:
        return TopicRules(*topic)
    if source.startswith(SCHEME):
        return SigmaRules(source)
    if "://" not in source:
        return FileRules(Path(source), new_file)
    from asterism.discovery.editing.edited_table import SqlRules  # imports SQLAlchemy
    from asterism.discovery.sources.database import Database, parsed_url

    expect_string(PatternProcessorError, table, "the table name must be a string", 'table="rules"')
    return SqlRules(Database(parsed_url(source)), table, by)


def local_user() -> str | None:
    """The name of the user of this process, who makes changes; None: a container may run as a user without a name."""
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return None
