"""The `redis` section of the settings: what several gateways share, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, model_validator

from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN, Count, ExistingFile, Real, Secret, host_name
from weighbridge.config.problems import wrong
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

_SCHEMES: Final = ("redis", "rediss", "unix")


def redis_url(url: str) -> str:
    """Where a Redis is: `redis://host:6379/0`, with TLS `rediss://`, or `unix:///path/to/socket`.

    Raises:
        ValueError: something else, or with a password.
    """
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise ValueError("must be plain ASCII without spaces or backslashes")
    try:
        parts = urlsplit(url)
        port_is_wrong = parts.port == 0
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme not in _SCHEMES:
        raise ValueError("must begin with redis://, rediss:// or unix://")
    if parts.password is not None:
        raise ValueError("must hold no password: use redis.password_file")
    if "?" in url or "#" in url:
        raise ValueError("must hold no query (?) and no fragment (#)")
    if parts.scheme == "unix":
        if not parts.path.startswith("/") or parts.path == "/" or parts.hostname:
            raise ValueError("must name a socket's whole path after unix://")
        return url
    host = unquote(parts.hostname or "")
    try:
        host_name(host)
    except ValueError:
        raise ValueError("must name a host or an IP address") from None
    if port_is_wrong:
        raise ValueError("must not name port 0")
    number = parts.path.removeprefix("/")
    if number and not (number.isdecimal() and len(number) <= 4):
        raise ValueError("must have nothing but a database's number behind the host")
    return url


class RedisSettings(Section):
    """The Redis that several gateways share."""

    url: Annotated[str, AfterValidator(redis_url)] | None = shipped(
        "redis.url",
        "Redis 7 that several gateways share, such as `redis://10.0.0.9:6379/0`; `rediss://` for TLS, a user name may "
        "stand before the host. Null: every gateway counts for itself.",
        legal="a redis://, rediss:// or unix:// URL",
    )
    password: Secret | None = Field(
        default=None, description="Password of that Redis. Environment only; in files use `password_file`."
    )
    password_file: Path | None = shipped("redis.password_file", "File that holds the password of that Redis.")
    tls_ca_file: ExistingFile | None = shipped(
        "redis.tls_ca_file",
        "PEM certificates of those who may vouch for that Redis, with `rediss://`. Null: those the system trusts.",
    )
    key_prefix: str = shipped(
        "redis.key_prefix",
        "Name of this deployment; every key begins with it. Gateways that share limits give the same one.",
        legal=NAME_LEGAL,
        pattern=NAME_PATTERN,
    )
    connect_timeout_ms: Count = shipped(
        "redis.connect_timeout_ms",
        "Milliseconds to connect, TLS and password included; no request waits for it.",
        ge=10,
        le=60_000,
    )
    operation_timeout_ms: Count = shipped(
        "redis.operation_timeout_ms",
        "Milliseconds that Redis may take to answer. The first answer that takes longer makes it count as away: then "
        "each gateway goes on with its own share of the limits.",
        ge=1,
        le=10_000,
    )
    lease_s: Real = shipped(
        "redis.lease_s",
        "Seconds after which what a gateway holds comes back to the others when it says nothing more. It is renewed "
        "three times in that time.",
        ge=0.5,
        le=600,
    )
    replicas: Count = shipped(
        "redis.replicas",
        "Gateways that share the limits, assumed while Redis has never been there since the start; afterwards the last "
        "known number counts.",
        ge=1,
        le=1000,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> RedisSettings:
        fill_secret(self, "password", "password_file")
        if self.url is None:
            for field in ("password", "tls_ca_file"):
                if getattr(self, field) is not None:
                    raise wrong(field, "is of no use without redis.url")
        elif self.tls_ca_file is not None and not self.url.startswith("rediss://"):
            raise wrong("tls_ca_file", "needs a redis.url that begins with rediss://")
        if self.operation_timeout_ms >= self.lease_s * 1000 / 6:
            raise wrong(
                "operation_timeout_ms",
                f"must be below a sixth of lease_s ({self.lease_s:g} s), so that a lease is renewed in time",
            )
        return self
