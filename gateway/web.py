"""Small things that the FastAPI routes here share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from fastapi import Request, Response

from weighbridge.config.errors import InvalidRequest
from weighbridge.gateway.auth import HeaderMap, Peer, header_map

REQUEST_ID_IN_SCOPE = "weighbridge.request_id"
"""Where the front leaves the id of a request for those behind it."""

HISTORY: Final = {"after": (0, 0, 2**63 - 1), "limit": (100, 1, 1000)}
"""The page of a list of changes: by name what is usual, the least and the most."""

_DIGITS = re.compile("[0-9]{1,19}")


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def credentials(request: Request) -> tuple[HeaderMap, Peer]:
    """What `gateway.auth.Authenticator` wants to see of a request."""
    peer: Peer = request.scope.get("client")
    return header_map(request.headers.raw), peer


def request_id_of(request: Request) -> str:
    """The id that the answer carries."""
    return str(request.scope.get(REQUEST_ID_IN_SCOPE, ""))


def number_in_query(request: Request, name: str, usual: int, least: int, most: int) -> int:
    """A whole number out of the query.

    Raises:
        InvalidRequest: given twice, no number, or out of bounds.
    """
    given = request.query_params.getlist(name)
    if not given:
        return usual
    if len(given) == 1 and _DIGITS.fullmatch(given[0]) and least <= int(given[0]) <= most:
        return int(given[0])
    raise InvalidRequest(
        f"{name} must be a whole number from {least} to {most}.", code="invalid_parameter", param=name
    )


def page_parameters(limits: Mapping[str, tuple[int, int, int]]) -> list[dict[str, Any]]:
    """The same numbers for OpenAPI: by name what is usual, the least and the most."""
    return [
        {
            "name": name,
            "in": "query",
            "schema": {"type": "integer", "default": usual, "minimum": least, "maximum": most},
        }
        for name, (usual, least, most) in limits.items()
    ]
