"""Marks: what the look of a request says, each a name of ours. Lengths and counts become steps of a ladder."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from weighbridge.router.difficulty.asking import Parts
from weighbridge.router.difficulty.language import Language, counts
from weighbridge.router.difficulty.reading import Reading, clip
from weighbridge.router.difficulty.shape import (
    DIGITS_ONLY,
    is_formula,
    is_lettered,
    number_count,
    signs_of_code,
    target_language,
)

_ALL_LOOKED_AT: Final = 2_000
TALL: Final = 2_500
"""Prompts longer than that hold a document; how long it is says nothing about how hard they are."""

_MATERIAL: Final = 420
_FIRST_CIRCLED: Final = "①"
_WIDE_QUOTES: Final = ("“", "「")
_FIGURES_IN: Final = 1_500
_OPTION: Final = re.compile(r"\n\(?[a-j][.)] ")
_FORMULA_MARKS: Final = b"=^+*/\\"
_HOW_MANY: Final = ("how many", "how much", "몇 ", "얼마")
_NEGATION: Final = (" not ", "except", " least ", " false", "incorrect", "아닌", "않은", "틀린")
_PROOF_HINTS: Final = (
    "prove", "proof", "show that", "by induction", "by contradiction", "demonstrate", "establish that",
)  # fmt: skip
_PROOF_HINTS_BOTH: Final = (*_PROOF_HINTS, "증명", "입증", "을 보", "보이시오", "논증", "귀류법", "귀납법")
_PROOF: Final = re.compile(
    r"(?<!will )(?<!would )(?<!i can )(?<![a-z])(?:dis)?prove(?![a-z])"
    r"(?! (?:my|your|his|her|their|our|me|you|him|them|us|who|a point|to be|the purchase|useful|wrong|right)\b)"
    r"|(?<![a-z])(?:formal|rigorous|short|complete|inductive|direct|elementary|mathematical|detailed|[a-z]+-step) proof"
    r"(?! of (?:purchase|delivery|payment|concept|address|identity|insurance|income|residen|employment|ownership))"
    r"|(?:write|give|find|sketch|complete|show) (?:me )?(?:a|the) proof (?:of|that|for)\b|proof(?:를| (?:that|by))"
    r"|\bby (?:induction|contradiction)\b"
    r"|(?:^|[.!?:;,\n] ?)(?:please |now |then |and |also )?(?:show|establish|demonstrate) that\b"
    r"|\bdemonstrate rigorously\b"
    r"|(?<!내용)(?<!작업)(?<!지분)(?<!납세)(?<!관계)증명"
    r"(?=\s?(?:해|하[라시세여는기고려]|할|을 (?:써|보여|작성|완성)|(?:방법|과정)을))"
    r"|입증(?=해|하[라시])|[임함음]을 (?:보이|보여|논증)|보이시오|귀류법|귀납법"
)
_BEFORE_HINT: Final = 24
_BEHIND_HINT: Final = 48
_MOST_HINTS: Final = 40
_FAILING: Final = (
    "traceback", "exception", "stack trace", "segfault", "segmentation fault", "fails with", "test fails",
    "tests fail", "failing", "doesn't work", "does not work", "bug", "디버그", "버그", "오류", "에러", "안 돼", "안돼",
)  # fmt: skip
_CONSTRAINT: Final = (
    " must ", " at least ", " at most ", " exactly ", " only if ", " without ", " no more than ", " unless ",
    " respectively",
)  # fmt: skip
_CONSTRAINT_BOTH: Final = (*_CONSTRAINT, "반드시", "이상", "이하", "정확히", "제외", "조건", "단,", "동시에")
_RECORD_TOOLS: Final = ("record", "store", "save", "extract", "submit", "register", "fill")
_LABEL_TOOLS: Final = ("classify", "label", "tag_", "categor")
_NAMED_FIELDS: Final = (
    ("summary-field", frozenset(["summary", "abstract", "tldr", "headline", "요약"])),
    ("verdict-field", frozenset(["decision", "verdict", "approved", "recommendation", "결정", "판정"])),
    ("translation-field", frozenset(["translation", "translated", "번역"])),
    ("label-field", frozenset(["label", "category", "class", "sentiment", "intent", "분류", "라벨"])),
    ("answer-field", frozenset(["answer", "source", "sources", "quote", "답변", "근거"])),
    ("code-field", frozenset(["code", "patch", "fix", "diff", "코드"])),
)


def log2(number: float) -> int:
    """The step of a ladder of powers of two that a count of something is on."""
    return int(1 + number).bit_length() - 1


def half_log2(number: int) -> int:
    """The same with two steps to a doubling."""
    number += 1
    step = number.bit_length() - 1
    return 2 * step + (number * number >= 1 << (2 * step + 1))


class Hard(NamedTuple):
    """What speaks for difficulty by itself, whatever words stand around it.

    Args:
        proof: a proof is asked for.
        failing: code that fails is shown or told of.
        constraints: how many kinds of condition are set, at most four.
    """

    proof: bool
    failing: bool
    constraints: int

    @property
    def any(self) -> bool:
        """Whether there is anything of it."""
        return self.proof or self.failing or self.constraints > 0


def marks_of(
    reading: Reading, lower: str, chars: int, parts: Parts, language: Language
) -> tuple[list[str], Hard]:
    """The marks of a request, and what in it speaks for itself.

    Args:
        lower: its last turn, made ready.
        chars: how long that would be whole.
    """
    marks = [f"language-{language}"]
    stem = _exam(lower, marks)
    code = min(4, signs_of_code(lower))
    marks.append(f"code-{code}")
    _size(parts.asking if chars > TALL else stem, parts, marks)
    if not lower.isascii():
        _scripts(parts, marks)
    if chars > _MATERIAL:
        marks.append("material")
    _layout(lower, parts, marks)
    _asked(lower, stem, parts, marks)
    _interface(reading, chars, marks)
    return marks, _hard(code, lower, parts, reading)


def _exam(lower: str, marks: list[str]) -> str:
    """Answers listed to choose from; returns the question without them."""
    if not is_lettered(lower):
        marks.append("open")
        return lower
    start = max(lower.find("\na. "), lower.find("\na) "), lower.find("\n(a) "), lower.find(_FIRST_CIRCLED))
    stem = lower[:start] if start > 0 else lower
    answers = len(lower) - len(stem)
    count = min(10, len(_OPTION.findall(lower)))
    marks += (
        "options", f"options-{count}", f"options-length-{log2(answers // max(1, count))}",
        f"options-beside-{log2(len(stem))}",
        f"options-figures-{min(4, log2(number_count(lower[len(stem):]) // max(1, count)))}",
    )  # fmt: skip
    if _holds(stem[-160:], _NEGATION):
        marks.append("options-negated")
    return stem


def _size(stem: str, parts: Parts, marks: list[str]) -> None:
    """Length, figures and formula marks, in steps. In UTF-8, so that a Hangul syllable counts as three letters."""
    whole = stem.encode("utf-8", "replace")
    chars = len(whole)
    head = whole[:_FIGURES_IN]
    formula = log2(len(head) - len(head.translate(None, _FORMULA_MARKS)))
    figures = log2(len(head.translate(DIGITS_ONLY).split()))
    words = 1 + stem.count(" ")
    sentences = stem.count(". ") + stem.count("? ")
    marks += (
        f"word-length-{min(16, 2 * chars // words)}", f"sentence-length-{min(7, log2(words // (1 + sentences)))}",
        f"length-{half_log2(chars)}", f"formula-marks-{min(5, formula)}", f"figures-{min(5, figures)}",
        f"length-{log2(chars)}-figures-{min(3, figures)}", f"sentences-{min(5, log2(sentences))}",
    )  # fmt: skip


def _scripts(parts: Parts, marks: list[str]) -> None:
    """In which letters is asked, and in which the rest is."""
    for name, text in (("asks-in", parts.asking[:150]), ("beside", parts.other[:150])):
        latin, hangul, foreign = counts(text)
        letters = latin + hangul + foreign
        if letters > 5:
            marks.append(
                f"{name}-{hangul * 4 // letters}-{(foreign * 4 + letters - 1) // letters}-{latin * 3 // letters}"
            )


def _layout(lower: str, parts: Parts, marks: list[str]) -> None:
    """Lines, quotations, where colons and question marks stand."""
    first, last = parts.first, parts.last
    lines = lower.count("\n") - lower.count("\n\n")
    marks.append(f"lines-{min(5, log2(lines))}")
    asking = parts.asking
    if "\n\n" in lower:
        marks.append("blank-line")
    if "```" in lower:
        marks.append("fence")
    if '"' in lower or any([mark in lower for mark in _WIDE_QUOTES]):
        marks.append("quotation")
    if "\\" in lower and "$" in lower:
        marks.append("latex")
    if ":" in first:
        marks.append("colon-in-first-line")
        if first.endswith(":"):
            marks.append("first-line-opens")
    if first.endswith("?"):
        marks.append("first-line-asks")
    if last.endswith("?"):
        marks.append("ends-with-question")
    if not asking:
        marks.append("no-request")
    elif "?" in asking:
        marks.append("asks-twice" if asking.count("?") > 1 else "asks-once")
    if lines > 1:
        marks += (
            "short-tail" if len(last) < 160 else "long-tail",
            "short-head" if len(first) < 160 else "long-head",
        )


def _asked(lower: str, stem: str, parts: Parts, marks: list[str]) -> None:
    asking = parts.asking[:700]
    if is_formula(asking or parts.first, lower):
        marks.append("formula")
    marks.append("target-" + target_language(asking))
    if _holds(stem, _HOW_MANY):
        marks.append("how-many-options" if marks[1] == "options" else "how-many")
    if _holds(lower, _NEGATION):
        marks.append("negation")


def _interface(reading: Reading, chars: int, marks: list[str]) -> None:
    """A requested schema, offered functions, a system message, an earlier turn."""
    if reading.fields:
        marks.append(f"fields-{min(4, len(reading.fields))}")
        marks += [name for name, fields in _NAMED_FIELDS if not fields.isdisjoint(reading.fields)]
        if reading.enums:
            marks.append("choice-of-few" if len(reading.fields) <= 2 else "choice")
    if reading.tools:
        marks.append("tools")
        if any(word in reading.tools for word in _RECORD_TOOLS):
            marks.append("record-tool")
        elif any(word in reading.tools for word in _LABEL_TOOLS):
            marks.append("label-tool")
    if reading.system:
        marks.append(f"system-{min(11, log2(len(reading.system)))}")
    if reading.earlier:
        marks.append("follow-up" if chars >= 200 else "short-follow-up")
        if reading.earlier_chars > 400:
            marks.append("earlier-material")


def _hard(code: int, lower: str, parts: Parts, reading: Reading) -> Hard:
    """Conditions are looked for where something is asked, so that a document does not pass for a request; proofs and
    failing code in all of a page, so that nothing around them hides them."""
    short = len(lower) <= 600
    scope = lower if short else parts.asking
    wide = lower if len(lower) <= _ALL_LOOKED_AT else f"{parts.asking}\n{lower[:600]}\n{lower[-800:]}"
    if reading.system:
        system = reading.system.lower()
        scope += "\n" + system[:600]
        wide += "\n" + clip(system, 900, 600)
    failing = code >= 1 and _holds(wide if code < 2 else lower, _FAILING)
    words = _CONSTRAINT if scope.isascii() else _CONSTRAINT_BOTH
    proof = _asks_for_proof(wide, _PROOF_HINTS if wide.isascii() else _PROOF_HINTS_BOTH)
    return Hard(proof, failing, min(4, sum([word in scope for word in words])))


def _asks_for_proof(text: str, hints: tuple[str, ...]) -> bool:
    """Looked for around words that hint at it only, as looking everywhere costs more than all the rest."""
    for hint in hints:
        at, tries = text.find(hint), 0
        while at >= 0 and tries < _MOST_HINTS:
            if _PROOF.search(text[max(0, at - _BEFORE_HINT) : at + _BEHIND_HINT]) is not None:
                return True
            at, tries = text.find(hint, at + len(hint)), tries + 1
    return False


def _holds(text: str, words: tuple[str, ...]) -> bool:
    return any([word in text for word in words])
