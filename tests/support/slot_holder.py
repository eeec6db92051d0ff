"""`python -m tests.support.slot_holder URL SLOTS LEASE_S`: a gateway's queue lock as a process, which takes every slot
and waits for as many more, says so, and holds them until it is killed."""

from __future__ import annotations

import asyncio
import sys

from tests.support.replicas import replica, terms
from tests.support.waiting import until


async def main(url: str, slots: int, lease_s: float) -> None:
    async with replica(url, slots=slots, lease_s=lease_s, operation_ms=80) as one:
        for _ in range(slots):
            await one.lock.acquire(terms())
        more = [asyncio.create_task(one.lock.acquire(terms(600))) for _ in range(slots)]
        await until(lambda: one.lock.waiting == slots and not one.lock._asking)
        print("held", flush=True)
        await asyncio.gather(*more)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
