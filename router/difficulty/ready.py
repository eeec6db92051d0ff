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
