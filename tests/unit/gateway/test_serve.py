"""`weighbridge serve` as a process: the command to copy, the signals, and every refusal to start."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.ledger_rows import CHAIN_KEY
from tests.unit.gateway import tls
from tests.unit.gateway.fakes import chat_body
from weighbridge.config.clock import SystemClock
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import Settings, load_settings
from weighbridge.gateway import cli
from weighbridge.gateway.listening import StartError, bind, listen
from weighbridge.gateway.serve import first_request, serve
from weighbridge.observability.ledger import Ledger, SpoolBusy
from weighbridge.observability.logs import OUR_LOGGER
from weighbridge.router.difficulty import COMPILED

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]

PROGRAM = """
import sys
from pathlib import Path
from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.settings import load_settings
from weighbridge.gateway.serve import serve

serve(
    load_settings(env={}, overrides={
        "server": {"port": 0, "drain_timeout_s": 5}, "state_dir": sys.argv[1]
    }),
    announce=lambda text: print(text, flush=True),
    engine_factory=lambda road, *_: FakeEngine(road, script=Script(token_s=float(sys.argv[2]))),
)
print("ended in order", flush=True)
"""


class Process:
    def __init__(self, process: asyncio.subprocess.Process, command: str) -> None:
        self.process = process
        self.command = command
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def port(self) -> int:
        return int(self.command.split("127.0.0.1:")[1].split("/")[0])

    async def stream(self) -> asyncio.StreamReader:
        """A stream that has begun."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = chat_body(model="local-8b", stream=True, max_tokens=100)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(body) + body)
        await reader.readuntil(b"data: ")
        self.writers.append(writer)  # dropped, it would close the connection
        return reader

    async def stopping(self) -> None:
        """The first signal has been obeyed."""
        assert self.process.stderr is not None
        async with asyncio.timeout(20):
            await self.process.stderr.readuntil(b": stopping")

    async def ended(self) -> tuple[int, str, str]:
        out, err = await asyncio.wait_for(self.process.communicate(), 20)
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def gateway(folder: Path, token_s: float = 0.0) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(folder),
        str(token_s),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            command = (await process.stdout.readuntil(b"}'\n")).decode()
        yield Process(process, command)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """`serve` sets up logging for a whole process, and this one goes on with other tests."""
    root, ours = logging.getLogger(), logging.getLogger(OUR_LOGGER)
    before = (root.level, ours.level, root.handlers[:], logging.raiseExceptions)
    yield
    logging.captureWarnings(False)
    root.setLevel(before[0])
    ours.setLevel(before[1])
    root.handlers[:], logging.raiseExceptions = before[2:]


async def test_the_command_that_is_printed_works_and_sigterm_stops_in_order(tmp_path: Path) -> None:
    async with gateway(tmp_path) as here:
        curl, url, header, content_type, data, body = shlex.split(here.command.replace("\\\n", " "))
        assert (curl, header, data) == ("curl", "-H", "-d")
        async with httpx.AsyncClient(trust_env=False) as client:
            name, _, value = content_type.partition(": ")
            answer = await client.post(url, content=body, headers={name: value})
        assert answer.json()["object"] == "chat.completion"
        here.process.send_signal(signal.SIGTERM)
        status, said, log = await here.ended()
    assert (status, said) == (0, "ended in order\n")
    lines = log.splitlines()
    assert sum("SIGTERM: stopping" in line for line in lines) == 1
    kind = "compiled" if COMPILED else "in plain Python"
    assert sum(f"the difficulty score runs {kind}" in line for line in lines) == 1
    assert lines[-1].endswith(": stopped")
    assert "Traceback" not in log


async def test_one_ctrl_c_lets_answers_finish(tmp_path: Path) -> None:
    async with gateway(tmp_path, token_s=0.005) as here:
        reader = await here.stream()
        here.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            rest = await reader.read()
        status, said, log = await here.ended()
    assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), log
    assert (status, said) == (0, "ended in order\n")


async def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, token_s=1.0) as here:
        reader = await here.stream()
        here.process.send_signal(signal.SIGINT)
        await here.stopping()
        here.process.send_signal(signal.SIGINT)
        status, said, log = await here.ended()
        assert b"[DONE]" not in await reader.read()
    assert (status, said) == (130, "")
    assert log.endswith("stopped at once\n")


# ---- refusals ----


def settings_in(folder: Path, **overrides: Any) -> Settings:
    given = {"state_dir": str(folder / "state"), "server": {"port": 0}}
    return load_settings(env={}, overrides=given | overrides)


def start(settings: Settings) -> None:
    serve(settings, announce=lambda _: None, engine_factory=lambda *_: FakeEngine())


def test_a_busy_port_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as sock:
        listen(sock)
        port = sock.getsockname()[1]
        with pytest.raises(StartError, match=f"^127.0.0.1:{port} is already in use$"):
            start(settings_in(tmp_path, server={"port": port}))
    assert not (tmp_path / "state").exists()


def test_a_key_that_does_not_go_with_the_certificate(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_text(tls.CERTIFICATE)
    key.write_text("not a key")
    server = {"port": 0, "tls_certfile": str(certificate), "tls_keyfile": str(key)}
    for _ in range(2):
        # Twice: the first refusal has let go of the state folder.
        with pytest.raises(ConfigError) as caught:
            start(settings_in(tmp_path, server=server))
        assert str(caught.value).startswith(f"server.tls_certfile: {certificate} ")
        assert "\n" not in str(caught.value)


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (StartError("127.0.0.1:8080 is already in use"), 1),
        (SpoolBusy("ledger.sqlite3: the usage ledger is in use"), 1),
        (ConfigError("tiers.local-8b.block_size: 7 is not legal"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_what_keeps_serve_from_starting_is_one_line(
    raised: BaseException, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("weighbridge.gateway.serve.serve", refuse)
    assert cli.main(["serve"]) == status
    err = capsys.readouterr().err
    assert err == f"{str(raised) or 'stopped'}\n"


def test_another_gateway_on_the_state_folder(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    ledger = Ledger.open(settings.state_dir / "ledger.sqlite3", clock=SystemClock(), chain_key=CHAIN_KEY)
    with pytest.raises(SpoolBusy):
        start(settings)
    ledger.close_sync()


# ---- the command to copy ----


def test_the_command_has_a_key_where_one_is_asked_for(tmp_path: Path) -> None:
    open_here = settings_in(tmp_path)
    admins = {"admin_keys": [{"id": "root", "sha256": hashlib.sha256(b"k").hexdigest()}]}
    reachable = settings_in(tmp_path, server={"host": "0.0.0.0"}, auth=admins)
    url = "http://127.0.0.1:8080"
    assert "API_KEY" not in first_request(open_here, url, False)
    assert "API_KEY" in first_request(open_here, url, True)
    assert "API_KEY" in first_request(reachable, url, False)


def test_with_keys_and_tls_the_command_has_both(tmp_path: Path) -> None:
    certificate, key = tmp_path / "my cert.pem", tmp_path / "key.pem"
    certificate.write_text(tls.CERTIFICATE)
    key.write_text(tls.KEY)
    settings = settings_in(
        tmp_path,
        server={"host": "0.0.0.0", "tls_certfile": str(certificate), "tls_keyfile": str(key)},
        auth={"keys": [{"id": "one", "sha256": hashlib.sha256(b"k").hexdigest()}]},
    )
    words = shlex.split(first_request(settings, "https://127.0.0.1:8080", True).replace("\\\n", " "))
    assert words[words.index("--cacert") + 1] == str(certificate)
    assert "authorization: Bearer $API_KEY" in words
    assert words[1] == "https://127.0.0.1:8080/v1/chat/completions"
