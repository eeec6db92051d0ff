"""The queue lock of a tier whose slots several gateways share: the queue is here, the slots are leases in Redis.

Each request that waits here stands for one *claim* in Redis. A claim that is granted is a lease: a slot that may be
used here, by whoever is first in this queue. A lease whose slot came back goes back at once, and Redis grants it to
the claim that is first over all gateways: by priority, then by the moment of asking.

While Redis is away the gateway is *on its own*: it goes on with the slots it has and its part of those that were free,
after a lease's time with its share of all. See `docs/redis.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ApiError
from weighbridge.pool.queue_lock import LocalSlot, Place, QueueLock, Waiter
from weighbridge.pool.shared_claims import Claims, wishes
from weighbridge.pool.shared_place import SharedPlace
from weighbridge.pool.slot_lock import Ask, Priority, QueueClosed, QueueLockTimeout
from weighbridge.state.redis_terms import RedisAway
from weighbridge.state.slot_leases import Answer, SlotLeases, StatedPlace, Statement

RENEWALS: Final = 3
"""How often a lease is renewed in its time."""
_NOBODY: Final[tuple[dict[str, dict[Waiter, None]], ...]] = tuple({} for _ in Priority)


class SharedQueueLock(QueueLock):
    """The `SlotLock` of one tier over several gateways. Used from one event loop.

    Args:
        leases: this gateway's voice at the tier's slots.
        keys: names that all gateways have for the places; a place that is not among them goes by its own name.
        max_waiting, clock, predict: see `QueueLock`; `max_waiting` is for this gateway.
    """

    def __init__(
        self,
        max_waiting: int,
        clock: Clock,
        leases: SlotLeases,
        *,
        keys: Mapping[str, str] | None = None,
        predict: bool = True,
    ) -> None:
        super().__init__(max_waiting, clock, predict=predict)
        self._leases = leases
        self._keys = keys or {}
        self._shared: Final[dict[str, SharedPlace]] = {}
        """Places by name, the open ones and closed ones. Those are stated as well: what goes back there would not be
        heard otherwise, and may be free for other gateways."""
        self._asking: Final[dict[Waiter, None]] = {}
        """Those in the queue for whom Redis has not said yet whether a slot is free."""
        self._fresh: Final[list[Waiter]] = []
        """Those that have come since the last statement, in order."""
        self._claims: Final = Claims(leases.member)
        self._gone: Final[list[tuple[str, str]]] = []
        """Leases and claims to give back, with the place's key."""
        self._stated: tuple[StatedPlace, ...] = ()
        self._on_own = leases.available is False
        self._whole_due = True
        self._flight: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._widening: asyncio.TimerHandle | None = None
        self._replicas = leases.replicas
        self._met = False
        """Whether Redis has ever told how things are."""
        self._left = False
        """Whether good-bye was said; anything after it would make this gateway known again."""
        self._busy: Mapping[str, int] = {}
        self._others_waiting = 0
        leases.follow(self)
        leases.before_closing(self._farewell)

    # ---- what it tells ----

    @property
    def slots(self) -> int:
        return sum(place.total for place in self._open_places())

    @property
    def on_own(self) -> bool:
        """Whether this gateway goes on with its own share, without the others."""
        return self._on_own

    @property
    def in_use_everywhere(self) -> int:
        """Slots in use over all gateways, as last told; never fewer than here."""
        return max(self._in_use, sum(self._busy.values()))

    @property
    def replicas(self) -> int:
        """Gateways that share the tier, as last told."""
        return self._replicas

    # ---- SlotLock ----

    def open(self, place: str, slots: int, tokens: int | None = None) -> None:
        if slots < 1:
            raise ValueError("a place needs a slot")
        if self._closed:
            return
        before = self._shared.get(place)
        if before is not None:
            # Its slots in use come back to it and count nowhere: whatever served them is gone.
            self._give_back(before, len(before.leases))
        made = SharedPlace(place, self._keys.get(place, place), slots, tokens)
        self._shared[place] = self._places[place] = made
        if self._on_own:
            made.slots = made.share(self._replicas)
        if self._renewal is None:
            self._renew()
        self._serve_waiting()
        self._poke()

    def close_place(self, place: str) -> None:
        super().close_place(place)
        self._poke()

    def avoid(self, place: str, avoided: bool) -> None:
        super().avoid(place, avoided)
        self._poke()

    async def acquire(self, ask: Ask) -> LocalSlot:
        if self._on_own:
            return await super().acquire(ask)
        if self._closed or not (self._places or ask.priority is Priority.CONTINUED):
            raise QueueClosed
        if ask.deadline.expired():
            raise QueueLockTimeout(0.0)
        # It stands in the queue from the start, and what a newcomer may be told is told when Redis has answered.
        return await self._wait(ask, self._clock.monotonic())

    def close(self) -> None:
        super().close()
        self._poke()

    # ---- what slots report ----

    def given_back(self, place: Place, tenant: str, tokens: int, granted_at: float) -> None:
        assert isinstance(place, SharedPlace)
        if not self._on_own:
            self._give_back(place, 1)
        super().given_back(place, tenant, tokens, granted_at)
        self._poke()

    def resized(self, more: int) -> None:
        super().resized(more)
        if self._waiting:
            self._poke()

    # ---- what Redis reports ----

    def link_changed(self, up: bool) -> None:
        self._whole_due = True
        if not up:
            self._go_on_own()
        self._poke()

    def lease_granted(self, claim: str, place: str) -> None:
        self._credit(claim, place)
        self._serve_waiting()
        self._return_idle()
        self._poke()

    def news(self) -> None:
        self._whole_due = True
        self._poke()

    # ---- the queue ----

    def _stand(self, waiter: Waiter) -> None:
        super()._stand(waiter)
        if not self._on_own:
            self._asking[waiter] = None
            self._fresh.append(waiter)
            self._poke()

    def _leave(self, waiter: Waiter) -> None:
        super()._leave(waiter)
        self._asking.pop(waiter, None)
        self._poke()

    def _turn_away(self, *priorities: Priority) -> None:
        super()._turn_away(*priorities)
        for waiter in [waiter for waiter in self._asking if waiter.ask.priority in priorities]:
            del self._asking[waiter]
        self._poke()

    def _coming_back(self) -> int:
        if self._on_own:
            return super()._coming_back()
        return max(super()._coming_back(), sum(self._busy.get(place.key, 0) for place in self._open_places()))

    def _ahead_of(self, ask: Ask) -> int:
        """Claims of other gateways stand between our own, in the order of asking."""
        ahead = super()._ahead_of(ask)
        if self._on_own or not self._others_waiting:
            return ahead
        share = min(1.0, ahead / self._waiting) if self._waiting else 1.0
        return ahead + int(self._others_waiting * share)

    def _answer_newcomers(self, newcomers: Iterable[Waiter]) -> None:
        """They were not served at once: tell each whether it may wait, in the order in which they came."""
        told = [waiter for waiter in newcomers if waiter in self._asking]
        if not told:
            return
        # Those whom Redis has still to answer are not in the queue for this.
        later = [waiter for waiter in self._asking if waiter not in set(told)]
        for waiter in (*told, *later):
            super()._leave(waiter)
        for waiter in told:
            del self._asking[waiter]
            if waiter.turn.done():
                continue
            try:
                self._let_wait(waiter.ask)
            except ApiError as refusal:
                waiter.turn.set_exception(refusal)
            else:
                super()._stand(waiter)
        for waiter in later:
            super()._stand(waiter)

    # ---- leases ----

    def _credit(self, claim: str, key: str) -> None:
        """A claim has a lease now: a slot more may be used, unless nobody here knows of it any more."""
        place = next((one for one in self._open_places() if one.key == key), None)
        if self._claims.take(claim) and place is not None and not self._on_own:
            place.leases.append(claim)
            place.slots += 1
            return
        if place is None or claim not in place.leases:
            self._gone.append((claim, key))

    def _give_back(self, place: SharedPlace, count: int) -> None:
        for _ in range(min(count, len(place.leases))):
            self._gone.append((place.leases.pop(), place.key))
            place.slots -= 1

    def _return_idle(self) -> None:
        """Keep no lease that nobody here has a use for."""
        if not self._on_own:
            for place in self._shared.values():
                self._give_back(place, place.slots - place.in_use)

    def _open_places(self) -> list[SharedPlace]:
        return [self._shared[name] for name in self._places]

    # ---- on our own, and together again ----

    def _go_on_own(self) -> None:
        """Go on without the others: with what we hold and our part of what was free at the last look, so that all
        together stay within the limit; once leases have had the time to end, with our share of all."""
        if self._on_own:
            return
        self._on_own = True
        self._claims.clear()
        self._gone.clear()
        self._fresh.clear()
        for place in self._shared.values():
            if self._met:
                free = max(0, place.total - self._busy.get(place.key, place.total))
                place.slots = len(place.leases) + free // self._replicas
            else:
                place.slots = place.share(self._replicas)
        self._widening = asyncio.get_running_loop().call_later(self._leases.lease_s, self._widen)
        self._serve_waiting()
        self._answer_newcomers(list(self._asking))

    def _widen(self) -> None:
        for place in self._shared.values():
            place.slots = place.share(self._replicas)
        self._serve_waiting()

    def _go_together(self) -> None:
        """Redis knows what we hold: from now on it grants."""
        self._on_own = False
        if self._widening is not None:
            self._widening.cancel()
            self._widening = None
        for place in self._shared.values():
            stated = list(place.leases)
            place.true_up(self._claims.new_name)
            place.slots = place.in_use
            # What was granted or came back while the statement was under way.
            self._whole_due |= stated != place.leases

    # ---- statements ----

    def _renew(self) -> None:
        self._renewal = None
        if not self._closed or self._in_use:
            self._renewal = asyncio.get_running_loop().call_later(
                self._leases.lease_s / RENEWALS, self._renewal_due
            )

    def _renewal_due(self) -> None:
        self._whole_due = True
        self._renew()
        self._poke()

    def _poke(self) -> None:
        """Something may have to be said; what is said in one turn of the loop goes together."""
        if self._flight is not None or self._left:
            return
        if self._leases.available and (self._whole_due or not self._on_own):
            self._flight = asyncio.get_running_loop().create_task(self._fly())

    async def _fly(self) -> None:
        """Say what there is to say, one statement at a time."""
        try:
            while self._leases.available:
                newcomers = list(self._asking)
                statement = self._compose()
                if statement is None:
                    self._answer_newcomers(newcomers)
                    if self._nothing_to_say():
                        return
                    continue
                try:
                    answer = await self._leases.state(statement)
                except RedisAway:
                    # The link has told us already, and it may even be back.
                    continue
                self._take_in(statement, answer, newcomers)
        finally:
            self._flight = None

    def _nothing_to_say(self) -> bool:
        if self._on_own:
            return not self._whole_due
        return not (self._whole_due or self._gone or self._asking or self._fresh)

    def _compose(self) -> Statement | None:
        """What is to be said now; None where there is nothing."""
        if self._on_own and not self._whole_due:
            return None
        accepted = self._accepted()
        places = [*self._shared.values()]
        stated = tuple(StatedPlace(place.key, place.total, place in accepted) for place in places)
        if self._on_own:
            self._whole_due = False
            for place in places:
                place.true_up(self._claims.new_name)
            return Statement(stated, True, self._replicas, tuple(tuple(place.leases) for place in places))
        now = self._clock.monotonic()
        fresh = [waiter for waiter in self._fresh if not waiter.turn.done()]
        self._fresh.clear()
        queues, open_places = self._queues if accepted else _NOBODY, self._open_places()
        made, surplus = self._claims.match(queues, fresh, now, lambda ask: wishes(ask, places, open_places))
        self._gone.extend((claim, "") for claim in surplus)
        if not self._whole_due:
            gone = tuple(self._gone)
            self._gone.clear()
            # Places that have come or are avoided no more may serve those who wait.
            changed = self._waiting > 0 and stated != self._stated
            if not (gone or made or changed):
                return None
            self._stated = stated
            return Statement(stated, replicas=self._replicas, gone=gone, claims=tuple(made))
        self._whole_due, self._stated = False, stated
        # What is not stated is given back by that.
        self._gone.clear()
        made += self._claims.again(made, now)
        held = tuple(tuple(place.leases) for place in places)
        return Statement(stated, True, self._replicas, held, claims=tuple(made))

    def _accepted(self) -> list[SharedPlace]:
        """The places on which slots would be taken now."""
        every = self._open_places()
        places = [place for place in every if not place.avoided] or every
        if self._waiting and any(place.budget is not None for place in places):
            # Who is first and finds no tokens keeps the others waiting.
            first = self._first()
            if first is not None:
                places = [place for place in places if place.fits(first.ask.tokens)]
        return places

    def _take_in(self, statement: Statement, answer: Answer, newcomers: list[Waiter]) -> None:
        if answer.kind == "restate":
            self._whole_due = True
            # Its claims are unknown there: they are stated again as they are.
            return
        if not answer.settled:
            self._go_on_own()
            return
        self._replicas, self._busy, self._met = answer.replicas, answer.busy, True
        if self._on_own:
            if not statement.whole:
                return
            self._go_together()
        for claim, key in answer.granted:
            self._credit(claim, key)
        self._others_waiting = max(0, answer.waiting - len(self._claims))
        self._serve_waiting()
        self._answer_newcomers(newcomers)
        self._return_idle()

    async def _farewell(self) -> None:
        """Give up all there is at once, rather than when the leases end."""
        self._left = True
        if self._flight is not None:
            await asyncio.wait({self._flight})
        places = [*self._shared.values()]
        stated = tuple(StatedPlace(place.key, place.total, False) for place in places)
        await self._leases.state(
            Statement(stated, True, self._replicas, tuple(() for _ in places), leaves=True)
        )
