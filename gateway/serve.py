"""`weighbridge serve` from settings to exit status."""

from __future__ import annotations

import logging
import shlex
import ssl
from collections.abc import Callable

import msgspec

from weighbridge.config.core_dumps import forbid_core_dumps
from weighbridge.config.errors import ConfigError
from weighbridge.config.legal import is_loopback
from weighbridge.config.roads import AUTO
from weighbridge.config.settings import Settings
from weighbridge.gateway.app import EngineFactory, Parts, build_parts, create_app
from weighbridge.gateway.listening import bind, listen, reachable_url, room_for
from weighbridge.gateway.protocol import ConnectionLimits
from weighbridge.gateway.server import GatewayServer, make_server
from weighbridge.observability.logs import setup_logging
from weighbridge.pool import local_engines
from weighbridge.router.difficulty import COMPILED

log = logging.getLogger("weighbridge.gateway")

_LATER_S = 5.0
"""A completion that nobody reads is given up by its route, which counts and records it; the connection only later."""


def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None],
    engine_factory: EngineFactory | None = None,
) -> None:
    """Serve until a signal ends it.

    Args:
        announce: gets the command to copy when the first tier is ready.
        engine_factory: makes the engines; None takes the pool's own.

    Raises:
        StartError: the port cannot be had.
        ConfigError: a part refuses its settings (SpoolBusy: another gateway uses the state folder).
    """
    setup_logging(json=settings.log.format == "json")
    # A dump would hold requests, keys and what placeholders stand for. The engines inherit the limit.
    forbid_core_dumps()
    server_settings = settings.server
    with bind(server_settings.host, server_settings.port) as sock:
        parts = build_parts(settings, engine_factory=engine_factory)
        try:
            url = reachable_url(
                server_settings.host, sock.getsockname()[1], settings.server.tls_certfile is not None
            )
            table = parts.keys.table
            server = _server(parts, lambda: announce(first_request(settings, url, table.keyed)))
            if engine_factory is None and not all(tier.endpoints for tier in settings.tiers.values()):
                local_engines.preload()
            listen(sock)
            _say_hello(settings, url, table.keyed)
            server.run(sockets=[sock])
        finally:
            # Only what a server that never ran left open; its lifespan closes everything else.
            parts.ledger.close_sync()
            parts.state.close()


def _server(parts: Parts, on_first_ready: Callable[[], None]) -> GatewayServer:
    settings = parts.settings.server
    try:
        return make_server(
            create_app(parts, on_first_ready=on_first_ready),
            underway=parts.underway,
            drain_timeout_s=settings.drain_timeout_s,
            new_id=parts.ids.new,
            limits=ConnectionLimits(
                most=room_for(settings.max_connections),
                stalled_s=settings.slow_reader_timeout_s + _LATER_S,
                refused=parts.metrics.refused_busy,
            ),
            tls_certfile=settings.tls_certfile,
            tls_keyfile=settings.tls_keyfile,
        )
    except (ssl.SSLError, OSError) as exc:
        why = exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror
        raise ConfigError(
            f"server.tls_certfile: {settings.tls_certfile} and its key cannot be used ({why})"
        ) from None


def _say_hello(settings: Settings, url: str, keyed: bool) -> None:
    log.info("listening on %s; models are still loading, GET /health/ready tells", url)
    log.info(
        "the difficulty score runs %s",
        "compiled" if COMPILED else "in plain Python: no compiled code fits it",
    )
    if not keyed and is_loopback(settings.server.host):
        log.warning("there is no API key (auth.keys): only programs on this machine may call")
    elif not keyed:
        log.warning(
            "there is no API key yet: nobody may call before an admin makes one (POST /admin/v1/keys)"
        )
    embedded = [
        name for name, tier in settings.tiers.items() if tier.model_path is None and not tier.endpoints
    ]
    if embedded:
        log.warning(
            "%s: served by the small embedded model, good for trying Weighbridge out and not for real answers",
            " and ".join(embedded),
        )


def first_request(settings: Settings, url: str, keyed: bool) -> str:
    """A `curl` command that asks this gateway something; `keyed`: it needs an API key."""
    body = {"model": AUTO, "messages": [{"role": "user", "content": "Say hello in five words."}]}
    words = ["curl", f"{url}/v1/chat/completions"]
    if settings.server.tls_certfile is not None:
        words += ["--cacert", str(settings.server.tls_certfile)]
    command = shlex.join(words)
    if keyed or not is_loopback(settings.server.host):
        command += ' -H "authorization: Bearer $API_KEY"'
    return f"{command} \\\n  -H 'content-type: application/json' -d {shlex.quote(msgspec.json.encode(body).decode())}"
