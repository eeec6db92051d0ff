"""The admin API for keys: virtual API keys and admin keys, each made, listed, changed, rotated and revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.fresh_key import holds_key
from weighbridge.config.roads import ROADS, Road
from weighbridge.gateway.admin_keys_schema import (
    AdminKeyMade,
    AdminKeyPatch,
    AdminKeysView,
    AdminKeyView,
    KeyMade,
    KeyPatch,
    KeysView,
    KeyView,
    NewAdminKeyBody,
    NewKeyBody,
    RevokeBody,
    RotateBody,
    admin_key_view,
    key_view,
    ns_of,
)
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.body import parse_object, read_body
from weighbridge.gateway.parts import Parts
from weighbridge.gateway.web import credentials, number_in_query, page_parameters
from weighbridge.state.keys import (
    AdminKeyFirst,
    Key,
    KeyRevoked,
    Kind,
    LastAdminKey,
    NoSuchKey,
    RevokedHereOnly,
    Terms,
)
from weighbridge.state.store import StateUnavailable

log = logging.getLogger("weighbridge.gateway")

KEYS: Final = "/admin/v1/keys"
ADMIN_KEYS: Final = "/admin/v1/admin-keys"
MAX_BODY_BYTES: Final = 16_384
"""Largest body, in bytes."""
MAX_ROWS: Final = 1000
"""Most keys of one page."""

_LIMITS: Final = {"after": (0, 0, 2**63 - 1), "limit": (100, 1, MAX_ROWS)}
_CODE: Final = "invalid_key_request"
_SECOND_NS: Final = 1_000_000_000

T = TypeVar("T")
Asked = TypeVar("Asked", bound=BaseModel)


def add_keys(api: FastAPI, parts: Parts, auth: Authenticator) -> None:
    """Add the routes to `api`."""
    _add_kind(api, parts, auth, _ApiKeys())
    _add_kind(api, parts, auth, _AdminKeys())


class _ApiKeys:
    """What API keys have of their own."""

    kind: Kind = "api"
    path, name, what = KEYS, "key", "API key"
    new_body, patch_body, view_model, made_model, page_model = (
        NewKeyBody,
        KeyPatch,
        KeyView,
        KeyMade,
        KeysView,
    )
    takes = (
        "'name', text of 1 to 100 characters on one line, 'tenant', 'roads' (a list of different ones out of "
        f"{', '.join(ROADS)}), 'parallel' (a whole number of 1 or more), 'expires_at' (seconds since 1970 that are not "
        "past) and 'reason'; nothing else"
    )

    def view(self, key: Key, now_ns: int) -> BaseModel:
        return key_view(key, now_ns)

    def terms(self, asked: Any) -> tuple[Terms, str]:
        return Terms(asked.name, _roads(asked), asked.parallel, ns_of(asked.expires_at)), asked.tenant

    def patched(self, key: Key, asked: Any) -> Terms:
        given = asked.model_fields_set
        return Terms(
            asked.name if "name" in given else key.name,
            _roads(asked) if "roads" in given else key.roads,
            asked.parallel if "parallel" in given else key.parallel,
            ns_of(asked.expires_at) if "expires_at" in given else key.expires_ns,
        )


class _AdminKeys:
    """What admin keys have of their own."""

    kind: Kind = "admin"
    path, name, what = ADMIN_KEYS, "admin_key", "admin key"
    new_body, patch_body, view_model, made_model, page_model = (
        NewAdminKeyBody,
        AdminKeyPatch,
        AdminKeyView,
        AdminKeyMade,
        AdminKeysView,
    )
    takes = (
        "'name', text of 1 to 100 characters on one line, 'role' (viewer, auditor, operator or admin), 'expires_at' "
        "(seconds since 1970 that are not past) and 'reason'; nothing else"
    )

    def view(self, key: Key, now_ns: int) -> BaseModel:
        return admin_key_view(key, now_ns)

    def terms(self, asked: Any) -> tuple[Terms, str]:
        return Terms(asked.name, expires_ns=ns_of(asked.expires_at), role=asked.role), ""

    def patched(self, key: Key, asked: Any) -> Terms:
        given = asked.model_fields_set
        return Terms(
            asked.name if "name" in given else key.name,
            expires_ns=ns_of(asked.expires_at) if "expires_at" in given else key.expires_ns,
            role=asked.role if "role" in given else key.role,
        )


def _add_kind(api: FastAPI, parts: Parts, auth: Authenticator, kind: _ApiKeys | _AdminKeys) -> None:
    keys, clock = parts.keys, parts.clock
    one = kind.path + "/{key_id}"

    def answer(made: Key | tuple[Key, str]) -> Response:
        key, secret = made if isinstance(made, tuple) else (made, None)
        view = kind.view(key, clock.wall_ns()).model_dump()
        shown = kind.view_model(**view) if secret is None else kind.made_model(**view, key=secret)
        # A key in the answer must stay in no cache on the way.
        headers = None if secret is None else {"cache-control": "no-store"}
        return Response(shown.model_dump_json(), media_type="application/json", headers=headers)

    async def asked(request: Request, model: type[Asked], takes: str, *, needed: bool = True) -> Asked:
        headers, _ = credentials(request)
        raw = await read_body(request.receive, headers, MAX_BODY_BYTES)
        return _checked(model, parse_object(raw) if raw or needed else {}, takes, clock.wall_ns())

    @api.post(
        kind.path,
        tags=["admin"],
        summary=f"Make an {kind.what}; the answer alone holds the key itself",
        response_model=kind.made_model,
        openapi_extra=_body(kind.new_body),
        operation_id=f"create_{kind.name}",
    )
    async def create(request: Request) -> Response:
        who = auth.admin(*credentials(request))
        body = await asked(request, kind.new_body, kind.takes)
        terms, tenant = kind.terms(body)
        return answer(
            await _changed(kind, lambda: keys.create(kind.kind, terms, who, tenant=tenant, why=body.reason))
        )

    @api.get(
        kind.path,
        tags=["admin"],
        summary=f"The {kind.what}s that were made over this API, in order, ended ones as well",
        response_model=kind.page_model,
        openapi_extra={"parameters": page_parameters(_LIMITS)},
        operation_id=f"list_{kind.name}s",
    )
    async def page(request: Request) -> Response:
        after, limit = (number_in_query(request, name, *_LIMITS[name]) for name in ("after", "limit"))
        found = await _changed(kind, lambda: keys.keys(kind.kind, after, limit + 1))
        now, more = clock.wall_ns(), found[limit - 1].seq if len(found) > limit else None
        shown = [kind.view(key, now).model_dump() for key in found[:limit]]
        return Response(
            kind.page_model.model_validate({"keys": shown, "next_after": more}).model_dump_json(),
            media_type="application/json",
        )

    @api.get(
        one,
        tags=["admin"],
        summary=f"One {kind.what}",
        response_model=kind.view_model,
        operation_id=f"get_{kind.name}",
    )
    async def show(key_id: str, request: Request) -> Response:
        return answer(await _changed(kind, lambda: keys.key(kind.kind, key_id)))

    @api.patch(
        one,
        tags=["admin"],
        summary=f"Change an {kind.what} for all requests from now on",
        response_model=kind.view_model,
        openapi_extra=_body(kind.patch_body),
        operation_id=f"change_{kind.name}",
    )
    async def change(key_id: str, request: Request) -> Response:
        who = auth.admin(*credentials(request))
        body = await asked(request, kind.patch_body, kind.takes.replace(", 'tenant'", ""))
        if not body.model_fields_set - {"reason"}:
            raise InvalidRequest("Nothing to change: the body names no field.", code=_CODE)
        return answer(
            await _changed(
                kind,
                lambda: keys.change(
                    kind.kind, key_id, lambda key: kind.patched(key, body), who, why=body.reason
                ),
            )
        )

    @api.post(
        one + "/rotate",
        tags=["admin"],
        summary=f"Make an {kind.what} anew; the old one stays good for the overlap that is asked for, else not at all",
        response_model=kind.made_model,
        openapi_extra=_body(RotateBody, required=False),
        operation_id=f"rotate_{kind.name}",
    )
    async def rotate(key_id: str, request: Request) -> Response:
        who = auth.admin(*credentials(request))
        takes = "'overlap_s', whole seconds from 0 to 2592000 (30 days), and 'reason'; nothing else"
        body = await asked(request, RotateBody, takes, needed=False)
        overlap_ns = body.overlap_s * _SECOND_NS
        return answer(
            await _changed(kind, lambda: keys.rotate(kind.kind, key_id, overlap_ns, who, why=body.reason))
        )

    @api.post(
        one + "/revoke",
        tags=["admin"],
        summary=f"End an {kind.what} for good; requests under way finish",
        response_model=kind.view_model,
        openapi_extra=_body(RevokeBody, required=False),
        operation_id=f"revoke_{kind.name}",
    )
    async def revoke(key_id: str, request: Request) -> Response:
        who = auth.admin(*credentials(request))
        body = await asked(request, RevokeBody, "'reason'; nothing else", needed=False)
        return answer(await _changed(kind, lambda: keys.revoke(kind.kind, key_id, who, why=body.reason)))


async def _changed(kind: _ApiKeys | _AdminKeys, make: Callable[[], T]) -> T:
    """`make` reads or writes the disk: nothing for the event loop."""
    try:
        return await asyncio.to_thread(make)
    except NoSuchKey:
        raise ApiError(
            404, f"There is no such {kind.what}.", type="invalid_request_error", code=f"{kind.name}_not_found"
        ) from None
    except KeyRevoked:
        raise _conflict("key_revoked", "It was revoked, which is for good; make a new one.") from None
    except LastAdminKey:
        raise _conflict(
            "last_admin_key",
            "It is the last good admin key of role admin: without it nobody could make keys any more.",
        ) from None
    except AdminKeyFirst:
        raise _conflict(
            "admin_key_first",
            f"There is no admin key yet, and with the first key these addresses close to those who have none: POST "
            f"{ADMIN_KEYS} one of role admin first.",
        ) from None
    except RevokedHereOnly as exc:
        log.error("keys: a revocation is not on the disk: %s", exc)
        raise ApiError(
            503,
            "The key is good no longer here, but the state file did not take it: revoke it again, or the next start "
            "knows nothing of it.",
            type="server_error",
            code="state_unavailable",
            retry_after_s=5,
        ) from exc
    except (StateUnavailable, ValueError) as exc:
        log.error("keys: %s", exc if isinstance(exc, StateUnavailable) else type(exc).__name__)
        raise ApiError(
            503,
            "The state file does not do its part at the moment, so nothing was changed.",
            type="server_error",
            code="state_unavailable",
            retry_after_s=5,
        ) from exc


def _checked(model: type[Asked], body: dict[str, Any], takes: str, now_ns: int) -> Asked:
    try:
        checked = model.model_validate(body)
    except ValidationError:
        checked = None
    if checked is None or not _sound(checked, now_ns):
        raise InvalidRequest(f"The body takes {takes}.", code=_CODE)
    return checked


def _sound(body: BaseModel, now_ns: int) -> bool:
    """What the types do not say."""
    name, reason = getattr(body, "name", ""), getattr(body, "reason", "")
    roads, expires_at = getattr(body, "roads", None), getattr(body, "expires_at", None)
    return (
        all(text.isprintable() and not holds_key(text) for text in (name, reason))
        and ("name" not in body.model_fields_set or bool(name.strip()))
        and (roads is None or len(set(roads)) == len(roads))
        and (expires_at is None or expires_at * _SECOND_NS > now_ns)
    )


def _roads(asked: Any) -> tuple[Road, ...] | None:
    """In their own order."""
    return None if asked.roads is None else tuple(road for road in ROADS if road in asked.roads)


def _body(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def _conflict(code: str, message: str) -> ApiError:
    return ApiError(409, message, type="invalid_request_error", code=code)
