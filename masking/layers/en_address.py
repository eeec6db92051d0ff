"""Whole addresses: a sure piece of one (an anchor), grown over what an address is made of.

A street, a flat, a post code says where the address is; the rest of it (house number, town, country, the lines above
and below) has no form of its own and is taken for standing beside it.
"""

from __future__ import annotations

from collections.abc import Iterable

import regex

from weighbridge.masking.entities import Span, merge
from weighbridge.masking.layers.en_words import (
    COMMON,
    STATES,
    STREET_ENDINGS,
    STREET_PREFIXES,
    STREET_SUFFIXES,
    SURE_SUFFIXES,
    words,
)

# Quantifiers are bounded throughout: hostile text costs linear time.
_CAP = r"(?:[dDlL]['’])?\p{Lu}[\p{L}\d'’.-]{0,30}"
_NUMBER = r"\d{1,6}[A-Za-z]?(?:[-/]\d{1,5}[A-Za-z]?)?"
_LINK = (
    r"(?:de|del|della|delle|dei|degli|di|da|do|dos|das|du|des|la|le|les|los|van|von|den|der|of|the|and|am|an|im"
    r"|zu|i|y|e)"
)
_GAP = r"[^\S\r\n]{1,3}"
_STATE = "|".join(STATES)
_AFTER = r"(?![\p{L}\d])"
# Searched from the end: such a rule ends with a number, and few words do.
_BACKWARDS = "(?r)"
_BEFORE = r"(?<![\p{L}\d])"

_ANCHORS = tuple(
    regex.compile(rule)
    for rule in (
        # 1600 Pennsylvania Avenue NW; 12 North St. John's Wood Road
        rf"{_BEFORE}{_NUMBER},?{_GAP}(?:{_CAP}{_GAP}|\d{{1,3}}(?:st|nd|rd|th){_GAP}|{_LINK}{_GAP}){{1,5}}?"
        rf"(?i:{'|'.join(STREET_SUFFIXES)}){_AFTER}\.?",
        rf"{_BEFORE}{_NUMBER},?{_GAP}(?:[\p{{L}}\d'’.-]{{1,20}}{_GAP}){{1,4}}?(?i:{'|'.join(SURE_SUFFIXES)}"
        rf"){_AFTER}\.?",
        # Mellemvej 32, Brucker Bundesstrasse 31, Erzsébet tér 19., Piroska u. 97
        rf"{_BACKWARDS}{_BEFORE}(?:{_CAP}{_GAP}){{0,3}}(?i:[\p{{L}}.-]{{0,24}}(?:{'|'.join(STREET_ENDINGS)}"
        rf"|str\.)),?"
        rf"{_GAP}{_NUMBER}{_AFTER}",
        # Whatever it is called: a capitalised name between two numbers
        rf"{_BACKWARDS}{_BEFORE}{_NUMBER}{_GAP}{_CAP}(?:{_GAP}{_CAP}){{0,3}}{_GAP}\d{{1,5}}{_AFTER}",
        rf"{_BACKWARDS}{_BEFORE}(?:{_CAP}{_GAP}){{1,3}}(?:\p{{Ll}}{{3,12}}{_GAP})?(?:u|út|útja|rkp|krt|ul|nám"
        rf"|sok|cad|cd|sk)\.?{_GAP}{_NUMBER}{_AFTER}",
        # Rue Gafsa 62, via Roma 12, ul. Długa 3
        rf"{_BACKWARDS}{_BEFORE}(?i:{'|'.join(STREET_PREFIXES)}|Λ)\.?{_GAP}(?:{_LINK}{_GAP}|d'|l'){{0,3}}{_CAP}"
        rf"(?:{_GAP}{_CAP}){{0,4}},?"
        rf"{_GAP}(?:n[°º.]? ?)?{_NUMBER}{_AFTER}",
        rf"{_BEFORE}{_NUMBER}(?:,|{_GAP}bis|{_GAP}ter)?{_GAP}(?i:{'|'.join(STREET_PREFIXES)})\.?{_GAP}"
        rf"(?:{_LINK}{_GAP}|d'|l'){{0,3}}{_CAP}",
        # Apt. 12B, Suite 501, Flat 3
        rf"{_BEFORE}(?i:apartment|apt|suite|ste|flat)\.?{_GAP}(?:(?i:no|nr)\.?{_GAP}|\#[^\S\r\n]?)?"
        rf"(?:\d{{1,6}}[A-Za-z]?|[A-Z]){_AFTER}",
        rf"{_BEFORE}(?i:p\.? ?o\.?{_GAP}box|post(?: office)? box|psc|(?:unit|psc){_GAP}\d{{1,5}},?{_GAP}box"
        rf"|locked bag|gpo box)"
        rf"{_GAP}\d{{1,7}}{_AFTER}",
        rf"{_BEFORE}(?:(?i:us[a-z]{{1,4}}){_GAP}[\p{{L}}'’-]{{1,30}}\r?\n[^\S\r\n]{{0,4}})?(?i:APO|FPO|DPO),"
        rf"?{_GAP}(?i:A[AEP]){_GAP}\d{{5}}(?:-\d{{4}})?{_AFTER}",
        # State with ZIP; Canada; United Kingdom
        rf"{_BEFORE}(?:{_STATE})\.?,?{_GAP}\d{{5}}(?:-\d{{4}})?{_AFTER}",
        rf"{_BEFORE}[ABCEGHJ-NPRSTVXY]\d[A-Z][^\S\r\n]?\d[A-Z]\d{_AFTER}",
        rf"{_BEFORE}[A-Z]{{1,2}}\d[A-Z\d]?[^\S\r\n]\d[ABD-HJLNP-UW-Z]{{2}}{_AFTER}",
        # 1012 AB Amsterdam
        rf"{_BEFORE}\d{{4}}[^\S\r\n]?[A-Z]{{2}}{_GAP}{_CAP}",
        r"(?i:\b(?:zip|post(?:al)?)[ -]?code(?:[^\S\r\n]?(?:is|:|=))?)[^\S\r\n]{0,3}\d[\dA-Za-z -]{2,8}\d",
    )
)

_COUNT = (
    "(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    "|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|and|oh)"
)
_WITHOUT_NUMBER = tuple(
    regex.compile(rule)
    for rule in (
        # Elm Street; Battery Road 12
        rf"{_BEFORE}(?:(?i:{_COUNT})[ -]){{0,6}}(?:{_CAP}{_GAP}){{1,3}}(?:Street|St\.|Avenue|Ave\.|Road|Rd\."
        rf"|Boulevard|Blvd\.?|Lane|Terrace|Crescent)"
        rf"{_AFTER}(?:{_GAP}{_NUMBER}{_AFTER})?",
        # The corner of X and Y
        rf"(?i:\b\d{{1,3}}(?:st|nd|rd|th){_GAP}(?:street|st|avenue|ave|road|rd|lane|place|drive)){_AFTER}",
        rf"(?i:\b(?:the{_GAP})?(?:corner|intersection|junction) of){_GAP}(?:[\p{{L}}\d'’.-]{{1,30}}{_GAP}"
        rf"){{1,5}}?(?:and|&)"
        rf"(?:{_GAP}[\p{{L}}\d'’.-]{{1,30}}){{1,3}}",
    )
)

# What says that an address follows; the words after it count when a number is among them.
_ANNOUNCED = regex.compile(
    r"(?i)\b(?:address(?:es)?(?: (?:of|for) [^\n:]{1,40}?)?(?: is| was| to| with|:)+"
    r"|address\?\s+(?:it is|it's)?|(?:please )?validate the following\?"
    r"|(?:lived?|lives|living|reside[sd]?|residing|located|based|meet(?:ing)?(?: me)?|office is|offices are"
    r"|arrived|stay(?:ing)?"
    r"|delivered|parked) (?:at|in|on)"
    r"|(?:sen[dt]|ship(?:ped)?|deliver(?:ed)?|return|taxi|mail(?:ed)?|forward(?:ed)?|moved?|relocated?|post(?:ed)?"
    r"|new one|ride|cab|drive|statement|it|this|sent) to"
    r"|(?:it'?s|it is|works?|drops? you off) (?:in|at|on)|where:|(?:user|customer|caller):)\s{1,4}"
)
_HOUSE = regex.compile(
    rf"{_NUMBER}{_AFTER},?{_GAP}{_CAP}|(?:{_CAP}{_GAP}){{1,4}}{_NUMBER}(?![\p{{L}}\d%:])"
    rf"|{_NUMBER}{_AFTER},?{_GAP}[\p{{L}}]{{3,20}}{_GAP}(?:[\p{{L}}]{{2,20}}{_GAP})?(?:{_NUMBER}|(?i:apt|suite))"
)

_RIGHT = regex.compile(
    rf"[^\S\r\n]{{0,3}}(?:[,;][^\S\r\n]{{0,3}}|-[^\S\r\n]{{1,3}}|/[^\S\r\n]{{0,3}}|\([^\S\r\n]?"
    rf"|\)[^\S\r\n]{{0,3}}|\\,)?"
    rf"(?P<word>(?P<cap>{_CAP})|{_NUMBER}{_AFTER}|{_LINK}(?={_GAP}\p{{Lu}})"
    rf"|(?i:street|st|road|avenue|apt|suite|flat|floor|fl|no|nr|unit|nan|box|building|bldg)\.?(?![\p{{L}}\d]))"
)
_LEFT = regex.compile(
    rf"(?:(?<![\p{{L}}\d.,-])(?P<word>(?P<cap>{_CAP})|{_NUMBER}|{_LINK}))[^\S\r\n]{{0,3}}[,;/(]?[^\S\r\n]{{0,3}}\Z"
)
_SMALL = regex.compile(r"[^\S\r\n]{0,2},?[^\S\r\n]{1,2}([\p{L}()][\p{L}()'’-]{1,30}|\d{1,6})(?![\p{L}\d])")
_NEXT_LINE = regex.compile(r"[^\S\r\n]*,?\r?\n(?:[^\S\r\n]*\r?\n)?[>|?*# \t]{0,8}")
_LAST_LINE = regex.compile(r"(?P<line>[^\r\n]{1,60})\r?\n(?:[^\S\r\n]*\r?\n)?[>|?*# \t]{0,8}\Z")
_LINE = regex.compile(r"[^\r\n]{0,61}")
_LINE_WORDS = regex.compile(r"[\p{L}\d][\p{L}\d'’./-]*")
_NO_ADDRESS = regex.compile(r"[:?!=@{}<>\[\]\"|_]|\d{7}")
_OF_PLACES = words(
    "New Little Great Old Long Far Near Down Over Under Well Best Good Three Five Seven First Third"
)
_MOST_WORDS, _MOST_LINES, _REACH = 16, 6, 80


def addresses(text: str, windows: Iterable[tuple[int, int]]) -> list[Span]:
    """Addresses, and the names on the lines above them.

    Args:
        text: folded.
        windows: the stretches of it with digits in them.
    """
    anchors = [
        hit.span() for first, last in windows for rule in _ANCHORS for hit in rule.finditer(text, first, last)
    ]
    anchors.extend(hit.span() for rule in _WITHOUT_NUMBER for hit in rule.finditer(text))
    for hit in _ANNOUNCED.finditer(text):
        line = _LINE.match(text, hit.end())
        end = hit.end() if line is None else line.end()
        house = _HOUSE.search(text, hit.end(), min(end, hit.end() + _REACH))
        if (house and _HOUSE.match(text, hit.end())) or (
            house
            and not any(word in COMMON and word != "and" for word in text[hit.end() : house.start()].split())
        ):
            anchors.append((hit.end(), house.end()))
    return grow(text, anchors)


def grow(text: str, anchors: Iterable[tuple[int, int]]) -> list[Span]:
    """Whole addresses from the pieces of them that `anchors` are, and the names on the lines above."""
    spans: list[Span] = []
    names: list[Span] = []
    done = 0
    for start, end in sorted(anchors):
        if end <= done:
            continue
        first, last = _grow_left(text, start, done), _grow_right(text, end)
        if first > done and text[first - 1] == "#":
            first -= 1
        spans.append((first, last, "ADDRESS"))
        names.extend(_names_above(text, first))
        done = last
    return [*merge(spans), *names]


def _plain(word: str) -> bool:
    """A word that is part of no address."""
    bare = word.rstrip(".,'’")
    # ON, OR, IN are provinces and states; New Zealand and New Street are places.
    if bare in _OF_PLACES or (bare.isupper() and len(bare) in (2, 3)):
        return False
    return bare.lower() in COMMON


def _grow_right(text: str, end: int) -> int:
    lines = 0
    for _ in range(_MOST_WORDS):
        # A full stop after a long word ends the sentence, and the address with it; after a number (út 13.) it may not.
        if text.startswith(".", end):
            ends = text[end + 1 : end + 2].isspace() and text[end + 1 : end + 2] not in "\r\n"
            if ends and not text[end - 1].isdigit():
                return end
            end += 1
        elif text[end - 1] == "." and end > 4 and text[end - 5 : end - 1].isalpha():
            return end
        if text.startswith(")", end):
            end += 1
        piece = _RIGHT.match(text, end)
        if piece and not (piece["cap"] and _plain(piece["cap"])):
            end = piece.end()
            continue
        border = _NEXT_LINE.match(text, end)
        if border is None or lines == _MOST_LINES:
            return _grow_small(text, end)
        lines += 1
        line = _LINE.match(text, border.end())
        if line is None:
            return end
        if not _short_line(line.group()):
            return _grow_into(text, end, border.end())
        end = line.start() + len(line.group().rstrip(" \t,.;"))
    return end


def _grow_into(text: str, end: int, start: int) -> int:
    """The last line of an address, when a sentence goes on behind it: it ends with a number."""
    last, at = end, start
    for _ in range(5):
        piece = _RIGHT.match(text, at)
        if piece is None or (piece["cap"] and _plain(piece["cap"])):
            break
        at = piece.end()
        if piece["word"][0].isdigit():
            last = at
    return last


def _grow_small(text: str, end: int) -> int:
    """The rest of a line that is written small throughout."""
    start = text.rfind("\n", max(0, end - _REACH), end) + 1
    if text[start:end] != text[start:end].lower():
        return end
    for _ in range(5):
        word = _SMALL.match(text, end)
        if word is None or _plain(word[1]):
            break
        end = word.end()
    return end


def _grow_left(text: str, start: int, done: int) -> int:
    for _ in range(_MOST_WORDS):
        first = max(done, start - _REACH)
        piece = _LEFT.search(text, first, start)
        if piece and piece["cap"] is None and piece["word"].isalpha():
            # A linking word belongs to it when a name stands before.
            named = _LEFT.search(text, first, piece.start("word"))
            piece = None if named is None or named["cap"] is None else named
        if piece is None or (piece["cap"] and _plain(piece["cap"])):
            above = _LAST_LINE.search(text, first, start)
            # The line above belongs to the address when a number is in it: a name would not have one.
            if above and any(map(str.isdigit, above["line"])) and _short_line(above["line"]):
                if above.start() > done and text[above.start() - 1] not in "\r\n":
                    return start
                start = above.start() + len(above["line"]) - len(above["line"].lstrip(" \t>|?*#"))
                continue
            return start
        start = piece.start("word")
    return start


def _short_line(line: str) -> bool:
    """Whether a whole line can be a piece of an address: some words, none of them a common one, no sign of else."""
    words = _LINE_WORDS.findall(line)
    return (
        0 < len(words) <= 6
        and len(line) <= 60
        and not _NO_ADDRESS.search(line)
        and not any(map(_plain, words))
    )


def _names_above(text: str, start: int) -> list[Span]:
    """The lines right above an address that hold capitalised words only: who lives there."""
    found: list[Span] = []
    for _ in range(3):
        above = _LAST_LINE.search(text, max(0, start - _REACH), start)
        if above is None or (above.start() and text[above.start() - 1] not in "\r\n"):
            break
        line = above["line"].lstrip(" \t>|?*#")
        words = _LINE_WORDS.findall(line)
        if not words or not _short_line(line) or not any(word[0].isupper() for word in words):
            break
        start = above.start()
        found.append((above.end("line") - len(line), above.end("line"), "NAME"))
    return found
