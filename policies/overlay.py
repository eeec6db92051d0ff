"""What an admin changes at run time: an overlay on the policy file, checked like the file itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, ValidationError

from weighbridge.config.errors import InvalidRequest
from weighbridge.config.fresh_key import holds_key
from weighbridge.config.problems import dotted, explain
from weighbridge.config.shape import Step
from weighbridge.policies.checking import ANY_DEPLOYMENT, Deployment, NotAPolicy, document_of
from weighbridge.policies.compiled import content_of
from weighbridge.policies.difference import merged, patch_between
from weighbridge.policies.schema import MAX_QUEUE_LOCK_MS, MIN_QUEUE_LOCK_MS, PolicyDocument
from weighbridge.policies.strict import Strict

MAX_REASON = 500

_MAX_SAID = 8
"""Problems named in one refusal."""

_PLAIN = re.compile(r"[a-z0-9_.]{1,40}")


def is_reason(text: str) -> bool:
    """Whether a text says why, on one line, to those who read the history, and holds no key."""
    return bool(text.strip()) and text.isprintable() and len(text) <= MAX_REASON and not holds_key(text)


class BoundsPatch(Strict):
    """Bounds to change."""

    local_8b: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="New bound of `local-8b` (score, 0 to 1); null takes the file's again.",
    )
    local_70b: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="New bound of `local-70b` (score, 0 to 1); null takes the file's again.",
    )


class ThresholdPatch(Strict):
    """Body of `PATCH /admin/v1/thresholds`."""

    bounds: BoundsPatch | None = Field(
        default=None, description="Bounds to change; null takes both of the file's again."
    )
    queue_lock_timeout_ms: int | None = Field(
        default=None,
        ge=MIN_QUEUE_LOCK_MS,
        le=MAX_QUEUE_LOCK_MS,
        description="New general wait for a slot, in milliseconds; null takes the file's again.",
    )
    reason: str = Field(
        min_length=1,
        max_length=MAX_REASON,
        description="Why, for those who read the history.",
        json_schema_extra={"legal": f"text of 1 to {MAX_REASON} characters on one line that says why"},
    )


class OverlayConflict(NotAPolicy):
    """With the overlay on it, the file's policy is none any more."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """What admins have laid over the file, in the file's shape; null stands for what is left out."""

    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def opens(self) -> bool:
        """Whether it says that requests may leave."""
        return bool(self.values.get("egress", "never") != "never")

    def without(self, name: str) -> Overlay:
        """This overlay less one thing at its top."""
        return Overlay({key: value for key, value in self.values.items() if key != name})

    def patched(self, patch: ThresholdPatch) -> Overlay:
        """This overlay with the thresholds that `patch` names changed; null takes one away."""
        values = {name: value for name, value in self.values.items() if name != "bounds"}
        bounds = dict(self.values.get("bounds", {}))
        if "bounds" in patch.model_fields_set:
            given = patch.bounds or BoundsPatch(local_8b=None, local_70b=None)
            bounds |= {name: getattr(given, name) for name in given.model_fields_set}
        if "queue_lock_timeout_ms" in patch.model_fields_set:
            values["queue_lock_timeout_ms"] = patch.queue_lock_timeout_ms
            if patch.queue_lock_timeout_ms is None:
                del values["queue_lock_timeout_ms"]
        if bounds := {name: bound for name, bound in bounds.items() if bound is not None}:
            values["bounds"] = bounds
        return Overlay(values)

    def over(self, document: PolicyDocument, deployment: Deployment = ANY_DEPLOYMENT) -> PolicyDocument:
        """`document` with this overlay on it, checked whole. A tenant keeps the shorter of its and the general wait.

        Raises:
            OverlayConflict: that is no policy that this deployment can carry out.
        """
        if not self.values:
            return document
        try:
            return document_of(merged(content_of(document), self.values), deployment, overlaid=True)
        except NotAPolicy as exc:
            raise OverlayConflict(exc.found) from None

    def reaching(self, document: PolicyDocument, wanted: Mapping[str, Any]) -> Overlay:
        """The overlay that makes the content `wanted` of `document`; what was set on purpose stays in it."""
        return Overlay(patch_between(content_of(document), wanted, self.values))


def _nameable(step: Step) -> Step:
    """`step` if it may be named in an answer: a key that is no plain identifier is text of the caller's."""
    return step if isinstance(step, int) or _PLAIN.fullmatch(step) else "(key)"


def parse_patch(body: object) -> ThresholdPatch:
    """Check a patch by itself.

    Raises:
        InvalidRequest: 400 with the field at fault in `param`.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest("The body must be a JSON object.", code="invalid_thresholds")
    try:
        patch = ThresholdPatch.model_validate(dict(body))
    except ValidationError as exc:
        found = explain(ThresholdPatch, exc.errors()[:_MAX_SAID])
        named = [(dotted(tuple(map(_nameable, at))), why) for at, why in found]
        said = "; ".join(f"{at}: {why}" for at, why in named)
        raise InvalidRequest(f"{said}.", code="invalid_thresholds", param=named[0][0]) from None
    if not is_reason(patch.reason):
        raise InvalidRequest(
            "reason: must be text on one line that says why.", code="invalid_thresholds", param="reason"
        )
    if not patch.model_fields_set & {"bounds", "queue_lock_timeout_ms"} or (
        patch.bounds is not None and not patch.bounds.model_fields_set
    ):
        raise InvalidRequest(
            "Nothing to change: give bounds.local_8b, bounds.local_70b or queue_lock_timeout_ms.",
            code="invalid_thresholds",
        )
    return patch
