"""The whole benchmark, with the gateway on fake engines on both sides."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bench import goodput
from bench.lib.pairs import OURS, RAW
from bench.lib.processes import Gateway
from bench.lib.tree import SERVER

_fake = partial(Gateway, token_s=0.002)


class _Raw(Gateway):
    def __init__(self, folder: Path, config: Path, *, timeout_s: float) -> None:
        super().__init__(folder, goodput.settings(4, cores=[0]), token_s=0.002)
        self.command = f"vllm serve {config.name}"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.slow
def test_a_quick_run_measures_both_servers_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    monkeypatch.setattr(sys, "argv", ["goodput.py", "--quick", "--no-bare", "--json", str(out)])
    monkeypatch.setattr(goodput, "vllm_installed", lambda: True)
    monkeypatch.setattr(goodput, "Gateway", lambda folder, chosen, **_: _fake(folder, chosen))
    monkeypatch.setattr(goodput, "RawServer", _Raw)
    monkeypatch.setattr(goodput, "CORE", SERVER)
    monkeypatch.setattr(goodput, "WORKER", SERVER)
    monkeypatch.setattr(goodput, "IDLE_S", 0.2)
    assert goodput.main() == 0
    shown = capsys.readouterr().out
    assert (
        "vllm serve weighbridge.yaml" in shown and f"idle {OURS}: " in shown and "pair 2, 4 callers" in shown
    )
    pairs = json.loads(out.read_text())["pairs"]
    assert [pair["first"] for pair in pairs[:1]] == [RAW]
    for pair in pairs:
        # 4 callers, 2 requests each, 16 tokens each.
        assert pair["raw"]["tokens"] == pair["ours"]["tokens"] == 128
        assert pair["ours"]["cpu_s"][SERVER] > 0


def test_without_vllm_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["goodput.py"])
    monkeypatch.setattr(goodput, "vllm_installed", lambda: False)
    assert goodput.main() == 2
    assert "not installed" in capsys.readouterr().out


def test_the_engine_keeps_off_the_first_core_and_nothing_overflows() -> None:
    tier = goodput.settings(100, cores=[2, 3, 5])["tiers"]["local-8b"]  # type: ignore[index]
    assert tier["omp_cpus"] == "3,5" and tier["slots"] == tier["max_num_seqs"] == 100
    assert "omp_cpus" not in goodput.settings(1, cores=[0])["tiers"]["local-8b"]  # type: ignore[index]
