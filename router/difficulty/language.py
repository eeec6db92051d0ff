"""The language a request is in, as far as scoring needs it."""

from __future__ import annotations

from typing import Final, Literal

Language = Literal["ko", "en", "other"]


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


ENGLISH_WORDS: Final = word_set(
    "a an the i you he she it we they is are was were be am do does did to of in on at for with and or not my your"
    " me this that what who how when where why which can could will would should have has had so but if no yes"
)
"""Words that almost no English sentence lacks."""

_LATIN: Final = bytes(range(0x41, 0x5B)) + bytes(range(0x61, 0x7B))
_HANGUL: Final = b"\xea\xeb\xec\xed"
_JAMO: Final = (b"\xe3\x84", b"\xe3\x85", b"\xe3\x86")
_FOREIGN: Final = bytes([*range(0xC3, 0xE2), *range(0xE3, 0xEA)])


def counts(sample: str) -> tuple[int, int, int]:
    """How many letters are Latin, Hangul and of other scripts.

    Told by the first bytes in UTF-8, which is many times cheaper than asking each character. A few rare
    characters share a first byte with Hangul.
    """
    raw = sample.encode("utf-8", "ignore")
    latin = len(raw) - len(raw.translate(None, _LATIN))
    if len(raw) == len(sample):
        return latin, 0, 0
    jamo = sum(raw.count(lead) for lead in _JAMO)
    hangul = len(raw) - len(raw.translate(None, _HANGUL)) + jamo
    return latin, hangul, len(raw) - len(raw.translate(None, _FOREIGN)) - jamo


def language_of(text: str) -> Language:
    """`ko` when at least a tenth of the letters are Hangul, else `en` or `other`.

    A Korean document with an English instruction is `ko`: the model must read Korean all the same.
    """
    sample = text if len(text) <= 400 else text[:250] + text[-150:]
    latin, hangul, foreign = counts(sample)
    if hangul and hangul * 10 >= hangul + latin:
        return "ko"
    if foreign * 4 > latin:
        return "other"
    if latin > 40 and ENGLISH_WORDS.isdisjoint(sample.lower().split()):
        return "other"
    return "en"
