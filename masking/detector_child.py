"""One detector process as the gateway sees it: ask, kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from weighbridge.masking import wire
from weighbridge.masking.entities import Span, known
from weighbridge.masking.errors import MaskingRefused

_REGEX_LIMIT_S = "86400"
# What an interpreter needs to find its libraries. Nothing else of ours goes into the child, no secret above all.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "TZ")
# A library that computes with threads of its own would leave a forked worker without them.
_ONE_THREAD = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
)


def child_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of the nursery and its workers."""
    kept = {name: own[name] for name in _PASSED_ON if name in own}
    # Presidio gives up on a slow pattern after this many seconds and goes on as if nothing had been found. We want
    # the opposite: the task overruns, is killed, and the request is refused.
    kept["REGEX_TIMEOUT_SECONDS"] = _REGEX_LIMIT_S
    return kept | dict.fromkeys(_ONE_THREAD, "1")


class ChildLost(Exception):
    """The process died, was late, answered nonsense or could not be started. It must be killed; nothing it said counts.

    The message is empty or the class name of what kept it from starting.
    """


class DetectorChild:
    """A running process. Used by one task at a time, on the event loop that it was joined on."""

    def __init__(self, process: int, ready: wire.Ready) -> None:
        self._process = process
        self._ended = asyncio.Event()
        self._asked = 0
        self._answers = asyncio.StreamReader()
        self._tasks: asyncio.StreamWriter | None = None
        self._answering: asyncio.BaseTransport | None = None
        self.ready = ready
        asyncio.get_running_loop().add_reader(process, self._on_end)

    @classmethod
    async def join(cls, process: int, tasks: int, answers: int, ready: wire.Ready) -> DetectorChild:
        """Take over a worker.

        Args:
            process: its process file, by which it is killed and its end is seen, whatever its number becomes after.
            tasks, answers: our ends of its pipes. All three files are ours to close from now on.

        Raises:
            ChildLost: the pipes cannot be used; the process is killed.
        """
        child = cls(process, ready)
        source, sink = os.fdopen(answers, "rb", 0), os.fdopen(tasks, "wb", 0)
        try:
            loop = asyncio.get_running_loop()
            child._answering, _ = await loop.connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(child._answers), source
            )
            # A stream's protocol for its flow control; nothing is ever read from this end.
            writing, flow = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sink
            )
            child._tasks = asyncio.StreamWriter(writing, flow, None, loop)
        except BaseException as exc:
            await child.kill()
            source.close()
            sink.close()
            if isinstance(exc, OSError):
                raise ChildLost(type(exc).__name__) from None
            raise
        return child

    @property
    def pid(self) -> int:
        """Its number; -1 when it has ended."""
        if self._ended.is_set():
            return -1
        facts = Path(f"/proc/self/fdinfo/{self._process}").read_text(encoding="ascii")
        return int(facts.partition("Pid:")[2].split()[0])

    async def find(self, texts: Sequence[str], limit_s: float) -> list[list[Span]]:
        """The spans of each text.

        Raises:
            MaskingRefused: a detector raised; the process is sound.
            ChildLost: anything else, a cancelled call included, leaves the process unusable.
        """
        self._asked += 1
        task = wire.Task(self._asked, limit_s, tuple(texts))
        try:
            async with asyncio.timeout(limit_s):
                found = await self._exchange(task)
        except TimeoutError:
            raise ChildLost from None
        if isinstance(found, wire.Failed) and found.id == task.id:
            raise MaskingRefused("detector_failed")
        if not isinstance(found, wire.Found) or found.id != task.id or not _plausible(texts, found.spans):
            raise ChildLost
        return found.spans

    async def gone(self) -> None:
        """Returns when the process has ended."""
        await self._ended.wait()

    async def kill(self) -> None:
        """End the process now and wait for its end. Idempotent."""
        if self._answering is not None:
            self._answering.close()
        # One whose process died is closed already.
        if self._tasks is not None and not self._tasks.is_closing():
            self._tasks.transport.abort()
        if not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
        await self._ended.wait()

    def _on_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process)
        os.close(self._process)
        self._ended.set()

    async def _exchange(self, message: wire.Question) -> wire.Answer:
        if self._tasks is None:
            raise ChildLost
        try:
            self._tasks.write(wire.frame(message))
            await self._tasks.drain()
            (length,) = wire.LENGTH.unpack(await self._answers.readexactly(wire.LENGTH.size))
            if length > wire.MAX_FRAME:
                raise ChildLost
            return wire.answer(await self._answers.readexactly(length))
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError):
            raise ChildLost from None


def _plausible(texts: Sequence[str], spans: Sequence[Sequence[Span]]) -> bool:
    """Whether there is one list for each text, ordered, without overlap, inside the text and of known types."""
    if len(spans) != len(texts):
        return False
    for text, found in zip(texts, spans, strict=True):
        last = 0
        for start, end, entity in found:
            if not (last <= start < end <= len(text) and known(entity)):
                return False
            last = end
    return True
