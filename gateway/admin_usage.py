"""The admin API's look at usage and money."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any, Final, cast

import msgspec
from fastapi import FastAPI, Request, Response

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.exact import instant, instant_text
from weighbridge.config.prices import prices_path
from weighbridge.gateway.admin_usage_schema import SavingsView, UsageView
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, number_in_query, page_parameters
from weighbridge.observability.ledger_read import LEDGER_FILE, open_readonly
from weighbridge.observability.money import told
from weighbridge.observability.savings_job import JobFailed, PricesUnusable, run_job
from weighbridge.observability.savings_report import NS_PER_DAY, Window
from weighbridge.observability.usage_report import KEYS, Days, Key, UsageReport, read_usage

MAX_ROWS: Final = 1000
"""Most rows of one page."""
MAX_DAYS: Final = 31
"""Longest window of a savings report over HTTP: every record in it is read. The command line has no such bound."""

TIMEOUT_S: Final = 120.0
"""Seconds a savings report may take."""

_LIMITS: Final = {"after": (0, 0, 2**31), "limit": (100, 1, MAX_ROWS)}
_USUAL_BY: Final[tuple[Key, ...]] = ("tenant", "road")
_USUAL_DAYS: Final = 7


def add_usage(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the routes to `api`."""
    path = parts.settings.state_dir / LEDGER_FILE
    prices = prices_path(parts.settings.prices)
    # A report reads many rows, in a process of its own. Callers who waited for theirs would pile up.
    one_at_a_time = asyncio.Lock()

    def read(by: tuple[Key, ...], days: Days, after: int, limit: int) -> str:
        try:
            with closing(open_readonly(path)) as conn:
                conn.row_factory = None
                report = read_usage(conn, by, days)
        except sqlite3.Error:
            raise _unreadable() from None
        return _usage_page(report, after, limit)

    @api.get(
        "/admin/v1/usage",
        tags=["admin"],
        summary="Requests, tokens and booked cost, summed up by day, tenant, road or task",
        response_model=UsageView,
        openapi_extra={
            "parameters": [
                *page_parameters(_LIMITS),
                _parameter(
                    "by", "Keys with commas between; empty for one line.", default=",".join(_USUAL_BY)
                ),
                _parameter("since", "From this UTC day on.", format="date"),
                _parameter("until", "Up to this UTC day, which is not in it.", format="date"),
            ]
        },
    )
    async def usage(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = (number_in_query(request, name, *_LIMITS[name]) for name in ("after", "limit"))
        by, days = _by(request), Days(_day(request, "since"), _day(request, "until"))
        # The page too is made beside the loop, which serves meanwhile.
        return _answer(await asyncio.to_thread(read, by, days, after, limit))

    @api.get(
        "/admin/v1/savings",
        tags=["admin"],
        summary="What was saved against the commercial model that the price book names",
        response_model=SavingsView,
        openapi_extra={
            "parameters": [
                _parameter("since", f"UTC day or instant; {_USUAL_DAYS} days before `until` by default."),
                _parameter("until", f"The same; now by default. At most {MAX_DAYS} days after `since`."),
            ]
        },
    )
    async def savings(request: Request) -> Response:
        auth.admin(*credentials(request))
        window = _window(request, parts.clock.wall_ns())
        if one_at_a_time.locked():
            raise _under_way()
        try:
            async with one_at_a_time:
                report = await run_job(path, prices, window, TIMEOUT_S)
        except JobFailed:
            raise _unreadable() from None
        except PricesUnusable:
            raise _without_prices() from None
        return _answer(SavingsView.model_validate(report).model_dump_json())


def _usage_page(report: UsageReport, after: int, limit: int) -> str:
    # Cut first: only what is on the page is turned into text.
    plain = told(msgspec.structs.replace(report, rows=report.rows[after : after + limit]))
    plain["next_after"] = after + limit if after + limit < len(report.rows) else None
    return UsageView.model_validate(plain).model_dump_json()


def _unreadable() -> ApiError:
    return ApiError(
        503,
        "The usage records cannot be read, or not in time.",
        type="server_error",
        code="usage_unreadable",
        retry_after_s=5,
    )


def _under_way() -> ApiError:
    return ApiError(
        429,
        "A savings report is being made already; the gateway makes one at a time.",
        type="rate_limit_error",
        code="report_under_way",
        retry_after_s=5,
    )


def _without_prices() -> ApiError:
    return ApiError(
        503,
        "The price book as it is in its file now cannot be used; `weighbridge prices check` says why.",
        type="server_error",
        code="prices_unusable",
    )


def _answer(text: str) -> Response:
    return Response(text, media_type="application/json")


def _parameter(name: str, words: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": words, "schema": {"type": "string", **schema}}


def _by(request: Request) -> tuple[Key, ...]:
    given = _given(request, "by")
    if given is None:
        return _USUAL_BY
    keys = tuple(given.split(",")) if given else ()
    if not set(keys) <= set(KEYS) or len(set(keys)) < len(keys):
        raise _wrong("by", f"some of {', '.join(KEYS)}, with commas between")
    return cast("tuple[Key, ...]", keys)


def _day(request: Request, name: str) -> str | None:
    given = _given(request, name)
    if given is None:
        return None
    try:
        if instant_text(instant(given)) == given and "T" not in given:
            return given
    except ValueError:
        pass
    raise _wrong(name, "a date such as 2026-01-31")


def _window(request: Request, now_ns: int) -> Window:
    until = _instant(request, "until")
    until = now_ns if until is None else until
    since = _instant(request, "since")
    since = max(0, until - _USUAL_DAYS * NS_PER_DAY) if since is None else since
    if not 0 <= until - since <= MAX_DAYS * NS_PER_DAY:
        raise _wrong("since", f"before `until`, and by {MAX_DAYS} days at most")
    return Window(since, until)


def _instant(request: Request, name: str) -> int | None:
    given = _given(request, name)
    if given is None:
        return None
    try:
        # A plus sign of a zone that nobody has escaped comes as a space.
        return instant(given.replace(" ", "+"))
    except ValueError as exc:
        raise _wrong(name, str(exc).removeprefix("must be ")) from None


def _given(request: Request, name: str) -> str | None:
    given = request.query_params.getlist(name)
    if len(given) > 1:
        raise _wrong(name, "given once")
    return given[0] if given else None


def _wrong(name: str, legal: str) -> InvalidRequest:
    return InvalidRequest(f"{name} must be {legal}.", code="invalid_parameter", param=name)
