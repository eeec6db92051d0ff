"""The process that forks the workers: how it starts, what dies with what, and what nobody inherits."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from tests.support.made_up_nursery import with_detector
from tests.support.process import all_gone
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.masking import wire
from weighbridge.masking.detector_child import ChildLost
from weighbridge.masking.detector_nursery import DetectorNursery, _Running
from weighbridge.masking.detector_pool import DetectorPool
from weighbridge.masking.handing import Line

pytestmark = pytest.mark.slow

FAST = with_detector()


@asynccontextmanager
async def nursery_of(
    command: Sequence[str] = FAST, *, start_limit_s: float = 30, fork_limit_s: float = 10
) -> AsyncIterator[DetectorNursery]:
    nursery = DetectorNursery(wire.Setup(), command, start_limit_s=start_limit_s, fork_limit_s=fork_limit_s)
    try:
        yield nursery
    finally:
        await nursery.close()


def open_files(pid: int | str = "self") -> list[str]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except FileNotFoundError:  # the folder itself, closed meanwhile
            continue
    return sorted(found)


def children(pid: int) -> set[int]:
    """Direct children, dead ones that nobody has buried included."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


async def test_a_worker_says_what_it_looks_with() -> None:
    async with nursery_of() as nursery:
        child = await nursery.start_child()
        assert child.ready == wire.Ready("made up", ("one",), {"two": "no model"}, frozenset({"ko"}))
        assert child.pid in children(nursery.pid)
        await child.kill()


async def test_the_detectors_are_loaded_once(tmp_path: Path) -> None:
    log = tmp_path / "loads"
    async with nursery_of(with_detector(load=f"open({str(log)!r}, 'a').write('x')")) as nursery:
        workers = await asyncio.gather(*(nursery.start_child() for _ in range(5)))
        assert len({worker.pid for worker in workers}) == 5
        assert [await worker.find(["a", "b"], 10) for worker in workers] == [[[], []]] * 5
        assert log.read_text() == "x"
        await asyncio.gather(*(worker.kill() for worker in workers))


async def test_a_worker_holds_its_pipes_and_nothing_else() -> None:
    async with nursery_of() as nursery:
        workers = [await nursery.start_child() for _ in range(3)]
        for worker in workers:
            await worker.find(["a"], 10)
            kinds = [re.sub(r":.*", "", name) for name in open_files(worker.pid)]
            assert kinds == [os.devnull] * 3 + ["pipe"] * 2
        await asyncio.gather(*(worker.kill() for worker in workers))


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_fifty_lives_leave_no_file_and_no_corpse(loop_of: object) -> None:
    async def live() -> None:
        async with nursery_of() as nursery:
            first = await nursery.start_child()
            await first.kill()
            here = len(open_files())
            for _ in range(50):
                child = await nursery.start_child()
                await child.find(["a"], 10)
                await child.kill()
            await settled(lambda: not children(nursery.pid))
            # The three standard ones, the line, and the gateway's process file.
            await settled(lambda: len(open_files(nursery.pid)) == 5)
            await settled(lambda: len(open_files()) == here)

    with asyncio.Runner(loop_factory=loop_of) as runner:  # type: ignore[arg-type]
        runner.run(live())


async def test_a_failed_start_leaves_no_file() -> None:
    async with nursery_of(("/nonexistent/python",)) as nursery:
        before = open_files()
        for _ in range(5):
            with pytest.raises(ChildLost, match="FileNotFoundError"):
                await nursery.start_child()
        assert open_files() == before


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ((sys.executable, "-c", "pass"), "EOFError"),
        ((sys.executable, "-c", "import os; os.write(0, b'hello')"), "EOFError"),
        (with_detector(load="raise ImportError('/secret/place')"), "ImportError"),
        (with_detector(find="raise KeyError(text)"), "KeyError"),
        (with_detector(load="threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"), "SeveralThreads"),
    ],
)  # fmt: skip
async def test_a_nursery_that_cannot_load_says_why_and_is_started_anew(
    command: tuple[str, ...], why: str
) -> None:
    async with nursery_of(command) as nursery:
        for _ in range(2):
            with pytest.raises(ChildLost) as lost:
                await nursery.start_child()
            assert str(lost.value) == why


async def test_a_nursery_that_hangs_while_it_loads_is_killed() -> None:
    async with nursery_of(with_detector(load="time.sleep(600)"), start_limit_s=0.5) as nursery:
        asked = [asyncio.create_task(nursery.start_child()) for _ in range(2)]
        await settled(lambda: nursery.pid != -1)
        pid = nursery.pid
        for result in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(result, ChildLost)
        assert nursery.pid == -1
        assert not all_gone({pid}, 5)


async def test_a_nursery_that_hangs_later_is_killed_and_the_next_one_works() -> None:
    async with nursery_of(fork_limit_s=0.5) as nursery:
        worker = await nursery.start_child()
        os.kill(nursery.pid, signal.SIGSTOP)
        with pytest.raises(ChildLost, match="TimeoutError"):
            await nursery.start_child()
        await asyncio.wait_for(worker.gone(), 5)
        again = await nursery.start_child()
        assert await again.find(["a"], 10) == [[]]
        await again.kill()


async def test_its_workers_end_with_it_and_a_new_one_is_started() -> None:
    async with nursery_of() as nursery:
        workers = [await nursery.start_child() for _ in range(3)]
        first = nursery.pid
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(1):
            await asyncio.gather(*(worker.gone() for worker in workers))
        again = await nursery.start_child()
        assert nursery.pid != first
        assert await again.find(["a"], 10) == [[]]
        await again.kill()


async def test_a_nursery_whose_death_is_not_known_yet_is_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with nursery_of() as nursery:
        worker = await nursery.start_child()
        first = nursery.pid
        os.kill(first, signal.SIGKILL)
        await worker.gone()
        # As in the moment after its files were closed and before its parent is told.
        monkeypatch.setattr(_Running, "lives", lambda self: True)
        again = await nursery.start_child()
        assert nursery.pid != first
        assert await again.find(["a"], 10) == [[]]
        await again.kill()


async def test_a_worker_at_work_ends_with_its_nursery() -> None:
    """The kernel must do that: the worker reads no pipe meanwhile."""
    busy = "if text == 'long': re.match(r'(a+)+b', 'a' * 60)\nreturn []"
    async with nursery_of(with_detector(find=busy)) as nursery:
        worker = await nursery.start_child()
        asked = asyncio.create_task(worker.find(["long"], 600))
        await settled(lambda: cpu_ticks(worker.pid) > 2)
        os.kill(nursery.pid, signal.SIGKILL)
        async with asyncio.timeout(1):
            await worker.gone()
        with pytest.raises(ChildLost):
            await asked


async def test_closing_ends_all_and_may_be_said_twice() -> None:
    nursery = DetectorNursery(wire.Setup(), FAST)
    worker = await nursery.start_child()
    pid = nursery.pid
    await nursery.close()
    await nursery.close()
    await asyncio.wait_for(worker.gone(), 5)
    assert not Path(f"/proc/{pid}").exists()


async def test_a_start_that_is_given_up_leaves_no_worker() -> None:
    async with nursery_of(with_detector(load="time.sleep(0.5)")) as nursery:
        before = len(open_files())
        asked = asyncio.create_task(nursery.start_child())
        await settled(lambda: nursery.pid != -1)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        kept = await nursery.start_child()
        await settled(lambda: children(nursery.pid) == {kept.pid})
        await kept.kill()
        # The nursery itself: its line.
        assert len(open_files()) <= before + 1


def test_one_nursery_serves_one_event_loop_after_the_other() -> None:
    nursery = DetectorNursery(wire.Setup(), FAST)

    async def use() -> int:
        worker = await nursery.start_child()
        assert await worker.find(["a"], 10) == [[]]
        await worker.kill()
        return nursery.pid

    assert len({asyncio.run(use()) for _ in range(3)}) == 1
    asyncio.run(nursery.close())


@pytest.mark.parametrize("moment", ["loading", "idle", "at work"])
async def test_a_gateway_that_is_killed_leaves_nobody_behind(moment: str) -> None:
    """Though another process, as an engine that was forked would, holds the gateway's ends of every pipe."""
    load = "time.sleep(600)" if moment == "loading" else "pass"
    find = "if text == 'long': re.match(r'(a+)+b', 'a' * 60)\nreturn []"
    program = f"""
import asyncio, os, subprocess, sys
from weighbridge.masking import wire
from weighbridge.masking.detector_nursery import DetectorNursery, _Running
async def main():
    nursery = DetectorNursery(wire.Setup(), {with_detector(load=load, find=find)!r})
    asked = asyncio.create_task(nursery.start_child())
    while nursery.pid == -1:
        await asyncio.sleep(0.01)
    workers = []
    if {moment!r} != "loading":
        workers = [await asked, await nursery.start_child()]
    if {moment!r} == "at work":
        task = asyncio.create_task(workers[0].find(["long"], 600))
    held = [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]
    holder = subprocess.Popen(["sleep", "600"], pass_fds=[fd for fd in held if os.path.exists(f"/proc/self/fd/{{fd}}")])
    await asyncio.sleep(0.1)
    print(holder.pid, nursery.pid, *(worker.pid for worker in workers), flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    gateway = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert gateway.stdout is not None
    holder, *others = map(int, (await asyncio.to_thread(gateway.stdout.readline)).split())
    try:
        assert len(others) == (1 if moment == "loading" else 3)
        gateway.kill()
        gateway.wait()
        assert not await asyncio.to_thread(all_gone, set(others), 1.0)
    finally:
        os.kill(holder, signal.SIGKILL)
        gateway.stdout.close()


async def test_a_pool_goes_on_after_worker_and_nursery_were_killed() -> None:
    clock = SystemClock()
    async with nursery_of() as nursery:
        pool = DetectorPool(nursery.start_child, workers=2, max_queue=8, task_timeout_s=10)
        await pool.start()
        try:
            for number in range(3):
                killed = nursery.pid if number == 1 else min(children(nursery.pid))
                os.kill(killed, signal.SIGKILL)
                await settled(lambda killed=killed: pool.ready and killed not in children(os.getpid()))
                found = await once_more(pool, f"text {number}", clock)
                assert found == [[]]
            assert pool.about.missing == {"two": "no model"}
        finally:
            await pool.close()
        await settled(lambda: not children(nursery.pid))


async def test_a_message_and_its_files_cross_together() -> None:
    ours, theirs = Line.pair()
    read_end, write_end = os.pipe()
    ours.send(b"take these", [read_end, write_end])
    message, files = theirs.receive()
    assert message == b"take these"
    assert [os.get_inheritable(file) for file in files] == [False, False]
    os.write(files[1], b"x")
    assert os.read(read_end, 1) == b"x"
    with pytest.raises(BlockingIOError):
        ours.receive()
    theirs.close()
    with pytest.raises(ConnectionError):
        ours.send(b"anybody?")
    ours.close()
    for file in (*files, read_end, write_end):
        os.close(file)


async def settled(holds: object, within_s: float = 20) -> None:
    """Returns when `holds()` is true."""
    assert callable(holds)
    until = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)


async def once_more(pool: DetectorPool, text: str, clock: SystemClock) -> list[list[tuple[int, int, str]]]:
    """What the pool finds, asked again should the process be the one that was killed."""
    from weighbridge.masking.errors import MaskingRefused

    until = time.monotonic() + 20
    while True:
        try:
            return await pool.find([text], Deadline.after(clock, 10))
        except MaskingRefused:
            assert time.monotonic() < until
            await asyncio.sleep(0.02)


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11])
