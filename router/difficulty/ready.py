"""Making a text ready: what has no say in how hard it is, is taken out first. Linear in the length of the text."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final
from unicodedata import normalize

from weighbridge.router.difficulty.language import word_set

_PRAISE: Final = word_set(
    "simple simply easy easily quick quickly trivial basic short effortless straightforward"
    " 간단한 간단히 간단하게 간단 쉬운 쉽게 단순한 단순히 단순"
)
_BESIDE: Final = word_set(
    "this that it its is s a an the very really super just so and only please ok okay here one task question request"
    " problem job thing stuff for you 아주 매우 정말 진짜 좀 그냥 이건 이거 작업 질문 문제 요청 일"
)
"""What may stand beside words of praise in a phrase that says nothing else."""

_ENDINGS: Final = ("입니다", "이에요", "예요", "이야", "야", "")
_JAMO: Final = re.compile("[\u1100-\u11ff]+")
_RUN: Final = re.compile(r"\s{3,}")
_TOKEN: Final = re.compile(r"[^\W_]+|[^\w\s]+|_+")
_KNOWN: Final = _PRAISE | _BESIDE | {""}
_CLOSES: Final = frozenset(":.!;)…")
_DASHES: Final = frozenset("-–—→")
"""These close a phrase only before a blank: `quick-sort` is no praise."""

_BETWEEN: Final = frozenset(",'_(*")
_HEAD: Final = 3_000
_TAIL: Final = 80
_MOST_WORDS: Final = 400
_MOST_PHRASES: Final = 5
_ALONE: Final = 3
"""So many words of praise in a row need no sign behind them."""

_HINTS: Final = (
    "simpl",
    "eas",
    "quick",
    "trivial",
    "basic",
    "short",
    "effortless",
    "straightforward",
    "간단",
    "쉬",
    "쉽",
    "단순",
)
_ENDS_BEFORE: Final = re.compile(r"[.?!)]\s*\(?(?=[^.?!\n)]*[.!)]{0,3}$)")
_ODD: Final = re.compile(
    "[\u00a0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u2064\u3000\ufeff\uff01-\uff5e\u1100-\u11ff]"
)
_PLAIN: Final = (
    {code: " " for code in (0x00A0, 0x202F, 0x3000)}
    | {code: "\n" for code in (0x2028, 0x2029)}
    | {
        code: None
        for code in (0x00AD, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2065), 0xFEFF)
    }
    | {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
)
"""Unusual spaces and full-width letters as the usual ones; what nobody sees is left out. `_ODD` finds parts of
Hangul too."""

_LONG: Final = 400
_EDGE: Final = 120
_LOOK: Final = 200
_FEW: Final = 6


def ready(text: str) -> str:
    """Lower case, one space between words, at most one empty line, without a beginning or end that only says that all
    of it is easy (`simple task: ...`)."""
    text = text.strip().lower()
    if "  " in text or "\t" in text or " \n" in text:
        text = "\n".join([" ".join(line.split()) for line in text.split("\n")])
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    head = text[:60]
    if any([hint in head for hint in _HINTS]):
        text = text[_praise_ends(text[:_HEAD]) :]
    tail = text[-_TAIL:]
    if any([hint in tail for hint in _HINTS]):
        found = _ENDS_BEFORE.search(tail)
        if found is not None and _is_praise(tail[found.end() :]):
            text = text[: len(text) - len(tail) + found.start() + 1]
    return text


def _praise_ends(text: str) -> int:
    """Where the phrases at the beginning end that only praise, 0 without any."""
    ends = row = phrases = words = 0
    praised = False
    last = 0
    for token in _TOKEN.finditer(text):
        piece = token.group()
        if praised and "\n" in text[last : token.start()]:
            ends, praised, row, phrases = token.start(), False, -1, phrases + 1
        last = token.end()
        if piece[0].isalnum():
            if not _fits(piece) or words >= _MOST_WORDS:
                return token.start() if row >= _ALONE else ends
            words += 1
            praises = _praises(piece)
            row = row + 1 if praises and row >= 0 else -1
            praised = praised or praises
        elif praised and _closes(piece, text[last : last + 1]):
            ends = last + text[last : last + 1].isspace()
            praised, row, phrases = False, -1, phrases + 1
            if phrases == _MOST_PHRASES:
                return ends
        elif words and not _BETWEEN.issuperset(piece):
            break
    # What praises and says nothing more is all there is.
    return ends if ends < len(text) else 0


def _closes(piece: str, behind: str) -> bool:
    return not _CLOSES.isdisjoint(piece) or (not _DASHES.isdisjoint(piece) and behind.isspace())


def _is_praise(text: str) -> bool:
    """Whether a text says nothing but that something is easy."""
    words = re.findall(r"[^\W_]+", text)
    return all(map(_fits, words)) and any(map(_praises, words))


def _stem(word: str) -> str:
    return next(word.removesuffix(ending) for ending in _ENDINGS if word.endswith(ending))


def _fits(word: str) -> bool:
    return word in _KNOWN or _stem(word) in _KNOWN


def _praises(word: str) -> bool:
    return word in _PRAISE or _stem(word) in _PRAISE


def evenly_spaced(text: str) -> str:
    """Without long runs of white space, nor of what nobody sees at either end."""
    if not text.isascii() and (_ODD.search(text[:_LOOK]) or _ODD.search(text[-_LOOK:])):
        text = text.translate(_PLAIN)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "   " in text or "\n\n\n" in text:
        text = _RUN.sub(_shorter, text)
    return text.strip()


def plain(text: str) -> str:
    """The same text in its usual spelling: composed, with usual spaces and letters, without invisible characters."""
    if text.isascii():
        return text
    if _ODD.search(text) is None:
        return text
    if _JAMO.search(text):
        # Of all that can be composed only this: runs of other marks would take long, and tell nothing.
        text = _JAMO.sub(lambda run: normalize("NFC", run.group()), text)
    return text.translate(_PLAIN)


def _shorter(run: re.Match[str]) -> str:
    return "\n\n" if run.group().count("\n") > 1 else "\n" if "\n" in run.group() else " "


def said_once(text: str) -> str:
    """A few words chanted at the beginning or end, each once: what they push out of sight comes back."""
    if len(text) <= _LONG:
        return text
    few = frozenset(text[:_EDGE].lower().split()[:-1])
    if len(few) <= _FEW and _are_words(few):
        count = sum([1 for _ in takewhile(few.__contains__, text.lower().split())])
        if count > len(few):
            parts = text.split(None, count)
            once, rest = " ".join(dict.fromkeys(parts[:count])), "".join(parts[count:])
            text = once + _gap(text[: len(text) - len(rest)][-2:]) + rest
    few = frozenset(text[-_EDGE:].lower().split()[1:])
    if len(few) <= _FEW and _are_words(few):
        count = sum([1 for _ in takewhile(few.__contains__, reversed(text.lower().split()))])
        if count > len(few):
            parts = text.rsplit(None, count)
            rest, once = "".join(parts[:-count]), " ".join(dict.fromkeys(parts[-count:]))
            text = rest + _gap(text[len(rest) :][:2]) + once
    return text


def _are_words(few: frozenset[str]) -> bool:
    """Figures and single letters are material: a matrix, votes, a sequence."""
    return 2 * sum([len(word) > 1 and word.isalpha() for word in few]) > len(few)


def _gap(white: str) -> str:
    return white if white == "\n\n" else "\n" if "\n" in white else " "
