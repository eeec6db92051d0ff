"""Which endpoints there are, and the order in which a conversation tries them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import pytest

from weighbridge.commercial.breaker import Standing
from weighbridge.commercial.outlets import Outlet, Outlets, Steps, first_open
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import CommercialSettings, Endpoint

CONVERSATIONS = 4000


def made(*more: str, main: bool = True, told: list[tuple[str, bool]] | None = None) -> Outlets:
    endpoints = {name: Endpoint(base_url=f"http://{name}.test/v1", model=f"m-{name}") for name in more}
    settings = CommercialSettings(
        base_url="http://main.test/v1" if main else None,
        model="m-main",
        endpoints=endpoints,
        breaker_failures=2,
    )
    heard = [] if told is None else told
    return Outlets(settings, SystemClock(), lambda name, passed_by: heard.append((name, passed_by)))


def names(order: tuple[Outlet, ...]) -> list[str]:
    return [outlet.name for outlet in order]


def firsts(outlets: Outlets, steps: Steps) -> Counter[str]:
    return Counter(names(outlets.order(steps, f"tenant/{n}"))[0] for n in range(CONVERSATIONS))


def assert_shared(found: Counter[str], weights: Mapping[str, int]) -> None:
    """Within five standard deviations of the weights' shares."""
    for name, weight in weights.items():
        share = weight / sum(weights.values())
        bound = 5 * math.sqrt(CONVERSATIONS * share * (1 - share))
        assert abs(found[name] - CONVERSATIONS * share) <= bound, (name, found)


def test_without_steps_all_in_the_order_of_the_settings() -> None:
    outlets = made("zulu", "alpha")
    for whose in ("a", "b", "c"):
        assert names(outlets.order((), whose)) == ["main", "zulu", "alpha"]
    assert names(made("zulu", main=False).order((), "a")) == ["zulu"]
    assert outlets["alpha"].endpoint.model == "m-alpha" and outlets["main"].endpoint.model == "m-main"


def test_there_may_be_none() -> None:
    assert made() and not made(main=False)
    assert made(main=False).order((), "a") == ()


def test_steps_come_one_after_the_other() -> None:
    outlets = made("b", "c", "d")
    steps = ((("d", 1),), (("b", 1), ("c", 1)), (("main", 1),))
    for n in range(20):
        order = names(outlets.order(steps, str(n)))
        assert order[0] == "d" and set(order[1:3]) == {"b", "c"} and order[3] == "main"


def test_those_the_policy_does_not_name_are_not_asked() -> None:
    assert names(made("b").order(((("b", 1),),), "x")) == ["b"]


@pytest.mark.parametrize(
    "weights", [{"main": 1, "b": 1}, {"main": 3, "b": 1}, {"main": 1, "b": 2, "c": 7}, {"main": 999, "b": 1}]
)
def test_conversations_are_shared_out_by_weight(weights: dict[str, int]) -> None:
    assert_shared(firsts(made("b", "c"), (tuple(weights.items()),)), weights)


def test_where_one_is_left_out_the_others_keep_their_shares() -> None:
    """Those of the one that is gone are shared out among the others, by weight again."""
    outlets = made("b", "c")
    steps = ((("main", 5), ("b", 3), ("c", 1)),)
    orders = [names(outlets.order(steps, str(n))) for n in range(CONVERSATIONS)]
    gone = [order[1] for order in orders if order[0] == "main"]
    share = gone.count("b") / len(gone)
    assert abs(share - 3 / 4) <= 5 * math.sqrt(0.75 * 0.25 / len(gone))


def test_a_conversation_keeps_its_order_whatever_the_file_says_first() -> None:
    outlets, again = made("b", "c"), made("b", "c")
    one, other = ((("main", 1), ("b", 2), ("c", 3)),), ((("c", 3), ("main", 1), ("b", 2)),)
    for n in range(200):
        assert outlets.order(one, str(n)) == outlets.order(one, str(n))
        assert names(outlets.order(one, str(n))) == names(again.order(other, str(n)))


def test_a_conversation_may_be_called_anything() -> None:
    outlets = made("b")
    assert len(outlets.order(((("main", 1), ("b", 1)),), "가나\ud800\0")) == 2


def test_first_open_passes_by_whoever_may_not_be_asked() -> None:
    told: list[tuple[str, bool]] = []
    outlets = made("b", "c", told=told)
    order = outlets.order((), "x")
    assert first_open(order) is order[0]
    assert first_open(order, {"main", "b"}) is order[2]
    assert first_open(order, {"main", "b", "c"}) is None
    for _ in range(2):
        ticket = order[0].breaker.enter()
        assert ticket is not None
        ticket.failed()
    assert first_open(order) is order[1]
    assert told == [("main", True)]
    busy = order[1].breaker.enter()
    assert busy is not None
    busy.failed(5.0, busy=True)
    assert first_open(order) is order[2]
    assert outlets.standings() == {"main": Standing.RESTING, "b": Standing.WAITING, "c": Standing.OPEN}
