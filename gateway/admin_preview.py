"""The admin API's look at other thresholds before they are set."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import parse_object, read_body
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, json_response
from weighbridge.observability.ledger_read import LEDGER_FILE, open_readonly
from weighbridge.observability.money import exact
from weighbridge.observability.past_requests import last_requests
from weighbridge.policies.overlay import BoundsPatch
from weighbridge.router.what_if import WhatIf, what_if

MAX_BODY_BYTES: Final = 65_536
USUAL_LAST: Final = 10_000
MOST_LAST: Final = 20_000
"""Requests that one preview looks at at most: half a second of work, which the event loop has to share with it."""


class PreviewBody(BaseModel):
    """Body of `POST /admin/v1/thresholds/preview`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    bounds: BoundsPatch = Field(description="Bounds to try; null takes the file's.")
    last: int = Field(
        default=USUAL_LAST, ge=1, le=MOST_LAST, description="How many of the last requests to decide anew."
    )


class RoadView(BaseModel):
    """One road."""

    road: str
    requests_before: int
    requests_after: int
    cost_per_million_tokens: str | None = Field(description="Measured; idle time is not in it.")


class ShiftView(BaseModel):
    """Requests that would go another road."""

    from_road: str
    to_road: str
    requests: int
    tokens: int
    failing_before: float = Field(description="Answers expected to fail, against the commercial model.")
    failing_after: float
    unknown: int = Field(description="Requests without recorded probabilities, in neither.")


class PreviewView(BaseModel):
    """What other bounds would have done."""

    requests: int
    decided: int = Field(description="Of them those whose road the gateway chose.")
    from_ns: int | None
    to_ns: int | None
    roads: list[RoadView]
    shifts: list[ShiftView]
    currency: str
    cost_change_per_day: str | None = Field(description="Null where a road has no price, or no time went by.")


def add_thresholds_preview(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the route to `api`."""
    path = parts.settings.state_dir / LEDGER_FILE
    local = tuple(road for road in LOCAL_ROADS if road in parts.settings.tiers)
    one_at_a_time = asyncio.Lock()

    def looked(body: PreviewBody) -> WhatIf:
        now = parts.policies.current
        bounds = {name: getattr(body.bounds, name) for name in body.bounds.model_fields_set}
        then = parts.policies.trial({"bounds": bounds, "reason": "preview"})
        try:
            with closing(open_readonly(path)) as conn:
                past = last_requests(conn, body.last)
        except sqlite3.Error:
            raise ApiError(
                503,
                "The usage records cannot be read at the moment.",
                type="server_error",
                code="ledger_unavailable",
                retry_after_s=5,
            ) from None
        return what_if(past, now, then, local=local, outward=parts.gate.configured)

    @api.post(
        "/admin/v1/thresholds/preview",
        tags=["admin"],
        summary="What other bounds would have done with the last requests; changes nothing",
        response_model=PreviewView,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": PreviewBody.model_json_schema()}},
            }
        },
    )
    async def preview(request: Request) -> Response:
        headers, peer = credentials(request)
        auth.admin(headers, peer)
        body = _checked(parse_object(await read_body(request.receive, headers, MAX_BODY_BYTES)))
        if one_at_a_time.locked():
            raise ApiError(
                429,
                "Another preview is being made; come again when it is done.",
                type="rate_limit_error",
                code="preview_under_way",
                retry_after_s=2,
            )
        async with one_at_a_time:
            found = await asyncio.to_thread(looked, body)
        return json_response(_told(found))


def _checked(body: dict[str, Any]) -> PreviewBody:
    try:
        return PreviewBody.model_validate(body)
    except ValueError:
        raise InvalidRequest(
            "The body takes 'bounds' (local_8b, local_70b: numbers from 0 to 1 or null) and 'last', a whole number "
            f"from 1 to {MOST_LAST}; nothing else.",
            code="invalid_preview",
        ) from None


def _told(found: WhatIf) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(found)
    for road in told["roads"]:
        rate = road.pop("nano_per_million")
        road["cost_per_million_tokens"] = None if rate is None else exact(rate)
    change = told.pop("cost_change_nano_per_day")
    return told | {"cost_change_per_day": None if change is None else exact(change)}
