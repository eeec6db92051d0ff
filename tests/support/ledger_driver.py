"""A process that does nothing but write a ledger, made to be killed.

    python ledger_driver.py SPOOL PREFIX

Says `imported`, waits for a line on stdin, opens the spool, says `ready N` (N requests recovered), then admits
requests without end. Each line after that is said only once what it names is durable:

    I ID       the intent
    P ID K     the K-th progress row (and the K-th attempt)
    E ID       the egress row
    C ID       the completion

Ids begin with PREFIX, and every number of a request follows from its id, so that a reader knows what to expect.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import zlib
from pathlib import Path

from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.records import Attempt, Completion, Egress, Intent, Progress

STEP = 64
CHAIN_KEY = bytes(range(32))
WORKERS = 6


def prompt_of(request_id: str) -> int:
    return zlib.crc32(request_id.encode()) % 4000 + 1


def steps_of(request_id: str) -> int:
    return prompt_of(request_id) % 5


def completion_of(request_id: str) -> int:
    return STEP * steps_of(request_id) + prompt_of(request_id) % STEP


def has_egress(request_id: str) -> bool:
    return prompt_of(request_id) % 7 == 0


def egress_id_of(request_id: str) -> str:
    return f"e-{request_id}"


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def serve(ledger: Ledger, request_id: str) -> None:
    prompt, steps = prompt_of(request_id), steps_of(request_id)
    intent = Intent(request_id, 1, "t", "k", "auto", True, "local-8b", 0.5, "chat", "p@1", "c1", ("score",))
    await ledger.intent(intent)
    say("I", request_id)
    for step in range(1, steps + 1):
        ledger.progress(Progress(request_id, prompt, STEP * step))
        ledger.attempt(Attempt(request_id, step, "local-8b", 1, 2, "queue_timeout"))
        # The same intent again is no new row, but what it waits for holds the attempt.
        await ledger.intent(intent)
        say("P", request_id, step)
    if has_egress(request_id):
        await ledger.record_egress(
            Egress(
                egress_id_of(request_id),
                request_id,
                steps + 1,
                1,
                "http://x/v1",
                "score",
                "h",
                9,
                {},
                "p@1",
                "d",
            )
        )
        say("E", request_id)
    await ledger.completion(
        Completion(
            request_id,
            2,
            "ok",
            200,
            "local-8b",
            steps,
            prompt,
            0,
            completion_of(request_id),
            True,
            0.0,
            1.0,
            2.0,
        )
    )
    say("C", request_id)


async def main(spool: Path, prefix: str) -> None:
    say("imported")
    if not sys.stdin.readline():
        return
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=CHAIN_KEY)
    say("ready", ledger.recovered)
    numbers = itertools.count()

    async def worker() -> None:
        while True:
            await serve(ledger, f"{prefix}-{next(numbers):06d}")

    async with asyncio.TaskGroup() as workers:
        for _ in range(WORKERS):
            workers.create_task(worker())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
