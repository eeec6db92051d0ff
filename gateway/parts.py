"""The gateway's parts, made from the settings in the order they depend on each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from weighbridge.commercial.gate import EgressGate
from weighbridge.config.clock import Clock, SystemClock
from weighbridge.config.ids import IdFactory
from weighbridge.config.prices import load_prices, prices_path
from weighbridge.config.roads import LOCAL_ROADS, Road
from weighbridge.config.settings import Settings, TierSettings
from weighbridge.gateway.tracing import tracing_of
from weighbridge.gateway.underway import Underway
from weighbridge.gateway.unpriced import unpriced
from weighbridge.masking.masker import Masker, StartChild
from weighbridge.masking.secret import obtain_secrets
from weighbridge.observability.costs import CostTable
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_read import LEDGER_FILE
from weighbridge.observability.metrics import Metrics
from weighbridge.observability.otlp_post import Poster
from weighbridge.observability.price_pricer import BookPricer
from weighbridge.observability.shipper import Shipper
from weighbridge.policies.loader import policy_path
from weighbridge.policies.store import PolicyStore
from weighbridge.pool import local_engines
from weighbridge.pool.engine import Engine
from weighbridge.pool.pool import Pool
from weighbridge.pool.tier import Tier
from weighbridge.router.dispatch import Dispatch
from weighbridge.router.lifecycle import Limits
from weighbridge.state.keys import KeyStore
from weighbridge.state.pins import StoredPins
from weighbridge.state.redis_link import RedisLink
from weighbridge.state.slot_leases import SlotLeases
from weighbridge.state.store import StateStore
from weighbridge.state.switch import EgressSwitch

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from weighbridge.observability.traces import Tracing

log = logging.getLogger("weighbridge.gateway")

EngineFactory = Callable[[Road, TierSettings, str], Engine]
"""Makes the engine of one worker: the tier's name, its settings narrowed to the worker, the worker's name."""

STATE_FILE = "state.sqlite3"
ENGINES_FILE = "engines.json"
"""In the state folder: admin changes, and which processes the engines run in."""


@dataclass(slots=True)
class Parts:
    """One gateway, assembled and not yet started."""

    settings: Settings
    pool: Pool
    policies: PolicyStore
    masker: Masker
    gate: EgressGate
    ledger: Ledger
    state: StateStore
    keys: KeyStore
    switch: EgressSwitch
    metrics: Metrics
    dispatch: Dispatch
    tracing: Tracing | None
    clock: Clock
    ids: IdFactory
    underway: Underway
    started_ns: int
    """When the parts were made, UTC nanoseconds."""
    shipper: Shipper | None = None
    """None where no collector is configured."""
    redis: RedisLink | None = None
    """What is shared with other gateways; None where nothing is."""


def build_parts(
    settings: Settings,
    *,
    engine_factory: EngineFactory | None = None,
    clock: Clock | None = None,
    ids: IdFactory | None = None,
    start_child: StartChild | None = None,
    span_exporter: SpanExporter | None = None,
) -> Parts:
    """Make the parts and open the files of the state folder. Loads no model and starts no process.

    Args:
        engine_factory: makes a worker's engine, again for every restart; None takes the pool's own.
        start_child: starts a detector process; None takes the masker's own.
        span_exporter: takes the spans in place of the collector.

    Raises:
        ConfigError: settings, policy, price book or a model folder are wrong; nothing stays open.
        SpoolBusy: another gateway uses the state folder.
    """
    clock = clock or SystemClock()
    ids = ids or IdFactory(clock)
    metrics = Metrics(tuple(settings.commercial.all_endpoints))
    make_engine = engine_factory or partial(local_engines.make_engine, clock=clock, metrics=metrics)
    redis = None if settings.redis.url is None else RedisLink(settings.redis, clock, metrics)
    tiers = [
        Tier(
            road,
            settings.tiers[road],
            partial(make_engine, road),
            clock,
            metrics,
            pool=settings.pool,
            leases=_leases(settings, road, settings.tiers[road], redis),
        )
        for road in LOCAL_ROADS
        if road in settings.tiers
    ]
    folder = settings.state_dir
    started_ns = clock.wall_ns()
    prices = CostTable(load_prices(prices_path(settings.prices)))
    for line in unpriced(settings, prices, started_ns):
        log.warning("%s", line)
    pricer = BookPricer(prices)
    with ExitStack() as opened:
        secrets = obtain_secrets(settings.masking, folder)
        ledger = Ledger.open(
            folder / LEDGER_FILE,
            clock=clock,
            chain_key=secrets.chain_keys()[0],
            pricer=pricer,
            retention_days=settings.ledger.retention_days,
            keep_unshipped=settings.collector.endpoint is not None,
            metrics=metrics,
        )
        opened.callback(ledger.close_sync)
        state = StateStore.open(folder / STATE_FILE, clock, audit_key=secrets.audit_keys()[0])
        opened.callback(state.close)
        keys = KeyStore(state, settings.auth)
        switch = EgressSwitch(state, settings.commercial.kill_switch_file, metrics)
        pins = StoredPins(state)
        policies = PolicyStore(
            policy_path(settings.policies),
            state,
            metrics,
            adapters=settings.adapters,
            endpoints=tuple(settings.commercial.all_endpoints),
            max_egress=settings.policies.max_egress,
            poll_interval_s=settings.policies.poll_interval_s,
        )
        pool = Pool(tiers, register=folder / ENGINES_FILE, record=ledger.capacity)
        masker = Masker(settings.masking, clock, secrets=secrets, start_child=start_child)
        gate = EgressGate(
            settings.commercial,
            ledger,
            clock,
            ids,
            switched_off=switch.thrown,
            on_passed_by=metrics.endpoint_passed_by,
        )
        tracing = tracing_of(settings, clock, metrics, span_exporter)
        dispatch = Dispatch(
            pool=pool,
            policies=policies,
            masker=masker,
            gate=gate,
            ledger=ledger,
            metrics=metrics,
            clock=clock,
            request_timeout_s=settings.server.request_timeout_s,
            limits=Limits(settings.server.keep_alive_comment_s, settings.pool.continue_wait_s),
            commercial=settings.commercial,
            pins=pins,
            switched_off=switch.thrown,
            tracing=tracing,
        )
        shipper = _shipper(settings, ledger, metrics, clock, started_ns)
        opened.pop_all()

    def cut_by_us() -> None:
        dispatch.closing = True

    return Parts(
        settings=settings,
        pool=pool,
        policies=policies,
        masker=masker,
        gate=gate,
        ledger=ledger,
        state=state,
        keys=keys,
        switch=switch,
        metrics=metrics,
        dispatch=dispatch,
        tracing=tracing,
        clock=clock,
        ids=ids,
        underway=Underway(on_cut=cut_by_us),
        started_ns=started_ns,
        shipper=shipper,
        redis=redis,
    )


def _shipper(
    settings: Settings, ledger: Ledger, metrics: Metrics, clock: Clock, started_ns: int
) -> Shipper | None:
    """Raises: ConfigError when the collector's certificates cannot be used."""
    if settings.collector.endpoint is None:
        return None
    program = version("weighbridge")
    return Shipper(
        settings.state_dir / LEDGER_FILE,
        settings.collector,
        poster=Poster(settings.collector, program),
        hand_over=ledger.shipped,
        metrics=metrics,
        clock=clock,
        version=program,
        started_ns=started_ns,
    )


def _leases(settings: Settings, road: Road, tier: TierSettings, redis: RedisLink | None) -> SlotLeases | None:
    """What shares a tier's slots with other gateways. An engine in this process is nobody else's."""
    if redis is None or not tier.endpoints:
        return None
    return SlotLeases(redis, road, settings.redis.lease_s, settings.redis.replicas)
