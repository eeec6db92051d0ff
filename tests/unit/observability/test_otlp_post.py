"""One POST under one limit, to the configured address and to no other."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support.otlp_receiver import Mode, receiving
from tests.support.ports import free_port
from tests.support.shipping import settings
from tests.unit.gateway.tls import CERTIFICATE, KEY
from weighbridge.config.errors import ConfigError
from weighbridge.observability.otlp_answer import LOGS, LONGEST_WAIT_S, Refused, TryLater, judge
from weighbridge.observability.otlp_post import Answer, Poster, PostLost

EMPTY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server of one connection that does what `answer` does once the request has begun to come."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            conn, _ = listener.accept()
            with conn:
                conn.recv(65536)
                answer(conn)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def post(url: str, limit_s: float = 5.0, body: bytes = b"x", **changes: Any) -> Answer:
    return Poster(settings(url, **changes), "1").post("/v1/logs", body, limit_s)


def lost(url: str, limit_s: float = 5.0, **more: Any) -> str:
    with pytest.raises(PostLost) as caught:
        post(url, limit_s, **more)
    return caught.value.fault


def says(*pieces: bytes) -> Callable[[socket.socket], None]:
    def answer(conn: socket.socket) -> None:
        for piece in pieces:
            conn.sendall(piece)

    return answer


def test_an_answer_comes_whole() -> None:
    with serving(
        says(b"HTTP/1.1 207 X\r\nContent-Type: a/b; c=d\r\ncontent-le", b"ngth: 4\r\n\r\nab", b"cd")
    ) as url:
        answer = post(url)
    assert (answer.status, answer.content_type, answer.body) == (207, "a/b", b"abcd")


def test_chunks_are_put_together() -> None:
    pieces = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"3\r\nabc\r\n1\r\nd\r\n", b"0\r\n\r\n"
    with serving(says(*pieces)) as url:
        assert post(url).body == b"abcd"


@pytest.mark.parametrize("status", [400, 500])
def test_what_follows_an_answer_changes_nothing_of_it(status: int) -> None:
    refusal = f"HTTP/1.1 {status} X\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\nno".encode()
    with serving(says(refusal + EMPTY)) as url:
        answer = post(url)
    assert (answer.status, answer.content_type, answer.body) == (status, "a/b", b"no")


def test_a_word_before_the_answer_is_passed_over() -> None:
    with serving(says(b"HTTP/1.1 100 Continue\r\n\r\n", EMPTY)) as url:
        assert post(url).status == 200
    with serving(says(b"HTTP/1.1 100 Continue\r\n\r\n" + EMPTY)) as url:
        assert post(url).status == 200


def test_an_answer_may_end_with_its_connection() -> None:
    with serving(says(b"HTTP/1.1 200 OK\r\n\r\nab")) as url:
        assert post(url).body == b"ab"


@pytest.mark.parametrize(
    "pieces",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx-some",
        b"HTTP/1.1 200 OK\r\nx: y\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab",
    ],
)
def test_an_answer_that_breaks_off_is_none(pieces: bytes) -> None:
    with serving(says(pieces)) as url:
        assert lost(url) == "cut"


@pytest.mark.parametrize(
    "pieces",
    [
        b"\x16\x03\x01\x02",
        b"220 mail.test ESMTP\r\n",
        b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
def test_what_is_no_http_is_malformed(pieces: bytes) -> None:
    with serving(says(pieces, b"\r\n\r\n")) as url:
        assert lost(url) == "malformed"


def test_an_answer_without_end_is_malformed() -> None:
    def endless(conn: socket.socket) -> None:
        conn.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                conn.sendall(b"x" * 65536)
        except OSError:
            return

    with serving(endless) as url:
        assert lost(url) == "malformed"


def test_drops_of_an_answer_do_not_stretch_the_limit() -> None:
    def drip(conn: socket.socket) -> None:
        try:
            for byte in b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100:
                conn.sendall(bytes((byte,)))
                time.sleep(0.02)
        except OSError:
            return

    began = time.monotonic()
    with serving(drip) as url:
        assert lost(url, 0.3) == "timeout"
        assert time.monotonic() - began < 1


def test_a_server_that_does_not_read_does_not_hold_us_up() -> None:
    release = threading.Event()
    with serving(lambda _: (release.wait(10), None)[1]) as url:
        began = time.monotonic()
        assert lost(url, 0.3, body=b"x" * (64 << 20), compression="none") == "timeout"
        assert time.monotonic() - began < 2
        release.set()


def test_a_refusal_before_the_request_was_read_is_heard() -> None:
    with serving(says(b"HTTP/1.1 413 X\r\ncontent-length: 0\r\n\r\n")) as url:
        assert post(url).status == 413


def test_nobody_there() -> None:
    assert lost(f"http://127.0.0.1:{free_port()}") == "connect"
    assert lost("http://no-such-host.invalid:4318") == "connect"


def test_no_proxy_and_no_redirect(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        receiver.mode = Mode(status=307, headers={"location": f"{proxy.url}/v1/logs"})
        assert post(receiver.url, body=b"", compression="none").status == 307
        assert proxy.requests == []
        assert len(receiver.requests) == 1


def test_a_post_can_be_ended_from_another_thread() -> None:
    came, release = threading.Event(), threading.Event()

    def hang(_: socket.socket) -> None:
        came.set()
        release.wait(10)

    with serving(hang) as url:
        poster = Poster(settings(url), "1")
        threading.Thread(target=lambda: (came.wait(10), poster.cut()), daemon=True).start()
        with pytest.raises(PostLost) as caught:
            poster.post("/v1/logs", b"x", 30)
        assert caught.value.fault == "cut"
        release.set()


# ---- TLS ----


@contextmanager
def over_tls(cert: Path, key: Path) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with receiving() as receiver:
        receiver._server.socket = context.wrap_socket(receiver._server.socket, server_side=True)
        yield f"https://localhost:{receiver.port}"


def test_the_certificate_is_checked(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    cert.write_text(CERTIFICATE)
    key.write_text(KEY)
    with over_tls(cert, key) as url:
        assert post(url, body=b"", compression="none", ca_file=str(cert)).status == 200
        assert lost(url) == "tls"
        assert lost(url.replace("localhost", "127.0.0.2"), ca_file=str(cert)) in ("tls", "connect")


def test_a_file_without_certificates_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    with pytest.raises(ConfigError, match=r"collector\.ca_file: .*ca\.pem cannot be used"):
        Poster(settings("https://localhost", ca_file=str(tmp_path / "ca.pem")), "1")


# ---- what answers mean ----


def answer(status: int, **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("-3", 0),
        ("1e9", LONGEST_WAIT_S),
        ("nan", 0),
        ("inf", 0),
        ("Thu, 01 Jan 1970 00:00:40 GMT", 30),
        ("Thu, 01 Jan 1970 00:00:04 GMT", 0),
        ("soon", 0),
        ("", 0),
    ],
)
def test_how_long_a_collector_asks_us_to_wait(text: str, seconds: float) -> None:
    with pytest.raises(TryLater) as caught:
        judge(LOGS, answer(503, retry_after=text), 1, 10.0)
    assert caught.value.after_s == seconds


@hypothesis_settings(deadline=None)
@given(st.binary(max_size=200), st.text(max_size=40), st.integers(100, 999), st.text(max_size=30))
def test_no_answer_is_more_than_a_trouble(body: bytes, kind: str, status: int, after: str) -> None:
    try:
        rejected = judge(LOGS, Answer(status, {"content-type": kind, "retry-after": after}, body), 3, 0.0)
    except TryLater as exc:
        assert 0 <= exc.after_s <= LONGEST_WAIT_S
    except Refused:
        assert status in (400, 413, 422)
    else:
        assert 200 <= status < 300
        assert 0 <= rejected <= 3
        assert not body or kind.strip().lower().startswith("application/")


@hypothesis_settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_that_call_themselves_json_or_protobuf(body: bytes) -> None:
    for kind in ("application/json", "application/x-protobuf"):
        try:
            assert 0 <= judge(LOGS, Answer(200, {"content-type": kind}, body), 3, 0.0) <= 3
        except TryLater as exc:
            assert exc.reason == "malformed"


def test_json_tells_what_was_rejected_too() -> None:
    for body in (
        b'{"partialSuccess":{"rejectedLogRecords":"2"}}',
        b'{"partialSuccess":{"rejectedLogRecords":2}}',
    ):
        assert judge(LOGS, Answer(200, {"content-type": "application/json"}, body), 3, 0.0) == 2
    assert judge(LOGS, Answer(200, {"content-type": "application/json"}, b"{}"), 3, 0.0) == 0
