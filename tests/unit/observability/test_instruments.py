from __future__ import annotations

import threading

import pytest

from weighbridge.observability.instruments import OTHER, Counter, Family, Gauge, Histogram


def test_a_counter_only_goes_up() -> None:
    counter = Counter()
    counter.inc()
    counter.inc(2.5)
    with pytest.raises(ValueError):
        counter.inc(-1)
    assert counter.value == 3.5


def test_a_gauge_goes_both_ways() -> None:
    gauge = Gauge()
    gauge.set(5)
    gauge.inc()
    gauge.dec(2)
    assert gauge.value == 4


def test_a_histogram_counts_a_value_on_a_bound_under_it() -> None:
    histogram = Histogram((0.5, 1.0))
    for value in (0.1, 0.5, 0.75, 7.0):
        histogram.observe(value)
    assert histogram.snapshot() == ([("0.5", 2.0), ("1.0", 3.0), ("+Inf", 4.0)], 8.35)
    assert (histogram.count, histogram.sum) == (4, 8.35)


def test_children_are_the_same_object_by_position_and_by_name() -> None:
    family = Family(Counter, {"road": ("a", "b"), "kind": ("x", "y")})
    child = family.labels("a", "x")
    assert family.labels("a", "x") is child
    assert family.labels(kind="x", road="a") is child
    assert family.labels("b", "x") is not child
    assert len(family.children()) == 4


def test_unknown_values_share_one_child() -> None:
    family = Family(Counter, {"road": ("a", "b")})
    for n in range(50):
        family.labels(f"made up {n}").inc()
    assert dict(family.children())[(OTHER,)].value == 50
    assert len(family.children()) == 3


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), (("a", "b"), {}), ((), {"tier": "a"}), (("a",), {"road": "a"})]
)
def test_wrong_labels_are_refused(values: tuple[str, ...], named: dict[str, str]) -> None:
    family = Family(Counter, {"road": ("a",)})
    with pytest.raises(ValueError):
        family.labels(*values, **named)


def test_children_that_are_not_made_ahead_come_with_their_first_use() -> None:
    family = Family(Gauge, {"road": ("a", "b"), "kind": ("x", "y")}, ahead=False)
    assert family.children() == []
    family.labels("a", "x").set(1)
    family.labels("a", "made up").set(2)
    assert [(values, child.value) for values, child in family.children()] == [
        (("a", "x"), 1),
        (("a", OTHER), 2),
    ]


def test_a_removed_child_is_shown_no_more_until_it_is_used_again() -> None:
    family = Family(Gauge, {"road": ("a", "b")}, ahead=False)
    old = family.labels("a")
    old.set(1)
    family.labels("b").set(2)
    family.labels("made up").set(3)
    for value in ("a", "a", "made up by another"):
        family.remove(value)
    old.set(4)
    assert [(values, child.value) for values, child in family.children()] == [(("b",), 2)]
    family.labels("a").set(5)
    assert dict(family.children())[("a",)].value == 5
    with pytest.raises(ValueError):
        family.remove("a", "b")


def test_nothing_is_lost_between_threads() -> None:
    counter, histogram = Counter(), Histogram((1.0,))

    def work() -> None:
        for _ in range(20_000):
            counter.inc()
            histogram.observe(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == histogram.count == histogram.sum == 80_000


def test_a_gauge_may_follow_its_source() -> None:
    held = [2]
    gauge = Gauge()
    gauge.set(9)
    gauge.follow(lambda: held[0])
    assert gauge.value == 2.0
    held[0] = 3
    assert gauge.value == 3.0 and isinstance(gauge.value, float)
