"""Telling what asks from what is only to be worked on, in one turn: by its edges, cheaply, in any order."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from weighbridge.router.difficulty.language import word_set

_HEAD: Final = 900
_TAIL: Final = 700
_EDGE_LINES: Final = 3
_LONG_LINE: Final = 120
_MOST_ASKING: Final = 900
_MOST_MARKS: Final = 40

_QUOTE_MARKS: Final = '"“「'
_QUOTED: Final = re.compile(r'["“「][^"“”「」]{16,}["”」]')
_SENTENCE_ENDS: Final = (". ", "? ", "! ", ": ")
_SENTENCES_END: Final = 200
_VERBS: Final = word_set(
    "add act analyse analyze answer apply arrange assign brief build calculate categorise categorize"
    " check choose classify collect compare compose compute condense consider convert count create decide"
    " define describe design detect determine draft evaluate explain extract fill find fix generate get"
    " give grab group guess help how identify implement label let list localise localize make map mark"
    " match name parse pick plan predict prove provide pull put rank rate read recap recommend record"
    " refactor render rephrase return review rewrite route select show shorten simplify solve sort suggest"
    " sum summarise summarize suppose tag tell translate triage turn use using what when where which who"
    " why write"
)
_NOT_FIRST: Final = frozenset(["", "please", "now", "ok", "so"])
_AROUND: Final = "-*•()[]#>:,.;!\"'0123456789"
_PHRASES: Final = (
    "can you", "could you", "would you", "i need", "the following", "the above", "the text", "based on",
    "according to", "tl;dr", "tldr", "please", "given ", "summary", "below", "question", "task",
)  # fmt: skip
_PHRASES_KO: Final = ("아래", "위의", "위 글", "위 내용", "질문", "문서", "요약", "번역", "부탁")
_NEXT_KO: Final = re.compile(r"다음(?:[을은의]| 글| 문| 중| 내| 텍| 리| 기| 고객| 메일| 주장| 조건| 보고)")
_ENDS_KO: Final = tuple(
    word_set(
        "줘 줘요 주세요 주십시오 하세요 하시오 답해 해라 여라 어라 해봐 봐줘 까 까요 나요 가요 인가 는가 할까"
        " 뭐야 어때 돼 있어 누구야 줄래 하나 은 는 해 좀 봐 법 바람 부탁 것 시오 세요 죠 지 냐 니 래 자 할래 대 요망"
    )
)
_BLANK: Final = " -#*`\t"


class Parts(NamedTuple):
    """A turn taken apart, all in lower case.

    Args:
        asking: the pieces at the edges of the turn that read like a request, at most 900 characters.
        other: the rest of what was looked at, quotations included, at most 1,800 characters.
        first: the first line, at most 400 characters.
        last: the last line, at most 400 characters.
    """

    asking: str
    other: str
    first: str
    last: str


def take_apart(text: str) -> Parts:
    """Split a turn that is in lower case and has no space at its ends.

    Only its first 900 and last 700 characters are looked at, so a pasted document costs no more.
    """
    if len(text) > _HEAD + _TAIL:
        text = text[:_HEAD] + "\n" + text[-_TAIL:]
    other: list[str] = []
    # More marks than that are no quotations, and looking for pairs among them would take long.
    if 1 < sum([text.count(mark) for mark in _QUOTE_MARKS]) + text.count("”") <= _MOST_MARKS:
        other += _QUOTED.findall(text)
        text = _QUOTED.sub(' ""\n', text)
    lines = [line for line in text.split("\n") if line.strip(_BLANK)]
    if not lines:
        return Parts("", "\n".join(other), "", "")
    asking: list[str] = []
    late = len(lines) - _EDGE_LINES
    for number, line in enumerate(lines):
        if _EDGE_LINES <= number < late:
            other.append(line)
        elif len(line) <= _LONG_LINE:
            (asking if len(lines) == 1 or is_asking(line) else other).append(line)
        else:
            for piece in _pieces(line, other):
                (asking if is_asking(piece) else other).append(piece)
    return Parts("\n".join(asking)[:_MOST_ASKING], "\n".join(other)[:1_800], lines[0][:400], lines[-1][-400:])


def _pieces(line: str, other: list[str]) -> list[str]:
    """The sentences at either end of a long line; what is between goes to `other`."""
    if len(line) <= 2 * _SENTENCES_END:
        return _sentences(line)
    head, tail = _sentences(line[:_SENTENCES_END]), _sentences(line[-_SENTENCES_END:])
    other += (head.pop(), line[_SENTENCES_END:-_SENTENCES_END], tail.pop(0))
    return head + tail


def _sentences(text: str) -> list[str]:
    for end in _SENTENCE_ENDS:
        text = text.replace(end, end[0] + "\n")
    return text.split("\n")


def is_asking(piece: str) -> bool:
    """Whether a lower-case piece reads like a request rather than like material."""
    if "?" in piece or piece.endswith(":"):
        return True
    if not piece.isascii():
        if piece.rstrip(" .!~").endswith(_ENDS_KO) or any([phrase in piece for phrase in _PHRASES_KO]):
            return True
        if "다음" in piece and _NEXT_KO.search(piece) is not None:
            return True
        if piece[:1] >= "가":
            return False
    words = piece[:60].split(None, 2)
    if words:
        first = words[0].strip(_AROUND)
        if first in _NOT_FIRST and len(words) > 1:
            first = words[1].strip(_AROUND)
        if first in _VERBS:
            return True
    return any([phrase in piece for phrase in _PHRASES])
