"""The version, the changelog and the tags agree."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tomllib
from datetime import date
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

import asterism

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
RELEASES = re.findall(r"^## \[(\d\S*)\] - (\S+)$", CHANGELOG, re.MULTILINE)
PARTS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Performance", "Security"}
CHANGES = {"0.1.0": "590e9b20536b3b5b"}
"""Digests of the sections of releases."""


def tags(*options: str) -> list[str]:
    """The tags of releases; none outside of a repository, as in the source distribution."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return []
    command = ["git", "tag", "--list", "v[0-9]*", *options]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()


def test_the_version_is_in_one_place() -> None:
    assert asterism.__version__ == VERSION == metadata.version("asterism")


def test_the_changelog_has_the_form_of_keep_a_changelog() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings == ["[Unreleased]", *(f"[{version}] - {day}" for version, day in RELEASES)]
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= PARTS
    order = [(Version(version), date.fromisoformat(day)) for version, day in RELEASES]
    assert order == sorted(order, reverse=True)


def test_a_merge_has_doubled_nothing_in_the_changelog() -> None:
    """Git joins the lines of both sides (``merge=union``)."""
    for release in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        lines = [line for line in release.splitlines() if line.startswith(("### ", "* "))]
        assert sorted(set(lines)) == sorted(lines), release.splitlines()[0]


def test_the_changes_of_a_release_stay() -> None:
    """An entry at the end of the file, where a merge puts it, would be in the oldest release."""
    sections = re.split(r"^## \[(\d\S*)\].*$", CHANGELOG, flags=re.MULTILINE)[1:]
    digests = {
        version: hashlib.sha256(section.strip().encode()).hexdigest()[:16]
        for version, section in zip(sections[::2], sections[1::2], strict=True)
    }
    assert digests == CHANGES


def test_the_version_is_that_of_the_newest_release_or_a_later_one() -> None:
    assert all(Version(version) <= Version(VERSION) for version, _ in RELEASES)


def test_each_tag_is_a_release_of_the_changelog() -> None:
    assert set(tags()) <= {f"v{version}" for version, _ in RELEASES}


@pytest.mark.parametrize("tag", tags("--points-at", "HEAD") or [None])
def test_the_tag_of_this_commit_is_that_of_the_version(tag: str | None) -> None:
    assert tag in (None, f"v{VERSION}")
