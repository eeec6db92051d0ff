"""What a request's head must be like before anything is done for it.

The parser refuses what is not HTTP. This is about heads that are, and that the next server on the way might read
another way: whose body ends elsewhere, or which are for another host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from weighbridge.config.errors import ApiError, InvalidRequest

MAX_HEAD_BYTES: Final = 65_536
"""Request line and headers of one request, in bytes."""

MAX_TARGET_BYTES: Final = 8192
"""Path and query of one request, in bytes."""

MAX_HEADERS: Final = 128

_VERSIONS: Final = ("1.1", "1.0")
_PER_HEADER: Final = 4
"""Bytes of a header line beside name and value: colon, space and line end."""


def check_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], received: int) -> None:
    """Refuse a head that is too large, or that could be read in two ways.

    Args:
        version: `1.1` or the like.
        target: from the request line, as it came.
        headers: names in lower case.
        received: bytes that the head has at most; counted exactly only where that is over the limit.

    Raises:
        ApiError: 400, 414, 431 or 505.
    """
    if version not in _VERSIONS:
        raise _refusal(505, "This server speaks HTTP/1.1 and HTTP/1.0.", "http_version_not_supported")
    if len(target) > MAX_TARGET_BYTES:
        raise _refusal(414, f"The address is longer than {MAX_TARGET_BYTES} bytes.", "uri_too_long")
    if len(headers) > MAX_HEADERS:
        raise _refusal(431, f"The request has more than {MAX_HEADERS} headers.", "headers_too_large")
    if received > MAX_HEAD_BYTES and _size(target, headers) > MAX_HEAD_BYTES:
        raise head_too_large()
    by_name = dict(headers)
    if len(by_name) != len(headers) and sum(name == b"host" for name, _ in headers) > 1:
        raise invalid_http("A request must name one host.")
    host = by_name.get(b"host")
    if host is None and version == "1.1":
        raise invalid_http("A request must name its host.")
    if b"transfer-encoding" in by_name:
        _check_coding(version, headers)
    if not target.startswith(b"/") and target != b"*":
        _check_authority(target, host)


def head_too_large() -> ApiError:
    return _refusal(431, "The headers of the request are too large.", "headers_too_large")


def invalid_http(message: str) -> ApiError:
    return InvalidRequest(message, code="invalid_http")


def _check_coding(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    codings = [value.strip(b" \t").lower() for name, value in headers if name == b"transfer-encoding"]
    if codings != [b"chunked"] or version == "1.0":
        raise invalid_http("The only transfer coding that is taken is 'chunked', and with HTTP/1.1.")


def _check_authority(target: bytes, host: bytes | None) -> None:
    """A whole URL as the target counts before `Host`, so the two must say the same."""
    try:
        parts = urlsplit(target.decode("ascii"))
    except ValueError:
        parts = None
    if parts is None or parts.scheme.lower() not in ("http", "https") or "@" in parts.netloc:
        raise invalid_http("The address of the request is none of this server's.")
    if host is not None and parts.netloc.lower() != host.decode("latin-1").strip().lower():
        raise invalid_http("The request names two hosts.")


def _size(target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> int:
    return len(target) + sum(len(name) + len(value) + _PER_HEADER for name, value in headers)


def _refusal(status: int, message: str, code: str) -> ApiError:
    return ApiError(status, message, type="invalid_request_error", code=code)
