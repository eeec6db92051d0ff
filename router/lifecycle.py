"""One request from admission to its record: the state machine every road passes through.

    received → scored → queued → granted → committed → done

The *commit point* is entering `committed`: before it a setback may move the request to another road, after it
the answer finishes or an error event is sent. The slot lease lives inside `granted` and `committed`, the attempt
rows hang on `queued`, the one completion row on `done`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from enum import Enum

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError, ContextLengthExceeded
from weighbridge.config.roads import COMMERCIAL, Road
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.ledger import Ledger, LedgerUnavailable
from weighbridge.observability.records import Attempt, Completion, Intent, Outcome, Progress
from weighbridge.pool.engine import EngineCall
from weighbridge.pool.queue_lock import SlotLease
from weighbridge.router import answer
from weighbridge.router.admitted import Admitted, ClientGone, Header, Sink
from weighbridge.router.decision import Decision
from weighbridge.router.failover import (
    EmptyAnswer,
    Setback,
    egress_reason,
    final_error,
    next_road,
    setback_of,
)
from weighbridge.router.roads import Passage, Roads, Weighed, closing

log = logging.getLogger("weighbridge.router")

PROGRESS_TOKENS = 64
"""A progress row at least every so many tokens of a stream; the ticker adds one a second."""


MAX_HELD_BYTES = 1 << 20
"""What a stream may send before its first content; a backend that sends more without content is not answering."""


class Phase(Enum):
    RECEIVED = "received"
    SCORED = "scored"
    QUEUED = "queued"
    GRANTED = "granted"
    COMMITTED = "committed"
    DONE = "done"


LEGAL: dict[Phase, frozenset[Phase]] = {
    Phase.RECEIVED: frozenset({Phase.SCORED, Phase.DONE}),
    Phase.SCORED: frozenset({Phase.QUEUED, Phase.DONE}),
    # A road that was not granted, or failed before the commit point, leads back to the queue of the next one.
    Phase.QUEUED: frozenset({Phase.QUEUED, Phase.GRANTED, Phase.DONE}),
    Phase.GRANTED: frozenset({Phase.QUEUED, Phase.COMMITTED, Phase.DONE}),
    Phase.COMMITTED: frozenset({Phase.DONE}),
    Phase.DONE: frozenset(),
}


class Lifecycle:
    """One request under way. Made and run by `router.dispatch.Dispatch`."""

    def __init__(
        self,
        request: Admitted,
        sink: Sink,
        *,
        roads: Roads,
        ledger: Ledger,
        clock: Clock,
        deadline: Deadline,
        on_done: Callable[[Lifecycle], None],
        on_setback: Callable[[Exception], None],
        cut_by_us: Callable[[], bool],
    ) -> None:
        self.request = request
        self.phase = Phase.RECEIVED
        self.meter = TokenMeter()
        self.attempts = 0
        self.road: Road | None = None
        self.queue_ms = 0.0
        self.ttft_ms: float | None = None
        self.total_ms = 0.0
        self.outcome: Outcome = "error"
        self.status = 0
        self.error_code = ""
        self._sink = sink
        self._roads = roads
        self._ledger = ledger
        self._clock = clock
        self._deadline = deadline
        self._on_done = on_done
        self._on_setback = on_setback
        self._cut_by_us = cut_by_us
        self._weighed: Weighed | None = None
        self._lease: SlotLease | None = None
        self._intent: asyncio.Future[None] | None = None
        self._completion: asyncio.Future[None] | None = None
        self._reported = 0
        self._whole = b""
        self._prompt_tokens = 0
        """At least so many, once a tier found the prompt too long; 0 while nobody had to count."""
        self._passage: Passage | None = None

    # ---- the walk ----

    async def run(self) -> None:
        """Serve the request and write its one record, whatever happens.

        Raises:
            ApiError: nothing was sent yet; the gateway answers it (`answer_headers` holds our headers).
            ClientGone, asyncio.CancelledError: the caller went away; the record is written.
        """
        try:
            async with asyncio.timeout(self._deadline.remaining()):
                await self._serve()
        except (asyncio.CancelledError, ClientGone) as exc:
            self.outcome = "client_aborted"
            if isinstance(exc, ClientGone):
                self.error_code = exc.code
            elif self._cut_by_us():
                self.outcome, self.error_code = ("truncated" if self.status else "error"), "shutdown"
            raise
        except Exception as exc:
            error = self._as_answer(exc)
            self.error_code = error.code or ""
            if self.status:
                self.outcome = "truncated"
                await self._durable(self._complete())
                await self._say_broken(error)
                return
            self.status = error.status
            self.outcome = "refused" if error.status < 500 else "error"
            error.answer_headers = self.headers()
            await self._durable(self._complete())
            raise error from None
        finally:
            # Nothing here suspends: a cancelled request still gives its slot back and leaves its record.
            self._release()
            self._complete()

    async def _serve(self) -> None:
        weighed = self._weighed = self._roads.weigh(self.request)
        self._enter(Phase.SCORED)
        self._intent = self._ledger.intent(self._intent_row(weighed))
        decision = weighed.decide()
        tried: list[Road] = []
        setbacks: list[Setback] = []
        road, reason = decision.road, decision.egress_reason
        while True:
            tried.append(road)
            setback = await self._attempt(road, decision, reason)
            if setback is None:
                await self._finish()
                return
            onward = next_road(decision, tried, setback)
            log.info(
                "request %s: %s on %s, %s",
                self.request.request_id,
                setback.cause,
                road,
                f"moving to {onward}" if onward else "no road left",
            )
            setbacks.append(setback)
            if onward is None:
                raise final_error(setbacks)
            road, reason = onward, egress_reason(setback)

    async def _attempt(self, road: Road, decision: Decision, reason: str) -> Setback | None:
        """Try one road. None: it served. A setback: nothing was sent, another road may serve."""
        self._enter(Phase.QUEUED)
        self.road = road
        self.attempts += 1
        self.meter = TokenMeter()
        self._reported = 0
        self._passage = None
        started, queued_before = self._clock.wall_ns(), self.queue_ms
        outcome = "cancelled"
        try:
            if road == COMMERCIAL:
                await self._serve_commercial(decision, reason)
            else:
                await self._serve_local(road, decision)
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
            if self.phase is Phase.COMMITTED:
                raise setback.error from None
            return setback
        finally:
            self._release()
            self._ledger.attempt(
                Attempt(
                    request_id=self.request.request_id,
                    n=self.attempts,
                    road=road,
                    started_ns=started,
                    ended_ns=self._clock.wall_ns(),
                    outcome=outcome,
                    prompt_tokens=self.meter.prompt,
                    cached_tokens=self.meter.cached,
                    completion_tokens=self.meter.completion,
                    queue_ms=self.queue_ms - queued_before,
                    egress_id=self._passage.egress_id if self._passage else "",
                )
            )

    async def _serve_local(self, road: Road, decision: Decision) -> None:
        tier = self._roads.tier(road)
        try:
            await tier.fits(self.request.body, self.request.body_bytes)
        except ContextLengthExceeded as exc:
            self._prompt_tokens = exc.prompt_tokens or tier.max_model_len
            raise
        asked = self._clock.monotonic()
        try:
            self._lease = await tier.lease(self._deadline.within(decision.queue_lock_timeout_ms / 1000))
        finally:
            self.queue_ms += (self._clock.monotonic() - asked) * 1000
        self._enter(Phase.GRANTED)
        call = EngineCall(self.request.request_id, self.request.body, self.meter)
        engine = self._lease.engine
        if self.request.stream:
            async with closing(engine.stream(call)) as events:
                await self._pump(events)
        else:
            self._whole = await engine.complete(call)

    async def _serve_commercial(self, decision: Decision, reason: str) -> None:
        if not decision.may_leave:
            raise RuntimeError("a road leads outward that the decision closed")
        window = self._roads.upstream_window
        if window is not None and self._prompt_tokens >= window:
            raise ContextLengthExceeded(self._prompt_tokens, window)
        # No record, no egress: the intent must be on disk before anything is built that could leave.
        if self._intent is not None:
            await asyncio.shield(self._intent)
        masked = await self._roads.mask(self.request, self._deadline)
        self._enter(Phase.GRANTED)
        passage = self._passage = self._roads.passage(masked, self.attempts, reason, decision.policy_version)
        if self.request.stream:
            keep_usage = answer.wants_usage(self.request.body)
            async with closing(passage.stream(self._deadline, self.meter, keep_usage)) as events:
                await self._pump(events)
        else:
            self._whole = await passage.complete(self._deadline, self.meter)

    async def _pump(self, events: AsyncIterator[bytes]) -> None:
        """Pass events on. What comes before the first content is held, so that it can still be dropped."""
        held: list[bytes] = []
        held_bytes = 0
        async for event in events:
            out = event
            if self.phase is Phase.GRANTED:
                held.append(event)
                held_bytes += len(event)
                if held_bytes > MAX_HELD_BYTES:
                    raise EmptyAnswer
                if not answer.has_content(answer.payload_of(event)):
                    continue
                await self._commit()
                out = b"".join(held)
            await self._sink.write(out)
            if self.meter.completion - self._reported >= PROGRESS_TOKENS:
                self.note_progress()
        if self.phase is Phase.GRANTED:
            raise EmptyAnswer

    async def _commit(self) -> None:
        """The commit point. The intent's row is on disk before the first byte goes out."""
        await self._durable(self._intent)
        self._enter(Phase.COMMITTED)
        self.ttft_ms = self._elapsed_ms()
        self.status = 200
        await self._sink.start(200, [*answer.content_headers(self.request.stream), *self.headers()])

    async def _finish(self) -> None:
        """The answer is made: record it, then let its end go out."""
        if self.request.stream:
            self.outcome = "ok"
            await self._durable(self._complete())
            await self._sink.write(answer.DONE)
        else:
            await self._durable(self._intent)
            self._enter(Phase.COMMITTED)
            self.outcome, self.status, self.ttft_ms = "ok", 200, self._elapsed_ms()
            await self._durable(self._complete())
            length = (b"content-length", str(len(self._whole)).encode())
            await self._sink.start(200, [*answer.content_headers(False), length, *self.headers()])
            await self._sink.write(self._whole)
        await self._sink.end()

    async def _say_broken(self, error: ApiError) -> None:
        """Tell the caller that the stream broke. A document cannot say so: the gateway cuts what is not ended."""
        if not self.request.stream:
            return
        try:
            await self._sink.write(answer.frame(answer.error_body(error)))
            await self._sink.end()
        except ClientGone:
            log.info("request %s: caller left before the error event", self.request.request_id)

    # ---- what hangs on the states ----

    def _enter(self, phase: Phase) -> None:
        if phase not in LEGAL[self.phase]:
            raise RuntimeError(f"illegal step {self.phase.value} -> {phase.value}")
        self.phase = phase

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _complete(self) -> asyncio.Future[None]:
        """Enqueue the one completion row; further calls return the same future."""
        if self._completion is None:
            self._enter(Phase.DONE)
            self.total_ms = self._elapsed_ms()
            if self._intent is None:
                self._intent = self._ledger.intent(self._intent_row(None))
            self._completion = self._ledger.completion(
                Completion(
                    request_id=self.request.request_id,
                    ended_ns=self._clock.wall_ns(),
                    outcome=self.outcome,
                    status=self.status,
                    road=self.road or "",
                    attempts=self.attempts,
                    prompt_tokens=self.meter.prompt,
                    cached_tokens=self.meter.cached,
                    completion_tokens=self.meter.completion,
                    tokens_exact=self.meter.exact,
                    queue_ms=self.queue_ms,
                    ttft_ms=self.ttft_ms,
                    total_ms=self.total_ms,
                    error_code=self.error_code,
                )
            )
            try:
                self._on_done(self)
            except Exception as exc:
                # Counting must not cost the caller an answer.
                log.error("request %s: not counted, %s", self.request.request_id, type(exc).__name__)
        return self._completion

    async def _durable(self, written: asyncio.Future[None] | None) -> None:
        """Wait for a row. With the ledger down local serving goes on; the ledger counts the rows at risk."""
        if written is None:
            return
        try:
            await asyncio.shield(written)
        except LedgerUnavailable:
            log.debug("request %s: its row waits for the ledger", self.request.request_id)

    def note_progress(self) -> None:
        """Leave a progress row if there are tokens since the last one."""
        if self.meter.completion > self._reported and self._completion is None:
            self._reported = self.meter.completion
            self._ledger.progress(Progress(self.request.request_id, self.meter.prompt, self.meter.completion))

    def headers(self) -> list[Header]:
        weighed = self._weighed
        return answer.weighbridge_headers(
            request_id=self.request.request_id,
            road=self.road or "",
            score=weighed.weight.score if weighed else None,
            task=weighed.weight.task if weighed else "",
            policy=weighed.policy.version if weighed else "",
            attempts=self.attempts,
            queue_ms=self.queue_ms,
            reason=weighed.reasons[-1] if weighed else "",
        )

    def _intent_row(self, weighed: Weighed | None) -> Intent:
        request = self.request
        return Intent(
            request_id=request.request_id,
            admitted_ns=request.admitted_ns,
            tenant=request.tenant,
            key_id=request.key_id,
            model_requested=request.model,
            stream=request.stream,
            road=weighed.road if weighed else "",
            score=weighed.weight.score if weighed else 0.0,
            task=weighed.weight.task if weighed else "unknown",
            policy_version=weighed.policy.version if weighed else "",
            calibration_version=weighed.calibration_version if weighed else "",
            reasons=weighed.reasons if weighed else (),
        )

    def _as_answer(self, exc: Exception) -> ApiError:
        if isinstance(exc, ApiError):
            return exc
        if isinstance(exc, TimeoutError):
            return ApiError(
                504, "The request took longer than this gateway allows.", type="server_error", code="timeout"
            )
        # The type alone: an exception's text may hold a piece of the request.
        log.error(
            "request %s: unexpected %s in %s",
            self.request.request_id,
            type(exc).__name__,
            self.phase.value,
        )
        return ApiError(
            500, "Something went wrong in the gateway.", type="server_error", code="internal_error"
        )

    def _elapsed_ms(self) -> float:
        return (self._clock.monotonic() - self.request.admitted_at) * 1000
