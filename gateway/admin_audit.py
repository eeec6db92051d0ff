"""The admin API's look at the audit log."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final, Literal

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, Field

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.legal import NAME_PATTERN
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, number_in_query, page_parameters
from weighbridge.state.audit import AuditLog, value_of
from weighbridge.state.audit_chain import AuditRow
from weighbridge.state.store import StateUnavailable

MAX_ROWS: Final = 1000
"""Most rows of one page."""

_LARGEST: Final = 2**63 - 1
_NUMBERS: Final = {
    "after": (0, 0, _LARGEST),
    "limit": (100, 1, MAX_ROWS),
    "since_ns": (0, 0, _LARGEST),
    "before_ns": (_LARGEST, 0, _LARGEST),
}
# `command line` is who changed something without a gateway.
_WORDS: Final = {"who": f"{NAME_PATTERN}|^command line$", "action": r"^[a-z_]{1,32}(\.[a-z_]{1,32})?$"}


class AuditRowView(BaseModel):
    """One row: a change, or an attempt that was refused for want of a role."""

    seq: int = Field(description="Counts from 1 without gaps.")
    form: int = Field(description="The form of what is signed.")
    key_id: str = Field(description="Which chain key signed it.")
    at_ns: int = Field(description="When: nanoseconds since 1970, UTC.")
    who: str = Field(
        description="Id of the admin key; `loopback` while there is none, `command line`, empty for the policy file."
    )
    role: str = Field(description="Role of the key; empty without one.")
    action: str
    target: str
    outcome: Literal["done", "refused"]
    why: str = Field(description="The reason that was given.")
    before: Any = Field(description="What it was; null where there was nothing.")
    after: Any = Field(description="What it is from then on; of a refused attempt, the role it takes.")
    request_id: str
    chain: str = Field(description="The link of the row, hex.")


class HeadView(BaseModel):
    """The last row of all."""

    seq: int
    chain: str


class AuditView(BaseModel):
    """A page of the audit log."""

    rows: list[AuditRowView]
    head: HeadView = Field(
        description="The last row of all; keep it elsewhere, see `weighbridge audit verify`."
    )
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


def add_audit(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the route to `api`."""
    log = AuditLog(parts.state)
    words: list[dict[str, Any]] = [
        {"name": name, "in": "query", "schema": {"type": "string", "pattern": pattern}}
        for name, pattern in _WORDS.items()
    ]

    @api.get(
        "/admin/v1/audit",
        tags=["admin"],
        summary="The audit log: who did or tried what, in order, by key, action and time, and the head of its chain",
        response_model=AuditView,
        openapi_extra={"parameters": page_parameters(_NUMBERS) + words},
    )
    async def audit(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit, since, before = (number_in_query(request, name, *_NUMBERS[name]) for name in _NUMBERS)
        who, action = (_word_in_query(request, name) for name in _WORDS)
        page = await asyncio.to_thread(_page, log, after, limit, who, action, (since, before))
        return Response(page.model_dump_json(), media_type="application/json")


def _page(
    log: AuditLog,
    after: int,
    limit: int,
    who: str | None,
    action: str | None,
    between_ns: tuple[int, int],
) -> AuditView:
    try:
        found = log.page(after, limit + 1, who=who, action=action, between_ns=between_ns)
        seq, link = log.head()
        return AuditView(
            rows=[_view(row) for row in found[:limit]],
            head=HeadView(seq=seq, chain=link.hex()),
            next_after=found[limit - 1].seq if len(found) > limit else None,
        )
    except (StateUnavailable, ValueError):
        raise ApiError(
            503,
            "The audit log cannot be read; `weighbridge audit verify` tells whether it is damaged.",
            type="server_error",
            code="audit_unreadable",
            retry_after_s=5,
        ) from None


def _view(row: AuditRow) -> AuditRowView:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return AuditRowView.model_validate(
        values | {"before": value_of(row.before), "after": value_of(row.after)}
    )


def _word_in_query(request: Request, name: str) -> str | None:
    given = request.query_params.getlist(name)
    if not given:
        return None
    if len(given) == 1 and given[0].isprintable() and re.search(_WORDS[name], given[0]):
        return given[0]
    raise InvalidRequest(
        f"{name} must be one {'id of a key' if name == 'who' else 'action, such as key.create'}.",
        code="invalid_parameter",
        param=name,
    )
