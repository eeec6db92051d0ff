"""The commercial part of one request's way: its mask, the endpoints it asks, and the exchange under way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from weighbridge.config.deadline import Deadline
from weighbridge.policies.compiled import Policy
from weighbridge.router.admitted import Admitted
from weighbridge.router.ahead import MaskAhead
from weighbridge.router.failover import Setback
from weighbridge.router.outward import Outward, Turn
from weighbridge.router.roads import Passage, Roads


class WayOut:
    """Made for a request that may leave; most never use it.

    Args:
        roads: the rooms below.
        policy: the one the request was admitted under.
        deadline: the request's.
    """

    def __init__(self, request: Admitted, roads: Roads, policy: Policy, deadline: Deadline) -> None:
        self._request = request
        self._roads = roads
        self._policy = policy
        self._deadline = deadline
        self._mask = MaskAhead(partial(roads.mask, request, policy, deadline), partial(roads.lists, request))
        self._outward: Outward | None = None
        self._passage: Passage | None = None

    def anew(self) -> None:
        """Another attempt begins, at whatever road."""
        self._passage = None

    def waiting(self) -> AbstractContextManager[None]:
        """Within, the request waits for a slot and is masked meanwhile, in case it has to leave."""
        return self._mask.waiting()

    def drop(self) -> None:
        """The mask is not needed: the request is served here, or gone. Idempotent."""
        self._mask.drop()

    async def passage(
        self, attempt: int, reason: str, prompt_tokens: int, granted: Callable[[], None]
    ) -> Passage:
        """The way through the gate for one attempt.

        Args:
            attempt: its number.
            reason: the word for the egress row.
            prompt_tokens: the prompt is at least so long; 0 when nobody has counted.
            granted: called once nothing stands in the way any more.

        Raises:
            ContextLengthExceeded, UpstreamFailed: no endpoint is to be asked.
            MaskingRefused, EgressClosed, InvalidRequest: it does not leave.
        """
        if self._outward is None:
            self._outward = self._roads.outward(self._request, self._policy, self._deadline)
        outlet = self._outward.take(prompt_tokens)
        masked = await self._mask.masked()
        passage = await self._roads.passage(self._request, masked, attempt, reason, self._policy, outlet)
        granted()
        self._passage = passage
        self._outward.asked(outlet)
        return passage

    @property
    def egress_id(self) -> str:
        """The id of the egress row of the attempt under way; empty while nothing of it has left."""
        return self._passage.egress_id if self._passage is not None else ""

    @property
    def endpoint(self) -> str:
        """The name of the endpoint that was asked last; empty before the first."""
        return "" if self._outward is None else self._outward.present

    def met(self, setback: Setback) -> Setback:
        """Read a setback; see `Outward.met`."""
        return setback if self._outward is None else self._outward.met(setback)

    def again(self, setback: Setback, elsewhere: bool) -> Turn | None:
        """The next attempt at a commercial endpoint; see `Outward.again`."""
        return None if self._outward is None else self._outward.again(setback, elsewhere)
