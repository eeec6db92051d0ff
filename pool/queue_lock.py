"""The queue lock in this process: slots and KV-cache tokens of a tier's workers, a queue, a deadline.

Everything here runs in one event loop and none of it is safe from another thread.
"""

from __future__ import annotations

import asyncio
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.pool.drain_rate import DrainRate
from weighbridge.pool.giving_way import who_gives_way
from weighbridge.pool.placement import choose
from weighbridge.pool.slot_lock import (
    Ask,
    NoFreeSlot,
    Priority,
    QueueClosed,
    QueueFull,
    QueueLockTimeout,
    WaitTooLong,
)


class Place:
    """One worker's slots. A worker that is built anew gets a new one; slots of the old one come back to the old.

    `slots` is how many may be in use now.
    """

    __slots__ = ("avoided", "budget", "in_use", "name", "slots", "tokens")

    def __init__(self, name: str, slots: int, budget: int | None) -> None:
        self.name: Final = name
        self.slots = slots
        self.budget: Final = budget
        self.in_use = 0
        self.tokens = 0
        self.avoided = False

    def has_room(self, tokens: int) -> bool:
        if self.in_use >= self.slots:
            return False
        return self.budget is None or self.in_use == 0 or self.tokens + tokens <= self.budget


class LocalSlot:
    """A slot of a `QueueLock`."""

    __slots__ = ("_granted_at", "_lock", "_place", "_tenant", "_tokens", "waited_ms")

    def __init__(
        self, lock: QueueLock, place: Place, tenant: str, tokens: int, waited_ms: float, now: float
    ) -> None:
        self._lock: QueueLock | None = lock
        self._place = place
        self._tenant = tenant
        self._tokens = tokens
        self.waited_ms: Final = waited_ms
        self._granted_at = now

    @property
    def place(self) -> str:
        return self._place.name

    def resize(self, tokens: int) -> None:
        if self._lock is not None and tokens != self._tokens:
            more, self._tokens = tokens - self._tokens, tokens
            self._place.tokens += more
            self._lock.resized(more)

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            self._place.in_use -= 1
            self._place.tokens -= self._tokens
            lock.given_back(self._place, self._tenant, self._tokens, self._granted_at)


class Waiter:
    """One request in the queue; `turn` gets its slot, None when time is up, or why it has to leave."""

    __slots__ = ("ask", "asked", "number", "turn")

    def __init__(self, ask: Ask, asked: float, number: int, turn: asyncio.Future[LocalSlot | None]) -> None:
        self.ask = ask
        self.asked = asked
        self.number = number
        self.turn = turn


class QueueLock:
    """The `SlotLock` of one tier, kept in this process.

    Args:
        max_waiting: how many may wait; the next one is turned away at once, or pushes another one out.
        clock: the clock that deadlines are measured on; it must run as fast as the event loop's.
        predict: turn away at once who will not be served in time.
    """

    def __init__(
        self,
        max_waiting: int,
        clock: Clock,
        *,
        predict: bool = True,
    ) -> None:
        self.max_waiting: Final = max_waiting
        self._clock = clock
        self._rate = DrainRate() if predict else None
        self._places: Final[dict[str, Place]] = {}
        self._in_use = 0
        self._tokens = 0
        self._held_by: dict[str, int] = {}
        """Slots in use by tenant; only tenants that hold some."""
        self._queues: Final[tuple[dict[str, dict[Waiter, None]], ...]] = tuple({} for _ in Priority)
        """By priority and tenant, in order of arrival; a dict so that one who leaves early is found at once."""
        self._waiting = 0
        self._number = 0
        self._closed = False

    @property
    def slots(self) -> int:
        return sum(place.slots for place in self._places.values())

    @property
    def in_use(self) -> int:
        return self._in_use

    @property
    def waiting(self) -> int:
        return self._waiting

    @property
    def reserved_tokens(self) -> int:
        return self._tokens

    @property
    def budget_tokens(self) -> int:
        """KV-cache tokens that may be reserved on all open places; those without a bound count nothing."""
        return sum(place.budget or 0 for place in self._places.values())

    def is_open(self, place: str) -> bool:
        return place in self._places

    def in_use_at(self, place: str) -> int:
        """Slots granted on one open place."""
        found = self._places.get(place)
        return 0 if found is None else found.in_use

    def open(self, place: str, slots: int, tokens: int | None = None) -> None:
        if slots < 1:
            raise ValueError("a place needs a slot")
        if self._closed:
            return
        self._places[place] = Place(place, slots, tokens)
        self._serve_waiting()

    def close_place(self, place: str) -> None:
        if self._places.pop(place, None) is None:
            return
        if not self._places:
            self._turn_away(Priority.INTERACTIVE, Priority.BATCH)
        # Those that are left may all be avoided ones, which count again.
        self._serve_waiting()

    def avoid(self, place: str, avoided: bool) -> None:
        found = self._places.get(place)
        if found is not None and found.avoided is not avoided:
            found.avoided = avoided
            self._serve_waiting()

    async def acquire(self, ask: Ask) -> LocalSlot:
        continued = ask.priority is Priority.CONTINUED
        if self._closed or not (self._places or continued):
            raise QueueClosed
        if ask.deadline.expired():
            raise QueueLockTimeout(0.0)
        now = self._clock.monotonic()
        # The first in the queue may be gone already and not have woken up yet: let those behind it have their turn.
        waiting = self._waiting
        first = self._serve_waiting() if waiting else None
        if first is None or self._goes_before(ask, first):
            slot = self._grant(ask, now, now)
            if slot is not None:
                if waiting:
                    # Its tenant holds one more now: another one may be first, and fit where the first did not.
                    self._serve_waiting()
                return slot
        self._let_wait(ask)
        return await self._wait(ask, now)

    def close(self) -> None:
        self._closed = True
        self._places.clear()
        self._turn_away(*Priority)

    # ---- what slots report ----

    def given_back(self, place: Place, tenant: str, tokens: int, granted_at: float) -> None:
        """A slot is free again; `place` has counted it already."""
        self._in_use -= 1
        self._tokens -= tokens
        left = self._held_by[tenant] - 1
        if left:
            self._held_by[tenant] = left
        else:
            del self._held_by[tenant]
        if self._rate is not None:
            self._rate.ended(self._clock.monotonic() - granted_at)
        self._serve_waiting()

    def resized(self, more: int) -> None:
        """A slot reserves so many tokens more now, or fewer."""
        self._tokens += more
        if more < 0:
            self._serve_waiting()

    # ---- the queue ----

    def _let_wait(self, ask: Ask) -> None:
        """Turn away a newcomer for whom there is no slot and who may not wait, or make room for it in the queue."""
        if not ask.wait:
            raise NoFreeSlot
        if ask.priority is Priority.CONTINUED:
            return
        leaver: Waiter | None = None
        if self._waiting >= self.max_waiting:
            leaver = who_gives_way(ask, self._queues, self._held_by)
            if leaver is None:
                raise QueueFull
        self._refuse_hopeless(ask)
        if leaver is not None:
            self._push_out(leaver)

    async def _wait(self, ask: Ask, asked: float) -> LocalSlot:
        loop = asyncio.get_running_loop()
        self._number += 1
        waiter = Waiter(ask, asked, self._number, loop.create_future())
        self._stand(waiter)
        timer = loop.call_later(ask.deadline.remaining(), self._expire, waiter)
        try:
            slot = await waiter.turn
        except asyncio.CancelledError:
            self._abandon(waiter)
            raise
        finally:
            timer.cancel()
        if slot is None:
            raise QueueLockTimeout((self._clock.monotonic() - asked) * 1000)
        return slot

    def _stand(self, waiter: Waiter) -> None:
        """Put one at the end of its tenant's queue."""
        self._queues[waiter.ask.priority].setdefault(waiter.ask.tenant, {})[waiter] = None
        self._waiting += 1

    def _push_out(self, waiter: Waiter) -> None:
        self._leave(waiter)
        # Nobody's turn comes by it: was it the first, then the newcomer goes before it, and did not fit either.
        if not waiter.turn.done():
            waiter.turn.set_exception(QueueFull())

    def _abandon(self, waiter: Waiter) -> None:
        turn = waiter.turn
        if turn.cancelled():
            self._leave(waiter)
            # It may have been the one that the others stood behind for want of tokens.
            self._serve_waiting()
        elif turn.exception() is None and (granted := turn.result()) is not None:
            # The slot was its own already when the cancellation arrived: hand it on.
            granted.release()

    def _expire(self, waiter: Waiter) -> None:
        if not waiter.turn.done():
            self._leave(waiter)
            waiter.turn.set_result(None)
            self._serve_waiting()

    def _leave(self, waiter: Waiter) -> None:
        tenants = self._queues[waiter.ask.priority]
        queue = tenants.get(waiter.ask.tenant)
        if queue is None or waiter not in queue:
            return
        del queue[waiter]
        if not queue:
            del tenants[waiter.ask.tenant]
        self._waiting -= 1

    def _turn_away(self, *priorities: Priority) -> None:
        for priority in priorities:
            for queue in self._queues[priority].values():
                self._waiting -= len(queue)
                for waiter in queue:
                    if not waiter.turn.done():
                        waiter.turn.set_exception(QueueClosed())
            self._queues[priority].clear()

    def _serve_waiting(self) -> Waiter | None:
        """Grant what can be granted, in turn. Who is first and does not fit keeps the others waiting.

        Returns:
            the one who is first now and does not fit; None when nobody waits or no slot is left.
        """
        while self._waiting and self._any_slot_free() and (waiter := self._first()) is not None:
            if waiter.turn.done() or waiter.ask.deadline.expired():
                # Cancelled, or its timer is due in this very turn of the loop; a slot is no use to it.
                self._leave(waiter)
                if not waiter.turn.done():
                    waiter.turn.set_result(None)
                continue
            slot = self._grant(waiter.ask, waiter.asked, self._clock.monotonic())
            if slot is None:
                return waiter
            self._leave(waiter)
            waiter.turn.set_result(slot)
        return None

    def _any_slot_free(self) -> bool:
        for place in self._places.values():  # noqa: SIM110 - twice as fast as any(), and once a grant
            if place.in_use < place.slots:
                return True
        return False

    def _first(self) -> Waiter | None:
        held_by = self._held_by
        for tenants in self._queues:
            first: Waiter | None = None
            fewest = 0
            for tenant, queue in tenants.items():
                held = held_by.get(tenant, 0)
                if first is None or held <= fewest:
                    head = next(iter(queue))
                    if first is None or held < fewest or head.number < first.number:
                        first, fewest = head, held
            if first is not None:
                return first
        return None

    def _goes_before(self, newcomer: Ask, first: Waiter) -> bool:
        """Whether a newcomer is served before the first of those who wait."""
        if newcomer.priority != first.ask.priority:
            return newcomer.priority < first.ask.priority
        held = self._held_by
        return held.get(newcomer.tenant, 0) < held.get(first.ask.tenant, 0)

    def _grant(self, ask: Ask, asked: float, now: float) -> LocalSlot | None:
        places = self._places.values()
        every = [place for place in places if not place.avoided] or [*places]
        free = [place for place in every if place.has_room(ask.tokens)]
        if not free:
            return None
        if ask.shunned:
            # Waiting for another place would keep everybody behind it waiting too.
            free = [place for place in free if place.name not in ask.shunned] or free
        place = choose(ask.affinity, every, free)
        place.in_use += 1
        place.tokens += ask.tokens
        self._in_use += 1
        self._tokens += ask.tokens
        self._held_by[ask.tenant] = self._held_by.get(ask.tenant, 0) + 1
        return LocalSlot(self, place, ask.tenant, ask.tokens, (now - asked) * 1000, now)

    def _refuse_hopeless(self, ask: Ask) -> None:
        if self._rate is None:
            return
        wait_s = self._rate.wait_s(self._ahead_of(ask), self._coming_back())
        if wait_s is not None and wait_s > ask.deadline.remaining():
            raise WaitTooLong(wait_s * 1000)

    def _coming_back(self) -> int:
        return sum(place.in_use for place in self._places.values())

    def _ahead_of(self, ask: Ask) -> int:
        """How many of those who wait are served before a newcomer, a low guess: all of higher priority and of its own
        tenant, and of each other tenant one more than of its own, or fewer where that holds more slots."""
        ahead = sum(len(queue) for tenants in self._queues[: ask.priority] for queue in tenants.values())
        same = self._queues[ask.priority]
        own = len(same.get(ask.tenant, ()))
        held = self._held_by.get(ask.tenant, 0)
        for tenant, queue in same.items():
            if tenant != ask.tenant:
                surplus = max(0, self._held_by.get(tenant, 0) - held)
                ahead += min(len(queue), max(0, own + 1 - surplus))
        return ahead + own
