"""What a replica says of its slots, and what it makes of answers that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.state.redis_terms import RedisAway, Script
from weighbridge.state.slot_leases import Answer, SlotLeases, StatedPlace, Statement

PLACES = (StatedPlace("x", 4, True), StatedPlace("y", 2, False))
SAID = Statement(PLACES, gone=(("me.1", "x"),), claims=(("me.2", 1, 30, 2, (1,)),))
OK = ["ok", "e1", 1, 3, ["me.2", "y"], [2, 1], 5]


class Parrot:
    """A link that answers what it is given."""

    def __init__(self, reply: Any = OK) -> None:
        self.reply = reply
        self.available: bool | None = True
        self.member = "me"
        self.said: list[Any] = []
        self.keys: list[str] = []
        self.distrusted = 0

    def name(self, tag: str, *parts: str) -> str:
        return ":".join((f"{{w:{tag}}}", *parts))

    def follow(self, changed: Callable[[bool], None]) -> None: ...

    def listen(self, channel: str, heard: Callable[[str], None]) -> None: ...

    def before_closing(self, step: Callable[[], Any]) -> None: ...

    def distrust(self, why: Literal["garbage"]) -> RedisAway:
        self.distrusted += 1
        return RedisAway(why)

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        self.keys = list(keys)
        self.said.append(json.loads(args[0]))
        return self.reply


async def test_what_is_said_and_heard() -> None:
    link = Parrot()
    leases = SlotLeases(link, "local-8b", 10.0, 2)
    answer = await leases.state(SAID)
    assert answer == Answer("ok", True, 3, (("me.2", "y"),), {"x": 2, "y": 1}, 5)
    assert link.keys == [
        f"{{w:slots:local-8b}}:{part}"
        for part in ("meta", "members", "alive", "waiting", "leases:x", "leases:y")
    ]
    assert link.said[0] == {
        "me": "me",
        "number": 1,
        "epoch": "",
        "channel": "{w:slots:local-8b}",
        "lease_ms": 10_000,
        "settle_ms": 5_000,
        "places": [["x", 4, True], ["y", 2, False]],
        "whole": False,
        "replicas": 1,
        "held": [],
        "gone": [["me.1", "x"]],
        "claims": [["me.2", 1, 30, 2, [1]]],
        "leaves": False,
    }
    link.reply = ["restate", "e2"]
    assert await leases.state(SAID) == Answer("restate")
    await leases.state(SAID)
    assert [(said["number"], said["epoch"]) for said in link.said] == [(1, ""), (2, "e1"), (3, "e2")]


@pytest.mark.parametrize(
    "reply",
    [
        None,
        0,
        "OK",
        [],
        ["ok"],
        ["ok", None, 1, 3, [], [2, 1], 5],
        ["late", "e1"],
        ["ok", "e1", 1, 3, [], [2], 5],
        ["ok", "e1", 1, 3, [], [2, -1], 5],
        ["ok", "e1", 1, 3, ["me.2"], [2, 1], 5],
        ["ok", "e1", 1, 3, ["me.2", 7], [2, 1], 5],
        ["ok", "e1", 1, "3", [], [2, 1], 5],
        ["ok", "e1", 1, 3, [], [2, 1], 5, 6],
        ["ok", "e1", 1, 3, 9, [2, 1], 5],
    ],
)
async def test_garbage_makes_it_count_as_away(reply: Any) -> None:
    link = Parrot(reply)
    with pytest.raises(RedisAway):
        await SlotLeases(link, "local-8b", 10.0, 1).state(SAID)
    assert link.distrusted == 1


JUNK = st.recursive(
    st.none() | st.integers(-3, 9) | st.sampled_from(["ok", "restate", "late", "", "e"]),
    lambda inner: st.lists(inner, max_size=7),
    max_leaves=12,
)


@given(reply=JUNK | st.tuples(st.just("ok"), JUNK, JUNK, JUNK, JUNK, JUNK, JUNK).map(list))
async def test_an_answer_is_read_whole_or_not_at_all(reply: Any) -> None:
    link = Parrot(reply)
    try:
        answer = await SlotLeases(link, "local-8b", 10.0, 1).state(SAID)
    except RedisAway:
        assert link.distrusted == 1
    else:
        assert answer.kind == "restate" or (set(answer.busy) == {"x", "y"} and min(answer.busy.values()) >= 0)
