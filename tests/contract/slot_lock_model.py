"""What a `SlotLock` should do, written down the plain way: a list of those who wait and a search for the first.

It follows a real lock. Where a lock may choose, which is the place of a grant alone, the model looks at what it chose
and checks that it could.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from weighbridge.pool.slot_lock import Priority, Slot


@dataclass(eq=False)
class Request:
    """One request, what should have become of it and what has."""

    number: int
    tenant: str
    priority: Priority
    tokens: int
    asked: float
    deadline: float
    wait: bool
    expected: str = "waits"
    """waits, served, or the reason why it was turned away."""
    ended: float = -1.0
    """When `expected` came to be."""
    place: Place | None = None
    slot: Slot | None = None
    outcome: str = "waits"
    outcome_at: float = -1.0


@dataclass(eq=False)
class Place:
    """One worker as long as it is open; slots in use keep it when it is closed or replaced."""

    name: str
    slots: int
    budget: int | None
    avoided: bool = False
    grown: bool = False
    """Whether one here has reserved more than it was let in with."""
    held: list[Request] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        return sum(request.tokens for request in self.held)

    def fits(self, tokens: int) -> bool:
        if len(self.held) >= self.slots:
            return False
        return self.budget is None or not self.held or self.tokens + tokens <= self.budget


class Model:
    """The queue lock in the plainest words."""

    def __init__(self, max_waiting: int) -> None:
        self.max_waiting: Final = max_waiting
        self.places: dict[str, Place] = {}
        self.queue: list[Request] = []
        self.holding: list[Request] = []
        self.came_back = 0
        self.closed = False

    # ---- what is asked of it ----

    def first(self, among: list[Request] | None = None) -> Request | None:
        """By priority, then by what the tenant holds, then by the order of asking."""
        waiting = self.queue if among is None else among
        return min(waiting, key=lambda r: (r.priority, self.held_by(r.tenant), r.number), default=None)

    def held_by(self, tenant: str) -> int:
        return sum(request.tenant == tenant for request in self.holding)

    def gives_way_to(self, newcomer: Request) -> Request | None:
        """Whose place in a full queue a newcomer gets. Answers that broke off neither count nor leave."""
        counted = [r for r in self.queue if r is not newcomer and r.priority is not Priority.CONTINUED]

        def claim(tenant: str, more: int = 0) -> tuple[int, int]:
            return sum(r.tenant == tenant for r in counted) + more, self.held_by(tenant)

        last = {
            tenant: max(of_tenant, key=lambda r: (r.priority, r.number))
            for tenant in {r.tenant for r in counted}
            if (of_tenant := [r for r in counted if r.tenant == tenant and r.priority >= newcomer.priority])
        }
        able = [r for r in last.values() if claim(r.tenant) > claim(newcomer.tenant, 1)]
        return max(able, key=lambda r: (claim(r.tenant), r.number), default=None)

    def room_for(self, request: Request) -> list[Place]:
        """The places that may be its own."""
        every = [place for place in self.places.values() if not place.avoided] or list(self.places.values())
        return [place for place in every if place.fits(request.tokens)]

    def would_serve_at(self, moment: float) -> bool:
        """Whether somebody is served because others run out of time at that moment."""
        left = [request for request in self.queue if request.deadline > moment]
        first = self.first(left)
        return first is not None and bool(self.room_for(first))

    def next_deadline(self) -> float | None:
        return min((request.deadline for request in self.queue), default=None)

    # ---- what happens ----

    def ask(self, request: Request, now: float) -> None:
        continued = request.priority is Priority.CONTINUED
        if self.closed or not (self.places or continued):
            return self._end(request, "closed", now)
        if request.deadline <= now:
            return self._end(request, "timeout", now)
        others = len(self.queue)
        self.queue.append(request)
        if self.first() is request and self.room_for(request):
            return self.serve(now)
        if not request.wait:
            return self._end(request, "no free slot", now)
        pushed_out = None
        if not continued and others >= self.max_waiting:
            pushed_out = self.gives_way_to(request)
            if pushed_out is None:
                return self._end(request, "full", now)
        if request.outcome == "too long":
            assert not continued and self.came_back > 0, "turned away on a guess that could not be made"
            return self._end(request, "too long", now)
        if pushed_out is not None:
            self._end(pushed_out, "full", now)
            self.serve(now)
        return None

    def serve(self, now: float) -> None:
        """Grant while the first one fits. Those whose time is up are gone already."""
        for request in [r for r in self.queue if r.deadline <= now]:
            self._end(request, "timeout", now)
        while (request := self.first()) is not None and (room := self.room_for(request)):
            self._end(request, "served", now)
            if request.slot is None:
                # It was cancelled in the moment of the grant, so its place cannot be seen; there was one alone.
                (request.place,) = room
            else:
                chosen = [place for place in room if place.name == request.slot.place]
                assert chosen, f"served on {request.slot.place}, which had no room"
                request.place = chosen[0]
            request.place.held.append(request)
            self.holding.append(request)

    def release(self, request: Request, now: float) -> None:
        assert request.place is not None
        request.place.held.remove(request)
        self.holding.remove(request)
        self.came_back += 1
        self.serve(now)

    def resize(self, request: Request, tokens: int, now: float) -> None:
        assert request.place is not None
        request.place.grown |= tokens > request.tokens
        request.tokens = tokens
        self.serve(now)

    def cancel(self, request: Request, now: float) -> None:
        """Who waits leaves; who has its slot already hands it on."""
        if request in self.holding:
            request.expected = "cancelled"
            self.release(request, now)
        else:
            self.leave(request, now)
            self.serve(now)

    def leave(self, request: Request, now: float) -> None:
        """Cancelled, and not yet noticed by anybody."""
        self._end(request, "cancelled", now)

    def open(self, name: str, slots: int, budget: int | None, now: float) -> None:
        self.places[name] = Place(name, slots, budget)
        self.serve(now)

    def close_place(self, name: str, now: float) -> None:
        if self.places.pop(name, None) is not None and not self.places:
            for request in [r for r in self.queue if r.priority is not Priority.CONTINUED]:
                self._end(request, "closed", now)
        self.serve(now)

    def avoid(self, name: str, avoided: bool, now: float) -> None:
        if name in self.places:
            self.places[name].avoided = avoided
            self.serve(now)

    def close(self, now: float) -> None:
        self.closed = True
        self.places.clear()
        for request in list(self.queue):
            self._end(request, "closed", now)

    def _end(self, request: Request, how: str, now: float) -> None:
        if request in self.queue:
            self.queue.remove(request)
        request.expected, request.ended = how, now
