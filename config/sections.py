"""The sections of the settings. Every default comes from `defaults.yaml`, every legal value is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from weighbridge.config.legal import (
    NAME_LEGAL,
    NAME_PATTERN,
    AnyPath,
    Count,
    ExistingFile,
    Real,
)
from weighbridge.config.problems import wrong
from weighbridge.config.roles import Role
from weighbridge.config.section import Section
from weighbridge.config.shipped import shipped

SHA256_LEGAL = "the SHA-256 of the key as 64 hexadecimal digits"


class ServerSettings(Section):
    """The HTTP server."""

    host: str = shipped(
        "server.host",
        "Address to listen on. Anything but loopback needs `auth.keys`, or `auth.admin_keys` to make keys with.",
        legal="a host name or an IP address",
        pattern=r"^[A-Za-z0-9.:_-]{1,255}$",
    )
    port: Count = shipped("server.port", "TCP port; 0 takes any free one.", ge=0, le=65535)
    max_body_bytes: Count = shipped(
        "server.max_body_bytes", "Largest request body, in bytes; a larger one gets 413.", ge=1024, le=1 << 30
    )
    max_bodies_bytes: Count = shipped(
        "server.max_bodies_bytes",
        "Bytes of request bodies held at once, those up to 64 KiB not counted; one more gets 503. Never below "
        "`max_body_bytes`.",
        ge=1024,
        le=1 << 40,
    )
    max_concurrent_requests: Count = shipped(
        "server.max_concurrent_requests",
        "Completion requests under way at once, queueing included; one more gets 503.",
        ge=1,
        le=1_000_000,
    )
    max_concurrent_per_key: Count = shipped(
        "server.max_concurrent_per_key",
        "The same for one API key; one more gets 429.",
        ge=1,
        le=1_000_000,
    )
    max_connections: Count = shipped(
        "server.max_connections",
        "Connections at once; one more gets 503 and is closed. Fewer where the system allows fewer open files.",
        ge=1,
        le=1_000_000,
    )
    drain_timeout_s: Real = shipped(
        "server.drain_timeout_s",
        "Seconds that answers under way get to finish when the gateway is told to stop.",
        ge=0,
        le=3600,
    )
    request_timeout_s: Real = shipped(
        "server.request_timeout_s", "Seconds a request may take in all, queueing included.", gt=0, le=86400
    )
    slow_reader_timeout_s: Real = shipped(
        "server.slow_reader_timeout_s",
        "Seconds a caller may leave an answer unread before the request is aborted and recorded.",
        gt=0,
        le=3600,
    )
    keep_alive_comment_s: Real = shipped(
        "server.keep_alive_comment_s",
        "Seconds without an event after which a stream gets a comment line, so that nothing on the way thinks it dead.",
        gt=0,
        le=3600,
    )
    tls_certfile: ExistingFile | None = shipped(
        "server.tls_certfile", "PEM certificate chain. Both TLS files or neither."
    )
    tls_keyfile: ExistingFile | None = shipped("server.tls_keyfile", "PEM private key of the certificate.")

    @model_validator(mode="after")
    def _tls_whole(self) -> ServerSettings:
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            given, absent = ("tls_certfile", "tls_keyfile")
            if self.tls_certfile is None:
                given, absent = absent, given
            raise wrong(given, f"needs server.{absent} as well: TLS takes both files or neither")
        return self


class _Key(Section):
    """What every key has."""

    id: str = Field(
        description="Name of the key in records and logs.",
        pattern=NAME_PATTERN,
        json_schema_extra={"legal": NAME_LEGAL},
    )
    sha256: str = Field(
        description="SHA-256 of the key, as 64 hexadecimal digits. The key itself is stored nowhere.",
        pattern=r"^[0-9A-Fa-f]{64}$",
        json_schema_extra={"legal": SHA256_LEGAL, "hidden": True},
    )

    @property
    def digest(self) -> bytes:
        """The 32 bytes of the hash."""
        return bytes.fromhex(self.sha256)


class AdminKey(_Key):
    """A key for the admin API."""

    role: Role = Field(
        default="admin",
        description="What the key may do: `viewer` sees state, policies, usage and savings, `auditor` the records as "
        "well, `operator` changes policies and throws the kill switch, `admin` everything.",
    )


class ApiKey(_Key):
    """A key for the completions API, and whose it is."""

    tenant: str = Field(
        default="default",
        description="Tenant of the key; the policy's tenant rules and the usage records go by it.",
        pattern=NAME_PATTERN,
        json_schema_extra={"legal": NAME_LEGAL},
    )


class AuthSettings(Section):
    """Who may call."""

    keys: tuple[ApiKey, ...] = shipped(
        "auth.keys",
        "API keys, beside those made over the admin API. As long as there is no key of either kind, the gateway takes "
        "every caller of this machine and no other.",
    )
    admin_keys: tuple[AdminKey, ...] = shipped(
        "auth.admin_keys",
        "Keys of the admin API, apart from the others, beside those made over the admin API.",
    )

    @model_validator(mode="after")
    def _all_different(self) -> AuthSettings:
        _different("keys", self.keys)
        _different("admin_keys", self.admin_keys)
        ordinary = {key.digest for key in self.keys}
        for n, key in enumerate(self.admin_keys):
            if key.digest in ordinary:
                raise wrong(f"admin_keys.{n}.sha256", "an admin key must not be an API key as well")
        return self


def _different(field: str, keys: Sequence[_Key]) -> None:
    ids: set[str] = set()
    digests: set[bytes] = set()
    for n, key in enumerate(keys):
        if key.id in ids:
            raise wrong(f"{field}.{n}.id", "this id is given twice")
        if key.digest in digests:
            raise wrong(f"{field}.{n}.sha256", "this key is given twice")
        ids.add(key.id)
        digests.add(key.digest)


class PoolSettings(Section):
    """Starting, watching, replacing and stopping the workers of the local tiers."""

    start_timeout_s: Real = shipped(
        "pool.start_timeout_s", "Seconds a worker may take to load its model and warm up.", gt=0, le=86400
    )
    close_grace_s: Real = shipped(
        "pool.close_grace_s", "Seconds an engine gets to end by itself before it is killed.", ge=0, le=600
    )
    probe_interval_s: Real = shipped(
        "pool.probe_interval_s", "Seconds between two probes of a worker.", ge=0.05, le=3600
    )
    probe_timeout_s: Real = shipped(
        "pool.probe_timeout_s", "Seconds after which a probe without an answer has failed.", gt=0, le=600
    )
    probe_failures: Count = shipped(
        "pool.probe_failures",
        "Probes in a row that must fail, with no token made in between, before a worker is replaced.",
        ge=1,
        le=1000,
    )
    progress_timeout_s: Real = shipped(
        "pool.progress_timeout_s",
        "Seconds a worker with work at hand may make no token before it is replaced.",
        gt=0,
        le=86400,
    )
    restart_backoff_s: Real = shipped(
        "pool.restart_backoff_s",
        "Seconds before the first restart of a worker; doubled for each one that follows.",
        ge=0,
        le=3600,
    )
    restart_backoff_max_s: Real = shipped(
        "pool.restart_backoff_max_s", "The most seconds before a restart.", ge=0, le=86400
    )
    max_restarts: Count = shipped(
        "pool.max_restarts",
        "Restarts of a worker within `restart_window_s`; when it needs one more, it is given up.",
        ge=0,
        le=10_000,
    )
    restart_window_s: Real = shipped(
        "pool.restart_window_s", "Seconds over which restarts are counted.", gt=0, le=604_800
    )
    continue_wait_s: Real = shipped(
        "pool.continue_wait_s",
        "Seconds a stream whose worker was lost waits for another one to go on with it.",
        ge=0,
        le=3600,
    )

    @model_validator(mode="after")
    def _in_order(self) -> PoolSettings:
        if self.restart_backoff_max_s < self.restart_backoff_s:
            raise wrong(
                "restart_backoff_max_s", f"must not be below restart_backoff_s ({self.restart_backoff_s:g})"
            )
        return self


class PolicySettings(Section):
    """Which routing policy is in force."""

    file: AnyPath | None = shipped("policies.file", "Policy file. Null: the shipped policy called `name`.")
    name: Literal["default", "on-prem-only"] = shipped(
        "policies.name", "Shipped policy used when there is no `file`."
    )
    max_egress: Literal["masked", "never"] = shipped(
        "policies.max_egress",
        "The most that any policy may let out. `never`: a policy of `egress: masked` is refused, be it the file or an "
        "admin's.",
    )
    poll_interval_s: Real = shipped(
        "policies.poll_interval_s",
        "Seconds between two looks at the policy file; a change is in force after it was read the same twice.",
        ge=0.05,
        le=3600,
    )


class PriceSettings(Section):
    """What things cost."""

    file: AnyPath | None = shipped(
        "prices.file",
        "Price book: token prices and GPU costs by date. Null: the shipped example, whose figures are not yours.",
    )


class LedgerSettings(Section):
    """The usage records."""

    retention_days: Real | None = shipped(
        "ledger.retention_days",
        "Days a request's record is kept after its end. Sums and egress records stay. Null: keep everything.",
        gt=0,
        le=36_500,
    )
