"""The environment vLLM finds, and what of its log is seen. vLLM itself is not needed."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from weighbridge.pool import vllm_env
from weighbridge.pool.reaper import PARENT_VARIABLE
from weighbridge.pool.vllm_logs import quiet

OMP = "VLLM_CPU_OMP_THREADS_BIND"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    yield


def test_nothing_reports_home_and_nothing_looks_at_a_hub() -> None:
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "40"
    os.environ["HF_HUB_OFFLINE"] = "0"
    vllm_env.apply()
    for name in ("VLLM_NO_USAGE_STATS", "DO_NOT_TRACK", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        assert os.environ[name] == "1", name
    assert os.environ["VLLM_CONFIGURE_LOGGING"] == "0"
    assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
    assert "VLLM_CPU_KVCACHE_SPACE" not in os.environ
    assert os.environ[PARENT_VARIABLE].startswith(f"{os.getpid()}:")


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (None, None),
        ("", ",weighbridge_reaper"),
        ("mine", "mine,weighbridge_reaper"),
        ("weighbridge_reaper,mine", "weighbridge_reaper,mine"),
    ],
)
def test_a_list_of_plugins_always_holds_the_reaper(given: str | None, left: str | None) -> None:
    os.environ.pop("VLLM_PLUGINS", None)
    if given is not None:
        os.environ["VLLM_PLUGINS"] = given
    vllm_env.apply()
    assert os.environ.get("VLLM_PLUGINS") == left


@pytest.mark.parametrize("cpu", [True, False])
def test_on_a_cpu_what_was_compiled_is_kept_by_torch(monkeypatch: pytest.MonkeyPatch, cpu: bool) -> None:
    monkeypatch.setattr(vllm_env, "on_cpu", lambda: cpu)
    for name in ("VLLM_USE_AOT_COMPILE", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.pop(name, None)
    os.environ["XDG_CACHE_HOME"] = "/var/cache/me"
    vllm_env.apply()
    assert os.environ.get("VLLM_USE_AOT_COMPILE") == ("0" if cpu else None)
    expected = "/var/cache/me/weighbridge/compiled" if cpu else None
    assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") == expected


@pytest.mark.parametrize("before", [None, "auto"])
def test_each_build_has_its_own_cores_and_leaves_none_behind(before: str | None) -> None:
    os.environ.pop(OMP, None)
    if before is not None:
        os.environ[OMP] = before
    with vllm_env.for_one_build("0-3"):
        assert os.environ[OMP] == "0-3"
    assert os.environ.get(OMP) == before
    with pytest.raises(RuntimeError), vllm_env.for_one_build("4-7"):
        raise RuntimeError
    assert os.environ.get(OMP) == before
    with vllm_env.for_one_build(None):
        assert os.environ.get(OMP) == before


def test_builds_wait_for_each_other() -> None:
    entered = threading.Event()

    def build() -> None:
        with vllm_env.for_one_build("1"):
            entered.set()

    thread = threading.Thread(target=build)
    with vllm_env.for_one_build("0"):
        thread.start()
        assert not entered.wait(0.2)
    thread.join(10)
    assert entered.is_set()


def test_what_vllm_says_about_requests_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    quiet()
    quiet()
    for name in (
        "entrypoints.x",
        "renderers.chat_utils",
        "v1.structured_output.utils",
        "tool_parsers.hermes",
    ):
        logging.getLogger(f"vllm.{name}").error("SECRET")
    logging.getLogger("vllm.logging_utils.dump_input").error("SECRET")
    logging.getLogger("vllm.v1.engine.async_llm").info("SECRET")
    logging.getLogger("vllm.v1.executor.multiproc_executor").warning("[shutdown] a step")
    assert not caplog.records
    try:
        raise ValueError("SECRET")
    except ValueError:
        logging.getLogger("vllm.v1.engine.core").exception("Unexpected error pre-processing request %s", "r")
        logging.getLogger("vllm.v1.engine.core").exception("EngineCore failed to start.")
    first, second = caplog.records
    assert first.exc_info is None and second.exc_info is not None
    assert len(logging.getLogger("vllm.v1.engine.core").filters) == 1


def test_the_pool_does_not_import_vllm_until_an_engine_is_built() -> None:
    script = (
        "import sys, weighbridge.pool.pool, weighbridge.pool.tier, weighbridge.pool.vllm_engine, "
        "weighbridge.pool.embedded_model; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"vllm", "torch", "transformers", "weighbridge.pool.vllm_compat"} & set(loaded)
