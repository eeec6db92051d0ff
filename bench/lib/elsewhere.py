"""The proxied path: a tier that is served elsewhere, beside its bare server and beside uvicorn doing nothing."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.lib.echo import CHUNKS
from bench.lib.measuring import Cell, measure, table
from bench.lib.processes import Gateway, Program
from weighbridge.config.roads import AUTO, LOCAL_8B

PACE_S = 0.01
CONCURRENCY = (1, 32)
ECHO, NAMED, CHOSEN = "uvicorn alone", "weighbridge, a tier by name", "weighbridge, auto"
WARM_UP = 300

PROMPT = (
    "You are a careful assistant. "
    + "Please summarise the following incident report for the engineer on call in three short sentences, naming the "
    "cause, the impact and the next step. " * 9
)[:1024]
"""A kilobyte."""

Cells = dict[tuple[str, int, bool], Cell]
"""By target, concurrency, and whether it streams."""


def run(folder: Path, *, seconds: float, rounds: int) -> Cells:
    """Measure every cell; the targets take turns within each round."""
    cells: Cells = {}
    with ExitStack() as stack:
        server = stack.enter_context(Program(folder, "bench.lib.upstream", str(PACE_S)))
        echo = stack.enter_context(Program(folder, "bench.lib.echo", str(PACE_S)))
        base = f"http://127.0.0.1:{server.ready()['port']}/v1"
        tier = {"endpoints": [base], "endpoint_model": "bench-model", "max_num_seqs": 64}
        settings = {"tiers": {LOCAL_8B: tier, "local-70b": None}}
        gateway = stack.enter_context(Gateway(folder / "elsewhere", settings, token_s=None))
        load = stack.enter_context(Program(folder, "bench.lib.load"))
        load.ready()
        echo_url = f"http://127.0.0.1:{echo.ready()['port']}/v1/chat/completions"
        targets = (
            (ECHO, echo_url, {}, "bench-model", echo.pid),
            (NAMED, gateway.chat_url, gateway.headers, LOCAL_8B, gateway.pid),
            (CHOSEN, gateway.chat_url, gateway.headers, AUTO, gateway.pid),
        )
        for number in range(rounds + 1):
            for stream in (False, True):
                for concurrency in CONCURRENCY:
                    for name, url, headers, model, pid in targets:
                        # The first round warms up and is thrown away.
                        extent = {"seconds": seconds} if number else {"count": 8 if stream else WARM_UP}
                        job = _job(url, headers, model, concurrency, stream=stream) | extent
                        cell = cells.setdefault((name, concurrency, stream), Cell()) if number else Cell()
                        measure(cell, {name: pid}, lambda job=job: load.ask(job))
    return cells


def _job(url: str, headers: dict[str, str], model: str, concurrency: int, *, stream: bool) -> dict[str, Any]:
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT}],
        "temperature": 0.2,
        "max_tokens": CHUNKS,
    }
    if stream:
        body["stream"] = True
    return {"url": url, "headers": headers, "bodies": [json.dumps(body)], "concurrency": concurrency}


def report(cells: Cells) -> str:
    """The tables, as Markdown."""
    parts = []
    for stream, title in (
        (False, "whole answers"),
        (True, f"streams of {CHUNKS} chunks, one every {PACE_S * 1000:.0f} ms"),
    ):
        for concurrency in CONCURRENCY:
            made = _table(cells, concurrency, stream=stream)
            parts.append(f"### Proxied path, {title}, {concurrency} at a time\n\n{made}")
    return "\n\n".join(parts)


def _table(cells: Cells, concurrency: int, *, stream: bool) -> str:
    bare = cells[ECHO, concurrency, stream]
    rows = []
    for name in (ECHO, NAMED, CHOSEN):
        cell = cells[name, concurrency, stream]
        per_chunk = cell.cpu_above(name, cells[name, concurrency, False], name) / CHUNKS if stream else 0.0
        rows.append(
            [
                name,
                f"{cell.rate():,.0f}",
                f"{cell.p50_ms():,.2f}",
                f"{cell.cpu_per_request(name):,.0f}",
                cell.spread(lambda one, name=name: one.cpu_s[name] / one.requests * 1e6),
                f"{per_chunk:,.1f}" if stream else "",
                f"{cell.cpu_ratio((name,), bare, (ECHO,)):.2f}",
            ]
        )
    head = [
        "",
        "requests/s",
        "p50 ms",
        "CPU us/request",
        "rounds",
        "us/chunk above a whole answer",
        "x uvicorn",
    ]
    return table(head, rows)
