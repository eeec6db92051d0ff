"""Beside the masked request nothing goes anywhere: no connection, no look-up, and no text in anything that is kept."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.fake_engine import FakeEngine, Script
from tests.support.faulty_layers import command
from tests.support.outward import LAYERS
from tests.support.process import children
from tests.support.recorder import ERROR_EVENT, MALFORMED, OK, Mode, Recorder, recording, status
from tests.support.request_sites import SITES, Site
from tests.support.running import Running, policy_file, running_gateway
from tests.support.watching import sockets_of, watched
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.masker import setup_of
from weighbridge.observability.logs import setup_logging

MARK = "qzmark"
NUMBER = "918273645091"
"""What is planted at places of text and of numbers. Neither is in anything else that the gateway says or keeps."""


@asynccontextmanager
async def side(
    folder: Path, *, log: Path | None = None, layers: Sequence[str] = LAYERS, **more: Any
) -> AsyncIterator[tuple[Running, Recorder, DetectorNursery]]:
    nursery = DetectorNursery(
        setup_of(MaskingSettings.model_validate({"layers": list(layers)})), command(log=log)
    )
    try:
        async with (
            recording() as recorder,
            running_gateway(
                folder,
                upstream=recorder.base_url,
                policy=policy_file(folder, queue_lock_timeout_ms=50, outward={"refuse": []}),
                nursery=nursery,
                masking={"layers": list(layers), "task_timeout_s": 20.0},
                ready_within_s=60,
                **more,
            ) as gateway,
        ):
            yield gateway, recorder, nursery
    finally:
        await nursery.close()


# ---- connections ----


async def test_an_overflow_run_connects_to_the_configured_upstream_and_nowhere_else(tmp_path: Path) -> None:
    log = tmp_path / "events.txt"
    log.touch()
    with watched() as events:
        engines = {"local-8b": FakeEngine(script=Script(first_token_s=0.3))}
        async with side(tmp_path, log=log, engines=engines, tiers={"local-8b": {"max_num_seqs": 1}}) as (
            gateway,
            recorder,
            nursery,
        ):
            text = (
                "고객 김민수 님, 메일 kim{0}@corp-example.co.kr, 010-2345-67{0:02d}, https://intra.example.com/u{0}, "
                "IBAN DE89 3704 0044 0532 0130 00. 이 문의를 [배송, 환불] 중 하나로 분류해줘. "
                "Write to John Smith at john{0}@mailhost about it."
            )
            answers = await asyncio.gather(
                *(
                    gateway.chat(stream=n % 2 == 0, messages=[{"role": "user", "content": text.format(n)}])
                    for n in range(16)
                )
            )
            assert {answer.status_code for answer in answers} == {200}
            outward = [a for a in answers if a.headers["x-weighbridge-road"] == "commercial"]
            assert len(outward) >= 8 and len(recorder.requests) == len(outward)
            own, upstream = gateway.client.base_url.port, recorder.port
            (worker,) = children(nursery.pid)
            assert sockets_of(worker) == []
            # The one end of the line to the gateway, as its standard input was and as its own.
            assert len(set(sockets_of(nursery.pid))) <= 1
    reached = {args[1] for event, args in events if event.startswith(("socket.connect", "socket.sendto"))}
    # The client of this test comes in by the gateway's own port.
    assert reached == {("127.0.0.1", own), ("127.0.0.1", upstream)}
    looked_up = {args[0] for event, args in events if event.startswith(("socket.get", "http", "urllib"))}
    assert looked_up <= {"127.0.0.1"}
    started = [args[1] for event, args in events if event.startswith(("subprocess", "os."))]
    assert [list(line) for line in started] == [list(command(log=log))]
    # urllib3, which a library of the detectors' imports, tries on loading whether this machine has IPv6.
    told = [
        line for line in log.read_text().splitlines() if not ("socket.bind" in line and "('::1', 0))" in line)
    ]
    assert told == []


async def test_a_detector_that_called_home_would_be_seen(tmp_path: Path) -> None:
    """The hook of the test above looks into the forked workers too."""
    log = tmp_path / "events.txt"
    async with side(tmp_path, log=log, layers=()) as (gateway, _, _):
        await gateway.chat(
            model="commercial", messages=[{"role": "user", "content": "break-structured-call"}]
        )
    assert "socket.connect" in log.read_text() and "('127.0.0.1', 9)" in log.read_text()


# ---- what is kept and told ----


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    """The log as an operator has it."""
    root, ours = logging.getLogger(), logging.getLogger("weighbridge")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    stream = io.StringIO()
    setup_logging(stream=stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:], level, our_level, logging.raiseExceptions = before
    root.setLevel(level)
    ours.setLevel(our_level)


def marked(data: bytes | str) -> str | None:
    """The neighbourhood of the first marker in `data`, in any coding of text that a log or a file may have."""
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    low = raw.lower()
    for mark in (MARK, NUMBER):
        for form in (
            mark.encode(),
            mark.encode("utf-16-le"),
            mark.encode("utf-16-be"),
            mark.encode().hex().encode(),
        ):
            if (at := low.find(form)) >= 0:
                return repr(raw[max(0, at - 80) : at + 80])
    return None


class Told:
    """Everything a client was told that was not an answer to its question."""

    def __init__(self, gateway: Running) -> None:
        self._gateway = gateway
        self.found: list[str] = []
        self.statuses: dict[int, int] = {}

    def take(self, what: str, answer: httpx.Response) -> httpx.Response:
        self.statuses[answer.status_code] = self.statuses.get(answer.status_code, 0) + 1
        said = repr(list(answer.headers.items()))
        said += answer.text if answer.status_code != 200 else ""
        if near := marked(said):
            self.found.append(f"{what}: {answer.status_code} {near}")
        return answer

    async def chat(self, what: str, **body: Any) -> httpx.Response:
        return self.take(what, await self._gateway.chat(**body))

    async def post(self, what: str, content: bytes, path: str = "/v1/chat/completions", **more: Any) -> None:
        self.take(what, await self._gateway.client.post(path, content=content, **more))


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def at_every_site(told: Told) -> None:
    async def send(number: int, site: Site, model: str) -> None:
        request = site.build(f"{MARK}{number:03d} note", NUMBER)
        assert request is not None
        await told.post(
            f"{site} {model}",
            json.dumps({"model": model, **request.body}).encode(),
            f"/v1/chat/completions{request.query}",
            headers={"content-type": "application/json", **request.headers},
        )

    sent = [(number, site, "commercial") for number, site in enumerate(SITES)]
    sent += [(number, site, "local-8b") for number, site, _ in sent[::4]]
    for first in range(0, len(sent), 8):
        await asyncio.gather(*(send(*one) for one in sent[first : first + 8]))


async def with_errors(gateway: Running, recorder: Recorder, told: Told, patch: pytest.MonkeyPatch) -> None:
    """Whatever can go wrong with text at hand."""
    bodies = {
        "no JSON": f'{{"model": "commercial", "messages": {MARK}',
        "no object": f'["{MARK}"]',
        "a name twice": f'{{"{MARK}": 1, "{MARK}": 2, "model": "commercial", "messages": []}}',
        "too deep": '{"a":' * 80 + f'"{MARK}"' + "}" * 80,
        "no model": f'{{"model": "{MARK}", "messages": [{{"role": "user", "content": "hi"}}]}}',
        "model of another type": f'{{"model": ["{MARK}"], "messages": []}}',
        "no messages": f'{{"model": "commercial", "messages": {{"{MARK}": 1}}}}',
        "half a character": f'{{"model": "commercial", "messages": [{{"role": "user", "content": "{MARK} \\ud83d"}}]}}',
        "a number too large": f'{{"model": "commercial", "messages": [], "{MARK}": 1e999}}',
    }
    for what, body in bodies.items():
        await told.post(what, body.encode())
    await told.post("no UTF-8", f'{{"model": "{MARK}'.encode() + b'\xff"}')
    await told.post("another path", b"{}", f"/v1/{MARK}")
    for header in ("x-weighbridge-priority", "x-weighbridge-max-queue-ms", "authorization", "content-type"):
        body = json.dumps({"model": "commercial", "messages": said("hi")}).encode()
        await told.post(header, body, headers={header: f"{MARK} {NUMBER}"})
    for fault in ("raise", "exit", "kill", "none"):
        await told.chat(f"detector {fault}", model="commercial", messages=said(f"{MARK} break-kiwi-{fault}"))
    modes = (
        status(500, MARK.encode()),
        status(
            400, json.dumps({"error": {"message": MARK, "code": f"{MARK} {NUMBER}", "type": MARK}}).encode()
        ),
        status(429, MARK.encode(), retry_after=MARK, x_note=MARK),
        MALFORMED,
        ERROR_EVENT,
        Mode("cut", reply=MARK * 9),
        Mode("malformed", reply=MARK * 9),
        Mode("not_json", reply=MARK * 9),
    )
    with patch.context() as inside:
        inside.setattr("weighbridge.router.outward._BACKOFF_S", ((0.0, 0.01),) * 3)
        for mode in modes:
            for stream in (False, True):
                recorder.mode = mode
                answer = await told.chat(
                    f"upstream {mode.name}", model="commercial", stream=stream, messages=said(MARK)
                )
                assert mode.name in ("cut", "error_event") or stream or answer.status_code != 200
    recorder.mode = OK
    await told.chat("engine", model="local-70b", messages=said(MARK))

    def raising(body: Any, *rest: Any) -> Any:
        raise ValueError(json.dumps(body))

    with patch.context() as inside:
        inside.setattr("weighbridge.masking.masker.plan_body", raising)
        await told.chat("masking itself", model="commercial", messages=said(f"{MARK} {NUMBER}"))


async def read_all(gateway: Running, told: Told) -> dict[str, bytes]:
    """Every page that the gateway shows to an operator."""
    pages: dict[str, bytes] = {}
    paths = (await gateway.client.get("/openapi.json")).json()["paths"]
    for path in [*(path for path, ways in paths.items() if "get" in ways), f"/v1/models/{MARK}"]:
        answer = await gateway.client.get(path.replace("{name}", MARK))
        told.take(path, answer)
        pages[path] = answer.content
    return pages


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_nothing_that_a_request_says_is_logged_counted_kept_or_told_again(
    tmp_path: Path,
    log_lines: io.StringIO,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = {
        "local-8b": FakeEngine("local-8b"),
        "local-70b": FakeEngine("local-70b", script=Script(fail_with=RuntimeError(f"{MARK} {NUMBER}"))),
    }
    patient = {"breaker_failures": 1000}  # else most of what goes wrong would not be asked for
    async with side(tmp_path, engines=engines, commercial=patient) as (gateway, recorder, nursery):
        told = Told(gateway)
        await at_every_site(told)
        await with_errors(gateway, recorder, told, monkeypatch)
        (worker,) = children(nursery.pid)
        limits = Path(f"/proc/{worker}/limits").read_text()
        (core,) = (line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core"))
        pages = await read_all(gateway, told)
        assert {"/metrics", "/admin/v1/policy", "/admin/v1/egress"} <= pages.keys()
        pages |= {f"state while it runs: {name}": data for name, data in files_in(gateway.state_dir).items()}
    pages |= {f"state at the end: {name}": data for name, data in files_in(tmp_path / "state").items()}
    out, err = capfd.readouterr()
    pages |= {"log": log_lines.getvalue().encode(), "stdout": out.encode(), "stderr": err.encode()}

    found = [*told.found, *(f"{name}: {near}" for name, data in pages.items() if (near := marked(data)))]
    assert found == [], "\n".join(found)
    # A crash of a worker leaves no dump of its memory: one byte is no dump, and keeps crash reporters off too.
    assert core == ["1", "1"]
    # So that this holds by more than silence: all of it was reached, and something was written.
    assert {200, 400, 403, 404, 502, 503} <= told.statuses.keys(), told.statuses
    assert "ValueError" in log_lines.getvalue() and "RuntimeError" in log_lines.getvalue()
    assert any(name.endswith(".sqlite3") for name in pages) and b"weighbridge_" in pages["/metrics"]
    assert MARK.encode() in recorder.everything
