"""HTTP to a server of a tier elsewhere on the private network: one request under its time limits, and names that are
looked up and judged.

With `pool.http_session` and `pool.http_connection` all that this room speaks of HTTP. Every address that may not get
raw text is refused.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Collection
from functools import lru_cache
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import SecretStr

from weighbridge.pool.http_connection import Connection, ExchangeLost, LostKind
from weighbridge.pool.http_session import Session, Target, target_of
from weighbridge.pool.private_network import AddressRefused, is_trusted, may_get_text
from weighbridge.pool.threads import in_thread

__all__ = ["Exchange", "ExchangeLost", "LostKind", "Session", "ask", "open_session"]

_MAX_DOCUMENT_BYTES: Final = 32 * 1024 * 1024

_LOOKUPS: Final = 8
"""Names that are looked up at a time; the next one waits, and its connection's time limit with it."""

_STALE_S: Final = 0.5
"""A used connection that is lost so soon after a request was written on it, without a word, was closed by the server
for its idleness at that very moment: the request was not read and is sent again, once."""

_LAST_BYTES_S: Final = 1.0
"""Seconds the last bytes of an answer may take that is over, before its connection is given up."""

Resolver = AbstractResolver

NOTHING_SENT: Final = frozenset({"refused", "address", "connect"})
"""Kinds after which the server cannot have begun any work."""


class PrivateResolver(AbstractResolver):
    """Looks names up for a connection, and refuses those with any address outside the private network.

    Asked at every connect, so a name that changes its mind after the first look gains nothing.

    Args:
        inner: does the looking up.
        trusted: hosts that may be anywhere.
    """

    def __init__(self, inner: Resolver, trusted: Collection[str]) -> None:
        self._inner = inner
        self._trusted = frozenset(trusted)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises: AddressRefused; OSError: the name has no address."""
        found = await self._inner.resolve(host, port, family)
        if not found:
            raise OSError("a name has no address")
        if not is_trusted(host, self._trusted) and not all(may_get_text(result["host"]) for result in found):
            raise AddressRefused("a name leads to an address outside the private network")
        return found

    async def close(self) -> None:
        await self._inner.close()


class _OwnThreads:
    """Looks names up as an event loop does, but in threads that nobody waits for. An outage of the name service would
    fill the loop's own few threads, which the ledger and the policy watch need too, and hold up the gateway's end."""

    def __init__(self) -> None:
        self._few = asyncio.Semaphore(_LOOKUPS)

    async def getaddrinfo(self, host: str, port: int, **kind: Any) -> Any:
        async with self._few:
            return await in_thread(lambda: socket.getaddrinfo(host, port, **kind), "resolve")

    async def getnameinfo(self, address: Any, flags: int = 0) -> Any:
        async with self._few:
            return await in_thread(lambda: socket.getnameinfo(address, flags), "resolve")


def own_threads_resolver() -> Resolver:
    """The machine's own resolver, apart from the event loop's threads."""
    return aiohttp.ThreadedResolver(loop=cast("asyncio.AbstractEventLoop", _OwnThreads()))


def open_session(trusted: Collection[str], resolver: Resolver | None = None) -> Session:
    """A session for one endpoint. Needs a running loop.

    Args:
        trusted: hosts that may be outside the private network.
        resolver: looks names up in place of the machine's own resolver.
    """
    return Session(trusted, PrivateResolver(resolver or own_threads_resolver(), trusted))


def header_lines(key: SecretStr | None, *, stream: bool) -> bytes:
    """The headers of every request, as they are written, made from nothing of the caller's."""
    headers = {
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": "weighbridge",
        "accept": "text/event-stream" if stream else "application/json",
    }
    if key is not None:
        headers["authorization"] = f"Bearer {key.get_secret_value()}"
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()]).encode("latin-1")


class Exchange:
    """Sends one request and reads its answer. Close it whatever happens.

    Args:
        session: from `open_session`.
        headers: the lines of all the headers there are, besides those of the framing.
        connect_s: seconds to connect, name and TLS included.
        idle_s: seconds in which a byte must come.
        keep: use a connection that waits for a request, and leave it for the next one. Else the server is asked on a
            connection of its own, which tells whether it still takes any.
    """

    def __init__(
        self,
        session: Session,
        headers: bytes,
        *,
        connect_s: float,
        idle_s: float,
        keep: bool = False,
    ) -> None:
        self._session = session
        self._headers = headers
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._keep = keep
        self._limit: asyncio.Timeout | None = None
        self._connection: Connection | None = None
        self._ended = False

    async def send(self, method: str, url: str, body: bytes | None = None, *, patient: bool = False) -> int:
        """Connect, send, and wait for the answer's head.

        Args:
            patient: let the head take as long as it likes.

        Returns:
            The HTTP status.

        Raises:
            ExchangeLost: any kind but cut.
        """
        self._refuse_ended()
        target = target_of(url)
        request = self._request(method, target, body)
        limit_s = None if patient else self._idle_s
        waiting = self._session.waiting_for(target) if self._keep else None
        if waiting is not None:
            self._connection = waiting
            asked = waiting.ask(request)
            try:
                return await waiting.head(limit_s)
            except ExchangeLost as lost:
                if lost.kind != "reset" or waiting.heard or waiting.silent_for(asked) > _STALE_S:
                    raise
            self._session.drop(waiting)
            self._refuse_ended()
        connection = await self._connected(target)
        self._refuse_ended()
        connection.ask(request)
        return await connection.head(limit_s)

    def header(self, name: str) -> str:
        """The value of an answer's header, empty when it has none."""
        return self._answering.headers.get(name.encode(), b"").decode("latin-1")

    def piece(self) -> Awaitable[bytes]:
        """The next bytes of the body; empty at its end.

        Raises:
            ExchangeLost: stall, cut, malformed or ended.
        """
        self._refuse_ended()
        return self._answering.piece(self._idle_s)

    async def read(self) -> bytes:
        """The whole body. Raises ExchangeLost as `piece`; malformed when it is too long for any answer."""
        pieces: list[bytes] = []
        size = 0
        self._refuse_ended()
        whole = self._answering.whole()
        if whole is not None:
            if len(whole) > _MAX_DOCUMENT_BYTES:
                raise ExchangeLost("malformed")
            return whole
        while piece := await self.piece():
            size += len(piece)
            if size > _MAX_DOCUMENT_BYTES:
                raise ExchangeLost("malformed")
            pieces.append(piece)
        return b"".join(pieces)

    def over(self) -> None:
        """The answer is whole for its reader, though its framing may lack some last bytes: the connection may wait
        for the next request once they have come. Instead of `close`."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._keep and not self._ended:
            connection.part(_LAST_BYTES_S)
        else:
            self._session.drop(connection)

    def end(self) -> None:
        """End it from another task: the connection is closed now, and who reads or will read gets `ended`."""
        self._ended = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())
        if self._connection is not None:
            self._session.drop(self._connection)

    def close(self) -> None:
        """Close the connection, unless its answer has come whole and the next request may have it. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._keep and connection.reusable:
            connection.part(0.0)
        else:
            self._session.drop(connection)

    @property
    def _answering(self) -> Connection:
        if self._connection is None:
            raise RuntimeError("nothing has been sent yet")
        return self._connection

    async def _connected(self, target: Target) -> Connection:
        failed: LostKind
        try:
            async with asyncio.timeout(self._connect_s) as self._limit:
                # Kept at once: where the limit runs out at this very moment, `close` must find it.
                connection = self._connection = await self._session.connect(target, self._connect_s)
            return connection
        except (OSError, UnicodeError) as exc:
            failed = self._kind(exc)
        finally:
            self._limit = None
        # Raised out here so that nothing of the system's own words hangs on ours.
        raise ExchangeLost(failed)

    def _request(self, method: str, target: Target, body: bytes | None) -> bytes:
        connection = b"keep-alive" if self._keep else b"close"
        head = b"%b%bconnection: %b\r\n" % (_first_lines(method, target), self._headers, connection)
        return head + b"\r\n" if body is None else b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body)

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ExchangeLost("ended")

    def _kind(self, exc: OSError | UnicodeError) -> LostKind:
        if self._ended:
            return "ended"
        if isinstance(exc, AddressRefused):
            return "address"
        return "refused" if getattr(exc, "errno", None) == errno.ECONNREFUSED else "connect"


@lru_cache(maxsize=256)
def _first_lines(method: str, target: Target) -> bytes:
    return f"{method} {target.path} HTTP/1.1\r\nhost: {target.authority}\r\n".encode("latin-1")


async def ask(
    exchange: Exchange, method: str, url: str, body: bytes | None, limit_s: float
) -> tuple[int, bytes]:
    """A small question: status and body of the answer, both within `limit_s` seconds.

    Raises:
        ExchangeLost: no whole answer came in time.
    """
    try:
        async with asyncio.timeout(limit_s):
            return await exchange.send(method, url, body), await exchange.read()
    except TimeoutError:
        raise ExchangeLost("stall") from None
    finally:
        exchange.close()
