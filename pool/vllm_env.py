"""The environment vLLM is imported and its processes are started in. Imports nothing of vLLM."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from weighbridge.config.folders import cache_folder
from weighbridge.pool.preflight import on_cpu
from weighbridge.pool.reaper import mark_parent
from weighbridge.pool.vllm_logs import quiet

_FIXED: Final = {
    # No usage reports to its makers, no look at any hub: nothing leaves but through the egress gate.
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # Its log set-up would replace ours; its warnings come through our own handlers.
    "VLLM_CONFIGURE_LOGGING": "0",
    # Forking a process with an event loop and threads is a deadlock waiting to happen.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # How long an engine core waits for its workers: with the default it never ends within its own grace.
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_CPU: Final = {
    # Its ahead-of-time artefacts cannot be loaded again on a CPU (0.32: `finalize_loading` is missing), so every start
    # would compile anew, for a minute; torch's own cache works.
    "VLLM_USE_AOT_COMPILE": "0",
}
_UNSET: Final = ("VLLM_CPU_KVCACHE_SPACE",)
"""Whole GiB for all engines of a process, and it would go before every tier's `kv_cache_memory_bytes`."""

_NO_NEWS: Final = "ignore::FutureWarning,ignore::DeprecationWarning,ignore:resource_tracker:UserWarning"
"""For the children: what libraries say about each other, and shared memory that Python frees itself in the end."""

_OMP_BIND: Final = "VLLM_CPU_OMP_THREADS_BIND"
_NO_COMPILE: Final = "TORCHDYNAMO_DISABLE"
_PLUGINS: Final = "VLLM_PLUGINS"
_REAPER: Final = "weighbridge_reaper"

_building = threading.Lock()


def apply() -> None:
    """Set the environment of this process for vLLM; must run before its first import."""
    os.environ.update(_FIXED)
    for name in _UNSET:
        os.environ.pop(name, None)
    mark_parent()
    plugins = os.environ.get(_PLUGINS)
    if plugins is not None and _REAPER not in plugins.split(","):
        os.environ[_PLUGINS] = f"{plugins},{_REAPER}"
    if on_cpu():
        os.environ.update(_CPU)
        # In /tmp, where torch keeps it, what was compiled is gone with the next boot.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
    os.environ.setdefault("PYTHONWARNINGS", _NO_NEWS)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    quiet()


@contextmanager
def for_one_build(omp_cpus: str | None, *, compiles: bool = True) -> Iterator[None]:
    """Give one engine's processes their own environment: they copy this one's when they are started.

    Held by one build at a time; the next waits.

    Args:
        omp_cpus: the cores of their threads; None leaves it to vLLM.
        compiles: False where nothing can be compiled; vLLM's sampler would try even when the model is not.
    """
    own: dict[str, str] = {}
    if omp_cpus is not None:
        own[_OMP_BIND] = omp_cpus
    if not compiles:
        own[_NO_COMPILE] = "1"
    with _building:
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
