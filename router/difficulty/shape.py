"""Small questions about the look of a text, each answered cheaply: a plain test first, a pattern only then."""

from __future__ import annotations

import re
from typing import Final, Literal

_LETTERED_HINTS: Final = ("b.", "b)", "b:", "b]")
_LETTERED: Final = re.compile(r"(?:^|[\s(\[*>\"'-])([a-e])([.):\]])")
_FEWEST_LETTERS: Final = 4
_CIRCLED: Final = ("②", "③", "④")
DIGITS_ONLY: Final = bytes(byte if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_FORMULA: Final = re.compile(
    r"\d ?% (?:of|tip)|\d\s?[+*/^×÷]\s?\d|\d\s-\s\d|[\d)\]]\s?=|[a-z]\^\d|\\frac|\\sqrt|\\int|\\sum|[a-z]\([a-z\d]\)"
)
_FORMULA_SIGNS: Final = "%+*/^×÷=\\("
_CODE: Final = (
    "```", "def ", "function ", "class ", "import ", "#include", "select ", "=> ", "();", ") {", "};", "error[",
    "traceback", "exception", "const ", "public ", "return ", "print(", "</", "->", "(n)", ");",
)  # fmt: skip
_CODE_MARKS: Final = ("`", "{", "}", ";", "=", "<", ">", "#", "_", "[", ":\n", "()")
"""Prose without any of these is not searched for code."""

_LANGUAGES: Final = (
    "english|french|german|korean|japanese|chinese|mandarin|spanish|italian|portuguese|brazilian|dutch|swedish"
    "|russian|arabic|vietnamese|thai|indonesian|turkish|polish|hindi|norwegian|danish|czech|greek|hebrew|latin"
    "|finnish|hungarian|ukrainian|romanian|croatian|serbian|swahili|malay"
)
_LANGUAGES_KO: Final = (
    "영어|영문|한국어|한글|국문|일본어|일어|중국어|프랑스어|불어|독일어|스페인어|이탈리아어|포르투갈어|네덜란드어|한국말|스웨덴어"
    "|러시아어|아랍어|베트남어|태국어|인도네시아어|터키어|폴란드어|힌디어|라틴어|우리말|몽골어"
)
_NAMES: Final = tuple(_LANGUAGES.split("|"))
_INTO: Final = re.compile(
    rf"\b(?:in|into|to|from)\W{{1,2}}(?:\w{{1,12}} )?(?:{_LANGUAGES})\b"
    rf"|\b(?:{_LANGUAGES}) (?:version|translation|to|please|equivalent|for|of|word)\b"
)
_ANSWER_IN: Final = re.compile(
    rf"\b(?:answer|reply|respond|explain|write|speak|output|summary) in (?:{_LANGUAGES})\b"
)
_NAMED_KO: Final = re.compile(
    rf"(?:{_LANGUAGES_KO})( ?(?:로|판|버전))?( (?:답|대답|설명|작성|요약|알려|출력))?"
)


def is_lettered(lower: str) -> bool:
    """Whether answers to choose from are listed, as in an exam: four letters from a to e, with one sign behind each."""
    if any([hint in lower for hint in _LETTERED_HINTS]):
        found = set(_LETTERED.findall(lower))
        if any([sum([sign == one for _, sign in found]) >= _FEWEST_LETTERS for one in ".):]"]):
            return True
    return _CIRCLED[0] in lower and all([mark in lower for mark in _CIRCLED])


def number_count(text: str) -> int:
    """How many numbers a text holds."""
    return len(text.encode("utf-8", "replace").translate(DIGITS_ONLY).split())


def is_formula(where: str, lower: str) -> bool:
    """Whether `where` holds a formula or an open calculation, or `lower`, the whole, is set in LaTeX."""
    if "\\" in lower and lower.count("$") >= 4:
        return True
    return any([sign in where for sign in _FORMULA_SIGNS]) and _FORMULA.search(where) is not None


def signs_of_code(lower: str) -> int:
    """How many different marks of program text are there."""
    if any([mark in lower for mark in _CODE_MARKS]):
        return sum([sign in lower for sign in _CODE])
    return 0


def target_language(asking: str) -> Literal["into", "answer-in", "named", "none"]:
    """What role a named language plays: to put something into it, to answer in it, or just named."""
    if any([name in asking for name in _NAMES]):
        if _INTO.search(asking):
            return "answer-in" if _ANSWER_IN.search(asking) else "into"
        return "named"
    if "어" in asking or "글" in asking or "말" in asking or "문" in asking:
        roles = [(match.group(1), match.group(2)) for match in _NAMED_KO.finditer(asking)]
        if any(into and not answer for into, answer in roles):
            return "into"
        if roles:
            return "answer-in" if any(answer for _, answer in roles) else "named"
    return "none"
