"""The OpenAPI document against the running gateway: what schemathesis makes of it is answered as it says."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.running import running_gateway

KEY, ADMIN = "wb-user", "wb-admin"
CASES = 25
"""Of each operation."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in a loop and thread of its own: schemathesis asks synchronously."""
    folder = tmp_path_factory.mktemp("openapi")
    auth = {
        "keys": [{"id": "one", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}],
        "admin_keys": [{"id": "root", "sha256": hashlib.sha256(ADMIN.encode()).hexdigest()}],
    }
    up, stop, held = threading.Event(), asyncio.Event(), []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with running_gateway(folder, auth=auth) as here:
            held.append(here.url)
            up.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert up.wait(60)
    yield held[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


def put_to_the_test(operation: Any, key: str, asked: Counter[str]) -> None:
    """Raises whatever speaks against an answer."""

    @seed(5)
    @settings(
        max_examples=CASES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        asked[f"{case.method.upper()} {case.path}"] += 1
        response = case.call(headers={"authorization": f"Bearer {key}"}, timeout=30)
        assert response.status_code != 500, response.text
        case.validate_response(response, checks=CHECKS)

    ask()


def test_every_operation_answers_as_its_document_says(url: str) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    # What FastAPI would say by itself to a wrong parameter; it has no answer of ours.
    assert "ValidationError" not in json.dumps(schema.raw_schema)
    asked: Counter[str] = Counter()
    faults: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        try:
            put_to_the_test(operation, ADMIN if operation.path.startswith("/admin") else KEY, asked)
        except (Exception, BaseExceptionGroup) as fault:
            faults.append(f"{operation.method} {operation.path}: {fault}")
    assert not faults, "\n\n".join(faults)
    assert {"POST /v1/chat/completions", "PATCH /admin/v1/thresholds", "GET /admin/v1/egress"} <= set(asked)
