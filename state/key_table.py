"""Who may call, by the SHA-256 of the key, in memory: the keys of the settings and those made over the admin API."""

from __future__ import annotations

from dataclasses import dataclass, field

from weighbridge.config.roads import ROADS, Road
from weighbridge.config.roles import Role
from weighbridge.config.settings import AuthSettings


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request it is, and what the key may.

    Args:
        key_id, tenant: names for policy and records.
        barred: roads that the key may not use, whatever the policy says.
        parallel: requests it may have under way at once; None leaves it to the settings.
        until_ns: when the key ends, UTC nanoseconds; None is never.
    """

    key_id: str
    tenant: str
    barred: frozenset[Road] = frozenset()
    parallel: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Admin:
    """Whose admin key it is, and what it may. The arguments are those of `Caller`."""

    key_id: str
    role: Role
    until_ns: int | None = None


def barred_beside(roads: tuple[Road, ...] | None) -> frozenset[Road]:
    """The roads that a key with these does not have; None has all."""
    return frozenset() if roads is None else frozenset(ROADS).difference(roads)


@dataclass(slots=True)
class KeyTable:
    """Looked up at every request and changed in place, one entry at a time, so that no request sees half a change.

    Args:
        callers, admins: by the 32 bytes of the key's hash.
        keyed: there is an API key, or there was one: the last that ends must not open the gateway.
        admin_keyed: the same for admin keys.
    """

    callers: dict[bytes, Caller] = field(default_factory=dict, repr=False)
    admins: dict[bytes, Admin] = field(default_factory=dict, repr=False)
    keyed: bool = False
    admin_keyed: bool = False

    @classmethod
    def of(cls, settings: AuthSettings) -> KeyTable:
        """The keys of the settings."""
        return cls(
            {key.digest: Caller(key.id, key.tenant) for key in settings.keys},
            {key.digest: Admin(key.id, key.role) for key in settings.admin_keys},
            bool(settings.keys),
            bool(settings.admin_keys),
        )
