"""The detector processes and what they are asked. Whatever goes wrong here is a refusal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Protocol

from weighbridge.config.deadline import Deadline
from weighbridge.config.offload import MASKING
from weighbridge.masking.detector_child import ChildLost
from weighbridge.masking.detector_queue import Found, Job, JobQueue, Speculation
from weighbridge.masking.entities import Span
from weighbridge.masking.errors import MaskingRefused, Reason
from weighbridge.masking.slices import TEXT_COST, Slice, cut, unite
from weighbridge.masking.span_cache import Kept, Key, SpanCache, kept
from weighbridge.masking.wire import Ready

log = logging.getLogger(__name__)

_INLINE_COST = 32_000
"""What a request costs, in characters, up to which its texts are cut up and its spans united on the event loop."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_SOUND_S = 5.0
"""Seconds a process has to live to count as one that was started well, if it has answered nothing by then."""
_WORN_CHARS = 4_000_000
"""Characters after which a process is replaced. The analysers keep every word they ever met, for good: some 200 MB by
then where all words are new. Forking the next one takes some hundredths of a second."""


class Child(Protocol):
    """What the pool needs of a `DetectorChild`."""

    ready: Ready

    async def find(self, texts: Sequence[str], limit_s: float) -> list[list[Span]]: ...
    async def gone(self) -> None: ...
    async def kill(self) -> None: ...


class DetectorPool:
    """Keeps `workers` processes alive and hands them texts, a slice at a time; see `JobQueue` for the order.

    Args:
        start_child: starts one process; raises ChildLost.
        workers: number of processes.
        max_queue: requests that may wait for a process. One more takes the place of another, or is refused.
        task_timeout_s: seconds one task may take, waiting included; a process that takes longer is killed.
        cache: of what was found before; tests pass their own.
    """

    def __init__(
        self,
        start_child: Callable[[], Coroutine[Any, Any, Child]],
        *,
        workers: int,
        max_queue: int,
        task_timeout_s: float,
        cache: SpanCache | None = None,
    ) -> None:
        self._start_child = start_child
        self._workers = workers
        self._limit_s = task_timeout_s
        self._queue = JobQueue(max_queue)
        self._cache = SpanCache() if cache is None else cache
        self._arrived = asyncio.Event()
        self._live = 0
        self._hopeful = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._first_try = asyncio.Event()
        self._persistent = False
        self.about = Ready("")
        """What the process started last said of itself."""

    @property
    def ready(self) -> bool:
        """Whether a process is up with its detectors loaded."""
        return self._live > 0

    async def start(self, *, on_demand: bool = False) -> None:
        """Start the processes that nobody keeps yet; returns when the first one is ready or could not be started, or
        the pool was closed. Calls share what is starting, and one that is cancelled leaves it to the others. Never
        raises: without detectors the gateway serves on and refuses what would leave.

        Args:
            on_demand: a process that cannot be started is tried again by the next call. Once this was called without
                it, that happens in the background, for good.
        """
        self._persistent = self._persistent or not on_demand
        self._tasks = [task for task in self._tasks if not task.done()]
        missing = self._workers - len(self._tasks)
        if missing and not self._hopeful:
            self._first_try.clear()
        self._hopeful += missing
        for _ in range(missing):
            self._tasks.append(asyncio.create_task(self._keep_alive(), name="masking"))
        await self._first_try.wait()

    async def close(self) -> None:
        """End every process; what waits is refused. Idempotent."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._live = self._hopeful = 0
        self._queue.refuse_all("detector_failed")
        self._first_try.set()

    async def find(
        self,
        texts: Sequence[str],
        deadline: Deadline,
        *,
        tenant: str = "",
        owner: str = "",
        speculation: Speculation | None = None,
    ) -> list[list[Span]]:
        """For each text its merged spans.

        Args:
            tenant: who shares fairly with others.
            owner: who does so within the tenant, and who alone profits from what was looked at for it before.
            speculation: given when the answer may not be needed. Until it is promoted the task's own time limit does
                not run, the deadline does. To cancel the call gives its place up.

        Raises:
            MaskingRefused: `overloaded`, `timeout` or `detector_failed`.
        """
        self._refuse_when_hopeless()
        long = sum(map(len, texts)) + len(texts) * TEXT_COST > _INLINE_COST
        version = self.about.detector_version
        keying = partial(self._cache.keys, owner, version, texts)
        keys = await MASKING.run(keying) if long else keying()
        found: dict[Key, list[Span]] = {}
        unknown: dict[Key, str] = {}
        for key, text in zip(keys, texts, strict=True):
            if (held := self._cache.get(key)) is not None:
                found[key] = held
            else:
                unknown[key] = text
        if unknown:
            fresh, by = await self._look(
                list(unknown.values()), deadline, tenant, owner, speculation, long=long
            )
            for key, (spans, keepable) in zip(unknown, fresh, strict=True):
                found[key] = spans
                if by == version:
                    self._cache.put(key, keepable)
        return [found[key] for key in keys]

    async def _look(
        self,
        texts: list[str],
        deadline: Deadline,
        tenant: str,
        owner: str,
        speculation: Speculation | None,
        *,
        long: bool,
    ) -> tuple[list[tuple[list[Span], Kept]], str | None]:
        """What the processes find in each text, twice, and the version of their detectors, if it was one."""
        slices = await MASKING.run(cut, texts) if long else cut(texts)
        speculative = speculation is not None and not speculation.promoted
        job = Job(slices, owner, tenant=tenant, speculative=speculative)
        pieces = await self._answers(job, deadline, speculation)
        uniting = partial(_united, len(texts), pieces)
        return await MASKING.run(uniting) if long else uniting(), job.version

    async def _answers(self, job: Job, deadline: Deadline, speculation: Speculation | None) -> list[Found]:
        self._refuse_when_hopeless()
        self._queue.add(job)
        self._arrived.set()
        remaining = deadline.remaining()
        try:
            async with asyncio.timeout(
                remaining if job.speculative else min(self._limit_s, remaining)
            ) as limit:

                def promoted() -> None:
                    self._queue.promote(job)
                    within_s = min(self._limit_s, deadline.remaining())
                    limit.reschedule(asyncio.get_running_loop().time() + within_s)

                with speculation.heard(promoted) if job.speculative and speculation else nullcontext():
                    return await job.found
        except TimeoutError:
            raise MaskingRefused("timeout") from None
        finally:
            job.slices.clear()
            self._queue.withdraw(job)

    def _refuse_when_hopeless(self) -> None:
        if not self._live and not self._hopeful:
            raise MaskingRefused("detector_failed")

    async def _keep_alive(self) -> None:
        pause = _FIRST_PAUSE_S
        hopeful = True
        early = worn = False
        loop = asyncio.get_running_loop()
        while True:
            try:
                child = await self._start_child()
            except ChildLost as lost:
                again = f"next try in {pause:.1f} s" if self._persistent else "the next preview tries again"
                log.error("a masking process could not be started (%s); %s", str(lost) or "lost", again)
                if worn:
                    worn = False
                    self._live -= 1
                if hopeful:
                    hopeful = False
                    self._hopeful -= 1
                if not self._live and not self._hopeful:
                    self._queue.refuse_all("detector_failed")
                self._first_try.set()
                if not self._persistent:
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            if not hopeful:
                hopeful = True
                self._hopeful += 1
            if not worn:
                self._live += 1
            self.about = child.ready
            self._first_try.set()
            born = loop.time()
            answered = asyncio.Event()
            worn = False
            try:
                try:
                    worn = await self._serve(child, answered)
                finally:
                    # The place of a worn one counts as filled: the next one is there at once.
                    if not worn:
                        self._live -= 1
                    await child.kill()
            except Exception as exc:  # a fault of ours must not end the keeping of detectors
                log.error("masking: %s while a process was served", type(exc).__name__)
            if worn:
                pause, early = _FIRST_PAUSE_S, False
                continue
            log.warning("a masking process was lost; starting another")
            # One that is lost is replaced at once. One after the other that does not even begin to work is not.
            before, early = early, not answered.is_set() and loop.time() - born < _SOUND_S
            if before and early:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
            else:
                pause = _FIRST_PAUSE_S

    async def _serve(self, child: Child, answered: asyncio.Event) -> bool:
        """Work with `child` until it is lost, or worn out: then True."""
        gone = asyncio.ensure_future(child.gone())
        read = 0
        try:
            while read < _WORN_CHARS and (taken := await self._next(gone)) is not None:
                job, part = taken
                read += sum(len(piece.text) for piece in part)
                try:
                    spans = await child.find([piece.text for piece in part], self._limit_s)
                except MaskingRefused as refusal:
                    self._end(job, refusal.reason)
                except ChildLost:
                    self._end(job, "detector_failed")
                    return False
                except BaseException:
                    self._end(job, "detector_failed")
                    raise
                else:
                    job.take(part, spans, child.ready.detector_version)
                answered.set()
            return read >= _WORN_CHARS
        finally:
            gone.cancel()

    def _end(self, job: Job, reason: Reason) -> None:
        self._queue.withdraw(job)
        job.refuse(reason)

    async def _next(self, gone: asyncio.Future[None]) -> tuple[Job, Slice] | None:
        """The next slice; None when the process ended first."""
        while not gone.done():
            if (taken := self._queue.next()) is not None:
                return taken
            self._arrived.clear()
            arrived = asyncio.ensure_future(self._arrived.wait())
            either: set[asyncio.Future[Any]] = {arrived, gone}
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                arrived.cancel()
        return None


def _united(count: int, pieces: list[Found]) -> list[tuple[list[Span], Kept]]:
    return [(spans, kept(spans)) for spans in unite(count, pieces)]
