"""Blocking work in a thread of its own, which nobody has to wait for when the process ends."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Start `work` in a new daemon thread; the future gives what it returns or raises.

    The event loop's own threads are joined at exit, so a model that loads for a minute would hold up Ctrl-C.
    """
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result = work()
        except Exception as exc:
            outcome.set_exception(exc)
        except BaseException as exc:
            # One that ends programs must end no event loop from here.
            outcome.set_exception(RuntimeError(f"{type(exc).__name__} in a thread"))
        else:
            outcome.set_result(result)

    future = asyncio.wrap_future(outcome)
    threading.Thread(target=run, name=name, daemon=True).start()
    return future
