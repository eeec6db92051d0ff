"""A whole gateway in this process, on a real socket, with fake engines and everything else real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from opentelemetry.sdk.trace.export import SpanExporter

from tests.support.fake_engine import FakeEngine, Script
from tests.support.nurseries import load, shared_nursery
from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.config.settings import TierSettings, load_settings
from weighbridge.config.yamlsource import parse_yaml
from weighbridge.gateway.app import EngineFactory, Parts, build_parts, create_app
from weighbridge.gateway.listening import bind, listen
from weighbridge.gateway.server import make_server
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.observability import ledger_read


def policy_file(
    folder: Path, *, egress: str = "masked", queue_lock_timeout_ms: int = 2000, **more: Any
) -> Path:
    """The shipped default policy with a few values of the test's own."""
    shipped = Path(__file__).parents[2] / "policies" / "default.yaml"
    document = parse_yaml(shipped.read_bytes(), shipped.name).data
    document |= {"egress": egress, "queue_lock_timeout_ms": queue_lock_timeout_ms, **more}
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    return path


class Fleet:
    """Makes the engines of a gateway's workers: the test's own first, then more of the same kind."""

    def __init__(self, engines: Mapping[str, FakeEngine | Sequence[FakeEngine]]) -> None:
        self.made: dict[str, list[FakeEngine]] = {road: [] for road in engines}
        """Every engine of a tier, in order of making."""
        self._own = {
            road: [given] if isinstance(given, FakeEngine) else list(given) for road, given in engines.items()
        }
        self.script_for: Callable[[str, int], Script] = lambda road, n: Script(
            token_s=self._own[road][0].script.token_s
        )
        """Script of the n-th engine of a tier, for those that the test has not given."""

    def make(self, road: str, settings: TierSettings, worker: str) -> FakeEngine:
        made, own = self.made[road], self._own[road]
        n = len(made)
        if n < len(own):
            engine = own[n]
        else:
            engine = FakeEngine(road, max_model_len=own[0].max_model_len, script=self.script_for(road, n))
        made.append(engine)
        return engine


@dataclass
class Running:
    """What a test sees of a gateway that runs."""

    parts: Parts
    url: str
    client: httpx.AsyncClient
    engines: dict[str, FakeEngine]
    """The first engine of every tier."""
    state_dir: Path
    fleet: Fleet

    async def chat(self, **body: Any) -> httpx.Response:
        body.setdefault("model", "auto")
        body.setdefault("messages", [{"role": "user", "content": "Hello there"}])
        return await self.client.post("/v1/chat/completions", json=body)

    def rows(self) -> list[dict[str, Any]]:
        """The request rows as they are on disk now."""
        with ledger_read.open_readonly(self.state_dir / "ledger.sqlite3") as conn:
            return ledger_read.requests(conn)

    def attempts(self, request_id: str) -> list[dict[str, Any]]:
        with ledger_read.open_readonly(self.state_dir / "ledger.sqlite3") as conn:
            return ledger_read.attempts(conn, request_id)

    def egress(self) -> list[dict[str, Any]]:
        with ledger_read.open_readonly(self.state_dir / "ledger.sqlite3") as conn:
            return ledger_read.egress(conn)

    def slots_in_use(self) -> int:
        return sum(int(tier["slots_in_use"]) for tier in self.parts.pool.status())


@asynccontextmanager
async def running_gateway(
    folder: Path,
    *,
    engines: Mapping[str, FakeEngine | Sequence[FakeEngine]] | None = None,
    upstream: str | None = None,
    policy: Path | None = None,
    tiers: Mapping[str, Mapping[str, Any]] | None = None,
    factory: EngineFactory | None = None,
    ready_within_s: float = 30,
    own_nursery: bool = False,
    nursery: DetectorNursery | None = None,
    blind: bool = False,
    span_exporter: SpanExporter | None = None,
    **sections: Mapping[str, Any],
) -> AsyncIterator[Running]:
    """Start a gateway with `engines` and wait until every tier is ready, and masking where it is started.

    Args:
        folder: holds the state folder and files of the test.
        upstream: base URL of the recorder; None configures no commercial endpoint.
        tiers: settings of the tiers by road; those of `engines` by default.
        factory: makes the engines, of the `tiers` given, instead of the fleet of fakes.
        ready_within_s: seconds every worker has to come up.
        own_nursery: load the detectors anew, as a gateway does, rather than share them with earlier ones.
        nursery: the test's own; the gateway does not close it.
        blind: do not wait for the detectors, which cannot be started.
        span_exporter: takes the spans of traced requests.
        sections: further settings sections.
    """
    if engines is not None:
        given = engines
    else:
        roads = LOCAL_ROADS if factory is None or tiers is None else tuple(tiers)
        given = {road: FakeEngine(road) for road in roads}
    fleet = Fleet(given)
    state_dir = folder / "state"
    overrides: dict[str, Any] = {
        "state_dir": str(state_dir),
        "server": {"port": 0, "drain_timeout_s": 5.0},
        "tiers": {road: dict((tiers or {}).get(road, {})) if road in given else None for road in LOCAL_ROADS},
        **{name: dict(values) for name, values in sections.items()},
        # The name layers take seconds to load and have tests of their own.
        "masking": {"layers": [], "without_names": "mask", **sections.get("masking", {})},
    }
    if policy is not None:
        overrides["policies"] = {"file": str(policy), "poll_interval_s": 0.1}
    if upstream is not None:
        overrides["commercial"] = {
            "base_url": upstream,
            "model": "upstream-model",
            **dict(sections.get("commercial", {})),
        }
    settings = load_settings(None, env={}, overrides=overrides)
    with bind("127.0.0.1", 0) as sock:
        if nursery is None and not own_nursery:
            nursery = shared_nursery(settings.masking)
            if settings.commercial.all_endpoints:
                await load(nursery)
        parts = build_parts(
            settings,
            engine_factory=factory or fleet.make,
            start_child=None if nursery is None else nursery.start_child,
            span_exporter=span_exporter,
        )
        ready = asyncio.Event()
        server = make_server(
            create_app(parts, on_first_ready=ready.set),
            underway=parts.underway,
            drain_timeout_s=5.0,
            new_id=parts.ids.new,
        )
        listen(sock)
        served = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            await _all_ready(parts, served, ready_within_s, blind)
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            async with httpx.AsyncClient(
                base_url=url, timeout=max(60.0, ready_within_s), limits=httpx.Limits(max_connections=None)
            ) as client:
                firsts = {road: made[0] for road, made in fleet.made.items() if made}
                yield Running(parts, url, client, firsts, state_dir, fleet)
        finally:
            server.should_exit = True
            await served


async def _all_ready(parts: Parts, served: asyncio.Task[None], within_s: float, blind: bool) -> None:
    def ready() -> bool:
        masks = parts.masker.ready or blind or not parts.gate.configured
        return masks and all(
            worker["state"] == "ready" for tier in parts.pool.status() for worker in tier["workers"]
        )

    async with asyncio.timeout(within_s):
        while not ready():
            if served.done():
                served.result()
                raise RuntimeError("the server ended before it was ready")
            await asyncio.sleep(0.02)
