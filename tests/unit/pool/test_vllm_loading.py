"""Loading an engine step by step, with vLLM stood in for."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import embedded_model, preflight, vllm_loading
from weighbridge.pool.engine import EngineStartFailed
from weighbridge.pool.engine_stats import EngineStats
from weighbridge.pool.vllm_engine import VllmEngine
from weighbridge.pool.vllm_loading import Loader

METRICS = Metrics()


class FakeVllm:
    """The part of `vllm_compat` that loading uses."""

    def __init__(self) -> None:
        self.cpu = True
        self.building = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()
        self.build_error: Exception | None = None
        self.chat_error: Exception | None = None
        self.chat: Any = "chat"
        self.built: list[tuple[Any, ...]] = []
        self.environments: list[dict[str, str]] = []
        self.engine = SimpleNamespace(
            tracks={},
            errored=False,
            output_handler=None,
            kv_tokens=1024,
            watchers=[],
            watch=lambda died: self.engine.watchers.append(died),
            shutdowns=[],
            shutdown=lambda timeout: self.engine.shutdowns.append(timeout),
        )

    def on_cpu(self) -> bool:
        return self.cpu

    def tool_parsers(self) -> list[str]:
        return ["hermes", "llama3_json"]

    def quantizations(self) -> list[str]:
        return ["awq", "fp8"]

    def build_engine(self, *arguments: Any) -> Any:
        self.built.append(arguments)
        self.environments.append(dict(os.environ))
        self.building.set()
        assert self.go_on.wait(10)
        if self.build_error is not None:
            raise self.build_error
        return self.engine

    def core_pids(self, engine: Any) -> list[int]:
        return []

    def build_chat(self, *arguments: Any) -> Any:
        if self.chat_error is not None:
            raise self.chat_error
        return self.chat


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> FakeVllm:
    fake = FakeVllm()
    monkeypatch.setitem(sys.modules, "weighbridge.pool.vllm_compat", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(preflight, "vllm_installed", lambda: True)
    monkeypatch.setattr(preflight, "on_cpu", lambda: True)
    return fake


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "Tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 9}))
    for name in ("tokenizer.json", "model.safetensors", "chat_template.jinja"):
        (folder / name).write_text("")
    return folder


def load(settings: TierSettings) -> Any:
    return Loader("local-8b", settings, METRICS).run()


class FakeChat:
    """The part of the chat layer that loading uses."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.added: list[tuple[str, Path]] = []

    async def add_adapter(self, name: str, folder: Path) -> None:
        self.added.append((name, folder))
        if self.error is not None:
            raise self.error


def test_a_load_that_goes_well(vllm: FakeVllm, model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weighbridge.pool")
    settings = TierSettings(model_path=model, enforce_eager=True, omp_cpus="0-1")
    loaded = load(settings)
    assert (loaded.engine, loaded.chat, loaded.processes) == (vllm.engine, "chat", ())
    ((*built, stats),) = vllm.built
    assert built == ["local-8b", settings, model, None, True]
    assert isinstance(stats, EngineStats)
    assert vllm.environments[0]["VLLM_CPU_OMP_THREADS_BIND"] == "0-1"
    assert [record.message for record in caplog.records] == ["loading local-8b: building"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"tool_parser": "nonsense"},
            "tool_parser: nonsense is not known to vLLM; legal: hermes, llama3_json",
        ),
        ({"quantization": "mxfp4"}, "quantization: mxfp4 is not known to vLLM; legal: awq, fp8"),
        ({"block_size": 16}, "block_size: 16 is not legal on a CPU"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size: 2 does not divide"),
    ],
)
def test_wrong_values_are_refused_before_anything_is_built(
    vllm: FakeVllm, model: Path, fields: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        load(TierSettings(model_path=model, **fields))
    assert str(caught.value).startswith("tiers.local-8b.")
    assert vllm.built == []


def test_a_build_that_fails_is_told_in_one_line(vllm: FakeVllm, model: Path) -> None:
    vllm.build_error = RuntimeError("Engine core\n  initialization failed." + "x" * 1000)
    with pytest.raises(
        EngineStartFailed, match=r"RuntimeError: Engine core initialization failed\.x+$"
    ) as caught:
        load(TierSettings(model_path=model))
    assert len(str(caught.value)) < 400


def test_a_tool_parser_that_does_not_fit_takes_the_engine_down_again(vllm: FakeVllm, model: Path) -> None:
    vllm.chat_error = TypeError("needs another tokenizer")
    with pytest.raises(ConfigError, match=r"tool_parser: hermes does not fit this model \(TypeError: needs"):
        load(TierSettings(model_path=model))
    assert vllm.engine.shutdowns == [0]


def test_the_embedded_model_gets_a_cache_for_all_its_sequences_and_no_more(
    vllm: FakeVllm, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_model, "prepare", lambda stop: model)
    load(TierSettings(max_num_seqs=8, max_model_len=2048))
    load(TierSettings(kv_cache_memory_bytes=1 << 28))
    load(TierSettings(model_path=model))
    assert [arguments[3] for arguments in vllm.built] == [8 * 2048 * 23_040, 1 << 28, None]


@pytest.mark.parametrize(("cpu", "eager"), [(True, True), (False, False)])
def test_without_a_compiler_a_cpu_runs_the_model_as_it_is(
    vllm: FakeVllm, model: Path, monkeypatch: pytest.MonkeyPatch, cpu: bool, eager: bool
) -> None:
    vllm.cpu = cpu
    monkeypatch.setattr(vllm_loading.shutil, "which", lambda name: None)
    load(TierSettings(model_path=model))
    assert vllm.built[0][4] is eager
    assert ("TORCHDYNAMO_DISABLE" in vllm.environments[0]) is eager
    assert "TORCHDYNAMO_DISABLE" not in os.environ


@pytest.mark.parametrize("build_ends", ["well", "badly"])
def test_interrupted_while_it_builds_it_leaves_no_engine(
    vllm: FakeVllm, model: Path, build_ends: str
) -> None:
    loader = Loader("local-8b", TierSettings(model_path=model), METRICS)
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            loader.run()
        except BaseException as exc:
            outcome.append(exc)

    vllm.go_on.clear()
    if build_ends == "badly":
        vllm.build_error = RuntimeError("killed")
    thread = threading.Thread(target=run)
    thread.start()
    assert vllm.building.wait(10)
    loader.interrupt()
    vllm.go_on.set()
    thread.join(10)
    assert [type(error) for error in outcome] == [EngineStartFailed]
    assert str(outcome[0]) == "closed while it was loading"
    assert vllm.engine.shutdowns == ([0] if build_ends == "well" else [])


def test_interrupted_before_it_builds_it_builds_nothing(vllm: FakeVllm, model: Path) -> None:
    loader = Loader("local-8b", TierSettings(model_path=model), METRICS)
    loader.interrupt()
    with pytest.raises(EngineStartFailed):
        loader.run()
    assert vllm.built == []


def test_a_start_that_is_cancelled_ends_its_load(vllm: FakeVllm, model: Path) -> None:
    async def main() -> None:
        engine = VllmEngine(TierSettings(model_path=model), "local-8b", SystemClock())
        vllm.go_on.clear()
        starting = asyncio.create_task(engine.start())
        await asyncio.to_thread(vllm.building.wait, 10)
        starting.cancel()
        asyncio.get_running_loop().call_later(0.3, vllm.go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert vllm.engine.shutdowns == [0]
        assert not engine.alive

    asyncio.run(main())


def test_an_engine_that_comes_up_is_closed_with_its_grace(vllm: FakeVllm, model: Path) -> None:
    async def main() -> None:
        engine = VllmEngine(TierSettings(model_path=model), "local-8b", SystemClock())
        await engine.start()
        assert engine.alive and engine.max_model_len == 2048
        with pytest.raises(EngineStartFailed):
            await engine.start()
        await engine.close(2.5)
        assert vllm.engine.shutdowns == [2.5]

    asyncio.run(main())


def test_an_engine_that_ends_by_itself_has_died_and_one_that_is_closed_has_not(
    vllm: FakeVllm, model: Path
) -> None:
    async def start() -> tuple[VllmEngine, asyncio.Task[None], Metrics]:
        metrics = Metrics()
        engine = VllmEngine(
            TierSettings(model_path=model), "local-8b", SystemClock(), metrics=metrics, worker="3"
        )
        death = asyncio.create_task(engine.died())
        await engine.start()
        await asyncio.sleep(0)
        assert not death.done() and engine.kv_tokens == 1024
        metrics.engine_running.labels("local-8b", "3").set(2)
        return engine, death, metrics

    def shown(metrics: Metrics) -> bool:
        return b'weighbridge_engine_running{tier="local-8b",worker="3"}' in metrics.render()[0]

    async def main() -> None:
        _, death, metrics = await start()
        assert shown(metrics)
        vllm.engine.watchers.pop()()
        await asyncio.wait_for(death, 1.0)
        assert not shown(metrics), "what it said last is no news of a dead engine"

        engine, death, metrics = await start()
        await engine.close(0.0)
        vllm.engine.watchers.pop()()
        await asyncio.sleep(0)
        assert not death.done() and not shown(metrics)
        death.cancel()

    asyncio.run(main())


def tiny_adapter(folder: Path) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"r": 8}')
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


def test_adapters_are_loaded_one_by_one(vllm: FakeVllm, model: Path, tmp_path: Path) -> None:
    folders = {name: tiny_adapter(tmp_path / name) for name in ("law", "care")}
    vllm.chat = FakeChat()
    settings = TierSettings(model_path=model, lora_adapters=folders)
    asyncio.run(VllmEngine(settings, "local-8b", SystemClock()).start())
    assert vllm.chat.added == list(folders.items())


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            ValueError("no such\nmodule"),
            ConfigError,
            "tiers.local-8b.lora_adapters.law: cannot be loaded into this model (ValueError: no such module)",
        ),
        (EngineStartFailed("the engine died"), EngineStartFailed, "the engine died"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_is_named(
    vllm: FakeVllm, model: Path, tmp_path: Path, error: Exception, kind: type[Exception], says: str
) -> None:
    vllm.chat = FakeChat(error)
    settings = TierSettings(model_path=model, lora_adapters={"law": tiny_adapter(tmp_path / "law")})
    with pytest.raises(kind) as caught:
        asyncio.run(VllmEngine(settings, "local-8b", SystemClock()).start())
    assert str(caught.value) == says


def test_vllm_that_cannot_be_imported_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "vllm_installed", lambda: True)

    def import_module(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not exist\nmore")

    monkeypatch.setattr(vllm_loading.importlib, "import_module", import_module)
    with pytest.raises(
        ConfigError, match=r"cannot be imported \(RuntimeError: operator torchvision::nms"
    ) as caught:
        vllm_loading.compat()
    assert "\n" not in str(caught.value)


def test_an_engine_refuses_what_can_be_seen_when_it_is_made(
    vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="block_size"):
        VllmEngine(TierSettings(block_size=16), "local-8b", SystemClock())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(embedded_model, "_WHEEL", "no_such_package_here")
    with pytest.raises(ConfigError, match="embedded model is not installed"):
        VllmEngine(TierSettings(), "local-8b", SystemClock())
    monkeypatch.setattr(preflight, "vllm_installed", lambda: False)
    with pytest.raises(ConfigError, match="vLLM is not installed"):
        VllmEngine(TierSettings(), "local-8b", SystemClock())
