"""``asterism docs``: pages are found as messages name them."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from asterism.cli.common import files
from asterism.cli.main import main
from tests.kit import ROOT


def output_of(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(main, ["docs", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


@pytest.mark.parametrize(
    ("page", "file"),
    [
        ("docs/limits.md", "docs/limits.md"),
        ("limits", "docs/limits.md"),
        ("docs/rules/operating.md#security", "docs/rules/operating.md"),
        ("docs/decisions/0069", "docs/decisions/0069-*.md"),
        ("docs/decisions/0128.", "docs/decisions/0128-*.md"),
        ("late_data", "docs/how_to/late_data.md"),
    ],
)
def test_a_page_is_found_by_the_names_that_messages_use(page: str, file: str) -> None:
    [path] = ROOT.glob(file)
    assert output_of(page).strip() == path.read_text(encoding="utf-8").strip()
    assert output_of(page, "--path").strip() == str(path)


def test_each_page_that_the_source_names_is_there() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for page in set(re.findall(r"(?<![/\w])docs/(?:decisions/\d{4}|[a-z_/]+\.md)", source)):
        output_of(page, "--path")


def test_pages_are_listed_and_searched() -> None:
    assert re.search(r"limits +│ +Limits", output_of())
    found = output_of("--search", "Allowed_Lateness")
    assert "windows" in found
    assert "allowed_lateness" in found


def test_a_page_that_does_not_exist_or_is_ambiguous(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no page 'nowhere'" in output_of("nowhere", exit_code=2)
    assert "'from_' may be one of differences_from_flink, " in output_of("from_", exit_code=2)
    monkeypatch.setattr(files, "CHECKOUT", ROOT / "nowhere")
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    assert "install Asterism from a wheel" in output_of("limits", exit_code=2)
