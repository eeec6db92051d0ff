"""The admin API's look at the record of what left."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
from fastapi import FastAPI, Request, Response

from weighbridge.config.errors import ApiError
from weighbridge.gateway.admin_schema import EgressView
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, number_in_query, page_parameters
from weighbridge.observability.egress_chain import START
from weighbridge.observability.ledger_read import LEDGER_FILE, egress_page, open_readonly

MAX_ROWS = 1000
"""Most rows of one page."""

_USUAL_ROWS = 100
_LARGEST = 2**63 - 1


def add_egress_record(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the route to `api`."""
    path = parts.settings.state_dir / LEDGER_FILE
    limits = {"after": (0, 0, _LARGEST), "limit": (_USUAL_ROWS, 1, MAX_ROWS)}

    @api.get(
        "/admin/v1/egress",
        tags=["admin"],
        summary="The record of what left: rows in order, without text, and the head of their chain",
        response_model=EgressView,
        openapi_extra={"parameters": page_parameters(limits)},
    )
    async def egress(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = (number_in_query(request, name, *limits[name]) for name in ("after", "limit"))
        # A file to read and a thousand rows to encode: nothing for the event loop.
        return Response(await asyncio.to_thread(_page, path, after, limit), media_type="application/json")


def _page(path: Path, after: int, limit: int) -> bytes:
    try:
        with closing(open_readonly(path)) as conn:
            rows, last = egress_page(conn, after, limit)
        head = (
            {"seq": 0, "chain": START.hex()} if last is None else {key: last[key] for key in ("seq", "chain")}
        )
        more = bool(rows) and rows[-1]["seq"] < head["seq"]
        return msgspec.json.encode(
            {"rows": rows, "head": head, "next_after": rows[-1]["seq"] if more else None}
        )
    except (sqlite3.Error, ValueError):
        raise ApiError(
            503,
            "The egress record cannot be read; `weighbridge egress verify` tells whether it is damaged.",
            type="server_error",
            code="egress_record_unreadable",
            retry_after_s=5,
        ) from None
