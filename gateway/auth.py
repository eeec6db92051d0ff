"""Who may call: API keys, admin keys, and the rule for a gateway that has none.

Keys are kept as SHA-256 only. A key is 256 random bits, so a plain hash is enough: there is nothing to guess. The hash
of what a caller sends is looked up in a dictionary, which takes as long for one key as for a million; how long that
took tells something of a hash at most, and no key can be made from one.

As long as there is no API key at all, and none was ever made over the admin API, only this machine may call: the peer's
address and the `Host` header must be loopback (a page that rebinds its DNS name to 127.0.0.1 still sends its own name),
a browser's `Origin` must be loopback too, each of the two at most once, and a request that a proxy forwarded or another
site's page sent is not a local one.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from weighbridge.config.clock import Clock, SystemClock
from weighbridge.config.errors import ApiError
from weighbridge.config.settings import AuthSettings
from weighbridge.state.key_table import Admin, Caller, KeyTable
from weighbridge.state.keys import KeyStore

__all__ = ["LOCAL_CALLER", "Admin", "Authenticator", "Caller", "HeaderMap", "Peer", "header_map", "is_local"]

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

_LOCAL: Final = Caller(LOCAL_CALLER, "default")
_LOCAL_ADMIN: Final = Admin(LOCAL_CALLER, "admin")


def header_map(raw: Sequence[tuple[bytes, bytes]]) -> HeaderMap:
    """A request's headers by name."""
    headers = dict(raw)
    if len(headers) != len(raw):
        headers = {}
        for name, value in raw:
            headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


class Authenticator:
    """Checks every request. The two kinds of key are never interchangeable: the settings refuse a key that is both.

    Args:
        settings: the keys that the settings have.
        keys: those made while the gateway runs, with the settings' own in one table; None where there are none.
        open_to_local: callers of this machine need no key as long as there is none. False where others can reach the
            gateway.
    """

    def __init__(
        self, settings: AuthSettings, keys: KeyStore | None = None, *, open_to_local: bool = True
    ) -> None:
        self._table = KeyTable.of(settings) if keys is None else keys.table
        self._clock: Clock = SystemClock() if keys is None else keys.clock
        self._open_to_local = open_to_local

    @property
    def keyless(self) -> bool:
        """There is no API key, and none was ever made over the admin API: only this machine may call."""
        return self._open_to_local and not self._table.keyed

    def api(self, headers: HeaderMap, peer: Peer) -> Caller:
        """The caller of an API route.

        Raises:
            ApiError: 401 without a good key; 403 from elsewhere while there is no key at all.
        """
        table = self._table
        if table.keyed or not self._open_to_local:
            caller = table.callers.get(_digest(headers))
            if caller is None or self._over(caller.until_ns):
                raise _not_known(headers, "API key")
            return caller
        if not is_local(headers, peer):
            raise ApiError(
                403,
                "There is no API key here (auth.keys), so only programs on the gateway's own machine may call.",
                type="permission_error",
                code="loopback_only",
            )
        return _LOCAL

    def admin(self, headers: HeaderMap, peer: Peer) -> str:
        """The admin key's id. Raises what `admin_key` does; what the key may do, `gateway.admin_access` says."""
        return self.admin_key(headers, peer).key_id

    def admin_key(self, headers: HeaderMap, peer: Peer) -> Admin:
        """The admin key of an admin route, and its role.

        Without any key of either kind a local caller may administer, as it may call. Once there are API keys, the
        admin routes need an admin key.

        Raises:
            ApiError: 401 without a good admin key; 403 where there is none.
        """
        table = self._table
        if table.admin_keyed:
            admin = table.admins.get(_digest(headers))
            if admin is None or self._over(admin.until_ns):
                raise _not_known(headers, "admin key")
            return admin
        if not self.keyless or not is_local(headers, peer):
            raise ApiError(
                403,
                "There is no admin key here (auth.admin_keys).",
                type="permission_error",
                code="admin_key_not_configured",
            )
        return _LOCAL_ADMIN

    def metrics(self, headers: HeaderMap, peer: Peer) -> None:
        """Metrics are open to this machine, as Prometheus expects; others need a key of either kind.

        Raises:
            ApiError: 401 or 403.
        """
        if is_local(headers, peer):
            return
        admin = self._table.admins.get(_digest(headers))
        if admin is None or self._over(admin.until_ns):
            self.api(headers, peer)

    def _over(self, until_ns: int | None) -> bool:
        return until_ns is not None and self._clock.wall_ns() >= until_ns


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


def _not_known(headers: HeaderMap, kind: str) -> ApiError:
    message = (
        f"That is not an {kind} of this gateway."
        if b"authorization" in headers
        else f"This needs an {kind}: send 'Authorization: Bearer KEY'."
    )
    return ApiError(401, message, type="invalid_request_error", code="invalid_api_key")


def _digest(headers: HeaderMap) -> bytes:
    """The hash of the key that was sent; empty, which is no hash, without one."""
    scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
    key = key.strip()
    if scheme.lower() != b"bearer" or not key or len(key) > _MAX_KEY_BYTES:
        return b""
    return hashlib.sha256(key).digest()


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
