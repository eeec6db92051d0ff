"""Thresholds an admin changes at run time: an overlay on the policy file, checked like the file itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, ValidationError

from weighbridge.config.errors import InvalidRequest
from weighbridge.config.problems import dotted, explain
from weighbridge.config.shape import Step
from weighbridge.policies.schema import (
    MAX_QUEUE_LOCK_MS,
    MIN_QUEUE_LOCK_MS,
    Bounds,
    PolicyDocument,
)
from weighbridge.policies.strict import Strict

MAX_REASON = 500

_MAX_SAID = 8
"""Problems named in one refusal."""

_PLAIN = re.compile(r"[a-z0-9_.]{1,40}")


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


class OverlayConflict(Exception):
    """The overlay does not go with the file: the bounds would be out of order.

    Args:
        field: the file's field that cannot stand beside the overlay.
        message: what is wrong with that field.
        bounds: what the two bounds would be.
    """

    def __init__(self, field: tuple[str, str], message: str, bounds: tuple[float, float]) -> None:
        super().__init__(message)
        self.field = field
        self.message = message
        self.bounds = bounds


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is laid over the file; None leaves the file's value."""

    local_8b: float | None = None
    local_70b: float | None = None
    queue_lock_timeout_ms: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any] | None) -> Overlay:
        """From stored values.

        Raises:
            ValueError: they are not what `values()` writes.
        """
        try:
            patch = ThresholdPatch.model_validate({**(values or {}), "reason": "stored"})
        except ValidationError as exc:
            at, why = explain(ThresholdPatch, exc.errors())[0]
            raise ValueError(f"{dotted(at)}: {why}") from None
        return cls().patched(patch)

    def values(self) -> dict[str, Any]:
        """As plain data in the shape of a patch; empty when nothing is laid over."""
        bounds = {"local_8b": self.local_8b, "local_70b": self.local_70b}
        held: dict[str, Any] = {name: bound for name, bound in bounds.items() if bound is not None}
        values: dict[str, Any] = {"bounds": held} if held else {}
        if self.queue_lock_timeout_ms is not None:
            values["queue_lock_timeout_ms"] = self.queue_lock_timeout_ms
        return values

    def patched(self, patch: ThresholdPatch) -> Overlay:
        """This overlay with the keys that `patch` names changed; null takes one away."""
        changed = self
        if "bounds" in patch.model_fields_set:
            bounds = patch.bounds or BoundsPatch(local_8b=None, local_70b=None)
            changed = replace(changed, **{name: getattr(bounds, name) for name in bounds.model_fields_set})
        if "queue_lock_timeout_ms" in patch.model_fields_set:
            changed = replace(changed, queue_lock_timeout_ms=patch.queue_lock_timeout_ms)
        return changed

    def over(self, document: PolicyDocument) -> PolicyDocument:
        """`document` with this overlay on it. Tenants keep the shorter of their own and the general wait.

        Raises:
            OverlayConflict: the bounds would be out of order.
        """
        low = document.bounds.local_8b if self.local_8b is None else self.local_8b
        high = document.bounds.local_70b if self.local_70b is None else self.local_70b
        if low > high:
            field, message = ("local_70b", f"must not be below bounds.local_8b, set to {low} by an admin")
            if self.local_70b is not None:
                field, message = (
                    "local_8b",
                    f"must not be above bounds.local_70b, set to {high} by an admin",
                )
            raise OverlayConflict(("bounds", field), message, (low, high))
        wait = self.queue_lock_timeout_ms
        return document.model_copy(
            update={
                "bounds": Bounds(local_8b=low, local_70b=high),
                "queue_lock_timeout_ms": document.queue_lock_timeout_ms if wait is None else wait,
            }
        )


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
    if not patch.reason.strip() or not patch.reason.isprintable():
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
