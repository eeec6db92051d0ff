"""Cancel a request at its n-th suspension point, for every n: the slot comes back, the record is written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support import recorder as rec
from tests.support.direct import Paper, admitted
from tests.support.fake_engine import FakeEngine, Script
from tests.support.recorder import Recorder, threaded
from tests.support.running import Running, policy_file, running_gateway
from weighbridge.config.deadline import Deadline
from weighbridge.pool.slot_lock import Ask

CAP = 400
"""More suspension points than any scenario has; reaching it means the walk never ends."""


class Tracer:
    """Awaits `work` and cancels the task it runs in when `work` suspends for the n-th time, and the `more` next."""

    def __init__(self, work: Awaitable[None], at: int, more: int) -> None:
        self._work = work
        self._at = range(at, at + more + 1)
        self.points = 0

    def __await__(self) -> Generator[Any, None, None]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waiting = steps.throw(thrown) if thrown is not None else next(steps)
            except StopIteration:
                return
            thrown = None
            self.points += 1
            if self.points in self._at:
                task.cancel()
            try:
                yield waiting
            except BaseException as exc:
                thrown = exc


async def settled(gateway: Running, before: set[asyncio.Task[Any]], most: int, slots: int) -> None:
    """Everything the request had is given back, promptly."""

    def tasks() -> list[Any]:
        # The masking room's standing tasks wait anew after every job, so it is the number that tells: not more than
        # there have been at the most, as one of them may just have ended when they were counted.
        more = [task for task in asyncio.all_tasks() - before if not task.done()]
        return more if len(asyncio.all_tasks()) > most else []

    def left() -> list[Any]:
        return [
            *(
                tier
                for tier in gateway.parts.pool.status()
                if tier["slots_in_use"] > slots or tier["waiting"]
            ),
            *(engine for engine in gateway.engines.values() if engine.load().unfinished),
            *tasks(),
        ]

    try:
        async with asyncio.timeout(5):
            while left():
                await asyncio.sleep(0)
    except TimeoutError:
        pytest.fail(f"left behind: {left()}")
    assert gateway.parts.dispatch.under_way == 0


QUEUED = "queued, then overflow"

Prepare = Callable[[Running, Recorder], None]


def nothing(gateway: Running, recorder: Recorder) -> None:
    recorder.mode = rec.OK


def failing(gateway: Running, recorder: Recorder) -> None:
    recorder.mode = rec.STATUS_500


def full(gateway: Running, recorder: Recorder) -> None:
    recorder.mode = rec.OK
    for engine in gateway.engines.values():
        engine.script.overloaded = True


SCENARIOS: dict[str, tuple[str, bool, Prepare, str]] = {
    "local whole": ("local-8b", False, nothing, "ok"),
    "local stream": ("local-8b", True, nothing, "ok"),
    "commercial whole": ("commercial", False, nothing, "ok"),
    "commercial stream": ("commercial", True, nothing, "ok"),
    "overflow": ("auto", True, full, "ok"),
    "failed upstream": ("commercial", True, failing, "error"),
    # The only slot is taken all the while: the queue lock times out.
    QUEUED: ("auto", False, nothing, "ok"),
}


@pytest.mark.parametrize("more", [0, 2], ids=["once", "three times"])
@pytest.mark.parametrize("name", list(SCENARIOS))
async def test_every_suspension_point(tmp_path: Path, name: str, more: int) -> None:
    model, stream, prepare, end = SCENARIOS[name]
    engines = {"local-8b": FakeEngine("local-8b", script=Script(token_s=0.001))}
    # The recorder lives in a thread: its tasks must not be taken for the gateway's.
    with threaded() as recorder:
        async with running_gateway(
            tmp_path,
            engines=engines,
            upstream=recorder.base_url,
            policy=policy_file(tmp_path, queue_lock_timeout_ms=20),
            tiers={"local-8b": {"max_num_seqs": 1}},
        ) as gateway:
            tier = gateway.parts.pool.tier("local-8b")
            assert tier is not None
            ask = Ask(Deadline.after(gateway.parts.clock, 1))
            held = await tier.lease(ask, "chat", {}, 100) if name == QUEUED else None
            await walk(gateway, recorder, model, stream, prepare, end, more)
            if held is not None:
                held.release()
            assert gateway.slots_in_use() == 0


async def walk(
    gateway: Running,
    recorder: Recorder,
    model: str,
    stream: bool,
    prepare: Prepare,
    end: str,
    more: int,
) -> None:
    prepare(gateway, recorder)
    seen: dict[str, str] = {}
    most = 0
    for n in range(1, CAP):
        before, slots = asyncio.all_tasks(), gateway.slots_in_use()
        most = max(most, len(before))
        request = admitted(gateway, model, stream, "안녕하세요, my mail is a.b@corp.local")
        paper = Paper()
        tracer = Tracer(gateway.parts.dispatch.run(request, paper), n, more)

        async def work(tracer: Tracer = tracer) -> None:
            await tracer

        task = asyncio.create_task(work())
        await asyncio.wait({task})
        await settled(gateway, before, most, slots)
        reached = tracer.points >= n
        seen[request.request_id] = "client_aborted" if task.cancelled() else end
        if task.cancelled():
            assert reached
        elif paper.ended or task.exception() is not None:
            assert (task.exception() is None) == (end == "ok")
        if not reached:
            break
    else:
        pytest.fail("the walk never ended")
    assert n > 5, "too few suspension points for a request that does real work"
    rows = {row["request_id"]: row for row in gateway.rows()}
    assert set(rows) == set(seen) and all(row["outcome"] for row in rows.values())
    finished = [request_id for request_id, outcome in seen.items() if outcome == end]
    assert all(rows[request_id]["outcome"] == end for request_id in finished)
    cut = [request_id for request_id, outcome in seen.items() if outcome == "client_aborted"]
    # A cancel while the last bytes go out finds the answer made and recorded.
    assert all(rows[request_id]["outcome"] in ("client_aborted", end) for request_id in cut)
    assert any(rows[request_id]["outcome"] == "client_aborted" for request_id in cut)
    for row in rows.values():
        assert len(gateway.attempts(row["request_id"])) == row["attempts"]
