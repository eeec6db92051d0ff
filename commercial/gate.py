"""The egress gate.

The order inside is the product's promise, for each attempt anew: the seal is checked, then the kill switch, then the
egress row is made durable, then a connection is opened. When one of them fails, nothing has left. The kill switch is
asked again once the row is durable and once the connection is open, before its first byte, and whether the conversation
has been pinned once the row is durable: the row of a request that was held back there stays and tells of more than has
left, never of less.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import aiohttp
import msgspec

from weighbridge.commercial.answer import StreamReading, error_code, read_document, retry_after
from weighbridge.commercial.breaker import Standing, Ticket
from weighbridge.commercial.coming import Coming
from weighbridge.commercial.errors import (
    REFUSALS,
    EgressClosed,
    SealBroken,
    UpstreamFailed,
    UpstreamRefused,
)
from weighbridge.commercial.exchange import Exchange, open_session
from weighbridge.commercial.outlets import Outlet, Outlets
from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.ids import IdFactory
from weighbridge.config.limits import ExchangeLimits
from weighbridge.config.offload import MASKING
from weighbridge.config.settings import MAIN, CommercialSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.masking import second_look
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import verify
from weighbridge.observability.records import Egress

log = logging.getLogger(__name__)

MAX_DOCUMENT_BYTES = 32 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_ERROR_BODY_S = 5.0
"""Seconds to wait for the words of a refusal; without them it is one all the same."""
_INLINE_BYTES = 2_000
"""Size of a body up to which the second look is taken on the event loop: about 2 ms at most."""
_NOT_A_STREAM = ("application/json", "text/html")


class EgressJournal(Protocol):
    """Where outward requests are recorded before they leave."""

    async def record_egress(self, row: Egress) -> None:
        """Returns when the row is durable; raises when it cannot be made so."""
        ...


@dataclass(slots=True)
class EgressContext:
    """What the record needs to know beside the request.

    `egress_id` is written by the gate once the row is durable, for the attempt's own row; empty means nothing left.
    `is_open` is asked once the row is durable: whether the request's conversation may still leave.
    """

    attempt: int
    reason: str
    policy_version: str
    endpoint: str = MAIN
    limits: ExchangeLimits = field(default_factory=ExchangeLimits)
    egress_id: str = ""
    is_open: Callable[[], Awaitable[bool]] | None = None


class _Asked(msgspec.Struct):
    n: int | None = None


class EgressGate:
    """Sends masked requests to the configured commercial APIs.

    Args:
        settings: `commercial` section.
        journal: the ledger.
        clock, ids: as everywhere.
        switched_off: the kill switch: whether nothing may leave at this moment. Asked more than once for a request, so
            it answers at once.
        on_passed_by: told, by name, whether an endpoint is being passed by, whenever that changes.
    """

    def __init__(
        self,
        settings: CommercialSettings,
        journal: EgressJournal,
        clock: Clock,
        ids: IdFactory,
        *,
        switched_off: Callable[[], bool] = lambda: False,
        on_passed_by: Callable[[str, bool], None] = lambda name, passed_by: None,
    ) -> None:
        self.outlets = Outlets(settings, clock, on_passed_by)
        """The endpoints, in the order of the settings."""
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._switched_off = switched_off
        self._session: aiohttp.ClientSession | None = None

    @property
    def configured(self) -> bool:
        """Whether there is a commercial API at all."""
        return bool(self.outlets)

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def complete(
        self, masked: MaskedRequest, ctx: EgressContext, deadline: Deadline, meter: TokenMeter
    ) -> bytes:
        """The provider's whole answer, still masked: a JSON document with choices.

        Raises:
            SealBroken, EgressClosed: nothing was sent.
            UpstreamFailed: another road may serve.
            UpstreamRefused: the provider refuses this request.
            Exception: what the journal raises; nothing was sent.
        """
        outlet = self._outlet(ctx)
        with _attempt(outlet, ctx, deadline) as ticket:
            exchange = await self._begin(masked, ctx, outlet, deadline, stream=False)
            try:
                await self._send(exchange, masked, ctx, outlet, meter)
                document = read_document(await exchange.read(MAX_DOCUMENT_BYTES, ctx.limits.gap_s), meter)
                ticket.answered()
                return document
            finally:
                exchange.close()

    async def stream(
        self, masked: MaskedRequest, ctx: EgressContext, deadline: Deadline, meter: TokenMeter
    ) -> AsyncIterator[bytes]:
        """The provider's answer as it comes: the JSON of each event, still masked, usage included, without `[DONE]`.

        Ends normally only when the answer is whole: `[DONE]` came, or every choice has its `finish_reason`. Close the
        iterator (`aclose`) when you stop early: that closes the connection at once.

        Raises:
            As `complete`.
        """
        outlet = self._outlet(ctx)
        with _attempt(outlet, ctx, deadline) as ticket:
            exchange = await self._begin(masked, ctx, outlet, deadline, stream=True)
            try:
                await self._send(exchange, masked, ctx, outlet, meter)
                if exchange.header("content-type").lower().startswith(_NOT_A_STREAM):
                    raise UpstreamFailed("malformed")
                reading = StreamReading(msgspec.json.decode(masked.body, type=_Asked).n or 1, meter)
                coming = Coming(exchange.piece, exchange.sent_at, reading, ctx.limits)
                while (events := await coming.next()) is not None:
                    if reading.begun:
                        ticket.begun()
                    for event in events:
                        yield event
                ticket.answered()
                await exchange.drain()
            finally:
                exchange.close()

    def _outlet(self, ctx: EgressContext) -> Outlet:
        """Raises: UpstreamFailed where there is no such endpoint."""
        try:
            return self.outlets[ctx.endpoint]
        except KeyError:
            raise UpstreamFailed("connect") from None

    async def _begin(
        self, masked: MaskedRequest, ctx: EgressContext, outlet: Outlet, deadline: Deadline, *, stream: bool
    ) -> Exchange:
        """Everything that must be true before a connection may be opened."""
        if not verify(masked):
            raise SealBroken
        if masked.stream is not stream:
            raise ValueError("a masked request is sent the way it was masked for")
        if self._switched_off():
            raise EgressClosed("switched_off")
        limits = ctx.limits
        limit = deadline.within(limits.total_s)
        egress_id = self._ids.new()
        try:
            async with asyncio.timeout(limit.remaining()) as waiting:
                await self._look_again(masked, outlet)
                await self._journal.record_egress(self._row(masked, ctx, outlet, egress_id))
        except TimeoutError:
            if not waiting.expired():
                raise
            raise UpstreamFailed("timeout") from None
        if ctx.is_open is not None and not await ctx.is_open():
            raise EgressClosed("pinned")
        if self._switched_off():
            raise EgressClosed("switched_off")
        ctx.egress_id = egress_id
        if self._session is None:
            self._session = open_session()
        return Exchange(
            self._session,
            connect_s=limits.connect_s,
            head_s=min(limits.headers_s, limits.first_token_s) if stream else limits.document_s,
            deadline=limit,
            switched_off=self._switched_off,
        )

    async def _look_again(self, masked: MaskedRequest, outlet: Outlet) -> None:
        """Raises: MaskingRefused."""
        look = partial(second_look.found, masked.body, ours=(outlet.endpoint.model,))
        try:
            found = look() if len(masked.body) <= _INLINE_BYTES else await MASKING.run(look)
        except Exception as exc:
            # The exception may hold text; only its class is told.
            log.error("the second look failed with %s", type(exc).__name__)
            found = True
        if found:
            raise MaskingRefused("second_look") from None

    def _row(self, masked: MaskedRequest, ctx: EgressContext, outlet: Outlet, egress_id: str) -> Egress:
        return Egress(
            egress_id=egress_id,
            request_id=masked.request_id,
            attempt=ctx.attempt,
            at_ns=self._clock.wall_ns(),
            endpoint=_url(outlet),
            reason=ctx.reason,
            body_hash=masked.body_hash,
            body_bytes=len(masked.body),
            entities=dict(masked.entities),
            policy_version=ctx.policy_version,
            detector_version=masked.detector_version,
        )

    async def _send(
        self,
        exchange: Exchange,
        masked: MaskedRequest,
        ctx: EgressContext,
        outlet: Outlet,
        meter: TokenMeter,
    ) -> None:
        """Send, and return only when an answer with status 200 has begun."""
        # From here the provider may make tokens that only its usage can tell.
        meter.exact = False
        try:
            await exchange.send(_url(outlet), _headers(masked, outlet), masked.body)
        except EgressClosed:
            meter.exact, ctx.egress_id = True, ""
            raise
        status = exchange.status
        if status == 200:
            return
        if status not in REFUSALS:
            wait = retry_after(exchange.header("retry-after"), self._clock.wall_ns() / 1e9)
            raise UpstreamFailed("status", status=status, retry_after_s=wait)
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                body = await exchange.read(_MAX_ERROR_BYTES, ctx.limits.gap_s)
        except (UpstreamFailed, TimeoutError):
            body = None
        raise UpstreamRefused(status, error_code(body)) from None


@contextmanager
def _attempt(outlet: Outlet, ctx: EgressContext, deadline: Deadline) -> Iterator[Ticket]:
    """One attempt's leave to ask an endpoint, and what the endpoint's breaker learns of it.

    Raises:
        UpstreamFailed: the endpoint is being passed by; `retry_after_s` says for how long.
    """
    breaker = outlet.breaker
    ticket = breaker.enter()
    if ticket is None:
        busy = breaker.standing is Standing.WAITING
        raise UpstreamFailed("resting", status=429 if busy else None, retry_after_s=max(1.0, breaker.rest_s))
    try:
        yield ticket
    except UpstreamFailed as exc:
        # One that never left, or whose own time is over, says nothing about the endpoint.
        if ctx.egress_id and not (exc.kind == "timeout" and deadline.expired()):
            ticket.failed(exc.retry_after_s, busy=exc.status == 429)
        raise
    except UpstreamRefused:
        ticket.answered()
        raise
    finally:
        ticket.returned()


def _url(outlet: Outlet) -> str:
    return f"{outlet.endpoint.base_url.rstrip('/')}/chat/completions"


def _headers(masked: MaskedRequest, outlet: Outlet) -> dict[str, str]:
    """All the headers there are, made from nothing of the caller's."""
    headers = {
        "accept": "text/event-stream" if masked.stream else "application/json",
        "accept-encoding": "identity" if masked.stream else "gzip, deflate",
        "content-type": "application/json",
        "user-agent": "weighbridge",
        "x-request-id": masked.request_id,
    }
    if outlet.endpoint.api_key is not None:
        headers["authorization"] = f"Bearer {outlet.endpoint.api_key.get_secret_value()}"
    return headers
