"""The policy file in force: changes come in by content, and a bad file never lands."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from tests.unit.policies.states import TEXT, MemoryState, failures
from weighbridge.config.problems import ConfigProblems
from weighbridge.observability.metrics import Metrics
from weighbridge.policies.store import PolicyStore


def test_an_invalid_file_at_the_start_ends_it(file: Path) -> None:
    file.write_text(TEXT + "x: 1\n")
    with pytest.raises(ConfigProblems, match=r"policy\.yaml:7:1: x: unknown key"):
        PolicyStore(file, MemoryState())
    with pytest.raises(ConfigProblems, match="no such file"):
        PolicyStore(file.with_name("none.yaml"), MemoryState())


def test_a_change_of_the_file_comes_into_force_and_old_policies_stay_as_they_were(file: Path) -> None:
    metrics = Metrics()
    store = PolicyStore(file, MemoryState(), metrics)
    before = store.current
    assert store.reload_if_changed() is False
    file.write_text(TEXT.replace("0.45", "0.30"))
    assert store.reload_if_changed() is True
    assert store.reload_if_changed() is False
    assert (before.local_8b, store.current.local_8b) == (0.45, 0.30)
    assert before.version != store.current.version
    labels = {"version": store.current.version}
    assert metrics.registry.get_sample_value("weighbridge_policy_info", labels) == 1
    assert failures(metrics) == 0


def test_a_comment_brings_no_other_policy_into_force(file: Path) -> None:
    store = PolicyStore(file, MemoryState())
    version = store.current.version
    file.write_text(TEXT + "# said\n")
    assert store.reload_if_changed() is False
    assert store.current.version == version


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", ": is empty"),
        (TEXT.encode() + b"tasks:\n  code: {road: x}\n", ":8:10: tasks.code.road: must be one of "),
        (
            b"version: 1\nname: p\negress: masked\nbounds: {local_8b: 0.9}\n",
            ":4:1: bounds.local_70b: must not be below",
        ),
        (b"\xff", ":1:1: is not UTF-8 text"),
        (None, ": no such file"),
    ],
)
def test_an_invalid_file_keeps_the_policy_logs_the_line_and_counts_once(
    file: Path, content: bytes | None, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    store = PolicyStore(file, MemoryState(), metrics)
    before = store.current
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with caplog.at_level(logging.ERROR):
        assert [store.reload_if_changed() for _ in range(3)] == [False, False, False]
    assert store.current is before
    assert failures(metrics) == 1
    assert len(caplog.records) == 1
    assert f"{file}{line}" in caplog.records[0].getMessage()
    assert str(store.problems[0]).startswith(f"{file}{line}")
    file.write_text(TEXT)
    assert store.reload_if_changed() is False
    assert store.problems == ()


def test_the_same_invalid_content_counts_again_after_a_valid_one(file: Path) -> None:
    metrics = Metrics()
    store = PolicyStore(file, MemoryState(), metrics)
    for content in ("x: 1\n", TEXT, "x: 1\n", "y: 1\n"):
        file.write_text(content)
        store.reload_if_changed()
    assert failures(metrics) == 3


def test_polling_waits_until_the_file_has_been_read_the_same_twice(file: Path) -> None:
    metrics = Metrics()
    store = PolicyStore(file, MemoryState(), metrics)
    whole = TEXT + "tenants:\n  hospital: {egress: never}\nqueue_lock_timeout_ms: 9\n"
    file.write_text(whole[:-60])  # a writer caught in the middle: valid YAML without the tenant's rule
    assert store.poll() is False
    file.write_text(whole)
    assert store.poll() is False
    assert store.current.queue_lock_timeout_ms == 2000
    assert store.poll() is True
    assert store.current.egress_for("hospital") == "never"
    assert failures(metrics) == 0


async def test_watching_takes_a_swapped_link_and_ends_when_cancelled(tmp_path: Path) -> None:
    for name, bound in (("one", "0.45"), ("two", "0.30")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(TEXT.replace("0.45", bound))
    data = tmp_path / "data"
    data.symlink_to(tmp_path / "one")
    waits: list[float] = []
    gates = [asyncio.Event() for _ in range(4)]
    reached = [asyncio.Event() for _ in range(4)]

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        reached[len(waits) - 1].set()
        await gates[len(waits) - 1].wait()

    store = PolicyStore(data / "policy.yaml", MemoryState(), poll_interval_s=0.7, sleep=sleep)
    task = asyncio.create_task(store.watch())
    await reached[0].wait()
    new = tmp_path / "new"
    new.symlink_to(tmp_path / "two")
    os.replace(new, data)
    for n in range(2):
        gates[n].set()
        await reached[n + 1].wait()
    assert store.current.local_8b == 0.30
    assert waits == [0.7, 0.7, 0.7]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_watching_goes_on_after_an_unforeseen_fault(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    rounds = 0
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            done.set()
            await asyncio.Event().wait()

    class Broken(PolicyStore):
        def poll(self) -> bool:
            raise MemoryError("hush")

    task = asyncio.create_task(Broken(file, MemoryState(), metrics, sleep=sleep).watch())
    await done.wait()
    task.cancel()
    assert failures(metrics) == 2
    assert "MemoryError" in caplog.text
    assert "hush" not in caplog.text
