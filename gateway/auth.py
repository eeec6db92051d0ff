"""Who may call: API keys, admin keys, and the rule for a gateway that has none.

Keys are kept as SHA-256 only. A key is 256 random bits (`weighbridge key new`), so a plain hash is enough: there is
nothing to guess, and digests are compared in constant time.

With no key configured at all only this machine may call: the peer's address and the `Host` header must be loopback
(a page that rebinds its DNS name to 127.0.0.1 still sends its own name), a browser's `Origin` must be loopback too,
each of the two at most once, and a request that a proxy forwarded or another site's page sent is not a local one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar
from urllib.parse import urlsplit

from weighbridge.config.errors import ApiError
from weighbridge.config.settings import AuthSettings

LOCAL_CALLER = "loopback"
"""The key id in records, and the `who` of admin changes, when no key is configured."""

_MAX_KEY_BYTES = 512
_FORWARDED = frozenset(
    (b"forwarded", b"via", b"x-real-ip", b"x-client-ip", b"true-client-ip", b"cf-connecting-ip")
)
_FORWARDED_PREFIX = b"x-forwarded"

HeaderMap = Mapping[bytes, bytes]
"""Header names in lower case. The values of a repeated name are joined by commas, so that none of them passes for
the only one."""

Peer = tuple[str, int] | None
"""The other end of the connection as ASGI names it."""

T = TypeVar("T")


def header_map(raw: Sequence[tuple[bytes, bytes]]) -> HeaderMap:
    """A request's headers by name."""
    headers = dict(raw)
    if len(headers) != len(raw):
        headers = {}
        for name, value in raw:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by the names in the settings."""

    key_id: str
    tenant: str


class Authenticator:
    """Checks every request. The two kinds of key are never interchangeable; the settings refuse a key that is both."""

    def __init__(self, settings: AuthSettings) -> None:
        self._callers = {key.digest: Caller(key.id, key.tenant) for key in settings.keys}
        self._admins = {key.digest: key.id for key in settings.admin_keys}

    @property
    def keyless(self) -> bool:
        """No API key is configured: only this machine may call."""
        return not self._callers

    def api(self, headers: HeaderMap, peer: Peer) -> Caller:
        """The caller of an API route.

        Raises:
            ApiError: 401 without a good key; 403 from elsewhere while no key is configured.
        """
        if self._callers:
            return _known(self._callers, headers, "API key")
        if not is_local(headers, peer):
            raise ApiError(
                403,
                "No API key is configured here (auth.keys), so only programs on the gateway's own machine may call.",
                type="permission_error",
                code="loopback_only",
            )
        return Caller(LOCAL_CALLER, "default")

    def admin(self, headers: HeaderMap, peer: Peer) -> str:
        """The admin key's id.

        Without any key of either kind a local caller may administer, as it may call. Once there are API keys, the
        admin routes need an admin key.

        Raises:
            ApiError: 401 without a good admin key; 403 where none is configured.
        """
        if self._admins:
            return _known(self._admins, headers, "admin key")
        if self._callers or not is_local(headers, peer):
            raise ApiError(
                403,
                "No admin key is configured here (auth.admin_keys).",
                type="permission_error",
                code="admin_key_not_configured",
            )
        return LOCAL_CALLER

    def metrics(self, headers: HeaderMap, peer: Peer) -> None:
        """Metrics are open to this machine, as Prometheus expects; others need a key of either kind.

        Raises:
            ApiError: 401 or 403.
        """
        if is_local(headers, peer):
            return
        if _find(self._admins, headers) is None:
            self.api(headers, peer)


def is_local(headers: HeaderMap, peer: Peer) -> bool:
    """Whether a request came straight from a program on this machine that meant to call us."""
    if peer is None or not _is_loopback(peer[0]):
        return False
    if any(_says_forwarded(name) for name in headers):
        return False
    if b"cross-site" in headers.get(b"sec-fetch-site", b"").lower():
        return False
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    if b"," in host or not _is_loopback(_host_of(host)):
        return False
    return origin is None or (b"," not in origin and _is_loopback(_origin_host(origin)))


def _says_forwarded(name: bytes) -> bool:
    # Some proxies write the names with underscores.
    name = name.replace(b"_", b"-")
    return name in _FORWARDED or name.startswith(_FORWARDED_PREFIX)


def _known(table: Mapping[bytes, T], headers: HeaderMap, kind: str) -> T:
    found = _find(table, headers)
    if found is not None:
        return found
    message = (
        f"That is not an {kind} of this gateway."
        if b"authorization" in headers
        else f"This needs an {kind}: send 'Authorization: Bearer KEY'."
    )
    raise ApiError(401, message, type="invalid_request_error", code="invalid_api_key")


def _find(table: Mapping[bytes, T], headers: HeaderMap) -> T | None:
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    key = key.strip()
    if scheme.lower() != b"bearer" or not key or len(key) > _MAX_KEY_BYTES:
        return None
    digest = hashlib.sha256(key).digest()
    found = None
    for known, who in table.items():
        if hmac.compare_digest(known, digest):
            found = who
    return found


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    """An address, not a prefix: `127.0.0.1.example.org` is a name anybody may own."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _host_of(authority: bytes) -> str:
    """The host of a `Host` header, without port and brackets; empty when there is none."""
    text = authority.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0]


def _origin_host(origin: bytes) -> str:
    """The host of an `Origin` header; empty for `null` and for what is no URL."""
    try:
        return urlsplit(origin.decode("latin-1")).hostname or ""
    except ValueError:
        return ""
