"""One gateway per spool: a lock that the kernel drops when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path

from weighbridge.config.errors import ConfigError
from weighbridge.observability.sqlite_file import DatabaseUnusable


class SpoolBusy(ConfigError):
    """Another gateway, or this one a second time, has the spool open. `str()` is one line."""


class SpoolLock:
    """An exclusive `flock` on a file beside the spool; the file holds the owner's process id for people to read."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _held.add(self)

    @classmethod
    def take(cls, spool: Path) -> SpoolLock:
        """Take the lock for `spool` without waiting.

        Raises:
            SpoolBusy: somebody holds it.
            DatabaseUnusable: the lock file cannot be made.
        """
        path = spool.with_name(spool.name + ".lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise DatabaseUnusable(f"{path}: cannot be opened ({exc.strerror})") from exc
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            by = f"process {owner}" if owner.isdigit() else "another process"
            raise SpoolBusy(f"{spool}: the usage ledger is in use by {by}") from None
        except OSError as exc:
            os.close(fd)
            raise DatabaseUnusable(f"{path}: cannot be locked ({exc.strerror})") from exc
        return cls(fd)

    def release(self) -> None:
        """Let go of the lock. Idempotent. The file stays: removing it would race with the next owner."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[SpoolLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    # A forked child shares the lock. If it outlives a killed gateway, the next start would find the spool busy.
    for lock in tuple(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_in_child)
