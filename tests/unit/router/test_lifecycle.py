"""The phases of a request: every step that is not on the map raises."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest

from weighbridge.router.lifecycle import Lifecycle, Limits, Phase

STEPS = {
    "received": ["scored", "done"],
    "scored": ["queued", "done"],
    "queued": ["queued", "granted", "committed", "done"],
    "granted": ["queued", "committed", "done"],
    "committed": ["done"],
    "done": [],
}


def at(phase: Phase) -> Lifecycle:
    anything: Any = Mock()
    life = Lifecycle(
        anything,
        anything,
        anything,
        roads=anything,
        clock=anything,
        deadline=anything,
        on_setback=anything,
        cut_by_us=anything,
        limits=Limits(15, 120),
    )
    life.phase = phase
    return life


@pytest.mark.parametrize(("here", "there"), list(product(Phase, Phase)), ids=lambda phase: phase.value)
def test_a_step_off_the_map_raises(here: Phase, there: Phase) -> None:
    life = at(here)
    if there.value in STEPS[here.value]:
        life._enter(there)
        assert life.phase is there
    else:
        with pytest.raises(RuntimeError, match=f"{here.value} -> {there.value}"):
            life._enter(there)
        assert life.phase is here
