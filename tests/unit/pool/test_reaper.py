"""The reaper, in processes that stand in for gateway, engine core and worker."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from weighbridge.pool.processes import ProcessId, alive, identify
from weighbridge.pool.reaper import PARENT_VARIABLE

CHILD = """
import os, subprocess, sys, threading, time
from weighbridge.pool.reaper import install
install()
install()
armed = sum(thread.name == "weighbridge-reaper" for thread in threading.enumerate())
print(os.getpid(), os.getpgid(0) == os.getpid(), armed, flush=True)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, "-c", sys.argv[1]])
time.sleep(600)
"""

GATEWAY = """
import os, subprocess, sys, time
from weighbridge.pool.reaper import install, mark_parent
mark_parent()
install()
subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[1]])
print(os.getpid(), os.getpgid(0) == os.getpid(), 0, flush=True)
time.sleep(600)
"""


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def read_three(process: subprocess.Popen[str]) -> dict[int, tuple[bool, int]]:
    assert process.stdout is not None
    rows = [process.stdout.readline().split() for _ in range(3)]
    return {int(pid): (own_group == "True", int(armed)) for pid, own_group, armed in rows}


def test_core_and_worker_end_one_after_the_other_when_the_gateway_is_killed() -> None:
    gateway = subprocess.Popen([sys.executable, "-c", GATEWAY, CHILD], stdout=subprocess.PIPE, text=True)
    try:
        rows = read_three(gateway)
        assert rows.pop(gateway.pid) == (False, 0), "the gateway is not watched"
        assert set(rows.values()) == {(True, 1)}, "each child: a group of its own, armed once"
        children = [identify(pid) for pid in rows]
        assert all(isinstance(child, ProcessId) for child in children)
        assert all(child is not None and alive(child) for child in children)
    finally:
        gateway.kill()
        gateway.wait()
    began = time.monotonic()
    assert wait_until(lambda: not any(child is not None and alive(child) for child in children))
    assert time.monotonic() - began < 5


def test_a_child_that_comes_up_after_its_gateway_has_gone_ends_at_once() -> None:
    env = {**os.environ, PARENT_VARIABLE: f"{os.getpid()}:1"}
    child = subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdout=subprocess.DEVNULL)
    assert child.wait(20) == -9


@pytest.mark.parametrize("value", [None, "", "x", "12", "12:", ":34", "a:b"])
def test_a_vllm_that_is_not_ours_is_left_alone(value: str | None) -> None:
    env = {name: text for name, text in os.environ.items() if name != PARENT_VARIABLE}
    if value is not None:
        env[PARENT_VARIABLE] = value
    child = subprocess.Popen([sys.executable, "-c", CHILD], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        pid, own_group, armed = child.stdout.readline().split()
        assert (int(pid), own_group, armed) == (child.pid, "False", "0")
    finally:
        child.kill()
        child.wait()


def test_it_is_light_to_load() -> None:
    script = "import sys, weighbridge.pool.reaper; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"vllm", "torch", "pydantic", "msgspec", "fastapi", "multiprocessing", "asyncio"}
    assert not heavy & set(loaded)
