"""A value of the tenant's list where no placeholder can stand: whatever type the list gives it, the request stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.masker import Masker

LISTED = {
    "PERSON": "Zanzibarov",
    "NAME": "Quillon",
    "PLACE": "Lowmere",
    "ORG": "Bluewhale",
    "KNOWN": "Okapi77",
}
SAID: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def calling(arguments: dict[str, Any]) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}
    return {"messages": [*SAID, {"role": "assistant", "tool_calls": [call]}]}


def function(name: str, parameter: str = "x") -> dict[str, Any]:
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}}
    tool = {"type": "function", "function": {"name": name, "parameters": schema}}
    return {"messages": SAID, "tools": [tool]}


def answering(name: str) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": name, "schema": {"type": "object"}}}
    return {"messages": SAID, "response_format": wanted}


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "list.txt"
    path.write_text("".join(f"{kind}\t{value}\n" for kind, value in LISTED.items()), "utf-8")
    return path


async def masked(listed: Path, body: dict[str, Any]) -> bytes:
    settings = MaskingSettings(layers=[], without_names="mask", known_values={"default": listed})
    clock = SystemClock()
    masker = Masker(settings, clock, start_child=Children(lambda text: []).start)
    await masker.start()
    try:
        made = await masker.mask(
            body,
            request_id="r",
            upstream_model="m",
            conversation="c",
            deadline=Deadline.after(clock, 10),
        )
        return made.body
    finally:
        await masker.close()


@pytest.mark.parametrize("value", LISTED.values())
async def test_a_listed_value_is_no_key_and_no_name(listed: Path, value: str) -> None:
    for body in (
        calling({value: 1}),
        calling({"a": [{f"of_{value.lower()}": "x"}]}),
        function(value),
        function("f", value),
        answering(value),
    ):
        with pytest.raises(MaskingRefused, match="key_hit"):
            await masked(listed, body)


async def test_a_word_that_the_list_does_not_hold_is_one(listed: Path) -> None:
    assert b"Bluewhales" in await masked(listed, function("Bluewhales", "Okapi778"))
