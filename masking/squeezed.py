"""A reading of a text without white space and separators, and whether what is found in it was one term.

Written apart (`대 외 비`, `C.O.N.F.I.D.E.N.T.I.A.L`) or broken over a line, a term is still the term. But `대외 비용`
holds one only by accident, so a hit with gaps must begin and end where words do.
"""

from __future__ import annotations

import re

_GAP = re.compile(r"(?:\s|[^\w\s@#%&+=<>]|_)+")
_MOST_GAP = 4
"""Characters between two letters of one term."""
HANGUL = re.compile("[가-힣]")
WESTERN = re.compile("[0-9A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_PARTICLES = frozenset("은는이가을를의에로와과도만께입임인이야아라처부까조마뿐님씨군양한하랑으")
"""First syllables of what may be glued behind a Korean word."""


def lower(text: str) -> str:
    """In small letters, every character at its old place."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


def squeeze(text: str) -> str:
    """`text` without white space and separators."""
    return _GAP.sub("", text)


def places_of(text: str) -> list[int]:
    """Where each character of the squeezed text stands in `text`."""
    places: list[int] = []
    done = 0
    for gap in _GAP.finditer(text):
        places.extend(range(done, gap.start()))
        done = gap.end()
    places.extend(range(done, len(text)))
    return places


def one_term(text: str, places: list[int], *, own_gaps: frozenset[int] = frozenset()) -> bool:
    """Whether the characters of `text` at `places` are one term rather than pieces of neighbours.

    Args:
        own_gaps: numbers of the characters before which the term itself has a gap.
    """
    gaps: set[int] = set()
    over_line = 0
    for at in range(1, len(places)):
        between = places[at] - places[at - 1] - 1
        if between > _MOST_GAP:
            return False
        if between:
            gaps.add(at)
            over_line += "\n" in text[places[at - 1] : places[at]]
    first, last = text[places[0]], text[places[-1]]
    before = text[places[0] - 1 : places[0]] if places[0] else ""
    after = text[places[-1] + 1 : places[-1] + 2]
    if WESTERN.match(first) and WESTERN.match(before):
        return False
    if WESTERN.match(last) and WESTERN.match(after):
        return False
    if gaps <= own_gaps:
        return True
    if HANGUL.match(first):
        if HANGUL.match(before):
            return False
        return not HANGUL.match(after) or after in _PARTICLES
    # Latin letters and digits: all apart, or broken once at a line's end.
    return len(gaps) == len(places) - 1 or (over_line > 0 and len(gaps - own_gaps) == over_line)


def gaps_of(term: str) -> frozenset[int]:
    """Numbers of the squeezed term's characters before which `term` has a gap."""
    gaps: set[int] = set()
    count = done = 0
    for gap in _GAP.finditer(term):
        count += gap.start() - done
        done = gap.end()
        gaps.add(count)
    return frozenset(gaps)
