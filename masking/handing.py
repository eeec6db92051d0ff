"""Handing open files from one process to another. The one module of this room with a socket in it: a pair of ends that
are joined when they are made, and nothing that could connect to anything."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Sequence

_LONGEST = 64 * 1024
_MOST_FILES = 8


class Line:
    """One end of a pair. A message arrives whole, together with the files handed over with it, or not at all."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Line, Line]:
        """Two joined ends. The first one never waits; the second does, and is for the other process.

        Raises:
            OSError: too many open files.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        return cls(ours), cls(theirs)

    @classmethod
    def of(cls, descriptor: int) -> Line:
        """The end that this descriptor is; closing the line closes it."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, message: bytes, files: Sequence[int] = ()) -> None:
        """The files stay open here.

        Raises:
            OSError: the other side is gone, or reads nothing.
        """
        socket.send_fds(self._end, [message], list(files))

    def receive(self) -> tuple[bytes, list[int]]:
        """A message and its files, which no program started from here inherits; no bytes: the other side is gone.

        Raises:
            OSError: nothing is there yet, or the end is broken.
        """
        # Python's own recv_fds ignores the flag that keeps them from being inherited.
        room = socket.CMSG_LEN(_MOST_FILES * array("i").itemsize)
        message, further, _, _ = self._end.recvmsg(_LONGEST, room, socket.MSG_CMSG_CLOEXEC)
        files = array("i")
        for level, kind, data in further:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
        return message, list(files)

    def close(self) -> None:
        """Idempotent."""
        self._end.close()
