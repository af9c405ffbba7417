"""Access to the service: hosts, origins and tokens, over HTTP and WebSocket."""

from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from assay.core.http import Guard, is_loopback
from assay.crafter.service.app import ServiceSettings, running

from .calls import ENV, ask, raw

TOKEN = "a-secret.for/tests=="


def handshake(
    address: str, *, origin: str | None = None, headers: dict[str, str] | None = None
) -> int:
    """Return the HTTP status of a WebSocket handshake."""
    url = address.replace("http://", "ws://") + f"{ENV}/ws"
    chosen = None if origin is None else Origin(origin)
    try:
        with connect(url, origin=chosen, additional_headers=headers or {}):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:1", "127.0.0.1:8901", "[::1]:8901", "LOCALHOST", "127.0.0.5"],
)
def test_loopback_host_names_are_accepted(address: str, host: str) -> None:
    assert ask(address, "/health", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "evil.example:8901", "10.0.0.1", ""),
        *("127.0.0.1.evil.example", "a@localhost@b", "[::1", "localhost:port", "0x7f.1"),
        *("evil.example@localhost", "localhost/evil", "localhost?"),
    ],
)
def test_other_host_names_are_forbidden(address: str, host: str) -> None:
    for path in ("/health", "/openapi.json", f"{ENV}/metadata"):
        answer = ask(address, path, headers={"Host": host})
        assert (answer.status, answer.json["code"]) == (403, "forbidden")


def test_a_request_without_a_host_or_with_two_is_forbidden(address: str) -> None:
    assert b" 403 " in raw(address, b"GET /health HTTP/1.0\r\n\r\n")
    two = b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n"
    assert b" 403 " in raw(address, two)


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://localhost:1", "https://localhost"),
        *("file://", "http://localhost.evil.example", "//", "http://[", "evil"),
    ],
)
def test_other_origins_are_forbidden(address: str, origin: str) -> None:
    answer = ask(address, f"{ENV}/initialize", {}, headers={"Origin": origin})
    assert (answer.status, answer.json["code"]) == (403, "forbidden")
    assert handshake(address, origin=origin) == 403


def test_own_origin_is_accepted(address: str) -> None:
    assert ask(address, f"{ENV}/initialize", {}, headers={"Origin": address}).status == 200
    assert handshake(address, origin=address) == 101
    assert handshake(address) == 101
    assert handshake(address, origin=address.replace("//", "//evil.example@")) == 403


def test_socket_with_wrong_host_or_environment_is_rejected(address: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(address.replace("http://", "ws://") + "/env/Sokoban/ws").close()
    assert refused.value.response.status_code == 404
    assert b"CrafterClassic" in refused.value.response.body
    with pytest.raises(InvalidStatus) as refused:
        connect(address.replace("http://", "ws://") + "/nowhere").close()
    assert refused.value.response.status_code in (403, 404)


@pytest.fixture(scope="module")
def locked() -> Iterator[str]:
    with running(ServiceSettings(port=0, token=TOKEN)) as service:
        yield service.address


@pytest.mark.parametrize(
    "given",
    [
        *(None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"),
        *(f"Bearer {TOKEN[:-1]}", "Bearer é", f"Bearer {TOKEN} {TOKEN}"),
    ],
)
def test_requests_without_the_token_are_rejected(locked: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    answer = ask(locked, f"{ENV}/initialize", {}, headers=headers)
    assert (answer.status, answer.json["code"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.json["detail"]


def test_requests_with_the_token_are_accepted(locked: str) -> None:
    headers = {"Authorization": f"bearer {TOKEN}"}
    assert ask(locked, f"{ENV}/initialize", {}, headers=headers).status == 200
    assert handshake(locked, headers=headers) == 101
    assert handshake(locked) == 401


def test_routes_without_an_instance_need_no_token(locked: str) -> None:
    for path in ("/health", "/openapi.json"):
        assert ask(locked, path).status == 200


def test_public_service_accepts_ip_addresses_and_allowed_names() -> None:
    async def nothing(*_: object) -> None:
        raise AssertionError

    guard = Guard(nothing, host="0.0.0.0", allowed=["Box.lan"])
    assert all(
        guard._is_allowed_host(host) for host in ("10.1.2.3:8901", "[fe80::1]", "box.lan:1")
    )
    assert not guard._is_allowed_host("evil.example")
    assert not Guard(nothing, host="10.1.2.3")._is_allowed_host("10.1.2.4")
    assert [is_loopback(host) for host in ("localhost", "127.9.9.9", "::1")] == [True] * 3
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "box"))


def test_repr_of_settings_hides_the_token() -> None:
    assert TOKEN not in repr(ServiceSettings(token=TOKEN))
