"""The admin's thresholds: a patch moves the very next request, a bad one nothing, and both survive."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.policies.states import TEXT, FixedClock, MemoryState, failures, road
from weighbridge.config.errors import ApiError
from weighbridge.config.problems import ConfigProblems
from weighbridge.observability.metrics import Metrics
from weighbridge.policies.store import PolicyStore
from weighbridge.state.store import OverlayEntry, StateStore, StateUnavailable


def test_a_patch_moves_the_very_next_request(file: Path, state: Any) -> None:
    store = PolicyStore(file, state)
    base = store.current
    assert road(store, 0.4) == "local-8b"
    made = store.patch_thresholds({"bounds": {"local_8b": 0.3}, "reason": "too short"}, who="ops")
    assert made is store.current
    assert road(store, 0.4) == "local-70b"
    assert base.place("chat", 0.4, "t").road == "local-8b", "an admitted request keeps its version"
    assert made.version != base.version
    shown = store.thresholds()
    entry = shown.pop("overlay")
    assert shown == {
        "policy": made.version,
        "bounds": {"local_8b": 0.3, "local_70b": 0.55},
        "queue_lock_timeout_ms": 2000,
        "base": {"bounds": {"local_8b": 0.45, "local_70b": 0.55}, "queue_lock_timeout_ms": 2000},
    }
    assert entry["at_ns"] > 0
    assert {key: entry[key] for key in ("id", "who", "why", "values", "base_policy_version")} == {
        "id": 1,
        "who": "ops",
        "why": "too short",
        "values": {"bounds": {"local_8b": 0.3}},
        "base_policy_version": base.version,
    }


def test_patches_add_up_and_null_takes_them_away(file: Path, state: Any) -> None:
    store = PolicyStore(file, state)
    base = store.current.version
    store.patch_thresholds({"bounds": {"local_8b": 0.3}}, who="a", why="one")
    store.patch_thresholds({"queue_lock_timeout_ms": 100}, who="a", why="two")
    assert (store.current.local_8b, store.current.queue_lock_timeout_ms) == (0.3, 100)
    store.patch_thresholds({"bounds": {"local_8b": None}}, who="a", why="three")
    assert (store.current.local_8b, store.current.queue_lock_timeout_ms) == (0.45, 100)
    store.patch_thresholds({"queue_lock_timeout_ms": None}, who="b", why="four")
    assert store.current.version == base
    assert store.thresholds()["overlay"] is None
    assert [entry.why for entry in state.history()] == ["one", "two", "three", "four"]


@pytest.mark.parametrize(
    ("patch", "param"),
    [
        ({"bounds": {"local_8b": 0.6}}, "bounds.local_8b"),
        ({"bounds": {"local_70b": 0.1}}, "bounds.local_70b"),
        ({"bounds": {"local_8b": 0.6, "local_70b": 0.5}}, "bounds.local_8b"),
        ({"bounds": {"local_8b": 7}}, "bounds.local_8b"),
        ({"queue_lock_timeout_ms": "9"}, "queue_lock_timeout_ms"),
        ({"egress": "masked"}, "egress"),
        ({"tasks": {"code": {"road": "local-8b"}}}, "tasks"),
    ],
)
def test_an_invalid_patch_changes_nothing(file: Path, state: Any, patch: dict[str, Any], param: str) -> None:
    store = PolicyStore(file, state)
    store.patch_thresholds({"queue_lock_timeout_ms": 50}, who="a", why="first")
    before, shown = store.current, store.thresholds()
    with pytest.raises(ApiError) as caught:
        store.patch_thresholds(patch, who="a", why="second")
    assert (caught.value.status, caught.value.type, caught.value.param) == (
        400,
        "invalid_request_error",
        param,
    )
    assert store.current is before
    assert store.thresholds() == shown
    assert PolicyStore(file, state).current == before, "and after a restart"
    assert len(state.history()) == 1


def test_a_patch_that_cannot_be_kept_changes_nothing(file: Path, tmp_path: Path) -> None:
    memory = MemoryState()
    memory.fails = StateUnavailable("disk full")
    closed = StateStore.open(tmp_path / "closed.sqlite3", FixedClock())
    stores = [PolicyStore(file, state) for state in (memory, closed)]
    closed.close()
    for store in stores:
        before = store.current
        with pytest.raises(ApiError) as caught:
            store.patch_thresholds({"queue_lock_timeout_ms": 5}, who="a", why="r")
        assert (caught.value.status, caught.value.code) == (503, "state_unavailable")
        assert store.current is before
        assert store.thresholds()["overlay"] is None


def test_the_change_is_kept_before_it_is_in_force(file: Path) -> None:
    seen: list[float] = []

    class Watching(MemoryState):
        def set_overlay(self, *args: Any, **more: Any) -> OverlayEntry:
            seen.append(store.current.local_8b)
            return super().set_overlay(*args, **more)

    store = PolicyStore(file, Watching())
    store.patch_thresholds({"bounds": {"local_8b": 0.1}}, who="a", why="r")
    assert seen == [0.45]
    assert store.current.local_8b == 0.1


def test_the_overlay_survives_a_restart(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite3"
    first = StateStore.open(path, FixedClock())
    made = PolicyStore(file, first).patch_thresholds({"bounds": {"local_70b": 0.9}}, who="ops", why="r")
    first.close()
    second = StateStore.open(path, FixedClock())
    again = PolicyStore(file, second)
    assert again.current == made
    assert again.thresholds()["overlay"]["who"] == "ops"
    second.close()


def test_a_change_of_the_file_keeps_the_overlay(file: Path, state: Any) -> None:
    store = PolicyStore(file, state)
    store.patch_thresholds({"bounds": {"local_8b": 0.2}}, who="a", why="r")
    file.write_text(TEXT.replace("0.45", "0.40").replace("0.55", "0.60"))
    assert store.reload_if_changed() is True
    assert (store.current.local_8b, store.current.local_70b) == (0.2, 0.60)
    assert store.thresholds()["base"]["bounds"] == {"local_8b": 0.40, "local_70b": 0.60}


def test_a_file_that_does_not_go_with_the_overlay_keeps_the_old_policy_until_it_does(
    file: Path, state: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    store = PolicyStore(file, state, metrics)
    store.patch_thresholds({"bounds": {"local_8b": 0.5}}, who="a", why="r")
    before = store.current
    file.write_text(TEXT.replace("0.45", "0.1").replace("0.55", "0.2"))
    assert store.reload_if_changed() is False
    assert store.current is before
    assert failures(metrics) == 1
    said = f"{file}:6:3: bounds.local_70b: must not be below local_8b (0.5) (with an admin's changes over this file)"
    assert said in caplog.text
    assert (store.file_state, [str(problem) for problem in store.problems]) == ("conflict", [said])
    again = PolicyStore(file, state)
    assert again.current == before, "a restart goes on with it"
    assert (again.file_state, again.problems) == ("conflict", store.problems)
    assert again.thresholds() == store.thresholds()
    assert again.poll() is False and again.current == before
    store.patch_thresholds({"bounds": {"local_8b": None}}, who="a", why="back")
    assert store.poll() is True, "the file goes with the new overlay, so it is looked at again"
    assert (store.current.local_8b, store.current.local_70b) == (0.1, 0.2)
    assert (store.file_state, store.problems) == ("in_force", ())


def test_kept_thresholds_that_cannot_be_read_end_the_start(file: Path, tmp_path: Path) -> None:
    broken = MemoryState()
    broken.set_overlay({"bounds": {"local_8b": 9}}, "a", "b")
    with pytest.raises(
        ConfigProblems,
        match=r"policy.yaml:5:3: bounds\.local_8b: must be a number between 0 and 1 \(with an admin",
    ):
        PolicyStore(file, broken)
    closed = StateStore.open(tmp_path / "c.sqlite3", FixedClock())
    closed.close()
    with pytest.raises(ConfigProblems, match="changes kept in state_dir: the state file cannot be read"):
        PolicyStore(file, closed)


def test_patches_and_reloads_at_once_lose_nothing(file: Path, state: Any) -> None:
    store = PolicyStore(file, state)
    start = threading.Barrier(9)
    faults: list[BaseException] = []

    def run(n: int) -> None:
        start.wait()
        try:
            for step in range(5):
                if n == 0:
                    other = file.with_suffix(".new")
                    other.write_text(TEXT.replace("name: p", f"name: p{step}"))
                    other.replace(file)
                    store.reload_if_changed()
                else:
                    store.patch_thresholds(
                        {"queue_lock_timeout_ms": n * 100 + step + 1}, who=f"t{n}", why="r"
                    )
        except BaseException as exc:
            faults.append(exc)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join()
    assert faults == []
    history = state.history()
    assert len(history) == 35
    assert store.current.name == "p4"
    assert store.current.queue_lock_timeout_ms == history[-1].values["queue_lock_timeout_ms"]
    assert store.thresholds()["overlay"]["id"] == 35
    assert PolicyStore(file, state).current == store.current
