"""Every connection, look-up and program of this process, written down by an audit hook while a test watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.faulty_layers import NETWORK_EVENTS

_watching: list[list[tuple[str, tuple[Any, ...]]]] = []
_hooked = False


def _note(event: str, args: tuple[Any, ...]) -> None:
    if _watching and event.startswith(NETWORK_EVENTS):
        for noted in _watching:
            noted.append((event, args))


@contextmanager
def watched() -> Iterator[list[tuple[str, tuple[Any, ...]]]]:
    """The events, in order. A hook stays for good, so there is one, which is idle when nobody watches."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_note)
        _hooked = True
    noted: list[tuple[str, tuple[Any, ...]]] = []
    _watching.append(noted)
    try:
        yield noted
    finally:
        _watching.remove(noted)


def sockets_of(pid: int) -> list[str]:
    """The open sockets of a process, as the kernel names them."""
    found: list[str] = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:"):
            found.append(target)
    return found
