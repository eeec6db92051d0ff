"""The commercial path: ours, masking and all, beside the bare upstream and a plain FastAPI and httpx proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.lib.load import FRESH
from bench.lib.machine import child_with
from bench.lib.measuring import Cell, measure, table
from bench.lib.processes import Gateway, Program

PACE_S = 0.01
CHUNKS = 32
CONCURRENCY = (1, 32)
DIRECT, OURS, PLAIN = "upstream, direct", "weighbridge", "FastAPI + httpx"
GATEWAY, MASKING, UPSTREAM, PROXY = "gateway", "masking", "upstream", "proxy"
NURSERY = "weighbridge.masking.nursery"
"""In the command line of the process that forks the masking worker, and of the worker."""
WARM_UP = 200
"""Requests that every target answers before anything is measured."""

LETTER = (
    "You write for the support team of a web shop. Answer the customer below in two friendly sentences, say when the "
    "parcel arrives, and do not promise a refund.\n\nHello, I ordered a pair of walking boots on 3 November (order "
    "A-20417) and have heard nothing since. The tracking page says the parcel is in your warehouse. I leave for a trip "
    "on Friday and need them before that. You can reach me at minji.park@example.com or 010-2345-6789 in the evening. "
    "If they do not arrive in time, please tell me now, so that I can buy another pair at the station. "
    f"Kind regards, Minji Park, who is called {FRESH} at home"
)


@dataclass
class Target:
    """Something that answers chat completions.

    watched: process ids whose CPU counts, by name.
    """

    name: str
    url: str
    headers: dict[str, str]
    watched: dict[str, int]


def body(model: str, *, stream: bool) -> str:
    document: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": LETTER}],
        "temperature": 0.2,
        "max_tokens": CHUNKS,
    }
    if stream:
        document["stream"] = True
    return json.dumps(document, ensure_ascii=False)


@contextmanager
def targets(folder: Path) -> Iterator[list[Target]]:
    """Upstream, gateway and plain proxy, all up."""
    with ExitStack() as stack:
        upstream = stack.enter_context(Program(folder, "bench.lib.upstream", str(PACE_S)))
        base = f"http://127.0.0.1:{upstream.ready()['port']}/v1"
        settings = {
            "tiers": {"local-8b": {}, "local-70b": None},
            "commercial": {"base_url": base, "model": "bench-model"},
        }
        gateway = stack.enter_context(Gateway(folder / "proxied", settings, token_s=0.0))
        proxy = stack.enter_context(Program(folder, "bench.lib.plain_proxy", base))
        port = proxy.ready()["port"]
        yield [
            Target(DIRECT, f"{base}/chat/completions", {}, {UPSTREAM: upstream.pid}),
            Target(
                OURS,
                gateway.chat_url,
                gateway.headers,
                {
                    GATEWAY: gateway.pid,
                    MASKING: child_with(child_with(gateway.pid, NURSERY), NURSERY),
                    UPSTREAM: upstream.pid,
                },
            ),
            Target(
                PLAIN,
                f"http://127.0.0.1:{port}/v1/chat/completions",
                {},
                {PROXY: proxy.pid, UPSTREAM: upstream.pid},
            ),
        ]


Cells = dict[tuple[str, int, bool], Cell]
"""By target, concurrency, and whether it streams."""


def run(folder: Path, *, seconds: float, rounds: int) -> Cells:
    """Measure every cell; the targets take turns within each round."""
    cells: Cells = {}
    with targets(folder) as all_targets, Program(folder, "bench.lib.load") as load:
        load.ready()
        for target in all_targets:
            job = _job(target, 32, stream=False) | {"count": WARM_UP}
            measure(Cell(), target.watched, lambda job=job: load.ask(job))
            job = _job(target, 32, stream=True) | {"count": 32}
            measure(Cell(), target.watched, lambda job=job: load.ask(job))
        for _ in range(rounds):
            for stream in (False, True):
                for concurrency in CONCURRENCY:
                    for target in all_targets:
                        job = _job(target, concurrency, stream=stream) | {"seconds": seconds}
                        cell = cells.setdefault((target.name, concurrency, stream), Cell())
                        measure(cell, target.watched, lambda job=job: load.ask(job))
    return cells


def _job(target: Target, concurrency: int, *, stream: bool) -> dict[str, object]:
    model = "commercial" if target.name == OURS else "bench-model"
    return {
        "url": target.url,
        "headers": target.headers,
        "bodies": [body(model, stream=stream)],
        "concurrency": concurrency,
    }


def report(cells: Cells) -> str:
    """The tables, as Markdown."""
    parts = []
    for stream, title in (
        (False, "Commercial path, whole answers"),
        (True, f"Commercial path, streams of {CHUNKS} chunks, one every {PACE_S * 1000:.0f} ms"),
    ):
        for concurrency in CONCURRENCY:
            made = _streams if stream else _whole_answers
            parts.append(f"### {title}, {concurrency} at a time\n\n{made(cells, concurrency)}")
    return "\n\n".join(parts)


ROWS = ((DIRECT, UPSTREAM), (OURS, GATEWAY), (PLAIN, PROXY))
"""Each target with the process whose CPU its row shows; for the bare upstream that is its own."""


def _whole_answers(cells: Cells, concurrency: int) -> str:
    plain = cells[PLAIN, concurrency, False]
    rows = []
    for name, process in ROWS:
        cell = cells[name, concurrency, False]
        rows.append(
            [
                name,
                f"{cell.rate():,.0f}",
                f"{cell.p50_ms():.2f}",
                f"{cell.cpu_per_request(process):,.0f}",
                cell.spread(lambda one, process=process: one.cpu_s[process] / one.requests * 1e6),
                *_beside(name, process, cell, plain),
            ]
        )
    return table(
        [
            "",
            "requests/s",
            "p50 ms",
            "CPU us/request",
            "rounds",
            "masking us/request",
            "x plain",
            "with masking",
        ],
        rows,
    )


def _streams(cells: Cells, concurrency: int) -> str:
    plain = cells[PLAIN, concurrency, True]
    rows = []
    for name, process in ROWS:
        cell = cells[name, concurrency, True]
        above = cell.cpu_above(process, cells[name, concurrency, False], process)
        rows.append(
            [
                name,
                f"{cell.event_rate():,.0f}",
                f"{cell.p50_ms():,.0f}",
                f"{cell.cpu_per_request(process):,.0f}",
                cell.spread(lambda one, process=process: one.cpu_s[process] / one.requests * 1e6),
                f"{cell.cpu_per_event(process):,.0f}",
                f"{above / CHUNKS:,.0f}",
                *_beside(name, process, cell, plain),
            ]
        )
    return table(
        [
            "",
            "events/s",
            "p50 ms",
            "CPU us/stream",
            "rounds",
            "us/event",
            "us/chunk above a whole answer",
            "masking us/stream",
            "x plain",
            "with masking",
        ],
        rows,
    )


def _beside(name: str, process: str, cell: Cell, plain: Cell) -> list[str]:
    """Masking's CPU per request, and the ratios to the plain proxy without and with it."""
    if name == DIRECT:
        return ["", "", ""]
    ratio = f"{cell.cpu_ratio((process,), plain, (PROXY,)):.2f}"
    if name == PLAIN:
        return ["", ratio, ratio]
    both = f"{cell.cpu_ratio((process, MASKING), plain, (PROXY,)):.2f}"
    return [f"{cell.cpu_per_request(MASKING):,.0f}", ratio, both]
