"""An incremental parser for Server-Sent Events, after the WHATWG HTML standard, section 9.2.6.

Only the data of events is of interest here: `event`, `id` and `retry` are read over.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_PLAIN = b"data: "
_BLANK = b"\n\n"


def _is_plain(block: bytes) -> bool:
    return block.startswith(_PLAIN) and b"\n" not in block


class EventTooLarge(Exception):
    """One event is larger than the bound; nothing of it is kept."""


class SseParser:
    """Turns pieces of a body, cut anywhere, into the data of its events.

    Args:
        max_event_bytes: bound on all the lines of one event together.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._bound = max_event_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._size = 0
        self._first_line = True
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that `piece` completes, lines joined by LF. An event without data is none.

        Raises:
            EventTooLarge: an event is over the bound; the parser is of no further use.
        """
        if piece.startswith(_PLAIN) and piece.endswith(_BLANK) and self._at_start() and b"\r" not in piece:
            # Whole events and nothing else, as servers mostly write them: no need to look at every line.
            blocks = piece[:-2].split(_BLANK)
            if max(map(len, blocks)) <= self._bound and all(map(_is_plain, blocks)):
                self._first_line = False
                return [block[6:] for block in blocks]
        if self._after_cr and piece:
            # The CR at the end of the last piece ended a line; a LF here belongs to it.
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        events: list[bytes] = []
        done = 0
        for end in _LINE_END.finditer(piece):
            self._take(piece[done : end.start()])
            self._end_line(events)
            done = end.end()
        self._after_cr = piece.endswith(b"\r") or (self._after_cr and not piece)
        self._take(piece[done:])
        return events

    def _at_start(self) -> bool:
        return not (self._line or self._data or self._size or self._after_cr)

    def _take(self, part: bytes) -> None:
        """Part of a line. Parts are joined once, at its end, so that tiny pieces cost no more than large ones."""
        self._size += len(part)
        if self._size > self._bound:
            raise EventTooLarge
        if part:
            self._line.append(part)

    def _end_line(self, events: list[bytes]) -> None:
        line = b"".join(self._line)
        self._line.clear()
        if self._first_line:
            line = line.removeprefix(_BOM)
            self._first_line = False
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
            self._size = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
