"""The shared part of the servers of this library, the endpoint of a query and the console: who may reach them, how they listen,
and the tokens of requests.
"""

from __future__ import annotations

import hashlib
import importlib.util
import ipaddress
import re
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from asterism.errors import MissingPackageError, PatternProcessorError, RuleSourceError

MIN_TOKEN = 16


def check_token(token: Any, what: str) -> None:
    """The message does not contain the token.

    :raises PatternProcessorError: *token* is not a string, is too short, or cannot be sent in a header
    """
    if not isinstance(token, str) or not re.fullmatch(rf"[!-~]{{{MIN_TOKEN},}}", token):
        raise PatternProcessorError(
            f"{what} must have at least {MIN_TOKEN} printable ASCII characters",
            hint='python -c "import secrets; print(secrets.token_urlsafe())"',
        )


def hash_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def hash_of_token(headers: Mapping[str, str]) -> bytes:
    """The SHA-256 hash of the token that a request has sent; of an empty token, if it has none.

    :param headers: by name in lower case
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return hash_of(token.strip() if scheme.lower() == "bearer" else "")


def is_loopback(host: str) -> bool:
    """Whether an address or a name can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_server(what: str, host: str, certificate: object, private_key: object) -> None:
    """
    :param what: the server, for the message
    :raises PatternProcessorError: there is a key without a certificate, or tokens would be sent unencrypted
    :raises MissingPackageError: h11 is not installed
    """
    if importlib.util.find_spec("h11") is None:
        raise MissingPackageError(f"{what} needs h11, which is not installed", hint="pip install 'asterism[http]'")
    if certificate is not None:
        return
    if private_key is not None:
        raise PatternProcessorError(
            "there is a private key, but no certificate", hint="add the file with the certificate chain"
        )
    if not is_loopback(host):
        raise PatternProcessorError(
            f"on {host}, tokens would be sent unencrypted",
            hint="use a certificate, or listen on 127.0.0.1 behind an HTTPS proxy",
        )


def address_of(host: str, port: int, *, encrypted: bool) -> str:
    """
    >>> address_of("::1", 8473, encrypted=False)
    'http://[::1]:8473'
    """
    return f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def listening_socket(host: str, port: int) -> socket.socket:
    """:raises PatternProcessorError: the address cannot be used"""
    is_ipv6 = ":" in host
    try:
        return socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
            dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, OverflowError) as error:
        raise RuleSourceError(f"cannot listen on {host}:{port}", str(error)) from None


def tls_context(certificate: Path | None, private_key: Path | None) -> ssl.SSLContext | None:
    """The context of a server with a certificate; None: without one.

    :raises PatternProcessorError: the certificate or its key cannot be used
    """
    if certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, private_key)
    except OSError as error:
        raise RuleSourceError(f"the certificate {certificate} cannot be used", str(error)) from None
    return context
