"""The breaker of one endpoint: when it opens, whom it lets through, and how soon it closes again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from weighbridge.commercial.breaker import LONGEST_REST_S, LONGEST_TRIAL_S, Breaker, Standing, Ticket

MOST, REST_S = 3, 10.0


class HandClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return round(self.now * 1e9)


class Made:
    """A breaker, its clock, and what it told of being passed by."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.told: list[bool] = []
        self.breaker = Breaker(MOST, REST_S, self.clock, self.told.append)

    def ticket(self) -> Ticket:
        ticket = self.breaker.enter()
        assert ticket is not None
        return ticket

    def fail(self, times: int = MOST, **how: Any) -> None:
        for _ in range(times):
            self.ticket().failed(**how)

    def opened(self) -> Made:
        self.fail()
        return self


def test_it_opens_after_so_many_in_a_row_and_not_before() -> None:
    made = Made()
    made.fail(MOST - 1)
    made.ticket().answered()
    made.fail(MOST - 1)
    assert made.breaker.standing is Standing.OPEN and made.told == []
    made.fail(1)
    assert made.breaker.standing is Standing.RESTING and made.told == [True]
    assert made.breaker.rest_s == REST_S
    assert made.breaker.enter() is None


def test_one_at_a_time_is_on_trial_and_its_answer_closes_it() -> None:
    made = Made().opened()
    made.clock.now += REST_S - 0.01
    assert made.breaker.enter() is None
    made.clock.now += 0.01
    trial = made.ticket()
    assert made.breaker.standing is Standing.ON_TRIAL and made.breaker.enter() is None
    trial.answered()
    assert made.breaker.standing is Standing.OPEN and made.told == [True, False]
    made.fail(MOST - 1)
    assert made.breaker.standing is Standing.OPEN, "it counts from the start again"


def test_a_failed_trial_rests_anew() -> None:
    made = Made().opened()
    made.clock.now += REST_S
    made.fail(1)
    assert (made.breaker.standing, made.breaker.rest_s, made.told) == (Standing.RESTING, REST_S, [True])


def test_a_trial_that_is_returned_teaches_nothing() -> None:
    made = Made().opened()
    made.clock.now += REST_S
    trial = made.ticket()
    trial.returned()
    trial.failed()
    trial.answered()
    assert made.breaker.standing is Standing.OPEN and made.told == [True]
    made.ticket()
    assert made.breaker.enter() is None, "the next one is on trial again"


def test_returned_tickets_neither_count_nor_forgive() -> None:
    made = Made()
    made.fail(MOST - 1)
    for _ in range(5):
        made.ticket().returned()
    made.fail(1)
    assert made.breaker.standing is Standing.RESTING


def test_a_stream_that_began_ends_the_trial_and_may_still_fail() -> None:
    made = Made().opened()
    made.clock.now += REST_S
    trial = made.ticket()
    trial.begun()
    assert made.breaker.standing is Standing.OPEN and made.told == [True, False]
    trial.begun()
    trial.failed()
    made.fail(MOST - 2)
    assert made.breaker.standing is Standing.OPEN
    made.fail(1)
    assert made.breaker.standing is Standing.RESTING


def test_a_stream_that_began_forgives_nothing_while_it_is_not_on_trial() -> None:
    """Else an endpoint that breaks every answer off would never open it."""
    made = Made()
    for _ in range(MOST):
        ticket = made.ticket()
        ticket.begun()
        ticket.failed()
    assert made.breaker.standing is Standing.RESTING


@pytest.mark.parametrize(("said", "believed"), [(0.5, 0.5), (7.0, 7.0), (3600.0, LONGEST_REST_S)])
def test_what_it_asks_for_is_believed_up_to_a_bound(said: float, believed: float) -> None:
    made = Made()
    made.fail(1, wait_s=said)
    assert (made.breaker.standing, made.breaker.rest_s) == (Standing.WAITING, believed)
    assert made.breaker.enter() is None and made.told == []
    made.clock.now += believed
    assert made.breaker.standing is Standing.OPEN


def test_a_shorter_wait_does_not_undo_a_longer_one() -> None:
    made = Made()
    first, second = made.ticket(), made.ticket()
    first.failed(20.0, busy=True)
    second.failed(1.0, busy=True)
    assert made.breaker.rest_s == 20.0


def test_another_ones_answer_does_not_undo_it_either() -> None:
    made = Made()
    first, second = made.ticket(), made.ticket()
    first.failed(20.0, busy=True)
    second.answered()
    assert (made.breaker.standing, made.breaker.rest_s) == (Standing.WAITING, 20.0)


def test_busy_for_a_known_time_is_no_failure_and_for_an_unknown_one_it_is() -> None:
    made = Made()
    for _ in range(MOST * 3):
        made.fail(1, wait_s=1.0, busy=True)
        made.clock.now += 1.0
    assert made.breaker.standing is Standing.OPEN
    made.fail(MOST - 1, wait_s=0.0, busy=True)
    made.fail(1, busy=True)
    assert made.breaker.standing is Standing.RESTING


def test_unwell_for_a_known_time_counts_and_the_longer_rest_holds() -> None:
    made = Made()
    tickets = [made.ticket() for _ in range(MOST)]
    for ticket in tickets:
        ticket.failed(30.0)
    assert (made.breaker.standing, made.breaker.rest_s) == (Standing.RESTING, 30.0)


def test_late_news_of_before_it_opened_does_not_lengthen_the_rest() -> None:
    """Requests that hang when an endpoint goes silent fail one after the other, long after it is well again."""
    made = Made()
    old = [made.ticket() for _ in range(20)]
    made.fail()
    for ticket in old[:10]:
        made.clock.now += 1.0
        ticket.failed()
    assert made.breaker.standing is Standing.OPEN
    made.ticket().answered()
    for ticket in old[10:]:
        ticket.failed()
    assert made.breaker.standing is Standing.OPEN and made.told == [True, False]


def test_a_late_answer_of_before_it_opened_does_not_close_it() -> None:
    made = Made()
    old = made.ticket()
    made.fail()
    old.answered()
    assert made.breaker.standing is Standing.RESTING and made.told == [True]


def test_a_trial_that_hangs_makes_room_for_the_next() -> None:
    made = Made().opened()
    made.clock.now += REST_S
    hangs = made.ticket()
    made.clock.now += LONGEST_TRIAL_S - 0.01
    assert made.breaker.enter() is None
    made.clock.now += 0.01
    second = made.ticket()
    assert made.breaker.enter() is None, "still one at a time"
    hangs.failed()
    assert made.breaker.standing is Standing.ON_TRIAL, "its end is old news"
    second.answered()
    assert made.breaker.standing is Standing.OPEN and made.told == [True, False]


def test_a_slow_trial_that_nobody_replaced_still_closes_it() -> None:
    made = Made().opened()
    made.clock.now += REST_S
    slow = made.ticket()
    made.clock.now += 10 * LONGEST_TRIAL_S
    slow.answered()
    assert made.told == [True, False]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("recovers_at", [3.0, 9.99, 10.0, 12.5, 31.0, 47.2])
def test_back_at_it_within_thirty_seconds_of_its_recovery(recovers_at: float, silent: bool) -> None:
    """With a request every tenth of a second; a silent endpoint holds each for a minute before it fails."""
    made = Made().opened()
    began = made.clock.now
    held: list[tuple[float, Ticket]] = []
    while made.told[-1]:
        made.clock.now += 0.1
        while held and held[0][0] <= made.clock.now:
            held.pop(0)[1].failed()
        ticket = made.breaker.enter()
        if ticket is None:
            continue
        if made.clock.now - began >= recovers_at:
            ticket.begun()
        elif silent:
            held.append((made.clock.now + 60.0, ticket))
        else:
            ticket.failed()
    assert made.clock.now - began - recovers_at <= (LONGEST_TRIAL_S if silent else REST_S) + 0.2 <= 30


class AnyOrder(RuleBasedStateMachine):
    """Tickets handed in in any order, however late, beside a count of what the newest of them say."""

    tickets = Bundle("tickets")

    def __init__(self) -> None:
        super().__init__()
        self.made = Made()
        self.trials: list[Ticket] = []
        self.out: set[int] = set()
        self.in_a_row = 0
        """Failures that can have counted since the last that cannot have: an upper bound."""

    @rule(target=tickets)
    def enter(self) -> Ticket | None:
        breaker = self.made.breaker
        standing, passed_by = breaker.standing, self.passed_by
        ticket = breaker.enter()
        assert (ticket is not None) is (standing is Standing.OPEN)
        if ticket is not None:
            self.out.add(id(ticket))
            if passed_by:
                assert breaker.standing is Standing.ON_TRIAL and breaker.enter() is None
                self.trials.append(ticket)
        return ticket

    @rule(ticket=consumes(tickets), wait_s=st.sampled_from([None, 0.0, 2.0, 500.0]), busy=st.booleans())
    def fail(self, ticket: Ticket | None, wait_s: float | None, busy: bool) -> None:
        if ticket is not None:
            before = self.passed_by
            self.in_a_row += 0 if busy and wait_s else 1
            ticket.failed(wait_s, busy=busy)
            if wait_s:
                assert self.made.breaker.rest_s >= min(wait_s, LONGEST_REST_S) - 1e-9
            if self.passed_by and not before:
                assert self.in_a_row >= MOST, "opened too early"
            self.done(ticket)

    @rule(ticket=consumes(tickets))
    def answer(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            before = self.passed_by
            ticket.answered()
            if before and not self.passed_by:
                assert ticket in self.trials, "only a trial closes it"
                self.in_a_row = 0
            self.done(ticket)

    @rule(ticket=tickets)
    def begin(self, ticket: Ticket | None) -> None:
        if ticket is not None and id(ticket) in self.out:
            before = self.passed_by
            ticket.begun()
            if before and not self.passed_by:
                assert ticket in self.trials
                self.in_a_row = 0

    @rule(ticket=consumes(tickets))
    def give_back(self, ticket: Ticket | None) -> None:
        if ticket is not None:
            before = (self.passed_by, self.made.breaker.rest_s)
            ticket.returned()
            assert (self.passed_by, self.made.breaker.rest_s) == before
            self.done(ticket)

    @rule(seconds=st.sampled_from([0.1, 1.0, REST_S, LONGEST_TRIAL_S, LONGEST_REST_S]))
    def wait(self, seconds: float) -> None:
        self.made.clock.now += seconds

    @property
    def passed_by(self) -> bool:
        return bool(self.made.told) and self.made.told[-1]

    def done(self, ticket: Ticket) -> None:
        self.out.discard(id(ticket))

    @invariant()
    def what_is_told_alternates(self) -> None:
        told = self.made.told
        assert told == [n % 2 == 0 for n in range(len(told))]

    @invariant()
    def the_rest_is_bounded(self) -> None:
        assert 0 <= self.made.breaker.rest_s <= max(REST_S, LONGEST_REST_S)

    @invariant()
    def one_who_waits_long_enough_gets_in(self) -> None:
        """Whatever became of the tickets: none that is kept for ever shuts the others out."""
        self.made.clock.now += LONGEST_REST_S + LONGEST_TRIAL_S
        assert self.made.breaker.standing is Standing.OPEN
        self.made.clock.now -= LONGEST_REST_S + LONGEST_TRIAL_S


AnyOrderTest = AnyOrder.TestCase
