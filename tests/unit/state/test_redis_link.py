"""The line to Redis: bounded, one voice in the log, its scripts found again, closed in order."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis_server
from tests.support.waiting import until
from tests.support.wire import wire
from tests.unit.gateway.tls import CERTIFICATE, KEY
from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import RedisSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.state.redis_link import RedisLink
from weighbridge.state.redis_terms import RedisAway, Script

ADD = Script("redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('PEXPIRE', KEYS[1], 9000) return {'한글', 7}")
BROKEN = Script("return redis.call('NOSUCH')")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as made:
        yield made


@asynccontextmanager
async def link(url: str, *, started: bool = True, **more: Any) -> AsyncIterator[RedisLink]:
    settings = RedisSettings(url=url, **{"operation_timeout_ms": 300, **more})
    made = RedisLink(settings, SystemClock(), Metrics())
    if started:
        made.start()
        await until(lambda: made.available is not None)
    try:
        yield made
    finally:
        await made.close()


async def test_a_script_is_sent_once_and_found_again_after_a_flush(server: RedisServer) -> None:
    async with link(server.url) as one:
        key = one.name("tag", "count")
        assert key == "{weighbridge:tag}:count"
        for _ in range(3):
            assert await one.run(ADD, [key], ["1"]) == ["한글", 7]
        with server.client() as client:
            assert client.get(key) == "3"
            client.script_flush()
            client.config_resetstat()
            assert await one.run(ADD, [key], ["1"]) == ["한글", 7]
            assert await one.run(ADD, [key], ["1"]) == ["한글", 7]
            assert client.info("commandstats")["cmdstat_eval"]["calls"] == 1
            assert client.get(key) == "5"


async def test_many_calls_at_once_share_few_connections(server: RedisServer) -> None:
    async with link(server.url) as one:
        # Far more than can be answered in one operation's time: that is our own doing, not Redis being away.
        crowd = (one.run(ADD, [one.name("tag", "crowd")], ["1"]) for _ in range(500))
        await asyncio.gather(*crowd)
        assert one.available
        with server.client() as client:
            assert client.get(one.name("tag", "crowd")) == "500"
            assert client.info("clients")["connected_clients"] <= 20


async def test_a_busy_event_loop_does_not_pass_for_a_silent_redis(server: RedisServer) -> None:
    async with link(server.url, operation_timeout_ms=100) as one:
        # Each turn of the loop takes long, and these need many: their connections have yet to be made.
        crowd = [asyncio.create_task(one.run(ADD, [one.name("tag", "busy")], ["1"])) for _ in range(16)]
        for _ in range(12):
            await asyncio.sleep(0)
            time.sleep(0.05)
        await asyncio.gather(*crowd)
        assert one.available


async def test_a_script_that_fails_makes_it_count_as_away_until_it_echoes(server: RedisServer) -> None:
    async with link(server.url) as one:
        changes: list[bool] = []
        one.follow(changes.append)
        with pytest.raises(RedisAway) as caught:
            await one.run(BROKEN, [one.name("tag", "x")], [])
        assert (caught.value.why, one.available, one.status()["reason"]) == ("refused", False, "refused")
        with pytest.raises(RedisAway):
            await one.run(ADD, [one.name("tag", "x")], ["1"])
        await until(lambda: one.available is True)
        assert changes == [False, True]
        assert one.status()["ready"] and one.status()["reason"] == ""


async def test_away_it_fails_at_once_and_close_does_not_wait() -> None:
    async with link(f"redis://127.0.0.1:{free_port()}/0") as one:
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(RedisAway):
                await one.run(ADD, [one.name("tag", "x")], ["1"])
        assert time.monotonic() - began < 0.2
        began = time.monotonic()
    assert time.monotonic() - began < 1


async def test_before_it_was_ever_asked_nothing_is_known(server: RedisServer) -> None:
    async with link(server.url, started=False) as one:
        assert one.available is None
        with pytest.raises(RedisAway):
            await one.run(ADD, [one.name("tag", "x")], ["1"])


async def test_messages_are_heard_after_a_reconnect_as_well(server: RedisServer) -> None:
    heard: list[str] = []
    async with link(server.url, started=False) as one:
        one.listen(one.name("tag"), heard.append)
        one.start()
        await until(lambda: one.available is True)
        with server.client() as client:
            client.publish(one.name("tag"), "first")
            await until(lambda: heard == ["first"])
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda: one.available is False)
            await until(lambda: one.available is True)
            client.publish(one.name("tag"), "second")
            await until(lambda: heard == ["first", "second"])


async def test_a_password_that_is_wrong_is_told_as_such(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "right") as guarded:
        async with link(guarded.url, password=SecretStr("wrong")) as one:
            assert (one.available, one.status()["reason"]) == (False, "denied")
        async with link(guarded.url, password=SecretStr("right")) as one:
            assert await one.run(ADD, [one.name("tag", "x")], ["1"]) == ["한글", 7]


async def test_over_tls_it_wants_to_know_who_it_speaks_to(server: RedisServer, tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    async with wire(server.port, context) as line:
        url = line.url.replace("redis://", "rediss://")
        async with link(url, tls_ca_file=certificate) as one:
            assert await one.run(ADD, [one.name("tag", "x")], ["1"]) == ["한글", 7]
        async with link(url) as one:
            assert (one.available, one.status()["reason"]) == (False, "connect")
        async with link(line.url) as one:
            assert one.available is False


async def test_by_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with redis_server(tmp_path, "--unixsocket", str(path)):
        async with link(f"unix://{path}") as one:
            assert await one.run(ADD, [one.name("tag", "x")], ["1"]) == ["한글", 7]


async def test_what_is_said_before_closing_is_said_while_the_line_is_up(server: RedisServer) -> None:
    async with link(server.url) as one:
        one.before_closing(lambda: one.run(ADD, [one.name("tag", "bye")], ["1"]))
    with server.client() as client:
        assert client.get("{weighbridge:tag}:bye") == "1"


async def test_a_good_bye_that_hangs_is_cut_short(server: RedisServer) -> None:
    async with link(server.url) as one:
        one.before_closing(asyncio.Event().wait)
        began = time.monotonic()
    assert time.monotonic() - began < 3


async def test_one_that_comes_and_goes_writes_one_line_a_period(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "weighbridge.state")
    async with link(server.url) as one:
        for _ in range(4):
            with pytest.raises(RedisAway):
                await one.run(BROKEN, [one.name("tag", "x")], [])
            await until(lambda: one.available is True)
    told = [record.message for record in caplog.records]
    assert len(told) <= 2 and "it answers with errors" in told[0], told


async def test_nothing_is_done_over_a_line_that_was_given_up(server: RedisServer) -> None:
    """An answer that comes after its time does not make the new line count as broken."""
    async with wire(server.port) as line, link(line.url, operation_timeout_ms=100) as one:
        line.delay_s = 0.15
        with pytest.raises(RedisAway):
            await one.run(ADD, [one.name("tag", "late")], ["1"])
        line.delay_s = 0.0
        await until(lambda: one.available is True)
        await asyncio.sleep(0.3)
        assert one.available is True


def test_a_wrong_file_of_certificates_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    settings = RedisSettings(url="rediss://127.0.0.1:1/0", tls_ca_file=file)
    with pytest.raises(ConfigError, match=r"redis\.tls_ca_file: .* holds no certificate"):
        RedisLink(settings, SystemClock(), Metrics())
