"""Child processes by number and start time, so that a number used again is never mistaken for its owner.

Reads /proc; where there is none (macOS) nothing is found and nothing is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for certain: its number and when it began, in clock ticks since the machine started."""

    pid: int
    started: int


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The name stands in parentheses and may itself hold blanks and parentheses.
    return text[text.rfind(")") + 2 :].split()


def identify(pid: int) -> ProcessId | None:
    """The process that has this number now, None when there is none or it has ended."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return ProcessId(pid, int(fields[19]))


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs; one that has ended but was not waited for does not."""
    return identify(process.pid) == process


def with_descendants(pids: Iterable[int]) -> list[ProcessId]:
    """These processes and all they have started, parents first."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in _PROC.iterdir():
            if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[ProcessId] = []
    todo = list(pids)
    while todo:
        pid = todo.pop(0)
        process = identify(pid)
        if process is not None and process not in found:
            found.append(process)
            todo.extend(children.get(pid, ()))
    return found


def still_alive(processes: Iterable[ProcessId]) -> list[ProcessId]:
    """Those that run all the same."""
    return [process for process in processes if alive(process)]


def kill(processes: Iterable[ProcessId], wait_s: float = 2.0) -> list[ProcessId]:
    """Kill those that still run and wait up to `wait_s` seconds for them to be gone. Blocks.

    Returns:
        The ones that had to be killed.
    """
    killed = [process for process in processes if alive(process)]
    for process in killed:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    while any(alive(process) for process in killed) and time.monotonic() < deadline:
        time.sleep(0.02)
    return killed


class EngineRegister:
    """A file that names a gateway's engine processes, so that its next start can end what a crash left over.

    Args:
        path: the file; its folder is made when needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, engines: Iterable[ProcessId]) -> None:
        """Record this process as the gateway and `engines` as its own."""
        owner = identify(os.getpid())
        rows = [[p.pid, p.started] for p in ([] if owner is None else [owner]) + list(engines)]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(rows), "utf-8")
        part.replace(self._path)

    def clear(self) -> None:
        """Nothing of ours runs any more."""
        self._path.unlink(missing_ok=True)

    def prune(self) -> list[ProcessId]:
        """Kill what a gateway that is gone has left running; never touches the engines of one that lives.

        Returns:
            The processes killed.
        """
        try:
            rows = [
                ProcessId(int(pid), int(started))
                for pid, started in json.loads(self._path.read_text("utf-8"))
            ]
        except (OSError, ValueError, TypeError):
            return []
        if not rows or alive(rows[0]):
            return []
        killed = kill(rows[1:])
        self.clear()
        return killed
