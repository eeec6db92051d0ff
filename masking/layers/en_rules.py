"""Our own rules for English and for writing like it: whole addresses, named people, labelled numbers. No model."""

from __future__ import annotations

from collections.abc import Iterable

import regex

from weighbridge.masking.entities import Span, merge
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.en_address import addresses
from weighbridge.masking.layers.en_fields import fields
from weighbridge.masking.layers.en_patterns import ANYWHERE, CAPITALISED, NUMBERED
from weighbridge.masking.layers.en_people import people
from weighbridge.masking.layers.en_spoken import spoken
from weighbridge.masking.layers.en_words import COMMON, TECH


def _with_groups(
    rules: Iterable[tuple[str, regex.Pattern[str]]],
) -> list[tuple[str, int | str, regex.Pattern[str]]]:
    return [(entity, "v" if "v" in rule.groupindex else 0, rule) for entity, rule in rules]


_NUMBERED = _with_groups(NUMBERED)
_ANYWHERE = _with_groups(ANYWHERE)
_CAPITALISED = _with_groups(CAPITALISED)
_WORTH_A_LOOK = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}]")


_FROM_DIGIT = regex.compile(r"\d[^\r\n]*+")
_REACH = 200


def numbered(text: str) -> list[tuple[int, int]]:
    """The stretches of a text that hold digits: such lines, and for a label's sake the end of the ones above."""
    found: list[tuple[int, int]] = []
    done = 0
    for hit in _FROM_DIGIT.finditer(text):
        low = max(done, hit.start() - _REACH)
        start = text.rfind("\n", low, hit.start())
        for _ in range(2):
            start = text.rfind("\n", low, max(low, start))
        start = low if start < 0 else start + 1
        done = hit.end()
        if found and found[-1][1] >= start - 1:
            found[-1] = (found[-1][0], done)
        else:
            found.append((start, done))
    return found


class EnglishRules:
    """The layer."""

    version = "en-rules-1"
    # Rules find the names that something announces; prose is full of others.
    names: frozenset[str] = frozenset()
    decoded = True

    def find(self, text: str) -> list[Span]:
        """Merged spans."""
        if not _WORTH_A_LOOK.search(text):
            return []
        spans: list[Span] = []
        windows = numbered(text)
        for entity, group, rule in _NUMBERED:
            for first, last in windows:
                spans.extend((*hit.span(group), entity) for hit in rule.finditer(text, first, last))
        for entity, group, rule in _ANYWHERE:
            spans.extend((*hit.span(group), entity) for hit in rule.finditer(text))
        for entity, group, rule in _CAPITALISED:
            for hit in rule.finditer(text):
                start, end = hit.span(group)
                words = hit[group].split()
                # "The Acme Orchestra" begins with Acme; "moved to Thursday" names no place.
                while words and words[0].strip(".,'").lower() in COMMON:
                    words.pop(0)
                if words and words[0].lower() not in TECH:
                    spans.append((text.index(words[0], start, end), end, entity))
        spans.extend(addresses(text, windows))
        spans.extend(people(text))
        spans.extend(fields(text))
        spans.extend(spoken(text))
        return merge(spans)


def build(options: LayerOptions) -> EnglishRules:
    """Never missing; needs nothing."""
    return EnglishRules()
