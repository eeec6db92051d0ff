"""Any mix of what a `SlotLock` can be asked, step by step beside a model of it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.contract.slot_lock_model import Model, Request
from tests.contract.slot_locks import PLACE, MakeLock, ask, each_lock, settled
from tests.support.virtual_time import VirtualTimeLoop
from weighbridge.pool.slot_lock import (
    NoFreeSlot,
    Priority,
    QueueClosed,
    QueueFull,
    QueueLockTimeout,
    SlotLock,
    WaitTooLong,
)

OUTCOMES: dict[type[BaseException], str] = {
    WaitTooLong: "too long",
    NoFreeSlot: "no free slot",
    QueueLockTimeout: "timeout",
    QueueFull: "full",
    QueueClosed: "closed",
    asyncio.CancelledError: "cancelled",
}

# Few of everything and whole ticks, so that ties, full places and shared tenants are common.
TOKENS = st.sampled_from([0, 1, 2, 3, 4, 5, 7, 14])
BUDGET = st.sampled_from([None, 4, 8, 8, 10])
PICK = st.integers(0, 7)
TERMS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([*Priority, Priority.INTERACTIVE, Priority.INTERACTIVE]),
    TOKENS,
    st.sampled_from([0, 1, 2, 3, 5, 9, 20, 40]),
    st.sampled_from([True] * 7 + [False]),
    st.sampled_from([b"", b"x", b"y"]),
)
"""Tenant, priority, tokens, patience in ticks, whether it waits, affinity."""


class SlotLockMachine(RuleBasedStateMachine):
    """Does everything to the lock and to the model; whatever the two disagree about fails."""

    lock: SlotLock
    model: Model

    def __init__(self, make: MakeLock) -> None:
        super().__init__()
        self._make = make
        self._loop = VirtualTimeLoop()
        self._count = 0
        self._unsettled: list[Request] = []
        """Those whose outcome was not seen yet."""
        self._tasks: dict[Request, asyncio.Task[None]] = {}

    @initialize(
        slots=st.integers(1, 4),
        budget=BUDGET,
        max_waiting=st.sampled_from([0, 1, 2, 4, 9, 9]),
        predict=st.booleans(),
        crowd=st.lists(TERMS, max_size=9),
    )
    def start(
        self, slots: int, budget: int | None, max_waiting: int, predict: bool, crowd: list[Any]
    ) -> None:
        async def make() -> SlotLock:
            return self._make(slots, max_waiting, tokens=budget, predict=predict)

        self.lock = self._run(make())
        self.model = Model(max_waiting)
        self.model.open(PLACE, slots, budget, 0.0)
        self.ask(crowd)

    # ---- rules ----

    @rule(several=st.lists(TERMS, min_size=1, max_size=6))
    def ask(self, several: list[Any]) -> None:
        for terms in several:
            self._ask(*terms)

    @precondition(lambda self: self.model.holding)
    @rule(picks=st.lists(PICK, min_size=1, max_size=4), twice=st.booleans())
    def release(self, picks: list[int], twice: bool) -> None:
        for pick in picks[: len(self.model.holding)]:
            request = _pick(self.model.holding, pick)
            self._release(request)
            if twice and request.slot is not None:
                self._do(request.slot.release)
                self._do(lambda slot=request.slot: slot.resize(7))

    @precondition(lambda self: self.model.queue and self.model.holding)
    @rule(ticks=st.sampled_from([0, 0, 1]))
    def work_on(self, ticks: int) -> None:
        """The one that has had its slot for longest is done."""
        self._release(self.model.holding[0])
        self._advance(self._loop.time() + ticks)

    @precondition(lambda self: self.model.holding)
    @rule(pick=PICK, tokens=TOKENS)
    def resize(self, pick: int, tokens: int) -> None:
        request = _pick(self.model.holding, pick)
        slot = request.slot
        assert slot is not None
        self._do(lambda: slot.resize(tokens), lambda now: self.model.resize(request, tokens, now))

    @precondition(lambda self: self.model.queue)
    @rule(pick=st.none() | PICK)
    def cancel(self, pick: int | None) -> None:
        victim = self._waiting_one(pick)
        self._do(self._tasks[victim].cancel, lambda now: self.model.cancel(victim, now))

    @precondition(lambda self: self.model.queue and self.model.holding)
    @rule(pick=st.none() | PICK, released=PICK, cancel_first=st.booleans())
    def release_and_cancel(self, pick: int | None, released: int, cancel_first: bool) -> None:
        """In one turn of the loop a slot comes back and somebody who waits, perhaps its heir, is cancelled."""
        giver = _pick(self.model.holding, released)
        victim = self._waiting_one(pick)
        # Where an heir that is cancelled had its place cannot be seen, unless there is one place alone.
        cancel_first = cancel_first or len(self.model.places) != 1

        def act() -> None:
            if cancel_first:
                self._tasks[victim].cancel()
            _give_back(giver)
            if not cancel_first:
                self._tasks[victim].cancel()

        def follow(now: float) -> None:
            if cancel_first:
                self.model.leave(victim, now)
            self.model.release(giver, now)
            if not cancel_first:
                self.model.cancel(victim, now)

        self._do(act, follow)

    @rule(ticks=st.sampled_from([None, None, 1, 2, 5]))
    def pass_time(self, ticks: int | None) -> None:
        """So many ticks, or until somebody's time is up."""
        deadline = self.model.next_deadline()
        until = deadline if ticks is None and deadline is not None else self._loop.time() + (ticks or 1)
        self._advance(until)

    @precondition(lambda self: self.model.queue and self.model.holding)
    @rule(pick=PICK)
    def release_at_the_next_deadline(self, pick: int) -> None:
        """A slot comes back in the very moment in which somebody's time is up."""
        giver = _pick(self.model.holding, pick)
        deadline = self.model.next_deadline()
        assert deadline is not None
        if self.model.would_serve_at(deadline):
            # Whom the slot finds waiting would hang on which of the two the loop does first.
            return
        self._run(self._until(deadline, lambda: _give_back(giver)))
        self.model.release(giver, deadline)
        self._compare()

    @rule(
        name=st.sampled_from([PLACE, "second"]),
        slots=st.integers(1, 3),
        budget=BUDGET,
        what=st.sampled_from(["open", "open", "close", "close", "avoid", "avoid no more"]),
    )
    def change_place(self, name: str, slots: int, budget: int | None, what: str) -> None:
        lock, model = self.lock, self.model
        if what == "open":
            self._do(lambda: lock.open(name, slots, budget), lambda now: model.open(name, slots, budget, now))
        elif what == "close":
            self._do(lambda: lock.close_place(name), lambda now: model.close_place(name, now))
        else:
            avoided = what == "avoid"
            self._do(lambda: lock.avoid(name, avoided), lambda now: model.avoid(name, avoided, now))

    # ---- what holds after every step ----

    def counters_are_those_of_the_model(self) -> None:
        held = self.model.holding
        assert self.lock.in_use == len(held)
        assert self.lock.waiting == len(self.model.queue)
        assert self.lock.reserved_tokens == sum(request.tokens for request in held)
        assert self.lock.slots == sum(place.slots for place in self.model.places.values())

    def everybody_has_what_is_due(self) -> None:
        for request in self._unsettled:
            assert request.outcome == request.expected, f"request {request.number}"
            if request.outcome == "waits":
                continue
            alike = [
                r for r in self.model.queue if (r.tenant, r.priority) == (request.tenant, request.priority)
            ]
            assert self._tasks.pop(request).done()
            assert request.outcome_at == request.ended
            if request.outcome == "timeout" and request.asked < request.deadline:
                assert request.outcome_at == request.deadline, "not at its deadline"
            if request.outcome == "served":
                assert request.outcome_at < request.deadline
                assert request.slot is not None and request.place is not None
                assert request.slot.place == request.place.name
                assert request.slot.waited_ms == (request.outcome_at - request.asked) * 1000
                assert all(r.number > request.number for r in alike), "before one that came earlier"
            if request.outcome == "full":
                assert request.priority is not Priority.CONTINUED
                assert all(r.number < request.number for r in alike), "not the last to come"
        self._unsettled = [request for request in self._unsettled if request.outcome == "waits"]

    def nobody_waits_while_the_first_one_fits(self) -> None:
        first = self.model.first()
        assert first is None or not self.model.room_for(first)

    def no_more_wait_than_may(self) -> None:
        begun = sum(request.priority is Priority.CONTINUED for request in self.model.queue)
        assert self.lock.waiting <= self.model.max_waiting + begun

    def no_place_holds_more_than_it_has(self) -> None:
        for request in self.model.holding:
            place = request.place
            assert place is not None and len(place.held) <= place.slots
            # More tokens than there are: one that is larger than all, or one that has grown.
            assert place.budget is None or place.tokens <= place.budget or len(place.held) == 1 or place.grown

    def teardown(self) -> None:
        try:
            if hasattr(self, "lock"):
                self._drain()
                self._shut()
        finally:
            for task in self._tasks.values():
                task.cancel()
            self._run(settled())
            self._loop.close()

    def _drain(self) -> None:
        while self.model.holding or self.model.queue:
            while self.model.holding:
                self._release(self.model.holding[0])
            if (deadline := self.model.next_deadline()) is not None:
                self._advance(deadline)
        assert (self.lock.in_use, self.lock.waiting, self.lock.reserved_tokens) == (0, 0, 0)

    def _shut(self) -> None:
        for priority in Priority:
            self._ask("a", priority, 2, 5, True, b"")
        self._do(self.lock.close, self.model.close)
        self._do(lambda: self.lock.open(PLACE, 1))
        self._ask("b", Priority.CONTINUED, 0, 5, True, b"")
        self._drain()

    # ---- how ----

    def _ask(
        self, tenant: str, priority: Priority, tokens: int, patience: int, wait: bool, affinity: bytes
    ) -> None:
        now = self._loop.time()
        self._count += 1
        request = Request(self._count, tenant, priority, tokens, now, now + patience, wait)
        self._unsettled.append(request)

        async def acquire() -> None:
            terms = ask(
                patience, priority=priority, tenant=tenant, tokens=tokens, affinity=affinity, wait=wait
            )
            try:
                request.slot = await self.lock.acquire(terms)
                request.outcome = "served"
            except tuple(OUTCOMES) as exc:
                request.outcome = OUTCOMES[type(exc)]
            request.outcome_at = self._loop.time()

        def act() -> None:
            self._tasks[request] = self._loop.create_task(acquire())

        self._do(act, lambda now: self.model.ask(request, now))

    def _release(self, request: Request) -> None:
        self._do(lambda: _give_back(request), lambda now: self.model.release(request, now))

    def _waiting_one(self, pick: int | None) -> Request:
        """One of those who wait; None picks the first, whom the others stand behind."""
        first = self.model.first()
        assert first is not None
        return first if pick is None else _pick(self.model.queue, pick)

    def _do(self, act: Callable[[], object], follow: Callable[[float], object] = lambda now: None) -> None:
        """Do it to the lock inside the loop and let it settle, then to the model, then compare."""

        async def both() -> None:
            act()
            await settled()

        self._run(both())
        follow(self._loop.time())
        self._compare()

    def _advance(self, until: float) -> None:
        while (deadline := self.model.next_deadline()) is not None and deadline <= until:
            self._run(self._until(deadline))
            self.model.serve(deadline)
            self._compare()
        self._run(self._until(until))
        self._compare()

    async def _until(self, moment: float, act: Callable[[], object] = lambda: None) -> None:
        reached = self._loop.create_future()
        self._loop.call_at(moment, act)
        self._loop.call_at(moment, reached.set_result, None)
        await reached
        await settled()

    def _compare(self) -> None:
        self.counters_are_those_of_the_model()
        self.everybody_has_what_is_due()
        self.nobody_waits_while_the_first_one_fits()
        self.no_more_wait_than_may()
        self.no_place_holds_more_than_it_has()

    def _run(self, coro: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coro)


def _give_back(request: Request) -> None:
    assert request.slot is not None
    request.slot.release()


def _pick(requests: list[Request], pick: int) -> Request:
    return requests[pick % len(requests)]


def run(make: MakeLock, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: SlotLockMachine(make),
        settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None),
    )


@each_lock
def test_any_mix_of_requests_and_places_keeps_the_promises(make: MakeLock) -> None:
    run(make, 120, 30)


@pytest.mark.soak
@each_lock
def test_many_long_mixes_keep_the_promises(make: MakeLock) -> None:
    run(make, 1500, 60)
