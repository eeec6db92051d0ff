"""The detector processes and the queue before them. Whatever goes wrong here is a refusal."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from weighbridge.config.deadline import Deadline
from weighbridge.config.offload import MASKING
from weighbridge.masking.detector_child import ChildLost
from weighbridge.masking.entities import Span
from weighbridge.masking.errors import MaskingRefused, Reason
from weighbridge.masking.slices import TEXT_COST, Piece, Slice, cost, cut, unite
from weighbridge.masking.wire import Ready

log = logging.getLogger(__name__)

_INLINE_COST = 32_000
"""What a request costs, in characters, up to which its texts are cut up and its spans united on the event loop."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0


class Child(Protocol):
    """What the pool needs of a `DetectorChild`."""

    ready: Ready

    async def find(self, texts: Sequence[str], limit_s: float) -> list[list[Span]]: ...
    async def gone(self) -> None: ...
    async def kill(self) -> None: ...


Found = tuple[Piece, list[Span]]
"""A piece of a text and what was found in it."""


class _Job:
    __slots__ = ("_found", "_unanswered", "cost", "found", "owner", "slices")

    def __init__(self, slices: list[Slice], owner: str, found: asyncio.Future[list[Found]]) -> None:
        self._found: list[Found] = []
        self.owner = owner
        self.found = found
        self.slices = slices[::-1]
        self._unanswered = len(self.slices)
        self.cost = sum(map(cost, self.slices))

    def take(self, part: Slice, spans: list[list[Span]]) -> None:
        """What was found in a slice; after the last one the job is done."""
        self._found.extend(zip(part, spans, strict=True))
        self._unanswered -= 1
        if not self._unanswered and not self.found.done():
            self.found.set_result(self._found)

    def refuse(self, reason: Reason) -> None:
        if not self.found.done():
            self.found.set_exception(MaskingRefused(reason))


class DetectorPool:
    """Keeps `workers` processes alive and hands them texts, a slice at a time.

    The next slice is one of the owner who has had the least since its requests began to wait; of one owner's requests
    the smallest goes first. So a large request holds a process for one slice, and neither it nor its owner keeps
    others waiting for more.

    Args:
        start_child: starts one process; raises ChildLost.
        workers: number of processes.
        max_queue: requests that may wait for a process. One more takes the place of the largest, or is refused.
        task_timeout_s: seconds one task may take, waiting included; a process that takes longer is killed.
    """

    def __init__(
        self,
        start_child: Callable[[], Coroutine[Any, Any, Child]],
        *,
        workers: int,
        max_queue: int,
        task_timeout_s: float,
    ) -> None:
        self._start_child = start_child
        self._workers = workers
        self._max_queue = max_queue
        self._limit_s = task_timeout_s
        self._jobs: list[_Job] = []
        self._served: Counter[str] = Counter()
        self._arrived = asyncio.Event()
        self._live = 0
        self._hopeful = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._first_try = asyncio.Event()
        self.about = Ready("")
        """What the process started last said of itself."""

    @property
    def ready(self) -> bool:
        """Whether a process is up with its detectors loaded."""
        return self._live > 0

    async def start(self) -> None:
        """Start the processes; returns when the first one is ready or could not be started. Never raises: without
        detectors the gateway serves on and refuses what would leave; starting is tried again in the background."""
        self._hopeful = self._workers
        for number in range(self._workers):
            self._tasks.append(asyncio.create_task(self._keep_alive(), name=f"masking-{number}"))
        await self._first_try.wait()

    async def close(self) -> None:
        """End every process; what waits is refused. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._live = self._hopeful = 0
        self._refuse_all()

    async def find(self, texts: Sequence[str], deadline: Deadline, *, owner: str = "") -> list[list[Span]]:
        """For each text its merged spans. `owner` is who shares fairly with others.

        Raises:
            MaskingRefused: `overloaded`, `timeout` or `detector_failed`.
        """
        long = sum(map(len, texts)) + len(texts) * TEXT_COST > _INLINE_COST
        slices = await MASKING.run(cut, texts) if long else cut(texts)
        found = await self._find(_Job(slices, owner, asyncio.get_running_loop().create_future()), deadline)
        return await MASKING.run(unite, len(texts), found) if long else unite(len(texts), found)

    async def _find(self, job: _Job, deadline: Deadline) -> list[Found]:
        if not self._live and not self._hopeful:
            raise MaskingRefused("detector_failed")
        if len(self._jobs) >= self._max_queue:
            largest = max(self._jobs, key=lambda held: held.cost, default=job)
            if largest.cost <= job.cost:
                raise MaskingRefused("overloaded")
            self._jobs.remove(largest)
            largest.refuse("overloaded")
        self._jobs.append(job)
        self._arrived.set()
        try:
            async with asyncio.timeout(min(self._limit_s, deadline.remaining())):
                return await job.found
        except TimeoutError:
            raise MaskingRefused("timeout") from None
        finally:
            job.slices.clear()
            if job in self._jobs:
                self._jobs.remove(job)
            self._forget(job.owner)

    def _forget(self, owner: str) -> None:
        if all(job.owner != owner for job in self._jobs):
            del self._served[owner]

    def _refuse_all(self) -> None:
        while self._jobs:
            self._jobs.pop().refuse("detector_failed")

    async def _keep_alive(self) -> None:
        pause = _FIRST_PAUSE_S
        hopeful = True
        while True:
            try:
                child = await self._start_child()
            except ChildLost:
                log.error("a masking process could not be started; next try in %.1f s", pause)
                if hopeful:
                    hopeful = False
                    self._hopeful -= 1
                if not self._live and not self._hopeful:
                    self._refuse_all()
                self._first_try.set()
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            if not hopeful:
                hopeful = True
                self._hopeful += 1
            pause = _FIRST_PAUSE_S
            self._live += 1
            self.about = child.ready
            self._first_try.set()
            try:
                await self._serve(child)
            except Exception as exc:  # a fault of ours must not end the keeping of detectors
                log.error("masking: %s while a process was served", type(exc).__name__)
            finally:
                self._live -= 1
                await child.kill()
            log.warning("a masking process was lost; starting another")

    async def _serve(self, child: Child) -> None:
        """Work with `child` until it is lost."""
        gone = asyncio.ensure_future(child.gone())
        try:
            while True:
                job = await self._next(gone)
                if job is None:
                    return
                part = job.slices.pop()
                self._served[job.owner] += cost(part)
                if job.slices:
                    self._jobs.append(job)
                try:
                    spans = await child.find([piece.text for piece in part], self._limit_s)
                except MaskingRefused as refusal:
                    self._end(job, refusal.reason)
                except ChildLost:
                    self._end(job, "detector_failed")
                    return
                except BaseException:
                    self._end(job, "detector_failed")
                    raise
                else:
                    job.take(part, spans)
        finally:
            gone.cancel()

    def _end(self, job: _Job, reason: Reason) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        job.refuse(reason)

    async def _next(self, gone: asyncio.Future[None]) -> _Job | None:
        """The next job; None when the process ended first."""
        while not gone.done():
            if self._jobs:
                job = min(self._jobs, key=lambda held: (self._served[held.owner], held.cost))
                self._jobs.remove(job)
                return job
            self._arrived.clear()
            arrived = asyncio.ensure_future(self._arrived.wait())
            either: set[asyncio.Future[Any]] = {arrived, gone}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrived.cancel()
        return None
