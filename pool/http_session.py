"""Connections to one endpoint of a tier: made to addresses that may get raw text, and kept for the next request."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, Self

from yarl import URL

from weighbridge.config.legal import is_address
from weighbridge.pool.http_connection import Connection, ExchangeLost
from weighbridge.pool.private_network import AddressRefused, is_trusted, may_get_text
from weighbridge.pool.threads import in_thread

_IDLE_S: Final = 2.0
"""Seconds a connection is kept that nobody uses: less than servers keep theirs (uvicorn 5), so that a request seldom
meets a connection that is being closed."""

_AGE_S: Final = 60.0
"""Seconds after which a connection is used no more: its name may lead elsewhere by now."""


class Names(Protocol):
    """Looks names up."""

    async def resolve(self, host: str, port: int = 0) -> Sequence[Any]:
        """Addresses of a host, each a mapping with `host` and `family`; those that may not get raw text it refuses.

        Raises:
            AddressRefused; OSError: the name has no address.
        """
        ...

    async def close(self) -> None: ...


class Target(NamedTuple):
    """Where a URL leads, and what the first line and `host` of its requests say."""

    host: str
    port: int
    tls: bool
    path: str
    authority: str


@lru_cache(maxsize=256)
def target_of(url: str) -> Target:
    """Where `url` leads."""
    found = URL(url)
    host = found.raw_host or ""
    shown = f"[{host}]" if ":" in host else host
    authority = shown if found.is_default_port() else f"{shown}:{found.port}"
    return Target(host, found.port or 80, found.scheme == "https", found.raw_path_qs, authority)


_Place = tuple[str, int, bool]
"""Host, port, and whether it speaks TLS."""


class Session:
    """Connections to one endpoint: new ones, and those that wait for their next request.

    No proxy and no cookies: a request holds what it is given. `async with` closes it.
    """

    def __init__(self, trusted: Collection[str], resolver: Names) -> None:
        self._trusted = frozenset(trusted)
        self._resolver = resolver
        self._loop = asyncio.get_running_loop()
        self._idle: dict[_Place, list[Connection]] = {}
        self._open: dict[Connection, _Place] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._tls: ssl.SSLContext | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._open):
            connection.end()
        self._open.clear()
        self._idle.clear()
        await self._resolver.close()

    def waiting_for(self, target: Target) -> Connection | None:
        """A connection that waits for a request, the one that was used last."""
        waiting = self._idle.get((target.host, target.port, target.tls))
        while waiting:
            connection = waiting.pop()
            if connection.reusable and not self._outlived(connection):
                return connection
            self.drop(connection)
        return None

    async def connect(self, target: Target, limit_s: float) -> Connection:
        """A new connection. Every address of the host gets an even share of `limit_s` seconds.

        Raises:
            AddressRefused: the host leads outside the private network.
            OSError: nobody answers there, or has no certificate that is good.
        """
        if self._closed:
            raise ExchangeLost("ended")
        failed: OSError = OSError("a name has no address")
        addresses = await self._addresses(target)
        for family, address in addresses:
            try:
                async with asyncio.timeout(limit_s / len(addresses)):
                    return await self._connect(target, family, address)
            except OSError as exc:
                failed = exc
        raise failed

    def keep(self, connection: Connection) -> None:
        """Take a connection back whose answer is over, for the next request or to be closed."""
        place = self._open.get(connection)
        if place is None:
            connection.end()
        elif self._closed or not connection.reusable or self._outlived(connection):
            self.drop(connection)
        else:
            self._idle.setdefault(place, []).append(connection)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(_IDLE_S, self._sweep)

    def drop(self, connection: Connection) -> None:
        """Close a connection at once."""
        self._open.pop(connection, None)
        connection.end()

    def _outlived(self, connection: Connection) -> bool:
        now = self._loop.time()
        return now - connection.idle_since >= _IDLE_S or now - connection.made_at >= _AGE_S

    def _sweep(self) -> None:
        self._sweeper = None
        for place, waiting in tuple(self._idle.items()):
            for connection in tuple(waiting):
                if not connection.reusable or self._outlived(connection):
                    waiting.remove(connection)
                    self.drop(connection)
            if not waiting:
                del self._idle[place]
        if self._idle:
            self._sweeper = self._loop.call_later(_IDLE_S / 2, self._sweep)

    async def _addresses(self, target: Target) -> list[tuple[socket.AddressFamily, str]]:
        host = target.host
        if is_address(host):
            if not is_trusted(host, self._trusted) and not may_get_text(host):
                raise AddressRefused("an address outside the private network")
            return [(socket.AF_INET6 if ":" in host else socket.AF_INET, host)]
        found = await self._resolver.resolve(host, target.port)
        return [(socket.AddressFamily(result["family"]), result["host"]) for result in found]

    async def _connect(self, target: Target, family: socket.AddressFamily, address: str) -> Connection:
        loop = self._loop
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, (address, target.port))
            _, connection = await loop.create_connection(
                lambda: Connection(self.keep),
                sock=sock,
                ssl=await self._context() if target.tls else None,
                server_hostname=target.host if target.tls else None,
            )
        except BaseException:
            sock.close()
            raise
        if self._closed:
            connection.end()
            raise ExchangeLost("ended")
        self._open[connection] = (target.host, target.port, target.tls)
        return connection

    async def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            # Reading the certificates takes some tens of milliseconds.
            self._tls = await in_thread(ssl.create_default_context, "certificates")
        return self._tls
