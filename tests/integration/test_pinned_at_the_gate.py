"""A conversation that is pinned while one of its turns stands in the gate: that turn does not leave either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.recorder import recording
from tests.support.running import policy_file, running_gateway
from weighbridge.observability.records import Egress

HEADERS = {"x-weighbridge-conversation-id": "c"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_that_is_being_recorded_does_not_leave_after_the_pin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    async with (
        recording() as recorder,
        running_gateway(tmp_path, upstream=recorder.base_url, policy=policy_file(tmp_path)) as gateway,
    ):

        async def ask(**headers: str) -> Any:
            body = {
                "model": "commercial",
                "messages": [{"role": "user", "content": "Prove it."}],
                "stream": stream,
            }
            named = HEADERS | {name.replace("_", "-"): value for name, value in headers.items()}
            return await gateway.client.post("/v1/chat/completions", json=body, headers=named)

        record = gateway.parts.ledger.record_egress

        async def pinned_meanwhile(row: Egress) -> None:
            await record(row)
            monkeypatch.undo()
            assert (await ask(x_weighbridge_data_class="restricted")).status_code == 403

        monkeypatch.setattr(gateway.parts.ledger, "record_egress", pinned_meanwhile)
        answer = await ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "egress_refused")
        assert recorder.connections == []
        # The row stays and tells of more than has left; the attempt says that nothing did.
        (row,) = gateway.egress()
        (attempt,) = gateway.attempts(row["request_id"])
        assert (attempt["outcome"], attempt["egress_id"]) == ("egress_closed", "")
