"""The admin API's kill switch: nothing leaves from the moment it is thrown."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.gateway.admin_access import LIFTING, Access
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import parse_object, read_body
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import HISTORY, credentials, json_response, number_in_query, page_parameters
from weighbridge.policies.overlay import MAX_REASON, is_reason
from weighbridge.state.store import StateUnavailable
from weighbridge.state.switch import EgressSwitch, Setting

log = logging.getLogger("weighbridge.gateway")

PATH = "/admin/v1/egress/switch"
MAX_BODY_BYTES = 4096
"""Largest body, in bytes."""


class SwitchBody(BaseModel):
    """Body of `PUT /admin/v1/egress/switch`."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    egress: Setting = Field(description="`never`: nothing leaves. `policy`: what the policy says.")
    reason: str = Field(
        min_length=1, max_length=MAX_REASON, description="Why, for those who read the history."
    )


class SettingView(BaseModel):
    """One setting by an administrator."""

    id: int
    at_ns: int = Field(description="When: nanoseconds since 1970, UTC.")
    who: str = Field(description="Id of the admin key.")
    why: str
    egress: str


class SwitchView(BaseModel):
    """The kill switch."""

    egress: Setting = Field(description="`never`: nothing leaves. `policy`: what the policy says.")
    by: str | None = Field(
        description="What has thrown it, if it is thrown: `admin`, `file` or `unreadable`."
    )
    history: list[SettingView] | None = Field(
        description="A page of settings; null where they cannot be read."
    )
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


def add_switch(api: FastAPI, parts: Parts, auth: Authenticator, access: Access) -> None:
    """Add the routes to `api`."""
    switch = parts.switch

    @api.get(
        PATH,
        tags=["admin"],
        summary="Whether the kill switch of egress is thrown, by what, and every change",
        response_model=SwitchView,
        openapi_extra={"parameters": page_parameters(HISTORY)},
    )
    async def show(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = (number_in_query(request, name, *HISTORY[name]) for name in ("after", "limit"))
        return json_response(await asyncio.to_thread(_status, switch, after, limit))

    @api.put(
        PATH,
        tags=["admin"],
        summary="Throw or lift the kill switch: with `never` nothing leaves from this moment on; lifting takes role "
        + LIFTING,
        response_model=SwitchView,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": SwitchBody.model_json_schema()}},
            }
        },
    )
    async def put(request: Request) -> Response:
        headers, peer = credentials(request)
        who = auth.admin(headers, peer)
        asked = _asked(parse_object(await read_body(request.receive, headers, MAX_BODY_BYTES)))
        if asked.egress != "never":
            await access.need(request, LIFTING)
        await asyncio.to_thread(_set, switch, asked, who)
        return json_response(
            await asyncio.to_thread(_status, switch, HISTORY["after"][0], HISTORY["limit"][0])
        )


def _asked(body: dict[str, Any]) -> SwitchBody:
    try:
        asked = SwitchBody.model_validate(body)
    except ValidationError:
        asked = None
    if asked is None or not is_reason(asked.reason):
        raise InvalidRequest(
            "The body must hold 'egress', which is 'never' or 'policy', and 'reason', text of 1 to "
            f"{MAX_REASON} characters on one line; nothing else.",
            code="invalid_switch",
        )
    return asked


def _set(switch: EgressSwitch, asked: SwitchBody, who: str) -> None:
    try:
        switch.set(asked.egress, who, asked.reason)
    except (StateUnavailable, ValueError) as exc:
        log.error("a setting of the kill switch could not be kept: %s", type(exc).__name__)
        raise ApiError(
            503,
            "Nothing leaves from now on, but that could not be kept on disk: a restart would lift it."
            if asked.egress == "never"
            else "The change could not be kept on disk, so nothing was changed.",
            type="server_error",
            code="state_unavailable",
        ) from exc


def _status(switch: EgressSwitch, after: int, limit: int) -> dict[str, Any]:
    by, more = switch.by(), None
    try:
        found = switch.history(after, limit + 1)
    except StateUnavailable:
        history = None
    else:
        history = [asdict(entry) for entry in found[:limit]]
        more = found[limit - 1].id if len(found) > limit else None
    egress = "policy" if by is None else "never"
    return {"egress": egress, "by": by, "history": history, "next_after": more}
