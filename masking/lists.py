"""Reading a list of values from a file: UTF-8, one a line, `#` before a comment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 64 * 1024 * 1024
MAX_LINE = 1_000
"""Characters of one line."""


class BadList(Exception):
    """A list cannot be used. The message names the file and the line, never what stands there."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        super().__init__(f"{path}{'' if line is None else f':{line}'}: {problem}")
        self.path, self.line, self.problem = path, line, problem


def read_bytes(path: Path) -> bytes:
    """The file's content.

    Raises:
        BadList: it cannot be read or is larger than `MAX_BYTES`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise BadList(path, f"cannot be read ({type(exc).__name__})") from None
    if len(data) > MAX_BYTES:
        raise BadList(path, f"is larger than {MAX_BYTES} bytes")
    return data


def lines_of(path: Path, data: bytes) -> Iterator[tuple[int, str]]:
    """Number (from 1) and content of each line that is neither empty nor a comment, without the spaces around it.

    Raises:
        BadList: not UTF-8, or a line is too long.
    """
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode().strip(" \r")
        except UnicodeDecodeError:
            raise BadList(path, "is not UTF-8", number) from None
        if len(line) > MAX_LINE:
            raise BadList(path, f"is longer than {MAX_LINE} characters", number)
        if line.strip() and not line.startswith("#"):
            yield number, line
