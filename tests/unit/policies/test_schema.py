"""Policy files: what is refused, with the line that prints, and what the shipped ones say."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.config.entity_types import EntityType
from weighbridge.config.evidence import Evidence
from weighbridge.config.limits import ExchangeLimits, LocalLimits
from weighbridge.config.problems import ConfigProblems
from weighbridge.config.settings import PolicySettings
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.escalation import Escalation
from weighbridge.policies.loader import (
    SHIPPED,
    check_policy,
    example_paths,
    load_policy,
    parse_policy,
    policy_path,
    shipped,
    shipped_path,
)
from weighbridge.policies.risk import Risk
from weighbridge.policies.schema import PolicyDocument
from weighbridge.policies.tasks import MEANING, TASKS

TYPES = get_args(EntityType)

HEAD = "version: 1\nname: p\negress: masked\n"


def compiled(text: str) -> Policy:
    return compile_policy(parse_policy(text.encode(), "p.yaml").document)


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        parse_policy(text.encode(), "p.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_the_shortest_policy_has_the_shipped_bounds() -> None:
    made = compiled(HEAD)
    assert (made.local_8b, made.local_70b, made.queue_lock_timeout_ms) == (0.45, 0.55, 2000)
    assert made.explicit_local == "stay"
    assert made.overflow_order == ("higher-local", "commercial")
    assert made.drain_s == 0.0


ROADS = "one of local-8b, local-70b, commercial, by-score"
REFUSED = {
    "endpoint twice": (
        HEAD + "endpoints:\n  - {a: 1}\n  - b: 1\n    a: 2\n",
        "p.yaml:7:5: endpoints[1].a: this endpoint is given twice",
    ),
    "empty step": (
        HEAD + "endpoints:\n  - {a: 1}\n  - {}\n",
        "p.yaml:6:5: endpoints[1]: must name at least one endpoint",
    ),
    "weight 0": (
        HEAD + "endpoints:\n  - {a: 0}\n",
        "p.yaml:5:6: endpoints[0].a: must be a whole number between 1 and 1000",
    ),
    "weight 1001": (
        HEAD + "endpoints:\n  - {a: 1001}\n",
        "p.yaml:5:6: endpoints[0].a: must be a whole number between 1 and 1000",
    ),
    "weight 1.5": (
        HEAD + "endpoints:\n  - {a: 1.5}\n",
        "p.yaml:5:6: endpoints[0].a: must be a whole number between 1 and 1000",
    ),
    "weight true": (
        HEAD + "endpoints:\n  - {a: true}\n",
        "p.yaml:5:6: endpoints[0].a: must be a whole number between 1 and 1000",
    ),
    "a bare name": (
        HEAD + "endpoints: [a]\n",
        "p.yaml:4:13: endpoints[0]: must be a mapping",
    ),
    "an endpoint's name": (
        HEAD + "endpoints:\n  - {a b: 1}\n",
        "p.yaml:5:6: endpoints[0].a b: this name must be text of 1 to 64 letters, digits and . _ @ -, beginning with a "
        "letter or digit",
    ),
    "limit 0": (
        HEAD + "limits: {commercial: {gap_s: 0}}\n",
        "p.yaml:4:23: limits.commercial.gap_s: must be a number above 0 and not above 86400",
    ),
    "limit of more than a day": (
        HEAD + "limits:\n  local:\n    total_s: 86401\n",
        "p.yaml:6:5: limits.local.total_s: must be a number above 0 and not above 86400",
    ),
    "a limit that is none": (
        HEAD + "limits: {local: {connect_s: 1}}\n",
        "p.yaml:4:18: limits.local.connect_s: unknown key; known here: first_token_s, gap_s, total_s",
    ),
    "version 2": ("version: 2\nname: p\negress: never\n", "p.yaml:1:1: version: must be 1"),
    "version true": ("version: true\nname: p\negress: never\n", "p.yaml:1:1: version: must be 1"),
    "version 1.0": ("version: 1.0\nname: p\negress: never\n", "p.yaml:1:1: version: must be 1"),
    "version as text": ("version: '1'\nname: p\negress: never\n", "p.yaml:1:1: version: must be 1"),
    "no egress": ("version: 1\nname: p\n", "p.yaml:1:1: egress: is missing: must be one of masked, never"),
    "egress no": ("version: 1\nname: p\negress: no\n", "p.yaml:3:1: egress: must be one of masked, never"),
    "name": (
        "version: 1\nname: My Policy\negress: never\n",
        "p.yaml:2:1: name: must be text of 1 to 63 small letters, digits and . _ -",
    ),
    "unknown key": (f"{HEAD}bound: {{}}\n", "p.yaml:4:1: bound: unknown key; did you mean bounds?"),
    "bound above 1": (
        f"{HEAD}bounds:\n  local_8b: 1.1\n",
        "p.yaml:5:3: bounds.local_8b: must be a number between 0 and 1",
    ),
    "bound as text": (
        f"{HEAD}bounds:\n  local_8b: '0.4'\n",
        "p.yaml:5:3: bounds.local_8b: must be a number between 0 and 1, not text",
    ),
    "bound nan": (
        f"{HEAD}bounds:\n  local_8b: .nan\n",
        "p.yaml:5:3: bounds.local_8b: must be a number between 0 and 1",
    ),
    "bound infinite": (
        f"{HEAD}bounds:\n  local_70b: .inf\n",
        "p.yaml:5:3: bounds.local_70b: must be a number between 0 and 1",
    ),
    "bound true": (
        f"{HEAD}bounds:\n  local_8b: true\n",
        "p.yaml:5:3: bounds.local_8b: must be a number between 0 and 1",
    ),
    "bounds out of order": (
        f"{HEAD}bounds:\n  local_8b: 0.6\n",
        "p.yaml:4:1: bounds.local_70b: must not be below local_8b (0.6)",
    ),
    "bounds null": (f"{HEAD}bounds:\n", "p.yaml:4:1: bounds: must be a mapping"),
    "queue lock 0": (
        f"{HEAD}queue_lock_timeout_ms: 0\n",
        "p.yaml:4:1: queue_lock_timeout_ms: must be a whole number between 1 and 600000",
    ),
    "queue lock half": (
        f"{HEAD}queue_lock_timeout_ms: 2000.0\n",
        "p.yaml:4:1: queue_lock_timeout_ms: must be a whole number between 1 and 600000",
    ),
    "queue lock true": (
        f"{HEAD}queue_lock_timeout_ms: true\n",
        "p.yaml:4:1: queue_lock_timeout_ms: must be a whole number between 1 and 600000",
    ),
    "unknown task": (
        f"{HEAD}tasks:\n  codee: {{road: local-8b}}\n",
        f"p.yaml:5:3: tasks.codee: unknown name: must be one of {', '.join(TASKS)}",
    ),
    "unknown road": (
        f"{HEAD}tasks:\n  code: {{road: local}}\n",
        f"p.yaml:5:10: tasks.code.road: must be {ROADS}",
    ),
    "no road": (f"{HEAD}tasks:\n  code: {{}}\n", f"p.yaml:5:3: tasks.code.road: is missing: must be {ROADS}"),
    "two bands": (
        f"{HEAD}tasks:\n  rag:\n    road: by-score\n    band: {{at_most: 0.5, below: 0.5}}\n",
        "p.yaml:7:5: tasks.rag.band: must hold exactly one of at_most, below, at_least",
    ),
    "no band": (
        f"{HEAD}tasks:\n  rag:\n    road: by-score\n    band: {{}}\n",
        "p.yaml:7:5: tasks.rag.band: must hold exactly one of at_most, below, at_least",
    ),
    "below 0": (
        f"{HEAD}tasks:\n  rag: {{road: by-score, band: {{below: 0}}}}\n",
        "p.yaml:5:32: tasks.rag.band.below: must be a number above 0 and not above 1",
    ),
    "8B row of high scores": (
        f"{HEAD}tasks:\n  rag: {{road: local-8b, band: {{at_least: 0.1}}}}\n",
        "p.yaml:5:32: tasks.rag.band.at_least: contradicts road local-8b, the road of low scores: use at_most or below",
    ),
    "commercial row of low scores": (
        f"{HEAD}tasks:\n  rag:\n    road: commercial\n    band:\n      below: 0.9\n",
        "p.yaml:8:7: tasks.rag.band.below: contradicts road commercial, the road of high scores: use at_least",
    ),
    "tenant opens": (
        f"{HEAD}tenants:\n  a:\n    egress: masked\n",
        "p.yaml:6:5: tenants.a.egress: must be never, or left out (a tenant or key may only be stricter)",
    ),
    "tenant waits longer": (
        f"{HEAD}tenants:\n  a.b:\n    queue_lock_timeout_ms: 2001\n",
        "p.yaml:6:5: tenants.a.b.queue_lock_timeout_ms: must not be above the policy's own 2000: a tenant may only be "
        "stricter",
    ),
    "tenant name": (
        f"{HEAD}tenants:\n  a b: {{}}\n",
        "p.yaml:5:3: tenants.a b: this name must be text of 1 to 64 letters, digits and . _ @ -, beginning with a "
        "letter or digit",
    ),
    "overflow to nowhere known": (
        f"{HEAD}overflow_order: [commercial, local-70b]\n",
        "p.yaml:4:30: overflow_order[1]: must be one of higher-local, lower-local, commercial",
    ),
    "overflow to one word": (
        f"{HEAD}overflow_order: commercial\n",
        "p.yaml:4:1: overflow_order: must be a list of different words out of higher-local, lower-local, commercial",
    ),
    "overflow word twice": (
        f"{HEAD}overflow_order:\n  - commercial\n  - higher-local\n  - commercial\n",
        "p.yaml:7:5: overflow_order[2]: this word is given twice",
    ),
    "on disconnect": (
        f"{HEAD}on_disconnect:\n  commercial: wait\n",
        "p.yaml:5:3: on_disconnect.commercial: must be one of close, drain",
    ),
    "drain for nothing": (
        f"{HEAD}on_disconnect: {{commercial: drain, drain_s: 0}}\n",
        "p.yaml:4:36: on_disconnect.drain_s: must be a number above 0 and not above 600",
    ),
    "drain for ever": (
        f"{HEAD}on_disconnect: {{drain_s: 601}}\n",
        "p.yaml:4:17: on_disconnect.drain_s: must be a number above 0 and not above 600",
    ),
    "drain true": (
        f"{HEAD}on_disconnect: {{drain_s: true}}\n",
        "p.yaml:4:17: on_disconnect.drain_s: must be a number above 0 and not above 600",
    ),
    "local answers go on": (
        f"{HEAD}on_disconnect: {{local: drain}}\n",
        "p.yaml:4:17: on_disconnect.local: unknown key; known here: commercial, drain_s",
    ),
    "tenant goes first": (
        f"{HEAD}tenants:\n  a:\n    priority: interactive\n",
        "p.yaml:6:5: tenants.a.priority: must be batch, or left out (interactive)",
    ),
    "task opens": (
        f"{HEAD}tasks:\n  code: {{road: by-score, egress: masked}}\n",
        "p.yaml:5:26: tasks.code.egress: must be never, or left out (a task may only be stricter)",
    ),
    "kind of value unknown": (
        f"{HEAD}outward:\n  refuse: [RRN, PASSPROT]\n",
        "p.yaml:5:17: outward.refuse[1]: must be one of " + ", ".join(TYPES),
    ),
    "kind of value twice": (
        f"{HEAD}outward:\n  refuse: [RRN, RRN]\n",
        "p.yaml:5:17: outward.refuse[1]: this kind is given twice",
    ),
    "refusal goes nowhere known": (
        f"{HEAD}outward: {{on_refusal: retry}}\n",
        "p.yaml:4:11: outward.on_refusal: must be one of local, reject",
    ),
    "pattern broken": (
        f"{HEAD}outward:\n  blocked:\n    patterns:\n      - 'good'\n      - 'bad('\n",
        "p.yaml:8:9: outward.blocked.patterns[1]: is no regular expression (at character 5)",
    ),
    "pattern for all": (
        f"{HEAD}outward: {{blocked: {{patterns: ['a*']}}}}\n",
        "p.yaml:4:32: outward.blocked.patterns[0]: matches the empty text, so it would keep every request in",
    ),
    "word of spaces": (
        f"{HEAD}outward: {{blocked: {{words: ['  ']}}}}\n",
        "p.yaml:4:29: outward.blocked.words[0]: must be 2 to 200 characters on one line, without spaces at its "
        "ends",
    ),
    "word of dashes": (
        f"{HEAD}outward: {{blocked: {{words: ['ok', '--a--']}}}}\n",
        "p.yaml:4:35: outward.blocked.words[1]: must hold two letters or digits at least: the others are passed over "
        "in a search",
    ),
    "word of one letter": (
        f"{HEAD}outward: {{blocked: {{words: ['a']}}}}\n",
        "p.yaml:4:29: outward.blocked.words[0]: must be 2 to 200 characters on one line, without spaces at its ends",
    ),
    "class twice": (
        f"{HEAD}outward: {{data_classes: {{order: [a, a], default: a, may_leave: []}}}}\n",
        "p.yaml:4:37: outward.data_classes.order[1]: this name is given twice",
    ),
    "class of nobody": (
        f"{HEAD}outward: {{data_classes: {{default: secret}}}}\n",
        "p.yaml:4:26: outward.data_classes.default: must be one of the names in order",
    ),
    "class with a gap": (
        f"{HEAD}outward: {{data_classes: {{may_leave: [public, confidential]}}}}\n",
        "p.yaml:4:46: outward.data_classes.may_leave[1]: must be the first names of order, in that order and without a "
        "gap",
    ),
    "more people for a tenant": (
        f"{HEAD}tenants:\n  a:\n    max_people: 21\n",
        "p.yaml:6:5: tenants.a.max_people: must not be above the policy's own 20: a tenant or key may only be stricter",
    ),
    "laxer class for a key": (
        f"{HEAD}keys:\n  k:\n    data_class: public\n",
        "p.yaml:6:5: keys.k.data_class: must not be laxer than the policy's own internal: a tenant or key may only be "
        "stricter",
    ),
    "unknown class for a key": (
        f"{HEAD}keys: {{k: {{data_class: secret}}}}\n",
        "p.yaml:4:12: keys.k.data_class: must be one of the names in outward.data_classes.order",
    ),
    "key goes last": (
        f"{HEAD}keys: {{k: {{priority: batch}}}}\n",
        "p.yaml:4:12: keys.k.priority: unknown key; known here: floor, ceiling, forbid, pin, egress, free_text, "
        "max_people, data_class",
    ),
    "included": (
        f"{HEAD}include: other.yaml\n",
        "p.yaml:4:1: include: a policy has no includes and no inheritance: all of it stands in this one file",
    ),
    "inherited below": (
        f"{HEAD}tasks:\n  code: {{road: local-8b, extends: chat}}\n",
        "p.yaml:5:26: tasks.code.extends: a policy has no includes and no inheritance: all of it stands in this one "
        "file",
    ),
    "merged": (
        f"{HEAD}bounds:\n  <<: {{local_8b: 0.1}}\n",
        "p.yaml:5:3: bounds.<<: a policy has no includes and no inheritance: all of it stands in this one file",
    ),
    "risk 0": (
        f"{HEAD}risk: {{local_8b: 0}}\n",
        "p.yaml:4:8: risk.local_8b: must be a number above 0 and below 1",
    ),
    "risk 1": (
        f"{HEAD}risk:\n  local_70b: 1\n",
        "p.yaml:5:3: risk.local_70b: must be a number above 0 and below 1",
    ),
    "evidence unknown": (
        f"{HEAD}escalation:\n  on: [empty, slow]\n",
        "p.yaml:5:15: escalation.on[1]: must be one of invalid_json, invalid_tool_call, empty, refusal, "
        "wrong_language, repetition, length, low_logprob",
    ),
    "evidence as another tool writes it": (
        f"{HEAD}escalation:\n  true: [empty]\n",
        "p.yaml:5:3: escalation.true: unknown key: a tool has read the key on as YAML 1.1 does; write it in quotes "
        "there",
    ),
    "evidence twice": (
        f"{HEAD}escalation:\n  on:\n    - empty\n    - empty\n",
        "p.yaml:7:7: escalation.on[1]: this word is given twice",
    ),
    "no bound for low_logprob": (
        f"{HEAD}escalation: {{on: [low_logprob]}}\n",
        "p.yaml:4:19: escalation.on[0]: needs min_mean_logprob",
    ),
    "no bound for a task's low_logprob": (
        f"{HEAD}tasks:\n  code: {{road: by-score, escalation: {{on: [empty, low_logprob]}}}}\n",
        "p.yaml:5:51: tasks.code.escalation.on[1]: needs min_mean_logprob",
    ),
    "probability above 1": (
        f"{HEAD}escalation: {{min_mean_logprob: 0.5}}\n",
        "p.yaml:4:14: escalation.min_mean_logprob: must be a number between -100.0 and 0",
    ),
    "up three times": (
        f"{HEAD}escalation: {{most: 3}}\n",
        "p.yaml:4:14: escalation.most: must be a whole number between 0 and 2",
    ),
    "floor above ceiling": (
        f"{HEAD}tasks:\n  code: {{road: by-score, floor: commercial, ceiling: local-70b}}\n",
        "p.yaml:5:26: tasks.code.floor: must not be above ceiling local-70b",
    ),
    "floor above a tenant's ceiling": (
        f"{HEAD}tenants:\n  a:\n    ceiling: local-8b\n    floor: local-70b\n",
        "p.yaml:7:5: tenants.a.floor: must not be above ceiling local-8b",
    ),
    "pin forbidden": (
        f"{HEAD}tenants:\n  a: {{pin: local-8b, forbid: [local-8b]}}\n",
        "p.yaml:5:7: tenants.a.pin: local-8b is forbidden by the same rule",
    ),
    "row's road forbidden": (
        f"{HEAD}tasks:\n  code:\n    road: commercial\n    forbid: [commercial]\n",
        "p.yaml:6:5: tasks.code.road: commercial is forbidden by the same rule",
    ),
    "pin below floor": (
        f"{HEAD}keys:\n  k: {{pin: local-8b, floor: local-70b}}\n",
        "p.yaml:5:7: keys.k.pin: local-8b is below floor local-70b",
    ),
    "row's road above ceiling": (
        f"{HEAD}tasks:\n  code: {{road: commercial, ceiling: local-70b}}\n",
        "p.yaml:5:10: tasks.code.road: commercial is above ceiling local-70b",
    ),
    "all roads forbidden": (
        f"{HEAD}tenants:\n  a: {{forbid: [local-8b, local-70b, commercial]}}\n",
        "p.yaml:5:7: tenants.a.forbid: leaves no road",
    ),
    "all roads forbidden within the limits": (
        f"{HEAD}keys:\n  k: {{ceiling: local-70b, forbid: [local-8b, local-70b]}}\n",
        "p.yaml:5:27: keys.k.forbid: leaves no road from floor to ceiling",
    ),
    "all roads forbidden together": (
        f"{HEAD}tasks:\n  code: {{road: by-score, forbid: [commercial]}}\n"
        "tenants:\n  a: {forbid: [local-8b, local-70b]}\n",
        "p.yaml:7:7: tenants.a.forbid: leaves no road beside tasks.code.forbid",
    ),
    "forbidden twice": (
        f"{HEAD}tenants:\n  a: {{forbid: [local-8b, local-8b]}}\n",
        "p.yaml:5:26: tenants.a.forbid[1]: this road is given twice",
    ),
    "no list of roads": (
        f"{HEAD}tenants:\n  a: {{forbid: local}}\n",
        "p.yaml:5:7: tenants.a.forbid: must be a list of different roads out of local-8b, local-70b, commercial",
    ),
    "duplicate key": (f"{HEAD}egress: never\n", "p.yaml:4:1: egress: duplicate key, first given on line 3"),
    "empty": ("", "p.yaml: is empty"),
    "list": ("- 1\n", "p.yaml:1:1: must be a mapping (lines of `key: value`) at the top"),
}


@pytest.mark.parametrize(("text", "line"), REFUSED.values(), ids=REFUSED)
def test_refused(text: str, line: str) -> None:
    assert refused(text) == [line]


def test_all_problems_are_named_at_once_in_the_order_of_the_file() -> None:
    lines = refused("version: 1\nname: p\negress: x\nbounds:\n  local_70b: 2\nfoo: 1\n")
    assert [line.split(": ")[0] for line in lines] == ["p.yaml:3:1", "p.yaml:5:3", "p.yaml:6:1"]


def test_problems_of_every_kind_stand_beside_each_other() -> None:
    text = (
        "version: 1\nname: p\negress: masked\negress: never\n"
        "tasks:\n  code: {road: commercial, band: {below: 0.9}, ceiling: local-70b}\n"
        "  codee: {road: by-score}\n"
        "overflow_order: &x [commercial, 7]\n"
        "bounds: {local_8b: 0.9, local_70b: *x}\n"
        "outward: {refuse: [RRN, RRN, FRN, FRN], max_people: many}\n"
        "extends: default\n"
    )
    assert [line.split(": ")[0].removeprefix("p.yaml:") for line in refused(text)] == [
        "4:1",
        "6:10",
        "6:35",
        "7:3",
        "8:17",
        "8:33",
        "9:36",
        "10:41",
        "11:1",
    ]
    # Several that tell of more than one field.
    text = HEAD + (
        "overflow_order: [commercial, commercial]\naliases: {a: b, b: b}\nescalation: {on: [low_logprob]}\n"
        "tenants: {t: {max_people: 99, queue_lock_timeout_ms: 9999}}\n"
        "keys: {k: {data_class: secret}}\n"
    )
    assert [line.split(": ")[1] for line in refused(text)] == [
        "overflow_order[1]",
        "aliases.a",
        "aliases.b",
        "escalation.on[0]",
        "tenants.t.max_people",
        "tenants.t.queue_lock_timeout_ms",
        "keys.k.data_class",
    ]


def test_check_and_load_of_files(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(HEAD)
    bad.write_text(f"{HEAD}bounds: {{local_8b: x}}\n")
    assert check_policy(good) == []
    assert load_policy(good) == compiled(HEAD)
    assert [str(problem) for problem in check_policy(bad)] == [
        f"{bad}:4:10: bounds.local_8b: must be a number between 0 and 1, not text"
    ]
    assert [str(problem) for problem in check_policy(tmp_path)] == [f"{tmp_path}: is a folder"]
    assert [str(problem) for problem in check_policy(tmp_path / "x")] == [f"{tmp_path}/x: no such file"]


_KEYS = [
    "version",
    "name",
    "egress",
    "bounds",
    "local_8b",
    "local_70b",
    "tasks",
    "code",
    "road",
    "band",
    "at_least",
]
_WORDS = [
    "tenants",
    "acme",
    "overflow_order",
    "on_disconnect",
    "drain_s",
    "priority",
    "batch",
    "queue_lock_timeout_ms",
    "outward",
    "data_classes",
    "may_leave",
    "masked",
    "never",
    "commercial",
    "by-score",
    "p",
]
_word = st.sampled_from([*_KEYS, *_WORDS])
_value = st.one_of(
    _word, st.none(), st.booleans(), st.integers(-3, 700_000), st.floats(), st.text(max_size=4)
)
_tree = st.recursive(
    _value,
    lambda held: st.one_of(st.lists(held, max_size=3), st.dictionaries(_word, held, max_size=4)),
    max_leaves=10,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(_word, _tree, max_size=6))
def test_any_document_is_a_policy_or_refused_with_lines(data: dict[str, object]) -> None:
    raw = json.dumps(data).replace("NaN", ".nan").replace("Infinity", ".inf")
    try:
        made = parse_policy(raw.encode(), "p.yaml").document
    except ConfigProblems as exc:
        assert all(str(problem).startswith("p.yaml:") for problem in exc.problems)
        assert all(str(problem).isprintable() for problem in exc.problems)
    else:
        assert made.bounds.local_8b <= made.bounds.local_70b


# --- the shipped policies


def test_shipped_policies_are_valid_and_called_what_their_files_are() -> None:
    assert SHIPPED == ("default", "on-prem-only")
    for name in SHIPPED:
        assert shipped(name).name == name
        assert check_policy(shipped_path(name)) == []
    with pytest.raises(KeyError):
        shipped("other")


EXAMPLES = {path.stem: path for path in example_paths()}


def test_the_examples_that_are_there() -> None:
    assert set(EXAMPLES) == {"cost-first", "privacy-first", "korean-public-sector", "escalate"}


@pytest.mark.parametrize("name", ["cost-first", "privacy-first", "korean-public-sector", "escalate"])
def test_every_example_is_a_policy_and_says_what_for(name: str) -> None:
    path = EXAMPLES[name]
    assert check_policy(path) == []
    assert load_policy(path).name == name
    head = path.read_text(encoding="utf-8").split("version: 1")[0].splitlines()
    assert len(head) >= 2 and all(line.startswith("# ") for line in head)


def test_what_the_examples_promise() -> None:
    made = {name: load_policy(path) for name, path in EXAMPLES.items()}
    assert made["cost-first"].place("rag", 1.0, "t").road == "local-70b"
    assert made["cost-first"].place("code", 1.0, "nightly").road == "local-70b"
    assert made["cost-first"].risk.local_8b > Risk().local_8b
    for task in ("rag", "decision", "translation"):
        assert made["privacy-first"].leaving.why_not("t", "", task, "public")
    assert not made["privacy-first"].leaving.why_not("t", "", "code", "public")
    assert made["privacy-first"].leaving.why_not("clinic", "", "code", "public") == (
        "data class confidential",
    )
    assert made["privacy-first"].leaving.text_rules("t").max_people == 0
    assert made["korean-public-sector"].egress == "never"
    assert "wrong_language" in made["korean-public-sector"].escalation_for("chat").on
    rules = made["escalate"]
    assert rules.escalation_for("math") == Escalation(frozenset(get_args(Evidence)), -1.0, 2, 48)
    assert rules.escalation_for("chat") == Escalation(frozenset(get_args(Evidence)), -1.0, 1, 0)
    assert rules.escalation_for("classification").on == {"invalid_json", "empty"}


def test_the_shipped_escalation_and_risk() -> None:
    for name in SHIPPED:
        made = shipped(name)
        on = frozenset(("invalid_json", "invalid_tool_call", "empty", "repetition"))
        assert made.escalation_for("code") == made.escalation_for("no task") == Escalation(on, None, 1, 0)
        assert made.risk == Risk(0.30, 0.17)


def test_a_task_replaces_what_it_names_of_the_general_escalation() -> None:
    made = compiled(
        HEAD + "escalation: {on: [empty], min_mean_logprob: -2, most: 2, hold_tokens: 5}\n"
        "tasks:\n  code: {road: by-score, escalation: {on: [low_logprob, length]}}\n"
        "  rag: {road: by-score, escalation: {most: 0}}\n"
    )
    assert made.escalation_for("chat") == Escalation(frozenset(["empty"]), -2.0, 2, 5)
    assert made.escalation_for("code") == Escalation(frozenset(["low_logprob", "length"]), -2.0, 2, 5)
    assert made.escalation_for("rag") == Escalation(frozenset(["empty"]), -2.0, 0, 5)
    assert compiled(HEAD + "escalation: {on: []}\n").escalation_for("chat").on == frozenset()


def test_the_order_of_what_is_a_set_makes_no_other_version() -> None:
    one = "tenants: {a: {forbid: [local-8b, commercial]}}\nescalation: {on: [empty, length]}\n"
    two = "escalation: {on: [length, empty]}\ntenants: {a: {forbid: [commercial, local-8b]}}\n"
    assert compiled(HEAD + one).version == compiled(HEAD + two).version != compiled(HEAD).version
    for other in (
        "risk: {local_8b: 0.2}\n",
        "keys: {k: {pin: local-8b}}\n",
        "tasks: {rag: {road: by-score}}\n",
    ):
        assert compiled(HEAD + other).version != compiled(HEAD).version


def test_shipped_default_lists_every_task_and_has_the_seed_matrix() -> None:
    content = shipped("default").content()
    assert list(content["tasks"]) == list(TASKS) == list(MEANING)
    assert content["egress"] == "masked"
    assert content["queue_lock_timeout_ms"] == 2000
    assert content["bounds"] == {"local_8b": 0.45, "local_70b": 0.55}
    assert {task: row for task, row in content["tasks"].items() if row["road"] != "by-score"} == {
        "classification": {"road": "local-8b", "band": {"at_most": 0.30}},
        "extraction": {"road": "local-8b", "band": {"at_most": 0.45}},
        "summarization": {"road": "local-70b", "band": {"below": 0.55}},
        "rag": {"road": "local-70b", "band": {"below": 0.55}},
        "decision": {"road": "commercial", "band": {"at_least": 0.55}},
        "code": {"road": "commercial", "band": {"at_least": 0.75}},
    }


def test_on_prem_only_differs_in_name_egress_and_overflow_alone() -> None:
    ours, theirs = shipped("on-prem-only").content(), shipped("default").content()
    assert ours.pop("overflow_order") == ["higher-local", "lower-local"]
    assert theirs.pop("overflow_order") == ["higher-local", "commercial"]
    assert ours.pop("egress") == "never"
    assert theirs.pop("egress") == "masked"
    assert ours.pop("name") != theirs.pop("name")
    assert ours == theirs


def test_shipped_default_writes_out_what_the_schema_would_have_taken() -> None:
    plain = PolicyDocument.model_validate({"version": 1, "name": "default", "egress": "masked"})
    written = parse_policy(shipped_path("default").read_bytes(), "default.yaml").document
    assert plain.model_dump(exclude={"tasks"}) == written.model_dump(exclude={"tasks"})


def test_the_settings_choose_the_file() -> None:
    assert policy_path(PolicySettings()) == shipped_path("default")
    assert policy_path(PolicySettings(name="on-prem-only")) == shipped_path("on-prem-only")
    assert policy_path(PolicySettings(file=Path("/p.yaml"))) == Path("/p.yaml")


def test_endpoints_and_limits_as_they_are_said() -> None:
    made = compiled(HEAD + "endpoints:\n  - {b: 3, a: 1000}\n  - {main: 1}\n")
    assert made.endpoints == ((("b", 3), ("a", 1000)), (("main", 1),))
    made = compiled(HEAD + "limits:\n  commercial: {gap_s: 1.5, connect_s: 2}\n  local: {total_s: 86400}\n")
    assert made.exchange_limits == dataclasses.replace(ExchangeLimits(), gap_s=1.5, connect_s=2.0)
    assert made.local_limits == dataclasses.replace(LocalLimits(), total_s=86_400.0)
    made = compiled(HEAD)
    assert (made.endpoints, made.exchange_limits, made.local_limits) == ((), ExchangeLimits(), LocalLimits())


def test_every_limit_reaches_the_one_of_its_name() -> None:
    for section, limits in (("commercial", ExchangeLimits), ("local", LocalLimits)):
        for n, field in enumerate(dataclasses.fields(limits)):
            made = compiled(HEAD + f"limits: {{{section}: {{{field.name}: {n + 0.25}}}}}\n")
            held = made.exchange_limits if section == "commercial" else made.local_limits
            assert held == dataclasses.replace(limits(), **{field.name: n + 0.25})


def test_the_order_within_a_step_makes_no_other_version_and_that_of_the_steps_does() -> None:
    one = compiled(HEAD + "endpoints: [{a: 1, b: 2}, {c: 1}]\n").version
    assert compiled(HEAD + "endpoints: [{b: 2, a: 1}, {c: 1}]\n").version == one
    for other in ("[{c: 1}, {a: 1, b: 2}]", "[{a: 2, b: 2}, {c: 1}]", "[{a: 1}, {b: 2}, {c: 1}]", "[]"):
        assert compiled(HEAD + f"endpoints: {other}\n").version != one
