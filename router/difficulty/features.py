"""Structural features of a request: length, figures, formulas, options. None of them looks at what words mean."""

from __future__ import annotations

import math
from typing import Final

from weighbridge.router.difficulty.language import counts
from weighbridge.router.difficulty.shape import is_lettered
from weighbridge.router.difficulty.view import View

FITTED: Final = (
    "length",
    "length_over_500",
    "lines",
    "formula",
    "no_figures",
    "how_many",
    "options",
    "options_length",
    "options_how_many",
    "options_negation",
)
"""Features with a weight that was fitted, in the order of their sum."""

JUDGED: Final = ("proof", "constraints")
"""Features the data says nothing about; their weights are stated in the artefact as a judgement."""

NAMES: Final = FITTED + JUDGED

CENTRED: Final = ("length", "no_figures")
"""Features that count from their average in training; the others count from nought."""

_SHORTEST: Final = 4.0
_LONGEST: Final = 11.0
_SHORT_TEXT: Final = 600
_DIGITS: Final = b"0123456789"
_FORMULA_MARKS: Final = b"=^+*/\\"
_HOW_MANY: Final = ("how many", "how much", "몇 ", "얼마")
_NEGATION: Final = (" not ", "except")
_PROOF: Final = (
    " prove ", " proof", "show that", "by induction", "by contradiction", "증명", "임을 보", "귀류법", "귀납법",
)  # fmt: skip
_CONSTRAINT: Final = (
    " must ", " at least ", " at most ", " exactly ", " only if ", " without ", " no more than ", " unless ",
    " respectively", "반드시", "이상", "이하", "정확히", "제외", "조건", "단,", "동시에",
)  # fmt: skip


def structure(view: View) -> dict[str, float]:
    """The features of the last user turn, each within the range that was seen in training."""
    lower = view.lower
    lettered = is_lettered(lower)
    start = max(lower.find("\na. "), lower.find("\na) "), lower.find("\n(a) ")) if lettered else -1
    stem = lower[:start] if start > 0 else lower
    raw = stem.encode("utf-8", "surrogatepass")
    length = min(_LONGEST, max(_SHORTEST, math.log2(1 + _chars(view, stem))))
    # In a long text the words of a document must not pass for those of the request.
    scope = " " + (lower if len(lower) <= _SHORT_TEXT else view.parts.asking)
    options = 1.0 if lettered else 0.0
    how_many = 1.0 if _holds(scope, _HOW_MANY) else 0.0
    return {
        "length": length,
        "length_over_500": max(0.0, length - 9.0),
        "lines": min(4.0, math.log2(1 + stem.count("\n"))),
        "formula": float(min(6, len(raw) - len(raw.translate(None, _FORMULA_MARKS)))),
        "no_figures": 1.0 if len(raw) == len(raw.translate(None, _DIGITS)) else 0.0,
        "how_many": how_many,
        "options": options,
        "options_length": options * length,
        "options_how_many": options * how_many,
        "options_negation": options if lettered and _holds(lower, _NEGATION) else 0.0,
        "proof": 1.0 if _holds(scope, _PROOF) else 0.0,
        "constraints": float(min(4, sum([word in scope for word in _CONSTRAINT]))),
    }


def _holds(text: str, words: tuple[str, ...]) -> bool:
    return any([word in text for word in words])


def _chars(view: View, stem: str) -> float:
    """Length of the question in English characters: a Hangul syllable says as much as about two of them."""
    reading = view.reading
    chars = len(stem) if len(view.lower) >= reading.user_chars else reading.user_chars
    latin, hangul, foreign = counts(stem[:400])
    letters = latin + hangul + foreign
    return chars * (1.0 + hangul / letters) if letters else float(chars)
