"""One detector process as the gateway sees it: start, ask, kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence

import msgspec

from weighbridge.masking import wire
from weighbridge.masking.entities import Span, known
from weighbridge.masking.errors import MaskingRefused

COMMAND = (sys.executable, "-P", "-m", "weighbridge.masking.worker")
_START_LIMIT_S = 120.0
_REGEX_LIMIT_S = "86400"
# What an interpreter needs to find its libraries. Nothing else of ours goes into the child, no secret above all.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "TZ")


def child_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The child's whole environment."""
    kept = {name: own[name] for name in _PASSED_ON if name in own}
    # Presidio gives up on a slow pattern after this many seconds and goes on as if nothing had been found. We want
    # the opposite: the task overruns, is killed, and the request is refused.
    kept["REGEX_TIMEOUT_SECONDS"] = _REGEX_LIMIT_S
    kept["OMP_NUM_THREADS"] = "1"
    return kept


class ChildLost(Exception):
    """The process died, was late or answered nonsense. It must be killed; nothing it said counts."""


class DetectorChild:
    """A running process. Used by one task at a time."""

    def __init__(self, process: asyncio.subprocess.Process, ready: wire.Ready) -> None:
        self._process = process
        self._asked = 0
        self.ready = ready

    @property
    def pid(self) -> int:
        return self._process.pid

    @classmethod
    async def start(cls, setup: wire.Setup, command: Sequence[str] = COMMAND) -> DetectorChild:
        """Start the process and wait until its detectors are loaded.

        Raises:
            ChildLost: it could not be started, died, or was not ready in two minutes.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=child_environment(os.environ),
            )
        except OSError:
            raise ChildLost from None
        child = cls(process, wire.Ready(""))
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                ready = await child._exchange(setup)
            if not isinstance(ready, wire.Ready):
                raise ChildLost
        except TimeoutError:
            await child.kill()
            raise ChildLost from None
        except BaseException:
            await child.kill()
            raise
        child.ready = ready
        return child

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
        await self._process.wait()

    async def kill(self) -> None:
        """End the process now and wait for its end. Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await asyncio.shield(self._process.wait())

    async def _exchange(self, message: wire.Question) -> wire.Answer:
        sink, source = self._process.stdin, self._process.stdout
        if sink is None or source is None:
            raise ChildLost
        try:
            sink.write(wire.frame(message))
            await sink.drain()
            (length,) = wire.LENGTH.unpack(await source.readexactly(wire.LENGTH.size))
            if length > wire.MAX_FRAME:
                raise ChildLost
            return wire.answer(await source.readexactly(length))
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
