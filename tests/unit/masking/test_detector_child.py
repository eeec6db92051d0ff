"""A detector process from outside: what it may say, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.made_up_nursery import with_detector, with_worker
from weighbridge.masking import wire
from weighbridge.masking.detector_child import ChildLost, DetectorChild, child_environment
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.errors import MaskingRefused

pytestmark = pytest.mark.slow


@asynccontextmanager
async def child_of(command: Sequence[str]) -> AsyncIterator[DetectorChild]:
    nursery = DetectorNursery(wire.Setup(), command)
    try:
        child = await nursery.start_child()
        yield child
        await child.kill()
    finally:
        await nursery.close()


async def ask(answer: str, texts: tuple[str, ...] = ("hello",), limit_s: float = 10) -> object:
    async with child_of(with_worker(answer)) as child:
        return await child.find(texts, limit_s)


async def test_a_plausible_answer_is_taken() -> None:
    assert await ask("wire.frame(wire.Found(task.id, [[(0, 2, 'IP'), (2, 5, 'NUM')]]))") == [
        [(0, 2, "IP"), (2, 5, "NUM")]
    ]


@pytest.mark.parametrize(
    "answer",
    [
        "wire.frame(wire.Found(task.id + 1, [[]]))",
        "wire.frame(wire.Found(task.id, []))",
        "wire.frame(wire.Found(task.id, [[], []]))",
        "wire.frame(wire.Found(task.id, [[(0, 6, 'IP')]]))",
        "wire.frame(wire.Found(task.id, [[(-1, 2, 'IP')]]))",
        "wire.frame(wire.Found(task.id, [[(2, 2, 'IP')]]))",
        "wire.frame(wire.Found(task.id, [[(0, 3, 'IP'), (2, 4, 'IP')]]))",
        "wire.frame(wire.Found(task.id, [[(2, 4, 'IP'), (0, 1, 'IP')]]))",
        "wire.frame(wire.Found(task.id, [[(0, 2, 'NOBODY')]]))",
        "wire.frame(wire.Failed(task.id + 1, 'X'))",
        "wire.frame(wire.Ready('again'))",
        "wire.LENGTH.pack(3) + b'???'",
        "wire.LENGTH.pack(0xFFFFFFFF)",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
    ],
)
async def test_nonsense_and_death_lose_the_process(answer: str) -> None:
    with pytest.raises(ChildLost):
        await ask(answer)


@pytest.mark.parametrize("kept", [1, 4, 9])
async def test_an_answer_that_breaks_off_loses_the_process(kept: int) -> None:
    torn = f"wire.frame(wire.Found(task.id, [[]]))[:{kept}]"
    with pytest.raises(ChildLost):
        await ask(f"os.write(sink.fileno(), {torn}) and os._exit(0)")


async def test_silence_loses_the_process() -> None:
    with pytest.raises(ChildLost):
        await ask("time.sleep(60)", limit_s=0.2)


async def test_a_detector_that_raises_is_a_refusal_and_the_process_is_kept() -> None:
    async with child_of(with_detector(find="if text == 'bad': raise ValueError(text)\nreturn []")) as child:
        for _ in range(2):
            with pytest.raises(MaskingRefused) as raised:
                await child.find(["bad"], 10)
            assert raised.value.reason == "detector_failed"
            assert await child.find(["good"], 10) == [[]]


async def test_killing_ends_it_and_may_be_said_twice() -> None:
    async with child_of(with_detector()) as child:
        pid, gone = child.pid, asyncio.create_task(child.gone())
        await child.kill()
        await child.kill()
        await asyncio.wait_for(gone, 10)
        assert child.pid == -1
        await no_process(pid)
        with pytest.raises(ChildLost):
            await child.find(["hello"], 10)


async def test_its_death_is_seen_while_nobody_asks() -> None:
    async with child_of(with_detector()) as child:
        os.kill(child.pid, signal.SIGKILL)
        await asyncio.wait_for(child.gone(), 10)


async def test_a_long_text_goes_through_and_its_answer_comes_back() -> None:
    many = "return [(n, n + 1, 'NUM') for n in range(0, len(text), 2)]"
    async with child_of(with_detector(find=many)) as child:
        (found,) = await child.find(["가" * 500_000], 60)
        assert len(found) == 250_000


def test_the_environment_holds_nothing_of_ours() -> None:
    own = {
        "PATH": "/bin",
        "HOME": "/h",
        "WEIGHBRIDGE_COMMERCIAL__API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "X": "1",
        "OMP_NUM_THREADS": "8",
    }
    made = child_environment(own)
    assert (made["PATH"], made["HOME"], made["OMP_NUM_THREADS"]) == ("/bin", "/h", "1")
    assert not {"WEIGHBRIDGE_COMMERCIAL__API_KEY", "OPENAI_API_KEY", "X"} & set(made)


async def test_the_kernel_ends_a_task_that_overruns_even_when_nobody_kills_it() -> None:
    stuck = "return text == 'a' and re.match(r'(a+)+b', 'a' * 60) or []"
    async with child_of(with_detector(find=stuck)) as child:
        asked = asyncio.create_task(child.find(["a"], 0.05))
        with pytest.raises(ChildLost):
            await asked
        # The pool would kill it now. The worker's own timer has to do without.
        await asyncio.wait_for(child.gone(), 20)


async def test_a_task_that_is_done_stops_the_timer() -> None:
    async with child_of(with_detector()) as child:
        assert await child.find(["a"], 0.2) == [[]]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(child.gone(), 1.6)


async def test_what_a_library_prints_does_not_mix_with_the_messages() -> None:
    noisy = "print(text, file=sys.stderr); print(text); os.write(1, text.encode()); return []"
    async with child_of(with_detector(find=noisy, load="print('loading', flush=True)")) as child:
        assert await child.find(["very private"], 10) == [[]]
        for standard in (0, 1, 2):
            assert os.readlink(f"/proc/{child.pid}/fd/{standard}") == os.devnull


async def no_process(pid: int, within_s: float = 5) -> None:
    """Returns when there is no process of this number, not even a dead one that nobody has buried."""
    async with asyncio.timeout(within_s):
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.01)
