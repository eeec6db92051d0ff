"""Numbers and mail addresses written as they are spoken: "two oh two, five five five", "jane dot doe at example"."""

from __future__ import annotations

import regex

from weighbridge.masking.entities import Span

_DIGIT = "zero|oh|o|nought|naught|one|two|three|four|five|six|seven|eight|nine|niner"
_TEEN = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_ONE = (
    rf"(?:(?:(?:double|triple|treble)[ -])?(?:{_DIGIT})(?:[ -]hundred|[ -]thousand)?|{_TEEN}"
    rf"|(?:{_TENS})(?:[ -](?:one|two|three|four|five|six|seven|eight|nine))?|\d{{1,6}})"
)
_BETWEEN = (
    r"(?:\s{0,2}[,.;/–-]{1,2}\s{0,2}|\s{1,3})"
    r"(?:(?:and|then|dash|hyphen|dot|point|space|area code|plus|extension|ext)[\s,.]{1,3})?"
)
# Three words of digits say little (one, two, three); six do. Digits among them help.
_SPOKEN = regex.compile(rf"(?i)(?<![\w])(?:plus )?{_ONE}(?:{_BETWEEN}{_ONE}){{4,40}}(?!\w)")
_WORDS = regex.compile(rf"(?i)\b(?:{_DIGIT}|{_TEEN}|{_TENS})\b")
# Cheap to look for: two words of digits near one another, or a spoken dot.
_SOME = regex.compile(
    rf"(?i)\b(?:{_DIGIT}|{_TEEN}|{_TENS})\W{{1,6}}(?:\w{{1,9}}\W{{1,4}})?(?:{_DIGIT}|{_TEEN}|{_TENS}|hundred)\b"
    r"|[^\S\r\n][\[({]?(?:dot|point)[\])}]?[^\S\r\n]"
)
_COUNTING = regex.compile(
    r"(?i)\W*(?:zero\W+)?one\W+two\W+three\W+four\W+five(?:\W+six)?(?:\W+seven)?(?:\W+eight)?(?:\W+nine)?(?:\W+ten)?\W*"
)
_MAIL = regex.compile(
    r"(?i)(?<![\w@.])[\p{L}\d][\p{L}\d._+-]{0,40}(?:[^\S\r\n](?:dot|underscore|dash|hyphen|minus|period|point)[^\S\r\n][\p{L}\d._-]{1,40}){0,5}"
    r"[^\S\r\n]{1,2}[\[({]?at[\])}]?[^\S\r\n]{1,2}[\p{L}\d-]{1,40}(?:[^\S\r\n]{1,2}[\[({]?(?:dot|point)[\])}]?[^\S\r\n]{1,2}[\p{L}\d-]{2,40}){1,4}"
)
_AT = r"[^\S\r\n]?(?:[\[({<][^\S\r\n]?(?:at|@)[^\S\r\n]?[\])}>]|@)[^\S\r\n]?"
_DOT = r"[^\S\r\n]?(?:[\[({<][^\S\r\n]?(?:dot|\.)[^\S\r\n]?[\])}>]|\.)[^\S\r\n]?"
_SPACED_MAIL = regex.compile(
    rf"(?i)(?<![\w@.])[\p{{L}}\d_+-]{{1,40}}(?:{_DOT}[\p{{L}}\d_+-]{{1,40}}){{0,4}}{_AT}[\p{{L}}\d-]{{1,40}}(?:{_DOT}[\p{{L}}\d-]{{2,40}}){{1,4}}"
)
_BRACKETED = regex.compile(r"(?i)[\[({<][^\S\r\n]?at[^\S\r\n]?[\])}>]")
_SPELLED = regex.compile(r"(?<![\p{L}\d-])\p{L}(?:[- .]\p{L}){4,30}(?![\p{L}\d-])")
_LEAST_WORDS = 4


def spoken(text: str) -> list[Span]:
    """Spoken numbers of about seven digits and more, spoken mail addresses, and spelled-out names."""
    spans: list[Span] = []
    spans.extend((*hit.span(), "NAME") for hit in _SPELLED.finditer(text))
    if "@" in text or _BRACKETED.search(text):
        spans.extend((*hit.span(), "EMAIL") for hit in _SPACED_MAIL.finditer(text))
    if not _SOME.search(text):
        return spans
    for hit in _SPOKEN.finditer(text):
        if len(_WORDS.findall(hit.group())) >= _LEAST_WORDS and not _COUNTING.fullmatch(hit.group()):
            spans.append((*hit.span(), "PHONE"))
    # Overlapping: "mail me at jane dot doe at example dot com" holds two readings, and the second is meant.
    spans.extend((*hit.span(), "EMAIL") for hit in _MAIL.finditer(text, overlapped=True))
    return spans
