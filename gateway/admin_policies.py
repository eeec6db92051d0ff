"""The admin API for policies: propose, look at the difference, apply, list the versions, roll back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.yamlsource import MAX_BYTES
from weighbridge.gateway.admin_policies_schema import (
    ApplyBody,
    ProposalBody,
    ProposalsView,
    ProposalView,
    RollbackBody,
    VersionsView,
    VersionView,
    proposal_entry,
    proposal_view,
    version_entry,
    version_view,
)
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import decode_object, read_body
from weighbridge.gateway.errors import error_headers
from weighbridge.gateway.openapi import error_schema
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, number_in_query, page_parameters, request_id_of
from weighbridge.policies.changes import PolicyChanges, PolicyRefused
from weighbridge.policies.overlay import is_reason
from weighbridge.router.answer import error_body

PROPOSALS: Final = "/admin/v1/policies/proposals"
VERSIONS: Final = "/admin/v1/policies/versions"
MAX_BODY_BYTES: Final = 2 * MAX_BYTES + 65_536
"""Largest body, in bytes: a policy of the largest size, escaped as JSON."""
MAX_ROWS: Final = 200
"""Most entries of one page."""

_USUAL_ROWS: Final = 50
_LIMITS: Final = {"after": (0, 0, 2**63 - 1), "limit": (_USUAL_ROWS, 1, MAX_ROWS)}
_PAGE: Final = {"parameters": page_parameters(_LIMITS)}
_PROBLEM: Final = {
    "type": "object",
    "required": ["path", "line", "column", "message"],
    "properties": {
        "path": {"type": "string"},
        "line": {"type": ["integer", "null"]},
        "column": {"type": ["integer", "null"]},
        "message": {"type": "string"},
    },
}
_REFUSED: Final[dict[int | str, dict[str, Any]]] = {
    400: {
        "description": "The request is wrong; for a policy `error.problems` has every problem with its place.",
        "content": {
            "application/json": {"schema": error_schema(problems={"type": "array", "items": _PROBLEM})}
        },
    }
}

Asked = TypeVar("Asked", bound=BaseModel)
T = TypeVar("T")


def add_policies(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the routes to `api`."""
    changes = PolicyChanges(parts.policies)

    async def change(request: Request, make: Callable[[], T], view: Callable[[T], BaseModel]) -> Response:
        """`make` may write to the disk, and checks a policy: nothing for the event loop."""
        try:
            made = await asyncio.to_thread(make)
        except PolicyRefused as refusal:
            return _refusal(refusal, request_id_of(request) or parts.ids.new())
        return _answer(view(made))

    @api.post(
        PROPOSALS,
        tags=["admin"],
        summary="Propose a change of the policy: checked whole, kept, and not in force before it is applied",
        response_model=ProposalView,
        responses=_REFUSED,
        openapi_extra=_body(ProposalBody),
    )
    async def propose(request: Request) -> Response:
        headers, peer = credentials(request)
        who = auth.admin(headers, peer)
        raw = await read_body(request.receive, headers, MAX_BODY_BYTES)
        asked = _asked(ProposalBody, await decode_object(raw))
        _check_reason(asked.reason)
        return await change(
            request, lambda: changes.propose(asked.form, asked.given, who, asked.reason), proposal_view
        )

    @api.get(
        PROPOSALS,
        tags=["admin"],
        summary="The proposals, in order",
        response_model=ProposalsView,
        openapi_extra=_PAGE,
    )
    async def proposals(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = _page(request)
        found = await asyncio.to_thread(changes.proposals, after, limit + 1)
        page, more = found[:limit], _more(found, limit)
        return _answer(ProposalsView(proposals=[proposal_entry(one) for one in page], next_after=more))

    @api.get(
        PROPOSALS + "/{proposal}",
        tags=["admin"],
        summary="A proposal, and what applying it would change in the policy in force",
        response_model=ProposalView,
    )
    async def proposal(proposal: str, request: Request) -> Response:
        auth.admin(*credentials(request))
        number = _id(proposal)
        return _answer(proposal_view(await asyncio.to_thread(changes.proposal, number)))

    @api.post(
        PROPOSALS + "/{proposal}/apply",
        tags=["admin"],
        summary="Bring a proposal into force; refused where the policy has changed since, unless rebased",
        response_model=VersionView,
        responses=_REFUSED,
        openapi_extra=_body(ApplyBody, required=False),
    )
    async def apply(proposal: str, request: Request) -> Response:
        headers, peer = credentials(request)
        who = auth.admin(headers, peer)
        number = _id(proposal)
        raw = await read_body(request.receive, headers, MAX_BODY_BYTES)
        asked = _asked(ApplyBody, await decode_object(raw) if raw else {})
        return await change(
            request, lambda: changes.version(changes.apply(number, who, asked.rebase).version), version_view
        )

    @api.get(
        VERSIONS,
        tags=["admin"],
        summary="Every version that was in force, with author, time, reason and source, in order",
        response_model=VersionsView,
        openapi_extra=_PAGE,
    )
    async def versions(request: Request) -> Response:
        auth.admin(*credentials(request))
        after, limit = _page(request)
        found = await asyncio.to_thread(changes.versions, after, limit + 1)
        page, more = found[:limit], _more(found, limit)
        return _answer(
            VersionsView(
                versions=[version_entry(one) for one in page],
                in_force=parts.policies.current.version,
                next_after=more,
            )
        )

    @api.get(
        VERSIONS + "/{version}",
        tags=["admin"],
        summary="A version by its name (its latest entry) or the id of its entry, whole",
        response_model=VersionView,
    )
    async def version(version: str, request: Request) -> Response:
        auth.admin(*credentials(request))
        return _answer(version_view(await asyncio.to_thread(changes.version, _named(version))))

    @api.post(
        VERSIONS + "/{version}/rollback",
        tags=["admin"],
        summary="Bring an earlier version into force again, as it was",
        response_model=VersionView,
        responses=_REFUSED,
        openapi_extra=_body(RollbackBody),
    )
    async def rollback(version: str, request: Request) -> Response:
        headers, peer = credentials(request)
        who = auth.admin(headers, peer)
        raw = await read_body(request.receive, headers, MAX_BODY_BYTES)
        asked = _asked(RollbackBody, await decode_object(raw))
        _check_reason(asked.reason)
        named = _named(version)
        return await change(
            request,
            lambda: changes.version(changes.roll_back(named, who, asked.reason).version),
            version_view,
        )


def _body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def _asked(model: type[Asked], body: dict[str, Any]) -> Asked:
    try:
        return model.model_validate(body)
    except ValidationError:
        raise InvalidRequest(_TAKES[model], code="invalid_change") from None


_TAKES: Final[dict[type[BaseModel], str]] = {
    ProposalBody: "The body must hold one of 'policy' and 'overlay', each YAML text or an object, and 'reason'; "
    "nothing else.",
    ApplyBody: "The body may be empty, or hold 'rebase', true or false; nothing else.",
    RollbackBody: "The body must hold 'reason'; nothing else.",
}


def _check_reason(reason: str) -> None:
    if not is_reason(reason):
        raise InvalidRequest(
            "reason: must be text on one line that says why.", code="invalid_change", param="reason"
        )


def _page(request: Request) -> tuple[int, int]:
    return (
        number_in_query(request, "after", *_LIMITS["after"]),
        number_in_query(request, "limit", *_LIMITS["limit"]),
    )


def _more(found: Sequence[Any], limit: int) -> int | None:
    return int(found[limit - 1].id) if len(found) > limit else None


def _id(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise ApiError(404, "There is no such proposal.", type="invalid_request_error", code="proposal_not_found")


def _named(text: str) -> int | str:
    """A version's name always holds an @, so digits are an entry's id."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else text


def _answer(view: BaseModel) -> Response:
    return Response(view.model_dump_json(), media_type="application/json")


def _refusal(refusal: PolicyRefused, request_id: str) -> Response:
    """The error with every problem and its place beside it."""
    told = msgspec.json.decode(error_body(refusal))
    told["error"]["problems"] = [
        {"path": one.field, "line": one.line, "column": one.column, "message": one.message}
        for one in refusal.problems
    ]
    response = Response(msgspec.json.encode(told), status_code=refusal.status)
    response.raw_headers += error_headers(refusal, request_id)
    return response
