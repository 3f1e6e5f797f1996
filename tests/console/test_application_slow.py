"""Requests to a console of a database can have anything in their fields."""

from __future__ import annotations

from pathlib import Path

from asterism.discovery import create_pattern_processor_table
from tests.console.test_application import check_fields


def test_a_field_of_a_request_can_be_anything(tmp_path: Path) -> None:
    source = f"sqlite:///{tmp_path / 'rules.db'}"
    create_pattern_processor_table(source)
    check_fields(source, tmp_path)
