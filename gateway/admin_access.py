"""Which role each admin route takes, and the one place where that is enforced.

The check stands before every route of the application whose address is one of the admin API, so that a route which
forgets it, or is missing in the table, is not open: what the table does not name takes the highest role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from fastapi import Request

from weighbridge.config.errors import ApiError
from weighbridge.config.roles import Role, may
from weighbridge.gateway.auth import Admin, Authenticator
from weighbridge.gateway.web import credentials, request_id_of
from weighbridge.state.acting import Acting, set_acting
from weighbridge.state.audit import AuditLog
from weighbridge.state.store import StateUnavailable

log = logging.getLogger("weighbridge.gateway")

ADMIN_PATHS: Final = "/admin/"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a route takes.

    Args:
        least: the role that may call it, with all above it.
        action: its name in the audit log.
    """

    least: Role
    action: str


RULES: Final[dict[tuple[str, str], Rule]] = {
    # State, policies, usage: no text of a request, nothing to sign a request with.
    ("GET", "/admin/v1/policy"): Rule("viewer", "policy.read"),
    ("GET", "/admin/v1/thresholds"): Rule("viewer", "thresholds.read"),
    ("GET", "/admin/v1/pool"): Rule("viewer", "pool.read"),
    ("GET", "/admin/v1/usage"): Rule("viewer", "usage.read"),
    ("GET", "/admin/v1/savings"): Rule("viewer", "savings.read"),
    ("POST", "/admin/v1/thresholds/preview"): Rule("viewer", "thresholds.preview"),
    ("GET", "/admin/v1/egress/switch"): Rule("viewer", "egress_switch.read"),
    ("GET", "/admin/v1/policies/proposals"): Rule("viewer", "policy.read"),
    ("GET", "/admin/v1/policies/proposals/{proposal}"): Rule("viewer", "policy.read"),
    ("GET", "/admin/v1/policies/versions"): Rule("viewer", "policy.read"),
    ("GET", "/admin/v1/policies/versions/{version}"): Rule("viewer", "policy.read"),
    # Records, who has access, and previews: those show what is a tenant's known value and what is not.
    ("GET", "/admin/v1/egress"): Rule("auditor", "egress.read"),
    ("GET", "/admin/v1/audit"): Rule("auditor", "audit.read"),
    ("GET", "/admin/v1/keys"): Rule("auditor", "key.read"),
    ("GET", "/admin/v1/keys/{key_id}"): Rule("auditor", "key.read"),
    ("GET", "/admin/v1/admin-keys"): Rule("auditor", "admin_key.read"),
    ("GET", "/admin/v1/admin-keys/{key_id}"): Rule("auditor", "admin_key.read"),
    ("POST", "/admin/v1/masking/preview"): Rule("auditor", "masking.preview"),
    # Running it.
    ("PATCH", "/admin/v1/thresholds"): Rule("operator", "thresholds.change"),
    ("POST", "/admin/v1/policies/proposals"): Rule("operator", "policy.propose"),
    ("POST", "/admin/v1/policies/proposals/{proposal}/apply"): Rule("operator", "policy.apply"),
    ("POST", "/admin/v1/policies/versions/{version}/rollback"): Rule("operator", "policy.rollback"),
    # Throwing it is always safe; lifting it takes `LIFTING`.
    ("PUT", "/admin/v1/egress/switch"): Rule("operator", "egress_switch.set"),
    # Who may call.
    ("POST", "/admin/v1/keys"): Rule("admin", "key.create"),
    ("PATCH", "/admin/v1/keys/{key_id}"): Rule("admin", "key.change"),
    ("POST", "/admin/v1/keys/{key_id}/rotate"): Rule("admin", "key.rotate"),
    ("POST", "/admin/v1/keys/{key_id}/revoke"): Rule("admin", "key.revoke"),
    ("POST", "/admin/v1/admin-keys"): Rule("admin", "admin_key.create"),
    ("PATCH", "/admin/v1/admin-keys/{key_id}"): Rule("admin", "admin_key.change"),
    ("POST", "/admin/v1/admin-keys/{key_id}/rotate"): Rule("admin", "admin_key.rotate"),
    ("POST", "/admin/v1/admin-keys/{key_id}/revoke"): Rule("admin", "admin_key.revoke"),
}

LIFTING: Final[Role] = "admin"
"""Lifting the kill switch."""

_UNLISTED: Final = Rule("admin", "unlisted")


class Access:
    """Who may do what over the admin API.

    Args:
        auth: knows the admin keys.
        audit: gets the attempts that were refused for want of a role.
    """

    def __init__(self, auth: Authenticator, audit: AuditLog) -> None:
        self._auth = auth
        self._audit = audit

    def guard(self) -> Callable[[Request], Awaitable[None]]:
        """The check before every route, as a dependency of the application."""

        async def check(request: Request) -> None:
            path: str = request.scope["route"].path
            if not path.startswith(ADMIN_PATHS):
                return
            rule = RULES.get((request.method, path), _UNLISTED)
            admin = self._auth.admin_key(*credentials(request))
            set_acting(Acting(rule.action, admin.role, request_id_of(request)))
            await self._need(admin, rule.least, path)

        return check

    async def need(self, request: Request, least: Role) -> None:
        """Refuse what takes a higher role than its route does.

        Raises:
            ApiError: 403.
        """
        await self._need(self._auth.admin_key(*credentials(request)), least, request.scope["route"].path)

    async def _need(self, admin: Admin, least: Role, target: str) -> None:
        if may(admin.role, least):
            return
        if self._audit.counts(admin.key_id):
            try:
                await asyncio.to_thread(self._audit.refused, admin.key_id, target, least)
            except StateUnavailable as exc:
                log.error("a refused attempt of %s could not be recorded: %s", admin.key_id, exc)
        raise ApiError(
            403,
            f"This takes an admin key of role {least}; this one is of role {admin.role}.",
            type="permission_error",
            code="role_required",
        )
