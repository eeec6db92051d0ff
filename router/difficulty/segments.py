"""Telling the instruction from the pasted material in one turn."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from weighbridge.router.difficulty.language import word_set

_HEAD: Final = 700
_TAIL: Final = 500
_LINES: Final = 3
_LONG_LINE: Final = 230
_SENTENCE: Final = 170
_MATERIAL_LINE: Final = 140
_MATERIAL_TEXT: Final = 420

# It begins with the character class, so that the search jumps from quotation mark to quotation mark.
_QUOTED: Final = re.compile(r"['\"“‘「](?<![^\s:(]['\"“‘「])[^\n\"“”]{16,300}?['\"”’」](?=[\s.,?!)]|$)")
_MARKS: Final = "\"'“‘「"
_MOST_MARKS: Final = 30
_SPEAKER: Final = re.compile(r"\s*(?:\[[^\]\n]{1,20}\]\s*)?([\w.]{1,20})(?: [\w.]{1,15})?: \S")
_NO_SPEAKERS: Final = word_set(
    "question task note example input text context document customer user q passage article review"
    " 질문 물음 고객 문제 문맥 답 글 본문 번역"
)
_SENTENCE_END: Final = re.compile(r"[.?!:。？](?=\s)")
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
_ASKING_PHRASES: Final = (
    "can you", "could you", "would you", "i need", "the following", "the above", "the text", "based on",
    "according to", "tl;dr", "tldr", "please", "given ", "summary", "below", "question", "task",
)  # fmt: skip
_ASKING_END_KO: Final = re.compile(
    r"(?:줘|줘요|주세요|주십시오|하세요|하시오|답해|해라|여라|어라|해봐|봐줘|까요?|나요|가요|인가|는가|할까|뭐야|어때|돼|있어|누구야"
    r"|줄래|하나|은|는|해|좀|봐|법)[\s.!~]*$"
)
_NEXT_KO: Final = re.compile(r"다음(?:[을은의]| 글| 문| 중| 내| 텍| 리| 기| 고객| 메일| 주장| 조건| 보고)")
_ASKING_PHRASES_KO: Final = ("아래", "위의", "위 글", "위 내용", "질문", "문서", "요약", "번역", "부탁")
_QUESTION_KO: Final = re.compile(
    r"(?:나요|까요?|는지|는가|인가|뭐야|어요|돼|있어|누구야|알려 ?줘|답하시오|답해 ?줘?|되나|답하세요|걸려|얼마"
    r"|무엇인가|언제야|어디야|하나)\W*$"
)
_MARKERS: Final = (
    "<context>", "context:", "passage:", "document:", "documents:", "text:", "article:", "[1]", "excerpts:",
    "search results", "문맥:", "지문:", "문서:", "자료:", "발췌문:", "검색 결과", "문서 목록", "글:", "본문:",
)  # fmt: skip
_BLANK: Final = " -#*`\t"


@dataclass(frozen=True, slots=True)
class Segments:
    """A turn taken apart.

    Args:
        asking: the pieces that ask for something, in lower case, at most about 1,000 characters.
        other: other pieces from the edges, where instructions stand, as long.
        material: whether the turn holds a pasted text to work on.
        payload: whether there is any text to work on: pasted, quoted or after a colon.
        marked: whether such a text is announced by a word like `context:`.
        question: whether a question is among the asking pieces.
    """

    asking: str
    other: str
    material: bool
    payload: bool
    marked: bool
    question: bool


def take_apart(text: str, full_chars: int) -> Segments:
    """Split a turn; `full_chars` is its length before it was shortened."""
    text = text.strip(" \n\t\r-—")
    short = len(text) <= _HEAD + _TAIL
    plain = text.lower() if short else (text[:_HEAD] + "\n" + text[-_TAIL:]).lower()
    # More marks than that are no quotations, and looking for pairs among them would take long.
    if short and 0 < sum([plain.count(mark) for mark in _MARKS]) <= _MOST_MARKS:
        plain = _QUOTED.sub(' "" ', plain)
    lines = [line for line in plain.split("\n") if line.strip(_BLANK)]
    spoken = [line for line in lines if not _speaks(line)]
    edges = spoken or lines
    if len(edges) > 2 * _LINES:
        edges = edges[:_LINES] + edges[-_LINES:]
    asking: list[str] = []
    other: list[str] = []
    for line in edges:
        for piece in _pieces(line):
            (asking if is_asking(piece) else other).append(piece)
    marked = _is_marked(plain[:600])
    material = marked or full_chars >= _MATERIAL_TEXT or _has_material(lines, spoken, other)
    payload = material or '""' in plain or "\n\n" in text or _after_colon(lines)
    question = any(asks(piece) for piece in asking)
    if not asking and full_chars < _MATERIAL_TEXT:
        asking, other = other, []
    return Segments("\n".join(asking)[:1_000], "\n".join(other)[:1_000], material, payload, marked, question)


def _is_marked(start: str) -> bool:
    if ":" not in start and "[1]" not in start and "<context>" not in start and "검색 결과" not in start:
        return False
    return any(marker in start for marker in _MARKERS)


def _speaks(line: str) -> bool:
    """A line of a dialogue: it is material, however many question marks it holds."""
    if ": " not in line[:60]:
        return False
    match = _SPEAKER.match(line)
    return match is not None and match.group(1) not in _NO_SPEAKERS


def _has_material(lines: list[str], spoken: list[str], other: list[str]) -> bool:
    if len(lines) < 2:
        return False
    if max(len(line) for line in lines) >= _MATERIAL_LINE:
        return True
    quiet = len(lines) - len(spoken) + len(other)
    return (
        quiet >= 2
        and sum(len(line) for line in lines)
        - sum(len(line) for line in spoken)
        + sum(len(piece) for piece in other)
        >= 120
    )


def _after_colon(lines: list[str]) -> bool:
    """`Translate: …`: a text of some length after a colon that ends the first line."""
    first = lines[0] if lines else ""
    place = first.find(": ")
    return place >= 0 and len(first) - place > 14 and "?" not in first[place:]


def _pieces(line: str) -> list[str]:
    """A short line whole, of a long one the first and the last sentence."""
    if len(line) <= _LONG_LINE:
        return [line]
    first = _SENTENCE_END.search(line, 15, _SENTENCE)
    tail = line[-_SENTENCE:]
    ends = [match.end() for match in _SENTENCE_END.finditer(tail[:-2])]
    return [line[: first.end() if first else _SENTENCE], tail[ends[-1] :] if ends else tail]


def is_asking(piece: str) -> bool:
    """Whether a lower-case piece reads like a request rather than like material."""
    if "?" in piece or piece.rstrip().endswith(":"):
        return True
    first = [word.strip(_AROUND) for word in piece[:80].split(None, 3)[:3]]
    if first and first[0] in _NOT_FIRST:
        del first[0]
    if first and first[0] in _VERBS:
        return True
    for phrase in _ASKING_PHRASES:
        if phrase in piece:
            return True
    if piece.isascii():
        return False
    for phrase in _ASKING_PHRASES_KO:
        if phrase in piece:
            return True
    if "다음" in piece and _NEXT_KO.search(piece):
        return True
    return _ASKING_END_KO.search(piece[-14:]) is not None


def asks(piece: str) -> bool:
    """Whether a piece holds a question."""
    if "?" in piece or "？" in piece:
        return True
    return not piece.isascii() and _QUESTION_KO.search(piece[-14:]) is not None
