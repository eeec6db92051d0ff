"""What becomes of one request, in numbers: its rows in the ledger and the headers that tell them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weighbridge.config.clock import Clock
from weighbridge.config.roads import Road
from weighbridge.config.usage import TokenMeter
from weighbridge.observability.ledger import Ledger, LedgerUnavailable
from weighbridge.observability.records import Attempt, Completion, Intent, Outcome, Progress
from weighbridge.observability.trace_context import read_traceparent
from weighbridge.pool.engine import Trail
from weighbridge.router import answer
from weighbridge.router.admitted import Admitted, Header
from weighbridge.router.explanation import EXPLANATION, explanation
from weighbridge.router.roads import Weighed

if TYPE_CHECKING:
    from weighbridge.observability.request_trace import RequestTrace

log = logging.getLogger("weighbridge.router")


class Account:
    """One request's figures while it is under way, and its rows: an intent, an attempt for each backend, one
    completion."""

    def __init__(
        self,
        request: Admitted,
        *,
        ledger: Ledger,
        clock: Clock,
        on_done: Callable[[Account], None],
        trace: RequestTrace | None = None,
    ) -> None:
        self.request = request
        self.trace = trace
        """Its spans, where it is sampled."""
        self.weighed: Weighed | None = None
        self.road: Road | None = None
        """The road being tried, or the last one that was."""
        self.attempts = 0
        self.meter = TokenMeter()
        """Tokens of the present attempt."""
        self._carried: TokenMeter | None = None
        self._trail: Trail | None = None
        self.queue_ms = 0.0
        self.ttft_ms: float | None = None
        self.first_event: float | None = None
        self.last_event = 0.0
        """When the first and the last event of a streamed answer came, in monotonic seconds."""
        self.backend = ""
        self.model = ""
        """Who was asked in the present attempt, and for which model; empty before anybody was."""
        self.worker_us = 0
        """What the present attempt had of its worker, once its slot is back."""
        self.total_ms = 0.0
        self.outcome: Outcome = "error"
        self.status = 0
        self.error_code = ""
        self.told = ""
        """What the caller is told of an answer that was not good enough, in place of the decision's reason."""
        self._ledger = ledger
        self._clock = clock
        self._on_done = on_done
        self._intent: asyncio.Future[None] | None = None
        self._completion: asyncio.Future[None] | None = None
        self._reported = 0
        self._started_ns = 0
        self._queued_before = 0.0

    @property
    def usage(self) -> TokenMeter:
        """Tokens of the answer as its caller sees it, whichever workers made it; a token once."""
        carried, meter = self._carried, self.meter
        if carried is None or self._trail is None:
            return meter
        return TokenMeter(
            carried.prompt,
            carried.completion - self._trail.dropped + meter.completion,
            carried.cached,
            carried.exact and meter.exact,
        )

    @property
    def unreported(self) -> int:
        """Tokens made since the last progress row."""
        return self.meter.completion - self._reported

    def carry(self, trail: Trail) -> None:
        """Another worker goes on where `trail` ends: what it holds is part of the answer, the next attempt adds to it.

        What the lost worker had made and not handed over is made again, and so is what is taken off the trail's end.
        """
        before = self._carried or self.meter
        made = len(trail.token_ids) + trail.dropped
        self._trail = trail
        self._carried = TokenMeter(trail.prompt_tokens, made, before.cached, before.exact)
        self.meter = TokenMeter()

    def back_to(self, road: Road, meter: TokenMeter) -> None:
        """The answer of an earlier attempt is the caller's: its road, and its tokens."""
        self.road, self.meter = road, meter
        self._reported = meter.completion

    # ---- rows ----

    def decided(self, weighed: Weighed) -> None:
        """Write the intent."""
        self.weighed = weighed
        row = self._intent_row()
        self._intent = self._ledger.intent(row)
        if self.trace is not None:
            self.trace.decided(row)

    def try_road(self, road: Road) -> None:
        """A new attempt begins."""
        self.road = road
        self.attempts += 1
        self.meter = TokenMeter()
        self._reported = 0
        self._started_ns = self._clock.wall_ns()
        self._queued_before = self.queue_ms
        if self.trace is not None:
            self.trace.attempt_begins(road, self._started_ns)
        self.backend = self.model = ""
        self.worker_us = 0

    def asks(self, backend: str, model: str) -> None:
        """The attempt asks this worker or endpoint, for this model."""
        self.backend, self.model = backend, model

    def tried(self, outcome: str, egress_id: str) -> None:
        """The attempt has ended: write its row."""
        assert self.road is not None
        row = Attempt(
            request_id=self.request.request_id,
            n=self.attempts,
            road=self.road,
            started_ns=self._started_ns,
            ended_ns=self._clock.wall_ns(),
            outcome=outcome,
            prompt_tokens=self.meter.prompt,
            cached_tokens=self.meter.cached,
            completion_tokens=self.meter.completion,
            queue_ms=self.queue_ms - self._queued_before,
            egress_id=egress_id,
            backend=self.backend,
            model=self.model,
            worker_us=self.worker_us,
        )
        self._ledger.attempt(row)
        if self.trace is not None:
            self.trace.attempt_ends(row)

    def note_progress(self) -> bool:
        """Leave a progress row if there are tokens since the last one; whether there were."""
        if self.unreported <= 0 or self._completion is not None:
            return False
        self._reported = self.meter.completion
        usage = self.usage
        self._ledger.progress(Progress(self.request.request_id, usage.prompt, usage.completion))
        return True

    def close(self) -> asyncio.Future[None]:
        """Enqueue the one completion row; further calls return the same future."""
        if self._completion is None:
            self.total_ms = self.elapsed_ms()
            usage = self.usage
            if self._intent is None:
                self._intent = self._ledger.intent(self._intent_row())
            row = Completion(
                request_id=self.request.request_id,
                ended_ns=self._clock.wall_ns(),
                outcome=self.outcome,
                status=self.status,
                road=self.road or "",
                attempts=self.attempts,
                prompt_tokens=usage.prompt,
                cached_tokens=usage.cached,
                completion_tokens=usage.completion,
                tokens_exact=usage.exact,
                queue_ms=self.queue_ms,
                ttft_ms=self.ttft_ms,
                total_ms=self.total_ms,
                error_code=self.error_code,
                tpot_ms=self._tpot_ms(usage.completion),
            )
            self._completion = self._ledger.completion(row)
            if self.trace is not None:
                self.trace.closed(row)
            try:
                self._on_done(self)
            except Exception as exc:
                # Counting must not cost the caller an answer.
                log.error("request %s: not counted, %s", self.request.request_id, type(exc).__name__)
        return self._completion

    async def intent_durable(self, *, required: bool = False) -> None:
        """Wait for the intent's row; see `durable`.

        Args:
            required: raise LedgerUnavailable where it cannot be written.
        """
        if self._intent is not None and self._intent.cancelled():
            # Who waited for it before was given up on. Handed over again it is the same row.
            self._intent = self._ledger.intent(self._intent_row())
        if required and self._intent is not None:
            await self._intent
        else:
            await self.durable(self._intent)

    async def durable(self, written: asyncio.Future[None] | None) -> None:
        """Wait for a row. With the ledger down local serving goes on; the ledger counts the rows at risk."""
        if written is None or written.cancelled():
            return
        try:
            # Cancelled with whoever waits: the row is written all the same.
            await written
        except LedgerUnavailable:
            log.debug("request %s: its row waits for the ledger", self.request.request_id)

    @property
    def traceparent(self) -> bytes:
        """What a local engine gets of the request's trace: ours, else the caller's as it is."""
        if self.trace is not None:
            return self.trace.traceparent
        given = self.request.traceparent
        caller = None if given is None else read_traceparent(given)
        return b"" if caller is None else caller.header

    def elapsed_ms(self) -> float:
        """Milliseconds since admission."""
        return (self._clock.monotonic() - self.request.admitted_at) * 1000

    def _tpot_ms(self, tokens: int) -> float | None:
        if self.first_event is None or tokens < 2:
            return None
        return (self.last_event - self.first_event) * 1000 / (tokens - 1)

    # ---- what the caller is told of it ----

    def headers(self, settled: bool = True) -> list[Header]:
        """Our headers. While the road is not settled they do not name it."""
        weighed = self.weighed
        told = answer.weighbridge_headers(
            request_id=self.request.request_id,
            road=(self.road or "") if settled else "",
            score=weighed.score if weighed else None,
            task=weighed.weight.task if weighed else "",
            policy=weighed.policy.version if weighed else "",
            attempts=self.attempts if settled else None,
            queue_ms=self.queue_ms if settled else None,
            reason=self.told or (weighed.reasons[-1] if weighed else ""),
        )
        if self.request.explain and weighed:
            told.append((EXPLANATION, explanation(weighed, self.request.body)))
        return told

    def summary(self) -> dict[str, Any]:
        """What the headers would have said, for an answer whose headers went out before it was known."""
        told = {"reason": self.told} if self.told else {}
        return {"road": self.road or "", "attempts": self.attempts, "queue_ms": round(self.queue_ms), **told}

    def _intent_row(self) -> Intent:
        request, weighed = self.request, self.weighed
        p_8b_fails, p_70b_fails = weighed.risks if weighed else (None, None)
        return Intent(
            request_id=request.request_id,
            admitted_ns=request.admitted_ns,
            tenant=request.tenant,
            key_id=request.key_id,
            model_requested=request.model,
            stream=request.stream,
            road=weighed.road if weighed else "",
            score=weighed.score if weighed else None,
            task=weighed.weight.task if weighed else "unknown",
            policy_version=weighed.policy.version if weighed else "",
            calibration_version=weighed.calibration_version if weighed else "",
            reasons=weighed.reasons if weighed else (),
            p_8b_fails=p_8b_fails,
            p_70b_fails=p_70b_fails,
        )
