"""Bringing a vLLM engine up and down. Everything here blocks and belongs in a thread."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import shutil
import sys
import sysconfig
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import embedded_model, preflight, vllm_env
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.engine_stats import EngineStats
from weighbridge.pool.processes import ProcessId, kill, with_descendants

if TYPE_CHECKING:
    from weighbridge.pool.vllm_compat import Chat, MeteredLLM

log = logging.getLogger("weighbridge.pool")

_COMPAT: Final = "weighbridge.pool.vllm_compat"
_CORE_NAME: Final = "EngineCore"

_importing = threading.Lock()


@dataclass(frozen=True, slots=True)
class Loaded:
    """An engine that is up."""

    engine: MeteredLLM
    chat: Chat
    processes: tuple[ProcessId, ...]


def check(road: str, settings: TierSettings) -> None:
    """What can be refused before anything is loaded. Raises: ConfigError."""
    preflight.require_vllm()
    preflight.check_tier(road, settings, cpu=preflight.on_cpu())
    if settings.model_path is None and not embedded_model.made_before():
        embedded_model.find_gguf()


def compat() -> ModuleType:
    """vLLM, imported once. Raises: ConfigError."""
    preflight.require_vllm()
    with _importing:
        try:
            return importlib.import_module(_COMPAT)
        except Exception as exc:
            raise ConfigError(f"vLLM is installed but cannot be imported ({_one_line(exc)})") from exc


class Loader:
    """One load of one engine. `run` belongs in a thread; `interrupt` may be called from any other."""

    def __init__(self, road: str, settings: TierSettings, metrics: Metrics, worker: str = "0") -> None:
        self._road = road
        self._settings = settings
        self.stats: Final = EngineStats(road, worker, metrics)
        """The engine's series."""
        self._stop = threading.Event()
        self._older: frozenset[int] | None = None
        """Engine cores that were there before ours; None while nothing is being built."""

    def run(self) -> Loaded:
        """Prepare the model, import vLLM, build the engine and its chat layer.

        Raises:
            ConfigError: settings, model or installation are wrong.
            EngineStartFailed: the engine did not come up, or `interrupt` was called.
        """
        road, settings = self._road, self._settings
        model = settings.model_path or embedded_model.prepare(stop=self._stop)
        preflight.check_tier(road, settings, cpu=preflight.on_cpu(), model=model)
        self._go_on()
        if _COMPAT not in sys.modules:
            log.info("loading %s: importing vLLM", road)
        vllm = compat()
        _check_names(road, settings, vllm)
        self._go_on()
        log.info("loading %s: building", road)
        compiles = not _lacks_compiler(road, vllm)
        with vllm_env.for_one_build(settings.omp_cpus, compiles=compiles):
            engine = self._build(vllm, model, settings.enforce_eager or not compiles)
        processes = tuple(with_descendants(vllm.core_pids(engine)))
        try:
            self._go_on()
            return Loaded(engine, _chat(road, settings, vllm, engine, model), processes)
        except Exception:
            engine.shutdown(timeout=0)
            kill(processes)
            raise

    def interrupt(self) -> None:
        """Make `run` fail at its next step; kill what it is waiting for, so that this is now and not in a minute."""
        self._stop.set()
        older = self._older
        if older is not None:
            kill(with_descendants(_cores() - older))

    def _build(self, vllm: ModuleType, model: Path, eager: bool) -> MeteredLLM:
        settings = self._settings
        self._older = frozenset(_cores())
        try:
            self._go_on()
            engine: MeteredLLM = vllm.build_engine(
                self._road, settings, model, _kv_cache_bytes(settings), eager, self.stats
            )
            return engine
        except Exception as exc:
            kill(with_descendants(_cores() - self._older))
            self._go_on()
            raise EngineStartFailed(_one_line(exc)) from exc
        finally:
            self._older = None

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise EngineStartFailed("closed while it was loading")


async def add_adapters(road: str, settings: TierSettings, chat: Chat) -> None:
    """Load a tier's LoRA adapters into its engine.

    Raises:
        ConfigError: one does not fit the model.
        EngineStartFailed: the engine has died over it.
    """
    for name, folder in settings.lora_adapters.items():
        log.info("loading %s: adapter %s", road, name)
        try:
            await chat.add_adapter(name, folder)
        except ValueError as exc:
            raise ConfigError(
                f"tiers.{road}.lora_adapters.{name}: cannot be loaded into this model ({_one_line(exc)})"
            ) from exc


def shut_down(loaded: Loaded, grace_s: float) -> None:
    """End the engine; it gets `grace_s` seconds, then vLLM kills it."""
    engine = loaded.engine
    handler = engine.output_handler
    if handler is not None:
        # It would log the end that we are about to bring as a failure.
        handler.get_loop().call_soon_threadsafe(handler.cancel)
    engine.shutdown(timeout=grace_s)


def _check_names(road: str, settings: TierSettings, vllm: ModuleType) -> None:
    for field, given, legal in (
        ("tool_parser", settings.tool_parser, vllm.tool_parsers()),
        ("quantization", settings.quantization, vllm.quantizations()),
    ):
        if given is not None and given not in legal:
            raise ConfigError(
                f"tiers.{road}.{field}: {given} is not known to vLLM; legal: {', '.join(legal)}"
            )


def _chat(road: str, settings: TierSettings, vllm: ModuleType, engine: MeteredLLM, model: Path) -> Chat:
    try:
        chat: Chat = vllm.build_chat(engine, road, model, settings.tool_parser)
        return chat
    except Exception as exc:
        raise ConfigError(
            f"tiers.{road}.tool_parser: {settings.tool_parser} does not fit this model ({_one_line(exc)})"
        ) from exc


def _kv_cache_bytes(settings: TierSettings) -> int | None:
    if settings.kv_cache_memory_bytes is not None or settings.model_path is not None:
        return settings.kv_cache_memory_bytes
    # On a CPU vLLM would take a share of the whole memory, and two tiers ask for one each.
    blocks = settings.max_num_seqs * -(-settings.max_model_len // settings.block_size)
    return blocks * settings.block_size * embedded_model.KV_BYTES_PER_TOKEN


def _lacks_compiler(road: str, vllm: ModuleType) -> bool:
    """vLLM compiles the model for a CPU on this machine; where it cannot, the model has to run as it is."""
    if not vllm.on_cpu():
        return False
    compiler = any(
        shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "c++", "clang++") if name
    )
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if compiler and headers:
        return False
    log.warning(
        "loading %s: no %s found, so the model runs uncompiled, at about half speed (apt-get install g++ python3-dev)",
        road,
        "Python headers" if compiler else "C++ compiler",
    )
    return True


def _cores() -> set[int]:
    return {
        child.pid
        for child in multiprocessing.active_children()
        if child.name.startswith(_CORE_NAME) and child.pid is not None
    }


def _one_line(exc: BaseException) -> str:
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text[:300]}" if text else type(exc).__name__
