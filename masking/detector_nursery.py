"""The nursery as the gateway sees it: started when a worker is wanted, asked for workers, started anew when it dies."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec

from weighbridge.masking import wire
from weighbridge.masking.detector_child import ChildLost, DetectorChild, child_environment
from weighbridge.masking.handing import Line

COMMAND = (sys.executable, "-P", "-m", "weighbridge.masking.nursery")
_START_LIMIT_S = 120.0
_FORK_LIMIT_S = 10.0
"""Seconds for the first worker, loading included, and for each later one. A fork takes some hundredths."""


class _Running:
    """One run of the nursery. Raises OSError when it cannot be started."""

    def __init__(self, setup: wire.Setup, command: Sequence[str]) -> None:
        self.line, theirs = Line.pair()
        self.has_loaded = False
        try:
            # Sent before there is anybody to read it: a nursery whose gateway dies at once still learns whose it was.
            own = os.pidfd_open(os.getpid())
            try:
                self.line.send(wire.packed(setup), [own])
            finally:
                os.close(own)
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=child_environment(os.environ),
            )
        except BaseException:
            self.line.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def lives(self) -> bool:
        return self._process.poll() is None

    async def end(self) -> None:
        """Kill it, and so its workers, and wait for its end. Idempotent."""
        self._process.kill()
        self.line.close()
        # In a thread, for a large process takes tens of milliseconds to go.
        await asyncio.shield(asyncio.to_thread(self._process.wait))


class DetectorNursery:
    """Starts workers. Belongs to no event loop, so that several gateways in one process may share one.

    Args:
        setup: what the detectors are told.
        command: tests pass their own.
        start_limit_s: seconds a worker may take that has to wait for the loading.
    """

    def __init__(
        self,
        setup: wire.Setup,
        command: Sequence[str] = COMMAND,
        *,
        start_limit_s: float = _START_LIMIT_S,
        fork_limit_s: float = _FORK_LIMIT_S,
    ) -> None:
        self._setup = setup
        self._command = command
        self._start_limit_s = start_limit_s
        self._fork_limit_s = fork_limit_s
        self._running: _Running | None = None

    @property
    def pid(self) -> int:
        """Of the nursery's process; -1 when none runs."""
        return self._running.pid if self._running is not None and self._running.lives() else -1

    async def start_child(self) -> DetectorChild:
        """A new worker. Starts the nursery if it is not there.

        Raises:
            ChildLost: there is none; the message is the class of what was in the way.
        """
        with ExitStack() as opened:
            try:
                reply, told = Line.pair()
                opened.callback(reply.close)
                with ExitStack() as theirs:
                    theirs.callback(told.close)
                    tasks, answers = _pipe(theirs, opened), _pipe(opened, theirs)
                    running = await self._ask([tasks[0], answers[1], told.fileno()])
            except OSError as exc:
                raise ChildLost(type(exc).__name__) from None
            ready, process = await self._answer(running, reply)
            opened.pop_all()
            reply.close()
        return await DetectorChild.join(process, tasks[1], answers[0], ready)

    async def close(self) -> None:
        """End the nursery and its workers. Idempotent; a later `start_child` starts it anew."""
        if self._running is not None:
            await self._drop(self._running)

    async def _ask(self, files: list[int]) -> _Running:
        for _ in range(2):
            running = self._running
            if running is None or not running.lives():
                running = await self._start_anew(running)
            try:
                running.line.send(wire.FORK, files)
            except ConnectionError:
                # It is dying, and its parent has not been told yet.
                await self._drop(running)
            else:
                return running
        raise ChildLost("BrokenPipeError")

    async def _start_anew(self, last: _Running | None) -> _Running:
        if last is not None:
            await self._drop(last)
        # Somebody else may have been here during the wait.
        if self._running is None:
            self._running = _Running(self._setup, self._command)
        return self._running

    async def _drop(self, running: _Running) -> None:
        if self._running is running:
            self._running = None
        await running.end()

    async def _answer(self, running: _Running, reply: Line) -> tuple[wire.Ready, int]:
        limit_s = self._fork_limit_s if running.has_loaded else self._start_limit_s
        try:
            async with asyncio.timeout(limit_s):
                await _readable(reply.fileno())
        except TimeoutError:
            await self._drop(running)
            raise ChildLost("TimeoutError") from None
        files: list[int] = []
        try:
            message, files = reply.receive()
            answer = wire.answer(message) if message else None
        except (OSError, msgspec.MsgspecError):
            answer = None
        if isinstance(answer, wire.Ready) and len(files) == 1:
            running.has_loaded = True
            return answer, files[0]
        for file in files:
            os.close(file)
        # It may go on only when it has loaded and says itself that this one fork went wrong.
        if not running.has_loaded or not isinstance(answer, wire.Failed):
            await self._drop(running)
        raise ChildLost(answer.error if isinstance(answer, wire.Failed) else "EOFError")


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[int, int]:
    """A pipe whose ends these two stacks close."""
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    seen = asyncio.Event()
    loop.add_reader(descriptor, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(descriptor)
