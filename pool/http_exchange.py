"""HTTP to a server of a tier elsewhere on the private network: the session, and one request under its time limits.

The only module of this room that opens a connection by HTTP. It refuses every address that may not get raw text.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, cast

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import SecretStr

from weighbridge.pool.private_network import AddressRefused, is_trusted, may_get_text
from weighbridge.pool.threads import in_thread

_MAX_DOCUMENT_BYTES: Final = 32 * 1024 * 1024

_LOOKUPS: Final = 8
"""Names that are looked up at a time; the next one waits, and its connection's time limit with it."""

Session = aiohttp.ClientSession
Resolver = AbstractResolver

LostKind = Literal["refused", "address", "connect", "reset", "stall", "cut", "malformed", "ended"]
"""How an exchange was lost.

- refused: nobody listens there.
- address: the name leads outside the private network; nothing was connected.
- connect: no connection (name, TCP, TLS, or its time limit).
- reset: the connection was lost before an answer began.
- stall: nothing came for too long.
- cut: the answer broke off.
- malformed: what came is not what the protocol says.
- ended: this side ended it.
"""

NOTHING_SENT: Final = frozenset({"refused", "address", "connect"})
"""Kinds after which the server cannot have begun any work."""


class ExchangeLost(Exception):
    """No whole answer came. Holds no byte of what did come."""

    def __init__(self, kind: LostKind) -> None:
        super().__init__(f"the exchange was lost: {kind}")
        self.kind: LostKind = kind


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
    """A session for one endpoint: no proxy or netrc from the environment, no cookies, no default headers. Needs a
    running loop.

    Args:
        trusted: hosts that may be outside the private network.
        resolver: looks names up in place of the machine's own resolver.
    """
    checked = PrivateResolver(resolver or own_threads_resolver(), trusted)
    return aiohttp.ClientSession(
        # A connection for every request: its name is looked at anew, a server that is gone is seen at once, and no
        # request is lost on a connection that the server was about to close. It costs little beside an answer.
        connector=aiohttp.TCPConnector(limit=0, force_close=True, resolver=checked, use_dns_cache=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        raise_for_status=False,
        skip_auto_headers=("accept", "accept-encoding", "user-agent"),
    )


def default_headers(key: SecretStr | None) -> dict[str, str]:
    """The headers of every request, made from nothing of the caller's."""
    headers = {"accept-encoding": "identity", "content-type": "application/json", "user-agent": "weighbridge"}
    if key is not None:
        headers["authorization"] = f"Bearer {key.get_secret_value()}"
    return headers


class Exchange:
    """Sends one request and reads its answer. Close it whatever happens.

    Args:
        session: from `open_session`.
        headers: all the headers there are, besides those of the framing.
        connect_s: seconds to connect, name and TLS included.
        idle_s: seconds in which a byte must come.
    """

    def __init__(
        self, session: Session, headers: Mapping[str, str], *, connect_s: float, idle_s: float
    ) -> None:
        self._session = session
        self._headers = headers
        self._connect_s = connect_s
        self._idle_s = idle_s
        self._limit: asyncio.Timeout | None = None
        self._response: aiohttp.ClientResponse | None = None
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
        failed: LostKind
        self._refuse_ended()
        try:
            async with asyncio.timeout(None if patient else self._idle_s) as self._limit:
                response = self._response = await self._session.request(
                    method,
                    url,
                    data=body,
                    headers=self._headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(connect=self._connect_s),
                )
            return response.status
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError) as exc:
            failed = self._kind(exc, "reset")
        finally:
            self._limit = None
        # Raised out here so that no exception of the library, which may quote bytes, hangs on ours.
        raise ExchangeLost(failed)

    def header(self, name: str) -> str:
        """The value of an answer's header, empty when it has none."""
        return str(self._answer.headers.get(name, ""))

    async def piece(self) -> bytes:
        """The next bytes of the body; empty at its end.

        Raises:
            ExchangeLost: stall, cut, malformed or ended.
        """
        failed: LostKind
        self._refuse_ended()
        try:
            async with asyncio.timeout(self._idle_s) as self._limit:
                return await self._answer.content.readany()
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError) as exc:
            failed = self._kind(exc, "cut")
        finally:
            self._limit = None
        raise ExchangeLost(failed)

    async def read(self) -> bytes:
        """The whole body. Raises ExchangeLost as `piece`; malformed when it is too long for any answer."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece():
            size += len(piece)
            if size > _MAX_DOCUMENT_BYTES:
                raise ExchangeLost("malformed")
            pieces.append(piece)
        return b"".join(pieces)

    def end(self) -> None:
        """End it from another task: the connection is closed now, and who reads or will read gets `ended`."""
        self._ended = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())
        self.close()

    def close(self) -> None:
        """Close the connection at once. Idempotent."""
        if self._response is not None:
            self._response.close()

    @property
    def _answer(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("nothing has been sent yet")
        return self._response

    def _refuse_ended(self) -> None:
        if self._ended:
            raise ExchangeLost("ended")

    def _kind(self, exc: Exception, otherwise: LostKind) -> LostKind:
        if self._ended:
            return "ended"
        if isinstance(exc, aiohttp.ClientConnectorError):
            reason = exc.os_error
            if isinstance(reason, AddressRefused):
                return "address"
            return "refused" if reason.errno == errno.ECONNREFUSED else "connect"
        if isinstance(exc, aiohttp.ConnectionTimeoutError | aiohttp.ServerFingerprintMismatch):
            return "connect"
        if isinstance(exc, aiohttp.ClientResponseError | aiohttp.http_exceptions.HttpProcessingError):
            return "malformed"
        return "stall" if isinstance(exc, TimeoutError) else otherwise


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
