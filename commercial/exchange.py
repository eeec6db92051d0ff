"""One HTTP exchange with a commercial API, each of its waits under a limit of its own.

The only module of the product that opens a connection towards a commercial API.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from types import SimpleNamespace

import aiohttp

from weighbridge.commercial.errors import EgressClosed, FailureKind, UpstreamFailed
from weighbridge.config.deadline import Deadline

_KEEP_ALIVE_S = 15.0
_DRAIN_S = 0.05


def open_session() -> aiohttp.ClientSession:
    """A session that adds nothing of its own: no proxy or netrc from the environment, no cookies, no default headers.

    Needs a running loop. The number of connections is bounded by what the router lets through.
    """
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(_headers_sent)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=True,
        raise_for_status=False,
        skip_auto_headers=("accept", "user-agent"),
        trace_configs=[trace],
    )


async def _headers_sent(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestHeadersSentParams
) -> None:
    context.trace_request_ctx.connected()


class _HeldBody(aiohttp.BytesPayload):
    """A body that asks once more before its first byte. The request's head goes out together with that byte, so what is
    held back leaves an open connection and nothing on it."""

    def __init__(self, body: bytes, switched_off: Callable[[], bool]) -> None:
        super().__init__(body)
        self._switched_off = switched_off
        self.held_back = False

    async def write_with_length(
        self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None
    ) -> None:
        if self._switched_off():
            self.held_back = True
            raise EgressClosed("switched_off")
        await super().write_with_length(writer, content_length)


class Exchange:
    """Sends one request and reads its answer piece by piece. Close it whatever happens.

    Args:
        session: from `open_session`.
        connect_s: seconds to connect.
        head_s: seconds from the sent request to the answer's head.
        deadline: the end of everything, the total limit included.
        switched_off: whether nothing may leave at this moment; asked on the open connection, before the first byte.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        connect_s: float,
        head_s: float,
        deadline: Deadline,
        switched_off: Callable[[], bool],
    ) -> None:
        self._session = session
        self._connect_s = connect_s
        self._head_s = head_s
        self._deadline = deadline
        self._switched_off = switched_off
        self._limit: asyncio.Timeout | None = None
        self.sent_at = 0.0
        """When the request had been sent, by the event loop's clock; 0 before."""
        self._response: aiohttp.ClientResponse | None = None

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Connect, send, and wait for the answer's head.

        Raises:
            EgressClosed: the kill switch was thrown meanwhile; nothing was sent.
            UpstreamFailed: connect, reset, stall, malformed or timeout.
        """
        failed: FailureKind
        held = _HeldBody(body, self._switched_off)
        try:
            async with asyncio.timeout(self._deadline.remaining()) as self._limit:
                self._response = await self._session.post(
                    url,
                    data=held,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(connect=self._connect_s),
                    trace_request_ctx=self,
                )
            return
        except (
            aiohttp.ClientConnectorError,
            aiohttp.ConnectionTimeoutError,
            aiohttp.ServerFingerprintMismatch,
        ):
            failed = "connect"
        except aiohttp.ClientResponseError:
            failed = "malformed"
        except TimeoutError:
            failed = self._late()
        except (aiohttp.ClientError, OSError):
            failed = "reset"
        finally:
            self._limit = None
        # Raised out here so that no exception of the library, which may quote bytes, hangs on ours.
        if held.held_back:
            raise EgressClosed("switched_off")
        raise UpstreamFailed(failed)

    def connected(self) -> None:
        """The request's head has been sent: from here the wait for the answer's head counts."""
        if self._limit is None:
            return
        now = self.sent_at = asyncio.get_running_loop().time()
        self._limit.reschedule(now + min(self._head_s, self._deadline.remaining()))

    @property
    def status(self) -> int:
        return self._answer.status

    def header(self, name: str) -> str:
        """The value of an answer's header, empty when it has none."""
        return str(self._answer.headers.get(name, ""))

    async def piece(self, within_s: float) -> bytes:
        """The next bytes of the body; empty at its end.

        Args:
            within_s: how long to wait for them, in seconds.

        Raises:
            UpstreamFailed: cut, stall, malformed or timeout.
        """
        failed: FailureKind
        try:
            async with asyncio.timeout(min(within_s, self._deadline.remaining())):
                return await self._answer.content.readany()
        except TimeoutError:
            failed = self._late()
        except aiohttp.ClientResponseError:
            failed = "malformed"
        except (aiohttp.ClientError, aiohttp.http_exceptions.HttpProcessingError, OSError):
            failed = "cut"
        raise UpstreamFailed(failed)

    async def read(self, bound: int, gap_s: float) -> bytes | None:
        """The whole body; None when it is longer than `bound` bytes. Raises UpstreamFailed as `piece`."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.piece(gap_s):
            size += len(piece)
            if size > bound:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    async def drain(self) -> None:
        """After the answer's last event: take the end of the body if it is about to come, so that the connection can
        serve again. Never raises."""
        with contextlib.suppress(UpstreamFailed, TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                while await self.piece(_DRAIN_S):
                    pass

    def close(self) -> None:
        """Close the connection at once unless the answer was read to its end. Idempotent."""
        if self._response is not None:
            self._response.close()

    @property
    def _answer(self) -> aiohttp.ClientResponse:
        if self._response is None:
            raise RuntimeError("nothing has been sent yet")
        return self._response

    def _late(self) -> FailureKind:
        return "timeout" if self._deadline.expired() else "stall"
