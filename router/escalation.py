"""Looking at a local answer before anything of it is sent, and moving the request one road up where it is no good."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ApiError
from weighbridge.config.evidence import Evidence
from weighbridge.config.offload import JUDGING
from weighbridge.config.roads import Road
from weighbridge.config.usage import TokenMeter
from weighbridge.policies.escalation import Escalation
from weighbridge.pool.engine import Confidence, EngineCall
from weighbridge.router.account import Account
from weighbridge.router.admitted import Admitted
from weighbridge.router.evidence import Look, find
from weighbridge.router.evidence_answer import Asked, Heard, Said, read_answer
from weighbridge.router.evidence_json import Allowance, TooMuch
from weighbridge.router.failover import Escalated
from weighbridge.router.roads import closing
from weighbridge.router.silence import Silence
from weighbridge.router.walk import Walk

log = logging.getLogger("weighbridge.router")

_INLINE_BYTES: Final = 32_768
_INLINE_S: Final = 0.005
_INLINE_NODES: Final = 1_000
"""How large an answer is looked at on the event loop, and for how long; what takes longer is looked at beside it."""
_LONGEST_S: Final = 0.05
_MOST_BESIDE: Final = 4
"""An answer that cannot be judged in this time, or finds so many others there, is delivered."""
_TO_DELIVER_S: Final = 0.1
"""What judging leaves of a request's time."""
_MAX_HELD_BYTES: Final = 512 << 10


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
        deadline: the request's.
        account: gets what the caller is told of it.
    """

    def __init__(
        self,
        policy: Escalation,
        request: Admitted,
        walk: Walk,
        task: str,
        account: Account,
        deadline: Deadline,
    ) -> None:
        self._policy = policy
        self._request = request
        self._walk = walk
        self._task = task
        self._account = account
        self._deadline = deadline
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
        if self._wanted() and self._walk.above:
            await self._look(partial(read_answer, document), len(document), call, document)

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
                await self._look(heard.said, size, call, None)
                yield b"".join(held)
            if not looked and held:
                whole = b"".join(held)
                await self._look(heard.said, size, call, whole if heard.ended else None)
                yield whole

    async def _look(
        self, read: Callable[[], list[Said]], size: int, call: EngineCall, whole: bytes | None
    ) -> None:
        """Judge an answer, or its beginning, of so many bytes."""
        look = Look(self._wanted(), self._policy.min_mean_logprob, whole is not None)
        evidence = await self._find(look, read, call, inline=size <= _INLINE_BYTES)
        if evidence is None:
            return
        road = self._walk.road
        self._given.add(evidence)
        if whole is not None:
            self.kept = Kept(road, evidence, call.meter, whole)
        self._account.told = f"escalated from {road}: {evidence}"
        raise Escalated(road, evidence, again=whole is None)

    def _wanted(self) -> frozenset[Evidence]:
        """What may still move the request: nothing twice."""
        if len(self._given) >= self._policy.most:
            return frozenset()
        return self._policy.on - self._given if self._given else self._policy.on

    async def _find(
        self, look: Look, read: Callable[[], list[Said]], call: EngineCall, inline: bool
    ) -> Evidence | None:
        asked = Asked(self._request.body, self._task)
        mean = None if call.confidence is None else call.confidence.mean
        left_s = self._deadline.remaining() - _TO_DELIVER_S
        try:
            if inline:
                with suppress(TooMuch):
                    return find(look, asked, read(), mean, Allowance(_INLINE_S, _INLINE_NODES))
            if JUDGING.pieces >= _MOST_BESIDE or left_s <= 0:
                raise TooMuch
            return await asyncio.wait_for(JUDGING.run(_find_beside, look, asked, read, mean), left_s)
        except msgspec.DecodeError:
            pass
        except (TooMuch, TimeoutError):
            log.info("request %s: its answer could not be judged in time", self._request.request_id)
        except Exception as exc:
            # Judging must not cost the caller an answer.
            log.error(
                "request %s: its answer was not judged, %s", self._request.request_id, type(exc).__name__
            )
        return None

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


def _find_beside(
    look: Look, asked: Asked, read: Callable[[], list[Said]], mean: float | None
) -> Evidence | None:
    return find(look, asked, read(), mean, Allowance(_LONGEST_S))
