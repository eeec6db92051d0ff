"""Whether a request may leave at all: a policy's rules, and what they ask of the text."""

from __future__ import annotations

import re
from itertools import product

import pytest
import regex

from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.leaving import NEVER
from weighbridge.policies.loader import parse_policy, shipped
from weighbridge.policies.outward import PATTERNS, WORDS

RULES = """
tasks:
  code: {road: commercial, egress: never}
tenants:
  hospital: {egress: never}
  clinic: {free_text: refuse, max_people: 3, data_class: confidential}
  shop: {max_people: 5}
keys:
  locked: {egress: never}
  careful: {free_text: refuse, max_people: 4, data_class: internal}
"""


def policy(text: str = RULES, egress: str = "masked") -> Policy:
    return compile_policy(
        parse_policy(f"version: 1\nname: p\negress: {egress}\n{text}".encode(), "p.yaml").document
    )


@pytest.mark.parametrize(
    ("tenant", "key", "task", "asked", "reasons"),
    [
        ("shop", "k", "chat", None, ()),
        ("nobody", "nobody", "chat", None, ()),
        ("hospital", "k", "chat", None, (NEVER,)),
        ("shop", "locked", "chat", None, ("egress never for this key",)),
        ("shop", "k", "code", None, ("task code: egress never",)),
        ("shop", "k", "chat", "public", ()),
        ("shop", "k", "chat", "internal", ()),
        ("shop", "k", "chat", "confidential", ("data class confidential",)),
        ("shop", "k", "chat", "restricted", ("data class restricted",)),
        ("shop", "k", "chat", "planted", ("data class not known",)),
        ("clinic", "k", "chat", None, ("data class confidential",)),
        ("clinic", "k", "chat", "public", ("data class confidential",)),
        ("clinic", "k", "chat", "restricted", ("data class restricted",)),
        ("clinic", "k", "chat", "planted", ("data class not known",)),
        (
            "hospital",
            "locked",
            "code",
            "restricted",
            (NEVER, "egress never for this key", "task code: egress never", "data class restricted"),
        ),
    ],
)
def test_what_keeps_a_request_in(
    tenant: str, key: str, task: str, asked: str | None, reasons: tuple[str, ...]
) -> None:
    assert policy().leaving.why_not(tenant, key, task, asked) == reasons


def test_under_never_nothing_leaves() -> None:
    assert policy(egress="never").leaving.why_not("shop", "k", "chat", "public") == (NEVER,)


def test_a_caller_can_only_tighten() -> None:
    made = policy().leaving
    classes = (None, "public", "internal", "confidential", "restricted", "planted")
    for tenant, key, task, asked in product(
        ("shop", "clinic", "hospital"), ("k", "locked", "careful"), ("chat", "code"), classes
    ):
        without = made.why_not(tenant, key, task, None)
        if without:
            assert made.why_not(tenant, key, task, asked), (tenant, key, task, asked)


@pytest.mark.parametrize(
    ("tenant", "key", "free_text", "people"),
    [
        ("other", "k", "mask", 20),
        ("clinic", "k", "refuse", 3),
        ("clinic", "careful", "refuse", 3),
        ("shop", "careful", "refuse", 4),
        ("shop", "k", "mask", 5),
    ],
)
def test_the_strictest_rule_for_the_text_counts(tenant: str, key: str, free_text: str, people: int) -> None:
    rules = policy().leaving.text_rules(tenant, key)
    assert (rules.free_text, rules.max_people) == (free_text, people)


def test_the_shipped_rules() -> None:
    leaving = shipped("default").leaving
    rules = leaving.text_rules("any")
    assert rules.refused == {"RRN", "FRN"}
    assert (rules.free_text, rules.max_people, rules.max_chars) == ("mask", 20, None)
    assert (leaving.blocked.words, leaving.blocked.patterns) == (WORDS, PATTERNS)
    assert leaving.blocked.limit_s == 1.0
    assert leaving.on_refusal == "local"


def test_a_policys_own_rules() -> None:
    made = policy(
        "outward:\n  refuse: [CARD]\n  max_people: 2\n  max_chars: 500\n  on_refusal: reject\n"
        "  blocked: {words: [Project Ox], patterns: ['x{3}'], time_limit_ms: 20}\n"
    ).leaving
    rules = made.text_rules("any")
    assert (rules.refused, rules.max_people, rules.max_chars) == (frozenset({"CARD"}), 2, 500)
    assert (made.blocked.words, made.blocked.patterns, made.blocked.limit_s) == (
        ("Project Ox",),
        ("x{3}",),
        0.02,
    )
    assert made.on_refusal == "reject"


def test_all_of_it_is_part_of_the_version() -> None:
    plain = policy("").version
    for text in (
        "outward: {free_text: refuse}\n",
        "outward: {refuse: []}\n",
        "outward: {on_refusal: reject}\n",
        "outward: {blocked: {words: []}}\n",
        "outward: {data_classes: {default: public}}\n",
        "tasks: {chat: {road: by-score, egress: never}}\n",
        "keys: {k: {egress: never}}\n",
        "tenants: {t: {data_class: restricted}}\n",
    ):
        assert policy(text).version != plain, text
    two = "keys:\n  {}: {{egress: never}}\n  {}: {{egress: never}}\n"
    assert policy(two.format("a", "b")).version == policy(two.format("b", "a")).version


MARKED = [
    "CONFIDENTIAL",
    "STRICTLY CONFIDENTIAL: do not share",
    "Minutes of 3 May\nConfidential\n\nThe board met.",
    "  ** confidential **\nText",
    "[Internal only] Roadmap",
    "INTERNAL USE ONLY",
    "report (TOP SECRET)",
    "Classification: Confidential",
    "sensitivity: strictly confidential",
    "DO NOT DISTRIBUTE",
    "본 문서는 대외비입니다.",
    "[비공개] 회의록",
    "비공개\n회의록",
    "― 사내한 ―\n본문",
    "문서 등급: 극비",
    "<사내 한정>\n인사 평가",
    "【외부 유출 금지】 설계서",
    "보안등급 : 3급 비밀",
]
UNMARKED = [
    "Is a therapist allowed to share confidential information with my employer?",
    "We keep your data confidential and never sell it.",
    "This is for internal use only in the sense that nobody asked for it, he said.",
    "He kept the top secret recipe.",
    "Add DATA_CLASS_CONFIDENTIAL to the enum.",
    "회의는 비공개로 진행됐다.",
    "비공개 회의를 열었다고 밝혔다.",
    "그 사내한테 말했다.",
    "기밀문서가 유출됐다는 보도가 나왔다.",
    "극비리에 협상을 진행했다.",
    "개인정보의 외부 유출 금지 조항을 설명해줘.",
    "Explain the difference between secret and confidential clearance.",
]


def marked(text: str) -> bool:
    return any(word in text for word in WORDS) or any(regex.search(one, text) for one in PATTERNS)


@pytest.mark.parametrize("text", MARKED)
def test_shipped_markings_are_found(text: str) -> None:
    assert marked(text)


@pytest.mark.parametrize("text", UNMARKED)
def test_the_same_words_in_a_sentence_are_not(text: str) -> None:
    assert not marked(text)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_shipped_patterns_are_bounded(pattern: str) -> None:
    """No repetition without an end, so none of them takes more than linear time."""
    assert re.search(r"[*+]|\{\d+,\}", re.sub(r"\[[^\]]*\]|\\.", "", pattern)) is None
