"""A policy in force: immutable, and a pure function from task and score to a road."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from weighbridge.config.limits import ExchangeLimits, LocalLimits
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B, Road
from weighbridge.policies.escalation import Escalation
from weighbridge.policies.leaving import Leaving
from weighbridge.policies.reach import ANYWHERE, Reach, RoadRule, lead, reach_of
from weighbridge.policies.risk import Risk
from weighbridge.policies.schema import BY_SCORE, Egress, Overflow, PolicyDocument, TaskRow
from weighbridge.policies.tasks import TASKS, Task

_Kind = Literal["task", "tenant", "key"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a policy puts a request."""

    road: Road
    clamped_score: float
    """The score after the task row's band; the raw score where no band moved it."""
    reasons: tuple[str, ...]
    """Short stable sentences, such as `score 0.412 < 0.450` or `task classification: local-8b, at most 0.30`."""
    decided_by: Literal["task", "score", "rule"]
    """`task` where the task's row fixed the road or moved the score; `rule` where a pin, floor, ceiling or forbidden
    road moved the request after that."""
    reach: Reach = ANYWHERE
    """How far it may go from there."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A task row, with its words made once."""

    road: Road | None
    low: float
    high: float
    reason: str

    @classmethod
    def of(cls, task: Task, row: TaskRow) -> _Row:
        low, high, words = 0.0, 1.0, ""
        band = row.band
        if band is not None and band.at_most is not None:
            high, words = band.at_most, f", at most {_short(band.at_most)}"
        elif band is not None and band.below is not None:
            high, words = math.nextafter(band.below, 0.0), f", below {_short(band.below)}"
        elif band is not None and band.at_least is not None:
            low, words = band.at_least, f", at least {_short(band.at_least)}"
        road = None if row.road == BY_SCORE else row.road
        return cls(road, low, high, f"task {task}: {road or 'by score'}{words}")


@dataclass(frozen=True, slots=True)
class Policy:
    """One version of a policy with the admin's overlay on it. A request keeps the one it was admitted under."""

    version: str
    """`<name>@<12 hex digits>` of the SHA-256 over everything that is in force."""
    name: str
    egress: Egress
    queue_lock_timeout_ms: int
    """The general wait for a slot, in milliseconds; `queue_lock_timeout_ms_for` gives a tenant's."""
    risk: Risk
    """How much risk of a failed answer is taken on each local road; the score is made for it."""
    local_8b: float
    """General bound: scores below it go to local-8b."""
    local_70b: float
    """General bound: other scores below it go to local-70b."""
    explicit_local: Literal["stay", "overflow"]
    overflow_order: tuple[Overflow, ...]
    """Where a request goes that got no slot in time; a local tier only if a slot is free there at that moment."""
    drain_s: float
    """Seconds to read on at most when the caller of a commercial answer has left; 0 ends the connection at once."""
    aliases: Mapping[str, str]
    """Other names for models, and the model each stands for."""
    leaving: Leaving
    """Which requests may leave at all, and what is asked of their text."""
    endpoints: tuple[tuple[tuple[str, int], ...], ...]
    """Commercial endpoints with their weights, step by step; empty: all there are, in the order of the settings."""
    exchange_limits: ExchangeLimits
    local_limits: LocalLimits
    _content: str
    _escalation: Escalation
    _escalations: Mapping[str, Escalation]
    _rows: Mapping[Task, _Row]
    _rules: Mapping[tuple[_Kind, str], RoadRule]
    """Rules on roads: of a task, a tenant, a key."""
    _waits: Mapping[str, int]
    _batch: frozenset[str]

    def place(
        self,
        task: Task,
        score: float,
        tenant: str,
        key_id: str = "",
        barred: frozenset[Road] = frozenset(),
    ) -> Placement:
        """The road for a request of `tenant`. Pure: the same policy and arguments give the same placement.

        The task's row or the bounds say where it begins; then the rules of its task, tenant and key lead it on, see
        `reach.lead`. The road does not look at egress; who places asks `egress_for` as well.

        Args:
            barred: roads that the key may not use; they count as forbidden.

        Raises:
            ValueError: `score` is not a number from 0 to 1.
        """
        if not 0.0 <= score <= 1.0:
            raise ValueError("a score is a number from 0 to 1")
        placed = self._begin(task, score)
        rules = self._rules_of(task, tenant, key_id, barred)
        if not rules:
            return placed
        led = lead(placed.road, rules)
        return Placement(
            led.road,
            placed.clamped_score,
            (*placed.reasons, *led.reasons),
            "rule" if led.reasons else placed.decided_by,
            led.reach,
        )

    def reach(
        self, task: Task, tenant: str, key_id: str = "", barred: frozenset[Road] = frozenset()
    ) -> Reach:
        """How far a request may go, wherever it begins. The arguments are those of `place`."""
        rules = self._rules_of(task, tenant, key_id, barred)
        return reach_of(rules) if rules else ANYWHERE

    def forbids_for_tasks(self, road: Road) -> bool:
        """Whether some task may not use `road`, so that the task has to be known first."""
        return any(kind == "task" and road in rule.forbidden for (kind, _), rule in self._rules.items())

    def escalation_for(self, task: str) -> Escalation:
        """What counts as evidence against a local answer to a request of this task."""
        return self._escalations.get(task, self._escalation)

    def _rules_of(self, task: Task, tenant: str, key_id: str, barred: frozenset[Road]) -> list[RoadRule]:
        """The least particular first."""
        own = [RoadRule.barring(barred)] if barred else []
        if not self._rules:
            return own
        asked: tuple[tuple[_Kind, str], ...] = (("task", task), ("tenant", tenant), ("key", key_id))
        return [self._rules[one] for one in asked if one in self._rules] + own

    def _begin(self, task: Task, score: float) -> Placement:
        row = self._rows.get(task)
        if row is None:
            return self._by_bounds(score)
        clamped = min(max(score, row.low), row.high)
        if row.road is not None:
            return Placement(row.road, clamped, (row.reason,), "task")
        if clamped == score:
            return self._by_bounds(score)
        moved = self._by_bounds(clamped)
        bound = self.local_8b if moved.road == LOCAL_8B else self.local_70b
        sign = ">=" if moved.road == COMMERCIAL else "<"
        return Placement(
            moved.road, clamped, (row.reason, f"clamped score {sign} {_short(bound, 3)}"), "task"
        )

    def _by_bounds(self, score: float) -> Placement:
        if score < self.local_8b:
            return Placement(LOCAL_8B, score, (_compared(score, "<", self.local_8b),), "score")
        if score < self.local_70b:
            return Placement(LOCAL_70B, score, (_compared(score, "<", self.local_70b),), "score")
        return Placement(COMMERCIAL, score, (_compared(score, ">=", self.local_70b),), "score")

    def egress_for(self, tenant: str) -> Egress:
        """What may leave of this tenant's requests; a tenant can only be stricter than the policy."""
        return "never" if self.leaving.never(tenant) else self.egress

    def queue_lock_timeout_ms_for(self, tenant: str) -> int:
        """How long this tenant's requests wait for a slot, in milliseconds; never longer than the general wait."""
        return min(self.queue_lock_timeout_ms, self._waits.get(tenant, self.queue_lock_timeout_ms))

    def is_batch(self, tenant: str) -> bool:
        """Whether all requests of this tenant get a slot after the interactive ones."""
        return tenant in self._batch

    @property
    def size(self) -> int:
        """Bytes of everything in force, as JSON."""
        return len(self._content.encode())

    def content(self) -> dict[str, Any]:
        """Everything in force as plain data, in the policy file's shape, defaults filled in; a fresh copy."""
        data: dict[str, Any] = json.loads(self._content)
        return data


def compile_policy(document: PolicyDocument) -> Policy:
    """Make a checked document into a policy."""
    content = _canonical(document)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return Policy(
        version=f"{document.name}@{digest}",
        name=document.name,
        egress=document.egress,
        queue_lock_timeout_ms=document.queue_lock_timeout_ms,
        risk=Risk(**document.risk.model_dump()),
        local_8b=document.bounds.local_8b,
        local_70b=document.bounds.local_70b,
        explicit_local=document.explicit_local,
        overflow_order=tuple(document.overflow_order),
        drain_s=document.on_disconnect.drain_s if document.on_disconnect.commercial == "drain" else 0.0,
        aliases=MappingProxyType(dict(document.aliases)),
        leaving=Leaving.of(document),
        endpoints=tuple(tuple(step.items()) for step in document.endpoints),
        exchange_limits=document.limits.commercial.limits(),
        local_limits=document.limits.local.limits(),
        _content=content,
        _escalation=document.escalation.rules(),
        _escalations=MappingProxyType(
            {
                task: row.escalation.over(document.escalation)
                for task, row in document.tasks.items()
                if row.escalation is not None
            }
        ),
        _rules=MappingProxyType(_road_rules(document)),
        _rows=MappingProxyType({task: _Row.of(task, row) for task, row in document.tasks.items()}),
        _waits=MappingProxyType(
            {
                name: rule.queue_lock_timeout_ms
                for name, rule in document.tenants.items()
                if rule.queue_lock_timeout_ms is not None
            }
        ),
        _batch=frozenset(name for name, rule in document.tenants.items() if rule.priority == "batch"),
    )


def _road_rules(document: PolicyDocument) -> dict[tuple[_Kind, str], RoadRule]:
    found: dict[tuple[_Kind, str], RoadRule | None] = {}
    for task, row in document.tasks.items():
        # Its pin is where the request begins.
        found["task", task] = RoadRule.of(f"task {task}", row, None)
    for name, tenant in document.tenants.items():
        found["tenant", name] = RoadRule.of("tenant", tenant, tenant.pin)
    for name, key in document.keys.items():
        found["key", name] = RoadRule.of("key", key, key.pin)
    return {at: rule for at, rule in found.items() if rule is not None}


def content_of(document: PolicyDocument) -> dict[str, Any]:
    """All the document says as plain data, in the policy file's shape, defaults filled in, in one fixed order."""
    data = document.model_dump(mode="json", exclude_none=True)
    data["tasks"] = {task: data["tasks"][task] for task in TASKS if task in data["tasks"]}
    data["endpoints"] = [dict(sorted(step.items())) for step in data["endpoints"]]
    for rules in ("aliases", "tenants", "keys"):
        data[rules] = {name: data[rules][name] for name in sorted(data[rules])}
    # Sets: their order says nothing.
    for rule in (*data["tasks"].values(), *data["tenants"].values(), *data["keys"].values(), data):
        if "forbid" in rule:
            rule["forbid"] = sorted(rule["forbid"])
        if "on" in rule.get("escalation", ()):
            rule["escalation"]["on"] = sorted(rule["escalation"]["on"])
    return data


def _canonical(document: PolicyDocument) -> str:
    """The document as JSON, so that comments, order and spelled-out defaults change no version."""
    return json.dumps(content_of(document), separators=(",", ":"), allow_nan=False)


def _short(number: float, digits: int = 2) -> str:
    """`number` with `digits` decimals, or with as many more as it has."""
    text = f"{number:.{digits}f}"
    return text if float(text) == number else repr(number)


def _compared(score: float, sign: str, bound: float) -> str:
    """`score 0.412 < 0.450`; with more decimals where three would hide the difference."""
    written = _short(bound, 3)
    for digits in range(3, 18):
        text = f"{score:.{digits}f}"
        if (float(text) < bound) == (score < bound):
            return f"score {text} {sign} {written}"
    return f"score {score!r} {sign} {written}"
