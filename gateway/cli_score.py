"""`weighbridge score`: how hard a request is held to be, why, and which road the policy gives it, without a gateway."""

from __future__ import annotations

import argparse
import errno
import io
import json
import math
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from weighbridge.policies.compiled import Policy

BAD_LINES: Final = 1
"""Exit status of `weighbridge score --jsonl` when a line could not be scored."""

UNREADABLE: Final = 2


def add_score(commands: Any, common: Any) -> None:
    """Add the command to the parser.

    Args:
        commands: what `add_subparsers` gave.
        common: adds the options that all commands share to one of them.
    """
    score = commands.add_parser(
        "score",
        help="show how hard a request is, why, and where it would go",
        description="Scores one request: TEXT, a file, or standard input; a JSON object with `messages` is taken for a "
        "request body, anything else for what a user says. Nothing is sent and nothing is recorded. Exit status 2 when "
        "the input cannot be read, 1 after --jsonl when lines could not be scored.",
        allow_abbrev=False,
    )
    common(score)
    score.add_argument("text", metavar="TEXT", nargs="?", help="what to score, or FILE with --jsonl")
    score.add_argument("--file", metavar="FILE", help="read the request from a file; - is standard input")
    score.add_argument("--tenant", default="", help="tenant whose rules count")
    score.add_argument(
        "--jsonl",
        action="store_true",
        help='lines {"id", "prompt"} or {"id", "messages"} in, lines {"id", "score", "task", "p_8b_fails", '
        '"p_70b_fails", "road"} out; the score is the one before any clamp of the policy',
    )
    score.set_defaults(run=run_score)


def run_score(args: argparse.Namespace) -> int:
    """Returns the exit status."""
    from weighbridge.gateway.cli import complain, settings_of
    from weighbridge.policies.loader import load_policy, policy_path

    policy = load_policy(policy_path(settings_of(args).policies))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    if args.text is not None and args.file is not None:
        complain("TEXT and --file: give one of them")
        return UNREADABLE
    name = args.text if args.jsonl else args.file
    try:
        if args.jsonl:
            return _jsonl(_lines(name or args.file or "-"), policy, args.tenant)
        text = args.text if args.text is not None else _whole(name or "-")
    except OSError as exc:
        complain(f"{name or '-'}: {exc.strerror or type(exc).__name__}")
        return UNREADABLE
    _explain(_body_of(text), policy, args.tenant)
    return 0


def _stdin() -> TextIO:
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace")
    return sys.stdin


def _whole(name: str) -> str:
    return _stdin().read() if name == "-" else Path(name).read_text(encoding="utf-8-sig", errors="replace")


def _lines(name: str) -> Iterable[str]:
    if name == "-":
        yield from _stdin()
        return
    with Path(name).open(encoding="utf-8-sig", errors="replace") as lines:
        yield from lines


def _body_of(text: str) -> Mapping[str, Any]:
    """A request body where the text is one, else a request in which a user says the text."""
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and isinstance(found.get("messages"), list):
            return found
    return {"messages": [{"role": "user", "content": text}]}


def _jsonl(lines: Iterable[str], policy: Policy, tenant: str) -> int:
    from weighbridge.gateway.cli import complain
    from weighbridge.router.difficulty.score import assess

    status = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row, problem = _row(line)
        if row is None:
            complain(f"line {number}: {problem}")
            status = BAD_LINES
            continue
        found = assess(row)
        score = found.score_at(policy.risk)
        answer = {
            "id": row.get("id"),
            "score": score,
            "task": found.task,
            "p_8b_fails": found.p_8b_fails,
            "p_70b_fails": found.p_70b_fails,
            "road": policy.place(found.task, score, tenant).road,
        }
        print(json.dumps(answer, ensure_ascii=False))
    return status


def _no_number(name: str) -> None:
    raise ValueError(name)


def _row(line: str) -> tuple[dict[str, Any] | None, str]:
    """A request body with its `id`, or why the line is none; what the line says is not repeated."""
    try:
        row = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None, "not JSON"
    if not isinstance(row, dict):
        return None, "not an object"
    if isinstance(row.get("id"), float) and not math.isfinite(row["id"]):
        return None, "an `id` that is no finite number"
    if isinstance(row.get("messages"), list):
        return row, ""
    if isinstance(row.get("prompt"), str):
        return {"id": row.get("id"), "messages": [{"role": "user", "content": row["prompt"]}]}, ""
    return None, "neither `prompt` (a text) nor `messages` (a list)"


def _explain(body: Mapping[str, Any], policy: Policy, tenant: str) -> None:
    from weighbridge.router.difficulty.score import CALIBRATION_VERSION, assess

    found = assess(body)
    score = found.score_at(policy.risk)
    placed = policy.place(found.task, score, tenant)
    rows = [
        ("task", found.task),
        ("language", found.language),
        ("P(8B fails)", _against(found.p_8b_fails, policy.risk.local_8b)),
        (
            "P(70B fails)",
            _against(found.p_70b_fails, policy.risk.local_70b) + ", where the frontier model does not",
        ),
        ("score", f"{score:.3f}: {_distances(score, policy)}"),
        ("moved by", ", ".join(found.features) or "nothing much"),
        ("road", f"{placed.road}: {'; '.join(placed.reasons)}"),
    ]
    if placed.clamped_score != score:
        rows.append(("clamped to", f"{placed.clamped_score:.3f}"))
    rows.append(("versions", f"{CALIBRATION_VERSION}, {policy.version}"))
    for name, value in rows:
        print(f"{name:<13} {value}")


def _against(probability: float, appetite: float) -> str:
    side = "within" if probability < appetite else "beyond"
    return f"{probability:.3f}, {side} the policy's {appetite:g}"


def _distances(score: float, policy: Policy) -> str:
    bounds = (("local-8b", policy.local_8b), ("local-70b", policy.local_70b))
    return ", ".join(f"{score - bound:+.3f} from the bound of {road} ({bound:g})" for road, bound in bounds)
