"""`python -m bench.lib.raw_server CONFIG PORT`: becomes `vllm serve` with the engine that CONFIG gives the gateway.

Our own loader is let run up to the point where it would build the engine. What it would build with and the environment
its processes would get go onto the command line of `vllm serve`, so the two cannot drift apart; vLLM's own parser has
to read the same arguments back from it. The one JSON line on standard output holds that command line.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from bench.lib.answering import say
from bench.lib.engine_flags import differences, engine_flags, front_flags
from weighbridge.config.roads import LOCAL_8B
from weighbridge.config.settings import TierSettings, load_settings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import vllm_loading

_PR_SET_PDEATHSIG = 1


class _Reached(BaseException):
    """Not an Exception: the loader would take it for an engine that did not start."""

    def __init__(self, args: Any) -> None:
        self.engine_args = args
        self.environment = dict(os.environ)


def reach(settings: TierSettings) -> _Reached:
    """Run our loader up to the engine: its arguments, and the environment of its processes.

    Raises:
        ConfigError: settings, model or installation are wrong.
    """

    def stop_here(args: Any, **_: Any) -> NoReturn:
        raise _Reached(args)

    vllm_loading.compat().MeteredLLM.from_engine_args = stop_here
    try:
        vllm_loading.Loader(LOCAL_8B, settings, Metrics()).run()
    except _Reached as reached:
        return reached
    raise RuntimeError("the loader built no engine")


def command(args: Any, settings: TierSettings, port: int) -> list[str]:
    """What comes after `vllm serve`.

    Raises:
        RuntimeError: vLLM reads other arguments from it than ours.
    """
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())

    def read(words: list[str]) -> dict[str, Any]:
        parsed = parser.parse_args(words)
        parsed.model = parsed.model_tag
        return _fields(type(args).from_cli_args(parsed))

    given = _fields(args)
    flags = engine_flags(given, read([args.model]))
    words = [args.model, *front_flags(settings.tool_parser, port), *flags]
    wrong = differences(given, read(words))
    if wrong:
        raise RuntimeError(f"vllm serve would not get our engine's {', '.join(wrong)}")
    return words


def _fields(args: Any) -> dict[str, Any]:
    return {field.name: getattr(args, field.name) for field in dataclasses.fields(args)}


def main() -> None:
    # A benchmark that is killed cannot stop this; without it three processes and their memory would stay.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    settings = load_settings(Path(sys.argv[1])).tiers[LOCAL_8B]
    reached = reach(settings)
    words = command(reached.engine_args, settings, int(sys.argv[2]))
    say({"serve": words})
    # The same process from here on, so its name in the environment is right: the reaper ends what it leaves behind.
    os.execve(
        sys.executable,
        [sys.executable, "-m", "bench.lib.vllm_command", "serve", *words],
        reached.environment,
    )


if __name__ == "__main__":
    main()
