"""What every keeper of conversation pins does, whatever it keeps them in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clocks import SetClock
from weighbridge.state import pins as stored
from weighbridge.state.pins import UNSEEN_NS, ConversationPins, StoredPins
from weighbridge.state.store import StateStore

DAY_NS = 86_400 * 1_000_000_000


class Keeper:
    """One keeper that can be closed and opened again, as a restart does."""

    def __init__(self, path: Path) -> None:
        self.clock = SetClock()
        self._path = path
        self._open: Callable[[], StateStore] = lambda: StateStore.open(path, self.clock)
        self._store = self._open()
        self.pins: ConversationPins = StoredPins(self._store)

    def restart(self) -> None:
        self._store.close()
        self._store = self._open()
        self.pins = StoredPins(self._store)

    def on_disk(self) -> bytes:
        """Every byte that is kept."""
        return b"".join(file.read_bytes() for file in self._path.parent.iterdir())

    def close(self) -> None:
        self._store.close()


@pytest.fixture(params=[Keeper])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Keeper:
    made: Keeper = request.param(tmp_path / "state.sqlite3")
    request.addfinalizer(made.close)
    return made


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_first_turn_is_open_and_so_are_those_that_follow(keeper: Keeper, restarted: bool) -> None:
    assert await keeper.pins.enter("t", "c", begun=False) == "open"
    if restarted:
        keeper.restart()
    assert await keeper.pins.enter("t", "c", begun=True) == "open"
    assert await keeper.pins.is_open("t", "c")


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("begun", [False, True])
async def test_what_was_pinned_stays_local(keeper: Keeper, restarted: bool, begun: bool) -> None:
    await keeper.pins.enter("t", "c", begun=False)
    await keeper.pins.keep_local("t", "c")
    if restarted:
        keeper.restart()
    assert not await keeper.pins.is_open("t", "c")
    assert await keeper.pins.enter("t", "c", begun=begun) == "local"


async def test_one_that_was_never_entered_can_be_pinned(keeper: Keeper) -> None:
    await keeper.pins.keep_local("t", "c")
    keeper.restart()
    assert await keeper.pins.enter("t", "c", begun=False) == "local"


@pytest.mark.parametrize("restarted", [False, True])
async def test_one_that_has_begun_elsewhere_is_lost_and_stays_local(keeper: Keeper, restarted: bool) -> None:
    assert await keeper.pins.enter("t", "c", begun=True) == "lost"
    if restarted:
        keeper.restart()
    assert await keeper.pins.enter("t", "c", begun=False) == "local"
    assert not await keeper.pins.is_open("t", "c")


async def test_one_that_nobody_entered_is_not_open(keeper: Keeper) -> None:
    assert not await keeper.pins.is_open("t", "c")


async def test_tenants_and_names_are_told_apart(keeper: Keeper) -> None:
    for tenant, name in (("a", "bc"), ("ab", "c"), ("t", "c"), ("t", "C")):
        assert await keeper.pins.enter(tenant, name, begun=False) == "open"
    await keeper.pins.keep_local("ab", "c")
    await keeper.pins.keep_local("t", "C")
    for tenant, name, open_ in (("a", "bc", True), ("ab", "c", False), ("t", "c", True), ("t", "C", False)):
        assert await keeper.pins.is_open(tenant, name) is open_


async def test_an_open_one_is_forgotten_after_a_month_and_a_local_one_never(keeper: Keeper) -> None:
    await keeper.pins.enter("t", "open", begun=False)
    await keeper.pins.keep_local("t", "local")
    keeper.clock.now_ns += UNSEEN_NS
    assert await keeper.pins.enter("t", "open", begun=True) == "lost"
    assert await keeper.pins.enter("t", "local", begun=False) == "local"
    keeper.clock.now_ns += 20 * UNSEEN_NS
    keeper.restart()
    assert await keeper.pins.enter("t", "local", begun=False) == "local"


@pytest.mark.parametrize("restarted", [False, True])
async def test_one_that_is_seen_is_not_forgotten(keeper: Keeper, restarted: bool) -> None:
    await keeper.pins.enter("t", "c", begun=False)
    for _ in range(70):
        keeper.clock.now_ns += DAY_NS
        if restarted:
            keeper.restart()
        assert await keeper.pins.enter("t", "c", begun=True) == "open"


async def test_a_pin_holds_from_the_call_on(keeper: Keeper) -> None:
    await keeper.pins.enter("t", "c", begun=False)
    pinning = asyncio.create_task(keeper.pins.keep_local("t", "c"))
    await asyncio.sleep(0)
    assert not await keeper.pins.is_open("t", "c")
    assert await keeper.pins.enter("t", "c", begun=True) == "local"
    await pinning


async def test_a_pin_is_kept_though_its_caller_leaves(keeper: Keeper) -> None:
    await keeper.pins.enter("t", "c", begun=False)
    pinning = asyncio.create_task(keeper.pins.keep_local("t", "c"))
    await asyncio.sleep(0)
    pinning.cancel()
    await asyncio.gather(pinning, return_exceptions=True)
    assert await keeper.pins.enter("t", "c", begun=True) == "local"
    # Whatever was asked for before is done before this.
    assert await keeper.pins.enter("t", "other", begun=False) == "open"
    keeper.restart()
    assert await keeper.pins.enter("t", "c", begun=True) == "local"


async def test_many_at_once_agree(keeper: Keeper) -> None:
    states = await asyncio.gather(*(keeper.pins.enter("t", "c", begun=False) for _ in range(50)))
    assert set(states) == {"open"}
    lost = await asyncio.gather(*(keeper.pins.enter("t", "d", begun=True) for _ in range(50)))
    assert set(lost) <= {"lost", "local"}


async def test_names_are_not_kept(keeper: Keeper) -> None:
    await keeper.pins.enter("planted-tenant", "planted-name", begun=False)
    await keeper.pins.keep_local("planted-tenant", "planted-other")
    assert b"planted" not in keeper.on_disk()


async def test_memory_is_bounded(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MAX_HELD", 10)
    for n in range(40):
        await keeper.pins.enter("t", f"open-{n}", begun=False)
        await keeper.pins.keep_local("t", f"local-{n}")
    for n in range(40):
        assert await keeper.pins.is_open("t", f"open-{n}")
        assert not await keeper.pins.is_open("t", f"local-{n}")
