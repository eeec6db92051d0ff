"""Who goes next before the detectors, and who gives way."""

from __future__ import annotations

import pytest

from weighbridge.masking.detector_queue import Job, JobQueue, Speculation
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.slices import cut


def job(chars: int, owner: str = "", *, speculative: bool = False) -> Job:
    return Job(cut(["word " * (chars // 5)]), owner, speculative=speculative)


def refused(one: Job) -> bool:
    return one.found.done() and isinstance(one.found.exception(), MaskingRefused)


def order(queue: JobQueue) -> list[Job]:
    taken = []
    while (next_one := queue.next()) is not None:
        taken.append(next_one[0])
    return taken


async def test_what_is_speculative_goes_when_nothing_else_waits() -> None:
    queue = JobQueue(9)
    early, real, late = job(10, speculative=True), job(90_000), job(20, speculative=True)
    for one in (early, real, late):
        queue.add(one)
    taken = order(queue)
    assert len(taken) > 4
    assert taken[-2:] == [early, late]
    assert set(taken[:-2]) == {real}


async def test_between_two_slices_of_a_speculative_one_others_go_first() -> None:
    queue = JobQueue(9)
    large = job(60_000, speculative=True)
    queue.add(large)
    first = queue.next()
    assert first is not None and first[0] is large
    real = job(10)
    queue.add(real)
    second = queue.next()
    assert second is not None and second[0] is real
    assert set(order(queue)) == {large}


async def test_speculative_ones_share_fairly_among_themselves_and_not_at_the_cost_of_real_ones() -> None:
    queue = JobQueue(9)
    queue.add(job(15_000, "a", speculative=True))
    queue.add(job(15_500, "a", speculative=True))
    other = job(15_800, "b", speculative=True)
    queue.add(other)
    assert order(queue)[1] is other
    mine, others = job(100, "a"), job(200, "b")
    queue.add(job(15_000, "a", speculative=True))
    queue.next()
    queue.add(others)
    queue.add(mine)
    assert order(queue) == [mine, others]


async def test_in_a_full_queue_speculative_ones_go_first_the_largest_before_others() -> None:
    queue = JobQueue(3)
    small, large, real = job(10, speculative=True), job(500, speculative=True), job(9_000)
    for one in (small, large, real):
        queue.add(one)
    more = [job(10_000), job(20_000)]
    queue.add(more[0])
    assert refused(large) and not refused(small)
    queue.add(more[1])
    assert refused(small)
    with pytest.raises(MaskingRefused) as raised:
        queue.add(job(30_000))
    assert raised.value.reason == "overloaded"
    queue.add(job(50))
    assert refused(more[1]) and not refused(more[0]) and not refused(real)


async def test_a_speculative_one_drives_out_nobody() -> None:
    queue = JobQueue(2)
    waiting = [job(9_000), job(9_000, speculative=True)]
    for one in waiting:
        queue.add(one)
    with pytest.raises(MaskingRefused) as raised:
        queue.add(job(5, speculative=True))
    assert raised.value.reason == "overloaded"
    assert not any(map(refused, waiting))


async def test_a_promoted_one_counts_like_others() -> None:
    queue = JobQueue(2)
    guess, real = job(10, speculative=True), job(900)
    queue.add(guess)
    queue.add(real)
    queue.promote(guess)
    queue.promote(guess)
    with pytest.raises(MaskingRefused):
        queue.add(job(1_000))
    assert order(queue) == [guess, real]
    late = job(10, speculative=True)
    queue.promote(late)
    assert len(queue) == 0


async def test_what_a_speculative_one_had_is_not_charged_after_its_promotion() -> None:
    queue = JobQueue(9)
    guess = job(60_000, "a", speculative=True)
    queue.add(guess)
    queue.next()
    queue.promote(guess)
    other = job(60_000, "b")
    queue.add(other)
    assert [one.owner for one in order(queue)[:2]] == ["a", "b"]


async def test_a_withdrawn_one_leaves_no_account() -> None:
    queue = JobQueue(9)
    for speculative in (False, True):
        one = job(60_000, "a", speculative=speculative)
        queue.add(one)
        queue.next()
        queue.withdraw(one)
        queue.withdraw(one)
    assert len(queue) == 0
    assert not queue._served


async def test_the_version_is_that_of_all_slices() -> None:
    same, mixed = job(60_000), job(60_000)
    for one, versions in ((same, ["v1"]), (mixed, ["v1", "v2"])):
        for number, part in enumerate(list(one.slices)):
            one.take(part, [[] for _ in part], versions[number % len(versions)])
    assert same.found.done() and same.version == "v1"
    assert mixed.found.done() and mixed.version is None


def test_a_promotion_is_heard_once_while_somebody_listens() -> None:
    heard: list[str] = []
    speculation = Speculation()
    with speculation.heard(lambda: heard.append("gone by then")):
        pass
    with speculation.heard(lambda: heard.append("there")):
        speculation.promote()
        speculation.promote()
    assert heard == ["there"]
    assert speculation.promoted
