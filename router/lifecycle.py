"""One request from admission to its record: the state machine every road passes through.

    received → scored → queued → granted → committed → done

The *commit point* is entering `committed`: before it a setback may move the request to another road, after it
the answer finishes or an error event is sent; a stream that loses its worker stays committed while another worker of
the tier goes on with it. The slot lease lives inside an attempt; the records are `router.account`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError, ContextLengthExceeded, ShuttingDown
from weighbridge.config.limits import LocalLimits
from weighbridge.config.roads import COMMERCIAL, Road
from weighbridge.config.time_limit import TimeLimit
from weighbridge.policies.compiled import Policy
from weighbridge.pool.engine import Engine, EngineCall, EngineOverloaded, Trail
from weighbridge.pool.lease import SlotLease
from weighbridge.pool.slot_lock import QueueLockTimeout
from weighbridge.pool.worker import TierNotReady
from weighbridge.router import answer
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted, ClientGone, Sink
from weighbridge.router.decision import Decision
from weighbridge.router.delivery import Delivery
from weighbridge.router.draining import drained
from weighbridge.router.escalation import Climb
from weighbridge.router.failover import EmptyAnswer, Setback, WorkerLost, answer_to, setback_of
from weighbridge.router.lost_workers import LostWorkers
from weighbridge.router.phases import LEGAL, Phase
from weighbridge.router.roads import Passage, Roads, Weighed, closing
from weighbridge.router.silence import Silence, whole_time
from weighbridge.router.slot_ask import ask_to_go_on, first_ask
from weighbridge.router.walk import Walk
from weighbridge.router.way_out import WayOut

log = logging.getLogger("weighbridge.router")

PROGRESS_TOKENS = 64
"""A progress row at least every so many tokens of a stream; the ticker adds one a second."""

MAX_HELD_BYTES = 1 << 20
"""What a stream may send before its first content; a backend that sends more without content is not answering."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, from the settings."""

    keep_alive_s: float
    """A stream that is silent for so long gets a comment."""
    continue_wait_s: float
    """A stream that lost its worker waits so long for another one."""


class Lifecycle:
    """One request under way. Made and run by `router.dispatch.Dispatch`."""

    def __init__(
        self,
        request: Admitted,
        sink: Sink,
        account: Account,
        *,
        roads: Roads,
        clock: Clock,
        deadline: Deadline,
        on_setback: Callable[[Exception], None],
        cut_by_us: Callable[[], bool],
        limits: Limits,
    ) -> None:
        self.request = request
        self.account = account
        self.phase = Phase.RECEIVED
        self._roads = roads
        self._clock = clock
        self._deadline = deadline
        self._on_setback = on_setback
        self._cut_by_us = cut_by_us
        self._limits = limits
        self._delivery = Delivery(
            sink,
            stream=request.stream,
            headers=account.headers,
            summary=account.summary,
            keep_alive_s=limits.keep_alive_s,
        )
        self._lease: SlotLease | None = None
        self._engine: Engine | None = None
        """The engine that was asked last, and the name of its worker."""
        self._worker = ""
        self._whole = b""
        self._prompt_tokens = 0
        """At least so many, once a tier found the prompt too long; 0 while nobody had to count."""
        self._trail: Trail | None = None
        """What was streamed so far, where another worker could go on with it."""
        self._way_out: WayOut | None = None
        """Where the request may leave."""
        self._climb: Climb | None = None
        """Where its answers are looked at."""
        self._lost = LostWorkers(roads, account)

    # ---- the walk ----

    async def run(self) -> None:
        """Serve the request and write its one record, whatever happens.

        Raises:
            ApiError: nothing was sent yet; the gateway answers it (`answer_headers` holds our headers).
            ClientGone, asyncio.CancelledError: the caller went away; the record is written.
        """
        account = self.account
        try:
            await self._serve_or_keep()
        except (asyncio.CancelledError, ClientGone) as exc:
            account.outcome = "client_aborted"
            if isinstance(exc, ClientGone):
                account.error_code = exc.code
            elif self._cut_by_us() and not self._delivery.discard:
                account.outcome = "truncated" if self.phase is Phase.COMMITTED else "error"
                account.error_code = "shutdown"
                self._release()
                if self._delivery.opened:
                    await self._delivery.broken(ShuttingDown(), self.request.request_id)
            raise
        except Exception as exc:
            await self._tell(answer_to(exc, self.request.request_id, self.phase.value))
        finally:
            # Nothing here suspends: a cancelled request still gives its slot back and leaves its record.
            self._delivery.stop()
            self._drop_mask()
            self._release()
            self._complete()

    async def _tell(self, error: ApiError) -> None:
        """Record the failure, then tell the caller: as an event where the headers are out, else by raising it."""
        account = self.account
        account.error_code = error.code or ""
        if self.phase is Phase.COMMITTED:
            account.outcome = "truncated"
        else:
            account.outcome = "refused" if error.status < 500 else "error"
        await self._delivery.settle()
        if self._delivery.opened:
            account.status = 200
            await account.durable(self._complete())
            await self._delivery.broken(error, self.request.request_id)
            return
        account.status = error.status
        error.answer_headers = account.headers()
        await account.durable(self._complete())
        raise error from None

    async def _serve_or_keep(self) -> None:
        """Serve the request; where that fails or is cut, by an answer of its own that was not thought good enough."""
        try:
            with TimeLimit(self._deadline.remaining()):
                await self._serve()
        except (Exception, asyncio.CancelledError) as exc:
            error, climb = exc, self._climb
            if isinstance(exc, asyncio.CancelledError) and self._cut_by_us() and not self._delivery.discard:
                error = ShuttingDown()
            if climb is None or climb.kept is None or self.phase in (Phase.COMMITTED, Phase.DONE):
                raise
            if isinstance(error, asyncio.CancelledError | ClientGone):
                raise
            self._whole = climb.give_back(answer_to(error, self.request.request_id, self.phase.value))
            if self.request.stream:
                await self._commit()
                await self._delivery.write(self._whole)
            await self._finish()

    async def _serve(self) -> None:
        weighed = await self._roads.weigh(self.request)
        self._enter(Phase.SCORED)
        self.account.decided(weighed)
        decision = weighed.decide()
        walk = Walk(decision)
        if decision.may_leave:
            self._way_out = WayOut(self.request, self._roads, weighed.policy, self._deadline)
        escalation = weighed.policy.escalation_for(decision.task)
        if escalation.on:
            self._climb = Climb(escalation, self.request, walk, decision.task, self.account, self._deadline)
        self._delivery.start_waiting()
        while True:
            road = walk.road
            setback = await self._attempt(road, weighed, walk.reason, walk.wait)
            if setback is None:
                await self._finish()
                return
            what = f"{setback.words} on {self._backend(road)}"
            if self._way_out is not None:
                setback = self._way_out.met(setback)
            walk.met(setback)
            if setback.cause == "engine_unavailable" and self._stays_in_tier(road):
                self._note(f"{road} lost its worker, trying another")
                continue
            if self.phase is Phase.COMMITTED:
                raise setback.error
            if road == COMMERCIAL and await self._asks_again(setback, walk.elsewhere, what):
                continue
            onward = walk.go_on(self.account.queue_ms)
            self._note(f"{what}, {f'moving to {onward}' if onward else 'no road left'}")
            if onward is None:
                raise walk.error()
            self._lost.names.clear()

    def _stays_in_tier(self, road: Road) -> bool:
        asked = road != COMMERCIAL and self._engine is not None
        return asked and self._lost.another(road, self._worker, self._trail, self.phase is Phase.COMMITTED)

    async def _asks_again(self, setback: Setback, elsewhere: bool, what: str) -> bool:
        """Whether a commercial endpoint is asked once more, the same or another; waits until its turn has come."""
        turn = None if self._way_out is None else self._way_out.again(setback, elsewhere)
        if turn is None:
            return False
        name, wait_s = turn.outlet.name, turn.wait_s
        self._note(f"{what}, asking {name}{f' in {wait_s:.1f} s' if wait_s else ''}")
        await asyncio.sleep(wait_s)
        return True

    async def _attempt(self, road: Road, weighed: Weighed, reason: str, wait: bool) -> Setback | None:
        """Try one road. None: it served. A setback: another road may serve, or another worker go on."""
        decision = weighed.decide()
        if self.phase is not Phase.COMMITTED:
            self._enter(Phase.QUEUED)
        self.account.try_road(road)
        if self._way_out is not None:
            self._way_out.anew()
        outcome = "cancelled"
        try:
            if road == COMMERCIAL:
                await self._serve_commercial(decision, reason)
            else:
                await self._serve_local(road, decision, weighed.policy, wait)
            outcome = "ok"
            return None
        except ClientGone:
            outcome = "client_aborted"
            raise
        except Exception as exc:
            outcome = "error"
            setback = setback_of(exc, decision)
            outcome = setback.cause
            self._on_setback(exc)
            return setback
        finally:
            self._release()
            self.account.tried(outcome, self._way_out.egress_id if self._way_out else "")

    # ---- the roads ----

    async def _serve_local(self, road: Road, decision: Decision, policy: Policy, wait: bool) -> None:
        tier, request, account = self._roads.tier(road), self.request, self.account
        going_on = self.phase is Phase.COMMITTED
        if not going_on:
            try:
                await tier.fits(request.body, request.body_bytes)
            except ContextLengthExceeded as exc:
                self._prompt_tokens = exc.prompt_tokens or tier.max_model_len
                raise
        lease = self._lease = await self._take_slot(road, decision, wait, going_on)
        self._engine, self._worker = lease.engine, lease.worker
        account.asks(lease.worker, decision.adapter or tier.model)
        self._drop_mask()
        if not going_on:
            self._enter(Phase.GRANTED)
            self._trail = Trail() if request.stream else None
        climb = None if going_on else self._climb
        sure = None if climb is None else climb.begin()
        call = EngineCall(
            request.request_id,
            request.body,
            account.meter,
            decision.adapter,
            self._trail,
            sure,
            account.traceparent,
        )
        try:
            await self._take_answer(lease.engine, call, policy.local_limits, climb)
        except EngineOverloaded:
            if going_on:
                self._roads.continued(road, "no_worker")
                raise WorkerLost from None
            raise
        if going_on:
            self._roads.continued(road, "ok")
        tier.learn(decision.task, request.body, lease, account.usage)
        if climb is not None and not request.stream:
            self._release()
            await climb.judge(call, self._whole)

    async def _take_answer(
        self, engine: Engine, call: EngineCall, limits: LocalLimits, climb: Climb | None
    ) -> None:
        """Raises: LocalLate, and what the engine raises; Escalated."""
        with whole_time(limits.total_s, self._deadline.remaining()):
            if not self.request.stream:
                self._whole = await engine.complete(call)
                return
            with Silence(limits.first_token_s, limits.gap_s) as silence:
                made = engine.stream(call)
                if climb is not None and climb.holds:
                    made = climb.held(made, call, silence)
                async with closing(made) as events:
                    await self._pump(events, silence)

    async def _take_slot(self, road: Road, decision: Decision, wait: bool, going_on: bool) -> SlotLease:
        request, tier = self.request, self._roads.tier(road)
        asked = self._clock.monotonic()
        try:
            ask = (
                ask_to_go_on(tier, request, self._deadline.within(self._limits.continue_wait_s))
                if going_on
                else first_ask(
                    tier,
                    request,
                    decision,
                    self._deadline,
                    queued_ms=self.account.queue_ms,
                    wait=wait,
                    # One that died is another engine when it comes up again.
                    shunned=self._lost.names if self._engine and self._engine.alive else (),
                )
            )
            way_out = self._way_out
            leaves = way_out and not going_on and COMMERCIAL in (*decision.overflow, *decision.alternates)
            with way_out.waiting() if way_out and leaves else nullcontext():
                return await tier.lease(ask, decision.task, request.body, request.body_bytes)
        except (QueueLockTimeout, TierNotReady):
            if going_on:
                self._roads.continued(road, "no_worker")
                raise WorkerLost from None
            raise
        finally:
            self.account.queue_ms += (self._clock.monotonic() - asked) * 1000

    async def _serve_commercial(self, decision: Decision, reason: str) -> None:
        if self._way_out is None:
            raise RuntimeError("a road leads outward that the decision closed")
        # No record, no egress: the intent must be on disk before anything is built that could leave.
        await self.account.intent_durable(required=True)
        granted = partial(self._enter, Phase.GRANTED)
        passage = await self._way_out.passage(self.account.attempts, reason, self._prompt_tokens, granted)
        self.account.asks(passage.endpoint, passage.model)
        if self.account.trace is not None:
            self.account.trace.inspected()
        await drained(self._cross(passage), decision.drain_s, self._delivery, self._nothing_to_drain)

    async def _cross(self, passage: Passage) -> None:
        meter = self.account.meter
        if self.request.stream:
            keep_usage = answer.wants_usage(self.request.body)
            async with closing(passage.stream(self._deadline, meter, keep_usage)) as events:
                await self._pump(events)
        else:
            self._whole = await passage.complete(self._deadline, meter)

    def _nothing_to_drain(self) -> bool:
        """Whether the request is ended by us and not by its caller, or nothing of it has left yet."""
        left = self._way_out is not None and self._way_out.egress_id
        return self._deadline.expired() or self._cut_by_us() or not left

    # ---- the answer ----

    async def _pump(self, events: AsyncIterator[bytes], silence: Silence | None = None) -> None:
        """Pass events on. What comes before the first content is held, so that it can still be dropped."""
        held, held_bytes = list[bytes](), 0
        silence = silence or Silence(0, 0)
        account, now = self.account, self._clock.monotonic
        async for event in events:
            account.last_event = now()
            out = event
            silence.events += 1
            if self.phase is Phase.GRANTED:
                held.append(event)
                held_bytes += len(event)
                if not answer.commits(event):
                    if held_bytes > MAX_HELD_BYTES:
                        raise EmptyAnswer
                    continue
                silence.away = True
                await self._commit()
                account.first_event = account.last_event
                out = b"".join(held)
            silence.begun = silence.away = True
            await self._delivery.write(out)
            silence.away = False
            if account.unreported >= PROGRESS_TOKENS:
                self.note_progress()
        if self.phase is Phase.GRANTED:
            raise EmptyAnswer

    async def _commit(self) -> None:
        """The commit point. The intent's row is on disk before the first byte goes out."""
        await self.account.intent_durable()
        self._enter(Phase.COMMITTED)
        self.account.ttft_ms = self.account.elapsed_ms()
        self.account.status = 200
        await self._delivery.begin()

    async def _finish(self) -> None:
        """The answer is made: record it, then let its end go out."""
        account = self.account
        account.outcome = "ok"
        if self.request.stream:
            await account.durable(self._complete())
            await self._delivery.end()
        else:
            await account.intent_durable()
            self._enter(Phase.COMMITTED)
            account.status, account.ttft_ms = 200, account.elapsed_ms()
            await account.durable(self._complete())
            await self._delivery.whole(self._whole)

    # ---- what hangs on the states ----

    def note_progress(self) -> None:
        """Leave a progress row, and let the reservation follow the answer, if there are new tokens."""
        if self.account.note_progress() and self._lease is not None:
            self._lease.grown(self.account.meter)

    def _enter(self, phase: Phase) -> None:
        if phase not in LEGAL[self.phase]:
            raise RuntimeError(f"illegal step {self.phase.value} -> {phase.value}")
        self.phase = phase

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()
            self.account.worker_us = lease.worker_us

    def _drop_mask(self) -> None:
        if self._way_out is not None:
            self._way_out.drop()

    def _complete(self) -> asyncio.Future[None]:
        """Enqueue the one completion row; further calls return the same future."""
        if self.phase is not Phase.DONE:
            self._enter(Phase.DONE)
        return self.account.close()

    def _backend(self, road: Road) -> str:
        """The road, and the endpoint where it is the commercial one; for the log."""
        named = road == COMMERCIAL and self._way_out is not None and self._way_out.endpoint
        return f"{road} {named}" if named else road

    def _note(self, what: str) -> None:
        log.info("request %s: %s", self.request.request_id, what)
