"""The `redis` section: where it may be, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.loading import load, wrong
from weighbridge.config.settings import RedisSettings, effective


def refused(tmp_path: Path, **fields: Any) -> list[str]:
    lines = wrong(tmp_path, overrides={"redis": fields})
    return [line.removeprefix("command line: redis.") for line in lines]


def test_there_is_none_unless_it_is_named(tmp_path: Path) -> None:
    assert load(tmp_path).redis.url is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://10.0.0.9",
        "redis://10.0.0.9:6379",
        "redis://redis.internal:6379/3",
        "rediss://gateway@redis.internal:6380/0",
        "redis://[fd00::9]:6379/0",
        "unix:///run/redis/redis.sock",
    ],
)
def test_where_it_may_be(url: str) -> None:
    assert RedisSettings(url=url).url == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://10.0.0.9", "must begin with redis://, rediss:// or unix://"),
        ("10.0.0.9:6379", "must begin with redis://, rediss:// or unix://"),
        ("redis://", "must name a host or an IP address"),
        ("redis://:secret@10.0.0.9", "must hold no password: use redis.password_file"),
        ("redis://me:secret@10.0.0.9", "must hold no password: use redis.password_file"),
        ("redis://10.0.0.9/0?ssl=no", "must hold no query (?) and no fragment (#)"),
        ("redis://10.0.0.9/zero", "must have nothing but a database's number behind the host"),
        ("redis://10.0.0.9/0/1", "must have nothing but a database's number behind the host"),
        ("redis://10.0.0.9:0/0", "must not name port 0"),
        ("redis://10.0.0.9:port", "is not a URL"),
        ("redis://10.0.0.9 /0", "must be plain ASCII without spaces or backslashes"),
        ("redis://한국:6379", "must be plain ASCII without spaces or backslashes"),
        ("unix://run/redis.sock", "must name a socket's whole path after unix://"),
        ("unix:///", "must name a socket's whole path after unix://"),
    ],
)
def test_where_it_may_not_be(tmp_path: Path, url: str, why: str) -> None:
    (line,) = refused(tmp_path, url=url)
    assert line == f"url: {why}"
    assert "secret" not in line


def test_the_password_is_read_from_its_file_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    settings = load(tmp_path, overrides={"redis": {"url": "redis://10.0.0.9", "password_file": str(file)}})
    assert settings.redis.password is not None and settings.redis.password.get_secret_value() == "s3cret"
    assert "s3cret" not in str(effective(settings)) + repr(settings)


def test_the_environment_may_give_the_password(tmp_path: Path) -> None:
    env = {"WEIGHBRIDGE_REDIS__URL": "redis://10.0.0.9", "WEIGHBRIDGE_REDIS__PASSWORD": "s3cret"}
    password = load(tmp_path, env=env).redis.password
    assert password is not None and password.get_secret_value() == "s3cret"
    (line,) = wrong(tmp_path, "redis:\n  url: redis://10.0.0.9\n  password: s3cret\n")
    assert "a secret must not stand in this file" in line and "s3cret" not in line


def test_what_does_not_go_together(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("x")
    url = "redis://10.0.0.9"
    assert refused(tmp_path, tls_ca_file=str(file)) == ["tls_ca_file: is of no use without redis.url"]
    assert refused(tmp_path, url=url, tls_ca_file=str(file)) == [
        "tls_ca_file: needs a redis.url that begins with rediss://"
    ]
    (line,) = refused(tmp_path, url=url, lease_s=1, operation_timeout_ms=200)
    assert line.startswith("operation_timeout_ms: must be below a sixth of lease_s (1 s)")
    (line,) = refused(tmp_path, url=url, key_prefix="{x}")
    assert line.startswith("key_prefix: must be text of 1 to 64 letters")
