"""Ends an engine process whose gateway is gone.

vLLM loads `install` in every process of its engines, by the entry point groups `vllm.platform_plugins` (as soon as it
is imported; an engine core then waits minutes for its gateway) and `vllm.general_plugins`. A gateway that is killed
cannot clean up, and vLLM's children would live on and keep the GPU; so each of them watches its parent. The
worker's parent is the engine core, whose parent is the gateway: they go one after the other, within two seconds.

`prctl(PR_SET_PDEATHSIG)` is no way: it fires when the *thread* that started the child ends, and engines are built in
a thread of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from typing import Final

from weighbridge.pool.processes import ProcessId, alive, identify
from weighbridge.pool.vllm_logs import quiet

PARENT_VARIABLE: Final = "_WEIGHBRIDGE_ENGINE_PARENT"
"""Names the process whose children are watched, as `number:start`; each child puts its own name there for its children.
Unset means that vLLM was started by somebody else: nothing is done. The underscore keeps it apart from the settings."""

INTERVAL_S: Final = 0.5


def mark_parent() -> None:
    """Make this process the one whose children end with it."""
    me = identify(os.getpid()) or ProcessId(os.getpid(), 0)
    os.environ[PARENT_VARIABLE] = f"{me.pid}:{me.started}"


def install() -> None:
    """Watch the parent and keep request text out of the log; once, and in the children of a gateway alone."""
    pid, _, started = os.environ.get(PARENT_VARIABLE, "").partition(":")
    if not pid.isdigit() or not started.isdigit() or int(pid) == os.getpid():
        return
    mark_parent()
    quiet()
    # A group of its own: Ctrl-C in a terminal is the gateway's to handle, answers under way are still wanted.
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    parent = ProcessId(int(pid), int(started))
    threading.Thread(target=_watch, args=(parent,), name="weighbridge-reaper", daemon=True).start()


def _watch(parent: ProcessId) -> None:
    # The parent may have gone before we came to look, so it is looked for by name; a change would be missed.
    while _there(parent):
        time.sleep(INTERVAL_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _there(parent: ProcessId) -> bool:
    if parent.started:
        return alive(parent)
    return os.getppid() == parent.pid  # no /proc to ask
