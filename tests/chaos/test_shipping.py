"""Shipping and `kill -9`, long backlogs, and a disk that is full: everything arrives, once by id and revision."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support import ledger_rows as rows
from tests.support.load import Promised, caller
from tests.support.otlp_receiver import OK, Mode, Receiver, receiving
from tests.support.ports import free_port
from tests.support.process import REPOSITORY, GatewayProcess
from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway
from weighbridge.config.clock import SystemClock
from weighbridge.observability import ledger_read
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.shipping_verify import verify

SPOOL = "ledger.sqlite3"


def ended(spool: Path) -> set[str]:
    with closing(ledger_read.open_readonly(spool)) as conn:
        return {row["request_id"] for row in ledger_read.requests(conn) if row["outcome"] is not None}


# ---- kill -9 ----


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.soak)])
async def test_kills_while_shipping_lose_nothing(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(20261130)
    promised = Promised()
    modes = (
        OK,
        Mode(first_s=0.05),
        Mode(cut=True, keeps=True),
        Mode(status=503, keeps=True),
        Mode(status=503),
        Mode(hang=True),
    )
    with receiving() as collector:
        config = tmp_path / "settings.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "server": {"port": 0},
                    "state_dir": str(tmp_path / "state"),
                    "tiers": {"local-8b": {"max_num_seqs": 4}, "local-70b": {"max_num_seqs": 2}},
                    "collector": {
                        "endpoint": collector.url,
                        "interval_s": 0.05,
                        "batch_size": 5,
                        "timeout_s": 1,
                        "metrics_interval_s": None,
                    },
                }
            )
        )

        def gateway() -> GatewayProcess:
            return GatewayProcess(
                ["-m", "tests.support.fake_gateway", str(config)], log=tmp_path / "gateway.log"
            )

        for n in range(rounds):
            collector.mode = modes[n % len(modes)] if n < len(modes) else rng.choice(modes)
            killed = gateway()
            await asyncio.to_thread(killed.start)
            async with asyncio.TaskGroup() as group:
                for _ in range(6):
                    group.create_task(
                        caller(
                            killed.url, promised, random.Random(rng.random()), ("local-8b", "local-70b"), 16
                        )
                    )
                await promised.until_chunks(promised.chunks + rng.randrange(100, 500))
                killed.kill9()
        collector.mode = OK
        last = gateway()
        await asyncio.to_thread(last.start)
        spool = tmp_path / "state" / SPOOL
        ids = ended(spool)
        assert promised.begun <= ids
        await asyncio.to_thread(collector.wait, lambda: set(collector.latest()) >= ids, 60)
        assert await asyncio.to_thread(last.stop) == 0
        collector.write(tmp_path / "sink.jsonl")
    found = verify(spool, [tmp_path / "sink.jsonl"])
    assert found.agrees, (found.faults, found.named)
    assert found.agreeing == len(ids)
    assert set(collector.latest()) == ids


# ---- a long backlog ----


def long_backlog(spool: Path, count: int) -> None:
    """`count` requests that have ended, each with an attempt, put in at once."""
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    ledger.close_sync()
    model = {**_as_columns(rows.intent()), **_as_columns(rows.completion())}
    names = ", ".join(model)
    with closing(sqlite3.connect(spool)) as conn:
        conn.executemany(
            f"INSERT INTO requests ({names}, seq) VALUES ({', '.join('?' * len(model))}, ?)",
            ((*{**model, "request_id": f"r{n:07d}"}.values(), n) for n in range(1, count + 1)),
        )
        tried = _as_columns(rows.attempt())
        conn.executemany(
            f"INSERT INTO attempts ({', '.join(tried)}) VALUES ({', '.join('?' * len(tried))})",
            (tuple({**tried, "request_id": f"r{n:07d}"}.values()) for n in range(1, count + 1)),
        )
        conn.execute("UPDATE shipping SET taken = ?, rolled = ?", (count, count))
        conn.commit()


def _as_columns(row: Any) -> dict[str, Any]:
    held = {name: getattr(row, name) for name in row.__struct_fields__}
    if "reasons" in held:
        held["reasons"] = '["score"]'
        held["road_decided"] = held.pop("road")
    return {name: value for name, value in held.items() if value is not None}


@contextlib.contextmanager
def shipping_process(
    spool: Path, url: str, size: int
) -> Iterator[tuple[int, Callable[[], tuple[int, str, int]]]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.shipping_driver", str(spool), url, str(size)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def standing() -> tuple[int, str, int]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            _, records, trouble, kb = process.stdout.readline().split()
            return int(records), trouble, int(kb)

        try:
            yield int(process.stdout.readline().split()[1]), standing
        finally:
            process.stdin.close()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


MOST_KB = 32 << 10
"""What shipping may take beyond what the process has before it begins: a batch, its words, and the protobuf library."""


def test_memory_does_not_grow_with_the_backlog_while_the_collector_is_down(tmp_path: Path) -> None:
    spool = tmp_path / SPOOL
    long_backlog(spool, 50_000)
    with shipping_process(spool, f"http://127.0.0.1:{free_port()}", 512) as (before_kb, standing):
        until = time.monotonic() + 4
        while time.monotonic() < until or standing()[0] == 0:
            time.sleep(0.1)
        records, trouble, kb = standing()
    assert (records, trouble) == (50_000, "connect")
    assert kb - before_kb < MOST_KB, f"{(kb - before_kb) >> 10} MiB"


@pytest.mark.parametrize("count", [8_000, pytest.param(50_000, marks=pytest.mark.soak)])
def test_a_long_backlog_arrives_in_bounded_memory(tmp_path: Path, count: int) -> None:
    spool = tmp_path / SPOOL
    long_backlog(spool, count)

    class Counting(Receiver):
        """Keeps ids alone: this process is not what is measured, and a test must end."""

        def _keep(self, export: Any, kept: list[Any]) -> None:
            with self.changed:
                for record in kept:
                    self.ids.append(record.attributes[0].value.string_value)
                self.changed.notify_all()

    Counting.ids = []  # type: ignore[attr-defined]
    collector = Counting()
    try:
        with shipping_process(spool, collector.url, 512) as (before_kb, standing):
            collector.wait(lambda: len(collector.ids) >= count, 240)  # type: ignore[attr-defined]
            _, _, kb = standing()
    finally:
        collector.close()
    assert len(set(collector.ids)) == len(collector.ids) == count  # type: ignore[attr-defined]
    assert kb - before_kb < MOST_KB, f"{(kb - before_kb) >> 10} MiB"


# ---- a full disk ----


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own of 3 MiB, where this process may mount one; else one like any other."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """No byte more fits on the disk of `folder`; where it has none of its own, this process writes no file at all."""
    if not os.path.ismount(folder):
        with rows.broken_disk():
            yield
        return
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 512):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    try:
        yield
    finally:
        filler.unlink()


async def test_a_full_disk_loses_nothing_and_lets_nothing_out(small_disk: Path, tmp_path: Path) -> None:
    with receiving() as collector:
        async with (
            recording() as recorder,
            running_gateway(
                small_disk,
                upstream=recorder.base_url,
                policy=policy_file(tmp_path),
                collector={"endpoint": collector.url, "interval_s": 0.1, "metrics_interval_s": None},
            ) as gateway,
        ):
            few = asyncio.Semaphore(8)

            async def ask(model: str = "local-8b") -> httpx.Response:
                async with few:
                    return await gateway.chat(model=model, max_tokens=4)

            answers = [await ask()]
            left = len(recorder.requests)
            with full(small_disk):
                # Enough to use up what is left of pages that are allocated already.
                answers += await asyncio.gather(*(ask() for _ in range(300)))
                while gateway.parts.ledger.healthy:
                    answers += await asyncio.gather(*(ask() for _ in range(50)))
                assert {answer.status_code for answer in answers} == {200}
                told = (await gateway.client.get("/health/ready")).json()
                assert told["status"] == "degraded"
                assert not told["parts"]["ledger"]["ready"]
                metrics = gateway.parts.metrics
                assert metrics.records_at_risk_total.value > 0
                assert 0 < gateway.parts.ledger.backlog <= 2 * len(answers) + len(answers)
                refused = await ask("commercial")
                assert refused.status_code >= 400
                assert len(recorder.requests) == left, "nothing leaves without its row"

            async def healthy() -> None:
                while (await gateway.client.get("/health/ready")).json()["status"] != "ready":
                    await asyncio.sleep(0.05)

            await asyncio.wait_for(healthy(), 30)
            ids = {answer.headers["x-weighbridge-request-id"] for answer in answers}
            await asyncio.to_thread(collector.wait, lambda: set(collector.latest()) >= ids, 60)
            assert metrics.records_dropped_total.value == 0
            assert (await ask("commercial")).status_code == 200
        collector.write(tmp_path / "sink.jsonl")
    found = verify(gateway.state_dir / SPOOL, [tmp_path / "sink.jsonl"])
    assert found.agrees, (found.faults, found.named)
    assert ended(gateway.state_dir / SPOOL) >= ids
