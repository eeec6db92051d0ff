"""Which modules can reach another machine, another process or the network at all, by name and with the reason.

Only `commercial` sends what a request says. One module of `pool` speaks HTTP on the private network, to addresses that
`pool.private_network` lets it. What every named module may use is written down to the name: one use more fails here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = (
    *("config", "observability", "state", "policies", "masking"),
    *("pool", "commercial", "router", "gateway"),
)

MODULES = frozenset(
    re.findall(
        r"\S+",
        """
    aiohttp aiohttp_socks anyio asyncssh boto3 botocore datasets dns elasticsearch ftplib google grpc http.client
    http.server httpcore httpx huggingface_hub imaplib kafka litellm logging.handlers multiprocessing nntplib openai
    opentelemetry paramiko pika poplib psycopg psycopg2 pty pycurl redis requests sentry_sdk smtplib socket socketserver
    socks ssl statsd subprocess telnetlib trio urllib.request urllib3 webbrowser websocket websockets xmlrpc zmq
    """,
    )
)
"""Whoever imports one of them, or a part of one, can open a connection or start a program."""

NAMES = frozenset(
    re.findall(
        r"\S+",
        """
    connect_ex create_connection create_datagram_endpoint create_subprocess_exec create_subprocess_shell
    create_unix_connection getaddrinfo gethostbyname open_connection open_unix_connection sock_connect start_tls
    subprocess_exec subprocess_shell urlopen
    """,
    )
)
"""Functions and methods that do, wherever they come from."""

OF_OS = re.compile(r"exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|system|popen|fork|forkpty|startfile")
"""What `os` has to start a program with."""

CARRIERS = frozenset({"__import__", "eval", "exec", "import_module", "CDLL", "PyDLL"})
"""What could bring in any of the above without its name being seen."""

NAMED: dict[str, tuple[str, set[str]]] = {
    "commercial/exchange.py": ("sends masked requests: the way out", {"aiohttp"}),
    "commercial/gate.py": ("holds the session of the way out", {"aiohttp"}),
    "pool/http_exchange.py": (
        "looks up and judges the names of the private network's endpoints",
        {"aiohttp", "socket", "getaddrinfo"},
    ),
    "pool/http_session.py": (
        "connects to the endpoints of the private network, each address judged",
        {"socket", "sock_connect", "create_connection", "ssl"},
    ),
    "pool/embedded_model.py": ("converts the embedded model in a program of its own", {"subprocess"}),
    "pool/vllm_loading.py": ("tells engines how their processes start", {"multiprocessing", "import_module"}),
    "masking/handing.py": ("hands files over a pair of sockets that no address leads to", {"socket"}),
    "masking/detector_nursery.py": ("starts the detectors' process", {"subprocess"}),
    "masking/nursery.py": ("forks detectors, which end with it", {"fork", "CDLL"}),
    "gateway/listening.py": ("binds the port that callers come in by", {"socket", "getaddrinfo"}),
    "gateway/server.py": ("names the type of the sockets it is given", {"socket"}),
    "gateway/serve.py": ("reads the certificate that callers see", {"ssl"}),
    "masking/layers/credentials.py": ("imports the plug-ins that it lists", {"import_module"}),
    "masking/models.py": ("has pip fetch the models that `weighbridge models fetch` is for", {"subprocess"}),
    "observability/otlp_post.py": (
        "posts typed records and spans to the configured collector and nowhere else",
        {"getaddrinfo", "socket", "ssl"},
    ),
    "observability/otlp_answer.py": ("reads the collector's messages", {"google", "opentelemetry"}),
    "observability/otlp_metrics.py": ("fills the collector's messages", {"opentelemetry"}),
    "observability/otlp_records.py": ("fills the collector's messages", {"opentelemetry"}),
    "observability/shipper.py": ("names the type of those messages", {"opentelemetry"}),
    "observability/request_trace.py": ("makes spans", {"opentelemetry"}),
    "observability/traces.py": ("makes spans; its exporter is ours", {"opentelemetry"}),
    "observability/span_sender.py": ("fills the collector's messages", {"opentelemetry"}),
    "gateway/parts.py": ("names the type of an exporter", {"opentelemetry"}),
    "gateway/tracing.py": ("names the type of an exporter", {"opentelemetry"}),
    "observability/savings_job.py": (
        "reckons savings in a program of its own, which reads the ledger",
        {"create_subprocess_exec"},
    ),
    "state/redis_link.py": (
        "connects to the configured Redis; `eval` is Redis's own, of scripts",
        {"redis", "ssl", "eval"},
    ),
    "router/difficulty/compiled.py": ("loads the score's own compiled modules", {"import_module"}),
    "router/difficulty/compiling.py": (
        "runs the C compiler at set-up; nothing that serves imports it",
        {"subprocess"},
    ),
    "masking/layers/registry.py": ("imports the layer that the settings name", {"import_module"}),
}


def reach(source: str) -> Iterator[str]:
    """What of the above a module uses, by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from filter(None, (_module(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [alias.name for alias in node.names]
            whole = _module(node.module)
            yield from (
                [whole] if whole else filter(None, (_module(f"{node.module}.{name}") for name in names))
            )
            yield from (name for name in names if name in NAMES | CARRIERS)
            yield from (name for name in names if node.module == "os" and OF_OS.fullmatch(name))
        elif isinstance(node, ast.Attribute):
            of_os = isinstance(node.value, ast.Name) and node.value.id == "os" and OF_OS.fullmatch(node.attr)
            if of_os or node.attr in NAMES | CARRIERS:
                yield node.attr
        elif isinstance(node, ast.Name) and node.id in CARRIERS:
            yield node.id


def _module(name: str) -> str | None:
    parts = name.split(".")
    return next((known for n in range(len(parts), 0, -1) if (known := ".".join(parts[:n])) in MODULES), None)


def sources() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def test_only_named_modules_can_reach_anything() -> None:
    found = {path: used for path, source in sources() if (used := set(reach(source)))}
    assert found == {path: used for path, (_, used) in NAMED.items()}


def test_in_commercial_one_module_alone_makes_a_session() -> None:
    users = {
        path
        for path, source in sources()
        if path.startswith("commercial/") and ("ClientSession(" in source or ".post(" in source)
    }
    assert users == {"commercial/exchange.py"}


@pytest.mark.parametrize(
    ("made", "makers"),
    [
        ("MaskedRequest", {"masking/seal.py"}),
        ("seal_request", {"masking/masker.py"}),
        ("EgressGate", {"gateway/parts.py"}),
    ],
)
def test_what_may_leave_is_made_in_one_place(made: str, makers: set[str]) -> None:
    """The way out takes a `MaskedRequest` alone (mypy), and only masking can seal one."""
    assert {path for path, source in sources() if made in _called(source)} == makers


def test_only_the_gate_knows_the_exchange() -> None:
    knowing = {path for path, source in sources() if "weighbridge.commercial.exchange" in source}
    assert knowing == {"commercial/gate.py"}


def _called(source: str) -> set[str]:
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {call.id if isinstance(call, ast.Name) else getattr(call, "attr", "") for call in calls}


def test_the_one_on_the_private_network_connects_to_judged_addresses_alone() -> None:
    session = (ROOT / "pool/http_session.py").read_text("utf-8")
    # One place connects a socket, and what is spoken goes over that socket; it gets the addresses that were judged.
    for once in ("socket.socket(", ".sock_connect(", ".create_connection(", "sock=sock"):
        assert session.count(once) == 1
    assert session.count("self._connect(") == 1
    assert "for family, address in addresses:" in session
    assert session.count("addresses = await self._addresses(target)") == 1
    # Names are judged by the resolver that refuses; whoever makes a session gives it that one.
    exchange = (ROOT / "pool/http_exchange.py").read_text("utf-8")
    assert {path for path, source in sources() if "Session" in _called(source)} == {"pool/http_exchange.py"}
    assert exchange.count("Session(") == exchange.count("Session(trusted, PrivateResolver(") == 1
    assert "aiohttp.ClientSession" not in exchange


def test_the_one_that_hands_files_over_has_sockets_that_are_joined_and_no_others() -> None:
    source = (ROOT / "masking/handing.py").read_text("utf-8")
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "socket"
    }
    assert used == {
        "AF_UNIX",
        "CMSG_LEN",
        "MSG_CMSG_CLOEXEC",
        "SCM_RIGHTS",
        "SOCK_SEQPACKET",
        "SOL_SOCKET",
        "send_fds",
        "socket",
        "socketpair",
    }
    # The bare kind is made of a descriptor that was handed over, and is never told an address.
    assert source.count("socket.socket(") == source.count("socket.socket(fileno=descriptor)") == 1
    assert ".connect(" not in source and ".bind(" not in source


def test_only_the_port_for_callers_is_bound() -> None:
    binding = {path for path, source in sources() if ".bind(" in source or "create_server" in source}
    assert binding == {"gateway/listening.py"}


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
        "from logging import handlers",
        "from os import system",
        "import os\nos.execv('/bin/sh', [])",
        "async def f(a): await a.create_subprocess_exec('x')",
        "import opentelemetry.sdk.trace",
        "__import__('socket')",
        "from importlib import import_module",
        "exec('import socket')",
        "import ctypes\nctypes.CDLL(None).connect",
    ],
)
def test_the_search_finds_what_it_looks_for(source: str) -> None:
    assert list(reach(source))


@pytest.mark.parametrize(
    "source", ["import asyncio", "from urllib.parse import quote", "import regex", "x.http"]
)
def test_the_search_finds_nothing_else(source: str) -> None:
    assert not list(reach(source))
