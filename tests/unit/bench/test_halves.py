"""Two servers under load in turn: the real gateway twice, with fake engines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.goodput import settings
from bench.lib.halves import Load, Measure, Side, check
from bench.lib.processes import Gateway, Program, forget_settings
from bench.lib.tree import CORE, MASKING, ROLES, SERVER, Tree


@pytest.mark.slow
def test_a_half_counts_the_tokens_and_everybodys_cpu(tmp_path: Path) -> None:
    forget_settings()
    # With somewhere to send to, so that masking runs, which is counted too.
    chosen = {
        **settings(50, cores=[0, 1]),
        "commercial": {"base_url": "http://127.0.0.1:9/v1", "model": "none"},
        "masking": {"layers": [], "without_names": "mask"},
    }
    with (
        Gateway(tmp_path / "one", chosen, token_s=0.001) as one,
        Gateway(tmp_path / "two", chosen, token_s=0.001) as two,
        Program(tmp_path, "bench.lib.load") as generator,
    ):
        generator.ready()
        busy, idle = (Side(str(at.pid), at.chat_url, Tree(at.pid)) for at in (one, two))
        assert MASKING in busy.tree.processes.values()
        measure = Measure(generator, "local-8b")
        half = measure.half(busy, idle, Load(concurrency=50, requests=60, tokens=20), 0)
        assert half.tokens == 1200
        assert half.cpu_s[SERVER] > 0 and half.generator_s > 0 and half.cpu_us() > half.cpu_us(CORE) == 0
        assert half.idle_cores < half.cpu_s[SERVER] / half.seconds
        assert 0 <= half.foreign_cores < (os.cpu_count() or 1)
        # `auth: {}` in the settings: whoever sends no key is served.
        assert (tmp_path / "one" / "weighbridge.yaml").read_text().count("sha256") == 0


def test_a_tree_without_its_engine_is_refused() -> None:
    # A process of its own: this one may have engines of other tests below it.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as lonely:
        with pytest.raises(RuntimeError, match="EngineCore"):
            Tree(lonely.pid, require=(CORE,))
        assert set(Tree(lonely.pid).cpu_s()) == set(ROLES)
        lonely.communicate(b"\n")


@pytest.mark.parametrize("said", [{"failed": "503"}, {"events": 19}, {"events": 21}])
def test_wrong_answers_measure_nothing(said: dict[str, object]) -> None:
    with pytest.raises(RuntimeError, match="raw"):
        check(said, Load(1, 2, 10), "raw")
    check({"events": 20}, Load(1, 2, 10), "raw")
