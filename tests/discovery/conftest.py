"""One PostgreSQL server for all tests that need one; each gets a database of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.discovery.postgresql import NoServerError, Server

_numbers = count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    try:
        server = Server()
        server.start()
    except NoServerError as error:
        pytest.fail(str(error), pytrace=False)
    yield server
    server.remove()


@pytest.fixture
def database(postgresql: Server) -> str:
    """The URL of a new, empty database."""
    name = f"rules{next(_numbers)}"
    with postgresql.connect("postgres") as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgresql.address}/{name}"
