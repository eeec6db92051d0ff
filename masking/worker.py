"""What a detector process does all its life: it reads tasks and answers them, until its pipe closes.

A task that overruns its limit is ended by the kernel's timer, even while a regular expression holds the interpreter.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import BinaryIO, Protocol

from weighbridge.masking import wire
from weighbridge.masking.entities import Span

_MARGIN_S = 1.0


class Finder(Protocol):
    """What the worker needs of a `Detector`."""

    def find(self, text: str) -> Sequence[Span]: ...


def serve(source: BinaryIO, sink: BinaryIO, detector: Finder) -> None:
    """Answer tasks until `source` ends. Raises SystemExit on what is no task."""
    while (body := _read(source)) is not None:
        task = wire.question(body)
        if not isinstance(task, wire.Task):
            raise SystemExit(2)
        signal.setitimer(signal.ITIMER_REAL, task.limit_s + _MARGIN_S)
        try:
            reply: wire.Answer = wire.Found(task.id, [list(detector.find(text)) for text in task.texts])
        except Exception as exc:  # whatever it is, the gateway refuses the request; the text stays here
            reply = wire.Failed(task.id, type(exc).__name__)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        sink.write(wire.frame(reply))
        sink.flush()


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(wire.LENGTH.size)
    if len(head) < wire.LENGTH.size:
        return None
    (length,) = wire.LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None
