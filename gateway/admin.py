"""The admin API: the policy in force, its thresholds, and the pool. Needs an admin key (see `gateway.auth`) of the role
that `gateway.admin_access` names."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from fastapi import FastAPI, Request, Response

from weighbridge.gateway.admin_access import Access
from weighbridge.gateway.admin_audit import add_audit
from weighbridge.gateway.admin_egress import add_egress_record
from weighbridge.gateway.admin_keys import add_keys
from weighbridge.gateway.admin_masking import add_preview
from weighbridge.gateway.admin_policies import add_policies
from weighbridge.gateway.admin_preview import add_thresholds_preview
from weighbridge.gateway.admin_schema import PolicyView, PoolView, ThresholdsHistoryView, ThresholdsView
from weighbridge.gateway.admin_switch import add_switch
from weighbridge.gateway.admin_usage import add_usage
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import parse_object, read_body
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import (
    HISTORY,
    credentials,
    json_response,
    number_in_query,
    page_parameters,
)
from weighbridge.policies.overlay import ThresholdPatch

MAX_BODY_BYTES = 65_536
"""Largest body of an admin request, in bytes."""

NO_REASON = "no reason given"

_PATCH_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": ThresholdPatch.model_json_schema()}},
    }
}


def add_admin(api: FastAPI, parts: Parts, auth: Authenticator, access: Access) -> None:
    """Add the admin routes to `api`. What role each takes stands in `gateway.admin_access`."""
    add_egress_record(api, parts, auth)
    add_switch(api, parts, auth, access)
    add_preview(api, parts, auth)
    add_policies(api, parts, auth)
    add_keys(api, parts, auth)
    add_audit(api, parts, auth)
    add_usage(api, parts, auth)
    add_thresholds_preview(api, parts, auth)
    policies = parts.policies

    @api.get(
        "/admin/v1/policy",
        tags=["admin"],
        summary="The policy in force, whole",
        response_model=PolicyView,
    )
    async def policy(request: Request) -> Response:
        auth.admin(*credentials(request))
        current = policies.current
        return json_response(
            {
                "version": current.version,
                "name": current.name,
                "policy": current.content(),
                # How the file as it stands on disk stands to it, and why it is not in force, if it is not.
                "file": policies.file_state,
                "file_problems": [str(problem) for problem in policies.problems],
            }
        )

    @api.get(
        "/admin/v1/thresholds",
        tags=["admin"],
        summary="Thresholds in force, the file's, and every change",
        response_model=ThresholdsHistoryView,
        openapi_extra={"parameters": page_parameters(HISTORY)},
    )
    async def thresholds(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = (number_in_query(request, name, *HISTORY[name]) for name in ("after", "limit"))
        found = await asyncio.to_thread(parts.state.history, after, limit + 1)
        more = found[limit - 1].id if len(found) > limit else None
        history = {"history": [asdict(entry) for entry in found[:limit]], "next_after": more}
        return json_response(policies.thresholds() | history)

    @api.patch(
        "/admin/v1/thresholds",
        tags=["admin"],
        summary="Change thresholds for all requests from now on; checked whole, kept over a restart",
        response_model=ThresholdsView,
        openapi_extra=_PATCH_BODY,
    )
    async def patch(request: Request) -> Response:
        headers, peer = credentials(request)
        who = auth.admin(headers, peer)
        raw = await read_body(request.receive, headers, MAX_BODY_BYTES)
        body = parse_object(raw)
        why = None if "reason" in body else NO_REASON
        await asyncio.to_thread(policies.patch_thresholds, body, who, why)
        return json_response(policies.thresholds())

    @api.get(
        "/admin/v1/pool",
        tags=["admin"],
        summary="The local tiers, their slots and their engines",
        response_model=PoolView,
    )
    async def pool(request: Request) -> Response:
        auth.admin(*credentials(request))
        return json_response({"tiers": parts.pool.status()})
