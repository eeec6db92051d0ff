"""The command line that gives `vllm serve` the arguments our own engine is built with. Imports nothing of vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def engine_flags(given: Mapping[str, Any], usual: Mapping[str, Any]) -> list[str]:
    """What differs from what `vllm serve` takes when told nothing, as flags; the model's folder is no flag.

    Args:
        given: our engine's arguments, by name.
        usual: what the command line gives by itself, which is not always what vLLM's class does.

    Raises:
        ValueError: a value that no command line can say.
    """
    flags: list[str] = []
    for name, value in given.items():
        if name == "model" or _plain(value) == _plain(usual[name]):
            continue
        flag = name.replace("_", "-")
        match value:
            case True:
                flags.append(f"--{flag}")
            case False:
                flags.append(f"--no-{flag}")
            case int() | float() | str():
                flags += [f"--{flag}", str(value)]
            case list() | tuple():
                flags += [f"--{flag}", *map(str, value)]
            case dict():
                flags += [f"--{flag}", json.dumps(value)]
            case _:
                raise ValueError(f"{name}: {type(value).__name__} is no command line value")
    return flags


def front_flags(tool_parser: str | None, port: int) -> list[str]:
    """The HTTP side: our chat layer's settings, loopback, and no line a request in the log."""
    flags = ["--host", "127.0.0.1", "--port", str(port)]
    flags += [
        "--disable-uvicorn-access-log",
        "--uvicorn-log-level",
        "warning",
        "--enable-prompt-tokens-details",
    ]
    if tool_parser is not None:
        flags += ["--enable-auto-tool-choice", "--tool-call-parser", tool_parser]
    return flags


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The names of the arguments whose values are not the same; `[x]` and `x` are, and no text and None."""
    return [name for name in ours if _plain(ours[name]) != _plain(theirs[name])]


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value[0] if len(value) == 1 else list(value)
    return None if value == "" else value
