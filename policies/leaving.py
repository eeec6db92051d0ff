"""Whether a request may leave at all, and what is asked of its text: a policy's rules, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from weighbridge.config.roads import COMMERCIAL
from weighbridge.policies.outward import Blocked, Outward, Stricter
from weighbridge.policies.road_rules import RoadLimits
from weighbridge.policies.schema import KeyRule, PolicyDocument, TenantRule
from weighbridge.policies.tasks import Task

NEVER = "egress never"
"""The reason where the policy or the tenant's rule lets nothing leave."""
FORBIDDEN = "commercial forbidden for this tenant"
"""The reason where the tenant's rule forbids that road."""


@dataclass(frozen=True, slots=True)
class BlockedTerms:
    """What keeps a request in wherever it stands in the text."""

    words: tuple[str, ...]
    patterns: tuple[str, ...]
    limit_s: float
    """Seconds the search of one request may take."""


@dataclass(frozen=True, slots=True)
class TextRules:
    """What is asked of a request's text before it may leave masked. Plain data; `router.egress_rules` makes masking's
    own rules of it."""

    free_text: Literal["mask", "refuse"]
    refused: frozenset[str]
    max_people: int
    max_chars: int | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """The rules of one policy version. Pure: the same arguments give the same answer."""

    on_refusal: Literal["local", "reject"]
    blocked: BlockedTerms
    _closed: bool
    _outward: Outward
    _tenants: Mapping[str, TenantRule]
    _keys: Mapping[str, KeyRule]
    _tasks: frozenset[str]
    _shut: frozenset[str]
    """The tasks that may not use the commercial road."""

    @classmethod
    def of(cls, document: PolicyDocument) -> Leaving:
        """The rules of a checked document."""
        outward = document.outward
        return cls(
            on_refusal=outward.on_refusal,
            blocked=_terms(outward.blocked),
            _closed=document.egress == "never",
            _outward=outward,
            _tenants=MappingProxyType(dict(document.tenants)),
            _keys=MappingProxyType(dict(document.keys)),
            _tasks=frozenset(task for task, row in document.tasks.items() if row.egress == "never"),
            _shut=frozenset(task for task, row in document.tasks.items() if _forbids(row)),
        )

    def never(self, tenant: str) -> bool:
        """Whether nothing of this tenant leaves."""
        return self._closed_for(tenant) or _forbids(self._tenants.get(tenant))

    def why_not(self, tenant: str, key_id: str, task: Task | str, data_class: str | None) -> tuple[str, ...]:
        """Why a request does not leave; empty where these rules let it.

        Args:
            data_class: the class the caller named, in small letters; one that the policy does not know does not leave.
        """
        key = self._keys.get(key_id)
        reasons = [NEVER] if self._closed_for(tenant) else []
        if _forbids(self._tenants.get(tenant)):
            reasons.append(FORBIDDEN)
        if key is not None and key.egress == "never":
            reasons.append("egress never for this key")
        if _forbids(key):
            reasons.append("commercial forbidden for this key")
        if task in self._tasks:
            reasons.append(f"task {task}: egress never")
        if task in self._shut:
            reasons.append(f"task {task}: commercial forbidden")
        found = self.data_class(tenant, key_id, data_class)
        if found is None:
            reasons.append("data class not known")
        elif found not in self._outward.data_classes.may_leave:
            reasons.append(f"data class {found}")
        return tuple(reasons)

    def _closed_for(self, tenant: str) -> bool:
        rule = self._tenants.get(tenant)
        return self._closed or (rule is not None and rule.egress == "never")

    def data_class(self, tenant: str, key_id: str, asked: str | None) -> str | None:
        """The strictest of the class asked for and those the policy, tenant and key have; None for an unknown one."""
        classes = self._outward.data_classes
        if asked is not None and asked not in classes.order:
            return None
        named = [classes.default, asked, *(rule.data_class for rule in self._rules(tenant, key_id))]
        return max((name for name in named if name is not None), key=classes.order.index)

    def text_rules(self, tenant: str, key_id: str = "") -> TextRules:
        """What is asked of the text of this tenant's and key's requests."""
        outward, rules = self._outward, self._rules(tenant, key_id)
        return TextRules(
            free_text="refuse" if any(rule.free_text == "refuse" for rule in rules) else outward.free_text,
            refused=frozenset(outward.refuse),
            max_people=min(
                [
                    outward.max_people,
                    *(rule.max_people for rule in rules if rule.max_people is not None),
                ]
            ),
            max_chars=outward.max_chars,
        )

    def _rules(self, tenant: str, key_id: str) -> list[Stricter]:
        found: tuple[Stricter | None, ...] = (self._tenants.get(tenant), self._keys.get(key_id))
        return [rule for rule in found if rule is not None]


def _forbids(rule: RoadLimits | None) -> bool:
    return rule is not None and COMMERCIAL in (rule.forbid or ())


def _terms(blocked: Blocked) -> BlockedTerms:
    return BlockedTerms(tuple(blocked.words), tuple(blocked.patterns), blocked.time_limit_ms / 1000)
