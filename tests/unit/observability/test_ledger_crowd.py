"""Rows that come by the crowd are written together, and one that comes alone is written at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.ledger_rows import intent
from weighbridge.observability import ledger_inbox, ledger_writer
from weighbridge.observability.ledger import Ledger


async def test_a_crowd_lets_others_come_first_and_a_row_alone_waits_for_nobody(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    pauses: list[float] = []
    go_on, put = threading.Event(), ledger_inbox.put

    def counted(conn: Any, rows: Iterable[Any]) -> None:
        rows = list(rows)
        groups.append(len(rows))
        put(conn, rows)

    class Time:
        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            go_on.wait(5)

    monkeypatch.setattr(ledger_inbox, "put", counted)
    monkeypatch.setattr(ledger_writer, "time", Time)
    async with asyncio.timeout(5):
        await ledger.intent(intent("alone"))
        assert (groups, pauses) == ([1], [])
        # The first of them may be taken before the others are there.
        first = [ledger.intent(intent(f"first-{n}")) for n in range(10 * ledger_writer.CROWD)]
        await asyncio.gather(*first)
        while not pauses:
            await asyncio.sleep(0.001)
        before = len(groups)
        rest = [ledger.intent(intent(f"later-{n}")) for n in range(30)]
        go_on.set()
        await asyncio.gather(*rest)
    assert groups[before:] == [30] and set(pauses) == {ledger_writer.LINGER_S}
