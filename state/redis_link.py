"""The line to Redis: bounded calls, a breaker, and one background task that looks whether Redis is back.

This is the only module that knows redis-py. A call never waits longer than the operation timeout; after the first
failure Redis is taken to be away, and every call fails at once until the background task has heard an echo again.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import random
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Literal

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    TimeoutError,
)
from redis.maint_notifications import MaintNotificationsConfig

from weighbridge.config.clock import Clock
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import RedisSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.state.redis_terms import WORDS, RedisAway, Script, Trouble

log = logging.getLogger(__name__)

ECHO_S: Final = 1.0
"""Seconds between two echoes over the idle line, which tell a dead connection from a quiet one."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_LONGEST_REST_S: Final = 15.0
_STEADY_S: Final = 10.0
_LOG_PERIOD_S: Final = 60.0
_CONNECTIONS: Final = 16
_STEPS: Final = 8
"""Steps in which the time of a call is counted."""
_GRACE_TURNS: Final = 3
_FAREWELL_S: Final = 1.0


class RedisLink:
    """One gateway's line to Redis. Used from one event loop.

    Args:
        settings: with a `url`.
        clock: the gateway's clock.
        metrics: shows whether Redis is away.

    Raises:
        ConfigError: `tls_ca_file` holds no certificate.
    """

    def __init__(self, settings: RedisSettings, clock: Clock, metrics: Metrics) -> None:
        if settings.url is None:
            raise ValueError("no Redis is configured")
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        if settings.tls_ca_file is not None:
            # Looked at now, so that a wrong file ends the start.
            try:
                ssl.create_default_context(cafile=str(settings.tls_ca_file))
            except OSError:
                raise ConfigError(f"redis.tls_ca_file: {settings.tls_ca_file} holds no certificate") from None
        self.member: Final = secrets.token_hex(6)
        """This replica's name in Redis, a new one for every life of the process."""
        self._up: bool | None = None
        self._why: Trouble | None = None
        self._since = clock.monotonic()
        self._client: Redis | None = None
        self._room = asyncio.Semaphore(_CONNECTIONS)
        self._broken = asyncio.Event()
        self._heard = 0
        self._echo = asyncio.Event()
        self._channels: dict[str, Callable[[str], None]] = {}
        self._followers: list[Callable[[bool], None]] = []
        self._farewells: list[Callable[[], Awaitable[Any]]] = []
        self._keeper: asyncio.Task[None] | None = None
        self._underway: set[asyncio.Task[Any]] = set()
        self._told_at = float("-inf")
        self._untold = 0
        self._closing = False
        metrics.redis_away.set(0.0)

    # ---- what it is asked ----

    @property
    def available(self) -> bool | None:
        """Whether Redis is there; None while it was never asked."""
        return self._up

    @property
    def operation_s(self) -> float:
        """The most seconds a call takes."""
        return self._settings.operation_timeout_ms / 1000

    def status(self) -> dict[str, Any]:
        """Names and numbers for `/health/ready`."""
        return {
            "ready": self._up is True,
            "reason": self._why or "",
            "age_s": round(self._clock.monotonic() - self._since, 3),
        }

    def name(self, tag: str, *parts: str) -> str:
        """A key's or channel's name. All of one tag are kept together by a cluster."""
        return ":".join((f"{{{self._settings.key_prefix}:{tag}}}", *parts))

    def follow(self, changed: Callable[[bool], None]) -> None:
        """Call `changed(up)` whenever Redis comes or goes. It must not wait or raise."""
        self._followers.append(changed)

    def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """Call `heard(text)` with every message of a channel. To be called before `start`. Messages may be lost."""
        self._channels[channel] = heard

    def before_closing(self, step: Callable[[], Awaitable[Any]]) -> None:
        """Await `step()` before the line is closed, while it is up."""
        self._farewells.append(step)

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        """Run a script; text in its answer is `str`.

        Raises:
            RedisAway: at once while Redis is away, else after the operation timeout at the latest; the time in which
                all connections were busy does not count, nor that for which the event loop was held up.
        """
        async with self._room:
            client = self._client
            if not self._up or client is None:
                raise RedisAway(self._why or "connect")
            return await self._bounded(client, _evaluate(client, script, keys, args), self.operation_s)

    def distrust(self, why: Literal["garbage"]) -> RedisAway:
        """An answer made no sense: take Redis to be away. Returns what to raise."""
        self._lost(why)
        return RedisAway(why)

    # ---- its life ----

    def start(self) -> None:
        """Begin to look for Redis."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="redis")

    async def close(self) -> None:
        """Say good-bye and close. Bounded, and without an error when Redis is away."""
        if self._up:
            try:
                async with asyncio.timeout(_FAREWELL_S):
                    for step in self._farewells:
                        await step()
            except (RedisAway, builtins.TimeoutError):
                pass
        self._closing = True
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._up = False
        if self._underway:
            _, late = await asyncio.wait(self._underway, timeout=_FAREWELL_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _keep(self) -> None:
        """Connect, listen, and begin again after a pause whenever that ends."""
        pause_s, rest_s = _FIRST_PAUSE_S, _FIRST_PAUSE_S
        while True:
            self._broken.clear()
            client = self._make_client()
            ears = client.pubsub(ignore_subscribe_messages=True)
            try:
                reader = await self._connect(client, ears)
                if reader is not None:
                    came = self._clock.monotonic()
                    try:
                        self._came_back(client)
                        await self._watch(client, reader)
                    finally:
                        reader.cancel()
                    # One that comes and goes costs each caller of its short visits the operation timeout.
                    steady = self._clock.monotonic() - came >= _STEADY_S
                    pause_s = rest_s = _FIRST_PAUSE_S if steady else min(2 * rest_s, _LONGEST_REST_S)
            finally:
                self._client = None
                self._spawn(_discard(client, ears))
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the replicas
            if reader is None:
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _connect(self, client: Redis, ears: PubSub) -> asyncio.Task[None] | None:
        """Subscribe and wait for the first echo; None when that came to nothing."""
        reader: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
                await client.ping()
                await ears.subscribe(self._own_channel, *self._channels)
        except Exception as exc:
            self._lost(_trouble(exc, "connect"))
            return None
        reader = self._spawn(self._read(ears))
        # Connecting may be slow; a line whose answers are slow is of no use.
        if not await self._echoes(client):
            reader.cancel()
            self._lost("timeout")
            return None
        return reader

    async def _watch(self, client: Redis, reader: asyncio.Task[None]) -> None:
        """Return once the line is lost."""
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(ECHO_S):
                    await self._broken.wait()
            except builtins.TimeoutError:
                if reader.done():
                    self._lost("closed")
                else:
                    await self._echoes(client)

    async def _echoes(self, client: Redis) -> bool:
        """Whether a message to ourselves comes back in time."""
        number = self._heard + 1
        self._echo.clear()
        began = self._clock.monotonic()

        async def round_trip() -> None:
            await client.publish(self._own_channel, str(number))
            while self._heard < number:
                self._echo.clear()
                await self._echo.wait()

        try:
            await self._bounded(client, round_trip(), self.operation_s)
        except RedisAway:
            return False
        self._metrics.redis_operation_seconds.observe(self._clock.monotonic() - began)
        return True

    async def _read(self, ears: PubSub) -> None:
        try:
            async for message in ears.listen():
                channel, text = message["channel"], message["data"]
                if channel == self._own_channel:
                    if text.isdecimal():
                        self._heard = max(self._heard, int(text))
                        self._echo.set()
                elif (heard := self._channels.get(channel)) is not None:
                    heard(text)
        except Exception as exc:
            self._lost(_trouble(exc, "closed"))

    async def _bounded(self, client: Redis, call: Coroutine[Any, Any, Any], seconds: float) -> Any:
        task = self._spawn(call)
        for _ in range(_STEPS):
            # A step counts as its own length, however late it ends: the time for which the loop was held up is not
            # Redis's silence, and a call that has to connect needs the loop several times.
            done, _ = await asyncio.wait({task}, timeout=seconds / _STEPS)
            if done:
                break
        for _ in range(_GRACE_TURNS):
            if task.done():
                break
            # If the loop itself was held up, the answer may lie there unread.
            await asyncio.sleep(0)
        if not task.done():
            task.cancel()
            self._failed(client, "timeout")
            raise RedisAway("timeout")
        try:
            return task.result()
        except (Exception, asyncio.CancelledError) as exc:
            why = _trouble(exc, "closed")
            self._failed(client, why)
            raise RedisAway(why) from None

    # ---- there and away ----

    def _failed(self, client: Redis, why: Trouble) -> None:
        # What was asked over a line that is gone says nothing of the present one.
        if client is self._client:
            self._lost(why)

    def _came_back(self, client: Redis) -> None:
        self._client = client
        was, self._up, self._why, self._since = self._up, True, None, self._clock.monotonic()
        self._metrics.redis_away.set(0.0)
        if was is False:
            self._tell(logging.INFO, "Redis is back: limits are shared again")
        for changed in self._followers:
            changed(True)

    def _lost(self, why: Trouble) -> None:
        self._broken.set()
        self._metrics.redis_failures_total.labels(why).inc()
        self._why = why
        if self._up is False or self._closing:
            return
        self._up, self._since = False, self._clock.monotonic()
        self._metrics.redis_away.set(1.0)
        self._tell(
            logging.WARNING,
            f"Redis is away ({WORDS[why]}): each gateway goes on with its own share of the limits",
        )
        for changed in self._followers:
            changed(False)

    def _tell(self, level: int, text: str) -> None:
        """One line a period: one that comes and goes is not to fill the log."""
        now = self._clock.monotonic()
        if now - self._told_at < _LOG_PERIOD_S and not (level == logging.INFO and not self._untold):
            self._untold += 1
            return
        more = f" ({self._untold} changes before this one were not logged)" if self._untold else ""
        if level != logging.INFO:
            self._told_at = now
        self._untold = 0
        log.log(level, "%s%s", text, more)

    @property
    def _own_channel(self) -> str:
        return self.name("echo", self.member)

    def _make_client(self) -> Redis:
        settings = self._settings
        tls: dict[str, Any] = {}
        if settings.tls_ca_file is not None:
            tls["ssl_ca_certs"] = str(settings.tls_ca_file)
        pool = BlockingConnectionPool.from_url(
            str(settings.url),
            password=None if settings.password is None else settings.password.get_secret_value(),
            # One more for the echo.
            max_connections=_CONNECTIONS + 1,
            timeout=self.operation_s,
            decode_responses=True,
            encoding_errors="replace",
            # Every call is bounded here, so that a busy event loop does not pass for a dead line.
            socket_timeout=None,
            socket_connect_timeout=settings.connect_timeout_ms / 1000,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            lib_name=None,
            lib_version=None,
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            **tls,
        )
        return Redis.from_pool(pool)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._underway.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._underway.discard(task)
        if not task.cancelled():
            # Looked at, so that a call nobody waits for any more is not complained of.
            task.exception()


async def _evaluate(client: Redis, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
    try:
        return await client.evalsha(script.sha, len(keys), *keys, *args)
    except NoScriptError:
        # It was restarted or flushed. EVAL keeps the script as well.
        return await client.eval(script.text, len(keys), *keys, *args)


def _trouble(exc: BaseException, broken: Trouble) -> Trouble:
    if isinstance(exc, AuthenticationError | AuthorizationError | NoPermissionError):
        return "denied"
    if isinstance(exc, TimeoutError | builtins.TimeoutError):
        return "timeout" if broken == "closed" else broken
    if isinstance(exc, ConnectionError | OSError | asyncio.CancelledError):
        return broken
    return "refused"


async def _discard(client: Redis, ears: PubSub) -> None:
    """Close a client whose line may be dead."""
    closing: tuple[Callable[[], Awaitable[Any]], ...] = (
        ears.aclose,
        lambda: client.connection_pool.disconnect(inuse_connections=True),
    )
    for step in closing:
        try:
            async with asyncio.timeout(1.0):
                await step()
        except Exception as exc:
            log.debug("closing a line to Redis: %s", type(exc).__name__)
