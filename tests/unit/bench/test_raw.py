"""The raw server as a process of the benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lib.raw import RawServer
from tests.support.process import all_gone, children

FAKE = "tests.support.fake_raw_server"


def test_it_is_ready_says_what_it_became_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with RawServer(tmp_path / "raw", tmp_path / "config", timeout_s=20, module=FAKE) as raw:
        assert raw.command.startswith("vllm serve 'a model' --port ")
        assert raw.chat_url.endswith("/v1/chat/completions")
        processes = {raw.pid, *children(raw.pid)}
        assert len(processes) == 2
    assert all_gone(processes, 5) == set()


def test_one_that_dies_is_shown_with_its_last_words(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="no room for the model"),
        RawServer(tmp_path / "raw", tmp_path / "dies", timeout_s=20, module=FAKE),
    ):
        pass
