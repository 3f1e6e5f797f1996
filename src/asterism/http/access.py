"""Tokens: who may read, and who may change."""

from __future__ import annotations

import enum
import hmac
from dataclasses import dataclass

from asterism.http.listening import hash_of, hash_of_token
from asterism.http.messages import AnswerError, Request


class Right(enum.Enum):
    READ = "read"
    """See rules, and try them on events."""
    WRITE = "write"
    """Change rules, and run backtests."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request: the name of the token, which is the author of changes, and its rights."""

    name: str
    rights: frozenset[Right]

    @property
    def author(self) -> str | None:
        """The author of changes; None: unknown."""
        return None if self is ANYONE else self.name


ANYONE = Principal("local", frozenset(Right))
"""Without tokens: everyone on this machine."""


@dataclass(frozen=True, slots=True)
class AccessToken:
    """:param digest: the SHA-256 hash of the secret"""

    principal: Principal
    digest: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """:param tokens: the known tokens; None: requests need none"""

    tokens: tuple[AccessToken, ...] | None = None

    def principal(self, request: Request) -> Principal:
        """:raises AnswerError: the request does not have a known token"""
        if self.tokens is None:
            return ANYONE
        digest = hash_of_token(request.headers)
        holder = None
        # All tokens are compared, so that the duration does not depend on the token.
        for token in self.tokens:
            if hmac.compare_digest(digest, token.digest):
                holder = token.principal
        if holder is None:
            raise AnswerError(401, "the token is missing or wrong", WWW_Authenticate="Bearer")
        return holder

    @classmethod
    def of_token(cls, token: str) -> Access:
        """One token with all rights, whose owner is not known."""
        return cls((AccessToken(ANYONE, hash_of(token)),))
