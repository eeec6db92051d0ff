"""Showing a long text to a library in pieces, so that what costs it more than linear time stays bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weighbridge.masking.entities import Span

WINDOW = 2_048
_SHARED = 256
"""Characters that two windows share, and how far the edge of one may move."""


def by_windows(text: str, look: Callable[[str], list[Span]]) -> list[Span]:
    """What `look` finds in pieces of `text` that overlap, as spans of `text`."""
    if len(text) <= WINDOW + _SHARED:
        return look(text)
    return [
        (first + start, first + end, entity)
        for first, last in windows(text)
        for start, end, entity in look(text[first:last])
    ]


def windows(text: str) -> Iterator[tuple[int, int]]:
    """Pieces of some 2,000 characters that begin and end at white space where there is any near."""
    first = 0
    while True:
        last = _near_space(text, first + WINDOW)
        yield first, last
        if last == len(text):
            return
        first = max(first + 1, _near_space(text, last - _SHARED))


def _near_space(text: str, place: int) -> int:
    """The end of the first white space at or behind `place`, or `place` itself."""
    end = min(len(text), place + _SHARED)
    if place >= end:
        return len(text) if place >= len(text) else place
    for at in range(place, end):
        if text[at].isspace():
            return at + 1
    return place if end < len(text) else len(text)
