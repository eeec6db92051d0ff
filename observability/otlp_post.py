"""One POST to the collector, by a thread that may wait: every step of it under one limit.

Goes to the configured address and nowhere else: no redirect is followed and no proxy of the environment is used. A
connection is used once; a request carries hundreds of records, so that costs nothing.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httptools

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import CollectorSettings

PostFault = Literal["connect", "tls", "timeout", "cut", "malformed"]
"""connect: no connection. tls: none that can be trusted. timeout: not done in time. cut: it broke off. malformed: what
came is not HTTP, or far too long."""

_MOST_BYTES: Final = 1 << 20
"""Of an answer, head and body; a collector's has some hundred."""
_READ_BYTES: Final = 65_536


class PostLost(Exception):
    """No whole answer came; the request may have arrived. Holds no byte of what came."""

    def __init__(self, fault: PostFault) -> None:
        super().__init__(f"the request to the collector was lost: {fault}")
        self.fault: PostFault = fault


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; header names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Poster:
    """Posts to one collector. One post at a time.

    Raises:
        ConfigError: the certificates of `collector.ca_file` cannot be used.
    """

    def __init__(self, settings: CollectorSettings, version: str) -> None:
        url = urlsplit(settings.endpoint or "")
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._path = url.path
        self._authority = url.netloc
        self._gzip = settings.compression == "gzip"
        self._tls = _context(settings) if url.scheme == "https" else None
        self._fixed = "".join(
            f"{name}: {value}\r\n"
            for name, value in (
                ("content-type", "application/x-protobuf"),
                ("accept", "application/x-protobuf"),
                ("user-agent", f"weighbridge/{version}"),
                ("connection", "close"),
                *settings.header_lines.items(),
            )
        )
        self._socket: socket.socket | None = None

    def post(self, path: str, body: bytes, limit_s: float) -> Answer:
        """Post `body` to `path` below the endpoint.

        Args:
            limit_s: seconds for all of it. Only looking up a name may take longer: the system has its own limit.

        Raises:
            PostLost: see there.
        """
        due = time.monotonic() + limit_s
        if self._gzip:
            body = gzip.compress(body, compresslevel=5, mtime=0)
        packed = "content-encoding: gzip\r\n" if self._gzip else ""
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\nhost: {self._authority}\r\n{self._fixed}"
            f"{packed}content-length: {len(body)}\r\n\r\n"
        )
        try:
            with self._connected(due) as conn:
                _send(conn, head.encode("ascii") + body, due)
                return _read(conn, due)
        except TimeoutError:
            raise PostLost("timeout") from None
        except OSError:
            raise PostLost("cut") from None
        finally:
            self._socket = None

    def cut(self) -> None:
        """End the post under way, from another thread."""
        conn = self._socket
        if conn is not None:
            with contextlib.suppress(OSError):
                conn.shutdown(socket.SHUT_RDWR)

    def _connected(self, due: float) -> socket.socket:
        plain = self._socket = _connect(self._host, self._port, due)
        if self._tls is None:
            return plain
        try:
            plain.settimeout(_left(due))
            self._socket = self._tls.wrap_socket(plain, server_hostname=self._host)
        except (OSError, ValueError) as exc:
            plain.close()
            if isinstance(exc, TimeoutError):
                raise
            raise PostLost("tls") from None
        return self._socket


def _connect(host: str, port: int, due: float) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise PostLost("connect") from None
    for family, kind, protocol, _, address in found:
        conn = socket.socket(family, kind, protocol)
        try:
            conn.settimeout(_left(due))
            conn.connect(address)
        except TimeoutError:
            conn.close()
            raise
        except OSError:
            conn.close()
        else:
            return conn
    raise PostLost("connect")


def _context(settings: CollectorSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (ssl.SSLError, OSError) as exc:
        why = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise ConfigError(f"collector.ca_file: {settings.ca_file} cannot be used ({why})") from None


def _left(due: float) -> float:
    left = due - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _send(conn: socket.socket, data: bytes, due: float) -> None:
    view = memoryview(data)
    try:
        while view:
            conn.settimeout(_left(due))
            view = view[conn.send(view[:_READ_BYTES]) :]
    except (BrokenPipeError, ConnectionResetError):
        # A server may refuse a request before it has read it whole: its answer is worth reading.
        return


class _Reading:
    """An answer as httptools reads it."""

    def __init__(self) -> None:
        self._parser: Any = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self.pieces: list[bytes] = []
        self.headed = self.whole = False

    def feed(self, piece: bytes) -> None:
        """Raises: PostLost when it is not HTTP."""
        try:
            self._parser.feed_data(piece)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.whole:  # what follows a whole answer is nobody's
                raise PostLost("malformed") from None

    def on_message_begin(self) -> None:
        if not self.whole:  # the one before was a 100 Continue or its like
            self.headers, self.pieces, self.headed = {}, [], False

    # What follows a whole answer in the same bytes is nobody's: it must not make a refusal a consent.

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.whole:
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.whole:
            return
        self.status = self._parser.get_status_code()
        self.headed = self.status >= 200

    def on_body(self, piece: bytes) -> None:
        if not self.whole:
            self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.whole = self.whole or self.headed

    @property
    def ends_with_the_connection(self) -> bool:
        """Whether the body has no length of its own."""
        return self.headed and not self.headers.keys() & {"content-length", "transfer-encoding"}


def _read(conn: socket.socket, due: float) -> Answer:
    reading = _Reading()
    seen = 0
    while not reading.whole:
        conn.settimeout(_left(due))
        piece = conn.recv(_READ_BYTES)
        seen += len(piece)
        if not piece:
            if reading.ends_with_the_connection:
                break
            raise PostLost("cut")
        if seen > _MOST_BYTES:
            raise PostLost("malformed")
        reading.feed(piece)
    return Answer(reading.status, reading.headers, b"".join(reading.pieces))
