"""No room but `commercial` can open a connection by HTTP outwards, and masking and the router none at all.

One module of `pool` speaks HTTP on the private network, to addresses that `pool.private_network` lets it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("config", "observability", "state", "policies", "masking", "pool", "router", "gateway")
CLIENTS = {
    "aiohttp",
    "aiohttp_socks",
    "ftplib",
    "grpc",
    "httpcore",
    "httpx",
    "openai",
    "pycurl",
    "requests",
    "smtplib",
    "telnetlib",
    "urllib3",
    "websockets",
    "xmlrpc",
}
CLIENT_MODULES = {"http.client", "urllib.request", "asyncio.streams"}
CONNECTING = {
    "connect_ex",
    "create_connection",
    "create_datagram_endpoint",
    "create_unix_connection",
    "open_connection",
    "open_unix_connection",
    "sock_connect",
    "urlopen",
}
ON_THE_PRIVATE_NETWORK = "pool/http_exchange.py"
WITHOUT_SOCKETS = ("config", "policies", "masking", "router")


def _violations(source: str, room: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            top = module.split(".")[0]
            if top in CLIENTS or module in CLIENT_MODULES or module.split(".")[-1] in CONNECTING:
                yield f"imports {module}"
            if room in WITHOUT_SOCKETS and top in ("socket", "ssl"):
                yield f"imports {module}"
        if isinstance(node, ast.Attribute) and node.attr in CONNECTING:
            yield f"uses {node.attr}"


def test_only_the_gate_can_connect() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {what}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        if path != ROOT / ON_THE_PRIVATE_NETWORK
        for what in _violations(path.read_text("utf-8"), room)
    ]
    assert found == []


def test_in_commercial_one_module_alone_makes_a_session() -> None:
    users = {
        path.name
        for path in (ROOT / "commercial").glob("*.py")
        if "ClientSession(" in path.read_text("utf-8") or ".post(" in path.read_text("utf-8")
    }
    assert users == {"exchange.py"}


def test_the_one_on_the_private_network_uses_nothing_but_its_own_checked_session() -> None:
    source = (ROOT / ON_THE_PRIVATE_NETWORK).read_text("utf-8")
    assert set(_violations(source, "pool")) == {
        "imports aiohttp",
        "imports aiohttp.abc",
        "imports aiohttp.abc.AbstractResolver",
        "imports aiohttp.abc.ResolveResult",
    }
    # One session, whose connector asks the resolver that refuses, and no connector or proxy besides.
    assert source.count("ClientSession(") == source.count("TCPConnector(") == 1
    assert "resolver=checked" in source and "allow_redirects=False" in source and "trust_env=False" in source


@pytest.mark.parametrize(
    "source",
    [
        "import aiohttp",
        "def f():\n    from aiohttp import ClientSession",
        "import http.client",
        "from http import client",
        "import urllib.request as u",
        "from urllib.request import urlopen",
        "from asyncio import open_connection",
        "async def f(loop): await loop.create_connection(None)",
        "import socket",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(_violations(source, "masking"))
