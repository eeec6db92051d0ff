"""Cutting the texts of one request into slices of bounded work for a detector process.

A long text becomes several pieces that overlap, so that a value at a cut is whole in one of them. What is found in the
pieces is united; a piece of a value at the edge of a piece only adds to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weighbridge.masking.entities import Span, merge
from weighbridge.masking.word_borders import back_to_space, on_to_space

PIECE_CHARS = 8_192
_OVERLAP, _FAR = 192, 2_560
_SLICE_COST = 16_384
# A text costs this many characters' time before its first one.
TEXT_COST = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` stands in text number `at` from `offset` on."""

    at: int
    offset: int
    text: str

    @property
    def cost(self) -> int:
        return TEXT_COST + len(self.text)


Slice = tuple[Piece, ...]


def cut(texts: Sequence[str]) -> list[Slice]:
    """Slices in order; each costs at most about `_SLICE_COST`. At least one, be it empty."""
    slices: list[Slice] = []
    held: list[Piece] = []
    cost = 0
    for piece in _pieces(texts):
        if held and cost + piece.cost > _SLICE_COST:
            slices.append(tuple(held))
            held, cost = [], 0
        held.append(piece)
        cost += piece.cost
    return [*slices, tuple(held)]


def cost(part: Slice) -> int:
    """What a slice costs, in characters."""
    return sum(piece.cost for piece in part)


def unite(count: int, found: Iterable[tuple[Piece, list[Span]]]) -> list[list[Span]]:
    """The merged spans of each of `count` texts from what was found in their pieces."""
    spans: list[list[Span]] = [[] for _ in range(count)]
    for piece, held in found:
        spans[piece.at].extend(
            (piece.offset + start, piece.offset + end, entity) for start, end, entity in held
        )
    return [merge(held) for held in spans]


def _pieces(texts: Sequence[str]) -> Iterable[Piece]:
    for at, text in enumerate(texts):
        for begin in range(0, len(text), PIECE_CHARS) if len(text) > PIECE_CHARS + _FAR else (0,):
            whole = begin == 0 and len(text) <= PIECE_CHARS + _FAR
            start = back_to_space(text, begin, _OVERLAP, _FAR) if begin else 0
            end = len(text) if whole else on_to_space(text, begin + PIECE_CHARS, _OVERLAP, _FAR)
            yield Piece(at, start, text[start:end])
