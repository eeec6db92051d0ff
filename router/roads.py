"""What the dispatch needs of the rooms below: weigh, decide, find a tier, mask, pass the gate."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from weighbridge.commercial.errors import EgressClosed, UpstreamFailed
from weighbridge.commercial.gate import EgressContext, EgressGate
from weighbridge.commercial.outlets import Outlet
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError
from weighbridge.config.offload import BODIES
from weighbridge.config.roads import LOCAL_ROADS, Road
from weighbridge.config.settings import CommercialSettings
from weighbridge.config.usage import TokenMeter
from weighbridge.masking.detector_queue import Speculation
from weighbridge.masking.errors import PASSING, MaskingRefused
from weighbridge.masking.masker import Masker
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.restore import StreamRestorer, restore_completion
from weighbridge.masking.rules import Rules
from weighbridge.observability.metrics import Metrics
from weighbridge.policies.compiled import Policy
from weighbridge.policies.store import PolicyStore
from weighbridge.pool.pool import Pool
from weighbridge.pool.tier import Tier
from weighbridge.pool.worker import TierNotReady
from weighbridge.router.admitted import Admitted
from weighbridge.router.affinity import affinity_of
from weighbridge.router.answer import frame, is_usage_only
from weighbridge.router.decision import UNWEIGHED, Decision, Facts, decide, needs_weight, why_not
from weighbridge.router.difficulty.assessment import NOT_ESTIMATED
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, Assessment, assess
from weighbridge.router.egress_rules import rules_beside
from weighbridge.router.outward import Outward
from weighbridge.router.settled import Settled
from weighbridge.state.pins import ConversationPins, PinState

log = logging.getLogger("weighbridge.router")

_INLINE_BYTES = 32_768
"""Size of a whole answer up to which it is restored on the event loop: some milliseconds at most."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A request with its weight, the policy it was admitted under, and the decision or its refusal."""

    weight: Assessment
    policy: Policy
    outcome: Decision | ApiError
    closed: tuple[str, ...] = ()
    """Why it does not leave; empty where it may."""

    calibration_version = CALIBRATION_VERSION

    @property
    def score(self) -> float | None:
        """None where it was not weighed, as nothing hung on it."""
        return None if self.weight is UNWEIGHED else self.weight.score_at(self.policy.risk)

    @property
    def risks(self) -> tuple[float | None, float | None]:
        """P(the 8B fails) and P(the 70B fails where the frontier model does not); None where nobody estimated them."""
        weight = self.weight
        estimated = weight.p_8b_fails != NOT_ESTIMATED
        return (weight.p_8b_fails, weight.p_70b_fails) if estimated else (None, None)

    def decide(self) -> Decision:
        """Raises: ApiError when no road may carry the request."""
        if isinstance(self.outcome, ApiError):
            raise self.outcome
        return self.outcome

    @property
    def road(self) -> str:
        return self.outcome.road if isinstance(self.outcome, Decision) else ""

    @property
    def reasons(self) -> tuple[str, ...]:
        if isinstance(self.outcome, Decision):
            return self.outcome.reasons
        return (*self.closed, f"refused {self.outcome.code}")


class Passage:
    """One way through the gate: a sealed request, and its answer with the placeholders restored.

    Args:
        model: the endpoint's model, as it is asked for there.
    """

    def __init__(self, gate: EgressGate, masked: MaskedRequest, context: EgressContext, model: str) -> None:
        self.endpoint = context.endpoint
        self.model = model
        self._gate = gate
        self._masked = masked
        self._context = context

    @property
    def egress_id(self) -> str:
        """The id of the egress row; empty while nothing has left."""
        return self._context.egress_id

    async def complete(self, deadline: Deadline, meter: TokenMeter) -> bytes:
        payload = await self._gate.complete(self._masked, self._context, deadline, meter)
        restoring = partial(restore_completion, self._masked.vault, payload)
        with _restoring():
            return await BODIES.run(restoring) if len(payload) > _INLINE_BYTES else restoring()

    async def stream(
        self, deadline: Deadline, meter: TokenMeter, keep_usage: bool
    ) -> AsyncGenerator[bytes, None]:
        restorer = StreamRestorer(self._masked.vault)
        async with closing(self._gate.stream(self._masked, self._context, deadline, meter)) as payloads:
            async for payload in payloads:
                if not keep_usage and is_usage_only(payload):
                    continue
                with _restoring():
                    events = restorer.feed(payload)
                for restored in events:
                    yield frame(restored)
            for restored in restorer.finish():
                yield frame(restored)


class Roads:
    """The rooms below the router, as the dispatch sees them."""

    def __init__(
        self,
        *,
        pool: Pool,
        policies: PolicyStore,
        masker: Masker,
        gate: EgressGate,
        commercial: CommercialSettings,
        metrics: Metrics,
        pins: ConversationPins,
        switched_off: Callable[[], bool],
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._draw = draw
        self._pool = pool
        self._pins = pins
        self._switched_off = switched_off
        self._policies = policies
        self._masker = masker
        self._gate = gate
        self._metrics = metrics
        self._upstream_model = next((one.model for one in commercial.all_endpoints.values()), "")
        tiers = {road: tier for road in LOCAL_ROADS if (tier := pool.tier(road)) is not None}
        self._local: tuple[Road, ...] = tuple(tiers)
        self._adapters = {name: road for road, tier in tiers.items() for name in tier.adapters}
        self._settled = Settled[Weighed]()

    async def weigh(self, request: Admitted) -> Weighed:
        """Score the request and decide under the policy in force at this moment.

        A named conversation is looked up first, and is pinned before this returns where the policy keeps it in.
        """
        tenant, named = request.tenant, request.conversation
        pin = None if named is None else await self._pins.enter(tenant, named, begun=request.begun)
        policy = self._policies.current
        if named is None:
            return self._decided(request, policy)
        weighed, lasting = self._weigh(request, policy, pin)
        if lasting:
            await self._keep_in(request)
        return weighed

    def _decided(self, request: Admitted, policy: Policy) -> Weighed:
        """For a request that names no conversation; one that need not be weighed is decided once for all like it."""
        facts = (
            request.model,
            request.tenant,
            request.key_id,
            request.max_queue_ms,
            request.batch,
            request.data_class,
            self._gate.configured,
            self._switched_off(),
            request.barred,
        )
        weighed = self._settled.find(policy, facts)
        if weighed is None:
            weighed, _ = self._weigh(request, policy, None)
            # A refusal is an exception, and good for one request.
            if weighed.weight is UNWEIGHED and isinstance(weighed.outcome, Decision):
                self._settled.keep(policy, facts, weighed)
        return weighed

    def _weigh(
        self, request: Admitted, policy: Policy, pin: PinState | None
    ) -> tuple[Weighed, tuple[str, ...]]:
        """The decision, and what of the policy keeps the request in for good."""
        tenant = request.tenant
        facts = Facts(
            tenant,
            self._local,
            self._gate.configured,
            self._adapters,
            request.max_queue_ms,
            request.batch,
            request.key_id,
            request.data_class,
            pin,
            self._switched_off(),
            request.barred,
        )
        weight = assess(request.body) if needs_weight(request.model, policy, facts) else UNWEIGHED
        lasting, other = why = why_not(weight, policy, facts)
        outcome: Decision | ApiError
        try:
            outcome = decide(request.model, weight, policy, facts, why)
        except ApiError as refusal:
            outcome = refusal
        return Weighed(weight, policy, outcome, (*lasting, *other)), lasting

    async def _keep_in(self, request: Admitted) -> None:
        """The request's conversation stays local for good."""
        if request.conversation is not None:
            await self._pins.keep_local(request.tenant, request.conversation)

    def tier(self, road: Road) -> Tier:
        tier = self._pool.tier(road)
        if tier is None:
            raise TierNotReady(road)
        return tier

    def continued(self, road: Road, outcome: str) -> None:
        """Count how the attempt to go on with a broken-off stream ended."""
        self._metrics.continuations_total.labels(road, outcome).inc()

    async def mask(
        self, request: Admitted, policy: Policy, deadline: Deadline, speculation: Speculation | None = None
    ) -> MaskedRequest:
        """Mask the request by the policy it was admitted under; see `Masker.mask` about `speculation`.

        Raises:
            MaskingRefused: it does not leave. For a reason that lies in it, its conversation is pinned by then.
        """
        try:
            return await self._masker.mask(
                request.body,
                request_id=request.request_id,
                upstream_model=self._upstream_model,
                conversation=_conversation(request),
                deadline=deadline,
                rules=await self._rules(request, policy),
                tenant=request.tenant,
                speculation=speculation,
            )
        except MaskingRefused as refusal:
            if refusal.reason not in PASSING:
                await self._keep_in(request)
            raise

    def lists(self, request: Admitted) -> object:
        """The known values that a mask of this request depends on; see `Masker.lists`."""
        return self._masker.lists(request.tenant)

    async def _rules(self, request: Admitted, policy: Policy) -> Rules:
        try:
            return await rules_beside(policy, request.tenant, request.key_id)
        except Exception as exc:
            log.error("the policy's rules for masking cannot be used: %s", type(exc).__name__)
            raise MaskingRefused("internal") from None

    def outward(self, request: Admitted, policy: Policy, deadline: Deadline) -> Outward:
        """The endpoints that this request may ask, in the order of its conversation."""
        order = self._gate.outlets.order(policy.endpoints, _cache_key(request))
        return Outward(order, deadline, self._draw)

    async def passage(
        self,
        request: Admitted,
        masked: MaskedRequest,
        attempt: int,
        reason: str,
        policy: Policy,
        outlet: Outlet,
    ) -> Passage:
        """The way through the gate to one endpoint.

        Raises:
            EgressClosed: the conversation was pinned since the decision.
        """
        named = request.conversation
        is_open = None if named is None else partial(self._pins.is_open, request.tenant, named)
        if is_open is not None and not await is_open():
            raise EgressClosed("pinned")
        model = outlet.endpoint.model
        if model != self._upstream_model:
            addressing = partial(self._masker.addressed, masked, model)
            masked = await BODIES.run(addressing) if len(masked.body) > _INLINE_BYTES else addressing()
        context = EgressContext(
            attempt,
            reason,
            policy.version,
            endpoint=outlet.name,
            limits=policy.exchange_limits,
            is_open=is_open,
        )
        return Passage(self._gate, masked, context, model)


def _cache_key(request: Admitted) -> str:
    """What makes requests ones of the same conversation to a provider's cache: its name, or else how they begin."""
    if request.conversation is not None:
        return f"{request.tenant}/{request.conversation}"
    return affinity_of(request.body, request.tenant).hex()


def _conversation(request: Admitted) -> str:
    """Whose placeholders a request's are: the named conversation's, else all those of the key."""
    if request.conversation is not None:
        return f"{request.tenant}/conversation/{request.conversation}"
    return f"{request.tenant}/key/{request.key_id}"


@contextmanager
def _restoring() -> Iterator[None]:
    """An answer that cannot be read is the provider's failure, not ours."""
    try:
        yield
    except (ValueError, RecursionError):
        raise UpstreamFailed("malformed") from None


@asynccontextmanager
async def closing(events: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes]]:
    """Close an answer's iterator on every way out, and wait for it even when cancelled meanwhile.

    Closing is what frees the engine or the connection: the slot is given back only after it.
    """
    try:
        yield events
    finally:
        aclose: Callable[[], Awaitable[None]] | None = getattr(events, "aclose", None)
        if aclose is not None:
            await _uncancelled(aclose)


async def _uncancelled(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    task = asyncio.ensure_future(run())
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    task.result()
