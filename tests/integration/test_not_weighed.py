"""A request that names its tier has no score, in its headers and in its record."""

from __future__ import annotations

from pathlib import Path

from tests.support.running import running_gateway


async def test_only_what_is_weighed_has_a_score(tmp_path: Path) -> None:
    async with running_gateway(tmp_path) as gateway:
        named = await gateway.chat(model="local-8b")
        chosen = await gateway.chat(model="auto")
        assert "x-weighbridge-score" not in named.headers
        assert 0 <= float(chosen.headers["x-weighbridge-score"]) <= 1
        by_id = {row["request_id"]: row for row in gateway.rows()}
    of_named = by_id[named.headers["x-weighbridge-request-id"]]
    of_chosen = by_id[chosen.headers["x-weighbridge-request-id"]]
    assert (of_named["score"], of_named["task"]) == (None, "unknown")
    assert of_chosen["score"] is not None and of_chosen["task"] == chosen.headers["x-weighbridge-task"]
