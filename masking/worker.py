"""The detector process: `python -m weighbridge.masking.worker PID`, where PID is its parent's.

Started anew by the gateway, never forked from it, with an environment that holds no secret. It reads questions from
its standard input and answers on its standard output until the pipe closes or its parent is gone. A task that overruns
its limit is ended by the kernel's timer, even while a regular expression holds the interpreter.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from typing import BinaryIO

from weighbridge.masking import wire

_PARENT_CHECK_S = 0.5
_MARGIN_S = 1.0

# Presidio and spaCy import these when they happen to be installed: seconds and hundreds of megabytes for nothing.
_UNWANTED = (
    "cupy",
    "gliner",
    "jax",
    "langextract",
    "mxnet",
    "spacy_huggingface_pipelines",
    "stanza",
    "tensorflow",
    "torch",
    "transformers",
)


def main() -> None:
    # Told, not asked for: the parent may be gone before we get here.
    parent = int(sys.argv[1])
    # Ctrl-C goes to the whole terminal group; the gateway decides when its children end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    source, sink = _take_pipes()
    logging.disable()
    for name in _UNWANTED:
        sys.modules[name] = None  # type: ignore[assignment]
    _serve(source, sink)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_S)
    os._exit(0)


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for ourselves: what a library prints must not end up between the messages."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)
    return source, sink


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(wire.LENGTH.size)
    if len(head) < wire.LENGTH.size:
        return None
    (length,) = wire.LENGTH.unpack(head)
    body = source.read(length)
    return body if len(body) == length else None


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    first = _read(source)
    if first is None:
        return
    setup = wire.question(first)
    if not isinstance(setup, wire.Setup):
        raise SystemExit(2)
    from weighbridge.masking.detector import Detector

    detector = Detector(setup.layers, setup.options)
    _write(sink, wire.Ready(detector.version, detector.layers, detector.missing, detector.names))
    while (body := _read(source)) is not None:
        task = wire.question(body)
        if not isinstance(task, wire.Task):
            raise SystemExit(2)
        signal.setitimer(signal.ITIMER_REAL, task.limit_s + _MARGIN_S)
        try:
            reply: wire.Answer = wire.Found(task.id, [detector.find(text) for text in task.texts])
        except Exception as exc:  # whatever it is, the gateway refuses the request; the text stays here
            reply = wire.Failed(task.id, type(exc).__name__)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        _write(sink, reply)


def _write(sink: BinaryIO, message: wire.Answer) -> None:
    sink.write(wire.frame(message))
    sink.flush()


if __name__ == "__main__":
    main()
