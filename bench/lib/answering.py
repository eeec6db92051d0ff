"""The other end of `processes.Program`: JSON lines out, JSON lines in, an end with standard input."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

# What a library prints must not end up between the answers: standard output becomes standard error.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def say(answer: dict[str, Any]) -> None:
    """One line to whoever started this process."""
    _answers.write(json.dumps(answer) + "\n")
    _answers.flush()


async def jobs() -> AsyncIterator[dict[str, Any]]:
    """One job a line, until standard input closes."""
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        yield json.loads(line)


async def until_closed() -> None:
    """Wait until the benchmark is done with this process."""
    async for _ in jobs():
        pass
