"""`kill -9` on a gateway under load: no record is lost, none is doubled, no process stays behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.support.ledger_rows import CHAIN_KEY
from tests.support.load import Promised, caller
from tests.support.process import GatewayProcess, all_gone, children
from tests.support.recorder import recording
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.secret import find_secrets
from weighbridge.observability import ledger_read
from weighbridge.observability.egress_verify import verify_file
from weighbridge.observability.ledger import Ledger

rounds_of_kills = pytest.mark.parametrize("rounds", [15, pytest.param(100, marks=pytest.mark.soak)])


def check_ledger(spool: Path, promised: Promised) -> list[dict[str, object]]:
    """After one more start: one row each, exact tokens where the caller had the whole answer."""
    Ledger.open(spool, clock=SystemClock(), chain_key=CHAIN_KEY).close_sync()
    with ledger_read.open_readonly(spool) as conn:
        rows = ledger_read.requests(conn)
        tried = ledger_read.attempts(conn)
    by_id = {str(row["request_id"]): row for row in rows}
    assert len(by_id) == len(rows)
    assert promised.begun <= set(by_id), "an answer began whose request has no row"
    assert all(row["outcome"] for row in rows), "a row was left open"
    for request_id, (prompt, completion) in promised.whole.items():
        row = by_id[request_id]
        assert row["outcome"] == "ok"
        assert (row["prompt_tokens"], row["completion_tokens"]) == (prompt, completion)
    assert not any(by_id[request_id]["completion_tokens"] for request_id in promised.refused)
    made = Counter(str(attempt["request_id"]) for attempt in tried)
    for request_id, row in by_id.items():
        # A lost request's row cannot know how many attempts it had; every other one's comes after them.
        if row["outcome"] != "lost":
            assert made[request_id] == row["attempts"], request_id
    return rows


def check_egress(state: Path, outward: set[str]) -> None:
    """The chain is whole under the one secret that the first start made, and holds every request that left."""
    secrets = find_secrets(MaskingSettings(), state)
    assert secrets is not None
    found = verify_file(state / "ledger.sqlite3", secrets.chain_keys())
    assert (found.bad_seq, found.fault) == (None, "")
    with ledger_read.open_readonly(state / "ledger.sqlite3") as conn:
        recorded = {row["request_id"] for row in ledger_read.egress(conn)}
    assert outward
    assert outward <= recorded


@rounds_of_kills
async def test_kills_lose_nothing(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(20261129)
    promised = Promised()
    async with recording() as recorder:
        config = tmp_path / "settings.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "server": {"port": 0},
                    "masking": {"layers": [], "without_names": "mask"},
                    "state_dir": str(tmp_path / "state"),
                    "tiers": {"local-8b": {"max_num_seqs": 4}, "local-70b": {"max_num_seqs": 2}},
                    "commercial": {"base_url": recorder.base_url, "model": "upstream-model"},
                }
            )
        )
        for _ in range(rounds):
            gateway = GatewayProcess(
                ["-m", "tests.support.fake_gateway", str(config)], log=tmp_path / "gateway.log"
            )
            await asyncio.to_thread(gateway.start)
            models = ("auto", "local-8b", "local-70b", "commercial")
            async with asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(caller(gateway.url, promised, random.Random(rng.random()), models, 48))
                await promised.until_chunks(promised.chunks + rng.randrange(1, 400))
                offspring = children(gateway.pid)
                assert offspring, "the masking process should be there"
                gateway.kill9()
            assert not all_gone(offspring, 5), "a process outlived its gateway"
    rows = check_ledger(tmp_path / "state" / "ledger.sqlite3", promised)
    check_egress(tmp_path / "state", {request.headers["x-request-id"] for request in recorder.requests})
    assert len(promised.whole) > rounds
    lost = [row for row in rows if row["outcome"] == "lost"]
    assert lost, "kills under load must have caught some requests in flight"


@pytest.mark.engine
async def test_two_kills_on_real_vllm(tmp_path: Path) -> None:
    rng = random.Random(7)
    promised = Promised()
    config = tmp_path / "settings.yaml"
    tier = {"max_num_seqs": 4, "max_model_len": 1024, "kv_cache_memory_bytes": 256 << 20}
    config.write_text(
        yaml.safe_dump(
            {
                "server": {"port": 0},
                "masking": {"layers": [], "without_names": "mask"},
                "state_dir": str(tmp_path / "state"),
                "tiers": {"local-8b": tier, "local-70b": None},
            }
        )
    )
    for _ in range(2):
        gateway = GatewayProcess(
            ["-m", "weighbridge.gateway.cli", "serve", "--config", str(config)], log=tmp_path / "gateway.log"
        )
        await asyncio.to_thread(gateway.start, 400)
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(
                    caller(gateway.url, promised, random.Random(rng.random()), ("local-8b",), 64)
                )
            whole = len(promised.whole)
            await promised.until_chunks(promised.chunks + 150)
            while len(promised.whole) < whole + 3:
                await promised.until_chunks(promised.chunks + 20)
            offspring = children(gateway.pid)
            assert len(offspring) >= 2, "engine core and worker should be there"
            gateway.kill9()
        assert not all_gone(offspring, 5), "an engine or masking process outlived its gateway"
    rows = check_ledger(tmp_path / "state" / "ledger.sqlite3", promised)
    lost = [row for row in rows if row["outcome"] == "lost"]
    assert lost and any(int(str(row["completion_tokens"])) > 0 for row in lost)
