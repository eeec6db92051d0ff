"""A detector process from outside: what it may say, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from weighbridge.masking import wire
from weighbridge.masking.detector_child import COMMAND, ChildLost, DetectorChild, child_environment
from weighbridge.masking.errors import MaskingRefused

pytestmark = pytest.mark.slow


def speaking(answer: str) -> tuple[str, ...]:
    """A process that says it is ready and then answers every task with the expression `answer`."""
    program = f"""
        import os, sys, time
        from weighbridge.masking import wire
        def read():
            (length,) = wire.LENGTH.unpack(sys.stdin.buffer.read(4))
            return wire.question(sys.stdin.buffer.read(length))
        def say(data):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        read()
        say(wire.frame(wire.Ready("made up")))
        while True:
            task = read()
            say({answer})
    """
    return (sys.executable, "-c", textwrap.dedent(program))


async def ask(answer: str, texts: tuple[str, ...] = ("hello",), limit_s: float = 10) -> object:
    child = await DetectorChild.start(wire.Setup(), speaking(answer))
    try:
        return await child.find(texts, limit_s)
    finally:
        await child.kill()


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


async def test_silence_loses_the_process() -> None:
    with pytest.raises(ChildLost):
        await ask("time.sleep(60)", limit_s=0.2)


async def test_a_detector_that_raises_is_a_refusal_and_the_process_is_kept() -> None:
    child = await DetectorChild.start(
        wire.Setup(), speaking("wire.frame(wire.Failed(task.id, 'ValueError'))")
    )
    for _ in range(2):
        with pytest.raises(MaskingRefused) as raised:
            await child.find(["hello"], 10)
        assert raised.value.reason == "detector_failed"
    await child.kill()
    await child.kill()


@pytest.mark.parametrize(
    "command",
    [
        ("/nonexistent/python",),
        (sys.executable, "-c", "pass"),
        (sys.executable, "-c", "import sys; sys.stdout.write('hello, I am ready\\n'); sys.stdout.flush()"),
    ],
)
async def test_a_process_that_does_not_start_is_lost(command: tuple[str, ...]) -> None:
    with pytest.raises(ChildLost):
        await DetectorChild.start(wire.Setup(), command)


def test_the_environment_holds_nothing_of_ours() -> None:
    own = {
        "PATH": "/bin",
        "HOME": "/h",
        "WEIGHBRIDGE_COMMERCIAL__API_KEY": "k",
        "OPENAI_API_KEY": "k",
        "X": "1",
    }
    made = child_environment(own)
    assert (made["PATH"], made["HOME"]) == ("/bin", "/h")
    assert not {"WEIGHBRIDGE_COMMERCIAL__API_KEY", "OPENAI_API_KEY", "X"} & set(made)


async def _end_of(pid: int) -> None:
    async with asyncio.timeout(20):
        while Path(f"/proc/{pid}").exists() and "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
            await asyncio.sleep(0.05)


async def test_the_process_ends_when_its_pipe_closes() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(os.getpid()), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_the_process_ends_with_its_parent_though_the_pipe_stays_open() -> None:
    read_end, write_end = os.pipe()
    program = (
        "import os, subprocess, time\n"
        f"command = [*{list(COMMAND)!r}, str(os.getpid())]\n"
        f"child = subprocess.Popen(command, stdin={read_end}, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\ntime.sleep(60)"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, pass_fds=(read_end,)
    )
    try:
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        # The worker waits for its first message. Nothing but the loss of its parent can end it now.
        parent.kill()
        await parent.wait()
        await _end_of(child)
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_the_kernel_ends_a_task_that_overruns_even_when_nobody_kills_it() -> None:
    program = (
        "import sys, types\n"
        "made = types.ModuleType('weighbridge.masking.detector')\n"
        "class Detector:\n"
        "    version = 'stuck'\n"
        "    layers, missing, names = (), {}, frozenset()\n"
        "    def __init__(self, *told): pass\n"
        "    def find(self, text):\n"
        "        import re; return re.match(r'(a+)+b', 'a' * 60)\n"
        "made.Detector = Detector\n"
        "sys.modules['weighbridge.masking.detector'] = made\n"
        "from weighbridge.masking.worker import main\nmain()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    try:
        process.stdin.write(wire.frame(wire.Setup()) + wire.frame(wire.Task(1, 0.1, ("x",))))
        assert await asyncio.wait_for(process.wait(), 20) == -signal.SIGALRM
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


async def test_what_a_library_prints_does_not_mix_with_the_messages() -> None:
    program = (
        "import sys, types, os\n"
        "made = types.ModuleType('weighbridge.masking.detector')\n"
        "class Detector:\n"
        "    version, layers, missing, names = 'noisy', (), {}, frozenset()\n"
        "    def __init__(self, *told): print('loading')\n"
        "    def find(self, text):\n"
        "        print(text, file=sys.stderr); print(text); os.write(1, text.encode()); raise ValueError(text)\n"
        "made.Detector = Detector\n"
        "sys.modules['weighbridge.masking.detector'] = made\n"
        "from weighbridge.masking.worker import main\nmain()"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(
        wire.frame(wire.Setup()) + wire.frame(wire.Task(1, 10, ("very private",)))
    )
    assert out == wire.frame(wire.Ready("noisy")) + wire.frame(wire.Failed(1, "ValueError"))
    assert err == b""
