"""The nursery: `python -m weighbridge.masking.nursery`, with one end of a `handing` line as its standard input.

It loads the detectors once and then forks a worker whenever the gateway asks for one, so that a worker that was killed
is back at once and all share the memory of what was loaded. Started anew by the gateway, never forked from it, with an
environment that holds no secret. It never sees a text.

It ends when the gateway does: by the kernel while it loads, and by the gateway's process file afterwards. Its workers
end with it, by the kernel again. It has a single thread, for only such a process can be forked and be whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import sys
from pathlib import Path
from typing import NoReturn, Protocol

from weighbridge.config.core_dumps import forbid_core_dumps
from weighbridge.masking import wire, worker
from weighbridge.masking.handing import Line

_PR_SET_PDEATHSIG = 1

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

# Libraries load dictionaries and number plans, and start their threads, when they are first used.
_WARM_UP = (
    "김민수 과장은 서울시 강남구에서 010-2345-6789, 02-345-6789 또는 kim@example.com으로 연락을 받습니다.",
    "Call John Smith of Example Ltd in London on +44 20 7946 0958 or 212-555-0142 after 3 May 2024.",
)


class SeveralThreads(Exception):
    """A layer has started a thread, which no forked worker would have."""


class _Detector(worker.Finder, Protocol):
    version: str
    layers: tuple[str, ...]
    missing: dict[str, str]
    names: frozenset[str]


def main() -> None:
    # Ctrl-C goes to the whole terminal group; the gateway decides when its children end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # A dump of a crashed worker would hold text.
    forbid_core_dumps()
    line = Line.of(os.dup(0))
    _silence()
    logging.disable()
    for name in _UNWANTED:
        sys.modules[name] = None  # type: ignore[assignment]
    first, files = line.receive()
    setup = wire.question(first) if first else None
    if not isinstance(setup, wire.Setup) or len(files) != 1:
        raise SystemExit(2)
    gateway = files[0]
    _end_with_parent(signal.SIGKILL)
    if _ended(gateway):
        return
    try:
        detector = _load(setup)
    except Exception as exc:  # told to whoever asks for a worker first; then another try starts from nothing
        _refuse(line, exc)
        return
    # The parent's end, to the kernel, is that of the thread that started us. From here on we look for ourselves.
    _end_with_parent(0)
    _Nursery(line, gateway, detector).run()


def _silence() -> None:
    """What a library prints must reach nobody."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    os.close(nothing)


def _end_with_parent(by: int) -> None:
    """Have the kernel send us this signal when our parent ends; 0 for none."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _ended(process: int) -> bool:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    return bool(poll.poll(0))


def _load(setup: wire.Setup) -> _Detector:
    from weighbridge.masking.detector import Detector

    detector = Detector(setup.layers, setup.options)
    for text in _WARM_UP:
        detector.find(text)
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise SeveralThreads
    # What is loaded stays: no collection of a worker's shall walk through it and so make it the worker's own memory.
    gc.collect()
    gc.freeze()
    return detector


def _refuse(line: Line, why: Exception) -> None:
    """Answer the next request with the reason, by class."""
    asked, files = line.receive()
    if asked:
        Line.of(files[-1]).send(wire.packed(wire.Failed(0, type(why).__name__)))


class _Nursery:
    def __init__(self, line: Line, gateway: int, detector: _Detector) -> None:
        self._line = line
        self._gateway = gateway
        self._detector = detector
        self._ready = wire.packed(
            wire.Ready(detector.version, detector.layers, detector.missing, detector.names)
        )
        self._own = os.getpid()
        self._workers: dict[int, int] = {}
        """Process ids by process file."""
        self._poll = select.poll()
        for descriptor in (line.fileno(), gateway):
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> None:
        """Serve until the gateway is gone."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._gateway:
                    return
                if descriptor == self._line.fileno():
                    asked, files = self._line.receive()
                    if not asked:
                        return
                    self._bear(*files)
                else:
                    self._bury(descriptor)

    def _bear(self, tasks: int, answers: int, reply: int) -> None:
        """Fork a worker with these pipe ends, and say so by `reply`, handing over its process file."""
        told = Line.of(reply)
        try:
            pid = os.fork()
            if pid == 0:
                self._work(tasks, answers)
            try:
                process = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            self._workers[process] = pid
            self._poll.register(process, select.POLLIN)
            told.send(self._ready, [process])
        except OSError as exc:
            # Whoever asked may be gone, and then its worker finds its pipe closed.
            with contextlib.suppress(OSError):
                told.send(wire.packed(wire.Failed(0, type(exc).__name__)))
        finally:
            told.close()
            os.close(tasks)
            os.close(answers)

    def _bury(self, process: int) -> None:
        os.waitpid(self._workers.pop(process), 0)
        self._poll.unregister(process)
        os.close(process)

    def _work(self, tasks: int, answers: int) -> NoReturn:
        """Be a worker. Never returns, whatever happens: this frame is the nursery's."""
        try:
            _end_with_parent(signal.SIGKILL)
            if os.getppid() == self._own:
                _close_all_but(tasks, answers)
                with open(tasks, "rb") as source, open(answers, "wb") as sink:
                    worker.serve(source, sink, self._detector)
        finally:
            os._exit(0)


def _close_all_but(*kept: int) -> None:
    """Other workers' files, the gateway's and the nursery's own must end when those do. The three standard ones lead
    nowhere. Works on bare numbers: the objects that own them stay untouched below us on the stack."""
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


if __name__ == "__main__":
    main()
