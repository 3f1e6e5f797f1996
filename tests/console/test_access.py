"""Tokens in files, and what they allow."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from asterism.console.access import access_from
from asterism.errors import PatternProcessorError
from asterism.http.access import ANYONE, Access, Right
from asterism.http.messages import AnswerError, Request

SECRET = "correct-horse-battery-staple"


def request(authorization: str | None) -> Request:
    return Request("GET", "/", {} if authorization is None else {"authorization": authorization})


def written(folder: Path, *tokens: dict[str, Any], mode: int = 0o600, name: str = "tokens.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"tokens": tokens}))
    path.chmod(mode)
    return path


def token(**fields: Any) -> dict[str, Any]:
    return {"name": "ann", "rights": ["read"], "secret": SECRET} | fields


def test_a_secret_or_its_hash_identifies_a_token(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"another-secret-of-the-team").hexdigest()
    other = {"name": "bob", "rights": ["read", "write"], "sha256": digest}
    for name in ("tokens.json", "tokens.yaml"):  # JSON is YAML, too
        access = access_from(written(tmp_path, token(), other, name=name))
        assert access.principal(request(f"Bearer {SECRET}")).name == "ann"
        assert access.principal(request("bearer another-secret-of-the-team")).rights == set(Right)
        for wrong in (None, "", "Bearer", "Bearer x", f"Basic {SECRET}", f"Bearer {SECRET}x", f"Bearer {digest}"):
            with pytest.raises(AnswerError) as caught:
                access.principal(request(wrong))
            assert caught.value.answer.status == 401
            assert caught.value.answer.headers["WWW-Authenticate"] == "Bearer"


def test_without_tokens_everyone_has_all_rights() -> None:
    assert Access().principal(request(None)) is ANYONE
    assert ANYONE.rights == set(Right)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o666])
def test_other_users_may_not_read_secrets(tmp_path: Path, mode: int) -> None:
    with pytest.raises(PatternProcessorError, match="other users may read its secrets"):
        access_from(written(tmp_path, token(), mode=mode))


def test_other_users_may_read_hashes_and_may_not_change_them(tmp_path: Path) -> None:
    hashed = {"name": "ann", "rights": ["read"], "sha256": "0" * 64}
    assert access_from(written(tmp_path, hashed, mode=0o644)).tokens
    with pytest.raises(PatternProcessorError, match="other users may change it"):
        access_from(written(tmp_path, hashed, mode=0o664))


def test_no_message_has_a_secret(tmp_path: Path) -> None:
    for wrong in (
        token(rights=["all"]),
        token(name=""),
        token(more=1),
        token(sha256="0" * 64),
        token(secret=SECRET + " "),
    ):
        with pytest.raises(PatternProcessorError) as caught:
            access_from(written(tmp_path, wrong))
        assert SECRET not in str(caught.value)
    (tmp_path / "broken.json").write_text(f'{{"tokens": [{{"secret": "{SECRET}}}')
    with pytest.raises(PatternProcessorError) as caught:
        access_from(tmp_path / "broken.json")
    assert SECRET not in str(caught.value)
