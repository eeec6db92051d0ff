"""Making a text ready: what has no say in how hard it is, is taken out first."""

from __future__ import annotations

import re
from typing import Final

_PRAISE_WORDS: Final = (
    r"simple|simply|easy|easily|quick|quickly|trivial|basic|short|effortless|straightforward"
    r"|간단한|간단히|간단하게|간단|쉬운|쉽게|단순한|단순히|단순"
)
_BESIDE: Final = (
    r"this|that|it|its|is|s|a|an|the|very|really|super|just|so|and|only|please|ok|okay|here|one|task|question|request"
    r"|problem|job|thing|stuff|for|you|아주|매우|정말|진짜|좀|그냥|이건|이거|작업|질문|문제|요청|일|입니다|이에요|예요|야|이야"
)
_PRAISE: Final = (
    rf"(?:(?:{_BESIDE})[\s,']+){{0,6}}(?:{_PRAISE_WORDS})"
    rf"(?:[\s,']+(?:{_BESIDE}|{_PRAISE_WORDS})){{0,400}}(?:입니다|이에요|예요|이야|야)?"
)
_FIRST: Final = re.compile(
    rf"(?:(?:(?:{_PRAISE_WORDS})\s+){{3,2000}}|\W{{0,3}}{_PRAISE}\s?[:.!;,-]+\s*){{1,5}}(?=\w)"
)
_LAST: Final = re.compile(rf"[.?!\n)]\s*\(?{_PRAISE}\s?[.!)]{{0,3}}$")
_LAST_CHARS: Final = 80
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


_LONG: Final = 400
_EDGE: Final = 120
_WORD: Final = re.compile(r"\S+")
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
        found = _FIRST.match(text[:3_000])
        if found is not None:
            text = text[found.end() :]
    tail = text[-_LAST_CHARS:]
    if any([hint in tail for hint in _HINTS]):
        found = _LAST.search(tail)
        if found is not None:
            text = text[: len(text) - len(tail) + found.start() + 1]
    return text


def said_once(text: str) -> str:
    """A few words chanted at the beginning or end, each once: what they push out of sight comes back."""
    if len(text) <= _LONG:
        return text
    few = set(text[:_EDGE].lower().split()[:-1])
    if len(few) <= _FEW:
        words = _WORD.finditer(text)
        ends = next((word.start() for word in words if word.group().lower() not in few), len(text))
        text = _each_once(text[:ends]) + text[ends:]
    few = set(text[-_EDGE:].lower().split()[1:])
    if len(few) <= _FEW:
        words = reversed(list(_WORD.finditer(text)))
        starts = next((word.end() for word in words if word.group().lower() not in few), 0)
        text = text[:starts] + _each_once(text[starts:])
    return text


def _each_once(chant: str) -> str:
    """Its words without repetition, with the white space that was around them."""
    words = chant.strip()
    once = " ".join(dict.fromkeys(words.split()))
    return chant.replace(words, once, 1) if words else chant
