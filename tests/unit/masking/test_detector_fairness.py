"""A tenant cannot take the detectors from others, however many conversations it names."""

from __future__ import annotations

import pytest

from weighbridge.masking.detector_queue import Job, JobQueue
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.slices import cut


def job(chars: int, tenant: str, conversation: str, *, speculative: bool = False) -> Job:
    return Job(cut(["word " * (chars // 5)]), conversation, tenant=tenant, speculative=speculative)


async def test_ever_new_conversations_of_one_tenant_do_not_hold_up_a_long_request_of_another() -> None:
    queue = JobQueue(64)
    victim = job(60_000, "b", "b/1")
    queue.add(victim)
    of_victim, taken, slices = 0, 0, len(victim.slices)
    while victim.slices:
        queue.add(job(5_000, "a", f"a/{taken}"))
        queue.add(job(5_000, "a", f"a/more/{taken}"))
        next_one = queue.next()
        assert next_one is not None
        taken += 1
        of_victim += next_one[0] is victim
        # A slice of the long request is worth about two short ones.
        assert taken < 5 * slices
    assert of_victim == slices


async def test_within_a_tenant_conversations_take_turns() -> None:
    queue = JobQueue(9)
    one, other = job(40_000, "a", "a/1"), job(30_000, "a", "a/2")
    queue.add(one)
    queue.add(other)
    order = [queue.next() for _ in range(4)]
    assert [part[0] for part in order if part] == [other, one, other, one]


async def test_a_full_queue_gives_up_a_place_of_the_tenant_that_has_most() -> None:
    queue = JobQueue(4)
    small = [job(10 + 10 * n, "a", f"a/{n}") for n in range(4)]
    for one in small:
        queue.add(one)
    victim = job(9_000, "b", "b/1")
    queue.add(victim)
    assert small[3].found.done() and isinstance(small[3].found.exception(), MaskingRefused)
    with pytest.raises(MaskingRefused, match="overloaded"):
        queue.add(job(9_000, "a", "a/9"))
    assert not victim.found.done()


async def test_the_last_place_of_a_tenant_is_not_taken_by_another_that_has_as_many() -> None:
    queue = JobQueue(2)
    queue.add(job(10, "a", "a/1"))
    large = job(9_000, "b", "b/1")
    queue.add(large)
    with pytest.raises(MaskingRefused, match="overloaded"):
        queue.add(job(10, "a", "a/2"))
    assert not large.found.done()
