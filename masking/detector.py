"""The detector: every layer over every reading of a text. Imported only inside a detector process."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from weighbridge.masking.backstop import leftovers
from weighbridge.masking.crossing import crossing
from weighbridge.masking.entities import Span, known, merge
from weighbridge.masking.folding import Folded, fold
from weighbridge.masking.joins import close
from weighbridge.masking.layers.base import Layer, LayerOptions
from weighbridge.masking.layers.registry import build_layers
from weighbridge.masking.views import MAX_ROUNDS, Unescaped, escapes, unescape

_JOINING = frozenset({"structured", "ko-rules", "en-rules"})
"""The layers that are shown a text closed up: those that know values by their form."""


class Detector:
    """Finds personal data in one text at a time. Not thread-safe.

    Args:
        wanted: names of the layers beyond those that always look.
        options: what they are told.

    Attributes:
        version: names our rules and every layer.
        layers: the names of the layers that look.
        missing: the layers that are wanted and cannot work here, with the reason.
        names: languages in which a layer finds the names of people.
    """

    def __init__(self, wanted: Sequence[str], options: LayerOptions) -> None:
        built, self.missing = build_layers(wanted, options)
        self.layers = tuple(built)
        self._layers = tuple(built.values())
        self._decoding = tuple(layer for layer in self._layers if layer.decoded)
        self._joining = tuple(layer for name, layer in built.items() if name in _JOINING)
        self.names = frozenset[str]().union(*(layer.names for layer in self._layers))
        self.version = "+".join((f"rules-{_rules()}", *(layer.version for layer in self._layers)))

    def find(self, text: str) -> list[Span]:
        """Merged spans in `text`, in code points of the text as given."""
        folded = fold(text)
        way: list[Folded | Unescaped] = [folded]
        found = [hit for layer in self._layers for hit in _looked(layer, folded.text)]
        spans = _back(way, [*found, *self._broken(folded.text, found)])
        for _ in range(MAX_ROUNDS):
            further = unescape(way[-1].text)
            if further is None:
                break
            way.append(further)
            for first, last in further.windows():
                piece = fold(further.text[first:last])
                found = [hit for layer in self._decoding for hit in _looked(layer, piece.text)]
                found.extend(self._broken(piece.text, found))
                hits = _back([piece], found)
                spans.extend(
                    _back(way, [(first + start, first + end, entity) for start, end, entity in hits])
                )
        else:
            # Escapes upon escapes: nobody writes that but to hide something.
            spans.extend(_back(way, [(start, end, "NUM") for start, end in escapes(way[-1].text)]))
        return merge(_mail_first(spans))

    def _broken(self, text: str, found: Sequence[Span]) -> list[Span]:
        """What stands in `text` in pieces: over a line's end, with tags in it, or one character at a time."""
        closed = close(text)
        if closed is None:
            return []
        again = [hit for layer in self._joining for hit in _looked(layer, closed.text)]
        # Layers take a piece of a number for a whole one; the backstop takes all there is.
        return crossing(text, closed, [*again, *leftovers(closed.text)], merge(found))


class Nonsense(Exception):
    """A layer answered with a place outside the text or a type that is none."""


def _mail_first(spans: list[Span]) -> list[Span]:
    """What seems to be a host's name inside a mail address is part of that address."""
    mails = merge(span for span in spans if span[2] == "EMAIL")
    if not mails:
        return spans
    starts = [start for start, _, _ in mails]
    kept: list[Span] = []
    for start, end, entity in spans:
        before = bisect_right(starts, start) - 1
        inside = entity == "URL" and before >= 0 and end <= mails[before][1]
        kept.append((start, end, "EMAIL" if inside else entity))
    return kept


def _looked(layer: Layer, text: str) -> list[Span]:
    """What a layer finds; an answer that cannot be right must not vanish in a union with others."""
    spans = layer.find(text)
    for start, end, entity in spans:
        if not (0 <= start < end <= len(text) and known(entity)):
            raise Nonsense
    return [_not_resident(text, span) for span in spans]


def _not_resident(text: str, span: Span) -> Span:
    """+82 010 1234 5678 has the thirteen digits of a resident number of January 1982, and is a telephone's."""
    start, end, entity = span
    if entity not in ("RRN", "FRN") or "+" not in text[max(0, start - 1) : start + 1]:
        return span
    return start, end, "PHONE"


def _back(way: Sequence[Folded | Unescaped], spans: Iterable[Span]) -> list[Span]:
    """Spans of the last reading as spans of the text as given."""
    found: list[Span] = []
    for start, end, entity in spans:
        for reading in reversed(way):
            start, end = reading.original_span(start, end)
        found.append((start, end, entity))
    return found


def _rules() -> str:
    """Names our rules by their own source, so that no change of them goes unseen in the egress rows."""
    digest = hashlib.sha256()
    here = Path(__file__).parent
    for file in sorted((*here.glob("*.py"), *here.glob("layers/*.py"))):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]
