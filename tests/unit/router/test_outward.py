"""Whose turn it is among the commercial endpoints, after what wait, and when it is enough."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.router.test_failover import decision
from weighbridge.commercial.errors import REFUSALS, FailureKind, UpstreamFailed, UpstreamRefused
from weighbridge.commercial.outlets import Outlet, Outlets
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import ContextLengthExceeded
from weighbridge.config.roads import COMMERCIAL, LOCAL_70B
from weighbridge.config.settings import CommercialSettings, Endpoint
from weighbridge.router.failover import Opens, Setback, final_error, setback_of
from weighbridge.router.outward import ATTEMPTS, LONGEST_WAIT_S, SAME, Outward

Fault = UpstreamFailed | UpstreamRefused
Answer = Fault | None

OUT = decision(COMMERCIAL, LOCAL_70B)


def failed(
    kind: FailureKind = "status", status: int | None = 503, after: float | None = None
) -> UpstreamFailed:
    return UpstreamFailed(kind, status=status if kind == "status" else None, retry_after_s=after)


TOO_LONG = UpstreamRefused(400, "context_length_exceeded")
FILTERED = UpstreamRefused(400, "content_filter")
INVALID = UpstreamRefused(400, "invalid_value")
STALL, RESET = failed("stall"), failed("reset")


@dataclass(frozen=True)
class Asked:
    """One attempt as the provider sees it."""

    name: str
    at: float
    met: Answer


class Site:
    """Endpoints that answer by script, and requests that go there as the lifecycle would send them."""

    def __init__(self, windows: dict[str, int | None], *, failures: int = 1000, rest_s: float = 10.0) -> None:
        self.now = 0.0
        endpoints = {
            name: Endpoint(base_url=f"http://{name}.test", model="m", max_context_tokens=window)
            for name, window in windows.items()
        }
        settings = CommercialSettings(endpoints=endpoints, breaker_failures=failures, breaker_rest_s=rest_s)
        self.outlets = Outlets(settings, self)
        self.scripts: dict[str, Callable[[], Answer]] = {}
        self.asked: list[Asked] = []
        self.setbacks: list[Setback] = []
        self.refused_entry = 0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return round(self.now * 1e9)

    def answers(self, name: str, *answers: Answer) -> Site:
        """The last one holds for good."""
        left = deque(answers)
        self.scripts[name] = lambda: left.popleft() if len(left) > 1 else left[0]
        return self

    def go(
        self,
        *,
        elsewhere: bool = False,
        deadline_s: float = 1000.0,
        prompt_tokens: int = 0,
        draw: Callable[[], float] = lambda: 0.0,
        lasts_s: float = 0.0,
    ) -> str | None:
        """One request; the endpoint that served it, or None. `lasts_s` is how long each attempt takes."""
        deadline = Deadline.after(self, deadline_s)
        outward = Outward(self.outlets.order((), "x"), deadline, draw)
        while True:
            outlet = outward.take(prompt_tokens)
            outward.asked(outlet)
            fault = self._attempt(outlet, lasts_s)
            if fault is None:
                return outlet.name
            setback = outward.met(setback_of(fault, OUT))
            self.setbacks.append(setback)
            turn = outward.again(setback, elsewhere)
            if turn is None:
                return None
            assert turn.wait_s <= LONGEST_WAIT_S
            self.now += turn.wait_s
            assert self.now < deadline.at

    def _attempt(self, outlet: Outlet, lasts_s: float) -> Answer:
        ticket = outlet.breaker.enter()
        if ticket is None:
            self.refused_entry += 1
            return UpstreamFailed("resting", retry_after_s=max(1.0, outlet.breaker.rest_s))
        fault = self.scripts[outlet.name]()
        self.asked.append(Asked(outlet.name, self.now, fault))
        self.now += lasts_s
        if isinstance(fault, UpstreamFailed):
            ticket.failed(fault.retry_after_s, busy=fault.status == 429)
        else:
            ticket.answered()
        return fault

    @property
    def trace(self) -> list[tuple[str, float]]:
        return [(one.name, round(one.at, 6)) for one in self.asked]

    @property
    def names(self) -> str:
        return "".join(one.name for one in self.asked)

    def told(self) -> Any:
        return final_error(self.setbacks)


def one(**how: Any) -> Site:
    return Site({"a": None}, **how)


def test_a_whole_answer_is_asked_for_once() -> None:
    site = Site({"a": None, "b": None}).answers("a", None)
    assert site.go() == "a" and site.names == "a"


@pytest.mark.parametrize("fault", [failed(), RESET, failed("cut"), failed("malformed"), failed("connect")])
def test_the_same_endpoint_is_asked_again_after_growing_waits(fault: Fault) -> None:
    site = one().answers("a", fault)
    assert site.go() is None
    assert site.trace == [("a", 0.0), ("a", 0.3), ("a", 1.8), ("a", 4.8)]
    assert site.told() is site.setbacks[-1].error


def test_a_fault_that_passes_is_healed_by_one_more_attempt() -> None:
    site = one().answers("a", failed(status=500), None)
    assert site.go() == "a" and site.trace == [("a", 0.0), ("a", 0.3)]


def test_the_waits_are_drawn() -> None:
    site = one().answers("a", failed())
    site.go(draw=lambda: 1.0)
    assert site.trace == [("a", 0.0), ("a", 0.5), ("a", 2.5), ("a", 6.5)]


@pytest.mark.parametrize("kind", ["stall", "timeout"])
def test_a_silent_endpoint_is_not_asked_again(kind: FailureKind) -> None:
    site = one().answers("a", failed(kind))
    assert site.go() is None and site.names == "a"
    site = Site({"a": None, "b": None}).answers("a", failed(kind)).answers("b", failed(), failed(), None)
    assert site.go() == "b" and site.names == "abbb"


@pytest.mark.parametrize(
    ("status", "asked"), [(302, 1), (418, 1), (501, 1), (408, 4), (409, 4), (425, 4), (502, 4)]
)
def test_which_statuses_are_worth_another_attempt(status: int, asked: int) -> None:
    site = one().answers("a", failed(status=status))
    assert site.go() is None and len(site.asked) == asked


@pytest.mark.parametrize(
    "fault", [failed(), failed("connect"), RESET, STALL, failed("malformed"), failed(status=302)]
)
def test_the_next_endpoint_is_asked_at_once(fault: Fault) -> None:
    site = Site({"a": None, "b": None}).answers("a", fault).answers("b", None)
    assert site.go(elsewhere=True) == "b"
    assert site.trace == [("a", 0.0), ("b", 0.0)]


def test_when_all_have_failed_the_last_one_is_asked_again() -> None:
    site = Site({"a": None, "b": None, "c": None})
    for name in "abc":
        site.answers(name, failed())
    assert site.go() is None
    assert site.trace == [("a", 0), ("b", 0), ("c", 0), ("c", 0.3), ("c", 1.8), ("c", 4.8)]


@pytest.mark.parametrize("after", [0.7, 1.0, 5.0, 19.0])
def test_what_an_endpoint_asks_for_is_kept_to_inside_the_deadline(after: float) -> None:
    site = one().answers("a", failed(status=429, after=after), None)
    assert site.go() == "a" and site.trace == [("a", 0.0), ("a", after)]


@pytest.mark.parametrize(
    ("after", "deadline_s"), [(5.0, 5.0), (5.0, 3.0), (LONGEST_WAIT_S + 1, 1000.0), (0.1, 0.2)]
)
def test_what_lies_past_the_deadline_or_too_far_off_is_given_up(after: float, deadline_s: float) -> None:
    site = one().answers("a", failed(status=429, after=after), None)
    assert site.go(deadline_s=deadline_s) is None
    assert site.names == "a" and site.now == 0
    told = site.told()
    assert (told.status, told.code, told.retry_after_s) == (429, "upstream_rate_limited", after)


def test_a_rate_limit_without_a_time_is_not_hammered() -> None:
    site = one().answers("a", failed(status=429))
    assert site.go() is None and site.trace == [("a", 0.0), ("a", 0.3), ("a", 1.8), ("a", 4.8)]


def test_another_endpoint_is_better_than_a_wait() -> None:
    site = Site({"a": None, "b": None}).answers("a", failed(status=429, after=2.0)).answers("b", None)
    assert site.go() == "b" and site.now == 0


def test_other_requests_keep_to_it_as_well() -> None:
    site = one().answers("a", failed(status=429, after=6.0), None)
    site.go(deadline_s=1.0)
    assert site.go() == "a"
    assert site.trace == [("a", 0.0), ("a", 6.0)] and site.refused_entry == 1


def test_a_local_road_is_taken_after_one_quick_retry() -> None:
    site = one().answers("a", failed())
    assert site.go(elsewhere=True) is None and site.trace == [("a", 0.0), ("a", 0.3)]
    site = Site({"a": None, "b": None}).answers("a", failed()).answers("b", failed())
    assert site.go(elsewhere=True) is None and site.trace == [("a", 0.0), ("b", 0.0), ("b", 0.3)]


def test_a_local_road_is_better_than_a_wait() -> None:
    site = one().answers("a", failed(status=429, after=0.2))
    assert site.go(elsewhere=True) is None and site.names == "a"


def test_an_endpoint_that_rests_is_passed_by() -> None:
    site = Site({"a": None, "b": None}, failures=1).answers("a", failed(), None).answers("b", None)
    assert site.go() == "b"
    assert site.go() == "b" and site.names == "abb", "the first is not even looked at"
    site.now += 10.0
    assert site.go() == "a"
    assert site.go() == "a"


def test_where_all_rest_the_caller_hears_so_at_once() -> None:
    site = one(failures=1).answers("a", failed())
    assert site.go() is None and site.names == "a", "its own failure has opened the breaker"
    assert site.go() is None and site.names == "a" and site.now == 0
    told = site.told()
    assert (told.status, told.code, told.retry_after_s) == (503, "upstream_resting", 10.0)


def test_the_trial_of_another_request_is_not_waited_for() -> None:
    site = one(failures=1).answers("a", failed(), None)
    site.go()
    site.now += 10.0
    trial = site.outlets["a"].breaker.enter()
    assert trial is not None
    assert site.go() is None and site.names == "a"
    trial.answered()
    assert site.go() == "a"


# --- refusals


@pytest.mark.parametrize("status", sorted(REFUSALS))
@pytest.mark.parametrize("code", [None, "some_code", "content_filter", "content_policy_violation"])
def test_a_refusal_is_told_after_one_attempt(status: int, code: str | None) -> None:
    refusal = UpstreamRefused(status, code)
    site = Site({"a": None, "b": None}).answers("a", refusal).answers("b", None)
    assert site.go() is None and site.names == "a"
    assert site.setbacks[0].opens is Opens.NOTHING and site.told() is refusal


@pytest.mark.parametrize(
    "refusal", [INVALID, UpstreamRefused(401), UpstreamRefused(404, "model_not_found"), TOO_LONG]
)
def test_a_targets_rejection_does_not_hide_the_failure_that_led_to_it(refusal: UpstreamRefused) -> None:
    site = Site({"a": None, "b": None}).answers("a", STALL).answers("b", refusal)
    assert site.go() is None and site.names == "ab"
    assert site.told().code == "upstream_stall"
    assert site.setbacks[-1].opens is Opens.LOCAL, "a local road may still serve"


def test_and_the_first_endpoint_may_be_asked_again() -> None:
    site = Site({"a": None, "b": None}).answers("a", failed(), None).answers("b", INVALID)
    assert site.go() == "a" and site.trace == [("a", 0.0), ("b", 0.0), ("a", 0.3)]


@pytest.mark.parametrize("first", [failed(), STALL])
def test_a_providers_judgement_of_the_content_is_final_wherever_it_comes(first: Fault) -> None:
    site = Site({"a": None, "b": None, "c": None})
    site.answers("a", first).answers("b", FILTERED).answers("c", None)
    assert site.go() is None and site.names == "ab"
    assert site.told() is FILTERED and site.setbacks[-1].opens is Opens.NOTHING


# --- windows


@pytest.mark.parametrize(
    ("windows", "then"),
    [
        ({"a": 8000, "b": 8000, "c": 4000, "d": None, "e": 32_000, "f": 9000}, "ae"),
        ({"a": 8000, "b": 4000, "d": None}, "a"),
        ({"a": None, "b": 1_000_000}, "a"),
        ({"a": 8000, "b": 9000, "c": 32_000}, "abc"),
        ({"a": 8000, "b": 32_000, "c": 9000}, "ab"),
    ],
)
def test_a_prompt_that_is_too_long_goes_only_to_a_window_known_to_be_larger(
    windows: dict[str, int | None], then: str
) -> None:
    site = Site(windows)
    for name in windows:
        site.answers(name, TOO_LONG)
    assert site.go() is None
    assert site.names == then
    told = site.told()
    assert (told.status, told.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize("first", [failed(), STALL])
def test_the_same_holds_where_another_one_had_failed_before(first: Fault) -> None:
    site = Site({"a": 8000, "b": 8000, "c": 4000, "d": None, "e": 16_000})
    site.answers("a", first).answers("b", TOO_LONG).answers("e", None)
    assert site.go() == "e" and site.names == "abe"


def test_nothing_is_asked_again_for_a_prompt_it_cannot_take() -> None:
    site = Site({"a": 8000, "b": 8000}).answers("a", failed()).answers("b", TOO_LONG)
    assert site.go() is None and site.names == "ab"


def test_a_prompt_that_was_counted_skips_the_narrow_ones() -> None:
    site = Site({"a": 100, "b": None, "c": 5000}).answers("b", failed()).answers("c", None)
    assert site.go(prompt_tokens=100) == "c" and site.names == "bc"
    assert Site({"a": 100}).answers("a", None).go(prompt_tokens=99) == "a"
    with pytest.raises(ContextLengthExceeded) as refused:
        Site({"a": 100, "c": 5000}).go(prompt_tokens=5000)
    assert "5000" in str(refused.value)


def test_a_larger_window_that_asked_for_a_pause_is_waited_for() -> None:
    site = Site({"a": 100, "b": 200}).answers("a", TOO_LONG).answers("b", None)
    busy = site.outlets["b"].breaker.enter()
    assert busy is not None
    busy.failed(3.0, busy=True)
    assert site.go() == "b" and site.trace == [("a", 0.0), ("b", 3.0)]


# --- what a provider sees, whatever happens

FAULTS: list[Answer] = [
    None,
    *(failed(status=status) for status in (302, 408, 429, 500, 501, 503)),
    *(failed(status=status, after=after) for status in (429, 503) for after in (0.0, 0.2, 1.4, 19.0, 90.0)),
    *(failed(kind) for kind in ("connect", "reset", "stall", "cut", "malformed", "timeout")),
    TOO_LONG,
    FILTERED,
    INVALID,
    UpstreamRefused(401),
]


@st.composite
def sites(draw: st.DrawFn) -> Site:
    names = draw(st.integers(1, 4))
    windows = [draw(st.sampled_from([None, 1000, 2000, 4000])) for _ in range(names)]
    site = Site(dict(zip("abcd", windows, strict=False)), failures=draw(st.sampled_from([1, 2, 5, 1000])))
    for name in "abcd"[:names]:
        site.answers(name, *draw(st.lists(st.sampled_from(FAULTS), min_size=1, max_size=8)))
    return site


def closest(times: Iterable[float], count: int) -> float:
    """The shortest time in which `count` of them lie."""
    ordered = sorted(times)
    return min((b - a for a, b in zip(ordered, ordered[count - 1 :], strict=False)), default=float("inf"))


@given(
    site=sites(),
    elsewhere=st.booleans(),
    seed=st.integers(0, 2**32),
    deadline_s=st.sampled_from([0.5, 5.0, 60.0, 1000.0]),
    lasts_s=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_no_provider_is_hammered(
    site: Site, elsewhere: bool, seed: int, deadline_s: float, lasts_s: float
) -> None:
    site.go(elsewhere=elsewhere, deadline_s=deadline_s, draw=random.Random(seed).random, lasts_s=lasts_s)
    assert len(site.asked) <= ATTEMPTS == 6
    for name in site.scripts:
        times = [one.at for one in site.asked if one.name == name]
        assert len(times) <= SAME == 4
        assert closest(times, 3) >= 1.5 - 1e-9, times
        assert closest(times, 2) >= 0.3 - 1e-9, times
    for n, one in enumerate(site.asked):
        later = site.asked[n + 1 :]
        if one.met in (None, FILTERED):
            assert not later
        if isinstance(one.met, UpstreamRefused) or (one.met and one.met.kind in ("stall", "timeout")):
            assert one.name not in [other.name for other in later]
        if one.met is TOO_LONG:
            window = site.outlets[one.name].endpoint.max_context_tokens
            for other in later:
                wider = site.outlets[other.name].endpoint.max_context_tokens
                assert window is not None and wider is not None and wider > window
