"""Keeping decisions that hang on no text."""

from __future__ import annotations

from weighbridge.policies.loader import shipped
from weighbridge.router.settled import MOST, Settled


def test_a_decision_is_found_by_all_its_facts_under_its_policy_alone() -> None:
    first, second = shipped("default"), shipped("on-prem-only")
    settled = Settled[str]()
    settled.keep(first, ("local-8b", "a"), "kept")
    assert settled.find(first, ("local-8b", "a")) == "kept"
    assert settled.find(first, ("local-8b", "b")) is None
    assert settled.find(second, ("local-8b", "a")) is None
    settled.keep(second, ("local-8b", "a"), "newer")
    assert settled.find(second, ("local-8b", "a")) == "newer"
    assert settled.find(first, ("local-8b", "a")) is None, "what an older policy said is gone"


def test_it_does_not_grow_with_what_callers_think_of() -> None:
    policy = shipped("default")
    settled = Settled[int]()
    for number in range(MOST + 5):
        settled.keep(policy, number, number)
    assert settled.find(policy, MOST + 4) == MOST + 4
    assert sum(settled.find(policy, number) is not None for number in range(MOST + 5)) == 5
