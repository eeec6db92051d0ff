"""One gateway for the whole session: two tiers really served by vLLM, and a recorder as the commercial API."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from openai import OpenAI

from tests.support.process import GatewayProcess, all_gone, children
from tests.support.recorder import Recorder, threaded
from tests.support.running import policy_file
from weighbridge.observability import ledger_read

API_KEY, ADMIN_KEY = "wb-test-caller", "wb-test-admin"
SLOTS = 4
ALIASES = {"gpt-4o": "auto", "gpt-4o-mini": "local-8b"}
PLANTED = (
    "corp-example.co.kr",
    "010-2345-6789",
    "4111 1111 1111 1111",
    "weigh this word",
    "merges two sorted lists",
    "물건이 아직",
    "따라 하세요",
    "Say hello to the team",
    "planted",
)
"""Pieces of what the tests of this session send."""


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass
class Served:
    """The running gateway, as its users and its operator reach it."""

    process: GatewayProcess
    recorder: Recorder
    folder: Path
    openai: OpenAI
    http: httpx.Client
    admin: httpx.Client

    def chat(self, **body: Any) -> httpx.Response:
        body.setdefault("model", "auto")
        return self.http.post("/v1/chat/completions", json=body)

    def row(self, request_id: str) -> dict[str, Any]:
        """The finished row of a request."""
        with ledger_read.open_readonly(self.folder / "state" / "ledger.sqlite3") as conn:
            (row,) = ledger_read.requests(conn, request_id)
        return row

    def rows(self) -> list[dict[str, Any]]:
        with ledger_read.open_readonly(self.folder / "state" / "ledger.sqlite3") as conn:
            return ledger_read.requests(conn)

    def attempts(self, request_id: str) -> list[tuple[str, str]]:
        with ledger_read.open_readonly(self.folder / "state" / "ledger.sqlite3") as conn:
            return [(row["road"], row["outcome"]) for row in ledger_read.attempts(conn, request_id)]

    def egress(self) -> set[str]:
        with ledger_read.open_readonly(self.folder / "state" / "ledger.sqlite3") as conn:
            return {row["request_id"] for row in ledger_read.egress(conn)}

    def put_policy(self, **values: Any) -> None:
        """Change the policy file and wait until the gateway has it in force."""
        before = self.admin.get("/admin/v1/policy").json()["version"]
        policy_file(self.folder, **{"aliases": ALIASES, **values})
        for _ in range(200):
            if self.admin.get("/admin/v1/policy").json()["version"] != before:
                return
            time.sleep(0.05)
        raise AssertionError(f"the policy was not taken over:\n{self.process.log[-2000:]}")

    def slots_in_use(self) -> int:
        return sum(tier["slots_in_use"] for tier in self.admin.get("/admin/v1/pool").json()["tiers"])


def settings(folder: Path, upstream: str | None, *, roads: tuple[str, ...]) -> Path:
    """A settings file for small engines on a free port."""
    tier = {"max_num_seqs": SLOTS, "max_model_len": 1024, "kv_cache_memory_bytes": 256 << 20}
    document: dict[str, Any] = {
        "server": {"port": 0},
        "state_dir": str(folder / "state"),
        "auth": {
            "keys": [{"id": "caller", "sha256": digest(API_KEY), "tenant": "team-a"}],
            "admin_keys": [{"id": "root", "sha256": digest(ADMIN_KEY)}],
        },
        "tiers": {road: dict(tier) if road in roads else None for road in ("local-8b", "local-70b")},
        "policies": {"file": str(policy_file(folder, aliases=ALIASES)), "poll_interval_s": 0.1},
    }
    if upstream:
        document["commercial"] = {"base_url": upstream, "model": "upstream-model"}
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def wait_for_all_tiers(http: httpx.Client, process: GatewayProcess, timeout_s: float = 240) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        if all(tier["ready"] for tier in http.get("/admin/v1/pool").json()["tiers"]):
            return
        time.sleep(0.5)
    raise RuntimeError(f"not every tier came up:\n{process.log[-4000:]}")


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("gateway")
    with threaded() as recorder:
        config = settings(folder, recorder.base_url, roads=("local-8b", "local-70b"))
        process = GatewayProcess(
            ["-m", "weighbridge.gateway.cli", "serve", "--config", str(config)], log=folder / "gateway.log"
        )
        process.start(timeout_s=400)
        with (
            httpx.Client(
                base_url=process.url, headers={"authorization": f"Bearer {API_KEY}"}, timeout=120
            ) as http,
            httpx.Client(
                base_url=process.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=30
            ) as admin,
        ):
            wait_for_all_tiers(admin, process)
            client = OpenAI(base_url=f"{process.url}/v1", api_key=API_KEY, timeout=120, max_retries=0)
            offspring = children(process.pid)
            yield Served(process, recorder, folder, client, http, admin)
            told = admin.get("/metrics").text
            assert process.stop() == 0
            assert_nothing_planted(told, process.log, folder)
            assert not all_gone(offspring, 5), "a process outlived its gateway"


def assert_nothing_planted(metrics: str, log: str, folder: Path) -> None:
    """What callers wrote stands in no log line, metric, ledger or state file of the whole session."""
    stored = b"".join(path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file())
    for value in (*PLANTED, API_KEY, ADMIN_KEY):
        for place, text in (("metrics", metrics), ("log", log), ("state folder", stored.decode("latin-1"))):
            assert value not in text and value.encode().decode("latin-1") not in text, (
                f"{place} holds {value}"
            )


def sse(text: str) -> list[Any]:
    """The events of a stream; `[DONE]` stays text."""
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [event if event == "[DONE]" else json.loads(event) for event in events]
