"""Logging: one line a record, UTC, and nothing in it that a request could have said.

Our own messages hold no request text by rule. Exceptions and other libraries' messages may, so an exception is
reduced to its type and the places it came through, and of a foreign message only the first line is kept (asyncio
puts the `repr` of a failed task, and with it the exception's text, on the second).
"""

from __future__ import annotations

import logging
import sys
import time
from pathlib import PurePath
from traceback import walk_tb
from typing import TextIO

import msgspec

OUR_LOGGER = "weighbridge"
_FRAMES = 8
_OF_REQUEST = "request %s: "
"""How a message of ours begins that is about one request; its first argument is the request's id."""


class LineFormatter(logging.Formatter):
    """`2026-01-02T03:04:05.678Z INFO weighbridge.pool: message`, or the same as one JSON object.

    The object names the request that a line is about as `request_id`.
    """

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["error"] = describe(error)
        if self._as_json:
            if record.args and record.msg.startswith(_OF_REQUEST) and _ours(record):
                fields["request_id"] = str(record.args[0])  # type: ignore[index]
            return msgspec.json.encode(fields).decode()
        tail = f" [{fields['error']}]" if error is not None else ""
        return f"{fields['time']} {fields['level']} {fields['logger']}: {fields['message']}{tail}"


def describe(error: BaseException) -> str:
    """An exception without its text: its type, where it was raised and, if it has one, its cause."""
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)
    ]
    text = type(error).__name__
    if frames:
        text += f" at {' > '.join(frames[-_FRAMES:])}"
    cause = error.__cause__
    return text if cause is None or cause is error else f"{text}, from {describe(cause)}"


def setup_logging(json: bool = False, *, stream: TextIO | None = None) -> None:
    """Log our own records from INFO and everybody else's from WARNING, to stderr unless `stream` is given.

    Replaces the handlers of the root logger, so calling it twice does not write twice.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(as_json=json))
    root = logging.getLogger()
    for old in tuple(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger(OUR_LOGGER).setLevel(logging.INFO)
    logging.captureWarnings(True)
    # A record that cannot be formatted would be printed with its arguments.
    logging.raiseExceptions = False


def _ours(record: logging.LogRecord) -> bool:
    return record.name == OUR_LOGGER or record.name.startswith(OUR_LOGGER + ".")


def _message(record: logging.LogRecord) -> str:
    text = record.getMessage()
    if not _ours(record):
        text = text.split("\n", 1)[0]
    if text.isprintable():
        return text
    # One line stays one line, and no control character reaches a terminal.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _utc(seconds: float) -> str:
    whole = int(seconds)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{int((seconds - whole) * 1000):03d}Z"
