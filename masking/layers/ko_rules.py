"""Our own Korean rules: names that something beside them tells, addresses, numbers said or labelled."""

from __future__ import annotations

import re

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.ko_addresses import addresses
from weighbridge.masking.layers.ko_names import in_keys, names
from weighbridge.masking.layers.ko_numbers import numbers, spoken
from weighbridge.masking.layers.romanised import romanised

_HANGUL = re.compile("[가-힣]")
_DIGIT = re.compile(r"\d")
_CAPITAL = re.compile("[A-Z]")


class KoRules:
    """The layer."""

    version = "ko-rules-1"
    # Only beside labels, titles and keys: prose needs a layer that knows words.
    names: frozenset[str] = frozenset()
    decoded = True

    def find(self, text: str) -> list[Span]:
        """Spans, overlapping or not."""
        # Of the same length, so that places stay.
        text = text.replace("\r\n", " \n").replace("\r", "\n")
        spans: list[Span] = []
        if _CAPITAL.search(text):
            spans.extend(romanised(text))
        if not _HANGUL.search(text):
            spans.extend(in_keys(text))
            return spans
        spans.extend(names(text))
        spans.extend(addresses(text))
        spans.extend(numbers(text) if _DIGIT.search(text) else spoken(text))
        return spans


def build(options: LayerOptions) -> KoRules:
    """Never missing."""
    del options
    return KoRules()
