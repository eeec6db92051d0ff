"""The secret that placeholders, the hashes of the egress record, its chain and the audit log's derive from.

It comes from the settings, or from a file in the state folder that the first start makes. Either holds one secret a
line: the first is the one in use, the others are older ones, kept only to prove what was recorded under them.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from weighbridge.config.errors import ConfigError
from weighbridge.config.legal import read_secret
from weighbridge.config.masking_section import MaskingSettings, check_masking_secrets
from weighbridge.masking.vault import derive_key

log = logging.getLogger("weighbridge.masking")

SECRET_FILE = "masking.secret"  # noqa: S105  (a name)
"""Its name in the state folder."""

_CHAIN = "egress chain"
_AUDIT = "audit chain"


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secret in use and older ones.

    Args:
        current: what new keys derive from.
        old: what older records were made under, the latest first.
    """

    current: bytes = field(repr=False)
    old: tuple[bytes, ...] = field(default=(), repr=False)

    @classmethod
    def random(cls) -> Secrets:
        """One that ends with this process: its placeholders and records mean nothing to the next one."""
        return cls(secrets.token_bytes(32))

    @classmethod
    def of(cls, text: SecretStr) -> Secrets:
        """From a checked setting."""
        first, *old = dict.fromkeys(line.encode() for line in text.get_secret_value().split("\n"))
        return cls(first, tuple(old))

    def chain_keys(self) -> tuple[bytes, ...]:
        """Keys of the egress chain: the one new rows are signed with, then those of the older secrets."""
        return tuple(derive_key(secret, _CHAIN) for secret in (self.current, *self.old))

    def audit_keys(self) -> tuple[bytes, ...]:
        """The same for the chain of the audit log."""
        return tuple(derive_key(secret, _AUDIT) for secret in (self.current, *self.old))


def find_secrets(settings: MaskingSettings, folder: Path) -> Secrets | None:
    """The secrets of the settings, else those in the state folder `folder`, else None. Makes nothing.

    Raises:
        ConfigError: the file in the state folder cannot be read or holds no usable secret.
    """
    if settings.secret is not None:
        if settings.secret_file is not None:
            _warn_if_open(settings.secret_file.expanduser(), stat.S_IROTH)
        return Secrets.of(settings.secret)
    path = folder / SECRET_FILE
    if not os.path.lexists(path):
        return None
    _warn_if_open(path, stat.S_IRWXG | stat.S_IRWXO)
    try:
        return Secrets.of(read_secret(path, check_masking_secrets))
    except ValueError as exc:
        raise ConfigError(str(exc)) from None


def obtain_secrets(settings: MaskingSettings, folder: Path) -> Secrets:
    """As `find_secrets`; where there is none, one is made once and kept in the state folder.

    Raises:
        ConfigError: see `find_secrets`, or the file cannot be made.
    """
    found = find_secrets(settings, folder)
    if found is not None:
        return found
    path = folder / SECRET_FILE
    try:
        made = _make(path)
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be made ({exc.strerror})") from None
    if made:
        log.warning(
            "made a masking secret in %s: keep it, and give other replicas the same one (masking.secret_file)",
            path,
        )
    found = find_secrets(settings, folder)
    if found is None:
        raise ConfigError(f"{path}: was taken away while the gateway started")
    return found


def _make(path: Path) -> bool:
    """Whether this call made the file. It is there whole or not at all, and an existing one stays."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(fd, 0o600)
            os.write(fd, f"{secrets.token_urlsafe(32)}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.link(fresh, path)  # unlike a rename this replaces nothing
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _warn_if_open(path: Path, to_others: int) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # whoever reads it says so
    if mode & to_others:
        log.warning("%s has mode %04o: others can read the masking secret", path, mode)
