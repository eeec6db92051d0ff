"""Looking at a local answer before anything of it is sent, and moving the request one road up where it is no good."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Final

import msgspec

from weighbridge.config.errors import ApiError
from weighbridge.config.offload import BODIES
from weighbridge.config.roads import Road
from weighbridge.config.usage import TokenMeter
from weighbridge.policies.escalation import Escalation, Evidence
from weighbridge.pool.engine import Confidence, EngineCall
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted
from weighbridge.router.evidence import Allowance, Look, TooMuch, find
from weighbridge.router.evidence_answer import Asked, Heard, Said, read_answer
from weighbridge.router.failover import Escalated
from weighbridge.router.roads import closing
from weighbridge.router.silence import Silence
from weighbridge.router.walk import Walk

log = logging.getLogger("weighbridge.router")

_INLINE_BYTES: Final = 32_768
_INLINE_S: Final = 0.005
"""How large an answer is looked at on the event loop, and for how long; what takes longer is looked at beside it."""
_LONGEST_S: Final = 0.5
"""An answer that cannot be judged in this time is delivered."""
_MAX_HELD_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """A whole local answer that a request was moved on from."""

    road: Road
    evidence: Evidence
    meter: TokenMeter
    answer: bytes
    """The document, or all events of the stream."""


class Climb:
    """One request's way up. Made where the policy wants answers looked at.

    Args:
        policy: what counts for the request's task.
        walk: knows which roads above are open.
        account: gets what the caller is told of it.
    """

    def __init__(
        self, policy: Escalation, request: Admitted, walk: Walk, task: str, account: Account
    ) -> None:
        self._policy = policy
        self._request = request
        self._walk = walk
        self._task = task
        self._account = account
        self._given: set[Evidence] = set()
        """Reasons for which the request was moved."""
        self.kept: Kept | None = None
        """The last whole answer that is there, should no road above serve."""

    def begin(self) -> Confidence | None:
        """A local attempt begins; gives what the engine is to fill in, where that counts."""
        if self._walk.returned:
            self._account.told = f"no road above {self._walk.road} served, so it was asked again"
        if (
            self._policy.min_mean_logprob is None
            or "low_logprob" not in self._wanted()
            or not self._walk.above
        ):
            return None
        return Confidence() if self.holds or not self._request.stream else None

    @property
    def holds(self) -> bool:
        """Whether the beginning of a stream is to be held back now: not where it could not be moved anyway."""
        return self._policy.hold_tokens > 0 and bool(self._walk.above and self._wanted())

    async def judge(self, call: EngineCall, document: bytes) -> None:
        """Look at a whole answer.

        Raises:
            Escalated: it is kept, and a road above is to be asked.
        """
        wanted = self._wanted()
        if not wanted or self._walk.returned or (self._walk.explicit and not self._walk.above):
            return
        try:
            inline = len(document) <= _INLINE_BYTES
            answer = read_answer(document) if inline else await BODIES.run(read_answer, document)
        except msgspec.DecodeError:
            return
        evidence = await self._find(Look(wanted, self._policy.min_mean_logprob), answer, call, inline)
        if evidence is not None:
            self._move(evidence, call, document)

    async def held(
        self, events: AsyncIterator[bytes], call: EngineCall, silence: Silence
    ) -> AsyncGenerator[bytes, None]:
        """A stream whose first events come in one piece, once they have been looked at.

        Raises:
            Escalated: they are not to be sent.
        """
        heard, held, size = Heard(), list[bytes](), 0
        looked = False
        async with closing(events) as coming:
            async for event in coming:
                if looked:
                    yield event
                    continue
                silence.events += 1
                held.append(event)
                size += len(event)
                try:
                    heard.take(event)
                except msgspec.DecodeError:
                    size = _MAX_HELD_BYTES
                silence.begun = silence.begun or call.meter.completion > 0
                # One that has ended is waited for: it can be kept whole.
                few = call.meter.completion < self._policy.hold_tokens or heard.ended
                if few and size < _MAX_HELD_BYTES:
                    continue
                looked = True
                await self._look(heard.said(), call, None)
                yield b"".join(held)
            if not looked and held:
                whole = b"".join(held)
                await self._look(heard.said(), call, whole if heard.ended else None)
                yield whole

    async def _look(self, answer: list[Said], call: EngineCall, whole: bytes | None) -> None:
        look = Look(self._wanted(), self._policy.min_mean_logprob, whole is not None)
        evidence = await self._find(look, answer, call, inline=True)
        if evidence is not None:
            self._move(evidence, call, whole)

    def _wanted(self) -> frozenset[Evidence]:
        """What may still move the request: nothing twice."""
        if len(self._given) >= self._policy.most:
            return frozenset()
        return self._policy.on - self._given if self._given else self._policy.on

    async def _find(self, look: Look, answer: list[Said], call: EngineCall, inline: bool) -> Evidence | None:
        asked = Asked(self._request.body, self._task)
        mean = None if call.confidence is None else call.confidence.mean
        try:
            if inline:
                try:
                    return find(look, asked, answer, mean, Allowance(_INLINE_S))
                except TooMuch:
                    pass
            return await BODIES.run(_find_beside, look, asked, answer, mean)
        except TooMuch:
            log.info("request %s: its answer takes too long to judge", self._request.request_id)
        except Exception as exc:
            # Judging must not cost the caller an answer.
            log.error(
                "request %s: its answer was not judged, %s", self._request.request_id, type(exc).__name__
            )
        return None

    def _move(self, evidence: Evidence, call: EngineCall, whole: bytes | None) -> None:
        road = self._walk.road
        if not self._walk.above:
            self._account.told = f"{evidence} on {road}, and no road above it is open"
            log.info("request %s: %s", self._request.request_id, self._account.told)
            return
        self._given.add(evidence)
        if whole is not None:
            self.kept = Kept(road, evidence, call.meter, whole)
        self._account.told = f"escalated from {road}: {evidence}"
        raise Escalated(road, evidence, again=whole is None)

    def give_back(self, error: ApiError) -> bytes:
        """The kept answer, which is the caller's after all.

        Args:
            error: what the roads above ended with.
        """
        kept = self.kept
        assert kept is not None
        self._account.back_to(kept.road, kept.meter)
        self._account.told = f"{kept.evidence} on {kept.road}, and no road above it served"
        log.info("request %s: %s (%s)", self._request.request_id, self._account.told, error.code)
        return kept.answer


def _find_beside(look: Look, asked: Asked, answer: list[Said], mean: float | None) -> Evidence | None:
    return find(look, asked, answer, mean, Allowance(_LONGEST_S))
