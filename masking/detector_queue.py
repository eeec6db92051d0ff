"""What waits for a detector process: who goes next, and who has to give way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weighbridge.masking.entities import Span
from weighbridge.masking.errors import MaskingRefused, Reason
from weighbridge.masking.slices import Piece, Slice, cost

Found = tuple[Piece, list[Span]]
"""A piece of a text and what was found in it."""


class Speculation:
    """Marks a request that may never be needed. Hand it to `DetectorPool.find`; `promote` makes it one like others.

    Until then it is looked at only while nothing else waits, and it is the first to go when the queue is full.
    """

    def __init__(self) -> None:
        self._heard: list[Callable[[], None]] = []
        self.promoted = False

    def promote(self) -> None:
        """From now on it counts like any other. Idempotent."""
        if not self.promoted:
            self.promoted = True
            for tell in self._heard:
                tell()

    @contextmanager
    def heard(self, tell: Callable[[], None]) -> Iterator[None]:
        """Have `tell` called if the promotion comes within the context."""
        self._heard.append(tell)
        try:
            yield
        finally:
            self._heard.remove(tell)


class Job:
    """One request's texts, in slices.

    Args:
        owner: whose it is within the tenant, such as a conversation.
        tenant: who shares fairly with other tenants.

    Attributes:
        found: what was found in every piece, once all slices are answered; or the refusal.
        version: of the detectors that answered; None when they were not all the same.
    """

    def __init__(
        self, slices: list[Slice], owner: str, *, tenant: str = "", speculative: bool = False
    ) -> None:
        self._pieces: list[Found] = []
        self._versions: set[str] = set()
        self.owner = owner
        self.tenant = tenant
        self.speculative = speculative
        self.found: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
        self.slices = slices[::-1]
        self._unanswered = len(self.slices)
        self.cost = sum(map(cost, self.slices))

    @property
    def version(self) -> str | None:
        return next(iter(self._versions)) if len(self._versions) == 1 else None

    def take(self, part: Slice, spans: list[list[Span]], version: str) -> None:
        """What was found in a slice; after the last one the job is done."""
        self._pieces.extend(zip(part, spans, strict=True))
        self._versions.add(version)
        self._unanswered -= 1
        if not self._unanswered and not self.found.done():
            self.found.set_result(self._pieces)

    def refuse(self, reason: Reason) -> None:
        if not self.found.done():
            self.found.set_exception(MaskingRefused(reason))


_Account = tuple[str, str | None, bool]
"""What was had by a tenant, or by one owner in it, speculatively or not."""


class JobQueue:
    """Jobs with slices that nobody works on yet.

    The next slice is one of the tenant who has had the least since its requests began to wait, within it of the owner
    of whom the same is true, and of one owner's requests the smallest goes first. So a large request holds a process
    for one slice, and neither it nor its tenant keeps others waiting for more; callers name their conversations
    themselves, so those alone would share nothing fairly. Speculative jobs come after all others, by the same rules
    among themselves.

    Args:
        most: jobs that may wait. One more drives out a speculative one, or else the largest of the tenant that has
            most of them, which may be itself; a speculative one drives out nobody.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: list[Job] = []
        self._served: Counter[_Account] = Counter()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Raises MaskingRefused, `overloaded`, when there is no room for it."""
        if len(self._jobs) >= self._most:
            places = Counter(held.tenant for held in (job, *self._jobs))
            last = max(
                (job, *self._jobs), key=lambda held: (held.speculative, places[held.tenant], held.cost)
            )
            if job.speculative or last is job:
                raise MaskingRefused("overloaded")
            self._jobs.remove(last)
            last.refuse("overloaded")
        self._jobs.append(job)

    def next(self) -> tuple[Job, Slice] | None:
        """The next slice; its job stays in the queue while it has more."""
        if not self._jobs:
            return None
        job = min(self._jobs, key=self._turn)
        part = job.slices.pop()
        for account in _accounts(job):
            self._served[account] += cost(part)
        if not job.slices:
            self._jobs.remove(job)
        return job, part

    def withdraw(self, job: Job) -> None:
        """It wants nothing any more. Idempotent."""
        if job in self._jobs:
            self._jobs.remove(job)
        for account in _accounts(job):
            if not any(account in _accounts(held) for held in self._jobs):
                del self._served[account]

    def promote(self, job: Job) -> None:
        """It counts like any other from now on; what it has had, it had of nobody's time."""
        if job.speculative:
            waits = job in self._jobs
            self.withdraw(job)
            job.speculative = False
            if waits:
                self._jobs.append(job)

    def refuse_all(self, reason: Reason) -> None:
        while self._jobs:
            self._jobs.pop().refuse(reason)

    def _turn(self, job: Job) -> tuple[bool, int, int, int]:
        of_tenant, of_owner = (self._served[account] for account in _accounts(job))
        return job.speculative, of_tenant, of_owner, job.cost


def _accounts(job: Job) -> tuple[_Account, _Account]:
    return (job.tenant, None, job.speculative), (job.tenant, job.owner, job.speculative)
