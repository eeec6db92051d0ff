"""Thousands of requests nobody should send, against a whole gateway on a real socket: every one gets a clean answer,
none leaves anything behind."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_bodies import CHAT, Case, Maker, dumps
from tests.support.raw_http import Answer, exchange
from tests.support.recorder import Connection, Mode, Recorder, Seen, status
from tests.support.waiting import events
from tests.support.watched_gateway import Watched, rows, watched

SEED = 20261130
AT_ONCE = 16
STATUSES = {200, 400, 403, 404, 408, 413, 415, 429, 502, 503, 504}
"""Of 5xx only what a road or a limit may say, never `internal_error`."""

MiB = 1 << 20


class Provider(Recorder):
    """Judges types, as a real one does."""

    def hang_up(self) -> None:
        """End the connections that were kept for the next request: how many is chance."""
        for task in self._handlers:
            task.cancel()

    def choose(self, seen: Seen, connection: Connection) -> Mode:
        mode = super().choose(seen, connection)
        return mode if _sound(seen.json) else status(400)


def _sound(body: dict[str, Any]) -> bool:
    n, options = body.get("n"), body.get("stream_options")
    return (
        (n is None or (type(n) is int and 1 <= n <= 8))
        and isinstance(options, dict | None)
        and all(
            isinstance(content := message.get("content"), str | None)
            or (
                isinstance(content, list)
                and all(isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in content)
            )
            for message in body["messages"]
        )
    )


class Attack:
    """Sends cases and judges the answers."""

    def __init__(self, gateway: Watched) -> None:
        self._port = int(gateway.url.rpartition(":")[2])
        self.kinds: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[str] = Counter()
        self.admitted: set[str] = set()
        """Ids of answers that can only come from an admitted request."""
        self.refused: set[str] = set()
        """Ids of answers to what was not admitted."""
        self.faults: list[str] = []

    async def run(self, seed: int, numbers: range, kind: str | None = None) -> None:
        todo = iter(numbers)

        async def worker() -> None:
            for number in todo:
                await self._one(seed, number, kind)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(worker())

    async def _one(self, seed: int, number: int, kind: str | None = None) -> None:
        case = Maker(seed, number, self._port).case(kind)
        await self.judged(case, 30.0 if case.whole else 0.03, f"{seed}/{number} ")

    async def judged(self, case: Case, patience_s: float, name: str = "") -> None:
        """Send a case and judge what comes within `patience_s`."""
        self.kinds[case.kind] += 1
        heard = await exchange(self._port, *case.pieces, patience_s=patience_s)
        try:
            if case.whole:
                assert heard.closed, "no answer in time"
                # An answer that has begun may break off, if a backend's did; then nothing says that it is whole.
                assert len(heard.answers) == 1 or heard.rest, "no answer"
                assert not (heard.answers and heard.rest), "bytes behind the answer"
                assert b"[DONE]" not in heard.rest
            for answer in heard.answers:
                self._judge(case, answer)
        except (AssertionError, ValueError, KeyError) as fault:
            said = [(answer.status, answer.body[:300]) for answer in heard.answers]
            self.faults.append(f"{name}{case.kind}: {fault!r}: {said}")

    def _judge(self, case: Case, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        assert answer.status in STATUSES
        assert answer.request_id
        if answer.status != 200:
            error = answer.error
            self.codes[f"{answer.status} {error['code']}"] += 1
            assert error["code"] != "internal_error"
            assert case.marker.encode() not in answer.body
            head = json.dumps(answer.headers)
            assert case.marker not in head
        elif answer.headers["content-type"].startswith("text/event-stream"):
            said = [event for event in events(answer.body.decode()) if event != "[DONE]"]
            faults = [event for event in said if "error" in event]
            assert not any(case.marker in json.dumps(event) for event in faults)
            assert faults or answer.body.endswith(b"data: [DONE]\n\n")
        else:
            assert json.loads(answer.body)["choices"]
        admitted = answer.status == 200 or "x-weighbridge-policy" in answer.headers
        (self.admitted if admitted else self.refused).add(answer.request_id)


@asynccontextmanager
async def attacked(folder: Path) -> AsyncIterator[tuple[Watched, Attack, Provider]]:
    async with Provider() as provider, watched(folder, provider.base_url) as gateway:
        provider.mode = Mode(piece=64)
        yield gateway, Attack(gateway), provider


async def healthy(gateway: Watched) -> None:
    """Every road still answers."""
    port = int(gateway.url.rpartition(":")[2])
    for model in ("auto", "local-8b", "local-70b", "commercial"):
        body = dumps({"model": model, "messages": [{"role": "user", "content": "hello"}]})
        maker = Maker(0, 0, port)
        (answer,) = (await exchange(port, maker.request(body, path=CHAT))).answers
        assert answer.status == 200, (model, answer)


@pytest.mark.parametrize("cases", [600, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_hostile_requests_get_clean_answers_and_leave_nothing_behind(
    tmp_path: Path, cases: int
) -> None:
    async with attacked(tmp_path) as (gateway, attack, provider):
        # Until every pool and cache has its size: the most that is in memory at once is a matter of the large ones.
        await attack.run(SEED - 1, range(cases // 2))
        await attack.run(SEED - 2, range(cases // 20), "large")
        provider.hang_up()
        before = await gateway.settled()
        await attack.run(SEED, range(cases))
        provider.hang_up()
        after = await gateway.settled()
        await healthy(gateway)
    print(attack.kinds, attack.statuses, attack.codes, before, after, sep="\n")
    assert not attack.faults, f"{len(attack.faults)} faults:\n" + "\n".join(attack.faults[:30])
    log = gateway.log
    assert "Traceback" not in log and "unexpected" not in log, log[-4000:]
    assert "ZQ" not in log
    assert attack.statuses[200] > cases / 5, "most of the fuzz should reach a road"
    assert (after.tasks, after.files) == (before.tasks, before.files)
    assert after.rss - before.rss <= 10 * MiB

    found = rows(tmp_path)
    assert attack.admitted <= set(found), "an admitted request has no record"
    assert not attack.refused & set(found), "a refused request has a record"
    assert all(row["outcome"] for row in found.values()), "a record was left open"
