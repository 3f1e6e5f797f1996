"""What the endpoint and the console have in common."""

from __future__ import annotations

import pytest

from asterism.errors import PatternProcessorError
from asterism.http.listening import address_of, check_server, check_token, hash_of, hash_of_token, is_loopback

TOKEN = "a-long-random-secret"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_addresses_of_this_machine(host: str) -> None:
    assert is_loopback(host)
    check_server("the server", host, None, None)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "rules.example.com", "localhost.example.com"])
def test_other_addresses_need_a_certificate(host: str) -> None:
    assert not is_loopback(host)
    check_server("the server", host, "chain.pem", "key.pem")
    with pytest.raises(PatternProcessorError, match="tokens would be sent unencrypted"):
        check_server("the server", host, None, None)


def test_a_long_token_is_accepted() -> None:
    check_token("x" * 5_000, "a token")


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer  {TOKEN} "])
def test_the_token_of_a_request(header: str) -> None:
    assert hash_of_token({"authorization": header}) == hash_of(TOKEN)


@pytest.mark.parametrize("headers", [{}, {"authorization": f"Basic {TOKEN}"}, {"authorization": TOKEN}])
def test_a_request_without_a_token(headers: dict[str, str]) -> None:
    assert hash_of_token(headers) == hash_of("")


def test_the_address_of_a_server() -> None:
    assert address_of("127.0.0.1", 80, encrypted=False) == "http://127.0.0.1:80"
    assert address_of("::1", 443, encrypted=True) == "https://[::1]:443"
