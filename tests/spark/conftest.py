"""A PostgreSQL server for the tests that need one."""

from tests.discovery.conftest import database, postgresql

__all__ = ["database", "postgresql"]
