"""Taking the socket, and the one line for when it cannot be had."""

from __future__ import annotations

import resource
import socket

import pytest

from weighbridge.gateway.listening import SEND_BUFFER_BYTES, StartError, bind, listen, reachable_url, room_for


def test_a_busy_port_is_one_clear_line() -> None:
    with bind("127.0.0.1", 0) as sock:
        listen(sock)
        port = sock.getsockname()[1]
        with pytest.raises(StartError) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == f"127.0.0.1:{port} is already in use"


def test_two_that_bind_at_the_same_moment_are_told_apart_when_they_listen() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port) as second:
            listen(first)
            with pytest.raises(StartError, match="is already in use"):
                listen(second)


@pytest.mark.parametrize(
    ("host", "why"),
    [("no-such-host.invalid", "host name is unknown"), ("192.0.2.1", "does not have that address")],
)
def test_an_address_that_is_not_ours(host: str, why: str) -> None:
    with pytest.raises(StartError, match=why) as caught:
        bind(host, 8080)
    assert "\n" not in str(caught.value)


def test_connections_are_refused_until_we_listen() -> None:
    with bind("localhost", 0) as sock:
        address = sock.getsockname()
        assert address[0] == "127.0.0.1"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        listen(sock)
        with socket.create_connection(address, timeout=5):
            accepted, _ = sock.accept()
            with accepted:
                # Linux doubles what it is asked for.
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 2 * SEND_BUFFER_BYTES


@pytest.mark.parametrize(
    ("host", "port", "tls", "url"),
    [
        ("127.0.0.1", 8080, False, "http://127.0.0.1:8080"),
        ("0.0.0.0", 80, False, "http://127.0.0.1:80"),
        ("::", 8080, True, "https://[::1]:8080"),
        ("::1", 8080, False, "http://[::1]:8080"),
        ("gateway.example", 443, True, "https://gateway.example:443"),
    ],
)
def test_the_url_to_try(host: str, port: int, tls: bool, url: str) -> None:
    assert reachable_url(host, port, tls) == url


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "room", "raised"),
    [
        (1024, 4096, 1000, 1000, 1512),
        (65_536, 65_536, 1000, 1000, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1000, 1000, None),
        (1024, resource.RLIM_INFINITY, 8192, 8192, 8704),
        (1024, 2048, 8192, 1536, 2048),
        (256, 256, 8192, 1, 256),
    ],
)
def test_there_is_room_for_as_many_connections_as_files_may_be_open(
    soft: int,
    hard: int,
    wanted: int,
    room: int,
    raised: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    assert room_for(wanted) == room
    assert asked == ([] if raised is None else [(raised, hard)])
    assert ("connections are taken" in caplog.text) == (room < wanted)
