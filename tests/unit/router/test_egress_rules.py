"""A policy's rules in masking's shape: what is passed on, and that terms are made ready once a version."""

from __future__ import annotations

import threading

import pytest

from tests.unit.policies.test_leaving import MARKED, UNMARKED, policy
from weighbridge.masking.rules import Rules
from weighbridge.policies.loader import shipped
from weighbridge.router import egress_rules
from weighbridge.router.egress_rules import rules_beside, rules_for, takes_long


def test_the_shipped_rules_are_those_of_masking_and_the_markings() -> None:
    rules = rules_for(shipped("default"), "any")
    bare = Rules()
    assert (rules.free_text, rules.refused, rules.max_people, rules.max_chars) == (
        bare.free_text,
        bare.refused,
        bare.max_people,
        bare.max_chars,
    )
    assert rules.blocked is not None


@pytest.mark.parametrize("text", MARKED)
def test_shipped_markings_keep_a_request_in(text: str) -> None:
    blocked = rules_for(shipped("default"), "any").blocked
    assert blocked is not None and blocked.found(["fine", text])


@pytest.mark.parametrize("text", UNMARKED)
def test_the_same_words_in_a_sentence_do_not(text: str) -> None:
    blocked = rules_for(shipped("default"), "any").blocked
    assert blocked is not None and not blocked.found([text])


def test_tenant_and_key_make_it_stricter() -> None:
    made = policy()
    assert rules_for(made, "clinic").free_text == "refuse"
    assert rules_for(made, "other", "careful").max_people == 4
    assert rules_for(made, "other").max_people == 20


def test_a_policy_without_terms_searches_for_none() -> None:
    made = policy("outward: {refuse: [], max_chars: 7, blocked: {words: [], patterns: []}}\n")
    assert rules_for(made, "any") == Rules(refused=frozenset(), max_chars=7)


def test_terms_are_made_ready_once_and_a_few_versions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    really = egress_rules.compile_blocked

    def compile_blocked(*args: object) -> object:
        made.append(args)
        return really(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(egress_rules, "compile_blocked", compile_blocked)
    policies = [policy(f"outward: {{blocked: {{words: [Project {n}]}}}}\n") for n in range(12)]
    for one in policies:
        assert rules_for(one, "a").blocked is rules_for(one, "b").blocked
    assert len(made) == 12 and len(egress_rules._ready) <= 8
    rules_for(policies[0], "a")
    assert len(made) == 13


def test_a_long_list_is_told_apart_until_it_is_ready() -> None:
    words = ", ".join(f"project name {n}" for n in range(2000))
    long = policy(f"outward: {{blocked: {{words: [{words}]}}}}\n")
    assert takes_long(long) and not takes_long(shipped("default"))
    rules_for(long, "a")
    assert not takes_long(long)


def test_ready_terms_wait_for_no_others_that_are_being_made() -> None:
    ready = policy("outward: {blocked: {words: [Project Ready]}}\n")
    rules = rules_for(ready, "a")
    found: list[Rules] = []
    asking = threading.Thread(target=lambda: found.append(rules_for(ready, "a")), daemon=True)
    with egress_rules._making:
        asking.start()
        asking.join(10)
        assert found == [rules]


async def test_long_terms_are_made_ready_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    really = egress_rules.compile_blocked

    def compile_blocked(*args: object) -> object:
        threads.append(threading.current_thread())
        return really(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(egress_rules, "compile_blocked", compile_blocked)
    words = ", ".join(f"long project name {n}" for n in range(2000))
    long = policy(f"outward: {{blocked: {{words: [{words}]}}}}\n")
    made = await rules_beside(long, "a")
    assert made == rules_for(long, "a")
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
