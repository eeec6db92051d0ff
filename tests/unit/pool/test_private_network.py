"""Which addresses may get raw text, and that nothing connects to the others."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import TierSettings
from weighbridge.pool.engine import EngineStartFailed, EngineUnavailable
from weighbridge.pool.http_engine import HttpEngine
from weighbridge.pool.http_exchange import (
    AddressRefused,
    Exchange,
    ExchangeLost,
    PrivateResolver,
    open_session,
)
from weighbridge.pool.private_network import check_endpoint, is_trusted, may_get_text

NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7"),
    )
)
METADATA = {ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("fd20:ce::254")}
"""Written out once more, so that a slip in the product's own list is seen."""

PRIVATE = (
    "127.0.0.1",
    "127.255.255.254",
    "::1",
    "10.0.0.5",
    "172.16.0.1",
    "172.31.255.254",
    "192.168.7.7",
    "fd12::1",
)
OUTSIDE = (
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "0.0.0.0",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::2",
    "fe80::1",
    "fec0::1",
    "2001:4860:4860::8888",
    "64:ff9b::a00:1",  # 10.0.0.1 behind somebody's translator
    "2002:a00:1::1",
    "::10.0.0.1",
    "fbff:ffff::1",
    "fe00::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1%eth0",
)
NO_ADDRESSES = ("127.1", "2130706433", "0177.0.0.1", "0x7f.0.0.1", "010.0.0.1", "10.0.0", "", "localhost")


def mapped(address: str) -> str:
    return f"::ffff:{address}"


@pytest.mark.parametrize("address", PRIVATE)
def test_loopback_and_private_addresses_may_get_text(address: str) -> None:
    assert may_get_text(address)
    if ":" not in address:
        assert may_get_text(mapped(address))


@pytest.mark.parametrize("address", (*OUTSIDE, *NO_ADDRESSES))
def test_other_addresses_may_not(address: str) -> None:
    assert not may_get_text(address)
    if ipaddress_v4(address):
        assert not may_get_text(mapped(address))


def ipaddress_v4(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


v4 = st.one_of(
    st.ip_addresses(v=4),
    # Random addresses seldom come near an edge of a network.
    st.sampled_from([net for net in NETWORKS if net.version == 4]).flatmap(
        lambda net: st.integers(-2, 2).flatmap(
            lambda off: st.sampled_from([int(net[0]) + off, int(net[-1]) + off]).map(ipaddress.IPv4Address)
        )
    ),
)
v6 = st.one_of(
    st.ip_addresses(v=6),
    st.integers(0, (1 << 121) - 1).map(lambda low: ipaddress.IPv6Address((0xFC << 120) + low)),
    v4.map(lambda ip: ipaddress.IPv6Address((0xFFFF << 32) + int(ip))),
    st.sampled_from(sorted(METADATA)),
)


@given(st.one_of(v4, v6))
def test_every_address_is_judged_by_the_networks_alone(
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    plain = getattr(ip, "ipv4_mapped", None) or ip
    inside = any(plain.version == net.version and plain in net for net in NETWORKS)
    assert may_get_text(str(ip)) == (inside and ip not in METADATA)
    # The same address in other spellings.
    assert may_get_text(ip.exploded) == may_get_text(str(ip)) == may_get_text(str(ip).upper())


@pytest.mark.parametrize("address", (*PRIVATE, mapped("10.1.2.3")))
def test_an_endpoint_at_a_private_address_is_taken(address: str) -> None:
    check_endpoint("local-8b", url(address), ())


@pytest.mark.parametrize(
    "address", [*(a for a in OUTSIDE if "%" not in a), mapped("8.8.8.8"), "127.1", "2130706433", "10.0.0"]
)
def test_an_endpoint_elsewhere_is_refused_in_one_line_and_taken_when_trusted(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_endpoint("local-70b", url(address), ("other.example", "10.9.9.9"))
    text = str(caught.value)
    assert text.startswith("tiers.local-70b.endpoints: ") and "\n" not in text
    check_endpoint("local-70b", url(address), (address,))


def test_names_are_left_to_the_resolver() -> None:
    for host in ("gpu-1", "model.example", "0x7f.1", "1.2.3.4.nip.example"):
        check_endpoint("local-8b", url(host), ())


def test_the_engine_refuses_such_an_address_before_anything_else() -> None:
    with pytest.raises(ConfigError, match=r"^tiers\.local-8b\.endpoints: "):
        HttpEngine(TierSettings(), "local-8b", "http://169.254.169.254/v1", SystemClock())


def test_trust_goes_by_the_host_whatever_its_spelling() -> None:
    assert is_trusted("GPU.Example.", ("gpu.example",))
    assert is_trusted("2001:DB8:0::1", ("2001:db8::1",))
    assert not is_trusted("gpu.example.evil.test", ("gpu.example",))


def url(host: str) -> str:
    return f"http://[{host}]:8000/v1" if ":" in host else f"http://{host}:8000/v1"


# -- names


class Names(AbstractResolver):
    """A resolver that says what the test tells it; the last answer is repeated."""

    def __init__(self, *answers: tuple[str, ...]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in answer
        ]

    async def close(self) -> None:
        pass


@asynccontextmanager
async def listening(host: str = "127.0.0.1") -> AsyncIterator[tuple[int, list[object]]]:
    """A port of this machine, and the connections that were made to it."""
    connections: list[object] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\n{"data":[]}')
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connections


async def fetch(names: Names, port: int, trusted: tuple[str, ...] = (), host: str = "gpu.example") -> int:
    session = open_session(trusted, names)
    exchange = Exchange(session, b"", connect_s=5, idle_s=5)
    try:
        return await exchange.send("GET", f"http://{host}:{port}/v1/models")
    finally:
        exchange.close()
        await session.close()


def public_to_loopback(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let those public addresses be this machine's loopback, so that a connection to them would be seen; the list gets
    every address that a connection was tried to."""
    loop, tried = asyncio.get_running_loop(), []
    connect = loop.sock_connect

    async def redirected(sock: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address[0])
        await connect(sock, ("127.0.0.1", address[1]) if address[0] in addresses else address)

    monkeypatch.setattr(loop, "sock_connect", redirected)
    return tried


@pytest.mark.parametrize(
    "addresses",
    [("93.184.216.34",), ("127.0.0.1", "93.184.216.34"), ("169.254.169.254",), ("0.0.0.0",)],
    ids=["public", "one of two", "metadata", "any"],
)
async def test_a_name_that_leads_outside_is_refused_and_nothing_connects(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = public_to_loopback(monkeypatch, *addresses)
    async with listening() as (port, connections):
        with pytest.raises(ExchangeLost) as caught:
            await fetch(Names(addresses), port)
        assert caught.value.kind == "address"
        assert connections == [] and tried == []
        # The same name and the same socket, trusted: now it connects.
        assert await fetch(Names(addresses[-1:]), port, ("gpu.example",)) == 200
        assert len(connections) == 1 and tried == [addresses[-1]]


async def test_an_address_is_judged_like_a_name_when_it_is_connected_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = public_to_loopback(monkeypatch, "93.184.216.34")
    async with listening() as (port, connections):
        with pytest.raises(ExchangeLost) as caught:
            await fetch(Names(("127.0.0.1",)), port, host="93.184.216.34")
        assert caught.value.kind == "address"
        assert connections == [] and tried == []
        assert await fetch(Names(()), port, ("93.184.216.34",), host="93.184.216.34") == 200
        assert await fetch(Names(()), port, host="127.0.0.1") == 200
        assert tried == ["93.184.216.34", "127.0.0.1"]


async def test_a_private_name_connects() -> None:
    async with listening() as (port, connections):
        assert await fetch(Names(("127.0.0.1",)), port) == 200
        assert len(connections) == 1


async def test_a_name_is_looked_at_anew_for_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = public_to_loopback(monkeypatch, "93.184.216.34")
    names = Names(("127.0.0.1",), ("93.184.216.34",))
    async with listening() as (port, connections):
        session = open_session((), names)
        async with session:
            first = Exchange(session, b"", connect_s=5, idle_s=5)
            assert await first.send("GET", f"http://gpu.example:{port}/v1/models") == 200
            await first.read()
            second = Exchange(session, b"", connect_s=5, idle_s=5)
            with pytest.raises(ExchangeLost) as caught:
                await second.send("GET", f"http://gpu.example:{port}/v1/models")
        assert caught.value.kind == "address"
        assert names.asked == 2
        assert len(connections) == 1 and tried == ["127.0.0.1"]


async def test_numbers_that_only_the_system_takes_for_an_address_are_judged_by_what_they_become() -> None:
    async with listening() as (port, connections):
        # A name to us, 8.8.8.8 to the system's own resolver.
        session = open_session(())
        async with session:
            exchange = Exchange(session, b"", connect_s=5, idle_s=5)
            with pytest.raises(ExchangeLost) as caught:
                await exchange.send("GET", f"http://0x8.0x8.0x8.0x8:{port}/")
        assert caught.value.kind == "address"
        assert connections == []


async def test_a_name_without_an_address_is_no_connection() -> None:
    with pytest.raises(ExchangeLost) as caught:
        await fetch(Names(()), 9)
    assert caught.value.kind == "connect"


async def test_the_resolver_refuses_by_itself() -> None:
    resolver = PrivateResolver(Names(("::ffff:8.8.8.8",)), ())
    with pytest.raises(AddressRefused):
        await resolver.resolve("gpu.example", 80)
    assert await PrivateResolver(Names(("::ffff:10.0.0.1",)), ()).resolve("gpu.example", 80)


async def test_an_engine_at_such_a_name_does_not_start_and_says_which_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = public_to_loopback(monkeypatch, "93.184.216.34")
    async with listening() as (port, connections):
        engine = HttpEngine(
            TierSettings(),
            "local-8b",
            f"http://gpu.example:{port}/v1",
            SystemClock(),
            resolver=Names(("93.184.216.34",)),
        )
        with pytest.raises(EngineStartFailed, match=r"^tiers\.local-8b\.endpoints: .*trusted_endpoints"):
            await engine.start()
        assert not engine.alive
        with pytest.raises(EngineUnavailable):
            await engine.count_tokens({"messages": [{"role": "user", "content": "SECRET"}]})
        assert connections == [] and tried == []
