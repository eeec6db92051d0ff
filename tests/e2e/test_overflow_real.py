"""Overflow on real vLLM: 64 requests at once onto a tier with 4 slots and a queue lock of 300 ms."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.conftest import SLOTS, Served
from tests.integration.test_overflow import REQUESTS, digits, label_request, planted, said

pytestmark = pytest.mark.engine


def burst(served: Served) -> list[tuple[int, bool, httpx.Response]]:
    def one(n: int) -> tuple[int, bool, httpx.Response]:
        stream = n % 2 == 0
        return n, stream, served.chat(**label_request(n, stream), max_tokens=48, ignore_eos=True)

    with ThreadPoolExecutor(REQUESTS) as threads:
        return list(threads.map(one, range(REQUESTS)))


def test_overflow_leaves_masked_and_comes_back_restored(served: Served) -> None:
    served.put_policy(queue_lock_timeout_ms=300, outward={"refuse": []})
    try:
        outward_before, seen_before = served.egress(), len(served.recorder.requests)
        answers = burst(served)
        left, stayed = [], []
        for n, stream, response in answers:
            assert response.status_code == 200, response.text
            (left if response.headers["x-weighbridge-road"] == "commercial" else stayed).append(n)
            if response.headers["x-weighbridge-road"] == "commercial":
                assert all(value in said(response, stream) for value in planted(n).values())
        assert len(stayed) >= SLOTS and left
        assert len(served.recorder.requests) - seen_before == len(left)
        sent = served.recorder.everything.decode()
        for n in range(REQUESTS):
            for value in planted(n).values():
                assert value not in sent and digits(value) not in digits(sent)
        outward = served.egress() - outward_before
        for _, _, response in answers:
            request_id = response.headers["x-weighbridge-request-id"]
            row, tried = served.row(request_id), served.attempts(request_id)
            assert row["outcome"] == "ok" and row["attempts"] == len(tried)
            *before, last = tried
            assert last == (row["road"], "ok")
            # The shipped order: a higher tier that has a slot now, then out. Nobody waits twice.
            assert (
                before
                == {
                    "local-8b": [],
                    "local-70b": [("local-8b", before[0][1])] if before else None,
                    "commercial": [("local-8b", before[0][1]), ("local-70b", "no_free_slot")]
                    if before
                    else None,
                }[row["road"]]
            )
            assert not before or before[0][1] in ("queue_timeout", "queue_predicted")
            assert (request_id in outward) is (row["road"] == "commercial")
        assert served.slots_in_use() == 0
    finally:
        served.put_policy()


def test_on_prem_only_answers_429_and_nobody_connects(served: Served) -> None:
    served.put_policy(queue_lock_timeout_ms=300, egress="never")
    try:
        connections = len(served.recorder.connections)
        seen = len(served.recorder.requests)
        answers = [response for _, _, response in burst(served)]
        refused = [response for response in answers if response.status_code == 429]
        assert refused and len(refused) + sum(r.status_code == 200 for r in answers) == REQUESTS
        assert all(int(response.headers["retry-after"]) >= 1 for response in refused)
        assert all(response.json()["error"]["code"] == "queue_lock_timeout" for response in refused)
        assert (len(served.recorder.connections), len(served.recorder.requests)) == (connections, seen)
        assert served.slots_in_use() == 0
    finally:
        served.put_policy()
