"""The router's door: takes an admitted request, walks it through its lifecycle, keeps the ones under way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from weighbridge.commercial.errors import EgressClosed, UpstreamFailed, UpstreamRefused
from weighbridge.commercial.gate import EgressGate
from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.roads import COMMERCIAL
from weighbridge.config.settings import CommercialSettings
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Masker
from weighbridge.observability.ledger import Ledger, LedgerUnavailable
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.trace_context import read_traceparent
from weighbridge.policies.store import PolicyStore
from weighbridge.pool.pool import Pool
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted, ClientGone, Sink
from weighbridge.router.failover import Escalated
from weighbridge.router.lifecycle import Lifecycle, Limits
from weighbridge.router.roads import Roads
from weighbridge.state.pins import ConversationPins

if TYPE_CHECKING:
    from weighbridge.observability.request_trace import RequestTrace
    from weighbridge.observability.traces import Tracing

log = logging.getLogger("weighbridge.router")

PROGRESS_INTERVAL_S = 1.0
"""Answers under way leave a progress row this often (seconds), streaming or not."""

_EGRESS_ENDS = {"ok": "ok", "client_aborted": "cancelled"}


class Dispatch:
    """Carries requests out. One per gateway process."""

    def __init__(
        self,
        *,
        pool: Pool,
        policies: PolicyStore,
        masker: Masker,
        gate: EgressGate,
        ledger: Ledger,
        metrics: Metrics,
        clock: Clock,
        request_timeout_s: float,
        limits: Limits,
        commercial: CommercialSettings,
        pins: ConversationPins,
        switched_off: Callable[[], bool],
        tracing: Tracing | None = None,
    ) -> None:
        self._roads = Roads(
            pool=pool,
            policies=policies,
            masker=masker,
            gate=gate,
            commercial=commercial,
            metrics=metrics,
            pins=pins,
            switched_off=switched_off,
        )
        self._limits = limits
        self._ledger = ledger
        self._metrics = metrics
        self._clock = clock
        self._timeout_s = request_timeout_s
        self._tracing = tracing
        self._under_way: dict[Account, Lifecycle] = {}
        self.closing = False
        """Set at shutdown: who is cancelled from then on was cut off by us, not by the caller."""

    @property
    def under_way(self) -> int:
        """Requests admitted and not yet recorded."""
        return len(self._under_way)

    async def run(self, request: Admitted, sink: Sink) -> None:
        """Serve one request and write its record.

        Raises:
            ApiError: nothing was sent; `answer_headers` holds the headers to send with it.
        """
        trace = self._trace_of(request)
        account = Account(request, ledger=self._ledger, clock=self._clock, on_done=self._done, trace=trace)
        life = Lifecycle(
            request,
            sink,
            account,
            roads=self._roads,
            clock=self._clock,
            deadline=Deadline.after(self._clock, self._timeout_s),
            on_setback=self._setback,
            cut_by_us=lambda: self.closing,
            limits=self._limits,
        )
        self._under_way[account] = life
        try:
            await life.run()
        except ClientGone:
            log.info("request %s: the caller left", request.request_id)
        finally:
            if trace is not None:
                trace.end()

    def _trace_of(self, request: Admitted) -> RequestTrace | None:
        """Its spans, if it is sampled."""
        if self._tracing is None:
            return None
        caller = read_traceparent(request.traceparent)
        return self._tracing.begin(caller, model=request.model, at_ns=request.admitted_ns)

    async def note_progress(self) -> None:
        """Write a progress row for every answer under way, each second, until cancelled."""
        while True:
            await asyncio.sleep(PROGRESS_INTERVAL_S)
            for life in tuple(self._under_way.values()):
                life.note_progress()

    def _setback(self, exc: Exception) -> None:
        """Count what went wrong on the way out, and answers that were not good enough."""
        if isinstance(exc, MaskingRefused):
            self._metrics.masking_refusals_total.labels(exc.reason).inc()
        elif isinstance(exc, EgressClosed):
            self._metrics.egress_total.labels(exc.by).inc()
        elif isinstance(exc, UpstreamFailed):
            self._metrics.egress_total.labels(exc.kind).inc()
        elif isinstance(exc, UpstreamRefused):
            self._metrics.egress_total.labels("refused").inc()
        elif isinstance(exc, LedgerUnavailable):
            self._metrics.egress_total.labels("ledger_unavailable").inc()
        elif isinstance(exc, Escalated):
            self._metrics.escalations_total.labels(exc.road, exc.evidence).inc()

    def _done(self, account: Account) -> None:
        self._under_way.pop(account, None)
        if account.road == COMMERCIAL and account.outcome in _EGRESS_ENDS:
            self._metrics.egress_total.labels(_EGRESS_ENDS[account.outcome]).inc()
        self._metrics.request_done(
            road=account.road or "none",
            outcome=account.outcome,
            seconds=account.total_ms / 1000,
            ttft_seconds=None if account.ttft_ms is None else account.ttft_ms / 1000,
            prompt_tokens=account.usage.prompt,
            cached_tokens=account.usage.cached,
            completion_tokens=account.usage.completion,
        )
