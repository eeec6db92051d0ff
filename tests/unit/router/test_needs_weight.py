"""When a request is weighed, and that nothing but the record changes where it is not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.router.test_decision import BOTH, policy, weight
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_ROADS
from weighbridge.policies.loader import shipped
from weighbridge.router.decision import UNWEIGHED, Facts, decide, needs_weight

ALIASES = {"gpt-4o": "auto", "gpt-4o-mini": LOCAL_8B, "gpt-5": COMMERCIAL, "tuned": "legal-ko"}
ADAPTED = Facts("t", LOCAL_ROADS, True, {"legal-ko": LOCAL_8B})


@pytest.mark.parametrize(
    ("model", "weighed"),
    [
        ("auto", True),
        (COMMERCIAL, True),
        ("gpt-4o", True),
        ("gpt-5", True),
        (LOCAL_8B, False),
        ("legal-ko", False),
        ("gpt-4o-mini", False),
        ("tuned", False),
    ],
)
def test_a_named_tier_is_not_weighed(model: str, weighed: bool) -> None:
    assert needs_weight(model, policy(aliases=ALIASES), ADAPTED) is weighed


def test_it_is_where_it_may_leave_or_its_conversation_could_be_pinned() -> None:
    assert needs_weight(LOCAL_8B, policy(explicit_local="overflow"), BOTH)
    for state in ("open", "local", "lost", "unreadable"):
        facts: Any = Facts("t", LOCAL_ROADS, True, conversation=state)  # type: ignore[arg-type]
        assert needs_weight(LOCAL_8B, shipped("default"), facts)


@given(
    score=st.floats(0, 1),
    task=st.sampled_from(["classification", "rag", "code", "chat", "unknown"]),
    configured=st.booleans(),
    switched_off=st.booleans(),
    named=st.sampled_from([None, "public", "confidential", "planted"]),
)
def test_no_weight_changes_what_becomes_of_it(
    score: float, task: str, configured: bool, switched_off: bool, named: str | None
) -> None:
    facts = Facts("t", LOCAL_ROADS, configured, data_class=named, switched_off=switched_off)
    rules = shipped("default")
    assert not needs_weight(LOCAL_8B, rules, facts)
    with_it = msgspec.structs.asdict(decide(LOCAL_8B, weight(score, task), rules, facts))
    without = msgspec.structs.asdict(decide(LOCAL_8B, UNWEIGHED, rules, facts))
    for told in ("score", "clamped_score", "task", "language", "reasons"):
        with_it.pop(told), without.pop(told)
    assert with_it == without
