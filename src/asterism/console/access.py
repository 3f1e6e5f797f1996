"""The file of tokens: who may read rules, and who may change them."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asterism.discovery.sources.documents import YAML, read_file
from asterism.errors import PatternProcessorError
from asterism.http.access import Access, AccessToken, Principal, Right
from asterism.http.listening import check_token, hash_of
from asterism.text.strict_json import DocumentSyntaxError, decode, text_of
from asterism.text.strict_yaml import read_yaml

MAX_TOKENS = 1_000
MAX_NAME = 100
_FIELDS = ("name", "rights", "secret", "sha256")
_HINT = 'tokens: [{name: ann, rights: [read, write], sha256: "..."}]'


def access_from(path: Path) -> Access:
    """Read a file of tokens, in JSON or YAML.

    :raises PatternProcessorError: it cannot be read, is invalid, or other users may read its secrets or write to it
    """
    try:
        mode = path.stat().st_mode
        content = read_file(path)
    except OSError as error:
        raise PatternProcessorError(f"{path} cannot be read", error.strerror) from None
    try:
        text = text_of(content, language="YAML" if path.suffix in YAML else "JSON")
        root = read_yaml(text)[0] if path.suffix in YAML else decode(text)
    except DocumentSyntaxError as error:
        # The detail could quote a secret.
        where = f", line {error.line} column {error.column}" if error.offset is not None else ""
        raise PatternProcessorError(f"{path}{where}: {error.message}", hint=_HINT) from None
    tokens = _tokens_in(root, path)
    has_secrets = any("secret" in token for token in root["tokens"])
    forbidden = stat.S_IWGRP | stat.S_IWOTH | (stat.S_IRGRP | stat.S_IROTH if has_secrets else 0)
    if os.name == "posix" and mode & forbidden:
        what = "read its secrets" if has_secrets else "change it"
        raise PatternProcessorError(
            f"other users may {what}: {path} has the permissions {stat.filemode(mode)}", hint=f"chmod 600 {path}"
        )
    return Access(tokens)


def _tokens_in(root: Any, path: Path) -> tuple[AccessToken, ...]:
    if not isinstance(root, Mapping) or list(root) != ["tokens"] or not isinstance(root["tokens"], Sequence):
        raise PatternProcessorError(f"{path} must contain an object with a list of tokens", hint=_HINT)
    items = root["tokens"]
    if isinstance(items, str) or not 1 <= len(items) <= MAX_TOKENS:
        raise PatternProcessorError(f"{path} must have 1 to {MAX_TOKENS:,} tokens", hint=_HINT)
    tokens = [_token_from(item, f"{path}: token {number}") for number, item in enumerate(items, 1)]
    for what, values in (
        ("name", [token.principal.name for token in tokens]),
        ("secret", [token.digest for token in tokens]),
    ):
        if len(set(values)) < len(values):
            raise PatternProcessorError(f"{path}: two tokens have the same {what}")
    return tuple(tokens)


def _token_from(item: Any, where: str) -> AccessToken:
    if not isinstance(item, Mapping):
        raise PatternProcessorError(f"{where} must be an object", hint=_HINT)
    unknown = [name for name in item if name not in _FIELDS]
    if unknown:
        raise PatternProcessorError(f"{where} has no field {unknown[0]!r:.60}", f"Fields: {', '.join(_FIELDS)}")
    name = item.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise PatternProcessorError(f"{where}: a name must be a string of 1 to {MAX_NAME:,} printable characters")
    rights, known = item.get("rights"), [right.value for right in Right]
    if not isinstance(rights, list) or not rights or any(right not in known for right in rights):
        raise PatternProcessorError(f"{where}: rights must be a list of {' and '.join(known)}")
    if "read" not in rights:
        raise PatternProcessorError(f"{where}: whoever may write must also be allowed to read")
    secret, digest = item.get("secret"), item.get("sha256")
    if (secret is None) == (digest is None):
        raise PatternProcessorError(f"{where} must have either a secret or its hash, sha256")
    if secret is not None:
        check_token(secret, f"{where}: a secret")
    if digest is not None and not (isinstance(digest, str) and re.fullmatch(r"[0-9a-fA-F]{64}", digest)):
        raise PatternProcessorError(f"{where}: sha256 must have 64 hexadecimal digits")
    hashed = hash_of(secret) if secret is not None else bytes.fromhex(str(digest))
    return AccessToken(Principal(name, frozenset(Right(right) for right in rights)), hashed)
