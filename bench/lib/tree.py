"""CPU time of a server by what its processes do: the server itself, and apart from it what it has started."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.lib.machine import cpu_seconds
from tests.support.process import children

SERVER, CORE, WORKER, MASKING, OTHER = "server", "EngineCore", "Worker", "masking", "other"
ROLES = (SERVER, CORE, WORKER, MASKING, OTHER)

_WORDS = ((CORE, b"EngineCore"), (WORKER, b"Worker"), (MASKING, b"weighbridge.masking.nursery"))


class Tree:
    """A server and every process below it, as they are now; one that ends or comes later is a mistake of the benchmark.

    Raises:
        RuntimeError: `require` names a role that none of the processes has.
    """

    def __init__(self, pid: int, *, require: Iterable[str] = ()) -> None:
        self.processes = {pid: SERVER, **{child: _role(child) for child in children(pid)}}
        missing = set(require) - set(self.processes.values())
        if missing:
            raise RuntimeError(f"process {pid} has no {', '.join(sorted(missing))} below it")

    def cpu_s(self) -> dict[str, float]:
        """Seconds by role; every role is there."""
        used = dict.fromkeys(ROLES, 0.0)
        for pid, role in self.processes.items():
            used[role] += cpu_seconds(pid)
        return used


def since(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {role: after[role] - before[role] for role in after}


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return next((role for role, words in _WORDS if words in command), OTHER)
