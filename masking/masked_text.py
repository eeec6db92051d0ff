"""Spans into masked text: the second look between them, and what goes over the border of two texts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from weighbridge.masking.entities import REFUSED, Span, gap_places, gaps, merge
from weighbridge.masking.second_look import remains
from weighbridge.masking.vault import Mint
from weighbridge.masking.walker import Walker


def mask_text(text: str, spans: list[Span], mint: Mint) -> str:
    """`text` with a placeholder for each span, and for whatever the second look still finds between them."""
    pieces: list[str] = []
    for number, gap in enumerate(gaps(text, spans)):
        if number:
            start, end, entity = spans[number - 1]
            pieces.append(mint.placeholder(entity, text[start:end]))
        left = remains(gap)
        for part, rest in enumerate(gaps(gap, left)):
            if part:
                start, end, entity = left[part - 1]
                pieces.append(mint.placeholder(entity, gap[start:end]))
            pieces.append(rest)
    return "".join(pieces)


def shown(text: str, spans: list[Span], mint: Mint) -> str:
    """`text` as an operator sees it masked; what is never masked is taken out."""
    pieces: list[str] = []
    for number, gap in enumerate(gaps(text, spans)):
        if number:
            start, end, entity = spans[number - 1]
            pieces.append(f"[{entity}]" if entity in REFUSED else mint.placeholder(entity, text[start:end]))
        pieces.append(gap)
    return "".join(pieces)


def over_borders(walker: Walker, found: list[list[Span]]) -> list[list[Span]]:
    """`found`, and in each text the piece of what begins in it and ends in the next one, or the other way round."""
    further: dict[int, list[Span]] = {}
    for probe in walker.probes:
        text = walker.texts[probe.at]
        starts = [piece.start for piece in probe.pieces]
        for start, end, entity in with_leftovers(text, found[probe.at]):
            parts = probe.pieces[bisect_right(starts, start) - 1 : bisect_left(starts, end)]
            if len(parts) < (1 if probe.labelled else 2):
                continue
            # The first word of the next text seems to belong to an address that ends the one before.
            if entity == "URL" and any(held == "URL" for _, _, held in found[parts[0].place]):
                continue
            for piece in parts:
                shift = piece.offset - piece.start
                first, last = max(start, piece.start) + shift, min(end, piece.end) + shift
                if first >= last:
                    continue
                further.setdefault(piece.place, []).append((first, last, entity))
    return [merge((*spans, *further[at])) if at in further else spans for at, spans in enumerate(found)]


def with_leftovers(text: str, spans: list[Span]) -> list[Span]:
    """`spans`, and what the second look still finds between them."""
    left = [
        (first + start, first + end, entity)
        for first, last in gap_places(text, spans)
        for start, end, entity in remains(text[first:last])
    ]
    return sorted((*spans, *left))
