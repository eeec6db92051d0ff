"""Two small things every FastAPI route here uses."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import Request, Response

from weighbridge.gateway.auth import HeaderMap, Peer, header_map


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def credentials(request: Request) -> tuple[HeaderMap, Peer]:
    """What `gateway.auth.Authenticator` wants to see of a request."""
    peer: Peer = request.scope.get("client")
    return header_map(request.headers.raw), peer
