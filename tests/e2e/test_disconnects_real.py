"""Callers who leave, at every stage, on real vLLM: the engine is idle within a second and each has one record."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import API_KEY, SLOTS, Served

pytestmark = pytest.mark.engine

IDLE_S = 1.0
LONG = " ".join(f"word{n}" for n in range(200))
"""Enough tokens that their prefill can be seen under way."""


class Caller:
    """A raw connection that asks and can leave without a word."""

    def __init__(self, served: Served, *, stream: bool, text: str) -> None:
        address = urlsplit(served.process.url)
        assert address.hostname and address.port
        self.socket = socket.create_connection((address.hostname, address.port), timeout=60)
        body = json.dumps(
            {
                "model": "local-8b",
                "stream": stream,
                "messages": [{"role": "user", "content": text}],
                "max_tokens": 400,
                "ignore_eos": True,
            }
        ).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {API_KEY}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.socket.sendall(head.encode() + body)

    def read_until(self, mark: bytes) -> None:
        seen = b""
        while mark not in seen:
            piece = self.socket.recv(65536)
            assert piece, seen
            seen += piece

    def leave(self) -> None:
        self.socket.close()


def tier(served: Served) -> dict[str, Any]:
    tiers = served.admin.get("/admin/v1/pool").json()["tiers"]
    return next(row for row in tiers if row["road"] == "local-8b")


def wait_for(served: Served, what: str, least: int = 1, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while tier(served)[what] < least:
        assert time.monotonic() < until, f"{what} stayed below {least}: {tier(served)}"
        time.sleep(0.005)


def idle_after(served: Served) -> float:
    """Seconds until nothing runs, waits or holds a slot."""
    began = time.monotonic()
    while True:
        row = tier(served)
        if not (row["engine_unfinished"] or row["slots_in_use"] or row["waiting"]):
            return time.monotonic() - began
        assert time.monotonic() - began < 20, row
        time.sleep(0.005)


def finished_since(served: Served, before: set[str]) -> list[dict[str, Any]]:
    """The new rows, once each has its end; nobody is left who would wait for it to be on disk."""
    until = time.monotonic() + 5
    while True:
        rows = [row for row in served.rows() if row["request_id"] not in before]
        if all(row["outcome"] for row in rows):
            return rows
        assert time.monotonic() < until, "a row has no end"
        time.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
def test_a_caller_who_leaves_frees_the_engine_within_a_second(
    served: Served, stage: str, stream: bool
) -> None:
    assert idle_after(served) < 20
    before = {row["request_id"] for row in served.rows()}
    callers: list[Caller] = []
    if stage == "queue":
        callers += [Caller(served, stream=True, text=f"story {n}") for n in range(SLOTS)]
        wait_for(served, "engine_unfinished", SLOTS)
        callers.append(Caller(served, stream=stream, text="and another one"))
        wait_for(served, "waiting")
        callers[-1].leave()
        until = time.monotonic() + IDLE_S
        while tier(served)["waiting"]:
            assert time.monotonic() < until, "it still waits"
    elif stage == "prefill":
        # One after the other, so that some are still being read in when they all leave.
        callers += [Caller(served, stream=stream, text=f"{n} {LONG}") for n in range(SLOTS)]
        wait_for(served, "engine_queued_tokens")
    else:
        callers.append(Caller(served, stream=stream, text="tell me a story"))
        if stream:
            callers[0].read_until(b'"content":"')
        else:
            wait_for(served, "engine_unfinished")
            time.sleep(0.5)
    for caller in callers:
        caller.leave()
    took = idle_after(served)
    print(f"{stage}, {'stream' if stream else 'document'}: idle after {took:.3f} s")
    assert took < IDLE_S
    rows = finished_since(served, before)
    assert len(rows) == len(callers)
    assert {row["outcome"] for row in rows} == {"client_aborted"}
    assert all(row["completion_tokens"] < 400 for row in rows), "one went on to its end"
