"""Ends an engine process whose gateway is gone.

vLLM loads `install` in every process of its engines (entry point group `vllm.general_plugins`). A gateway that is
killed cannot clean up, and vLLM's children would live on and keep the GPU; so each of them watches its parent. The
worker's parent is the engine core, whose parent is the gateway: they go one after the other, within two seconds.

`prctl(PR_SET_PDEATHSIG)` is no way: it fires when the *thread* that started the child ends, and engines are built in
a thread of their own.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from typing import Final

from weighbridge.pool.vllm_logs import quiet

HOST_VARIABLE: Final = "_WEIGHBRIDGE_ENGINE_HOST"
"""Holds the gateway's process number; the underscore keeps it apart from the settings.
Unset means that vLLM was started by somebody else: nothing is done."""

INTERVAL_S: Final = 0.5

_armed = threading.Lock()


def install() -> None:
    """Watch the parent and keep request text out of the log; once, and in the children of a gateway alone."""
    host = os.environ.get(HOST_VARIABLE)
    parent = multiprocessing.parent_process()
    if host is None or host == str(os.getpid()) or parent is None or parent.pid is None:
        return
    if not _armed.acquire(blocking=False):
        return
    quiet()
    # A group of its own: Ctrl-C in a terminal is the gateway's to handle, answers under way are still wanted.
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    threading.Thread(target=_watch, args=(parent.pid,), name="weighbridge-reaper", daemon=True).start()


def _watch(parent: int) -> None:
    # The parent may have gone before we came to look, so its number is compared, not a change of it.
    while os.getppid() == parent:
        time.sleep(INTERVAL_S)
    os.kill(os.getpid(), signal.SIGKILL)
