"""The local path: the gateway beside its own engine without a gateway, with the fake engine and with vLLM."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path

from bench.lib.measuring import Cell, measure, table
from bench.lib.processes import Gateway, Program
from weighbridge.config.errors import ConfigError
from weighbridge.config.roads import LOCAL_8B, LOCAL_70B
from weighbridge.config.settings import load_settings
from weighbridge.pool import vllm_loading

CONCURRENCY = 8
TOKENS = 64
FAKE_TOKEN_S = 0.01
VLLM_REQUESTS = 16
VLLM_START_S = 180.0
FAKE, VLLM = "fake engine", "vLLM"
BARE, GATEWAY = "engine alone", "weighbridge"

Cells = dict[tuple[str, str, bool], Cell]
"""By engine, by what drives it, and whether it streams."""

_TOPICS = ("rivers", "bridges", "granite", "sailing", "wool", "orchards", "clocks", "letters")


def bodies(*, stream: bool) -> list[str]:
    """As many prompts as a round with vLLM has requests, of some 60 words; the answers are `TOKENS` long."""
    return [
        json.dumps(
            {
                "model": LOCAL_8B,
                "messages": [
                    {"role": "system", "content": "You are a patient teacher who answers in plain words."},
                    {
                        "role": "user",
                        "content": f"Lesson {number}. Tell a class of ten-year-olds about {topic}: what one can see, "
                        "where the word comes from, what people did with them a hundred years ago and what they do "
                        "today. Finish with one question that the class can take home and talk about.",
                    },
                ],
                "temperature": 0,
                "max_tokens": TOKENS,
                "ignore_eos": True,
                "stream": stream,
            }
        )
        for number, topic in enumerate(_TOPICS * (VLLM_REQUESTS // len(_TOPICS)))
    ]


def run_fake(folder: Path, cells: Cells, *, seconds: float, rounds: int) -> None:
    """The gateway with the fake engine, beside the fake engine alone."""
    with (
        Program(folder, "bench.lib.load") as load,
        Program(folder, "bench.lib.bare", "fake", str(FAKE_TOKEN_S)) as bare,
        Gateway(folder / "fake", _settings(), token_s=FAKE_TOKEN_S) as gateway,
    ):
        _alternate(FAKE, cells, load, bare, gateway, {"seconds": seconds}, (False, True), rounds)


def run_vllm(folder: Path, cells: Cells, *, rounds: int) -> str:
    """The gateway with vLLM, beside vLLM's chat layer alone. Both load at the same time, then take turns.

    Returns:
        Why it was left out; empty when it was not.
    """
    if importlib.util.find_spec("vllm") is None:
        return "vLLM is not installed"
    try:
        vllm_loading.check(LOCAL_8B, load_settings(None, env={}).tiers[LOCAL_8B])
    except ConfigError as exc:
        return str(exc)
    with ExitStack() as stack:
        load = stack.enter_context(Program(folder, "bench.lib.load"))
        bare = stack.enter_context(Program(folder, "bench.lib.bare", "vllm"))
        gateway = stack.enter_context(
            Gateway(folder / "vllm", _settings(), token_s=None, timeout_s=VLLM_START_S)
        )
        _alternate(VLLM, cells, load, bare, gateway, {"count": VLLM_REQUESTS}, (True,), rounds)
    return ""


def _settings() -> dict[str, object]:
    return {"tiers": {LOCAL_8B: {}, LOCAL_70B: None}}


def _alternate(
    engine: str,
    cells: Cells,
    load: Program,
    bare: Program,
    gateway: Gateway,
    extent: dict[str, float],
    modes: tuple[bool, ...],
    rounds: int,
) -> None:
    load.ready()
    bare.ready(VLLM_START_S)
    for number in range(rounds + 1):
        for stream in modes:
            job = {
                "url": gateway.chat_url,
                "headers": gateway.headers,
                "bodies": bodies(stream=stream),
                "concurrency": CONCURRENCY,
                **extent,
            }
            for name, pid, asked in ((BARE, bare.pid, bare), (GATEWAY, gateway.pid, load)):
                # The first round warms up and is thrown away.
                cell = cells.setdefault((engine, name, stream), Cell()) if number else Cell()
                measure(cell, {name: pid}, lambda asked=asked, job=job: asked.ask(job))


def report(cells: Cells) -> str:
    """The tables, as Markdown."""
    parts = []
    for engine, stream in dict.fromkeys((engine, stream) for engine, _, stream in cells):
        how = "streams" if stream else "whole answers"
        parts.append(
            f"### Local path, {engine}, {how} of {TOKENS} tokens, {CONCURRENCY} at a time\n\n"
            + _table(cells[engine, BARE, stream], cells[engine, GATEWAY, stream])
        )
    return "\n\n".join(parts)


def _table(bare: Cell, ours: Cell) -> str:
    head = ["", "tokens/s", "p50 ms", "CPU us/request", "rounds", "CPU us/token", "x alone"]
    rows = [
        [
            name,
            f"{cell.rate() * TOKENS:,.0f}",
            f"{cell.p50_ms():,.0f}",
            f"{cell.cpu_per_request(name):,.0f}",
            cell.spread(lambda one, name=name: one.cpu_s[name] / one.requests * 1e6),
            f"{cell.cpu_per_request(name) / TOKENS:,.1f}",
            f"{cell.cpu_ratio((name,), bare, (BARE,)):.2f}",
        ]
        for name, cell in ((BARE, bare), (GATEWAY, ours))
    ]
    above = ours.cpu_above(GATEWAY, bare, BARE)
    rows.append(["above the engine", "", "", f"{above:,.0f}", "", f"{above / TOKENS:,.1f}", ""])
    return table(head, rows)
