"""What a policy file may say. Unknown keys and numbers written as text are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)

from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN
from weighbridge.config.problems import wrong, wrong_all
from weighbridge.config.roads import Road
from weighbridge.config.shape import Step
from weighbridge.policies.aliases import ALIAS_LEGAL, TARGETS_LEGAL, AliasName, AliasTarget, alias_problems
from weighbridge.policies.escalation_rules import EscalationRules, TaskEscalation
from weighbridge.policies.outward import Outward, Stricter
from weighbridge.policies.patience import Patience
from weighbridge.policies.risk import Risk
from weighbridge.policies.road_rules import RoadLimits, RoadRules, roads_left
from weighbridge.policies.strict import Strict
from weighbridge.policies.tasks import Task

Egress = Literal["masked", "never"]
RowRoad = Literal["local-8b", "local-70b", "commercial", "by-score"]
BY_SCORE: Final = "by-score"
Overflow = Literal["higher-local", "lower-local", "commercial"]

MIN_QUEUE_LOCK_MS = 1
MAX_QUEUE_LOCK_MS = 600_000
MAX_DRAIN_S = 600
MAX_WEIGHT = 1000


class Bounds(Strict):
    """The general bounds on the difficulty score; both are strict."""

    local_8b: float = Field(
        default=0.45, ge=0, le=1, description="Scores below it go to `local-8b` (score, 0 to 1)."
    )
    local_70b: float = Field(
        default=0.55,
        ge=0,
        le=1,
        description="Scores below it, and not below `local_8b`, go to `local-70b`; all others to `commercial` "
        "(score, 0 to 1).",
    )

    @model_validator(mode="after")
    def _in_order(self) -> Bounds:
        if self.local_8b > self.local_70b:
            raise wrong("local_70b", f"must not be below local_8b ({self.local_8b})")
        return self


_RISK: Final = Risk()


class RiskAppetite(Strict):
    """How likely a failed answer may be on each local road. The score is made so that the bounds mean these risks."""

    local_8b: float = Field(
        default=_RISK.local_8b,
        gt=0,
        lt=1,
        description="Probability up to which `local-8b` may fail a request that is still sent there (probability).",
    )
    local_70b: float = Field(
        default=_RISK.local_70b,
        gt=0,
        lt=1,
        description="The same for `local-70b` where the commercial API would not fail (probability).",
    )


class Band(Strict):
    """Where a task's score is held; exactly one of the three."""

    at_most: float | None = Field(
        default=None, ge=0, le=1, description="The score is held at this or lower, inclusive (score, 0 to 1)."
    )
    below: float | None = Field(
        default=None, gt=0, le=1, description="The score is held strictly below this (score, above 0 to 1)."
    )
    at_least: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The score is held at this or higher, inclusive (score, 0 to 1).",
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Band:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise wrong("", "must hold exactly one of at_most, below, at_least")
        return self


class TaskRow(RoadLimits):
    """What a policy says about one task."""

    road: RowRoad = Field(
        description="Road of this task whatever its score is, or `by-score` for the general bounds."
    )
    band: Band | None = Field(default=None, description="Band the score of this task is held in.")
    egress: Literal["never"] | None = Field(
        default=None,
        description="`never`: no request of this task leaves; `commercial` is then the best local tier.",
        json_schema_extra={"legal": "never, or left out (a task may only be stricter)"},
    )

    escalation: TaskEscalation | None = Field(
        default=None, description="What replaces the general escalation rules for this task."
    )

    @model_validator(mode="after")
    def _not_against_itself(self) -> TaskRow:
        found = [*self._band_problems(), *self.limit_problems(self.pin, "road")]
        if found:
            raise wrong_all(found)
        return self

    @property
    def pin(self) -> Road | None:
        """The road that the row fixes, if it does."""
        return None if self.road == BY_SCORE else self.road

    def _band_problems(self) -> Iterator[tuple[tuple[Step, ...], str]]:
        if self.band is None:
            return
        if self.road == "local-8b" and self.band.at_least is not None:
            yield (
                ("band", "at_least"),
                "contradicts road local-8b, the road of low scores: use at_most or below",
            )
        if self.road == "commercial" and self.band.at_least is None:
            field = "at_most" if self.band.at_most is not None else "below"
            yield ("band", field), "contradicts road commercial, the road of high scores: use at_least"


class OnDisconnect(Strict):
    """What becomes of an answer whose caller has left. A local one always ends at once, as the GPU is ours."""

    commercial: Literal["close", "drain"] = Field(
        default="close",
        description="An answer of the commercial API: `close` ends the connection at once, `drain` reads on for at "
        "most `drain_s`, so that the provider's own count of the tokens is on record.",
    )
    drain_s: float = Field(
        default=10.0, gt=0, le=MAX_DRAIN_S, description="How long `drain` reads on at most, in seconds."
    )


class TenantRule(Stricter, RoadRules):
    """What is stricter for one tenant, and how far its requests may go."""

    queue_lock_timeout_ms: int | None = Field(
        default=None,
        ge=MIN_QUEUE_LOCK_MS,
        le=MAX_QUEUE_LOCK_MS,
        description="Shorter wait for a slot, in milliseconds; the shorter of this and the general one counts.",
    )
    priority: Literal["batch"] | None = Field(
        default=None,
        description="`batch`: this tenant's requests get a slot after all interactive ones.",
        json_schema_extra={"legal": "batch, or left out (interactive)"},
    )


class KeyRule(Stricter, RoadRules):
    """What is stricter for one API key, and how far its requests may go."""


RuleName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


def _weight(weight: object) -> object:
    # Checked here, as what stands in a mapping of a list has no field to tell its bounds.
    if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:
        raise ValueError(f"must be a whole number between 1 and {MAX_WEIGHT}")
    return weight


def _endpoint(name: str) -> str:
    if re.fullmatch(NAME_PATTERN, name) is None:
        raise ValueError(f"this name must be {NAME_LEGAL}")
    return name


EndpointName = Annotated[str, AfterValidator(_endpoint)]
Weight = Annotated[int, BeforeValidator(_weight)]


def _only_int(version: object) -> object:
    # To Python 1 equals 1.0 and true; to a reader of the file they are different things.
    return version if type(version) is int else None


OVERLAID: Final = "overlaid"
"""The validation context of a document with an admin's changes on it: where they shorten the general wait, a tenant's
longer one stays as it is, as the shorter of the two counts."""

Found = tuple[tuple[Step, ...], str]
"""A problem: its path and its sentence."""


class PolicyDocument(Strict):
    """One policy file."""

    version: Annotated[Literal[1], BeforeValidator(_only_int)] = Field(
        description="Version of the policy format."
    )
    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$",
        description="Name of the policy; its version is `<name>@<12 digits of the content's SHA-256>`.",
        json_schema_extra={"legal": "text of 1 to 63 small letters, digits and . _ -"},
    )
    egress: Egress = Field(
        description="`masked`: requests may leave for the commercial API, masked. `never`: nothing leaves."
    )
    queue_lock_timeout_ms: int = Field(
        default=2000,
        ge=MIN_QUEUE_LOCK_MS,
        le=MAX_QUEUE_LOCK_MS,
        description="How long a request waits for a slot on a tier before it overflows, in milliseconds.",
    )
    risk: RiskAppetite = Field(
        default_factory=RiskAppetite, description="How likely a failed answer may be on each local road."
    )
    bounds: Bounds = Field(default_factory=Bounds, description="General bounds on the score.")
    escalation: EscalationRules = Field(
        default_factory=EscalationRules,
        description="Moving up one road after a local answer that is not good enough.",
    )
    explicit_local: Literal["stay", "overflow"] = Field(
        default="stay",
        description="What becomes of a request that names a local tier and gets no slot in time: `stay` answers 429, "
        "`overflow` sends it on like any other.",
    )
    overflow_order: list[Overflow] = Field(
        default=["higher-local", "commercial"],
        description="Where a request goes that got no slot in time, in this order: `higher-local` and `lower-local`, "
        "the more and the less capable local tier, if a slot is free there at that moment; `commercial`. Empty: "
        "nowhere.",
        json_schema_extra={"legal": "a list of different words out of higher-local, lower-local, commercial"},
    )
    endpoints: list[dict[EndpointName, Weight]] = Field(
        default=[],
        description="The commercial endpoints by name, in the order in which they are tried. Each step is a mapping of "
        "names to weights: conversations are shared out by weight, and where one fails the others of its step come "
        "before the next step. Empty: all that the settings have, in their order.",
        json_schema_extra={
            "legal": "a list of mappings from an endpoint's name to a weight of 1 to 1000, no name twice",
            "keys": NAME_LEGAL,
        },
    )
    limits: Patience = Field(
        default_factory=Patience,
        description="How long the steps of an answer may take.",
    )
    on_disconnect: OnDisconnect = Field(
        default_factory=OnDisconnect, description="What becomes of an answer whose caller has left."
    )
    aliases: dict[AliasName, AliasTarget] = Field(
        default_factory=dict,
        description="Other names for models, for callers who ask for one that is not here: `gpt-4o: auto`. Each stands "
        "for `auto`, a road or an adapter, and may be none of those names itself.",
        json_schema_extra={"legal": TARGETS_LEGAL, "keys": ALIAS_LEGAL},
    )
    tasks: dict[Task, TaskRow] = Field(
        default_factory=dict, description="Rows by task; a task without a row goes by score."
    )
    outward: Outward = Field(
        default_factory=Outward, description="What keeps a request in that the roads would let out."
    )
    tenants: dict[RuleName, TenantRule] = Field(
        default_factory=dict,
        description="Rules by tenant.",
        json_schema_extra={"keys": NAME_LEGAL},
    )
    keys: dict[RuleName, KeyRule] = Field(
        default_factory=dict,
        description="Rules by the id of an API key, one of `auth.keys` or one made over the admin API.",
        json_schema_extra={"keys": NAME_LEGAL},
    )

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> PolicyDocument:
        found = [
            *self._things_twice(),
            *alias_problems(self.aliases, None),
            *self._escalation_problems(),
            *self._rule_problems(waits=info.context != OVERLAID),
        ]
        if found:
            raise wrong_all(found)
        return self

    def _things_twice(self) -> Iterator[Found]:
        for n, word in enumerate(self.overflow_order):
            if word in self.overflow_order[:n]:
                yield ("overflow_order", n), "this word is given twice"
        seen: set[str] = set()
        for n, step in enumerate(self.endpoints):
            if not step:
                yield ("endpoints", n), "must name at least one endpoint"
            for name in step:
                if name in seen:
                    yield ("endpoints", n, name), "this endpoint is given twice"
                seen.add(name)

    def _escalation_problems(self) -> Iterator[Found]:
        for at, why in self.escalation.problems():
            yield ("escalation", *at), why
        for task, row in self.tasks.items():
            if row.escalation is not None:
                for at, why in row.escalation.problems(self.escalation):
                    yield ("tasks", task, "escalation", *at), why

    def _rule_problems(self, waits: bool) -> Iterator[Found]:
        rules: list[tuple[tuple[str, str], TenantRule | KeyRule]] = [
            *((("keys", key), rule) for key, rule in self.keys.items()),
            *((("tenants", name), rule) for name, rule in self.tenants.items()),
        ]
        for at, rule in rules:
            for below, why in rule.laxer_than(self.outward):
                yield (*at, *below), why
            for task, row in self.tasks.items():
                if not roads_left(row.forbid, rule.forbid):
                    yield (*at, "forbid"), f"leaves no road beside tasks.{task}.forbid"
        for name, tenant in self.tenants.items():
            asked = tenant.queue_lock_timeout_ms
            if waits and asked is not None and asked > self.queue_lock_timeout_ms:
                yield (
                    ("tenants", name, "queue_lock_timeout_ms"),
                    f"must not be above the policy's own {self.queue_lock_timeout_ms}: a tenant may only be stricter",
                )
