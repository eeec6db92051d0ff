"""Small questions about the look of a text, each answered cheaply: a plain test first, a pattern only then."""

from __future__ import annotations

import re
from typing import Final, Literal

from weighbridge.router.difficulty import cues_en, cues_ko

_LETTERED: Final = tuple((f"\n{letter}. ", f"\n{letter}) ", f"({letter}) ") for letter in "bcde")
_CIRCLED: Final = "②③④"
_DIGITS_ONLY: Final = bytes(byte if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_FORMULA: Final = re.compile(
    r"\d ?% (?:of|tip)|\d\s?[+*/^×÷]\s?\d|\d\s-\s\d|[\d)\]]\s?=|[a-z]\^\d|\\frac|\\sqrt|\\int|\\sum|[a-z]\([a-z\d]\)"
)
_FORMULA_SIGNS: Final = "%+*/^×÷=\\("
_CODE: Final = (
    "```", "def ", "function ", "class ", "import ", "#include", "select ", "=> ", "();", ") {", "};", "error[",
    "traceback", "exception", "const ", "public ", "return ", "    if ", "print(", "</", "->", "(n)", ");",
)  # fmt: skip
_CODE_MARKS: Final = ("`", "{", "}", ";", "=", "<", ">", "#", "_", ":\n", "()", "[")
"""Prose without any of these is not searched for code."""

# Every repetition is bounded and no two parts of a pattern can match the same character in two ways: what is searched
# comes from outside, and a pattern that backtracks would let a request hold the gateway up.
_ITEM: Final = r"['\"]?[\w-]{1,30}(?: [\w-]{1,30})?['\"]?"
_LIST: Final = re.compile(
    r"\w['\"]?, (?:['\"]?[\w-]{1,30}['\"]?, ){0,12}(?:and |or )['\"]?[\w-]"
    r"|\w{1,30} ?/ ?\w{1,30} ?/ ?\w|\[[^\[\]\n,]{1,60},[^\[\]\n]{1,200}\]|\(\w{1,30}(?:[,/][\w ]{1,30}){2,20}\)"
    rf"|: ?{_ITEM}(?:, ?{_ITEM}){{2,20}}[?.]?(?:\n|$)|^\W{{0,3}}[\w-]{{1,30}} or [\w-]{{1,30}}\?"
    r"|\w(?:[,/][\w ]{1,13}){1,12}(?:인지| 중| 가운데|로 )|(?<=,)[\w ]{1,13}(?:중|로) |[가-힣] ?/ ?[가-힣]"
)
_PAIR_KO: Final = re.compile(r"\S(?:인가요?|인지|야|이야)[,?]? \S{1,12}(?:인가요?|인지|야|이야)\b")
_LIST_WORDS: Final = (
    "labels:", "label:", "options:", "option:", "categories:", "queues:", "choices:",
    "라벨:", "목록:", "선택지:", "유형:",
)  # fmt: skip
_ABOUT: Final = re.compile(
    r"\b(?:this|the|following|each|these|incoming|a|above|below) (?:\w+ )?(?:review|tweet|message|comment|sentence|text"
    r"|article|news|query|ticket|email|e-mail|mail|post|dialogue|document|passage|headline|title|utterance|statement"
    r"|report|product|question|caller|feedback)"
)
_ABOUT_KO: Final = re.compile(
    r"(?:이|아래|다음|위|들어오는) ?(?:\S{1,12} )?"
    r"(?:트윗|문장|후기|리뷰|댓글|메일|메시지|글|게시물|기사|문의|발화|질문|상품명|제목|의견|말)"
)
_QUANTITY: Final = re.compile(
    r" how (?:many|much|long|far|old|fast|often) | what (?:percent|fraction|number)| find |몇|얼마|구하|구해|총 |계산"
)
_PERSONAL: Final = re.compile(r" (?:my|i m|i am|i feel|me) |나는|내가|제가|우리 |저는")

_LANGUAGE_NAMES: Final = frozenset(cues_en.LANGUAGES.split("|"))
_INTO: Final = re.compile(
    rf" (?:in|into|to|from) (?:natural |formal |simple |plain |polite |good )?(?:{cues_en.LANGUAGES}) "
    rf"| (?:{cues_en.LANGUAGES}) (?:version|translation|to|please|equivalent) "
    rf"| (?:the|what s the) (?:{cues_en.LANGUAGES}) (?:for|of|word) "
)
_ANSWER_IN: Final = re.compile(
    rf" (?:answer|reply|respond|explain|write|speak|output|summary) in (?:{cues_en.LANGUAGES}) "
)
_NAMED_KO: Final = re.compile(
    rf"(?:{cues_ko.LANGUAGES})( ?(?:로|판|버전))?( (?:답|대답|설명|작성|요약|알려|출력))?"
)


def is_lettered(lower: str) -> bool:
    """Whether answers to choose from are listed line by line, as in an exam."""
    if "\nb" in lower or "(b)" in lower:
        return sum(a in lower or b in lower or c in lower for a, b, c in _LETTERED) >= 3
    return "②" in lower and all(mark in lower for mark in _CIRCLED)


def number_count(text: str) -> int:
    """How many numbers a text holds."""
    return len(text.encode("utf-8", "surrogatepass").translate(_DIGITS_ONLY).split())


def is_formula(where: str, sample: str) -> bool:
    """Whether `where` holds a formula or an open calculation, or `sample` is set in LaTeX."""
    if "\\" in sample and sample.count("$") >= 4:
        return True
    return any(sign in where for sign in _FORMULA_SIGNS) and _FORMULA.search(where) is not None


def signs_of_code(lower: str) -> int:
    """How many different marks of program text are there."""
    for mark in _CODE_MARKS:
        if mark in lower:
            return sum([sign in lower for sign in _CODE])
    return 0


def has_closed_list(asking: str) -> bool:
    """Whether alternatives are listed: `a, b or c`, `a/b/c`, `[a, b]`, `labels: …`."""
    if any(word in asking for word in _LIST_WORDS):
        return True
    if "," in asking or "/" in asking or " or " in asking:
        return _LIST.search(asking) is not None
    return not asking.isascii() and _PAIR_KO.search(asking) is not None


def names_a_choice(asking: str) -> bool:
    """Whether two things are set against each other."""
    return " or " in asking or "인지" in asking or "참" in asking or "거짓" in asking


def is_about_a_text(asking: str) -> bool:
    """Whether the request points at a text: `this review`, `the following message`."""
    return _ABOUT.search(asking) is not None or (
        not asking.isascii() and _ABOUT_KO.search(asking) is not None
    )


def quantity_asked(words: str) -> bool:
    """Whether a number is what is asked for."""
    return _QUANTITY.search(words) is not None


def is_personal(words: str) -> bool:
    """Whether somebody speaks of himself."""
    return _PERSONAL.search(words) is not None


def target_language(
    asking: str, words: str, tokens: list[str]
) -> Literal["into", "answer-in", "named", "none"]:
    """What role a named language plays: to put something into it, to answer in it, or just named."""
    if not _LANGUAGE_NAMES.isdisjoint(tokens):
        if _INTO.search(words):
            return "answer-in" if _ANSWER_IN.search(words) else "into"
        return "named"
    if not asking.isascii():
        roles = [(match.group(1), match.group(2)) for match in _NAMED_KO.finditer(asking)]
        if any(into and not answer for into, answer in roles):
            return "into"
        if roles:
            return "answer-in" if any(answer for _, answer in roles) else "named"
    return "none"
