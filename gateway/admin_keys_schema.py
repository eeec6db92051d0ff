"""Bodies and answers of the admin API for keys, as OpenAPI tells them."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from weighbridge.config.legal import NAME_PATTERN
from weighbridge.config.roads import Road
from weighbridge.config.roles import Role
from weighbridge.policies.overlay import MAX_REASON
from weighbridge.state.keys import Key

MAX_NAME: Final = 100
MAX_PARALLEL: Final = 1_000_000
MAX_OVERLAP_S: Final = 30 * 86_400
_SECOND_NS: Final = 1_000_000_000
_LATEST_S: Final = 9_000_000_000
"""Seconds since 1970 that fit in as nanoseconds."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    reason: str = Field(default="", max_length=MAX_REASON, description="Why, on one line, for the audit log.")


_NAME = Field(min_length=1, max_length=MAX_NAME, description="What people call it, on one line.")
_ROADS = Field(
    default=None,
    min_length=1,
    description="The roads it may use, whatever the policy says; null leaves that to the policy.",
)
_PARALLEL = Field(
    default=None,
    ge=1,
    le=MAX_PARALLEL,
    description="Requests it may have under way at once; null, or more than `server.max_concurrent_per_key`, leaves it "
    "to that.",
)
_EXPIRES = Field(
    default=None,
    ge=0,
    le=_LATEST_S,
    description="When it ends: seconds since 1970, UTC, and not past; null is never.",
)
_ROLE = Field(
    description="`viewer` sees state and policies, `auditor` the records as well, `operator` changes policies and "
    "throws the kill switch, `admin` everything."
)


class NewKeyBody(_Body):
    """Body of making an API key."""

    name: str = _NAME
    tenant: str = Field(
        default="default", pattern=NAME_PATTERN, description="Whose it is, for policy and records; for good."
    )
    roads: list[Road] | None = _ROADS
    parallel: int | None = _PARALLEL
    expires_at: int | None = _EXPIRES


class KeyPatch(_Body):
    """Body of changing an API key: what is left out stays, null takes a limit off."""

    name: str = Field(default="", min_length=1, max_length=MAX_NAME, description="A new name.")
    roads: list[Road] | None = _ROADS
    parallel: int | None = _PARALLEL
    expires_at: int | None = _EXPIRES


class NewAdminKeyBody(_Body):
    """Body of making an admin key."""

    name: str = _NAME
    role: Role = _ROLE
    expires_at: int | None = _EXPIRES


class AdminKeyPatch(_Body):
    """Body of changing an admin key: what is left out stays, null takes the end off."""

    name: str = Field(default="", min_length=1, max_length=MAX_NAME, description="A new name.")
    role: Role = Field(default="viewer", description="A new role.")
    expires_at: int | None = _EXPIRES


class RotateBody(_Body):
    """Body of a rotation; may be left out."""

    overlap_s: int = Field(
        default=0, ge=0, le=MAX_OVERLAP_S, description="Seconds the old key stays good beside the new one."
    )


class RevokeBody(_Body):
    """Body of a revocation; may be left out."""


class _EntryView(BaseModel):
    id: str = Field(description="Its name in records, policies and the audit log.")
    name: str
    state: Literal["active", "expired", "revoked"]
    created_at: int = Field(description="Seconds since 1970, UTC; so are the others.")
    created_by: str = Field(description="Id of the admin key.")
    expires_at: int | None
    revoked_at: int | None
    old_key_until: int | None = Field(description="Until when a key that was rotated away is good.")


class KeyView(_EntryView):
    """An API key, without the key itself, which nobody can show again."""

    tenant: str
    roads: list[Road] | None = Field(description="The roads it may use; null leaves that to the policy.")
    parallel: int | None = Field(description="Requests it may have under way at once.")


class AdminKeyView(_EntryView):
    """An admin key, without the key itself, which nobody can show again."""

    role: Role


class KeyMade(KeyView):
    """An API key that was just made."""

    key: str = Field(description="The key itself. This is the only time it is shown.")


class AdminKeyMade(AdminKeyView):
    """An admin key that was just made."""

    key: str = Field(description="The key itself. This is the only time it is shown.")


class KeysView(BaseModel):
    """A page of API keys."""

    keys: list[KeyView]
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


class AdminKeysView(BaseModel):
    """A page of admin keys."""

    keys: list[AdminKeyView]
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


def ns_of(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * _SECOND_NS


def _seconds(ns: int | None) -> int | None:
    return None if ns is None else ns // _SECOND_NS


def _entry(key: Key, now_ns: int) -> dict[str, object]:
    state = "revoked" if key.revoked_ns is not None else "expired" if key.ended(now_ns) else "active"
    overlaps = state == "active" and key.old_until_ns is not None and now_ns < key.old_until_ns
    return {
        "id": key.id,
        "name": key.name,
        "state": state,
        "created_at": _seconds(key.created_ns),
        "created_by": key.created_by,
        "expires_at": _seconds(key.expires_ns),
        "revoked_at": _seconds(key.revoked_ns),
        "old_key_until": _seconds(key.old_until_ns) if overlaps else None,
    }


def key_view(key: Key, now_ns: int) -> KeyView:
    own = {"tenant": key.tenant, "roads": key.roads, "parallel": key.parallel}
    return KeyView.model_validate(_entry(key, now_ns) | own)


def admin_key_view(key: Key, now_ns: int) -> AdminKeyView:
    return AdminKeyView.model_validate(_entry(key, now_ns) | {"role": key.role})
