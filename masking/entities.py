"""The kinds of value that are masked, and a found value's place in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from weighbridge.config.entity_types import EntityType

Span = tuple[int, int, str]
"""Start and end (exclusive) in code points of the original text, and an entity type."""

TYPES: tuple[str, ...] = get_args(EntityType)
"""From the most telling to the least: when found values overlap, the union takes the first type of this order.

RRN and FRN: Korean resident and foreigner registration numbers. BRN, CRN: business and corporate registration numbers.
HEALTH: health insurance and patient numbers. KNOWN: a value of the tenant's own list. ID: another identifier (member,
employee, order, prescription). NAME: a proper noun that may be a person's. NUM: digits of no known form.
"""

PLACEHOLDER_SHAPE = "SHAPE"
CREDENTIAL = "CREDENTIAL"
ENCODED = "ENCODED"
MIXED = "MIXED"
LANGUAGE = "LANGUAGE"
REFUSED: tuple[str, ...] = (PLACEHOLDER_SHAPE, CREDENTIAL, ENCODED, MIXED, LANGUAGE)
"""What is never masked; a hit refuses the request.

SHAPE: text that looks like a placeholder. CREDENTIAL: a password, token or private key. ENCODED: base64, hexadecimal
or percent signs that hide a value, or hide too much to tell. MIXED: a word of look-alike letters from several scripts.
LANGUAGE: prose in a language that no layer reads.
"""

TOKEN_LENGTH = 8
LONGEST = 1 + max(map(len, TYPES)) + 1 + TOKEN_LENGTH + 1
"""Length of the longest placeholder, in characters."""

PLACEHOLDER = re.compile(r"\[(" + "|".join(TYPES) + r")_([A-Z2-7]{" + str(TOKEN_LENGTH) + r"})\]")

_REACH = 64
_JOINED_BEFORE = re.compile(r"(?:\d[-.]?)+\Z")
_JOINED_AFTER = re.compile(r"(?:[-.]?\d)+")
_RANK = {name: rank for rank, name in enumerate((*REFUSED, *TYPES))}


def known(entity: str) -> bool:
    """Whether `entity` is a type a detector may report."""
    return entity in _RANK


def merge(spans: Iterable[Span]) -> list[Span]:
    """Unite overlapping spans, ordered by start.

    Nothing is chosen by score: every character that any detector covered stays covered. Spans that only touch stay two
    values.
    """
    merged: list[Span] = []
    for start, end, entity in sorted(spans):
        if merged and start < merged[-1][1]:
            first, last, held = merged[-1]
            merged[-1] = (first, max(last, end), held if _RANK[held] <= _RANK[entity] else entity)
        else:
            merged.append((start, end, entity))
    return merged


def widen(text: str, span: Span) -> Span:
    """Take along the digits that a hyphen, a dot or nothing joins to a found number: no piece of a longer one stays."""
    start, end, entity = span
    if text[start].isdigit() and (before := _JOINED_BEFORE.search(text, max(0, start - _REACH), start)):
        start = before.start()
    if text[end - 1].isdigit() and (after := _JOINED_AFTER.match(text, end, end + _REACH)):
        end = after.end()
    return start, end, entity


def gaps(text: str, spans: Sequence[Span]) -> list[str]:
    """The pieces of `text` before, between and after merged `spans`; one more than there are spans."""
    return [text[start:end] for start, end in gap_places(text, spans)]


def gap_places(text: str, spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Where the pieces that `gaps` gives begin and end."""
    edges = [0, *(edge for start, end, _ in spans for edge in (start, end)), len(text)]
    return [(edges[at], edges[at + 1]) for at in range(0, len(edges), 2)]
