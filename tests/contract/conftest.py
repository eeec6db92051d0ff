"""The engines every contract test of this folder runs on; vLLM's is built once, and the last test closes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from tests.contract.slot_locks import in_redis
from tests.support.adapter import write_adapter
from tests.support.engine_lab import ADAPTER, WINDOW, Lab
from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.clock import SystemClock
from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool.engine import Engine


class Seen:
    """A gauge, counter or histogram that keeps everything it was told."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def labels(self, road: str, worker: str) -> Seen:
        assert (road, worker) == ("local-8b", "0")
        return self

    def set(self, value: float) -> None:
        self.values.append(value)

    inc = observe = set

    def remove(self, road: str, worker: str) -> None:
        assert (road, worker) == ("local-8b", "0")


@pytest.fixture(scope="session", autouse=True)
def _redis_ends() -> Iterator[None]:
    yield
    in_redis.close()


@pytest.fixture(scope="session")
def gauges() -> SimpleNamespace:
    """What the vLLM engine of `lab` has instead of the gateway's metrics."""
    return SimpleNamespace(**{name.removeprefix("weighbridge_"): Seen() for name in Metrics().names})


@pytest.fixture(scope="session")
def vllm_lab(gauges: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    from weighbridge.pool.vllm_engine import VllmEngine

    settings = TierSettings(
        # In bfloat16 an answer depends on what else is in the batch, and on where it was cut.
        dtype="float32",
        max_model_len=WINDOW,
        max_num_seqs=8,
        max_num_batched_tokens=WINDOW,
        kv_cache_memory_bytes=1 << 28,
        lora_adapters={ADAPTER: write_adapter(tmp_path_factory.mktemp("adapter"))},
    )
    with asyncio.Runner() as runner:
        engine = VllmEngine(settings, "local-8b", SystemClock(), metrics=cast("Metrics", gauges))
        lab = Lab(engine, runner, "local-8b")

        async def start(engine: Engine) -> None:
            await engine.start()
            await engine.warm()

        lab.run(start, timeout_s=900)
        try:
            yield lab
        finally:
            lab.run(lambda engine: engine.close(5.0))


@pytest.fixture
def lab(kind: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    if kind == "vllm":
        yield request.getfixturevalue("vllm_lab")
        return
    with asyncio.Runner() as runner:
        engine = FakeEngine(
            "local-8b", max_model_len=WINDOW, script=Script(token_s=0.002), kv_tokens=5824, adapters=[ADAPTER]
        )
        lab = Lab(engine, runner, "local-8b")
        lab.run(lambda engine: engine.start())
        yield lab
